/* SPDX-License-Identifier: Apache-2.0 */
/* The hub's engines are those of engine.h. While only small operations are pending, and
 * for a moment after each, the loop busy-polls their sockets itself: a result then wakes
 * neither the engine's thread nor, from there, the loop. */
#include "agent/worker/engine/engine.h"
#include "agent/node/daemon/agentd.h"
#include "proto/operation.h"

#include <stdlib.h>

/* A call of engine_free, which waits for the engine's thread and therefore runs on
 * another one. */
struct freeing {
	struct rs_task task; /* first */
	struct agentd *a;
	struct engine *engine;
	struct local_job *job;
};

/* An engine as the hub knows it. The request to free it is allocated with it, since
 * freeing must not fail. */
struct agentd_engine {
	struct engine *engine;
	bool single_worker;
	LIST_ENTRY(agentd_engine) link; /* in a->engines, until agentd_engine_free */
	LIST_ENTRY(agentd_engine) busy; /* in a->busy_polled, while busy_polled */
	bool busy_polled;
	uint64_t since_ns; /* when it last got an operation or had received something */
	struct freeing freeing;
};

/* Starts busy polling; the loop must not sleep from now on, see loop_on_check in
 * loop.c. */
static void agentd_engine_busy_poll(struct agentd *a, struct agentd_engine *en)
{
	en->since_ns = uv_hrtime();
	if (en->busy_polled || !engine_busy_poll_begin(en->engine))
		return;
	en->busy_polled = true;
	LIST_INSERT_HEAD(&a->busy_polled, en, busy);
}

static void agentd_engine_stop_busy_poll(struct agentd_engine *en)
{
	if (!en->busy_polled)
		return;
	en->busy_polled = false;
	LIST_REMOVE(en, busy);
	engine_busy_poll_end(en->engine);
}

bool agentd_engines_busy_poll(struct agentd *a)
{
	uint64_t now_ns = uv_hrtime();
	struct agentd_engine *next;
	bool activity = false;

	a->busy_polling = true;
	for (struct agentd_engine *en = LIST_FIRST(&a->busy_polled); en; en = next) {
		next = LIST_NEXT(en, busy);
		if (engine_busy_poll(en->engine)) {
			en->since_ns = now_ns;
			activity = true;
		} else if (now_ns - en->since_ns > RS_SPIN_NS) {
			agentd_engine_stop_busy_poll(en); /* others may keep the loop awake for long */
		}
	}
	a->busy_polling = false;
	return activity;
}

/* Ends busy polling; the engines' own threads take over. */
static void agentd_engines_stop_busy_poll(struct agentd *a)
{
	while (!LIST_EMPTY(&a->busy_polled))
		agentd_engine_stop_busy_poll(LIST_FIRST(&a->busy_polled));
}

static void engine_on_idle(uv_idle_t *idle)
{
	(void)idle;
}

void agentd_keep_awake(struct agentd *a, bool stay)
{
	if (stay) {
		a->activity = true;
		uv_idle_start(&a->idle, engine_on_idle);
	} else if (uv_is_active((uv_handle_t *)&a->idle)) {
		a->activity = a->spin.awake = false;
		uv_idle_stop(&a->idle);
		agentd_engines_stop_busy_poll(a);
	}
}

int agentd_engine_start(void *ctx, void **ret, struct local_job *job, const struct local_engine *spec, struct rs_err *e)
{
	struct agentd *a = ctx;
	struct engine_options opt = {.cfg = spec->cfg,
				     .job = spec->job,
				     .run = spec->run,
				     .evidence = spec->evidence,
				     .generation = spec->generation,
				     .rank = spec->rank,
				     .world_size = spec->world_size,
				     .processes = spec->processes,
				     .single_worker = spec->single_worker,
				     .no_shards = !spec->shards,
				     .label = spec->label,
				     .connect_ms = spec->connect_ms,
				     .log = a->log,
				     .callers_run = true,
				     .on_ready = local_job_on_ready,
				     .on_failed = local_job_on_failed,
				     .user = job};
	struct agentd_engine *en = calloc(1, sizeof *en);
	int rc;

	if (!en)
		return rs_oom(e, 0, "an engine in the agent on %s", a->host);
	rc = engine_start(&en->engine, &opt, e);
	if (rc) {
		free(en);
		return rc;
	}
	en->single_worker = spec->single_worker;
	LIST_INSERT_HEAD(&a->engines, en, link);
	*ret = en;
	return RS_OK;
}

int agentd_engine_submit(void *ctx, void *engine, struct exchange_op *op, struct rs_err *e)
{
	struct agentd *a = ctx;
	struct agentd_engine *en = engine;
	bool small = operation_is_small(&op->of);
	int rc;

	if (!small)
		agentd_keep_awake(a, false);
	rc = engine_submit(en->engine, op, e);
	if (!rc && small) {
		if (!en->single_worker) /* else it is done already */
			agentd_engine_busy_poll(a, en);
		if (en->single_worker || en->busy_polled)
			agentd_keep_awake(a, true);
	}
	return rc;
}

void agentd_engine_poke(void *ctx, void *engine)
{
	(void)ctx;
	engine_poke(((struct agentd_engine *)engine)->engine);
}

bool agentd_engine_can_shard(void *ctx, void *engine)
{
	(void)ctx;
	return engine_can_shard(((struct agentd_engine *)engine)->engine);
}

void agentd_engine_abort(void *ctx, void *engine, int code, const char *message)
{
	(void)ctx;
	engine_abort(((struct agentd_engine *)engine)->engine, code, message);
}

void agentd_engine_stats(void *ctx, void *engine, uint64_t *ret_tx, uint64_t *ret_rx)
{
	reduction_stats stats;

	(void)ctx;
	engine_stats(((struct agentd_engine *)engine)->engine, &stats);
	*ret_tx = stats.tx_bytes;
	*ret_rx = stats.rx_bytes;
}

void agentd_engine_ask(void *engine, struct exchange_report *to, void (*done)(void *user), void *user)
{
	engine_ask_report(((struct agentd_engine *)engine)->engine, to, done, user);
}

void agentd_engine_trace(struct agentd *a, const void *engine, struct trace *trace, void (*done)(void *user),
			 void *user)
{
	const struct agentd_engine *en = LIST_FIRST(&a->engines);

	while (en && en != engine)
		en = LIST_NEXT(en, link);
	if (en)
		engine_trace(en->engine, trace, done, user);
}

bool agentd_engines_answer(struct agentd *a)
{
	bool all = true;

	for (struct agentd_engine *en = LIST_FIRST(&a->engines); en; en = LIST_NEXT(en, link))
		all &= engine_answers(en->engine);
	return all;
}

static void agentd_engine_free_run(struct rs_task *t)
{
	struct engine *en = ((struct freeing *)t)->engine;

	engine_stop(en);
	engine_free(en);
}

static void agentd_engine_freed(struct rs_task *t)
{
	struct freeing *f = (struct freeing *)t;
	struct agentd *a = f->a;
	struct local_job *job = f->job;

	if (a->hooks)
		a->hooks->engine_freed(a, (char *)f - offsetof(struct agentd_engine, freeing));
	free((char *)f - offsetof(struct agentd_engine, freeing));
	agentd_take_events(a);
	local_job_engine_freed(job);
	agentd_check_end_soon(a);
}

void agentd_engine_free(void *ctx, void *engine, struct local_job *job)
{
	struct agentd_engine *en = engine;
	struct agentd *a = ctx;

	agentd_engine_stop_busy_poll(en);
	LIST_REMOVE(en, link);
	en->freeing = (struct freeing){.task = {.run = agentd_engine_free_run, .done = agentd_engine_freed},
				       .a = a,
				       .engine = en->engine,
				       .job = job};
	rs_pool_add(&a->pool, &en->freeing.task);
}
