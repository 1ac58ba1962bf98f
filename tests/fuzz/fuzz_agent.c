/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's hub: clients send any messages; engines run, fail and end at any moment.
 * Operations use real memory, so that accesses outside of a client's buffers are found.
 * At the end all clients have left and all their memory has been freed; until then memory
 * is bounded, and no operation ends twice. */
#include "tests/fuzz/fuzz.h"

#include "agent/node/core/check.h"
#include "agent/node/core/hub.h"
#include "common/dtype.h"

#include <stdatomic.h>
#include <string.h>

enum {
	CLIENTS = 8,                  /* clients connected at the same time */
	ENGINES = 8,                  /* engines running at the same time */
	JOBS = 4,                     /* agent.max_jobs */
	OPS = 4,                      /* job.max_ops */
	SHM = 8 << 20,                /* agent.shm_bytes */
	CHUNK = 1024,                 /* sharding.chunk_bytes */
	RING = (2 << 20) + 2 * CHUNK, /* least bytes of a ring, with this configuration */
	STEPS = 200,                  /* steps of one input */
	HEAP = 1 << 20,               /* maximal bytes of the hub beside shared memory and stages */
};

struct process {
	struct local_client *client; /* NULL: closed */
	bool dropped;
	bool stopped; /* its process exists */
	bool welcome;
	uint64_t seq;  /* of its next operation */
	uint64_t said; /* 1 + the highest one that it has submitted */
	uint64_t done; /* bit i: operation i has ended */
};

struct engine {
	struct local_job *job; /* NULL: free */
	struct {
		struct exchange_op *x;
		uint64_t next; /* chunk */
	} ops[OPS];
	unsigned ops_n;
	bool single_worker;
	bool ready, ended, freeing;
	int aborted; /* the error code; 0: not aborted */
};

struct world {
	struct fuzz_input in;
	struct rs_config cfg;
	struct rs_reducer reducer;
	struct local_hub *hub;
	uint64_t now_ms;
	bool hold; /* delayed actions wait */
	struct process p[CLIENTS];
	struct engine en[ENGINES];
	struct local_event *events, **events_end;
	struct local_buffer *making[CLIENTS];
	uint64_t making_bytes[CLIENTS];
	unsigned making_n;
	size_t shm_bytes, stage_bytes;
};

static void on_done(struct process *p, const struct local_done *d)
{
	must(d->seq < p->said);
	if (d->seq >= 64)
		return;
	must(!(p->done >> d->seq & 1));
	p->done |= UINT64_C(1) << d->seq;
}

static void port_send(void *ctx, struct local_client *c, const union local_message *m, int fd)
{
	struct process *p = local_client_user(c);
	union local_message copy = *m;
	struct rs_err e = {0};

	(void)ctx;
	must(p->client);
	if (p->dropped)
		return; /* it only waits to be closed */
	must(local_check(&copy, m->head.bytes, false, &e) == RS_OK);
	must((fd >= 0) == (m->head.type == LOCAL_ALLOCED && m->alloced.code == 0));
	if (m->head.type == LOCAL_DONE)
		on_done(p, &m->done);
	if (m->head.type == LOCAL_WELCOME)
		p->welcome = true;
	if (m->head.type == LOCAL_REFUSED || m->head.type == LOCAL_ABORT)
		must(m->failure.code < 0 && m->failure.message[0]);
}

static void port_drop(void *ctx, struct local_client *c)
{
	struct process *p = local_client_user(c);

	(void)ctx;
	must(p->client && !p->dropped);
	p->dropped = true;
}

static int port_shm_make(void *ctx, struct local_buffer *b, uint64_t bytes, struct rs_err *e)
{
	struct world *w = ctx;

	if (w->making_n == CLIENTS)
		return rs_fail(e, RS_ENOMEM, "no memory");
	w->making[w->making_n] = b;
	w->making_bytes[w->making_n++] = bytes;
	return RS_OK;
}

static void port_shm_free(void *ctx, void *map, uint64_t bytes)
{
	struct world *w = ctx;

	w->shm_bytes -= bytes;
	free(map);
}

/* Partial sums are of bytes that are in shared memory: at the most float32 of 2-byte
 * elements, and that rounded up to the next power of two. */
static void *port_stage_new(void *ctx, size_t bytes)
{
	struct world *w = ctx;

	must(bytes <= 4 * SHM);
	w->stage_bytes += bytes;
	return malloc(bytes);
}

static void port_stage_free(void *ctx, void *stage, size_t bytes)
{
	struct world *w = ctx;

	w->stage_bytes -= bytes;
	free(stage);
}

static int port_engine_start(void *ctx, void **ret, struct local_job *job, const struct local_engine *spec,
			     struct rs_err *e)
{
	struct world *w = ctx;

	must(spec->rank < spec->world_size && spec->processes > 0 && spec->connect_ms > 0);
	must(!spec->single_worker || spec->world_size == 1);
	for (unsigned i = 0; i < ENGINES; i++) {
		if (w->en[i].job)
			continue;
		w->en[i] = (struct engine){.job = job, .single_worker = spec->single_worker};
		*ret = &w->en[i];
		return RS_OK;
	}
	return rs_fail(e, RS_EIO, "no engine");
}

static int port_engine_submit(void *ctx, void *engine, struct exchange_op *x, struct rs_err *e)
{
	struct world *w = ctx;
	struct engine *en = engine;
	int rc = exchange_check(w->cfg.sharding.chunk_bytes, &x->of, e);

	must(!en->freeing);
	if (rc)
		return rc;
	if (en->ended)
		return rs_fail(e, RS_EPEER, "the engine has ended");
	must(en->ops_n < OPS);
	x->chunk_elems = CHUNK / (uint32_t)rs_dtype_size(x->of.dtype);
	must(!x->of.sharded || (!x->ready && x->part < x->of.parts && x->of.count % x->of.parts == 0));
	x->chunks = operation_chunks(&x->of, x->chunk_elems);
	en->ops[en->ops_n].x = x;
	en->ops[en->ops_n++].next = 0;
	return RS_OK;
}

static void port_engine_poke(void *ctx, void *engine)
{
	(void)ctx;
	must(!((struct engine *)engine)->freeing);
}

static void port_engine_abort(void *ctx, void *engine, int code, const char *message)
{
	struct engine *en = engine;

	(void)ctx;
	must(!en->freeing && !en->aborted && code < 0 && message[0]);
	en->aborted = code;
}

static bool port_engine_can_shard(void *ctx, void *engine)
{
	(void)ctx;
	must(!((struct engine *)engine)->freeing);
	return true;
}

static void port_engine_stats(void *ctx, void *engine, uint64_t *ret_tx, uint64_t *ret_rx)
{
	(void)ctx;
	must(!((struct engine *)engine)->freeing);
	*ret_tx = *ret_rx = 7;
}

static void port_engine_free(void *ctx, void *engine, struct local_job *job)
{
	struct engine *en = engine;

	(void)ctx;
	must(!en->freeing && en->job == job);
	en->freeing = true;
}

static void port_post(void *ctx, struct local_event *n)
{
	struct world *w = ctx;

	n->next = NULL;
	*w->events_end = n;
	w->events_end = &n->next;
}

static bool port_runs(void *ctx, struct local_client *c)
{
	const struct process *p = local_client_user(c);

	(void)ctx;
	return p->stopped;
}

static const struct local_ports ports = {
    .send = port_send,
    .drop = port_drop,
    .runs = port_runs,
    .shm_make = port_shm_make,
    .shm_free = port_shm_free,
    .stage_new = port_stage_new,
    .stage_free = port_stage_free,
    .engine_start = port_engine_start,
    .engine_submit = port_engine_submit,
    .engine_poke = port_engine_poke,
    .engine_abort = port_engine_abort,
    .engine_can_shard = port_engine_can_shard,
    .engine_stats = port_engine_stats,
    .engine_free = port_engine_free,
    .post = port_post,
};

static void lose(struct process *p)
{
	struct local_client *c = p->client;

	if (!c)
		return;
	*p = (struct process){.client = NULL}; /* from here on it gets no messages */
	local_client_lost(c, "exited");
}

static void end_op(struct engine *en, unsigned i, const struct rs_err *err)
{
	struct exchange_op *x = en->ops[i].x;

	en->ops_n--;
	memmove(en->ops + i, en->ops + i + 1, (en->ops_n - i) * sizeof en->ops[0]);
	x->done(x, err);
}

static void engine_fail(struct engine *en, int code)
{
	struct rs_err e;

	rs_fail(&e, code, "the engine has failed");
	while (en->ops_n)
		end_op(en, 0, &e);
	if (!en->ended && !en->freeing)
		local_job_on_failed(en->job, &e);
	en->ended = true;
}

/* Acts as a link: reads the contribution and writes the result, both or only parts if
 * there is no payload; or as an exchange without reducers. */
static void run_chunk(struct exchange_op *x, uint64_t chunk, bool single_worker)
{
	static uint8_t sink[2 * CHUNK];
	const struct operation_place at = operation_place(&x->of, x->chunk_elems, (uint32_t)chunk);
	bool root = exchange_op_is_root(x, &at), gather = operation_is_gather(&x->of);
	uint32_t n = at.elems, size = (uint32_t)rs_dtype_size(x->of.dtype), wire = operation_wire_size(&x->of, x->wide);
	bool sends = x->of.op != FRAME_OP_BROADCAST || root;
	bool gets = operation_is_scatter(&x->of) ? root : x->of.op != FRAME_OP_BROADCAST || !root;
	const char *from = (const char *)x->send;
	struct rs_err e;

	if (n && sends) {
		if (x->fill)
			x->fill(x, at.first, n);
		from += exchange_ring_offset((gather ? at.offset : at.first) * wire, x->send_ring);
		if (x->inspect && !x->nonfinite_found && x->inspect(x, from, at.first, n, &e)) {
			must(e.code == RS_ENONFINITE && e.msg[0]);
			x->nonfinite_found = true;
		}
		memcpy(sink, from, n * wire);
	}
	if (n && single_worker && x->finish)
		x->finish(x, at.first, n);
	if (n && !single_worker && gets)
		memcpy((char *)x->recv +
			   exchange_ring_offset((operation_is_scatter(&x->of) ? at.offset : at.first) * size,
						x->recv_ring),
		       sink, n * size);
	if (x->landed && (n || root))
		x->landed(x, at.first, n);
}

/* Runs at most n chunks of an operation, as far as they are filled. */
static void engine_run(struct engine *en, unsigned i, unsigned n)
{
	struct exchange_op *x = en->ops[i].x;

	for (; n && en->ops[i].next < x->chunks; n--) {
		uint64_t end = (en->ops[i].next + 1) * x->chunk_elems;

		if (x->ready && atomic_load(x->ready) < (end < x->of.count ? end : x->of.count))
			return;
		run_chunk(x, en->ops[i].next++, en->single_worker);
	}
	if (en->ops[i].next == x->chunks)
		end_op(en, i, NULL);
}

static bool make_one(struct world *w, bool fail)
{
	struct local_buffer *b = w->making[0];
	uint64_t bytes = w->making_bytes[0];
	struct rs_err e;
	uint8_t *map;

	if (!w->making_n)
		return false;
	w->making_n--;
	memmove(w->making, w->making + 1, w->making_n * sizeof w->making[0]);
	memmove(w->making_bytes, w->making_bytes + 1, w->making_n * sizeof w->making_bytes[0]);
	if (fail) {
		rs_fail(&e, RS_ENOMEM, "no memory");
		local_buffer_made(b, NULL, -1, &e);
		return true;
	}
	w->shm_bytes += bytes;
	must(w->shm_bytes <= SHM);
	map = calloc(1, bytes);
	must(map);
	for (unsigned i = 0; i < CHUNK; i++) /* numbers of all kinds */
		map[i] = (uint8_t)(i * 37 ^ i >> 4);
	local_buffer_made(b, map, 5, NULL);
	return true;
}

static bool carry_note(struct world *w)
{
	struct local_event *n = w->events;

	if (!n)
		return false;
	w->events = n->next;
	if (!w->events)
		w->events_end = &w->events;
	local_hub_on_event(n);
	return true;
}

static bool end_engine(struct engine *en)
{
	if (!en->job)
		return false;
	if ((en->aborted || en->freeing) && !en->ended) {
		engine_fail(en, en->aborted ? en->aborted : RS_ECLOSED);
		return true;
	}
	if (en->freeing && en->ended) { /* all its messages have been delivered */
		struct local_job *j = en->job;

		en->job = NULL;
		local_job_engine_freed(j);
		return true;
	}
	return false;
}

static bool settle_one(struct world *w)
{
	if (carry_note(w) || make_one(w, false))
		return true;
	for (unsigned i = 0; i < CLIENTS; i++)
		if (w->p[i].client && w->p[i].dropped) {
			lose(&w->p[i]);
			return true;
		}
	for (unsigned i = 0; i < ENGINES; i++)
		if (end_engine(&w->en[i]))
			return true;
	return false;
}

static void settle(struct world *w)
{
	for (unsigned n = 0; settle_one(w); n++)
		must(n < 10000 && local_hub_check(w->hub) == NULL);
}

static void deliver(struct world *w, struct process *p, union local_message *m, size_t n)
{
	if (n == sizeof m->submit && m->head.type == LOCAL_SUBMIT && m->submit.of.seq >= p->said &&
	    m->submit.of.seq < UINT64_MAX)
		p->said = m->submit.of.seq + 1;
	local_client_message(p->client, m, n, w->now_ms);
	must(local_hub_check(w->hub) == NULL);
}

static void say(struct world *w, struct process *p, union local_message *m, size_t n)
{
	uint8_t twist = fuzz_u8(&w->in);

	if (!p->client)
		return;
	for (twist = twist < 160 ? 0 : twist & 3; twist; twist--) { /* any number in any field */
		size_t at = fuzz_below(&w->in, sizeof *m / 4) * 4;
		uint64_t v = fuzz_number(&w->in);

		memcpy((char *)m + at, &v, at + 8 <= sizeof *m ? 8 : 4);
	}
	deliver(w, p, m, n);
}

static void connect_one(struct world *w, struct process *p)
{
	struct rs_err e;

	if (!p->client && local_client_new(&p->client, w->hub, 100, p, w->now_ms, &e))
		p->client = NULL;
	p->stopped = (p - w->p) & 1;
}

static void say_hello(struct world *w, struct process *p, uint8_t job, unsigned local_rank, unsigned local,
		      unsigned nodes)
{
	union local_message m;

	connect_one(w, p);
	local_init(&m, LOCAL_HELLO);
	m.hello.job[0] = (char)('a' + (job & 1));
	m.hello.generation = job >> 1 & 3;
	m.hello.run[0] = job >> 5 == 7 ? 'r' : '\0'; /* few: most jobs can start */
	m.hello.local_rank = local_rank;
	m.hello.local_world_size = local;
	m.hello.nodes = nodes;
	m.hello.node_rank = 0;
	m.hello.rank = local_rank;
	m.hello.world_size = local * nodes;
	m.hello.connect_ms = 3000;
	say(w, p, &m, m.head.bytes);
}

/* All local ranks of a job join, and it becomes ready. */
static void whole_job(struct world *w)
{
	uint8_t job = fuzz_u8(&w->in), shape = fuzz_u8(&w->in);
	unsigned local = 1 + shape % 3, first = shape / 3 % (CLIENTS - 2);

	for (unsigned i = 0; i < local; i++)
		say_hello(w, &w->p[first + i], job, i, local, 1 + (job >> 3 & 1));
	for (unsigned i = 0; i < ENGINES; i++)
		if (w->en[i].job && !w->en[i].ready && !w->en[i].aborted && !w->en[i].ended && !w->en[i].freeing) {
			w->en[i].ready = true;
			local_job_on_ready(w->en[i].job);
		}
}

static void say_alloc(struct world *w, struct process *p)
{
	uint8_t size = fuzz_u8(&w->in);
	union local_message m;

	local_init(&m, LOCAL_ALLOC);
	m.alloc.bytes = size < 128 ? (uint64_t)size * 64 : size < 224 ? RING + 4096 : fuzz_number(&w->in);
	say(w, p, &m, m.head.bytes);
}

/* The fields that all ranks must agree on, and their places. */
static void read_submit(struct world *w, struct local_submit *s)
{
	static const uint8_t reduces[] = {RS_SUM, RS_AVG, RS_MAX, FRAME_OP_BROADCAST};
	uint8_t kind = fuzz_u8(&w->in), where = fuzz_u8(&w->in), size = fuzz_u8(&w->in);

	s->of.dtype = kind % 10;
	s->of.size = rs_dtype_size(s->of.dtype) & OPERATION_SIZE;
	s->of.op = reduces[kind / 10 % 4];
	s->of.priority = (uint8_t)((kind >> 6) - 1);
	s->of.count = size < 128 ? size : size < 192 ? (uint64_t)(size - 127) * 100000 : fuzz_number(&w->in);
	s->recv_buffer = where & 1;
	if (where & 2) {
		s->send_buffer = s->recv_buffer;
	} else {
		s->send_buffer = 1 - s->recv_buffer;
		if (s->of.op == FRAME_OP_BROADCAST)
			s->send_buffer = s->recv_buffer;
	}
	if (where & 4)
		s->ring = where & 8 ? RING : fuzz_number(&w->in);
	if (s->ring) {
		uint64_t fits = s->ring / (s->of.size ? s->of.size : 1);

		s->missing = s->of.count > fits ? s->of.count - fits : 0;
		s->landed_offset = RING;
	}
	if (where & 16)
		s->missing = s->of.count;
	if (where & 32)
		s->recv_offset = s->send_offset = fuzz_number(&w->in);
	if (where & 64)
		s->of.tensors = 3;
	s->of.root = where >> 7 && s->of.op == FRAME_OP_BROADCAST;
	if ((where & 80) == 80) {
		s->of.sharded = 1;
		s->of.parts = 1 + (where >> 7);
		s->of.tensors = 0;
		s->of.count *= s->of.parts;
		s->missing = 0;
	}
}

static void say_submit(struct world *w, unsigned from, unsigned n)
{
	union local_message m, mine;

	local_init(&m, LOCAL_SUBMIT);
	read_submit(w, &m.submit);
	for (unsigned i = from; i < from + n && i < CLIENTS; i++) {
		uint64_t seq = w->p[i].seq;

		if (!w->p[i].welcome)
			continue;
		mine = m;
		mine.submit.of.seq = seq;
		w->p[i].seq++;
		say(w, &w->p[i], &mine, mine.head.bytes);
	}
}

static void say_filled(struct world *w, struct process *p)
{
	union local_message m;

	local_init(&m, LOCAL_FILLED);
	m.filled.seq = p->seq - 1 - fuzz_below(&w->in, 4);
	m.filled.count = fuzz_number(&w->in);
	say(w, p, &m, m.head.bytes);
}

static void say_any(struct world *w, struct process *p)
{
	union local_message m;
	uint8_t type = fuzz_u8(&w->in);
	size_t n;
	const uint8_t *from;

	if (type < 128) {
		local_init(&m, (enum local_type)(1 + type % (LOCAL_TYPE_NR - 1)));
		m.free.buffer = type / 32;
		say(w, p, &m, m.head.bytes);
		return;
	}
	memset(&m, 0, sizeof m);
	from = fuzz_bytes(&w->in, sizeof m, &n);
	memcpy(&m, from, n);
	if (p->client)
		deliver(w, p, &m, n);
}

static void engine_step(struct world *w, struct engine *en)
{
	uint8_t what = fuzz_u8(&w->in);

	if (!en->job || en->ended || en->freeing)
		return;
	if (what >= 240)
		engine_fail(en, RS_EPEER);
	else if (!en->ready && !en->aborted) {
		en->ready = true;
		local_job_on_ready(en->job);
	} else if (en->ops_n) {
		engine_run(en, what % en->ops_n, 1 + what * 8);
	}
}

static void step(struct world *w)
{
	uint8_t what = fuzz_u8(&w->in) % 16;
	unsigned who = fuzz_u8(&w->in);
	struct process *p = &w->p[who % CLIENTS];

	switch (what) {
	case 0:
		whole_job(w);
		break;
	case 1:
		say_hello(w, p, (uint8_t)(who / 8), who / 8 % 3, 1 + who / 64, 1 + fuzz_below(&w->in, 3));
		break;
	case 2:
	case 3:
		say_alloc(w, p);
		break;
	case 4:
	case 5:
		say_submit(w, who % CLIENTS, 1 + who / CLIENTS % 3);
		break;
	case 6:
		say_filled(w, p);
		break;
	case 7:
		say_any(w, p);
		break;
	case 8:
	case 9:
	case 10:
		engine_step(w, &w->en[who % ENGINES]);
		break;
	case 11:
		w->now_ms += who * 20;
		local_hub_tick(w->hub, w->now_ms);
		must(local_hub_check(w->hub) == NULL);
		must(local_hub_next(w->hub) > w->now_ms);
		break;
	case 12:
		lose(p);
		break;
	case 13:
		w->hold = who & 1;
		break;
	case 14:
		if (who >= 250)
			local_hub_drain(w->hub, w->now_ms, w->now_ms + who);
		else if (who & 1)
			carry_note(w);
		else
			make_one(w, who & 2);
		break;
	default:
		connect_one(w, p);
	}
}

static void world_open(struct world *w)
{
	uint8_t how = fuzz_u8(&w->in);

	struct local_hub_options opt = {.cfg = &w->cfg, .ports = &ports, .ctx = w, .host = "host"};
	struct rs_err e;

	w->events_end = &w->events;
	w->now_ms = 1000;
	w->reducer.lanes = 1;
	w->cfg.reducers = &w->reducer;
	w->cfg.reducers_n = 1;
	w->cfg.agent.max_jobs = JOBS;
	w->cfg.job.max_ops = OPS;
	w->cfg.agent.shm_bytes = SHM;
	w->cfg.timeouts.handshake_ms = 1000;
	w->cfg.timeouts.op_ms = how & 1 ? 2000 : 0;
	w->cfg.job.detect_nonfinite = how & 2 ? RS_NONFINITE_LOG : RS_NONFINITE_OFF;
	w->cfg.agent.single_node_reducers = how & 4;
	w->cfg.sharding.chunk_bytes = CHUNK;
	w->cfg.sharding.window = 2;
	w->cfg.sharding.priorities = 2;
	must(rs_kernels_select("scalar", &opt.kernels, &e) == RS_OK);
	must(local_hub_new(&w->hub, &opt, &e) == RS_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct world *w = calloc(1, sizeof *w);
	size_t heap;

	must(w);
	w->in = (struct fuzz_input){data, size};
	heap = fuzz_heap();
	world_open(w);
	for (unsigned i = 0; i < STEPS && w->in.left; i++) {
		step(w);
		if (!w->hold)
			settle(w);
		if (fuzz_heap())
			must(fuzz_heap() <= heap + w->shm_bytes + w->stage_bytes + HEAP);
	}
	for (unsigned i = 0; i < CLIENTS; i++)
		lose(&w->p[i]);
	settle(w);
	must(local_hub_clients(w->hub) == 0 && local_hub_jobs(w->hub) == 0);
	must(w->shm_bytes == 0 && w->stage_bytes == 0 && w->making_n == 0);
	for (unsigned i = 0; i < ENGINES; i++)
		must(!w->en[i].job);
	local_hub_free(w->hub);
	free(w);
	return 0;
}
