/* SPDX-License-Identifier: Apache-2.0 */
/* The registry says which jobs are meant, and each lane gets a trace of its own. Failure
 * mode: no memory for a command: that lane has no trace. */
#include "server/run/server_trace.h"

#include <string.h>

/* Finds the jobs of a request. */
static void server_trace_find_jobs(const struct server *s, struct trace_request *r)
{
	struct status *st = registry_status(s->registry);

	for (unsigned i = 0; st && i < r->ranges_n; i++)
		for (size_t j = 0; j < st->reply.m.n_jobs; j++) {
			const Reduction__V1__JobStatus *job = st->reply.m.jobs[j];

			if (job->generation == r->ranges[i].generation && strcmp(job->name, r->ranges[i].job) == 0)
				r->ranges[i].id = st->ids[j];
		}
	status_free(st);
}

/* Allocates a trace for each lane. NULL: no memory. */
static struct trace *server_trace_allocate(const struct server *s, const struct trace_request *r)
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

int server_on_trace(void *ctx, const struct trace_request *request, struct trace **ret, struct rs_err *e)
{
	struct server *s = ctx;
	struct trace_request r = *request;
	struct trace *all = server_trace_allocate(s, &r), *recording = NULL;
	uint32_t absent = 0; /* jobs that are not here: nothing to wait for */

	if (!all)
		return rs_oom(e, 0, "a trace in this reducer");
	server_trace_find_jobs(s, &r);
	for (unsigned i = 0; i < r.ranges_n; i++)
		absent |= r.ranges[i].id ? 0 : 1u << i;
	for (unsigned i = 0; i < s->lanes_n; i++) {
		struct trace *t = all;

		all = t->next;
		t->next = NULL;
		t->done = absent;
		memcpy(t->ranges, r.ranges, sizeof t->ranges);
		if (!lane_thread_trace(s->lanes[i], t, host_wake, &s->host)) {
			trace_free(t);
			continue;
		}
		t->next = recording;
		recording = t;
	}
	*ret = recording;
	return recording ? RS_OK : rs_oom(e, 0, "a trace in this reducer");
}

void server_on_trace_end(void *ctx)
{
	struct server *s = ctx;

	for (unsigned i = 0; i < s->lanes_n; i++)
		lane_thread_trace_end(s->lanes[i]);
}
