/* SPDX-License-Identifier: Apache-2.0 */
/* reductionctl events: a thread for each reducer reads its events, since one may be
 * silent while another has many. */
#include "common/utf8.h"
#include "deploy/ctl/ctl.h"
#include "proto/reduction.pb-c.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum events_option { EVENTS_FROM = REDUCERS_OPTIONS, EVENTS_PAST, EVENTS_JOB, EVENTS_OPTIONS };

static const struct option events_options[EVENTS_OPTIONS] = {
    REDUCERS_OPTION_ROWS,
    [EVENTS_FROM] = {"from", "NUMBER",
		     "start with event N, or the oldest that the reducer still has [new events only]"},
    [EVENTS_PAST] = {"past", NULL, "print past events (at most the last 1024) and exit"},
    [EVENTS_JOB] = {"job", "NAME", "only events of that job"},
};

/* The thread that prints the events of one reducer. */
struct reader {
	struct reducers *reducers;
	unsigned reducer;
	bool json;
	Reduction__V1__EventsRequest request;
	pthread_t thread;
	struct rs_err why; /* code 0: the stream ended normally */
};

/* Writes plain words as they are, others in quotes. */
static void print_value(const char *value, FILE *out)
{
	if (value[0] && strcspn(value, " \"=") == strlen(value))
		fputs(value, out);
	else
		json_string(value, out);
}

static void print_event(struct reader *r, Reduction__V1__Event *ev, FILE *out)
{
	time_t seconds = (time_t)(ev->unix_ms / 1000);
	char text[40] = "?";
	struct tm tm;

	if (gmtime_r(&seconds, &tm))
		strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
	rs_utf8_clean(ev->level);
	rs_utf8_clean(ev->name);
	flockfile(out);
	fprintf(out, "%s.%03dZ %6" PRIu64 " ", text, (int)(ev->unix_ms % 1000), ev->sequence);
	if (r->reducers->reducers[r->reducer].name[0])
		fprintf(out, "%s ", r->reducers->reducers[r->reducer].name);
	fprintf(out, "%-5s %s", ev->level, ev->name);
	for (size_t i = 0; i < ev->n_fields; i++) {
		rs_utf8_clean(ev->fields[i]->key);
		rs_utf8_clean(ev->fields[i]->value);
		fprintf(out, " %s=", ev->fields[i]->key);
		print_value(ev->fields[i]->value, out);
	}
	fputc('\n', out);
	fflush(out);
	funlockfile(out);
}

/* Reports at once why a stream ended while others go on. */
static void *failed(const struct reader *r)
{
	if (r->reducers->reducers_n > 1)
		fprintf(stderr, "reductionctl: %s\n", r->why.msg);
	return NULL;
}

static void *read_events(void *arg)
{
	struct reader *r = arg;
	struct rpc_query *query;
	ProtobufCMessage *m;
	int rc;

	if (reducers_send(r->reducers, r->reducer, "/reduction.v1.Control/Events", &r->request.base, 0, &query,
			  &r->why))
		return failed(r);
	while ((rc = reducers_next(r->reducers, r->reducer, query, &reduction__v1__event__descriptor, &m, &r->why)) ==
	       1) {
		if (r->json)
			json_answer(r->reducers, r->reducer, m, stdout);
		else
			print_event(r, (Reduction__V1__Event *)m, stdout);
		protobuf_c_message_free_unpacked(m, NULL);
	}
	r->reducers->rpc->query_free(query);
	if (rc)
		return failed(r);
	r->why.code = RS_OK;
	return NULL;
}

static int take_request(const struct call *call, Reduction__V1__EventsRequest *request, struct rs_err *e)
{
	const char *from = call->value[EVENTS_FROM];
	char *end;

	reduction__v1__events_request__init(request);
	request->past_only = call->value[EVENTS_PAST] != NULL;
	if (call->value[EVENTS_JOB])
		request->job = (char *)call->value[EVENTS_JOB];
	if (!from)
		return RS_OK;
	errno = 0;
	request->from = strtoull(from, &end, 10);
	if (errno || end == from || *end || from[0] == '-' || request->from == 0)
		return rs_fail(e, RS_EINVAL, "--from: found \"%s\", expected the number of an event, at least 1", from);
	return RS_OK;
}

/* The failure of one stream does not end the others. */
static int read_all(struct reader *readers, unsigned n, struct rs_err *e)
{
	unsigned started = 0, failed = 0;
	int rc = RS_OK;

	for (; started < n; started++)
		if (pthread_create(&readers[started].thread, NULL, read_events, &readers[started])) {
			rc = rs_fail(e, RS_ENOMEM, "a thread cannot be started");
			break;
		}
	for (unsigned i = 0; i < started; i++) {
		pthread_join(readers[i].thread, NULL);
		if (readers[i].why.code == RS_OK)
			continue;
		*e = readers[i].why;
		rc = e->code;
		failed++;
	}
	if (failed && n > 1)
		rs_fail(e, rc, "the events of %u of %u reducers ended with an error", failed, n);
	return rc;
}

static int run_events(const struct call *call, struct rs_err *e)
{
	Reduction__V1__EventsRequest request;
	struct reader *readers;
	struct reducers a;
	int rc = take_request(call, &request, e);

	if (!rc)
		rc = reducers_open(&a, call, false, e);
	if (rc)
		return rc;
	readers = calloc(a.reducers_n, sizeof *readers);
	for (unsigned i = 0; readers && i < a.reducers_n; i++)
		readers[i] = (struct reader){
		    .reducers = &a, .reducer = i, .json = call->value[REDUCERS_JSON] != NULL, .request = request};
	rc = readers ? read_all(readers, a.reducers_n, e) : rs_oom(e, a.reducers_n * sizeof *readers, "events");
	free(readers);
	reducers_close(&a);
	return rc;
}

const struct command events_command = {
    "events",   ADDRESS_OR_ENVIRONMENT, "print events of reducers and their jobs as they happen",
    run_events, events_options,         EVENTS_OPTIONS};
