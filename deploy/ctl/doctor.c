/* SPDX-License-Identifier: Apache-2.0 */
/* reductionctl doctor: why is a job slow? Several looks at all reducers or agents, judged
 * by the rules of doctor_rules.c and doctor_watch.c.
 */
#include "deploy/ctl/doctor.h"

#include "deploy/ctl/ctl.h"
#include "deploy/ctl/show.h"
#include "proto/reduction.pb-c.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
	WINDOWS = 5,
	SECONDS = 10,    /* of all windows */
	SECONDS_MIN = 5, /* processes count shares of a second */
	LOOK_MS = 5000,  /* for the answer to a look */
};

enum doctor_option { DOCTOR_JOB = REDUCERS_OPTIONS, DOCTOR_SECONDS, DOCTOR_OPTIONS };

static const struct option doctor_options[DOCTOR_OPTIONS] = {
    REDUCERS_OPTION_ROWS,
    [DOCTOR_JOB] = {"job", "NAME", "only that job"},
    [DOCTOR_SECONDS] = {"seconds", "SECONDS", "watch for so long, 5 to 3600 [10]"},
};

/* One process that is asked. Invariant: `why` is set if the last look had no answer. */
struct target {
	struct rpc_query *query;                    /* only during a look */
	Reduction__V1__StatusReply *before, *after; /* NULL: no answer */
	struct rs_err why;
};

/* The processes that are asked, and what was found. */
struct visit {
	struct reducers reducers;
	struct target *targets;
	Reduction__V1__StatusRequest request;
	struct findings found;
	struct doctor_watch watch;
	double seconds;
	unsigned jobs;
	struct past_end last; /* the job that has ended last */
	int64_t last_ago_ms;
};

static const char *target_name(const struct visit *v, unsigned i)
{
	return v->reducers.reducers[i].name[0] ? v->reducers.reducers[i].name : v->reducers.reducers[i].address;
}

/* A chunk is complete at its home when the sums of relays are there, so a slow relay
 * looks as a slow home. */
static void name_relays(struct visit *v)
{
	for (unsigned k = 0; k < v->found.n; k++) {
		struct finding *f = &v->found.at[k];

		for (unsigned i = 0; strcmp(f->id, "reducer-slow") == 0 && i < v->reducers.reducers_n; i++)
			if (v->reducers.reducers[i].relays[0] && strcmp(target_name(v, i), f->process) == 0)
				snprintf(f->what, sizeof f->what,
					 "reducer %.60s, or a relay of its shards (%s), is slower than the others",
					 v->reducers.reducers[i].name, v->reducers.reducers[i].relays);
	}
}

static void forget(Reduction__V1__StatusReply **m)
{
	if (*m)
		reduction__v1__status_reply__free_unpacked(*m, NULL);
	*m = NULL;
}

static void ask(struct visit *v, struct target *t, unsigned i)
{
	forget(&t->before);
	t->before = t->after;
	t->after = NULL;
	if (reducers_send(&v->reducers, i, "/reduction.v1.Control/Status", &v->request.base, LOOK_MS, &t->query,
			  &t->why))
		t->query = NULL;
}

static void take(struct visit *v, struct target *t, unsigned i)
{
	ProtobufCMessage *answer = NULL;
	int got;

	if (!t->query)
		return;
	got = reducers_next(&v->reducers, i, t->query, &reduction__v1__status_reply__descriptor, &answer, &t->why);
	if (got == 1)
		t->after = (Reduction__V1__StatusReply *)answer;
	else if (got == 0)
		rs_fail(&t->why, RS_EPROTO, "%s: the answer is empty", v->reducers.reducers[i].address);
	v->reducers.rpc->query_free(t->query);
	t->query = NULL;
}

/* Asks all processes at the same time. One that has not answered before is asked again
 * only if `again`: it may take long. */
static void look(struct visit *v, bool again)
{
	v->jobs = 0;
	for (unsigned i = 0; i < v->reducers.reducers_n; i++)
		if (again || v->targets[i].after)
			ask(v, &v->targets[i], i);
	for (unsigned i = 0; i < v->reducers.reducers_n; i++) {
		const Reduction__V1__StatusReply *m;

		take(v, &v->targets[i], i);
		m = v->targets[i].after;
		if (m)
			v->jobs += (unsigned)(m->agent ? m->agent->n_jobs : m->n_jobs);
	}
}

/* Reads the records of ended jobs, or all events. Without an answer nothing is known of
 * them; an older release sends all events twice. */
static void read_past(struct visit *v, unsigned i, bool records, struct doctor_past *past)
{
	Reduction__V1__EventsRequest request = REDUCTION__V1__EVENTS_REQUEST__INIT;
	struct rpc_query *query;
	ProtobufCMessage *m;
	struct rs_err e;

	request.past_only = true;
	request.ended_jobs = records;
	if (reducers_send(&v->reducers, i, "/reduction.v1.Control/Events", &request.base, LOOK_MS, &query, &e))
		return;
	while (reducers_next(&v->reducers, i, query, &reduction__v1__event__descriptor, &m, &e) == 1) {
		const Reduction__V1__Event *ev = (const Reduction__V1__Event *)m;

		if (!records || strcmp(ev->name, "job-closed") == 0)
			doctor_past_event(past, ev);
		protobuf_c_message_free_unpacked(m, NULL);
	}
	v->reducers.rpc->query_free(query);
}

static void judge_past(struct visit *v, unsigned i)
{
	struct doctor_past past = {.now_ms = v->targets[i].after->unix_ms};

	read_past(v, i, true, &past);
	read_past(v, i, false, &past);
	doctor_past_end(&past, &v->found, target_name(v, i), v->request.job[0] ? v->request.job : NULL);
	if (past.last.unix_ms > v->last.unix_ms && (!v->request.job[0] || strcmp(v->request.job, past.last.job) == 0)) {
		v->last = past.last;
		v->last_ago_ms = past.now_ms > past.last.unix_ms ? past.now_ms - past.last.unix_ms : 0;
	}
}

/* Adds what the window between the last two looks shows, or the only look. */
static void judge(struct visit *v, bool last)
{
	unsigned silent = 0;

	for (unsigned i = 0; i < v->reducers.reducers_n; i++)
		silent += !v->targets[i].after;
	v->found.n = v->found.paces_n = 0;
	for (unsigned i = 0; i < v->reducers.reducers_n; i++) {
		const struct target *t = &v->targets[i];

		if (t->after)
			doctor_look(&v->found, t->before, t->after, target_name(v, i));
		if (t->after)
			doctor_look_far(&v->found, t->after, target_name(v, i));
		if (t->after && last)
			judge_past(v, i);
		else if (last && silent > v->reducers.may_lack) /* else its slot may be empty */
			doctor_no_answer(&v->found, target_name(v, i), t->why.msg);
	}
	doctor_compare(&v->found);
	doctor_settle_relays(&v->found);
	name_relays(v);
	doctor_watch_add(&v->watch, &v->found);
}

static void wait_window(double seconds)
{
	struct timespec ts = {.tv_sec = (time_t)seconds};

	ts.tv_nsec = (long)((seconds - (double)ts.tv_sec) * 1e9);
	nanosleep(&ts, NULL);
}

/* Without a job there is nothing to watch. */
static void watch(struct visit *v)
{
	look(v, true);
	if (v->jobs && isatty(STDERR_FILENO))
		fprintf(stderr, "reductionctl: watching for %.3g s\n", v->seconds);
	for (unsigned w = 1; v->jobs && w <= WINDOWS; w++) {
		wait_window(v->seconds / WINDOWS);
		look(v, w == WINDOWS);
		judge(v, w == WINDOWS || !v->jobs);
	}
	if (!v->watch.windows)
		judge(v, true);
	doctor_watch_end(&v->watch, &v->found);
}

static void print_text(const struct visit *v)
{
	char ago[CELL], job[CELL], how[CELL];

	if (!v->found.n && v->jobs)
		puts("Nothing is wrong: no rank is late, no reducer is lost, no limit is reached. If the job is slow, "
		     "its ranks compute most of the time.");
	else if (!v->found.n && v->last.unix_ms)
		printf("There is no job. The last one, %s, ended %s ago: %s.\n", show_text(v->last.job, job),
		       show_duration((uint64_t)v->last_ago_ms, ago), show_text(v->last.reason, how));
	else if (!v->found.n)
		puts("There is no job.");
	for (unsigned i = 0; i < v->found.n; i++) {
		const struct finding *f = &v->found.at[i];

		printf("%s%u. %s%s%s%s\n   seen: %s", i ? "\n" : "", i + 1, f->job[0] ? "job " : "", f->job,
		       f->job[0] ? ": " : "", f->what, f->evidence);
		if (!f->is_fact)
			printf(" (in %u of %u looks, %.3g s each)", f->held, v->watch.windows, v->seconds / WINDOWS);
		printf("\n   do:   %s\n", f->action);
	}
}

static void print_text_field(const char *name, const char *text)
{
	printf(",\"%s\":", name);
	json_string(text, stdout);
}

static void print_json(const struct visit *v)
{
	printf("{\"jobs\":%u,\"windows\":%u,\"seconds\":%.3g,\"findings\":[", v->jobs, v->watch.windows, v->seconds);
	for (unsigned i = 0; i < v->found.n; i++) {
		const struct finding *f = &v->found.at[i];

		printf("%s{\"id\":\"%s\",\"score\":%u", i ? "," : "", f->id, f->score);
		print_text_field("job", f->job);
		print_text_field("what", f->what);
		print_text_field("evidence", f->evidence);
		print_text_field("action", f->action);
		print_text_field("process", f->process);
		if (f->rank)
			printf(",\"rank\":%u", f->rank - 1);
		printf(",\"held\":%u}", f->held);
	}
	fputs("]}\n", stdout);
}

static void visit_free(struct visit *v)
{
	for (unsigned i = 0; v->targets && i < v->reducers.reducers_n; i++) {
		forget(&v->targets[i].before);
		forget(&v->targets[i].after);
	}
	free(v->targets);
	reducers_close(&v->reducers);
	free(v);
}

static int run_doctor(const struct call *call, struct rs_err *e)
{
	struct visit *v = calloc(1, sizeof *v);
	int rc = v ? RS_OK : rs_oom(e, sizeof *v, "a visit");

	if (rc)
		return rc;
	v->seconds = SECONDS;
	rc = take_seconds(call->value[DOCTOR_SECONDS], "seconds", SECONDS_MIN, 3600, &v->seconds, e);
	if (!rc)
		rc = reducers_open(&v->reducers, call, false, e);
	if (rc) {
		free(v);
		return rc;
	}
	reduction__v1__status_request__init(&v->request);
	if (call->value[DOCTOR_JOB])
		v->request.job = (char *)call->value[DOCTOR_JOB];
	v->targets = calloc(v->reducers.reducers_n, sizeof *v->targets);
	if (v->targets) {
		watch(v);
		if (call->value[REDUCERS_JSON])
			print_json(v);
		else
			print_text(v);
		rc = v->found.n ? COMMAND_FOUND : RS_OK;
	} else {
		rc = rs_oom(e, v->reducers.reducers_n * sizeof *v->targets, "the processes");
	}
	visit_free(v);
	return rc;
}

const struct command doctor_command = {
    "doctor",   ADDRESS_OR_ENVIRONMENT, "say why jobs are slow, the worst first, and what to do",
    run_doctor, doctor_options,         DOCTOR_OPTIONS};
