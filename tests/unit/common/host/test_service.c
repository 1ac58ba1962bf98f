/* SPDX-License-Identifier: Apache-2.0 */
/* Requests and responses: rights, status of jobs, events, health, and all errors of
 * callers. */
#include "proto/health.pb-c.h"
#include "proto/reduction.pb-c.h"
#include "server/jobs/status.h"
#include "tests/unit/fake_service.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define READ  "Bearer " FSERVICE_READ_TOKEN
#define ADMIN "bearer " FSERVICE_ADMIN_TOKEN
#define LOCAL "[::1]:7"
#define FAR   "10.0.0.1:7"

static const struct {
	bool tokens;
	const char *address, *authorization;
	enum rpc_code read, admin;
	const char *says; /* part of the refusal */
} rights[] = {
    {false, LOCAL, NULL, RPC_CODE_OK, RPC_CODE_OK, ""},
    {false, "127.1.2.3:9", "Bearer nonsense", RPC_CODE_OK, RPC_CODE_OK, ""},
    {false, FAR, NULL, RPC_CODE_PERMISSION_DENIED, RPC_CODE_PERMISSION_DENIED, "on a loopback address"},
    {false, FSERVICE_OTHER_USER, NULL, RPC_CODE_OK, RPC_CODE_PERMISSION_DENIED, "so only root and its own user"},
    {true, FSERVICE_OTHER_USER, ADMIN, RPC_CODE_OK, RPC_CODE_OK, ""},
    {false, FAR, "Bearer ", RPC_CODE_PERMISSION_DENIED, RPC_CODE_PERMISSION_DENIED, "this reducer has no security."},
    {false, "[::ffff:127.0.0.1]:7", NULL, RPC_CODE_OK, RPC_CODE_OK, ""},
    {false, "127.example.com:7", NULL, RPC_CODE_PERMISSION_DENIED, RPC_CODE_PERMISSION_DENIED, ""},
    {false, "[::1", NULL, RPC_CODE_PERMISSION_DENIED, RPC_CODE_PERMISSION_DENIED, ""},
    {false, "[2001:db8::1]:7", NULL, RPC_CODE_PERMISSION_DENIED, RPC_CODE_PERMISSION_DENIED, ""},
    {false, "?", NULL, RPC_CODE_PERMISSION_DENIED, RPC_CODE_PERMISSION_DENIED, ""},
    {false, "unix:", NULL, RPC_CODE_OK, RPC_CODE_OK, ""},
    {false, "unix", NULL, RPC_CODE_PERMISSION_DENIED, RPC_CODE_PERMISSION_DENIED, ""},
    {true, "unix:", NULL, RPC_CODE_UNAUTHENTICATED, RPC_CODE_UNAUTHENTICATED, "send the token from security."},
    {true, LOCAL, NULL, RPC_CODE_UNAUTHENTICATED, RPC_CODE_UNAUTHENTICATED, "send the token from security."},
    {true, FAR, NULL, RPC_CODE_UNAUTHENTICATED, RPC_CODE_UNAUTHENTICATED, "send the token from security."},
    {true, FAR, READ, RPC_CODE_OK, RPC_CODE_PERMISSION_DENIED, "requires that of security.admin_token"},
    {true, FAR, ADMIN, RPC_CODE_OK, RPC_CODE_OK, ""},
    {true, FAR, ADMIN " ", RPC_CODE_UNAUTHENTICATED, RPC_CODE_UNAUTHENTICATED, "is not that of"},
    {true, FAR, READ "x", RPC_CODE_UNAUTHENTICATED, RPC_CODE_UNAUTHENTICATED, "is not that of"},
    {true, FAR, "Bearer read-read-read-rea", RPC_CODE_UNAUTHENTICATED, RPC_CODE_UNAUTHENTICATED, "is not that of"},
    {true, FAR, "Bearer ", RPC_CODE_UNAUTHENTICATED, RPC_CODE_UNAUTHENTICATED, "is not that of"},
    {true, FAR, FSERVICE_READ_TOKEN, RPC_CODE_UNAUTHENTICATED, RPC_CODE_UNAUTHENTICATED, "is not that of"},
    {true, FAR, "Basic " FSERVICE_READ_TOKEN, RPC_CODE_UNAUTHENTICATED, RPC_CODE_UNAUTHENTICATED, "is not that of"},
};

START_TEST(a_certificate_gives_the_right_to_read)
{
	static const struct service_peer peer = {.address = FAR, .certified = true};
	struct fake_service w;
	struct service_call *c;

	fservice_open(&w, false);
	c = service_begin(w.s, SERVICE_EVENTS, &peer, NULL, 0);
	ck_assert_uint_eq(w.denials, 0);
	service_call_free(c);
	c = service_begin(w.s, SERVICE_DRAIN, &peer, NULL, 0);
	fservice_expect_end(c, RPC_CODE_PERMISSION_DENIED, "only root and its own user, on a loopback address");
	service_free(w.s);
	/* if there is a token, it is required too */
	fservice_open(&w, true);
	c = service_begin(w.s, SERVICE_EVENTS, &peer, NULL, 0);
	fservice_expect_end(c, RPC_CODE_UNAUTHENTICATED, "send the token from security.");
	service_free(w.s);
}
END_TEST

START_TEST(rights_are_checked)
{
	static const struct {
		enum service_method method;
		enum service_right right;
	} methods[] = {{SERVICE_STATUS, RIGHT_READ}, {SERVICE_EVENTS, RIGHT_READ},  {SERVICE_TRACE, RIGHT_READ},
		       {SERVICE_DRAIN, RIGHT_ADMIN}, {SERVICE_RELOAD, RIGHT_ADMIN}, {SERVICE_CHECK, RIGHT_NONE},
		       {SERVICE_WATCH, RIGHT_NONE}};
	struct service_peer peer = {.address = rights[_i].address, .authorization = rights[_i].authorization};
	struct fake_service w;

	fservice_open(&w, rights[_i].tokens);
	for (unsigned m = 0; m < sizeof methods / sizeof methods[0]; m++) {
		enum rpc_code want = methods[m].right == RIGHT_READ    ? rights[_i].read
				     : methods[m].right == RIGHT_ADMIN ? rights[_i].admin
								       : RPC_CODE_OK;
		struct service_call *c = service_begin(w.s, methods[m].method, &peer, NULL, 0);
		unsigned denials = w.denials;

		if (want) {
			ck_assert_ptr_nonnull(strstr(w.denied, rights[_i].address));
			ck_assert_ptr_nonnull(strstr(w.denied, rights[_i].says));
			ck_assert_ptr_null(strstr(w.denied, FSERVICE_READ_TOKEN));
			fservice_expect_end(c, want, rights[_i].says);
			ck_assert_uint_gt(denials, 0);
		} else {
			service_call_free(c);
		}
	}
	ck_assert_uint_eq(w.denials, 3 * !!rights[_i].read + 2 * !!rights[_i].admin);
	ck_assert_uint_eq(w.grants, 5 - w.denials);
	ck_assert_uint_eq(w.drains, !rights[_i].admin);
	ck_assert_uint_eq(w.reloads, !rights[_i].admin);
	ck_assert_uint_eq(w.collects, !rights[_i].read);
	service_free(w.s);
}
END_TEST

/* Jobs a and b, each with so many ranks. */
static struct status *some_status(unsigned ranks)
{
	struct status *st = status_new(2, 3);
	Reduction__V1__StatusReply *m = &st->reply.m;
	Reduction__V1__LostReducer *lost;

	m->second_ms = 2000;
	m->up_ms = 12345;
	m->draining = true;
	for (unsigned i = 0; i < 2; i++) {
		Reduction__V1__JobStatus *job = status_job(st, i, i, ranks);

		ck_assert_ptr_nonnull(job);
		job->name = i ? "b" : "a";
		job->state = REDUCTION__V1__JOB_STATUS__STATE__RUNNING;
		job->traffic->bytes_in = 4000;
		job->traffic->bytes_in_per_s = 400; /* status_finish() makes rates of the counts */
		job->traffic->chunks_per_s = 2;
		job->ranks[1]->label = "process 1 on b";
		job->ranks[1]->traffic->chunks_per_s = 4;
		job->ranks[1]->late_ms = 10;
		job->ranks[1]->waited_permil = 500;
		job->ranks[1]->silent_ms = 77;
	}
	m->jobs[0]->reducers = 2;
	m->jobs[0]->reducer = "r0";
	m->jobs[0]->lost = status_reply_take(&st->reply, 2 * sizeof(*m->jobs[0]->lost));
	m->jobs[0]->lost[1] = lost = status_reply_message(&st->reply, &reduction__v1__lost_reducer__descriptor);
	lost->index = 1;
	lost->for_ms = 7;
	lost->id = "r1";
	lost->why = "refused";
	m->jobs[1]->state = REDUCTION__V1__JOB_STATUS__STATE__ENDED;
	m->jobs[1]->reason = "rank 1 was lost";
	return st;
}

static void deliver(struct fake_service *w, struct status *st)
{
	service_status(w->s, status_finish(st));
	status_free(st);
}

/* Compares the reply with some_status(2). */
static void expect_status_of_two(const Reduction__V1__StatusReply *m)
{
	ck_assert_uint_eq(m->up_ms, 12345);
	ck_assert(m->draining);
	ck_assert_uint_eq(m->n_lanes, 3);
	ck_assert_uint_eq(m->n_jobs, 2);
	ck_assert_str_eq(m->jobs[0]->name, "a");
	ck_assert_int_eq(m->jobs[0]->state, REDUCTION__V1__JOB_STATUS__STATE__RUNNING);
	ck_assert_str_eq(m->jobs[0]->reason, "");
	ck_assert_uint_eq(m->jobs[0]->traffic->bytes_in, 4000);
	ck_assert_uint_eq(m->jobs[0]->traffic->bytes_in_per_s, 200);
	ck_assert_uint_eq(m->jobs[0]->traffic->chunks_per_s, 1);
	ck_assert_uint_eq(m->jobs[0]->latest_rank, 1);
	ck_assert_uint_eq(m->jobs[0]->latest_permil, 250);
	ck_assert_uint_eq(m->jobs[0]->n_ranks, 2);
	ck_assert_str_eq(m->jobs[0]->ranks[1]->label, "process 1 on b");
	ck_assert_uint_eq(m->jobs[0]->ranks[1]->rank, 1);
	ck_assert_uint_eq(m->jobs[0]->ranks[1]->waited_permil, 250);
	ck_assert_double_eq(m->jobs[0]->ranks[1]->late_ms, 2.5);
	ck_assert_uint_eq(m->jobs[0]->ranks[1]->silent_ms, 77);
	ck_assert_uint_eq(m->jobs[0]->ranks[0]->silent_ms, 0);
	ck_assert_int_eq(m->jobs[1]->state, REDUCTION__V1__JOB_STATUS__STATE__ENDED);
	ck_assert_str_eq(m->jobs[1]->reason, "rank 1 was lost");
	ck_assert(m->jobs[0]->reducers == 2 && m->jobs[0]->n_lost == 1 && m->jobs[1]->n_lost == 0);
	ck_assert_str_eq(m->jobs[0]->reducer, "r0");
	ck_assert_str_eq(m->jobs[0]->lost[0]->id, "r1");
	ck_assert_str_eq(m->jobs[0]->lost[0]->why, "refused");
	ck_assert(m->jobs[0]->lost[0]->index == 1 && m->jobs[0]->lost[0]->for_ms == 7);
}

START_TEST(status_of_jobs)
{
	Reduction__V1__StatusRequest request = REDUCTION__V1__STATUS_REQUEST__INIT;
	struct service_call *all, *one, *none, *later;
	Reduction__V1__StatusReply *m;
	struct fake_service w;
	struct status *st;

	fservice_open(&w, false);
	all = fservice_begin(&w, SERVICE_STATUS, &request.base);
	fservice_expect_wait(all);
	request.job = "b";
	request.without_ranks = true;
	one = fservice_begin(&w, SERVICE_STATUS, &request.base);
	request.job = "c";
	none = fservice_begin(&w, SERVICE_STATUS, &request.base);
	ck_assert_uint_eq(w.collects, 1); /* for all of them */
	deliver(&w, some_status(2));
	ck_assert_uint_ge(w.wakes, 1);

	m = fservice_expect_message(all, &reduction__v1__status_reply__descriptor);
	fservice_expect_end(all, RPC_CODE_OK, "");
	expect_status_of_two(m);
	reduction__v1__status_reply__free_unpacked(m, NULL);

	m = fservice_expect_message(one, &reduction__v1__status_reply__descriptor);
	fservice_expect_end(one, RPC_CODE_OK, "");
	ck_assert_uint_eq(m->n_jobs, 1);
	ck_assert_str_eq(m->jobs[0]->name, "b");
	ck_assert_uint_eq(m->jobs[0]->n_ranks, 0);
	ck_assert_uint_eq(m->jobs[0]->latest_permil, 250);
	reduction__v1__status_reply__free_unpacked(m, NULL);

	m = fservice_expect_message(none, &reduction__v1__status_reply__descriptor);
	fservice_expect_end(none, RPC_CODE_OK, "");
	ck_assert_uint_eq(m->n_jobs, 0);
	reduction__v1__status_reply__free_unpacked(m, NULL);

	later = fservice_begin(&w, SERVICE_STATUS, NULL);
	ck_assert_uint_eq(w.collects, 2);
	service_status(w.s, NULL);
	fservice_expect_end(later, RPC_CODE_RESOURCE_EXHAUSTED, "out of memory");
	later = fservice_begin(&w, SERVICE_STATUS, NULL);
	st = some_status(2);
	st->reply.failed = true; /* a part had no memory */
	deliver(&w, st);
	fservice_expect_end(later, RPC_CODE_RESOURCE_EXHAUSTED, "out of memory");
	deliver(&w, some_status(3000)); /* no call waits for it */
	later = fservice_begin(&w, SERVICE_STATUS, NULL);
	deliver(&w, some_status(3000));
	m = fservice_expect_message(later, &reduction__v1__status_reply__descriptor);
	ck_assert_uint_eq(m->jobs[1]->n_ranks, 3000);
	reduction__v1__status_reply__free_unpacked(m, NULL);
	service_call_free(later); /* the caller has disconnected */
	service_free(w.s);
}
END_TEST

static void happen(struct fake_service *w, const char *name, const char *job)
{
	events_add(&w->events, 1000 + (int64_t)w->events.next, RS_LOG_INFO, name,
		   (const struct rs_kv[]){rs_kv_s("job", job), rs_kv_u("rank", 3)}, 2);
	service_event_added(w->s);
}

static void expect_event(struct service_call *c, uint64_t sequence, const char *name, const char *job)
{
	Reduction__V1__Event *m = fservice_expect_message(c, &reduction__v1__event__descriptor);

	ck_assert_uint_eq(m->sequence, sequence);
	ck_assert_str_eq(m->name, name);
	ck_assert_str_eq(m->level, "info");
	ck_assert_int_eq(m->unix_ms, (int64_t)(1000 + sequence));
	ck_assert_uint_eq(m->n_fields, 2);
	ck_assert_str_eq(m->fields[0]->key, "job");
	ck_assert_str_eq(m->fields[0]->value, job);
	ck_assert_str_eq(m->fields[1]->value, "3");
	reduction__v1__event__free_unpacked(m, NULL);
}

START_TEST(events_are_sent)
{
	Reduction__V1__EventsRequest request = REDUCTION__V1__EVENTS_REQUEST__INIT;
	struct service_call *new, *old, *past, *b;
	struct fake_service w;
	unsigned wakes;

	fservice_open(&w, false);
	happen(&w, "job-opened", "a");
	happen(&w, "job-opened", "b");
	new = fservice_begin(&w, SERVICE_EVENTS, NULL);
	fservice_expect_wait(new);
	request.past_only = true;
	past = fservice_begin(&w, SERVICE_EVENTS, &request.base);
	request.past_only = false;
	request.from = 2;
	old = fservice_begin(&w, SERVICE_EVENTS, &request.base);
	request.from = 1;
	request.job = "b";
	b = fservice_begin(&w, SERVICE_EVENTS, &request.base);
	wakes = w.wakes;
	happen(&w, "job-started", "a");
	ck_assert_uint_gt(w.wakes, wakes);
	expect_event(past, 1, "job-opened", "a");
	expect_event(past, 2, "job-opened", "b");
	fservice_expect_end(past, RPC_CODE_OK, ""); /* later events are not past */
	expect_event(old, 2, "job-opened", "b");
	expect_event(old, 3, "job-started", "a");
	fservice_expect_wait(old);
	expect_event(new, 3, "job-started", "a");
	fservice_expect_wait(new);
	expect_event(b, 2, "job-opened", "b");
	fservice_expect_wait(b);
	/* the last ones are sent before the end */
	happen(&w, "job-closed", "b");
	service_stop(w.s);
	expect_event(b, 4, "job-closed", "b");
	fservice_expect_end(b, RPC_CODE_OK, "");
	expect_event(old, 4, "job-closed", "b");
	fservice_expect_end(old, RPC_CODE_OK, "");
	service_call_free(new);
	service_free(w.s);
}
END_TEST

/* A client that does not read loses events, and nothing else happens. */
START_TEST(slow_readers_get_a_gap_in_the_sequence)
{
	struct service_call *c;
	struct fake_service w;

	fservice_open(&w, false);
	c = fservice_begin(&w, SERVICE_EVENTS, NULL);
	for (unsigned i = 1; i <= 3 * EVENTS_KEPT; i++)
		happen(&w, "e", "a");
	for (unsigned i = 2 * EVENTS_KEPT + 1; i <= 3 * EVENTS_KEPT; i++)
		expect_event(c, i, "e", "a");
	fservice_expect_wait(c);
	service_call_free(c);
	service_free(w.s);
}
END_TEST

START_TEST(drain_and_reload)
{
	Reduction__V1__DrainRequest request = REDUCTION__V1__DRAIN_REQUEST__INIT;
	Reduction__V1__ReloadReply *reloaded;
	Reduction__V1__DrainReply *drained;
	struct service_call *c;
	struct fake_service w;

	fservice_open(&w, false);
	c = fservice_begin(&w, SERVICE_RELOAD, NULL);
	reloaded = fservice_expect_message(c, &reduction__v1__reload_reply__descriptor);
	ck_assert_str_eq(reloaded->result, "taken over");
	reduction__v1__reload_reply__free_unpacked(reloaded, NULL);
	fservice_expect_end(c, RPC_CODE_OK, "");
	w.reload_fails = true;
	fservice_expect_end(fservice_begin(&w, SERVICE_RELOAD, NULL), RPC_CODE_FAILED_PRECONDITION, "a.yaml:3: bad");

	c = fservice_begin(&w, SERVICE_DRAIN, &request.base);
	ck_assert_uint_eq(w.timeout_ms, 0);
	ck_assert_str_eq(w.because, "(none)");
	drained = fservice_expect_message(c, &reduction__v1__drain_reply__descriptor);
	ck_assert_uint_eq(drained->jobs, 3);
	ck_assert_uint_eq(drained->left_ms, 30000);
	ck_assert(!drained->already);
	reduction__v1__drain_reply__free_unpacked(drained, NULL);
	fservice_expect_end(c, RPC_CODE_OK, "");
	request.timeout_ms = 5000;
	request.because = "maintenance";
	c = fservice_begin(&w, SERVICE_DRAIN, &request.base);
	ck_assert_uint_eq(w.timeout_ms, 5000);
	ck_assert_str_eq(w.because, "maintenance");
	drained = fservice_expect_message(c, &reduction__v1__drain_reply__descriptor);
	ck_assert(drained->already);
	reduction__v1__drain_reply__free_unpacked(drained, NULL);
	service_call_free(c);
	service_free(w.s);
}
END_TEST

static int status_of(struct service_call *c)
{
	Grpc__Health__V1__HealthCheckResponse *m =
	    fservice_expect_message(c, &grpc__health__v1__health_check_response__descriptor);
	int status = m->status;

	grpc__health__v1__health_check_response__free_unpacked(m, NULL);
	return status;
}

/* Numbers of the published protocol. */
enum { SERVING = 1, NOT_SERVING = 2, SERVICE_UNKNOWN = 3 };

static const struct {
	const char *name;
	int before, draining, stopping; /* 0: not found */
} services[] = {
    {"", SERVING, NOT_SERVING, NOT_SERVING},
    {"reduction.v1.Reducer", SERVING, NOT_SERVING, NOT_SERVING},
    {"reduction.v1.Control", SERVING, SERVING, NOT_SERVING},
    {"reduction.v1", 0, 0, 0},
    {"a.name.that.is.longer.than.that.of.any.service.which.this.program.has.ever.heard.of", 0, 0, 0},
};

static void expect_check(struct fake_service *w, ProtobufCMessage *request, int want)
{
	struct service_call *c = fservice_begin(w, SERVICE_CHECK, request);

	if (!want) {
		fservice_expect_end(c, RPC_CODE_NOT_FOUND, "no service of that name");
		return;
	}
	ck_assert_int_eq(status_of(c), want);
	fservice_expect_end(c, RPC_CODE_OK, "");
}

START_TEST(health_of)
{
	Grpc__Health__V1__HealthCheckRequest request = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
	struct service_call *watch;
	struct fake_service w;

	fservice_open(&w, true); /* no call needs a token for it */
	request.service = (char *)services[_i].name;
	expect_check(&w, &request.base, services[_i].before);
	watch = fservice_begin(&w, SERVICE_WATCH, &request.base);
	ck_assert_int_eq(status_of(watch), services[_i].before ? services[_i].before : SERVICE_UNKNOWN);
	fservice_expect_wait(watch);
	service_draining(w.s);
	expect_check(&w, &request.base, services[_i].draining);
	if (services[_i].draining != services[_i].before)
		ck_assert_int_eq(status_of(watch), services[_i].draining);
	fservice_expect_wait(watch);
	service_stop(w.s);
	if (services[_i].stopping != services[_i].draining)
		ck_assert_int_eq(status_of(watch), services[_i].stopping);
	fservice_expect_end(watch, RPC_CODE_UNAVAILABLE, "has stopped");
	fservice_expect_end(fservice_begin(&w, SERVICE_CHECK, &request.base), RPC_CODE_UNAVAILABLE, "has stopped");
	service_free(w.s);
}
END_TEST

/* Permanent probes do not block administrators, and administrators do not block
 * probes. */
START_TEST(calls_are_limited)
{
	struct service_call *calls[SERVICE_CALLS_MAX + SERVICE_WATCHES_MAX];
	unsigned n = 0;
	struct fake_service w;

	fservice_open(&w, false);
	for (unsigned i = 0; i < SERVICE_WATCHES_MAX; i++)
		calls[n++] = fservice_begin(&w, SERVICE_WATCH, NULL);
	for (unsigned i = 0; i < SERVICE_CALLS_MAX; i++) {
		calls[n++] = fservice_begin(&w, SERVICE_EVENTS, NULL);
		fservice_expect_wait(calls[n - 1]);
	}
	fservice_expect_end(fservice_begin(&w, SERVICE_DRAIN, NULL), RPC_CODE_RESOURCE_EXHAUSTED,
			    "the limit of calls at the same time is reached");
	ck_assert_uint_eq(w.drains, 0);
	service_call_free(calls[--n]);
	service_call_free(fservice_begin(&w, SERVICE_DRAIN, NULL));
	ck_assert_uint_eq(w.drains, 1);
	while (n)
		service_call_free(calls[--n]);
	service_free(w.s);
}
END_TEST

/* Health requires no right. Permanent watches cannot block a probe, because the newest
 * watch replaces the oldest. */
START_TEST(a_new_watch_replaces_the_oldest)
{
	struct service_call *calls[3 * SERVICE_WATCHES_MAX], *check;
	struct service_out out;
	struct fake_service w;
	unsigned wakes;

	fservice_open(&w, true);
	for (unsigned i = 0; i < 3 * SERVICE_WATCHES_MAX; i++) {
		wakes = w.wakes;
		calls[i] = fservice_begin(&w, SERVICE_WATCH, NULL);
		ck_assert_int_eq(status_of(calls[i]), SERVING);
		fservice_expect_wait(calls[i]);
		ck_assert_uint_eq(w.wakes > wakes, i >= SERVICE_WATCHES_MAX);
		check = fservice_begin(&w, SERVICE_CHECK, NULL);
		ck_assert_int_eq(status_of(check), SERVING);
		fservice_expect_end(check, RPC_CODE_OK, "");
	}
	for (unsigned i = 0; i < 3 * SERVICE_WATCHES_MAX; i++) {
		ck_assert_int_eq(service_cut_off(calls[i], &out), i < 2 * SERVICE_WATCHES_MAX);
		if (i < 2 * SERVICE_WATCHES_MAX) {
			ck_assert_int_eq(out.code, RPC_CODE_RESOURCE_EXHAUSTED);
			fservice_expect_end(calls[i], RPC_CODE_RESOURCE_EXHAUSTED, "a newer call replaces this one");
		} else {
			fservice_expect_wait(calls[i]);
			service_call_free(calls[i]);
		}
	}
	service_free(w.s);
}
END_TEST

/* Calls without a right take no place of calls that have it. */
START_TEST(unauthenticated_calls_take_no_places)
{
	struct service_call *calls[2 * SERVICE_CALLS_MAX], *c;
	struct service_peer admin = {.address = FAR, .authorization = ADMIN};
	struct fake_service w;

	fservice_open(&w, true);
	for (unsigned i = 0; i < 2 * SERVICE_CALLS_MAX; i++)
		calls[i] = fservice_begin(&w, SERVICE_EVENTS, NULL); /* and they have not been refused yet */
	c = service_begin(w.s, SERVICE_DRAIN, &admin, NULL, 0);
	ck_assert_uint_eq(w.drains, 1);
	service_call_free(c);
	for (unsigned i = 0; i < 2 * SERVICE_CALLS_MAX; i++)
		fservice_expect_end(calls[i], RPC_CODE_UNAUTHENTICATED, "send the token from");
	service_free(w.s);
}
END_TEST

START_TEST(malformed_requests_are_refused)
{
	Reduction__V1__StatusRequest request = REDUCTION__V1__STATUS_REQUEST__INIT;
	static uint8_t bytes[SERVICE_REQUEST_MAX + 1];
	char name[CONTROL_JOB + 1] = {0};
	struct fake_service w;

	fservice_open(&w, false);
	for (unsigned m = 0; m < SERVICE_METHODS; m++) {
		fservice_expect_end(service_begin(w.s, m, &fservice_here, bytes, sizeof bytes),
				    RPC_CODE_INVALID_ARGUMENT, "longer");
		fservice_expect_end(service_begin(w.s, m, &fservice_here, "\x0a\xff", 2), RPC_CODE_INVALID_ARGUMENT,
				    "not a message");
	}
	memset(name, 'x', CONTROL_JOB);
	request.job = name;
	fservice_expect_end(fservice_begin(&w, SERVICE_STATUS, &request.base), RPC_CODE_INVALID_ARGUMENT, "too long");
	fservice_expect_end(fservice_begin(&w, SERVICE_EVENTS, &request.base), RPC_CODE_INVALID_ARGUMENT, "");
	ck_assert_uint_eq(w.collects, 0);
	ck_assert_uint_eq(w.drains, 0);
	ck_assert_uint_eq(w.reloads, 0);
	service_free(w.s);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("service");
	TCase *t = tcase_create("service");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_set_timeout(t, 60);
	tcase_add_test(t, a_certificate_gives_the_right_to_read);
	tcase_add_loop_test(t, rights_are_checked, 0, sizeof rights / sizeof rights[0]);
	tcase_add_test(t, status_of_jobs);
	tcase_add_test(t, events_are_sent);
	tcase_add_test(t, slow_readers_get_a_gap_in_the_sequence);
	tcase_add_test(t, drain_and_reload);
	tcase_add_loop_test(t, health_of, 0, sizeof services / sizeof services[0]);
	tcase_add_test(t, calls_are_limited);
	tcase_add_test(t, a_new_watch_replaces_the_oldest);
	tcase_add_test(t, unauthenticated_calls_take_no_places);
	tcase_add_test(t, malformed_requests_are_refused);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
