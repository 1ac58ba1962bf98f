/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/fake_agent.h"
#include "agent/node/core/check.h"
#include "common/dtype.h"
#include "proto/frame.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void tell(struct fake_client *c, const union local_message *m)
{
	size_t at = strlen(c->story);
	char *end = c->story + at;
	size_t room = sizeof c->story - at;
	const char *space = at ? " " : "";
	const char *name = local_type_name(m->head.type);

	switch (m->head.type) {
	case LOCAL_REFUSED:
	case LOCAL_ABORT:
		snprintf(end, room, "%s%s:%d%s", space, name, m->failure.code, m->failure.retry ? "+" : "");
		strcpy(c->sentence, m->failure.message);
		break;
	case LOCAL_DONE:
		if (m->done.code) {
			snprintf(end, room, "%s%s:%u:%d", space, name, (unsigned)m->done.seq, m->done.code);
			strcpy(c->sentence, m->done.message);
		} else {
			snprintf(end, room, "%s%s:%u", space, name, (unsigned)m->done.seq);
		}
		break;
	case LOCAL_ALLOCED:
		snprintf(end, room, "%s%s:%d", space, name, m->alloced.code);
		strcpy(c->sentence, m->alloced.message);
		break;
	default:
		snprintf(end, room, "%s%s", space, name);
	}
	if (m->head.type == LOCAL_COUNTERS)
		c->tx_bytes = m->counters.tx_bytes;
}

static void port_send(void *ctx, struct local_client *client, const union local_message *m, int fd)
{
	struct fake_client *c = local_client_user(client);

	(void)ctx;
	ck_assert_ptr_nonnull(c->client);
	ck_assert(!c->dropped);
	ck_assert_int_eq(fd >= 0, m->head.type == LOCAL_ALLOCED && m->alloced.code == 0);
	if (m->head.type == LOCAL_READY || m->head.type == LOCAL_DONE)
		c->can_shard = m->head.type == LOCAL_READY ? m->ready.can_shard : m->done.can_shard;
	if (m->head.type == LOCAL_PING)
		c->pings++;
	else
		tell(c, m);
}

static bool port_runs(void *ctx, struct local_client *client)
{
	const struct fake_client *c = local_client_user(client);

	(void)ctx;
	return c->stopped;
}

static void port_drop(void *ctx, struct local_client *client)
{
	struct fake_client *c = local_client_user(client);

	(void)ctx;
	ck_assert(!c->dropped);
	c->dropped = true;
}

static int port_shm_make(void *ctx, struct local_buffer *b, uint64_t bytes, struct rs_err *e)
{
	struct fake_agent *fa = ctx;

	if (fa->no_memory)
		return rs_fail(e, RS_ENOMEM, "no memory");
	ck_assert_uint_lt(fa->making_n, FAKE_CLIENTS);
	fa->making[fa->making_n] = b;
	fa->making_bytes[fa->making_n++] = bytes;
	return RS_OK;
}

static void port_shm_free(void *ctx, void *map, uint64_t bytes)
{
	(void)ctx;
	(void)bytes;
	free(map);
}

static void *port_stage_new(void *ctx, size_t bytes)
{
	struct fake_agent *fa = ctx;

	if (fa->no_memory)
		return NULL;
	fa->stage_bytes += bytes;
	if (fa->stage_bytes > fa->stage_most)
		fa->stage_most = fa->stage_bytes;
	return malloc(bytes);
}

static void port_stage_free(void *ctx, void *stage, size_t bytes)
{
	struct fake_agent *fa = ctx;

	fa->stage_bytes -= bytes;
	free(stage);
}

static int port_engine_start(void *ctx, void **ret, struct local_job *job, const struct local_engine *spec,
			     struct rs_err *e)
{
	struct fake_agent *fa = ctx;
	struct fake_engine *en = &fa->engines[fa->engines_n];

	if (fa->no_engine)
		return rs_fail(e, RS_EIO, "no engine");
	ck_assert_uint_lt(fa->engines_n, FAKE_ENGINES);
	fa->engines_n++;
	en->job = job;
	en->spec = *spec;
	snprintf(en->name, sizeof en->name, "%s", spec->job);
	snprintf(en->label, sizeof en->label, "%s", spec->label);
	en->spec.job = en->name;
	en->spec.label = en->label;
	*ret = en;
	return RS_OK;
}

static int port_engine_submit(void *ctx, void *engine, struct exchange_op *op, struct rs_err *e)
{
	struct fake_engine *en = engine;

	(void)ctx;
	ck_assert(!en->freeing);
	if (en->refuse || en->ended)
		return rs_fail(e, en->refuse ? en->refuse : RS_EPEER, "the engine takes nothing");
	ck_assert_uint_lt(en->ops_n, FAKE_OPS);
	en->ops[en->ops_n++] = op;
	return RS_OK;
}

static void port_engine_poke(void *ctx, void *engine)
{
	struct fake_engine *en = engine;

	(void)ctx;
	ck_assert(!en->freeing);
	en->pokes++;
}

static void port_engine_abort(void *ctx, void *engine, int code, const char *message)
{
	struct fake_engine *en = engine;

	(void)ctx;
	ck_assert(!en->freeing);
	ck_assert_int_eq(en->aborted, 0);
	en->aborted = code;
	snprintf(en->why, sizeof en->why, "%s", message);
}

static bool port_engine_can_shard(void *ctx, void *engine)
{
	(void)engine;
	return !((struct fake_agent *)ctx)->no_shards;
}

static void port_engine_stats(void *ctx, void *engine, uint64_t *ret_tx, uint64_t *ret_rx)
{
	(void)ctx;
	(void)engine;
	*ret_tx = 77;
	*ret_rx = 78;
}

static void port_engine_free(void *ctx, void *engine, struct local_job *job)
{
	struct fake_engine *en = engine;

	(void)ctx;
	ck_assert(!en->freeing);
	ck_assert_ptr_eq(en->job, job);
	en->freeing = true;
}

static void port_post(void *ctx, struct local_event *n)
{
	struct fake_agent *fa = ctx;

	n->next = NULL;
	*fa->events_end = n;
	fa->events_end = &n->next;
}

void fake_agent_init(struct fake_agent *fa)
{
	static const struct local_ports ports = {.send = port_send,
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
						 .post = port_post};
	struct local_hub_options opt = {.cfg = &fa->cfg, .ports = &ports, .ctx = fa, .host = "host"};
	struct rs_err e;

	memset(fa, 0, sizeof *fa);
	fa->events_end = &fa->events;
	fa->now_ms = FAKE_START_MS;
	fa->cfg.agent.max_jobs = 4;
	fa->cfg.job.max_ops = 8;
	fa->cfg.agent.shm_bytes = 1 << 20;
	fa->cfg.agent.single_node_reducers = true;
	fa->cfg.timeouts.handshake_ms = 1000;
	fa->cfg.timeouts.detect_ms = LOCAL_PINGS_PER_DETECT * (FAKE_FIRST_PING_MS - FAKE_START_MS);
	fa->cfg.sharding.chunk_bytes = FAKE_CHUNK;
	fa->cfg.sharding.priorities = 2;
	ck_assert_int_eq(rs_kernels_select("scalar", &opt.kernels, &e), 0);
	ck_assert_int_eq(local_hub_new(&fa->hub, &opt, &e), 0);
}

struct fake_client *fake_connect(struct fake_agent *fa)
{
	struct fake_client *c = &fa->clients[fa->clients_n];
	struct rs_err e;

	ck_assert_uint_lt(fa->clients_n, FAKE_CLIENTS);
	fa->clients_n++;
	if (local_client_new(&c->client, fa->hub, 100 + fa->clients_n, c, fa->now_ms, &e)) {
		c->client = NULL;
		strcpy(c->sentence, e.msg);
	}
	return c;
}

static void check_hub(const struct fake_agent *fa)
{
	const char *broken = local_hub_check(fa->hub);

	if (broken)
		ck_abort_msg("the hub breaks an invariant: %s", broken);
}

void fake_say(struct fake_agent *fa, struct fake_client *c, union local_message *m)
{
	ck_assert_ptr_nonnull(c->client);
	local_client_message(c->client, m, m->head.bytes, fa->now_ms);
	check_hub(fa);
}

void fake_lose(struct fake_client *c)
{
	struct local_client *client = c->client;

	if (!client)
		return;
	c->client = NULL; /* from here on it gets no messages */
	local_client_lost(client, "exited");
}

/* Makes one buffer: a client gets its address. */
static void make_one(struct fake_agent *fa)
{
	struct local_buffer *b = fa->making[0];
	uint64_t bytes = fa->making_bytes[0];
	void *map = calloc(1, bytes);

	fa->making_n--;
	memmove(fa->making, fa->making + 1, fa->making_n * sizeof fa->making[0]);
	memmove(fa->making_bytes, fa->making_bytes + 1, fa->making_n * sizeof fa->making_bytes[0]);
	local_buffer_made(b, map, 5, NULL);
}

static bool step(struct fake_agent *fa)
{
	struct local_event *n = fa->events;

	if (n) {
		fa->events = n->next;
		if (!fa->events)
			fa->events_end = &fa->events;
		local_hub_on_event(n);
		return true;
	}
	if (fa->making_n) {
		make_one(fa);
		return true;
	}
	for (unsigned i = 0; i < fa->clients_n; i++) {
		if (fa->clients[i].client && fa->clients[i].dropped) {
			fake_lose(&fa->clients[i]);
			return true;
		}
	}
	for (unsigned i = 0; i < fa->engines_n; i++) {
		struct fake_engine *en = &fa->engines[i];

		if (en->aborted && !en->ended) {
			fake_engine_fail(fa, en, en->aborted, en->why);
			return true;
		}
		if (en->freeing && en->ops_n) { /* engine_free fails pending operations, then reports nothing more */
			en->ended = true;
			fake_engine_fail(fa, en, RS_ECLOSED, "closed");
			return true;
		}
		if (en->freeing && !en->freed) {
			en->freed = true;
			local_job_engine_freed(en->job);
			return true;
		}
	}
	return false;
}

void fake_settle(struct fake_agent *fa)
{
	while (step(fa))
		check_hub(fa);
}

void fake_agent_close(struct fake_agent *fa)
{
	for (unsigned i = 0; i < fa->clients_n; i++)
		fake_lose(&fa->clients[i]);
	fake_settle(fa);
	ck_assert_uint_eq(local_hub_clients(fa->hub), 0);
	ck_assert_uint_eq(local_hub_jobs(fa->hub), 0);
	ck_assert_uint_eq(fa->stage_bytes, 0);
	for (unsigned i = 0; i < fa->engines_n; i++)
		ck_assert(fa->engines[i].freed);
	local_hub_free(fa->hub); /* asserts that no shared memory is left */
}

void fake_hello(struct fake_agent *fa, struct fake_client *c, const char *job, unsigned generation, unsigned rank,
		unsigned world, unsigned local)
{
	union local_message m;

	local_init(&m, LOCAL_HELLO);
	snprintf(m.hello.job, sizeof m.hello.job, "%s", job);
	snprintf(m.hello.run, sizeof m.hello.run, "%s", fa->run ? fa->run : "");
	snprintf(m.hello.evidence, sizeof m.hello.evidence, "%s", fa->evidence ? fa->evidence : "");
	m.hello.rank = rank;
	m.hello.world_size = world;
	m.hello.local_rank = rank % local;
	m.hello.local_world_size = local;
	m.hello.node_rank = rank / local;
	m.hello.nodes = world / local;
	m.hello.generation = generation;
	m.hello.connect_ms = 10000;
	fake_say(fa, c, &m);
}

struct fake_engine *fake_job(struct fake_agent *fa, struct fake_client *c[], unsigned world, unsigned local)
{
	unsigned before = fa->engines_n;

	for (unsigned i = 0; i < local; i++) {
		c[i] = fake_connect(fa);
		fake_hello(fa, c[i], "j", 0, i, world, local);
	}
	ck_assert_uint_eq(fa->engines_n, before + 1);
	fake_engine_ready(fa, &fa->engines[before]);
	for (unsigned i = 0; i < local; i++)
		ck_assert_str_eq(c[i]->story, "WELCOME READY");
	return &fa->engines[before];
}

unsigned fake_alloc(struct fake_agent *fa, struct fake_client *c, uint64_t bytes)
{
	union local_message m;
	unsigned id = 0;
	void *map = calloc(1, (bytes + 4095) / 4096 * 4096);
	bool taken;

	while (c->buffer[id])
		id++;
	local_init(&m, LOCAL_ALLOC);
	m.alloc.bytes = bytes;
	fake_say(fa, c, &m);
	ck_assert_uint_eq(fa->making_n, 1);
	taken = local_buffer_made(fa->making[--fa->making_n], map, 5, NULL);
	ck_assert(taken);
	c->buffer[id] = map;
	return id;
}

void fake_submit(struct fake_agent *fa, struct fake_client *c, unsigned buffer, uint64_t count,
		 const struct local_submit *s)
{
	union local_message m;

	local_init(&m, LOCAL_SUBMIT);
	m.submit.of.dtype = RS_FLOAT32;
	if (s) {
		m.submit.of = s->of;
		m.submit.of.name_hash = s->of.name_hash ? s->of.name_hash : frame_name_hash(s->name);
		memcpy(m.submit.name, s->name, sizeof m.submit.name);
	}
	m.submit.of.size = rs_dtype_size(m.submit.of.dtype) & OPERATION_SIZE;
	m.submit.of.seq = c->seq++;
	m.submit.of.count = count;
	m.submit.send_buffer = m.submit.recv_buffer = buffer;
	fake_say(fa, c, &m);
}

void fake_goodbye(struct fake_agent *fa, struct fake_client *c)
{
	union local_message m;

	local_init(&m, LOCAL_GOODBYE);
	fake_say(fa, c, &m);
}

void fake_engine_ready(struct fake_agent *fa, struct fake_engine *en)
{
	ck_assert(!en->ready && !en->ended);
	en->ready = true;
	local_job_on_ready(en->job);
	fake_settle(fa);
}

/* Computes what a reducer would return for a single contribution. */
static void reduce_alone(const struct exchange_op *op, uint64_t first, uint32_t n)
{
	size_t size = rs_dtype_size(op->of.dtype);
	const struct rs_kernels *k = rs_kernels_usable(0);
	char *to = (char *)op->recv + first * size;

	if (op->wide)
		k->store[op->of.dtype](to, (const float *)op->send + first, n);
	else if (op->recv != op->send && n > 0)
		memcpy(to, (const char *)op->send + first * size, n * size);
}

static struct exchange_op *take_op(struct fake_engine *en, unsigned i)
{
	struct exchange_op *op = en->ops[i];

	en->ops_n--;
	memmove(en->ops + i, en->ops + i + 1, (en->ops_n - i) * sizeof en->ops[0]);
	return op;
}

void fake_engine_run(struct fake_agent *fa, struct fake_engine *en, unsigned i)
{
	struct exchange_op *op;
	uint64_t first;
	uint32_t n;

	ck_assert_uint_lt(i, en->ops_n);
	op = take_op(en, i);
	op->chunk_elems = FAKE_CHUNK / (uint32_t)rs_dtype_size(op->of.dtype);
	for (unsigned c = 0; c < frame_chunks(op->of.count, op->chunk_elems); c++) {
		first = (uint64_t)c * op->chunk_elems;
		n = frame_chunk_len(op->of.count, op->chunk_elems, c);
		if (op->fill && (op->of.op != FRAME_OP_BROADCAST || op->root))
			op->fill(op, first, n);
		if (en->spec.single_worker && op->finish)
			op->finish(op, first, n);
		else if (!en->spec.single_worker && !op->root)
			reduce_alone(op, first, n);
		if (op->landed && !op->root)
			op->landed(op, first, n);
	}
	op->done(op, NULL);
	fake_settle(fa);
}

void fake_engine_fail(struct fake_agent *fa, struct fake_engine *en, int code, const char *message)
{
	struct rs_err e;

	rs_fail(&e, code, "%s", message);
	while (en->ops_n) {
		struct exchange_op *op = take_op(en, 0);

		op->done(op, &e);
	}
	if (!en->ended) {
		en->ended = true;
		local_job_on_failed(en->job, &e);
	}
	fake_settle(fa);
}
