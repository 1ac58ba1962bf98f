/* SPDX-License-Identifier: Apache-2.0 */
/* A reducer's registry and two of its lanes: workers join, contribute, disagree, stop reading and disconnect. Output
 * must be whole frames of the protocol, every rank must get the same bits, memory must stay within the size that was
 * announced when each job opened, slots must be accounted for, and nothing may be left when all have disconnected. */
#include "tests/fuzz/fuzz.h"

#include "common/dtype.h"
#include "config/config.h"
#include "server/core/check.h"
#include "server/core/stripe.h"
#include "server/jobs/registry.h"

#include <string.h>

enum {
	CONNS = 12,
	LANES = 2, /* of the reducer */
	MESSAGES = 64,
	STEPS = 200,    /* of one input */
	CHUNK = 1024,   /* bytes, unless a HELLO has another value */
	RESULTS = 1024, /* recorded results */
	REDUCERS = 3,   /* of a view */
	NEAR = 1000,    /* operations */
	DETECT_MS = 5000,
	NOISE = 32 << 10, /* bytes that other code in this process, such as libFuzzer, may allocate meanwhile */
	LIMIT = 8 << 20,  /* server.memory */
};

/* Operation q of every job is kinds[q % KINDS], with priority q / 2 % priorities. */
static const struct {
	uint8_t dtype, op, flags;
	uint16_t count;
} kinds[] = {
    {RS_FLOAT32, RS_SUM, 0, 10},
    {RS_UINT8, RS_SUM, 0, 3000},
    {RS_FLOAT16, RS_AVG, 0, 600},
    {RS_INT64, RS_MAX, 0, 0},
    {RS_FLOAT64, RS_PROD, 0, 129},
    {RS_UINT8, FRAME_OP_BROADCAST, 0, 1500},
    {RS_BFLOAT16, RS_MIN, FRAME_WIDE, 513},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

struct cursor {
	uint64_t seq;
	uint32_t chunk;
};

struct conn {
	bool used;
	struct control_hello hello;
	uint64_t job;
	struct session *session; /* NULL: in flight to its lane, or closed */
	size_t room;             /* bytes its socket still takes; SIZE_MAX: any number */
	bool write_wait;
	struct fuzz_decoder in;
	bool welcome, start, aborted;
	unsigned said, results; /* chunks */
	struct cursor next[FRAME_PRIORITIES];
	uint32_t epoch;     /* number of restarts of the lane */
	bool asked;         /* FETCH was sent for */
	struct frame fetch; /* this frame */
};

/* The messages between the accept loop and the lanes' threads; both queues keep their order. */
struct message {
	enum { TO_LANE_ATTACH, TO_LANE_START, TO_LANE_TELL, TO_LANE_ABORT, TO_REGISTRY } type;
	unsigned thread;
	unsigned conn;
	struct registry_admit admit;
	uint64_t job, processes;
	struct lane_event event;
	struct rs_err why;
	uint8_t frame[512];
	uint32_t frame_len;
};

struct result {
	uint64_t stream, seq, hash; /* stream: a number of the job, the lane, the priority and the epoch */
	uint32_t chunk;
};

struct world {
	struct fuzz_input in;
	struct registry *registry;
	struct lane *lanes[LANES];
	uint64_t now_ms;
	size_t piece; /* maximal bytes of one receive */
	bool hold;    /* messages stay where they are */
	struct conn c[CONNS];
	struct message messages[MESSAGES];
	unsigned messages_head, messages_n;
	struct result results[RESULTS];
	uint64_t slots, bound; /* bytes that jobs have, and their limit */
	size_t heap;           /* before the first job */
	uint32_t lives[REDUCERS];
};

static struct message *post(struct world *w)
{
	must(w->messages_n < MESSAGES);
	return &w->messages[(w->messages_head + w->messages_n++) % MESSAGES];
}

static void on_event(void *ctx, const struct lane_event *ev)
{
	struct message *l = post(ctx);

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
		struct message *l = post(w);

		l->thread = i;
		l->job = a->job.id;
		l->processes = a->job.processes;
		l->type = a->type == REGISTRY_START  ? TO_LANE_START
			  : a->type == REGISTRY_SEND ? TO_LANE_TELL
						     : TO_LANE_ABORT;
		l->why = a->why;
		if (a->type == REGISTRY_SEND) {
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

static uint32_t chunk_elems(const struct conn *c, unsigned kind)
{
	return c->hello.chunk_bytes / (uint32_t)rs_dtype_size(kinds[kind].dtype);
}

/* Moves to the first chunk at or after the cursor that exists and has the priority. */
static void find_chunk(const struct conn *c, unsigned priority, struct cursor *at)
{
	while (at->seq / 2 % c->hello.priorities != priority ||
	       at->chunk >= frame_chunks(kinds[at->seq % KINDS].count, chunk_elems(c, at->seq % KINDS))) {
		at->seq++;
		at->chunk = 0;
	}
}

/* Returns the number of chunks of the priority before the cursor. */
static uint64_t position_of(const struct conn *c, unsigned priority)
{
	const struct cursor *to = &c->next[priority];
	uint64_t n = to->chunk;

	for (uint64_t seq = 0; seq < to->seq; seq++)
		if (seq / 2 % c->hello.priorities == priority)
			n += frame_chunks(kinds[seq % KINDS].count, chunk_elems(c, seq % KINDS));
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

			find_chunk(c, p, &at);
			n = frame_chunks(kinds[at.seq % KINDS].count, chunk_elems(c, at.seq % KINDS));
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
	uint64_t stream = ((c->job * RS_LANES_MAX + c->hello.lane) * FRAME_PRIORITIES + f->priority) << 32 | c->epoch;
	struct result *r = &w->results[(stream * 0x10001 + f->seq * 31 + f->chunk) % RESULTS];

	must(f->payload_len <= c->hello.chunk_bytes && f->priority < c->hello.priorities);
	must(f->generation == c->hello.generation);
	if (!f->payload_len)
		return; /* to the root of a broadcast, or to a rank that has it already */
	if (r->stream == stream && r->seq == f->seq && r->chunk == f->chunk)
		must(r->hash == c->in.hash);
	*r = (struct result){stream, f->seq, c->in.hash, f->chunk};
}

static void on_frame(struct world *w, struct conn *c)
{
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
		must(control_unpack_abort(c->in.control, c->in.f.payload_len, &why, &e) == RS_OK);
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

static void conn_write(struct world *w, struct conn *c)
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

static void check_lanes(const struct world *w)
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
			conn_write(w, c);
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

static bool deliver_one(struct world *w)
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
		lane_start(w->lanes[l->thread], l->job, l->processes);
		break;
	case TO_LANE_TELL:
		lane_send_all(w->lanes[l->thread], l->job, l->frame, l->frame_len);
		break;
	case TO_LANE_ABORT:
		lane_abort(w->lanes[l->thread], l->job, l->why.code, l->why.msg);
		break;
	case TO_REGISTRY:
		if (ev->type == LANE_FAILED)
			registry_failed(w->registry, ev->job, &ev->why);
		else if (ev->type == LANE_CLOSED)
			registry_session_closed(w->registry, ev->job, ev->rank, ev->lane, ev->clean);
		break;
	}
	return true;
}

static void flush_all(struct world *w)
{
	for (unsigned i = 0; i < LANES; i++)
		flush(w, w->lanes[i]);
}

static void settle(struct world *w)
{
	unsigned n = 0;

	do {
		flush_all(w);
		must(++n < 10000);
	} while (deliver_one(w));
}

static void feed(struct world *w, struct conn *c, const uint8_t *at, size_t len)
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
		check_lanes(w);
		flush_all(w);
	}
}

static void twist_hello(struct fuzz_input *in, struct control_hello *h)
{
	uint64_t v;

	if (fuzz_u8(in) < 200)
		return;
	v = fuzz_number(in);
	switch (fuzz_u8(in) % 17) {
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
	l = post(w);
	l->type = TO_LANE_ATTACH;
	l->thread = admit.thread;
	l->conn = i;
	l->admit = admit;
	registry_admitted(w->registry, admit.stripe.job);
	if (!w->hold)
		settle(w);
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
	feed(w, c, head, sizeof head);
	feed(w, c, payload, f->payload_len < 2 * CHUNK ? f->payload_len : 2 * CHUNK);
}

/* Answers FETCH. */
static void say_kept(struct world *w, struct conn *c)
{
	uint8_t payload[2 * CHUNK];
	struct frame f = c->fetch;

	if (!c->session || !c->asked)
		return;
	c->asked = false;
	memset(payload, (int)f.seq, sizeof payload);
	f.type = FRAME_KEPT;
	f.payload_len = frame_chunk_len(f.count, f.chunk_elems, f.chunk) * (uint32_t)rs_dtype_size(f.dtype);
	if (c->hello.checksum && f.payload_len && f.payload_len <= sizeof payload) {
		f.flags = FRAME_CHECKED;
		f.payload_sum = frame_checksum(payload, f.payload_len);
	}
	fuzz_twist(&w->in, &f);
	say(w, c, &f, payload);
}

/* Sends the next chunk of a priority as this rank would, or HAVE for it; possibly with one other field. */
static void contribute(struct world *w, struct conn *c, unsigned priority, bool have)
{
	struct cursor *at = &c->next[priority];
	uint8_t payload[2 * CHUNK];
	unsigned kind;
	struct frame f;
	uint32_t n;
	bool root;

	if (!c->session)
		return;
	find_chunk(c, priority, at);
	kind = at->seq % KINDS;
	f = (struct frame){
	    .type = FRAME_DATA,
	    .flags = kinds[kind].flags,
	    .priority = (uint8_t)priority,
	    .dtype = kinds[kind].dtype,
	    .op = kinds[kind].op,
	    .chunk = at->chunk++,
	    .seq = at->seq,
	    .count = kinds[kind].count,
	    .ack = at->seq / 2,
	    .generation = c->hello.generation,
	    .chunk_elems = chunk_elems(c, kind),
	};
	root = f.op == FRAME_OP_BROADCAST && c->hello.rank == 0;
	n = f.op == FRAME_OP_BROADCAST && !root ? 0 : frame_chunk_len(f.count, f.chunk_elems, f.chunk);
	f.payload_len = n * (uint32_t)(f.flags & FRAME_WIDE ? sizeof(float) : rs_dtype_size(f.dtype));
	f.flags |= root ? FRAME_ROOT : 0;
	for (uint32_t i = 0; i < sizeof payload; i++)
		payload[i] = (uint8_t)(i * 7 + c->hello.rank + f.seq);
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

/* All ranks of a connection's lane contribute n chunks of each priority; one of them may have all already. */
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

/* All ranks of a connection's lane send VIEW: a reducer was lost or is back, with their starts. */
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
			uint64_t at = position_of(&w->c[k], p);

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
		feed(w, c, raw, n);
		break;
	case 7:
		c->room = who >= 128 ? SIZE_MAX : fuzz_u8(&w->in) * 4;
		if (c->session)
			conn_write(w, c);
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
		deliver_one(w);
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

/* The lanes are the same for all inputs, because making their scratch memory takes longer than most inputs. */
static void world_open(struct world *w)
{
	struct registry_options ro = {.limits = {.jobs = 3, .workers = 8, .memory_bytes = LIMIT},
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

static void world_close(struct world *w)
{
	settle(w); /* connections in flight reach their lane */
	for (unsigned i = 0; i < CONNS; i++)
		if (w->c[i].session)
			session_lost(w->c[i].session, "it closed the connection");
	settle(w);
	must(registry_jobs(w->registry) == 0 && w->bound == 0 && w->slots == 0);
	for (unsigned i = 0; i < LANES; i++)
		must(!w->lanes[i]->stripes && !lane_next_ready(w->lanes[i]));
	registry_free(w->registry);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct world world;
	struct world *w = &world;

	world_open(w);
	w->in = (struct fuzz_input){data, size};
	for (unsigned i = 0; i < STEPS && w->in.left; i++) {
		step(w);
		flush_all(w);
		if (!w->hold)
			settle(w);
		check_lanes(w);
		if (w->heap)
			must(fuzz_heap() <= w->heap + w->bound + NOISE);
	}
	world_close(w);
	return 0;
}
