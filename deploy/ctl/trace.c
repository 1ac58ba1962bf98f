/* SPDX-License-Identifier: Apache-2.0 */
/* reductionctl trace: a few operations as a timeline. The happy path: the status of each
 * process says which jobs there are -> questions for the clocks -> all processes record
 * the same operations -> questions again -> one timeline. Failure modes: an operation had
 * begun at one of the processes before it recorded: later operations are asked for. The
 * operations do not come: the timeline has what came within the time limit. */
#include "deploy/ctl/ctl.h"
#include "deploy/ctl/show.h"
#include "deploy/ctl/timeline.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TRACE_PATH "/reduction.v1.Control/Trace"

enum trace_option {
	TRACE_OPS = REDUCERS_QUERY_OPTIONS,
	TRACE_JOB,
	TRACE_LIMIT,
	TRACE_RECORDS_OPTION,
	TRACE_OUTPUT,
	TRACE_OPTIONS
};

static const struct option trace_options[TRACE_OPTIONS] = {
    REDUCERS_QUERY_ROWS,
    [TRACE_OPS] = {"ops", "N", "operations to record of each job, 1 to 10000 [1]"},
    [TRACE_JOB] = {"job", "NAME", "only that job [all, at most 16]"},
    [TRACE_LIMIT] = {"limit", "SECONDS", "longest time to wait for them, 1 to 60 [10]"},
    [TRACE_RECORDS_OPTION] = {"records", "N", "most events of a reducer's lane or an agent's job, 1 to 65536 [65536]"},
    [TRACE_OUTPUT] = {"output", "FILE", "write to FILE [standard output]"},
};

enum {
	QUESTIONS = 8, /* to each process, before and after; the fastest one counts */
	TRIES = 6,
	SPARE_MS = 10000, /* time for an answer after the time limit */
};

/* A job of the processes, and the operation from which it is recorded. */
struct traced_job {
	char name[CONTROL_JOB];
	uint32_t generation;
	uint64_t from;
};

/* One run of the command. */
struct tracing {
	struct reducers reducers; /* first, so that a pointer to it is one to this struct */
	const char *only;         /* the job; NULL: all */
	uint32_t operations, records, limit_ms;
	struct traced_job jobs[TRACE_RANGES];
	unsigned jobs_n;
	bool too_many; /* jobs */
	struct timeline timeline;
};

/* Notes a job: it is recorded from the highest operation on that any process names. */
static void note_job(struct tracing *tr, const char *name, uint32_t generation, uint64_t from)
{
	unsigned i = 0;

	if (tr->only && strcmp(tr->only, name) != 0)
		return;
	while (i < tr->jobs_n && (strcmp(tr->jobs[i].name, name) != 0 || tr->jobs[i].generation != generation))
		i++;
	if (i == TRACE_RANGES || strlen(name) >= sizeof tr->jobs[0].name) {
		tr->too_many = true;
		return;
	}
	if (i == tr->jobs_n) {
		tr->jobs[i].from = 0;
		tr->jobs[i].generation = generation;
		snprintf(tr->jobs[i].name, sizeof tr->jobs[i].name, "%s", name);
		tr->jobs_n++;
	}
	if (from > tr->jobs[i].from)
		tr->jobs[i].from = from;
}

static void take_status(struct reducers *a, unsigned reducer, const ProtobufCMessage *answer)
{
	struct tracing *tr = (struct tracing *)a;
	const Reduction__V1__StatusReply *m = (const Reduction__V1__StatusReply *)answer;
	struct timeline_process *p = &tr->timeline.processes[reducer];
	char name[RS_NAME_MAX + RS_ADDRESS_MAX + 4];

	snprintf(p->name, sizeof p->name, "%s %s", m->agent ? "agent" : "reducer",
		 reducers_name(a, reducer, name, sizeof name));
	for (size_t i = 0; i < m->n_jobs; i++)
		if (m->jobs[i]->state == REDUCTION__V1__JOB_STATUS__STATE__RUNNING)
			note_job(tr, m->jobs[i]->name, m->jobs[i]->generation, m->jobs[i]->operations);
	for (size_t i = 0; m->agent && i < m->agent->n_jobs; i++) {
		const Reduction__V1__AgentJob *job = m->agent->jobs[i];

		if (job->state == REDUCTION__V1__AGENT_JOB__STATE__RUNNING)
			note_job(tr, job->name, job->generation, job->operations);
	}
}

static int find_jobs(struct tracing *tr, struct rs_err *e)
{
	Reduction__V1__StatusRequest request = REDUCTION__V1__STATUS_REQUEST__INIT;
	int rc;

	request.without_ranks = true;
	rc = reducers_all(&tr->reducers, "/reduction.v1.Control/Status", &request.base,
			  &reduction__v1__status_reply__descriptor, take_status, e);
	if (rc)
		return rc;
	if (tr->too_many)
		return rs_fail(e, RS_EREFUSED, "found more than %d jobs, expected --job NAME", TRACE_RANGES);
	if (tr->jobs_n == 0 && tr->only)
		return rs_fail(e, RS_EREFUSED, "no job \"%s\" runs there", tr->only);
	return tr->jobs_n ? RS_OK : rs_fail(e, RS_EREFUSED, "no job runs there");
}

static int64_t own_clock_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

/* Asks a process for its clock once. *width: how long that took. */
static int ask_clock(struct tracing *tr, unsigned process, int64_t *least, int64_t *width, struct rs_err *e)
{
	Reduction__V1__TraceRequest request = REDUCTION__V1__TRACE_REQUEST__INIT;
	int64_t before = own_clock_us(), after;
	struct rpc_query *query;
	ProtobufCMessage *m = NULL;
	int rc = reducers_send(&tr->reducers, process, TRACE_PATH, &request.base, SPARE_MS, &query, e);

	if (rc)
		return rc;
	rc = reducers_next(&tr->reducers, process, query, &reduction__v1__trace_reply__descriptor, &m, e);
	after = own_clock_us();
	tr->reducers.rpc->query_free(query);
	if (rc == 1) {
		/* times are rounded down */
		*least = (int64_t)(((Reduction__V1__TraceReply *)m)->clock_us % (INT64_MAX / 4)) - after - 1;
		*width = after - before + 2;
		protobuf_c_message_free_unpacked(m, NULL);
		return RS_OK;
	}
	return rc ? rc : rs_fail(e, RS_EPROTO, "%s: the answer is empty", tr->reducers.reducers[process].address);
}

/* Asks all processes for their clocks. The bounds of a process include those of `before`,
 * if these are known: a clock may run a little faster or slower than this one. */
static int ask_clocks(struct tracing *tr, bool before, struct rs_err *e)
{
	for (unsigned i = 0; i < tr->timeline.processes_n; i++) {
		struct timeline_process *p = &tr->timeline.processes[i];
		int64_t best = 0, narrow = INT64_MAX, least = 0, width = 0;

		for (unsigned q = 0; q < QUESTIONS; q++) {
			if (ask_clock(tr, i, &least, &width, e))
				return e->code;
			if (width < narrow) {
				narrow = width;
				best = least;
			}
		}
		if (before || best < p->least_us)
			p->least_us = best;
		if (before || best + narrow > p->most_us)
			p->most_us = best + narrow;
	}
	return RS_OK;
}

/* Takes the answers of a process. Sets *missed if operations had begun before. */
static int take_answers(struct tracing *tr, unsigned process, struct rpc_query *query, bool *missed, struct rs_err *e)
{
	ProtobufCMessage *m = NULL;
	int rc;

	while ((rc = reducers_next(&tr->reducers, process, query, &reduction__v1__trace_reply__descriptor, &m, e)) ==
	       1) {
		const Reduction__V1__TraceReply *part = (const Reduction__V1__TraceReply *)m;

		*missed |= part->missed;
		for (size_t i = 0; i < part->n_sources; i++)
			note_job(tr, part->sources[i]->job, part->sources[i]->generation, part->sources[i]->next);
		rc = timeline_add(&tr->timeline, process, part, e);
		protobuf_c_message_free_unpacked(m, NULL);
		if (rc)
			return rs_wrap(e, "%s", tr->reducers.reducers[process].address);
	}
	return rc;
}

/* Lets all processes record. `later`: how many operations later than known. */
static int record(struct tracing *tr, uint64_t later, bool *missed, struct rs_err *e)
{
	Reduction__V1__TraceRequest request = REDUCTION__V1__TRACE_REQUEST__INIT;
	Reduction__V1__TraceRange ranges[TRACE_RANGES], *pointers[TRACE_RANGES];
	struct rpc_query **asks = calloc(tr->reducers.reducers_n, sizeof(*asks));
	int rc = asks ? RS_OK : rs_oom(e, tr->reducers.reducers_n * sizeof(*asks), "queries");

	for (unsigned i = 0; i < tr->jobs_n; i++) {
		reduction__v1__trace_range__init(&ranges[i]);
		ranges[i].job = tr->jobs[i].name;
		ranges[i].generation = tr->jobs[i].generation;
		ranges[i].from = tr->jobs[i].from += later;
		pointers[i] = &ranges[i];
	}
	request.n_ranges = tr->jobs_n;
	request.ranges = pointers;
	request.operations = tr->operations;
	request.records = tr->records;
	request.limit_ms = tr->limit_ms;
	for (unsigned i = 0; !rc && i < tr->reducers.reducers_n; i++)
		rc = reducers_send(&tr->reducers, i, TRACE_PATH, &request.base, tr->limit_ms + SPARE_MS, &asks[i], e);
	for (unsigned i = 0; !rc && i < tr->reducers.reducers_n; i++)
		rc = take_answers(tr, i, asks[i], missed, e);
	for (unsigned i = 0; asks && i < tr->reducers.reducers_n; i++)
		if (asks[i])
			tr->reducers.rpc->query_free(asks[i]);
	free(asks);
	return rc;
}

/* Records, again from a later operation on if the first one had begun before all
 * processes recorded. */
static int record_all(struct tracing *tr, struct rs_err *e)
{
	static const unsigned later[TRIES] = {0, 0, 4, 32, 256, 4096};

	for (unsigned i = 0; i < TRIES; i++) {
		bool missed = false;
		int rc;

		tr->timeline.records_n = tr->timeline.sources_n = 0;
		tr->timeline.dropped = 0;
		tr->timeline.complete = true;
		rc = record(tr, later[i], &missed, e);
		if (rc || !missed)
			return rc;
	}
	return rs_fail(e, RS_EREFUSED, "operations pass faster than a trace can begin, %d times; try again", TRIES);
}

/* Writes the timeline to a file or to standard output. */
static int write_out(const struct timeline *t, const char *file, struct rs_err *e)
{
	FILE *out = file ? fopen(file, "w") : stdout;
	int rc;

	if (!out)
		return rs_fail_sys(e, RS_EIO, errno, "cannot create %s", file);
	rc = timeline_write(t, out, e);
	if (!file)
		return rc;
	errno = 0;
	if ((ferror(out) | fclose(out)) && !rc)
		rc = rs_fail_sys(e, RS_EIO, errno, "cannot write %s", file);
	return rc;
}

/* Says on standard error what the timeline contains, and what it does not. */
static void print_summary(const struct tracing *tr)
{
	const struct timeline *t = &tr->timeline;
	char name[CELL];

	for (unsigned i = 0; i < tr->jobs_n; i++)
		fprintf(stderr, "job %s: operations %" PRIu64 " to %" PRIu64 "\n", show_text(tr->jobs[i].name, name),
			tr->jobs[i].from, tr->jobs[i].from + tr->operations - 1);
	fprintf(stderr, "%zu events of %u processes, whose clocks are aligned to %.3f ms\n", t->records_n,
		t->processes_n, (double)timeline_error_us(t) / 1000);
	if (t->dropped)
		fprintf(stderr, "%" PRIu64 " events had no room: record fewer operations\n", t->dropped);
	if (!t->complete)
		fprintf(stderr, "not all operations ended within %.0f s\n", tr->limit_ms / 1000.0);
	if (!t->consistent)
		fputs("the clocks ran at different speeds: the order of events of different processes is uncertain\n",
		      stderr);
}

static int run_opened(struct tracing *tr, const char *file, struct rs_err *e)
{
	int rc = timeline_init(&tr->timeline, tr->reducers.reducers_n, e);

	if (rc)
		return rc;
	rc = find_jobs(tr, e);
	if (!rc)
		rc = ask_clocks(tr, true, e);
	if (!rc)
		rc = record_all(tr, e);
	if (!rc)
		rc = ask_clocks(tr, false, e);
	if (!rc && tr->timeline.records_n == 0)
		rc = rs_fail(e, RS_ETIMEOUT, "no operation began within %.0f s", tr->limit_ms / 1000.0);
	if (!rc)
		rc = timeline_join(&tr->timeline, e);
	if (!rc)
		rc = timeline_align(&tr->timeline, e);
	if (!rc)
		rc = write_out(&tr->timeline, file, e);
	if (!rc)
		print_summary(tr);
	timeline_close(&tr->timeline);
	return rc;
}

static int run_trace(const struct call *call, struct rs_err *e)
{
	struct tracing *tr = calloc(1, sizeof *tr);
	uint32_t limit_s = 10;
	int rc;

	if (!tr)
		return rs_oom(e, 0, "a trace");
	tr->only = call->value[TRACE_JOB];
	tr->operations = 1;
	tr->records = TRACE_RECORDS;
	rc = take_number(call->value[TRACE_OPS], "ops", 1, TRACE_OPERATIONS, &tr->operations, e);
	if (!rc)
		rc = take_number(call->value[TRACE_LIMIT], "limit", 1, TRACE_LIMIT_MS / 1000, &limit_s, e);
	if (!rc)
		rc = take_number(call->value[TRACE_RECORDS_OPTION], "records", 1, TRACE_RECORDS, &tr->records, e);
	tr->limit_ms = limit_s * 1000;
	if (!rc)
		rc = reducers_open(&tr->reducers, call, false, e);
	if (!rc) {
		rc = run_opened(tr, call->value[TRACE_OUTPUT], e);
		reducers_close(&tr->reducers);
	}
	free(tr);
	return rc;
}

const struct command trace_command = {
    "trace",
    FILES_OR_ADDRESSES_REQUIRED,
    "write a few operations, chunk by chunk, as a timeline for Perfetto (Chrome's format)",
    run_trace,
    trace_options,
    TRACE_OPTIONS};
