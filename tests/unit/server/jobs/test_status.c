/* SPDX-License-Identifier: Apache-2.0 */
/* The status: the registry's part together with the counts of the lanes. */
#include "server/jobs/registry.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 3, CONNECTION_BYTES = 3000 };

struct world {
	struct registry *r;
	struct registry_action last;
	char label[CONTROL_LABEL];
	unsigned n[REGISTRY_LATE + 1];
};

static void on_action(void *ctx, const struct registry_action *a)
{
	struct world *w = ctx;

	w->n[a->type]++;
	w->last = *a;
	if (a->label)
		snprintf(w->label, sizeof w->label, "%s", a->label);
}

static void *on_alloc(void *ctx, uint64_t bytes)
{
	(void)ctx;
	return malloc(bytes);
}

static void on_free(void *ctx, void *memory, uint64_t bytes)
{
	(void)ctx;
	(void)bytes;
	free(memory);
}

static void open_world(struct world *w)
{
	struct registry_options opt = {.limits = {10, 10, 1 << 30},
				       .threads = THREADS,
				       .connection_bytes = CONNECTION_BYTES,
				       .alloc = on_alloc,
				       .free = on_free,
				       .action = on_action,
				       .ctx = w};
	struct rs_err e;

	*w = (struct world){0};
	ck_assert_int_eq(registry_new(&w->r, &opt, &e), RS_OK);
}

static uint64_t join(struct world *w, const char *job, unsigned rank, unsigned lane)
{
	struct control_hello h = {.generation = 4,
				  .rank = rank,
				  .world_size = 2,
				  .lane = lane,
				  .lanes = 2,
				  .chunk_bytes = 1024,
				  .window = 2,
				  .priorities = 1,
				  .processes = 1 + rank,
				  .incarnation = 1000 + rank,
				  .detect_ms = 5000};
	struct control_refused no = {0};
	struct registry_admit a;
	char peer[80];

	snprintf(h.job, sizeof h.job, "%s", job);
	snprintf(h.label, sizeof h.label, "process %u on b", rank);
	ck_assert_int_eq(registry_hello(w->r, &h, &a, &no), RS_OK);
	snprintf(peer, sizeof peer, "10.0.0.%u:%u", rank, 1000 + lane);
	registry_set_peer(w->r, a.stripe.job, rank, peer, "tcp");
	registry_admitted(w->r, a.stripe.job);
	return a.stripe.job;
}

static struct status *status(const struct world *w)
{
	struct status *st = registry_status(w->r);

	ck_assert_ptr_nonnull(st);
	return st;
}

START_TEST(jobs_and_ranks)
{
	struct status *st;
	struct world w;
	uint64_t a, b;

	open_world(&w);
	st = status(&w);
	ck_assert_uint_eq(st->reply.m.n_jobs, 0);
	ck_assert_uint_eq(st->reply.m.n_lanes, THREADS);
	status_free(st);
	registry_set_time(w.r, 1000);
	a = join(&w, "a", 0, 0);
	registry_set_time(w.r, 3000);
	b = join(&w, "b", 1, 1);
	join(&w, "a", 0, 1);
	st = status(&w);
	ck_assert_uint_eq(st->reply.m.n_jobs, 2);
	ck_assert_str_eq(st->reply.m.jobs[0]->name, "a");
	ck_assert_uint_eq(st->ids[0], a);
	ck_assert_str_eq(st->reply.m.jobs[1]->name, "b");
	ck_assert_uint_eq(st->ids[1], b);
	ck_assert_int_eq(st->reply.m.jobs[0]->state, REDUCTION__V1__JOB_STATUS__STATE__GATHERING);
	ck_assert_uint_eq(st->reply.m.jobs[0]->age_ms, 2000);
	ck_assert_uint_eq(st->reply.m.jobs[1]->age_ms, 0);
	ck_assert_uint_eq(st->reply.m.jobs[0]->running_ms, 0);
	ck_assert_uint_eq(st->reply.m.jobs[0]->joined, 1);
	ck_assert_uint_eq(st->reply.m.jobs[1]->joined, 0);
	ck_assert_uint_eq(st->reply.m.jobs[0]->world_size, 2);
	ck_assert_uint_eq(st->reply.m.jobs[0]->processes, 1);
	ck_assert_uint_eq(st->reply.m.jobs[0]->ranks[0]->lanes, 2);
	ck_assert_uint_eq(st->reply.m.jobs[0]->ranks[1]->lanes, 0);
	ck_assert_str_eq(st->reply.m.jobs[0]->ranks[0]->label, "process 0 on b");
	ck_assert_str_eq(st->reply.m.jobs[0]->ranks[0]->peer, "10.0.0.0:1001");
	ck_assert_str_eq(st->reply.m.jobs[0]->ranks[0]->transport, "tcp");
	ck_assert_str_eq(st->reply.m.jobs[0]->ranks[1]->peer, "");
	ck_assert_uint_eq(st->reply.m.jobs[0]->ranks[0]->silent_ms, UINT32_MAX);
	ck_assert_uint_eq(st->reply.m.memory_bytes,
			  st->reply.m.jobs[0]->memory_bytes + st->reply.m.jobs[1]->memory_bytes);
	ck_assert_uint_eq(st->reply.m.memory_max_bytes, 1 << 30);
	ck_assert_uint_eq(st->reply.m.jobs_max, 10);
	status_free(st);

	registry_set_time(w.r, 4000);
	join(&w, "a", 1, 0);
	join(&w, "a", 1, 1);
	registry_set_time(w.r, 9000);
	st = status(&w);
	ck_assert_int_eq(st->reply.m.jobs[0]->state, REDUCTION__V1__JOB_STATUS__STATE__RUNNING);
	ck_assert_uint_eq(st->reply.m.jobs[0]->age_ms, 8000);
	ck_assert_uint_eq(st->reply.m.jobs[0]->running_ms, 5000);
	ck_assert_uint_eq(st->reply.m.jobs[0]->processes, 3);
	status_free(st);

	registry_drain(w.r);
	st = status(&w);
	ck_assert(st->reply.m.draining);
	ck_assert_int_eq(st->reply.m.jobs[0]->state, REDUCTION__V1__JOB_STATUS__STATE__DRAINING);
	ck_assert_int_eq(st->reply.m.jobs[1]->state, REDUCTION__V1__JOB_STATUS__STATE__ENDED); /* it only gathered */
	status_free(st);

	registry_abort_all(w.r, &(struct rs_err){.code = RS_ECLOSED, .msg = "it is late"});
	st = status(&w);
	ck_assert_int_eq(st->reply.m.jobs[0]->state, REDUCTION__V1__JOB_STATUS__STATE__ENDED);
	ck_assert_str_eq(st->reply.m.jobs[0]->reason, "it is late");
	status_free(st);
	registry_free(w.r);
}
END_TEST

/* Lanes report sessions; common counts are summed, parallel times are not. */
START_TEST(lanes_are_added)
{
	struct lane_report_session sessions[] = {
	    {.rank = 0,
	     .total = {100, 200, 3, 40, 50, 0, 0, 0, 0, 0},
	     .second = {10, 20, 1, 4, 5, 0, 0, 0, 0, 0},
	     .silent_ms = 70,
	     .missing_ms = 9},
	    {.rank = 1, .total = {1000, 2000, 30, 400, 500, 0, 0, 0, 0, 0}, .silent_ms = 80, .outstanding = 2},
	    {.rank = 1, .total = {1, 1, 1, 1, 1, 0, 0, 0, 0, 0}}, /* of a job that the status does not have */
	};
	struct lane_report_stripe stripes[] = {{.sessions_n = 2, .chunks = 7, .operations = 5},
					       {.job = 999, .sessions = 2, .sessions_n = 1}};
	uint32_t shares[] = {9, 9, 4, 4, 1};
	struct lane_report report = {.thread = 1,
				     .busy_permil = 333,
				     .starved_permil = 44,
				     .second_ms = 1001,
				     .total = {7000, 8000, 90, 0, 0, 0, 0, 0, 0, 0},
				     .stripes = stripes,
				     .sessions = sessions,
				     .shares = shares,
				     .stripes_n = 2,
				     .sessions_n = 3,
				     .shares_n = 5};
	const Reduction__V1__RankStatus *rank;
	struct status *st;
	struct world w;

	open_world(&w);
	for (unsigned i = 0; i < 4; i++)
		stripes[0].job = join(&w, "a", i / 2, i % 2);
	st = status(&w);
	stripes[0].reducers = 3;
	stripes[0].epoch = 2;
	stripes[0].shares = 2;
	status_add(st, &report);
	stripes[0].epoch = 1; /* this lane has not heard of the last change */
	stripes[0].shares = 0;
	report.thread = 2;
	report.second_ms = 1003;
	stripes[0].operations = 4;
	sessions[0] = (struct lane_report_session){.rank = 0,
						   .total = {1, 2, 3, 4, 60, 0, 0, 0, 0, 0},
						   .second = {1, 1, 1, 1, 1, 0, 0, 0, 0, 0},
						   .silent_ms = 60,
						   .missing_ms = 8};
	status_add(st, &report);
	ck_assert_uint_eq(st->reply.m.second_ms, 1003);
	ck_assert_uint_eq(st->reply.m.lanes[0]->connections, 0);
	ck_assert_uint_eq(st->reply.m.lanes[1]->connections, 3);
	ck_assert_uint_eq(st->reply.m.lanes[1]->busy_permil, 333);
	ck_assert_uint_eq(st->reply.m.lanes[1]->starved_permil, 44);
	ck_assert_uint_eq(st->reply.m.lanes[1]->traffic->bytes_in, 7000);
	ck_assert_uint_eq(st->reply.m.jobs[0]->chunks, 14);
	ck_assert_uint_eq(st->reply.m.jobs[0]->operations, 5);
	ck_assert_uint_eq(st->reply.m.jobs[0]->share_changes, 2);
	ck_assert_uint_eq(st->reply.m.jobs[0]->n_shares, 3);
	ck_assert(memcmp(st->reply.m.jobs[0]->shares, shares + 2, 3 * sizeof shares[0]) == 0);
	rank = st->reply.m.jobs[0]->ranks[0];
	ck_assert_uint_eq(rank->traffic->bytes_in, 101);
	ck_assert_uint_eq(rank->traffic->bytes_out, 202);
	ck_assert_uint_eq(rank->traffic->chunks, 6);
	ck_assert_uint_eq(rank->waited_ms, 60);
	ck_assert_uint_eq(rank->silent_ms, 60);
	ck_assert_uint_eq(rank->missing_ms, 9);
	ck_assert_uint_eq(st->reply.m.jobs[0]->ranks[1]->outstanding, 4);
	ck_assert_uint_eq(st->reply.m.jobs[0]->traffic->bytes_in, 2101);
	status_finish(st);
	ck_assert_uint_eq(rank->traffic->bytes_in_per_s, 11 * 1000 / 1003);
	ck_assert_uint_eq(rank->waited_permil, 5 * 1000 / 1003);
	ck_assert_double_eq(rank->late_ms, 5 / 2.0);
	ck_assert_uint_eq(st->reply.m.jobs[0]->latest_permil, rank->waited_permil);
	status_free(st);
	registry_free(w.r);
}
END_TEST

/* A rank may say on each lane another number of reducers. AddressSanitizer sees what is
 * written beyond the first one's. */
START_TEST(shares_of_another_number_of_reducers)
{
	uint32_t shares[256 + 1 + 256] = {0};
	struct lane_report_stripe stripes[] = {{.reducers = _i ? 1 : 256},
					       {.lane = 1, .reducers = 1, .epoch = 1, .shares = 256},
					       {.lane = 1, .reducers = 256, .epoch = 2, .shares = 257}};
	struct lane_report report = {.stripes = stripes, .shares = shares, .stripes_n = 3, .shares_n = 513};
	const Reduction__V1__JobStatus *job;
	struct status *st;
	struct world w;

	open_world(&w);
	stripes[0].job = stripes[1].job = stripes[2].job = join(&w, "a", 0, 0);
	st = status(&w);
	status_add(st, &report);
	job = status_finish(st)->m.jobs[0];
	ck_assert_uint_eq(job->n_shares, _i ? 1 : 256);
	ck_assert_uint_eq(job->share_changes, _i ? 1 : 2);
	status_free(st);
	registry_free(w.r);
}
END_TEST

/* Events of a lane get the names of job and rank, as long as the job has not ended. */
START_TEST(lane_events_become_actions)
{
	struct lane_event ev = {.type = LANE_LATE, .rank = 1, .seq = 12, .waited_ms = 1000, .late = 3};
	struct world w;

	open_world(&w);
	registry_lane_event(w.r, &ev); /* of a closed job */
	for (unsigned i = 0; i < 4; i++)
		ev.job = join(&w, "a", i / 2, i % 2);
	registry_lane_event(w.r, &ev);
	ck_assert_uint_eq(w.n[REGISTRY_LATE], 1);
	ck_assert_uint_eq(w.last.rank, 1);
	ck_assert_uint_eq(w.last.seq, 12);
	ck_assert_uint_eq(w.last.late, 3);
	ck_assert_str_eq(w.label, "process 1 on b");
	ev.type = LANE_LOST;
	rs_fail(&ev.why, RS_EPEER, "it went");
	registry_lane_event(w.r, &ev);
	registry_failed(w.r, ev.job, &ev.why, &ev.cause);
	registry_lane_event(w.r, &ev); /* from another lane */
	ck_assert_uint_eq(w.n[REGISTRY_LOST], 1);
	ck_assert_uint_eq(w.n[REGISTRY_LATE], 1);
	registry_free(w.r);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("status");
	TCase *t = tcase_create("status");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_test(t, jobs_and_ranks);
	tcase_add_test(t, lanes_are_added);
	tcase_add_loop_test(t, shares_of_another_number_of_reducers, 0, 2);
	tcase_add_test(t, lane_events_become_actions);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
