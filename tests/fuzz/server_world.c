/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/server_world.h"

#include "common/dtype.h"
#include "config/config.h"
#include "proto/features.h"
#include "server/core/check.h"

#include <string.h>

const struct world_kind world_kinds[KINDS] = {
    {RS_FLOAT32, RS_SUM, 0, 10, RS_WIRE_SAME, RS_WIRE_SAME, false},
    {RS_UINT8, RS_SUM, 0, 3000, RS_WIRE_SAME, RS_WIRE_SAME, false},
    {RS_FLOAT16, RS_AVG, 0, 600, RS_WIRE_SAME, RS_WIRE_INT8, false},
    {RS_INT64, RS_MAX, 0, 0, RS_WIRE_SAME, RS_WIRE_SAME, false},
    {RS_FLOAT64, RS_PROD, 0, 129, RS_WIRE_SAME, RS_WIRE_SAME, false},
    {RS_UINT8, FRAME_OP_BROADCAST, 0, 1500, RS_WIRE_SAME, RS_WIRE_SAME, false},
    {RS_BFLOAT16, RS_MIN, FRAME_WIDE, 513, RS_WIRE_SAME, RS_WIRE_SAME, false},
    {RS_FLOAT32, RS_SUM, 0, 1300, RS_WIRE_FP8, RS_WIRE_FP8, false},
    {RS_FLOAT32, RS_AVG, 0, 700, RS_WIRE_INT8, RS_WIRE_BF16, false},
    {RS_BFLOAT16, RS_SUM, FRAME_WIDE, 300, RS_WIRE_SAME, RS_WIRE_FP8, false},
    {RS_FLOAT32, RS_SUM, 0, 1260, RS_WIRE_SAME, RS_WIRE_INT8, true},
    {RS_UINT8, FRAME_OP_BROADCAST, 0, 2400, RS_WIRE_SAME, RS_WIRE_SAME, true},
};
struct message *world_post(struct world *w)
{
	must(w->messages_n < MESSAGES);
	return &w->messages[(w->messages_head + w->messages_n++) % MESSAGES];
}

static void on_event(void *ctx, const struct lane_event *ev)
{
	struct message *l = world_post(ctx);

	l->type = TO_REGISTRY;
	l->event = *ev;
}

static void on_action(void *ctx, const struct registry_action *a)
{
	struct world *w = ctx;

	if (a->type == REGISTRY_OPENED)
		w->bound += a->job.memory;
	if (a->type == REGISTRY_CLOSED)
		w->bound -= a->job.memory;
	if (a->type == REGISTRY_OPENED || a->type == REGISTRY_CLOSED)
		return;
	for (unsigned i = 0; i < LANES; i++) {
		struct message *l;

		if (a->type == REGISTRY_ASK && i != a->thread)
			continue;
		l = world_post(w);
		l->thread = i;
		l->job = a->job.id;
		l->begin = a->begin;
		l->type = a->type == REGISTRY_START  ? TO_LANE_START
			  : a->type == REGISTRY_TELL ? TO_LANE_TELL
			  : a->type == REGISTRY_ASK  ? TO_LANE_ASK
						     : TO_LANE_ABORT;
		l->lane = a->lane;
		l->rank = a->rank;
		l->question = a->question;
		l->why = a->why;
		l->cause = a->cause;
		if (a->type == REGISTRY_TELL) {
			must(a->frame_len <= sizeof l->frame);
			memcpy(l->frame, a->frame, a->frame_len);
			l->frame_len = a->frame_len;
		}
	}
}

static void *alloc_slots(void *ctx, uint64_t bytes)
{
	struct world *w = ctx;

	must(bytes <= LIMIT);
	w->slots += bytes;
	return aligned_alloc(64, bytes);
}

static void free_slots(void *ctx, void *memory, uint64_t bytes)
{
	struct world *w = ctx;

	w->slots -= bytes;
	free(memory);
}

struct operation conn_operation(const struct conn *c, unsigned kind)
{
	const struct world_kind *k = &world_kinds[kind];
	bool encodes = c->hello.features & FEATURE_ENCODINGS;
	bool sharded = k->sharded && c->hello.features & FEATURE_SHARDED;

	return (struct operation){.sharded = sharded,
				  .parts = sharded ? c->hello.world_size : 0,
				  .dtype = k->dtype & 15,
				  .op = k->op & 31,
				  .size = rs_dtype_size(k->dtype) & OPERATION_SIZE,
				  .count = k->count,
				  .up = encodes ? k->up & 15 : 0,
				  .down = encodes ? k->down & 7 : 0};
}

uint32_t conn_chunk_elems(const struct conn *c, unsigned kind)
{
	const struct operation of = conn_operation(c, kind);
	uint32_t least = 2 * c->hello.chunk_bytes, decoded = c->hello.decoded_bytes;

	return operation_chunk_elems(&of, c->hello.chunk_bytes, decoded > least ? decoded : least);
}

/* Returns the number of chunks of an operation. */
static uint64_t conn_chunks(const struct conn *c, unsigned kind)
{
	const struct operation of = conn_operation(c, kind);

	return operation_chunks(&of, conn_chunk_elems(c, kind));
}

void conn_find_chunk(const struct conn *c, unsigned priority, struct cursor *at)
{
	while (at->seq / 2 % c->hello.priorities != priority || at->chunk >= conn_chunks(c, at->seq % KINDS)) {
		at->seq++;
		at->chunk = 0;
	}
}

uint64_t conn_position(const struct conn *c, unsigned priority)
{
	const struct cursor *to = &c->next[priority];
	uint64_t n = to->chunk;

	for (uint64_t seq = 0; seq < to->seq; seq++)
		if (seq / 2 % c->hello.priorities == priority)
			n += conn_chunks(c, seq % KINDS);
	return n;
}

/* The lane continues where RESUME points to, if that is near. */
static void resume(struct conn *c)
{
	struct control_view v;
	struct rs_err e;

	must(control_unpack_view(c->in.control, c->in.f.payload_len, &v, &e) == RS_OK);
	c->epoch++;
	c->asked = false;
	for (unsigned p = 0; p < c->hello.priorities; p++) {
		uint64_t left = v.start[p];
		struct cursor at = {0};

		for (; at.seq < NEAR; at.seq++, at.chunk = 0) {
			uint64_t n;

			conn_find_chunk(c, p, &at);
			n = conn_chunks(c, at.seq % KINDS);
			if (left < n)
				break;
			left -= n;
		}
		at.chunk = (uint32_t)left;
		if (at.seq < NEAR)
			c->next[p] = at;
	}
}

/* Every rank gets the same bits, even if ranks send wrong frames. */
static void check_result(struct world *w, const struct conn *c)
{
	const struct frame *f = &c->in.f;
	uint64_t stream =
	    ((c->job * RS_LANES_MAX + c->hello.lane) * FRAME_PRIORITIES + f->of.priority) << 32 | c->epoch;
	struct result *r = &w->results[(stream * 0x10001 + f->of.seq * 31 + f->chunk) % RESULTS];

	must(f->payload_len <= rs_wire_chunk_most(c->hello.chunk_bytes, c->hello.decoded_bytes));
	must(f->of.priority < c->hello.priorities);
	must(f->generation == c->hello.generation);
	if (!f->payload_len)
		return; /* to the root of a broadcast, or to a rank that has it already */
	if (r->stream == stream && r->seq == f->of.seq && r->chunk == f->chunk)
		must(r->hash == c->in.hash);
	*r = (struct result){stream, f->of.seq, c->in.hash, f->chunk};
}

static void on_frame(struct world *w, struct conn *c)
{
	struct rs_cause cause;
	struct rs_err why, e = {0};
	struct control_late late;
	struct control_view v;

	must(!c->aborted);
	must(c->welcome != (c->in.f.type == FRAME_WELCOME));
	switch (c->in.f.type) {
	case FRAME_WELCOME:
		c->welcome = true;
		break;
	case FRAME_START:
		must(!c->start);
		c->start = true;
		break;
	case FRAME_RESULT:
		must(c->start && ++c->results <= c->said);
		check_result(w, c);
		break;
	case FRAME_ABORT:
		must(control_unpack_abort(c->in.control, c->in.f.payload_len, &why, &cause, &e) == RS_OK);
		must(why.msg[0]);
		c->aborted = true;
		break;
	case FRAME_WAITING:
		must(!c->start);
		break;
	case FRAME_LATE:
		must(c->start);
		must(control_unpack_late(c->in.control, c->in.f.payload_len, &late, &e) == RS_OK);
		break;
	case FRAME_RESUME:
		must(c->start);
		resume(c);
		break;
	case FRAME_CREDIT:
		must(c->start && c->hello.features & FEATURE_DECOUPLED && c->in.f.of.count <= c->said);
		break;
	case FRAME_FETCH:
		must(c->start && !c->in.f.payload_len);
		c->asked = true;
		c->fetch = c->in.f;
		break;
	case FRAME_VIEW:
		must(control_unpack_view(c->in.control, c->in.f.payload_len, &v, &e) == RS_OK);
		break;
	default:
		must(c->in.f.type == FRAME_PING || c->in.f.type == FRAME_DRAIN);
	}
}

void world_write(struct world *w, struct conn *c)
{
	struct iovec iov[SESSION_IOV];
	unsigned n;

	while ((n = session_send_target(c->session, iov, SESSION_IOV)) && c->room) {
		size_t sent = 0;

		must(n <= SESSION_IOV);
		for (unsigned i = 0; i < n && sent < c->room; i++) {
			size_t part = iov[i].iov_len < c->room - sent ? iov[i].iov_len : c->room - sent;
			const uint8_t *at = iov[i].iov_base;

			must(iov[i].iov_len > 0);
			sent += part;
			while (part)
				if (fuzz_decode(&c->in, &at, &part))
					on_frame(w, c);
		}
		if (c->room != SIZE_MAX)
			c->room -= sent;
		session_sent(c->session, sent, w->now_ms);
	}
	c->write_wait = n > 0;
}

void world_check(const struct world *w)
{
	for (unsigned i = 0; i < LANES; i++)
		must(lane_check(w->lanes[i]) == NULL);
}

/* As a lane's thread does after each event. */
static bool flush(struct world *w, struct lane *lane)
{
	struct session *s;
	bool any = false;

	for (unsigned n = 0; (s = lane_next_ready(lane)); n++, any = true) {
		struct conn *c = session_user(s);

		must(n < 10000 && c->session == s);
		if (session_closed(s)) {
			*c = (struct conn){.used = false};
			session_free(s);
		} else if (!c->write_wait || session_shut(s)) {
			world_write(w, c);
		}
	}
	return any;
}

static void attach(struct world *w, const struct message *l)
{
	struct conn *c = &w->c[l->conn];
	uint8_t payload[FRAME_CONTROL_MAX], frame[FRAME_HEADER + FRAME_CONTROL_MAX];
	struct rs_err e;

	must(lane_attach(w->lanes[l->thread], &c->session, &l->admit.stripe, &l->admit.session, c, w->now_ms, &e) ==
	     RS_OK);
	must(session_queue(
	    c->session, frame,
	    control_frame(frame, FRAME_WELCOME, l->admit.stripe.generation, 0, payload,
			  control_pack_welcome(payload, &(struct control_welcome){.detect_ms = DETECT_MS}))));
}

bool world_deliver(struct world *w)
{
	struct message *l = &w->messages[w->messages_head];
	const struct lane_event *ev = &l->event;

	if (!w->messages_n)
		return false;
	w->messages_head = (w->messages_head + 1) % MESSAGES;
	w->messages_n--;
	switch (l->type) {
	case TO_LANE_ATTACH:
		attach(w, l);
		break;
	case TO_LANE_START:
		lane_start(w->lanes[l->thread], l->job, &l->begin);
		break;
	case TO_LANE_TELL:
		lane_tell(w->lanes[l->thread], l->job, l->frame, l->frame_len);
		break;
	case TO_LANE_ASK:
		lane_ask(w->lanes[l->thread], l->job, l->lane, l->rank, l->question);
		break;
	case TO_LANE_ABORT:
		lane_abort(w->lanes[l->thread], l->job, &l->why, &l->cause);
		break;
	case TO_REGISTRY:
		if (ev->type == LANE_FAILED)
			registry_failed(w->registry, ev->job, &ev->why, &ev->cause);
		else if (ev->type == LANE_CLOSED)
			registry_session_closed(w->registry, ev->job, ev->rank, ev->lane, ev->clean);
		else if (ev->type == LANE_ANSWERED || ev->type == LANE_PROVEN)
			registry_lane_event(w->registry, ev);
		break;
	}
	return true;
}

void world_flush(struct world *w)
{
	for (unsigned i = 0; i < LANES; i++)
		flush(w, w->lanes[i]);
}

void world_settle(struct world *w)
{
	unsigned n = 0;

	do {
		world_flush(w);
		must(++n < 10000);
	} while (world_deliver(w));
}

void world_feed(struct world *w, struct conn *c, const uint8_t *at, size_t len)
{
	unsigned pieces = 0;

	while (len && c->session) {
		struct iovec iov[2];
		unsigned n = session_recv_target(c->session, iov);
		size_t left = len < w->piece ? len : w->piece, done;

		if (++pieces > 100)
			left = len;
		if (!n)
			return;
		done = fuzz_scatter(iov, n, at, left);
		at += done;
		len -= done;
		session_received(c->session, done, w->now_ms);
		world_check(w);
		world_flush(w);
	}
}

/* The lanes are the same for all inputs, because making their scratch memory takes longer
 * than most inputs. */
void world_open(struct world *w)
{
	struct registry_options ro = {.limits = {.jobs = 3, .workers = 8, .memory_bytes = LIMIT},
				      .features = FEATURES_ALL,
				      .threads = LANES,
				      .alloc = alloc_slots,
				      .free = free_slots,
				      .action = on_action,
				      .ctx = w};
	struct lane_options lo = {.detect_ms = DETECT_MS, .event = on_event, .ctx = w};
	static struct lane *lanes[LANES];
	struct rs_err e;

	*w = (struct world){.now_ms = 1000, .piece = SIZE_MAX};
	must(rs_kernels_select("scalar", &lo.kernels, &e) == RS_OK);
	must(registry_new(&w->registry, &ro, &e) == RS_OK);
	for (unsigned i = 0; i < LANES; i++) {
		if (!lanes[i])
			must(lane_new(&lanes[i], &lo, &e) == RS_OK);
		w->lanes[i] = lanes[i];
		lane_tick(w->lanes[i], w->now_ms);
	}
	w->heap = fuzz_heap();
}

void world_close(struct world *w)
{
	world_settle(w); /* connections in flight reach their lane */
	for (unsigned i = 0; i < CONNS; i++)
		if (w->c[i].session)
			session_lost(w->c[i].session, "it closed the connection");
	world_settle(w);
	must(registry_jobs(w->registry) == 0 && w->bound == 0 && w->slots == 0);
	for (unsigned i = 0; i < LANES; i++)
		must(!w->lanes[i]->stripes && !lane_next_ready(w->lanes[i]));
	registry_free(w->registry);
}
