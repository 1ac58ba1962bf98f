/* SPDX-License-Identifier: Apache-2.0 */
/* The happy path: the hub names the engines of the jobs -> each engine gets a trace and records -> it ends it when all
 * operations are done -> the last one wakes the loop, which takes the traces. Failure modes: operations that do not
 * come: the timer tells the engines to end. An engine is freed: its trace ends as it is. */
#include "agent/node/daemon/trace.h"

#include <string.h>

/* A trace has ended, on any thread. */
static void trace_on_ended(void *user)
{
	struct agentd_trace *tr = user;

	atomic_fetch_add(&tr->ended, 1);
	uv_async_send(tr->wake);
}

static void trace_on_timer(uv_timer_t *timer)
{
	agentd_trace_end(timer->data);
}

void agentd_trace_init(struct agentd_trace *tr, struct agentd *a, uv_async_t *wake)
{
	tr->a = a;
	tr->wake = wake;
	uv_timer_init(&a->loop, &tr->timer);
	tr->timer.data = tr;
}

/* Adds a trace of one range. */
static int trace_add(struct agentd_trace *tr, const struct trace_request *r, unsigned range, void *engine,
		     struct rs_err *e)
{
	struct trace_request one = *r;
	uint32_t most = TRACE_TOTAL / r->ranges_n;
	struct trace *t;

	one.ranges[0] = r->ranges[range];
	one.ranges_n = 1;
	t = trace_new(&one, r->records < most ? r->records : most);
	if (!t)
		return rs_fail(e, RS_ENOMEM, "the agent on %s has no memory for a trace", tr->a->host);
	tr->traces[tr->n].engine = engine;
	tr->traces[tr->n++].trace = t;
	return RS_OK;
}

int agentd_trace_begin(struct agentd_trace *tr, const struct trace_request *r, struct rs_err *e)
{
	struct local_status *st = local_hub_status(tr->a->hub, uv_now(&tr->a->loop));
	int rc = st ? RS_OK : rs_fail(e, RS_ENOMEM, "the agent on %s has no memory for a trace", tr->a->host);

	for (unsigned i = 0; !rc && i < r->ranges_n; i++)
		for (unsigned j = 0; !rc && j < st->jobs_n; j++)
			if (st->jobs[j].engine && st->jobs[j].generation == r->ranges[i].generation &&
			    strcmp(st->jobs[j].name, r->ranges[i].job) == 0 && tr->n < TRACE_RANGES)
				rc = trace_add(tr, r, i, st->jobs[j].engine, e);
	local_status_free(st);
	if (rc) {
		agentd_trace_free(tr);
		return rc;
	}
	tr->running = true;
	tr->due = tr->n;
	for (unsigned i = 0; i < tr->n; i++)
		agentd_engine_trace(tr->a, tr->traces[i].engine, tr->traces[i].trace, trace_on_ended, tr);
	uv_timer_start(&tr->timer, trace_on_timer, r->limit_ms, 0);
	uv_async_send(tr->wake); /* there may be no job at all */
	return RS_OK;
}

void agentd_trace_end(struct agentd_trace *tr)
{
	for (unsigned i = 0; tr->running && i < tr->n; i++)
		if (tr->traces[i].engine)
			agentd_engine_trace(tr->a, tr->traces[i].engine, NULL, NULL, NULL);
}

void agentd_trace_engine_freed(struct agentd_trace *tr, const void *engine)
{
	for (unsigned i = 0; tr->running && i < tr->n; i++) {
		struct trace *t = tr->traces[i].trace;

		if (tr->traces[i].engine != engine)
			continue;
		tr->traces[i].engine = NULL;
		if (!t->ended)
			trace_on_ended(tr);
	}
}

bool agentd_trace_take(struct agentd_trace *tr, struct trace **ret)
{
	if (!tr->running)
		return false;
	tr->due -= atomic_exchange(&tr->ended, 0);
	if (tr->due)
		return false;
	*ret = NULL;
	while (tr->n) {
		struct trace *t = tr->traces[--tr->n].trace;

		t->next = *ret;
		*ret = t;
	}
	tr->running = false;
	uv_timer_stop(&tr->timer);
	return true;
}

void agentd_trace_close(struct agentd_trace *tr)
{
	uv_close((uv_handle_t *)&tr->timer, NULL);
}

void agentd_trace_free(struct agentd_trace *tr)
{
	while (tr->n)
		trace_free(tr->traces[--tr->n].trace);
}
