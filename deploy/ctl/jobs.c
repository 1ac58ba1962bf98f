/* SPDX-License-Identifier: Apache-2.0 */
/* reductionctl jobs: the records of ended jobs, which each reducer keeps. What several
 * reducers say of one job is one row: the most bytes of all, and the reason of the one
 * that knows of a failure. */
#include "common/utf8.h"
#include "deploy/ctl/ctl.h"
#include "deploy/ctl/show.h"
#include "proto/reduction.pb-c.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum jobs_option { JOBS_JOB = REDUCERS_OPTIONS, JOBS_OPTIONS };

static const struct option jobs_options[JOBS_OPTIONS] = {
    REDUCERS_OPTION_ROWS,
    [JOBS_JOB] = {"job", "NAME", "only that job"},
};

enum { SAME_MS = 60000 }; /* reducers close one job within this time */

/* One ended job. Strings are those of the event. */
struct past {
	Reduction__V1__Event *event; /* owned */
	unsigned reducer;            /* it is of this one */
	const char *job, *run, *ended, *reason, *nonfinite;
	uint64_t generation, ranks, running_ms, operations;
	uint64_t bytes; /* received and sent by all reducers */
};

/* Invariant: the events of one reducer are in the order in which it wrote them. */
struct pasts {
	struct past *at;
	size_t n, size;
};

static const char *field(const Reduction__V1__Event *ev, const char *key)
{
	for (size_t i = 0; i < ev->n_fields; i++)
		if (!strcmp(ev->fields[i]->key, key))
			return ev->fields[i]->value;
	return "";
}

static uint64_t number(const Reduction__V1__Event *ev, const char *key)
{
	return strtoull(field(ev, key), NULL, 10);
}

static struct past past_of(Reduction__V1__Event *ev, unsigned reducer)
{
	return (struct past){
	    .event = ev,
	    .reducer = reducer,
	    .job = field(ev, "job"),
	    .run = field(ev, "run"),
	    .ended = field(ev, "ended"),
	    .reason = field(ev, "reason"),
	    .nonfinite = field(ev, "nonfinite"),
	    .generation = number(ev, "generation"),
	    .ranks = number(ev, "world_size"),
	    .running_ms = number(ev, "running_ms"),
	    .operations = number(ev, "operations"),
	    .bytes = number(ev, "received_bytes") + number(ev, "sent_bytes"),
	};
}

static bool is_failure(const struct past *p)
{
	return strcmp(p->ended, "finished") != 0 && strcmp(p->ended, "left") != 0;
}

static bool is_same(const struct past *a, const struct past *b)
{
	return a->reducer != b->reducer && a->generation == b->generation && !strcmp(a->job, b->job) &&
	       !strcmp(a->run, b->run) && llabs(a->event->unix_ms - b->event->unix_ms) < SAME_MS;
}

/* Adds a job, or what another reducer knows of it. Takes the event over. */
static bool pasts_add(struct pasts *all, struct past p)
{
	for (size_t i = all->n; i-- > 0;) {
		struct past *had = &all->at[i];
		struct past other = p;

		if (!is_same(had, &p))
			continue;
		/* the first to know of the failure knows the cause */
		if (is_failure(&p) && (!is_failure(had) || p.event->unix_ms < had->event->unix_ms)) {
			other = *had;
			*had = p;
		}
		had->bytes += other.bytes;
		had->operations = other.operations > had->operations ? other.operations : had->operations;
		had->running_ms = other.running_ms > had->running_ms ? other.running_ms : had->running_ms;
		reduction__v1__event__free_unpacked(other.event, NULL);
		return true;
	}
	if (all->n == all->size) {
		size_t size = 2 * all->size + 64;
		struct past *more = realloc(all->at, size * sizeof *more);

		if (!more) {
			reduction__v1__event__free_unpacked(p.event, NULL);
			return false;
		}
		all->at = more;
		all->size = size;
	}
	all->at[all->n++] = p;
	return true;
}

static void pasts_free(struct pasts *all)
{
	for (size_t i = 0; i < all->n; i++)
		reduction__v1__event__free_unpacked(all->at[i].event, NULL);
	free(all->at);
}

/* Reads the records of one reducer. A release without them sends all of its events. */
static int read_jobs(struct reducers *a, unsigned reducer, const Reduction__V1__EventsRequest *request, bool json,
		     struct pasts *all, struct rs_err *e)
{
	struct rpc_query *query;
	ProtobufCMessage *m;
	int rc = reducers_send(a, reducer, "/reduction.v1.Control/Events", &request->base, 10000, &query, e);

	if (rc)
		return rc;
	while ((rc = reducers_next(a, reducer, query, &reduction__v1__event__descriptor, &m, e)) == 1) {
		Reduction__V1__Event *ev = (Reduction__V1__Event *)m;
		bool record = !strcmp(ev->name, "job-closed") && field(ev, "ended")[0];

		if (json && record)
			json_answer(a, reducer, m, stdout);
		if (json || !record)
			protobuf_c_message_free_unpacked(m, NULL);
		else if (!pasts_add(all, past_of(ev, reducer)))
			rc = rs_oom(e, 0, "the list of jobs");
		if (rc != 1)
			break;
	}
	a->rpc->query_free(query);
	return rc;
}

static int by_time(const void *a, const void *b)
{
	int64_t x = ((const struct past *)a)->event->unix_ms, y = ((const struct past *)b)->event->unix_ms;

	return (x > y) - (x < y);
}

static void job_row(const struct past *p, row cells)
{
	time_t seconds = (time_t)(p->event->unix_ms / 1000);
	struct tm tm;

	if (localtime_r(&seconds, &tm))
		strftime(cells[0], CELL, "%Y-%m-%d %H:%M:%S", &tm);
	show_text(p->job, cells[1]);
	snprintf(cells[2], CELL, "%llu", (unsigned long long)p->generation);
	snprintf(cells[3], CELL, "%llu", (unsigned long long)p->ranks);
	show_duration(p->running_ms, cells[4]);
	snprintf(cells[5], CELL, "%llu", (unsigned long long)p->operations);
	show_memory(p->bytes, cells[6]);
	show_text(p->ended, cells[7]);
}

static void print_sentence(const struct past *p, const char *before, const char *from)
{
	char text[600];

	if (!from[0])
		return;
	snprintf(text, sizeof text, "%s", from);
	rs_utf8_clean(text);
	printf("  %s, generation %llu: %s%s\n", p->job, (unsigned long long)p->generation, before, text);
}

static int print_jobs(struct pasts *all, struct rs_err *e)
{
	static const row head = {"ended", "job", "generation", "ranks", "ran", "operations", "bytes", "how"};
	row *rows = calloc(all->n + 1, sizeof *rows);

	if (!rows)
		return rs_oom(e, all->n * sizeof *rows, "the list of jobs");
	if (all->n)
		qsort(all->at, all->n, sizeof *all->at, by_time);
	memcpy(rows[0], head, sizeof head);
	for (size_t i = 0; i < all->n; i++)
		job_row(&all->at[i], rows[i + 1]);
	show_rows(rows, all->n + 1, 8, 1u << 0 | 1u << 1);
	free(rows);
	for (size_t i = 0; i < all->n; i++) {
		print_sentence(&all->at[i], "", all->at[i].reason);
		print_sentence(&all->at[i], "first NaN or infinity: ", all->at[i].nonfinite);
	}
	return RS_OK;
}

static int run_jobs(const struct call *call, struct rs_err *e)
{
	Reduction__V1__EventsRequest request = REDUCTION__V1__EVENTS_REQUEST__INIT;
	bool json = call->value[REDUCERS_JSON];
	struct pasts all = {0};
	struct reducers a;
	unsigned failed = 0;
	struct rs_err why;
	int rc = reducers_open(&a, call, false, e);

	if (rc)
		return rc;
	request.past_only = request.ended_jobs = true;
	if (call->value[JOBS_JOB])
		request.job = (char *)call->value[JOBS_JOB];
	for (unsigned i = 0; i < a.reducers_n; i++) {
		if (!read_jobs(&a, i, &request, json, &all, &why))
			continue;
		failed++;
		*e = why;
		rc = why.code;
		if (a.reducers_n > 1)
			fprintf(stderr, "reductionctl: %s\n", why.msg);
	}
	if (failed && a.reducers_n > 1)
		rs_fail(e, rc, "%u of %u reducers did not answer", failed, a.reducers_n);
	if (!json && failed < a.reducers_n && print_jobs(&all, &why)) {
		*e = why;
		rc = e->code;
	}
	pasts_free(&all);
	reducers_close(&a);
	return rc;
}

const struct command jobs_command = {"jobs",   ADDRESS_OR_ENVIRONMENT, "print the last jobs that have ended, and why",
				     run_jobs, jobs_options,           JOBS_OPTIONS};
