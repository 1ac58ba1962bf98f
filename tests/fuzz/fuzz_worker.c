/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's exchange with operations, and reducers that send anything. Its frames must
 * be those that the protocol permits, a successful operation has had each of its results,
 * every operation ends exactly once, at the latest when no reducer answers any more, and
 * its memory is not accessed afterwards. */
#include "tests/fuzz/fuzz.h"

#include "agent/worker/core/check.h"
#include "agent/worker/core/exchange.h"
#include "common/dtype.h"
#include "config/config.h"
#include "proto/control.h"
#include "proto/features.h"

#include <stdatomic.h>
#include <string.h>

enum {
	LINKS = 4,
	OPS = 12,    /* operations at the same time */
	STEPS = 200, /* of one input */
	CHUNKS = 8,  /* of one operation, at most */
	FLYING = 64, /* chunks of one priority on one link, at most */
	GENERATION = 5,
	INCARNATION = 99,
};

static const char *const yamls[] = {
    ("job: {detect_nonfinite: fail}\n"
     "reducers: [{id: a, address: h:1, lanes: 1}]\n"
     "sharding: {shards: 4, chunk_bytes: 1KiB, window: 4, priorities: 2}\n"),
    ("job: {checksum: true}\n"
     "reducers: [{id: a, address: h:1, lanes: 1}, {id: b, address: h:2, lanes: 1}]\n"
     "sharding: {shards: 8, chunk_bytes: 1KiB, window: 2, decoupled: 12KiB, priorities: 3}\n"),
    ("job: {failover: fail}\n"
     "reducers: [{id: a, address: h:1, lanes: 2}, {id: b, address: h:2, lanes: 1}]\n"
     "sharding: {map: {0-2: a, 3: b}, chunk_bytes: 1KiB, window: 1, priorities: 1}\n"
     "timeouts: {op: 20s, detect: 5s}\n"),
    ("reducers: [{id: a, address: h:1, lanes: 1}, {id: b, address: h:2, lanes: 1}, {id: c, address: h:3, lanes: 1}]\n"
     "sharding: {shards: 3, chunk_bytes: 1KiB, window: 8, priorities: 4}\n"),
};
enum { YAMLS = sizeof yamls / sizeof yamls[0] };

struct op {
	struct exchange_op x;
	bool used;
	struct world *world;
	uint8_t *send, *recv; /* owned; equal: in place */
	_Atomic uint64_t ready;
	uint64_t filled, landed; /* bit i: chunk i was */
	bool nan, reported;      /* it has a nonfinite element, and that was reported */
};

/* A connection as the reducer sees it. */
struct link {
	bool up;
	struct fuzz_decoder in;
	bool greeted, welcomed, started, ended;
	struct frame data[FRAME_PRIORITIES][FLYING];              /* without a result */
	unsigned data_n[FRAME_PRIORITIES], got[FRAME_PRIORITIES]; /* got: since START or VIEW */
};

struct world {
	struct fuzz_input in;
	const struct rs_config *cfg;
	uint32_t decoded_bytes, ahead;
	uint64_t features; /* of the job; 0: its reducers are of release 0.1 */
	struct exchange *x;
	unsigned links;
	uint64_t now_ms;
	size_t piece;   /* maximal bytes of one receive */
	uint8_t manual; /* actions that reducers do not do automatically, see below */
	struct link l[LINKS];
	struct op ops[OPS];
	unsigned submitted, done;
	bool leaving; /* has sent GOODBYE */
};

enum { NO_CONNECT = 1, NO_WELCOME = 2, NO_START = 4, NO_ANSWER = 8, NO_READ = 16, NO_RESUME = 32 };

/* Returns the chunk that begins at an element. Each empty part has one at the same. */
static unsigned chunk_at(const struct exchange_op *x, uint64_t first)
{
	uint32_t chunk = 0;

	while (operation_place(&x->of, x->chunk_elems, chunk).first != first)
		must(++chunk < operation_chunks(&x->of, x->chunk_elems));
	return chunk;
}

static void on_fill(struct exchange_op *x, uint64_t first, uint32_t n)
{
	struct op *o = x->user;
	unsigned chunk = chunk_at(x, first);

	must(first + n <= x->of.count);
	must(first + n <= atomic_load(&o->ready));
	must(!(o->filled >> chunk & 1));
	o->filled |= UINT64_C(1) << chunk;
}

static int on_inspect(struct exchange_op *x, const void *at, uint64_t first, uint32_t n, struct rs_err *e)
{
	struct op *o = x->user;
	unsigned chunk = chunk_at(x, first);
	uint64_t from = operation_is_gather(&x->of) ? operation_place(&x->of, x->chunk_elems, chunk).offset : first;

	must(o->filled >> chunk & 1);
	must(at == (const uint8_t *)x->send + from * (x->wide ? sizeof(float) : rs_dtype_size(x->of.dtype)) &&
	     first + n <= x->of.count);
	must(!o->reported);
	o->reported = o->nan;
	return o->nan ? rs_fail(e, RS_ENONFINITE, "not finite") : RS_OK;
}

static void on_landed(struct exchange_op *x, uint64_t first, uint32_t n)
{
	struct op *o = x->user;
	unsigned chunk = chunk_at(x, first);

	must(first + n <= x->of.count);
	must(!x->of.count || !(o->landed >> chunk & 1));
	o->landed |= UINT64_C(1) << chunk;
}

/* From here on the exchange must not access its memory. */
static void on_done(struct exchange_op *x, const struct rs_err *err)
{
	struct op *o = x->user;
	struct world *w = o->world;

	must(o->used);
	if (err)
		must(err->code < 0 && err->msg[0]);
	else if (x->of.count)
		must(o->landed == (UINT64_C(1) << operation_chunks(&x->of, x->chunk_elems)) - 1);
	if (o->recv != o->send)
		free(o->recv);
	free(o->send);
	*o = (struct op){.used = false};
	w->done++;
}

/* Frames of the reducers. */
static void feed(struct world *w, unsigned link, const uint8_t *at, size_t len)
{
	unsigned pieces = 0;

	while (len && w->l[link].up) {
		struct iovec iov[2];
		unsigned n = exchange_recv_target(w->x, link, iov);
		size_t left = len < w->piece ? len : w->piece, done;

		if (++pieces > 100)
			left = len;
		if (!n)
			return;
		done = fuzz_scatter(iov, n, at, left);
		at += done;
		len -= done;
		exchange_received(w->x, link, done, w->now_ms);
		must(exchange_check_state(w->x) == NULL);
	}
}

static void say(struct world *w, unsigned link, const struct frame *f, const uint8_t *payload)
{
	uint8_t head[FRAME_HEADER];

	frame_encode(f, head);
	feed(w, link, head, sizeof head);
	feed(w, link, payload, f->payload_len < FRAME_CONTROL_MAX ? f->payload_len : FRAME_CONTROL_MAX);
}

static void say_control(struct world *w, unsigned link, unsigned type, struct fuzz_input *in)
{
	uint8_t payload[FRAME_CONTROL_MAX], frame[FRAME_HEADER + FRAME_CONTROL_MAX];
	uint32_t len = fuzz_control(in, type, payload);
	struct rs_err e;
	struct frame f;

	control_frame(frame, type, GENERATION, 0, payload, len);
	if (frame_decode(frame, &f, &e))
		f = (struct frame){.type = (uint8_t)type, .payload_len = len, .generation = GENERATION};
	fuzz_twist(in, &f);
	w->l[link].welcomed |= f.type == FRAME_WELCOME;
	say(w, link, &f, payload);
}

static void fill_result(const struct frame *f, uint8_t payload[FRAME_CONTROL_MAX])
{
	for (unsigned i = 0; i < FRAME_CONTROL_MAX; i++)
		payload[i] = (uint8_t)(i + f->of.seq + f->chunk);
}

/* Returns whether the result has no payload. */
static bool gets_nothing(const struct frame *f)
{
	bool root = f->flags & FRAME_ROOT;

	if (f->type == FRAME_HAVE)
		return true;
	return operation_is_scatter(&f->of) ? !root : f->of.op == FRAME_OP_BROADCAST && root;
}

/* Sends the result of the oldest chunk of a priority on a link, possibly with one other
 * field. */
static void answer(struct world *w, unsigned link, unsigned priority, struct fuzz_input *in)
{
	struct link *l = &w->l[link];
	uint8_t payload[FRAME_CONTROL_MAX];
	struct frame f;

	if (!l->up || !l->data_n[priority])
		return;
	f = l->data[priority][0];
	l->data_n[priority]--;
	memmove(l->data[priority], l->data[priority] + 1, l->data_n[priority] * sizeof f);
	fill_result(&f, payload);
	f.payload_len =
	    gets_nothing(&f) ? 0 : operation_down_bytes(&f.of, operation_place(&f.of, f.chunk_elems, f.chunk).elems);
	f.type = FRAME_RESULT;
	f.flags = 0;
	f.payload_sum = 0;
	if (w->cfg->job.checksum && f.payload_len) {
		f.flags = FRAME_CHECKED;
		f.payload_sum = frame_checksum(payload, f.payload_len);
	}
	fuzz_twist(in, &f);
	say(w, link, &f, payload);
}

/* Sends FETCH for a chunk that the worker has offered by HAVE. */
static void fetch(struct world *w, unsigned link, unsigned priority)
{
	static const uint8_t zeros[FRAME_CONTROL_MAX]; /* used if the input asks for a payload */
	struct link *l = &w->l[link];

	for (unsigned i = 0; l->up && i < l->data_n[priority]; i++)
		if (l->data[priority][i].type == FRAME_HAVE) {
			struct frame f = l->data[priority][i];

			f.type = FRAME_FETCH;
			f.flags = 0;
			fuzz_twist(&w->in, &f);
			say(w, link, &f, zeros);
			return;
		}
}

/* The retained result of the worker must be the one that it got. A broadcast's root has
 * its own bytes. */
static void on_kept(const struct link *l)
{
	const struct frame *f = &l->in.f;
	uint8_t payload[FRAME_CONTROL_MAX];
	struct fuzz_decoder want = {.have = 0};
	uint8_t head[FRAME_HEADER];
	const uint8_t *at;
	size_t len;

	must(f->payload_len == operation_down_bytes(&f->of, operation_place(&f->of, f->chunk_elems, f->chunk).elems));
	must(f->payload_len <= sizeof payload);
	if (f->of.op == FRAME_OP_BROADCAST)
		return;
	fill_result(f, payload);
	frame_encode(f, head);
	at = head;
	len = sizeof head;
	fuzz_decode(&want, &at, &len);
	at = payload;
	len = f->payload_len;
	fuzz_decode(&want, &at, &len);
	must(want.hash == l->in.hash);
}

/* The worker has sent VIEW: its earlier chunks are void, and all other ranks agree at
 * once. */
static void on_view(struct world *w, unsigned link)
{
	uint8_t frame[FRAME_HEADER + FRAME_CONTROL_MAX];
	struct link *l = &w->l[link];
	struct control_view v;
	struct rs_err e;
	uint32_t len;

	must(control_unpack_view(l->in.control, l->in.f.payload_len, &v, &e) == RS_OK);
	must(v.n == w->cfg->reducers_n);
	memset(l->data_n, 0, sizeof l->data_n);
	memset(l->got, 0, sizeof l->got);
	if (w->manual & NO_RESUME)
		return;
	len = control_frame(frame, FRAME_RESUME, GENERATION, 0, l->in.control, l->in.f.payload_len);
	feed(w, link, frame, len);
}

/* Handles a frame of the worker. */
static void on_data(struct world *w, struct link *l)
{
	const struct frame *f = &l->in.f;
	unsigned p = f->of.priority, n = l->data_n[p], size = f->of.size, all = 0;
	const struct frame *last = n ? &l->data[p][n - 1] : NULL;
	uint32_t elems = operation_place(&f->of, f->chunk_elems, f->chunk).elems;

	must(l->greeted && exchange_state(w->x) != EXCHANGE_JOINING && p < w->cfg->sharding.priorities && size);
	must(f->generation == GENERATION &&
	     f->chunk_elems == operation_chunk_elems(&f->of, w->cfg->sharding.chunk_bytes, w->decoded_bytes));
	must(!operation_is_encoded(&f->of) || w->features & FEATURE_ENCODINGS);
	must(rs_wire_fits_up(f->of.up, f->of.dtype, f->of.op) && rs_wire_fits(f->of.down, f->of.dtype, f->of.op));
	must(!(f->flags & FRAME_WIDE) || !f->of.up);
	must(f->chunk < operation_chunks(&f->of, f->chunk_elems));
	must(!f->of.sharded || (w->features & FEATURE_SHARDED && f->of.count % f->of.parts == 0));
	must(!(f->flags & FRAME_ROOT) || f->of.sharded || f->of.op == FRAME_OP_BROADCAST);
	must(f->payload_len == (f->type == FRAME_HAVE || (f->of.op == FRAME_OP_BROADCAST && !(f->flags & FRAME_ROOT))
				    ? 0
				: f->flags & FRAME_WIDE ? elems * (unsigned)sizeof(float)
							: operation_up_bytes(&f->of, elems)));
	must(!w->cfg->job.checksum || !f->payload_len || f->flags & FRAME_CHECKED);
	must(!last || f->of.seq > last->of.seq || (f->of.seq == last->of.seq && f->chunk > last->chunk));
	for (unsigned i = 0; i < FRAME_PRIORITIES; i++)
		all += l->data_n[i];
	/* what a reducer accepts: see server/core/contribution.c */
	must(n < w->ahead && n < FLYING);
	must(all < w->ahead + (w->cfg->sharding.priorities - 1) * frame_reserve(w->ahead));
	l->got[p]++;
	l->data[p][l->data_n[p]++] = *f;
}

static void start(struct world *w, unsigned link)
{
	const struct control_start s = {.features = w->features, .start = INCARNATION};
	uint8_t payload[FRAME_CONTROL_MAX], frame[FRAME_HEADER + FRAME_CONTROL_MAX];
	uint32_t len = w->features ? control_pack_start(payload, &s) : 0;

	w->l[link].started = true;
	feed(w, link, frame, control_frame(frame, FRAME_START, GENERATION, 0, payload, len));
}

static void welcome(struct world *w, unsigned link)
{
	const struct control_welcome c = {.detect_ms = 4000, .features = w->features};
	uint8_t payload[FRAME_CONTROL_MAX], frame[FRAME_HEADER + FRAME_CONTROL_MAX];

	w->l[link].welcomed = true;
	feed(w, link, frame,
	     control_frame(frame, FRAME_WELCOME, GENERATION, 0, payload, control_pack_welcome(payload, &c)));
}

static void start_when_complete(struct world *w)
{
	for (unsigned i = 0; i < w->links; i++)
		if (!w->l[i].up || !w->l[i].welcomed)
			return;
	for (unsigned i = 0; i < w->links; i++)
		if (!w->l[i].started && w->l[i].up)
			start(w, i);
}

static void on_hello(struct world *w, unsigned link)
{
	struct link *l = &w->l[link];
	struct control_hello h;
	struct rs_err e;

	must(!l->greeted);
	must(control_unpack_hello(l->in.control, l->in.f.payload_len, &h, &e) == RS_OK);
	must(h.generation == GENERATION && h.world_size == 2 && h.window == w->ahead);
	l->greeted = true;
	if (!(w->manual & NO_WELCOME))
		welcome(w, link);
}

static void on_frame(struct world *w, unsigned link)
{
	struct link *l = &w->l[link];
	struct rs_cause cause;
	struct rs_err why, e;

	must(!l->ended);
	must(l->greeted != (l->in.f.type == FRAME_HELLO));
	switch (l->in.f.type) {
	case FRAME_HELLO:
		on_hello(w, link);
		break;
	case FRAME_DATA:
	case FRAME_HAVE:
		on_data(w, l);
		break;
	case FRAME_KEPT:
		on_kept(l);
		break;
	case FRAME_VIEW:
		on_view(w, link);
		break;
	case FRAME_ABORT:
		must(control_unpack_abort(l->in.control, l->in.f.payload_len, &why, &cause, &e) == RS_OK);
		must(why.msg[0]);
		l->ended = true;
		break;
	case FRAME_GOODBYE:
		l->ended = true;
		break;
	default:
		must(l->in.f.type == FRAME_PING || l->in.f.type == FRAME_SETTLE || l->in.f.type == FRAME_NONFINITE);
	}
}

/* At most n bytes leave the worker on a link; the reducer's answers arrive afterwards. */
static size_t take(struct world *w, unsigned link, size_t n)
{
	struct link *l = &w->l[link];
	struct iovec iov[9];
	uint8_t copy[9 * FRAME_CONTROL_MAX];
	size_t len = 0;
	const uint8_t *at = copy;
	unsigned k = l->up ? exchange_send_target(w->x, link, iov, 9) : 0;

	must(k <= 9);
	for (unsigned i = 0; i < k && len < n; i++) {
		size_t part = iov[i].iov_len < n - len ? iov[i].iov_len : n - len;

		must(iov[i].iov_len > 0 && len + part <= sizeof copy);
		memcpy(copy + len, iov[i].iov_base, part);
		len += part;
	}
	if (len == 0)
		return 0;
	exchange_sent(w->x, link, len, w->now_ms);
	must(exchange_check_state(w->x) == NULL);
	n = len;
	while (len)
		if (fuzz_decode(&l->in, &at, &len))
			on_frame(w, link);
	return n;
}

static void cut(struct world *w, unsigned link, const char *why)
{
	w->l[link] = (struct link){.up = false};
	exchange_disconnected(w->x, link, why, RS_LOSS_RESET, w->now_ms);
	must(exchange_check_state(w->x) == NULL);
}

static bool serve(struct world *w, unsigned link)
{
	switch (exchange_want(w->x, link, w->now_ms)) {
	case EXCHANGE_CONNECT:
		if (w->manual & NO_CONNECT)
			return false;
		exchange_connecting(w->x, link, w->now_ms);
		w->l[link].up = true;
		exchange_connected(w->x, link, w->now_ms);
		return true;
	case EXCHANGE_CLOSE:
		cut(w, link, "");
		return true;
	default:
		return false;
	}
}

/* Runs until nothing moves by itself any more. */
static void settle(struct world *w)
{
	struct fuzz_input none = {NULL, 0};
	bool moved = true;

	for (unsigned n = 0; moved; n++) {
		must(n < 2000);
		moved = false;
		for (unsigned i = 0; i < w->links; i++) {
			moved |= serve(w, i);
			if (!(w->manual & NO_READ))
				moved |= take(w, i, SIZE_MAX) > 0;
			for (unsigned p = FRAME_PRIORITIES; !(w->manual & NO_ANSWER) && p-- > 0;) {
				moved |= w->l[i].data_n[p] > 0;
				answer(w, i, p, &none);
			}
		}
		if (!(w->manual & NO_START))
			start_when_complete(w);
	}
	exchange_links_changed(w->x);
}

/* Makes an operation a sharded one, of two to five parts. Returns the bytes of the own
 * part. */
static uint64_t shard(struct exchange_op *x, uint8_t how)
{
	x->of.sharded = 1;
	x->of.tensors = 0;
	x->of.parts = 2 + how % 4;
	x->part = how / 4 % x->of.parts;
	x->of.count -= x->of.count % x->of.parts;
	x->wide = x->root = false;
	return x->of.count / x->of.parts * x->of.size;
}

/* Allocates exactly the needed sizes, so that the sanitizer finds an access past the
 * end. */
static void allocate_sharded(struct op *o, uint64_t own, bool in_place)
{
	bool gather = operation_is_gather(&o->x.of);
	uint64_t all = own * o->x.of.parts;
	uint8_t *whole = calloc(1, all + !all), *part = in_place ? whole : calloc(1, own + !own);
	uint8_t *mine = in_place ? whole + o->x.part * own : part;

	o->send = gather ? part : whole;
	o->recv = gather ? whole : part;
	o->x.send = gather ? mine : whole;
	o->x.recv = gather ? whole : mine;
}

static void submit(struct world *w)
{
	static const uint8_t reduces[] = {RS_SUM, RS_AVG, RS_MIN, FRAME_OP_BROADCAST};
	uint8_t kind = fuzz_u8(&w->in), how = fuzz_u8(&w->in), size = fuzz_u8(&w->in);
	unsigned i = 0, bytes = (unsigned)rs_dtype_size(kind % 10);
	uint64_t count = (uint64_t)size * size / 64 * (how & 1 ? CHUNKS : 1) / bytes;
	uint8_t parts = 0;
	struct rs_err e;
	struct op *o;

	while (i < OPS && w->ops[i].used)
		i++;
	if (i == OPS)
		return;
	o = &w->ops[i];
	*o = (struct op){.used = true, .world = w, .nan = how >> 6 & 1};
	o->x = (struct exchange_op){
	    .of.count = count,
	    .of.dtype = kind % 10,
	    .of.size = bytes & OPERATION_SIZE,
	    .of.op = reduces[kind / 10 % 4],
	    .of.priority = (uint8_t)((how >> 1 & 3) - 1),
	    .of.name_hash = how >> 3 & 1,
	    .name = how >> 3 & 1 ? "grad" : NULL,
	    .of.tensors = how >> 4 & 1,
	    .fill = on_fill,
	    .inspect = on_inspect,
	    .landed = on_landed,
	    .done = on_done,
	    .user = o,
	};
	if (w->features) {
		uint8_t wire = fuzz_u8(&w->in);

		operation_choose_wire(&o->x.of, wire % 5, wire / 5 % 5);
	}
	o->x.wide = rs_dtype_is_half(o->x.of.dtype) && kind >> 7 && o->x.of.op != FRAME_OP_BROADCAST;
	o->x.root = o->x.of.op == FRAME_OP_BROADCAST && kind >> 7;
	if (w->features & FEATURE_SHARDED)
		parts = fuzz_u8(&w->in);
	if (parts & 1) {
		allocate_sharded(o, shard(&o->x, parts >> 1), !(how >> 7));
		atomic_init(&o->ready, count);
	} else {
		/* exactly the needed size, see above */
		o->send = calloc(1, count * (o->x.wide ? sizeof(float) : bytes) + !count);
		o->recv = o->x.wide || how >> 7 ? malloc(count * bytes + !count) : o->send;
		o->x.send = o->send;
		o->x.recv = o->recv;
		atomic_init(&o->ready, how & 32 ? count / 2 : count);
		if (how & 32)
			o->x.ready = &o->ready;
	}
	w->submitted++;
	if (exchange_submit(w->x, &o->x, w->now_ms, &e)) {
		must(e.code < 0 &&
		     (w->leaving || exchange_state(w->x) >= EXCHANGE_ENDING || e.code == RS_EUNSUPPORTED));
		on_done(&o->x, &e);
	}
}

static void pass_time(struct world *w, unsigned ms)
{
	uint64_t next = exchange_next(w->x);

	w->now_ms += ms;
	if (ms == 0 && next != UINT64_MAX && next > w->now_ms)
		w->now_ms = next;
	exchange_tick(w->x, w->now_ms);
	must(exchange_check_state(w->x) == NULL);
	must(exchange_next(w->x) > w->now_ms); /* else a driver would never sleep */
}

static void leave(struct world *w, uint8_t how)
{
	w->leaving = true;
	if (how >= 128)
		exchange_goodbye(w->x, w->now_ms);
	else
		exchange_abort(w->x, RS_EPEER, "somebody wants it", w->now_ms);
}

static void set_shares(struct world *w)
{
	uint32_t shares[RS_REDUCERS_MAX];
	bool set;

	for (unsigned r = 0; r < w->cfg->reducers_n; r++)
		shares[r] = 1 + fuzz_u8(&w->in) * 256u;
	set = exchange_set_shares(w->x, shares, w->now_ms);
	must(!set || (w->features & FEATURE_SHARES && w->cfg->job.retain));
}

static void connect_anew(struct world *w, unsigned who)
{
	bool did = exchange_connect_anew(w->x, who % w->cfg->reducers_n, "a path is slow", w->now_ms);

	must(!did || (w->cfg->job.retain && w->cfg->reducers_n > 1));
}

static void more_ready(struct world *w, struct op *o, unsigned n)
{
	uint64_t there = atomic_load(&o->ready);

	if (o->used)
		atomic_store(&o->ready, there + n < o->x.of.count ? there + n : o->x.of.count);
	exchange_poke(w->x);
}

/* A reducer says what it has added: what was sent, or another number. */
static void credit(struct world *w, unsigned link, uint8_t how)
{
	unsigned p = how % FRAME_PRIORITIES;
	struct frame f = {.type = FRAME_CREDIT,
			  .generation = GENERATION,
			  .of.priority = (uint8_t)p,
			  .of.count = w->l[link].got[p] - (how & 4 ? 1u : 0) + (how & 8 ? 1u : 0)};

	say(w, link, &f, NULL);
}

static void step(struct world *w)
{
	uint8_t what = fuzz_u8(&w->in) % 13, who = fuzz_u8(&w->in);
	unsigned link = who % w->links;
	struct window_signal signal = {
	    .rtt_us = who * 10u, .min_rtt_us = 100, .lost = who & 3, .local_bytes = who & 128 ? WINDOW_LOCAL_BYTES : 0};
	const uint8_t *raw;
	size_t n;

	switch (what) {
	case 0:
	case 1:
		submit(w);
		break;
	case 2:
	case 3:
		answer(w, link, who / LINKS % FRAME_PRIORITIES, &w->in);
		break;
	case 4:
		say_control(w, link, fuzz_u8(&w->in) & 31, &w->in);
		break;
	case 5:
		raw = fuzz_bytes(&w->in, FRAME_CONTROL_MAX, &n);
		feed(w, link, raw, n);
		break;
	case 6:
		take(w, link, 1 + who);
		break;
	case 7:
		if (w->l[link].up)
			cut(w, link, "connection reset by peer");
		break;
	case 8:
		pass_time(w, who < 16 ? 0 : who * 20u);
		break;
	case 9:
		w->manual = who;
		w->piece = who >= 128 ? 1u + (who & 63) : SIZE_MAX;
		break;
	case 10:
		more_ready(w, &w->ops[who % OPS], who);
		break;
	case 11:
		fetch(w, link, who / LINKS % FRAME_PRIORITIES);
		break;
	default:
		if (who >= 250)
			leave(w, fuzz_u8(&w->in));
		else if (who >= 230)
			set_shares(w);
		else if (who >= 220)
			connect_anew(w, who);
		else if (who >= 180)
			credit(w, link, fuzz_u8(&w->in));
		else if (exchange_wants_signal(w->x, link))
			exchange_signal(w->x, link, &signal, w->now_ms);
	}
}

static const struct rs_config *config(unsigned i)
{
	static struct rs_config cfgs[YAMLS];
	struct rs_err e;

	if (!cfgs[i].reducers)
		must(rs_config_parse(&cfgs[i], "fuzz", yamls[i], strlen(yamls[i]), &e) == RS_OK);
	return &cfgs[i];
}

static void world_open(struct world *w)
{
	uint8_t how = fuzz_u8(&w->in);
	struct exchange_options opt = {.params = rs_config_exchange(config(how % YAMLS)),
				       .job = "fuzz",
				       .label = "pid 7",
				       .generation = GENERATION,
				       .rank = how & 32 ? 0 : 1,
				       .world_size = 2,
				       .processes = 1,
				       .incarnation = INCARNATION,
				       .connect_ms = 20000,
				       .kernels = rs_kernels_usable(0),
				       .features = how & 16 ? FEATURE_START | FEATURE_ENCODINGS | FEATURE_SHARES |
								  (how & 64 ? FEATURE_SHARDED : 0) |
								  (how & 128 ? FEATURE_DECOUPLED : 0)
							    : 0,
				       .adaptive = how & 8};
	struct rs_err e;

	w->cfg = config(how % YAMLS);
	w->decoded_bytes = opt.params.decoded_bytes;
	w->ahead = opt.params.ahead;
	w->features = opt.features;
	w->now_ms = 1000;
	w->piece = SIZE_MAX;
	w->manual = NO_ANSWER;
	must(exchange_new(&w->x, &opt, w->now_ms, &e) == RS_OK);
	w->links = exchange_links(w->x);
	must(w->links <= LINKS);
}

/* All reducers are lost forever: everything ends. */
static void world_close(struct world *w)
{
	w->manual = NO_CONNECT;
	for (unsigned i = 0; i < w->links; i++)
		if (w->l[i].up)
			cut(w, i, "connection reset by peer");
	for (unsigned n = 0; exchange_state(w->x) != EXCHANGE_ENDED; n++) {
		must(n < 1000);
		for (unsigned i = 0; i < w->links; i++)
			if (exchange_want(w->x, i, w->now_ms) == EXCHANGE_CONNECT) {
				exchange_connecting(w->x, i, w->now_ms);
				cut(w, i, "connection refused");
			}
		pass_time(w, 0);
	}
	must(w->done == w->submitted);
	exchange_free(w->x);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct world world;
	struct world *w = &world;

	*w = (struct world){.in = {data, size}};
	world_open(w);
	for (unsigned i = 0; i < STEPS && w->in.left; i++) {
		step(w);
		settle(w);
	}
	world_close(w);
	return 0;
}
