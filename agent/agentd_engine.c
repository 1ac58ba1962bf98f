/* SPDX-License-Identifier: Apache-2.0 */
/* The hub's engines are those of engine.h. */
#include "agent/agentd.h"
#include "agent/engine.h"

#include <stdlib.h>

/* Freeing an engine waits for its thread, so another thread does it. */
struct freeing {
	uv_work_t work;
	struct agentd *a;
	struct engine *engine;
	struct local_job *job;
};

/* What the hub calls an engine. The request of its end is made with it, since an end must not fail. */
struct agentd_engine {
	struct engine *engine;
	struct freeing freeing;
};

int agentd_engine_start(void *ctx, void **ret, struct local_job *job, const struct local_engine *spec, struct rs_err *e)
{
	struct agentd *a = ctx;
	struct engine_options opt = {.cfg = a->cfg,
				     .job = spec->job,
				     .generation = spec->generation,
				     .rank = spec->rank,
				     .world_size = spec->world_size,
				     .processes = spec->processes,
				     .label = spec->label,
				     .connect_ms = spec->connect_ms,
				     .log = a->log,
				     .on_ready = local_job_on_ready,
				     .on_failed = local_job_on_failed,
				     .user = job};
	struct agentd_engine *en = calloc(1, sizeof *en);
	int rc;

	if (!en)
		return rs_fail(e, RS_ENOMEM, "the agent on %s is out of memory", a->host);
	rc = engine_start(&en->engine, &opt, e);
	if (rc) {
		free(en);
		return rc;
	}
	*ret = en;
	return RS_OK;
}

int agentd_engine_submit(void *ctx, void *engine, struct exchange_op *op, struct rs_err *e)
{
	(void)ctx;
	return engine_submit(((struct agentd_engine *)engine)->engine, op, e);
}

void agentd_engine_poke(void *ctx, void *engine)
{
	(void)ctx;
	engine_poke(((struct agentd_engine *)engine)->engine);
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

static void free_work(uv_work_t *w)
{
	struct engine *en = ((struct freeing *)w->data)->engine;

	engine_stop(en);
	engine_free(en);
}

static void freed(uv_work_t *w, int status)
{
	struct freeing *f = w->data;
	struct agentd *a = f->a;
	struct local_job *job = f->job;

	(void)status;
	free((char *)f - offsetof(struct agentd_engine, freeing));
	agentd_take_notes(a);
	local_job_engine_freed(job);
	agentd_check_stopped(a);
}

void agentd_engine_free(void *ctx, void *engine, struct local_job *job)
{
	struct agentd_engine *en = engine;
	struct agentd *a = ctx;

	en->freeing = (struct freeing){.a = a, .engine = en->engine, .job = job};
	en->freeing.work.data = &en->freeing;
	uv_queue_work(&a->loop, &en->freeing.work, free_work, freed);
}
