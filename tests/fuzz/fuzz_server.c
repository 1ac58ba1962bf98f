/* SPDX-License-Identifier: Apache-2.0 */
/* A reducer's registry and two of its lanes: workers join, contribute, disagree, stop
 * reading and disconnect. Output must be whole frames of the protocol, every rank must
 * get the same bits, memory must stay within the size that was announced when each job
 * opened, slots must be accounted for, and nothing may be left when all have
 * disconnected. */
#include "tests/fuzz/server_world.h"

#include "common/dtype.h"
#include "proto/features.h"

#include <string.h>

static void twist_hello(struct fuzz_input *in, struct control_hello *h)
{
	uint64_t v;

	if (fuzz_u8(in) < 200)
		return;
	v = fuzz_number(in);
	switch (fuzz_u8(in) % 18) {
	case 0:
		h->generation = (uint32_t)v;
		break;
	case 1:
		h->rank = (uint32_t)v;
		break;
	case 2:
		h->world_size = (uint32_t)v;
		break;
	case 3:
		h->lane = (uint32_t)v;
		break;
	case 4:
		h->lanes = (uint32_t)v;
		break;
	case 5:
		h->chunk_bytes = (uint32_t)v;
		break;
	case 6:
		h->window = (uint32_t)v;
		break;
	case 7:
		h->priorities = (uint32_t)v;
		break;
	case 8:
		h->deterministic ^= v & 1;
		h->retain ^= v >> 1 & 1;
		h->rejoin ^= v >> 2 & 1;
		h->shared ^= v >> 3 & 1;
		break;
	case 9:
		h->checksum ^= true;
		break;
	case 10:
		h->config_digest = v;
		break;
	case 11:
		h->processes = (uint32_t)v;
		break;
	case 12:
		h->incarnation = v;
		break;
	case 13:
		h->detect_ms = (uint32_t)v;
		break;
	case 14:
		fuzz_text(in, h->job, sizeof h->job);
		break;
	case 15:
		fuzz_text(in, h->run, sizeof h->run);
		break;
	case 17:
		h->decoded_bytes = (uint32_t)v;
		break;
	default:
		fuzz_text(in, h->label, sizeof h->label);
	}
}

/* Does with a HELLO what the driver of handshakes does. */
static void greet(struct world *w, const struct control_hello *hello)
{
	uint8_t payload[FRAME_CONTROL_MAX];
	struct control_refused refused = {0};
	struct registry_admit admit;
	struct control_hello h = {0};
	struct rs_err e = {0};
	struct message *l;
	unsigned i = 0;

	if (control_unpack_hello(payload, control_pack_hello(payload, hello), &h, &e))
		return;
	while (i < CONNS && w->c[i].used)
		i++;
	/* each HELLO may cause messages to all lanes for each job */
	if (i == CONNS || w->messages_n > MESSAGES / 2)
		return;
	if (registry_hello(w->registry, &h, &admit, &refused)) {
		must(refused.code < 0 && refused.message[0]);
		return;
	}
	must(admit.thread < LANES && admit.stripe.memory);
	w->c[i] = (struct conn){.used = true, .hello = h, .job = admit.stripe.job, .room = SIZE_MAX};
	l = world_post(w);
	l->type = TO_LANE_ATTACH;
	l->thread = admit.thread;
	l->conn = i;
	l->admit = admit;
	registry_admitted(w->registry, admit.stripe.job);
	if (!w->hold)
		world_settle(w);
}

/* Joins all lanes of all ranks of a job, with three bytes of input. */
static void join(struct world *w)
{
	uint8_t a = fuzz_u8(&w->in), b = fuzz_u8(&w->in), generation = fuzz_u8(&w->in) % 4;
	struct control_hello h = {
	    .generation = generation,
	    .world_size = 1 + a % 4 % 3,
	    .lanes = 1 + (a >> 2 & 1),
	    .chunk_bytes = CHUNK,
	    .decoded_bytes = b & 8 ? 4 * CHUNK : 0,
	    .features = a & 128 ? FEATURE_START | FEATURE_ENCODINGS | FEATURE_SHARES | FEATURE_SHARDED |
				      (b & 16 ? FEATURE_DECOUPLED : 0)
				: 0,
	    .window = 1 + b % 8,
	    .priorities = 1 + (a >> 5 & 3),
	    .deterministic = a >> 3 & 1,
	    .checksum = a >> 4 & 1,
	    .retain = b >> 6 & 1,
	    .config_digest = ((uint64_t)a << 8 | b) + 1,
	    .processes = 1,
	    .label = "x",
	    .reducer = "r0",
	    .detect_ms = 4000,
	};

	h.job[0] = (char)('a' + (b >> 7));
	for (h.rank = 0; h.rank < h.world_size; h.rank++)
		for (h.lane = 0; h.lane < h.lanes; h.lane++) {
			struct control_hello mine = h;

			mine.incarnation = h.rank;
			twist_hello(&w->in, &mine);
			greet(w, &mine);
		}
}

static void say(struct world *w, struct conn *c, const struct frame *f, const uint8_t *payload)
{
	uint8_t head[FRAME_HEADER];

	frame_encode(f, head);
	if (f->type == FRAME_DATA || f->type == FRAME_HAVE)
		c->said++;
	world_feed(w, c, head, sizeof head);
	world_feed(w, c, payload, f->payload_len < 2 * CHUNK ? f->payload_len : 2 * CHUNK);
}

/* Answers FETCH. */
static void say_kept(struct world *w, struct conn *c)
{
	uint8_t payload[2 * CHUNK];
	struct frame f = c->fetch;

	if (!c->session || !c->asked)
		return;
	c->asked = false;
	memset(payload, (int)f.of.seq, sizeof payload);
	f.type = FRAME_KEPT;
	f.payload_len = operation_down_bytes(&f.of, operation_place(&f.of, f.chunk_elems, f.chunk).elems);
	if (c->hello.checksum && f.payload_len && f.payload_len <= sizeof payload) {
		f.flags = FRAME_CHECKED;
		f.payload_sum = frame_checksum(payload, f.payload_len);
	}
	fuzz_twist(&w->in, &f);
	say(w, c, &f, payload);
}

/* Sends the next chunk of a priority as this rank would, or HAVE for it; possibly with
 * one other field. */
static void contribute(struct world *w, struct conn *c, unsigned priority, bool have)
{
	struct cursor *at = &c->next[priority];
	uint8_t payload[2 * CHUNK];
	struct operation_place place;
	unsigned kind;
	struct frame f;
	uint32_t n;
	bool root;

	if (!c->session)
		return;
	conn_find_chunk(c, priority, at);
	kind = at->seq % KINDS;
	f = (struct frame){
	    .type = FRAME_DATA,
	    .flags = world_kinds[kind].flags,
	    .of = conn_operation(c, kind),
	    .chunk = at->chunk++,
	    .ack = at->seq / 2,
	    .generation = c->hello.generation,
	    .chunk_elems = conn_chunk_elems(c, kind),
	};
	f.of.priority = (uint8_t)priority;
	f.of.seq = at->seq;
	place = operation_place(&f.of, f.chunk_elems, f.chunk);
	root = f.of.sharded ? place.part == c->hello.rank : f.of.op == FRAME_OP_BROADCAST && c->hello.rank == 0;
	n = f.of.op == FRAME_OP_BROADCAST && !root ? 0 : place.elems;
	f.payload_len = f.flags & FRAME_WIDE ? n * (uint32_t)sizeof(float) : operation_up_bytes(&f.of, n);
	f.flags |= root ? FRAME_ROOT : 0;
	for (uint32_t i = 0; i < sizeof payload; i++)
		payload[i] = (uint8_t)(i * 7 + c->hello.rank + f.of.seq);
	if (c->hello.checksum && f.payload_len) {
		f.flags |= FRAME_CHECKED;
		f.payload_sum = frame_checksum(payload, f.payload_len);
	}
	if (have) {
		f.type = FRAME_HAVE;
		f.payload_len = f.payload_sum = f.flags = 0;
	}
	fuzz_twist(&w->in, &f);
	say(w, c, &f, payload);
}

static bool same_lane(const struct conn *a, const struct conn *b)
{
	return b->used && strcmp(a->hello.job, b->hello.job) == 0 && a->hello.lane == b->hello.lane;
}

/* All ranks of a connection's lane contribute n chunks of each priority; one of them may
 * have all already. */
static void round_of(struct world *w, const struct conn *c, unsigned n)
{
	unsigned has = n > 4 ? fuzz_u8(&w->in) : CONNS;

	for (unsigned i = 0; i < n; i++)
		for (unsigned k = 0; k < CONNS; k++)
			for (unsigned p = 0; same_lane(c, &w->c[k]) && p < w->c[k].hello.priorities; p++) {
				say_kept(w, &w->c[k]);
				contribute(w, &w->c[k], p, k == has);
			}
}

/* All ranks of a connection's lane send VIEW: a reducer was lost or is back, with their
 * starts. */
static void view_of(struct world *w, const struct conn *c, unsigned reducer)
{
	uint8_t payload[FRAME_CONTROL_MAX], frame[FRAME_HEADER + FRAME_CONTROL_MAX];

	w->lives[reducer]++;
	for (unsigned k = 0; k < CONNS; k++) {
		struct control_view v = {.n = REDUCERS};
		uint8_t back = fuzz_u8(&w->in);
		uint32_t len;
		struct rs_err e;
		struct frame f;

		if (!same_lane(c, &w->c[k]))
			continue;
		memcpy(v.lives, w->lives, sizeof w->lives);
		for (unsigned p = 0; p < w->c[k].hello.priorities; p++) {
			uint64_t at = conn_position(&w->c[k], p);

			v.start[p] = at > back % 8 ? at - back % 8 : 0;
		}
		len = control_pack_view(payload, &v);
		control_frame(frame, FRAME_VIEW, c->hello.generation, 0, payload, len);
		must(frame_decode(frame, &f, &e) == RS_OK);
		if (back < 224) /* else this rank has not learnt of it */
			say(w, &w->c[k], &f, payload);
	}
}

static void say_control(struct world *w, struct conn *c, unsigned type)
{
	uint8_t payload[FRAME_CONTROL_MAX], frame[FRAME_HEADER + FRAME_CONTROL_MAX];
	uint32_t len = fuzz_control(&w->in, type, payload);
	uint64_t ack = fuzz_u8(&w->in);
	struct rs_err e;
	struct frame f;

	control_frame(frame, type, c->hello.generation, ack, payload, len);
	if (frame_decode(frame, &f, &e))
		f = (struct frame){.type = (uint8_t)type, .payload_len = len, .generation = c->hello.generation};
	fuzz_twist(&w->in, &f);
	say(w, c, &f, payload);
}

static void pass_time(struct world *w, unsigned ms)
{
	w->now_ms += ms;
	for (unsigned i = 0; i < LANES; i++)
		lane_tick(w->lanes[i], w->now_ms);
	if (ms >= 1000 && w->messages_n < MESSAGES / 2)
		registry_tick(w->registry);
}

static void govern(struct world *w, uint8_t what)
{
	struct registry_limits limits = {.jobs = what & 3, .workers = 1 + (what >> 2 & 3), .memory_bytes = LIMIT};
	struct rs_err why;

	if (w->messages_n > MESSAGES / 2)
		return;
	rs_fail(&why, RS_ECLOSED, "stopped");
	if (what >= 250)
		registry_abort_all(w->registry, &why);
	else if (what >= 240)
		registry_drain(w->registry);
	else if (what >= 200)
		registry_set_limits(w->registry, &limits);
	else
		w->hold = what & 1;
}

static void step(struct world *w)
{
	uint8_t what = fuzz_u8(&w->in) % 15, who = fuzz_u8(&w->in);
	struct conn *c = &w->c[who % CONNS];
	const uint8_t *raw;
	size_t n;

	switch (what) {
	case 0:
		join(w);
		break;
	case 1:
	case 2:
		round_of(w, c, 1 + who / CONNS % 8);
		break;
	case 3:
	case 4:
		if (c->used)
			contribute(w, c, who / CONNS % c->hello.priorities, who >= 192);
		break;
	case 5:
		say_control(w, c, fuzz_u8(&w->in) & 31);
		break;
	case 6:
		raw = fuzz_bytes(&w->in, 2 * CHUNK, &n);
		world_feed(w, c, raw, n);
		break;
	case 7:
		c->room = who >= 128 ? SIZE_MAX : fuzz_u8(&w->in) * 4;
		if (c->session)
			world_write(w, c);
		break;
	case 8:
		if (c->session)
			session_lost(c->session, "it closed the connection");
		break;
	case 9:
		pass_time(w, who * 20u);
		break;
	case 10:
		govern(w, who);
		break;
	case 11:
		w->piece = who ? who : SIZE_MAX;
		world_deliver(w);
		break;
	case 12:
	case 13:
		if (c->used)
			view_of(w, c, who / CONNS % REDUCERS);
		break;
	default:
		say_kept(w, c);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct world world;
	struct world *w = &world;

	world_open(w);
	w->in = (struct fuzz_input){data, size};
	for (unsigned i = 0; i < STEPS && w->in.left; i++) {
		step(w);
		world_flush(w);
		if (!w->hold)
			world_settle(w);
		world_check(w);
		if (w->heap)
			must(fuzz_heap() <= w->heap + w->bound + NOISE);
	}
	world_close(w);
	return 0;
}
