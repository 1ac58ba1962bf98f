/* SPDX-License-Identifier: Apache-2.0 */
/* The happy path of a trace: the registry says which jobs are meant -> each lane gets a trace of its own and records ->
 * a lane has recorded everything and gives its trace back -> the others are told to end, if it knew the end of all
 * operations -> the last trace completes the answer. Failure modes: operations that do not come: each lane ends by
 * itself at the time limit. The client goes: all lanes are told to end. No memory for a command: that lane has no
 * trace. */
#include "server/run/server_trace.h"

#include <string.h>

static void trace_end_all(struct server *s)
{
	for (unsigned i = 0; i < s->lanes_n; i++)
		lane_thread_trace_end(s->lanes[i]);
}

/* Finds the jobs of a request. */
static void trace_find_jobs(const struct server *s, struct trace_request *r)
{
	struct status *st = registry_status(s->registry);

	for (unsigned i = 0; st && i < r->ranges_n; i++)
		for (unsigned j = 0; j < st->jobs_n; j++)
			if (st->jobs[j].generation == r->ranges[i].generation &&
			    strcmp(st->jobs[j].name, r->ranges[i].job) == 0)
				r->ranges[i].id = st->jobs[j].id;
	status_free(st);
}

/* Allocates a trace for each lane. NULL: no memory. */
static struct trace *trace_allocate(const struct server *s, const struct trace_request *r)
{
	uint32_t most = TRACE_TOTAL / s->lanes_n, records = r->records < most ? r->records : most;
	struct trace *all = NULL;

	for (unsigned i = 0; i < s->lanes_n; i++) {
		struct trace *t = trace_new(r, records);

		if (!t) {
			trace_free(all);
			return NULL;
		}
		t->next = all;
		all = t;
	}
	return all;
}

static int on_trace(void *ctx, const struct trace_request *request, struct rs_err *e)
{
	struct server *s = ctx;
	struct trace_request r = *request;
	struct trace *all = trace_allocate(s, &r);

	if (!all)
		return rs_fail(e, RS_ENOMEM, "this reducer has no memory for a trace");
	trace_find_jobs(s, &r);
	s->traces = NULL;
	s->traces_due = 0;
	s->traces_done = 0;
	for (unsigned i = 0; i < r.ranges_n; i++)
		s->traces_done |= r.ranges[i].id ? 0 : 1u << i; /* nothing to wait for */
	for (unsigned i = 0; i < s->lanes_n; i++) {
		struct trace *t = all;

		all = t->next;
		t->next = NULL;
		memcpy(t->ranges, r.ranges, sizeof t->ranges);
		if (lane_thread_trace(s->lanes[i], t, r.limit_ms))
			s->traces_due++;
		else
			trace_free(t);
	}
	return s->traces_due ? RS_OK : rs_fail(e, RS_ENOMEM, "this reducer has no memory for a trace");
}

static void on_trace_end(void *ctx)
{
	trace_end_all(ctx);
}

static uint64_t on_clock_us(void *ctx)
{
	(void)ctx;
	return uv_hrtime() / 1000;
}

void server_trace_options(struct service_options *so)
{
	so->trace = on_trace;
	so->trace_end = on_trace_end;
	so->clock_us = on_clock_us;
}

void server_trace_ended(struct server *s, struct lane_thread *lane)
{
	struct trace *t;

	/* the lanes have stopped and freed their traces */
	if (!s->lanes_n)
		return;
	t = lane_thread_take_trace(lane);
	t->next = s->traces;
	s->traces = t;
	s->traces_done |= t->done;
	if (--s->traces_due == 0) {
		for (t = s->traces; t; t = t->next)
			t->done = s->traces_done;
		t = s->traces;
		s->traces = NULL;
		service_traced(control_uv_service(s->control), t);
	} else if (t->missed || s->traces_done == (1u << t->ranges_n) - 1) {
		trace_end_all(s); /* "done" of a job is true for all its lanes */
	}
}

void server_trace_free(struct server *s)
{
	trace_free(s->traces);
}
