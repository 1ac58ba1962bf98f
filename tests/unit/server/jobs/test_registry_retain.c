/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs with failover, and reducers that return. */
#include "tests/unit/fake_registry.h"

#include <check.h>
#include <string.h>

/* A job with failover has other reducers: a rank lost here is lost to this reducer
 * only. */
static struct control_hello retaining(unsigned rank, unsigned lane, bool rejoin)
{
	struct control_hello h = fr_hello(rank, lane);

	h.retain = true;
	h.rejoin = rejoin;
	return h;
}

static uint64_t admit_retaining(struct fr_world *w, bool rejoin)
{
	uint64_t id = 0;

	for (unsigned i = 0; i < 4; i++) {
		struct control_hello h = retaining(i / 2, i % 2, rejoin);

		id = fr_admit(w, &h);
	}
	return id;
}

START_TEST(all_ranks_fail_over_or_none)
{
	struct fr_world w;
	struct control_hello h = retaining(0, 0, false), other = fr_hello(1, 0);

	fr_open(&w, 9, 8, UINT64_MAX);
	if (_i) {
		h.retain = false;
		other.retain = true;
	}
	fr_admit(&w, &h);
	fr_refused(&w, &other, RS_EMISMATCH, false,
		   _i ? "ranks 1 and 0 of job train are configured differently: job.failover retain and fail"
		      : "ranks 1 and 0 of job train are configured differently: job.failover fail and retain");
	fr_close(&w);
}
END_TEST

/* Rejoining ranks join only with rejoining ranks. Both refusals may be temporary: a
 * starting rank finds the remains of an earlier run, and a rejoining one is ahead of the
 * others. */
START_TEST(rejoining_ranks_join_only_rejoining_ranks)
{
	struct fr_world w;
	struct control_hello first = retaining(0, 0, _i), other = retaining(1, 0, !_i), same = retaining(1, 0, _i);

	fr_open(&w, 9, 8, UINT64_MAX);
	fr_admit(&w, &first);
	fr_refused(&w, &other, RS_EREFUSED, true, "job train: ranks of its previous run are still connected; retrying");
	/* even with another configuration, since it may be another job with that name */
	other.world_size = 3;
	fr_refused(&w, &other, RS_EREFUSED, true, "job train: ranks of its previous run are still connected; retrying");
	fr_admit(&w, &same);
	fr_close(&w);
}
END_TEST

/* The lane learns that ranks are lost to this reducer only, and the job can return after
 * the last session of its first run has closed. */
START_TEST(a_job_returns_to_a_reducer)
{
	struct fr_world w;
	struct control_hello h = retaining(0, 0, true);
	struct registry_admit a;
	struct control_refused no;
	uint64_t id;

	fr_open(&w, 9, 8, UINT64_MAX);
	id = admit_retaining(&w, false);
	registry_failed(w.r, id, &(struct rs_err){.code = RS_ECUT, .msg = "rank 1 was lost: cut"}, NULL);
	ck_assert_uint_eq(w.n[REGISTRY_ABORT], 1);
	ck_assert_int_eq(w.last.why.code, RS_ECUT);
	fr_refused(&w, &h, RS_EREFUSED, true, "has ended (rank 1 was lost: cut) and its workers have not all left yet");
	fr_all_gone(&w, id, false);
	ck_assert_int_eq(registry_hello(w.r, &h, &a, &no), RS_OK);
	ck_assert(a.stripe.retain);
	registry_session_closed(w.r, a.stripe.job, 0, 0, false);
	memset(w.n, 0, sizeof w.n);
	admit_retaining(&w, true);
	ck_assert_uint_eq(w.n[REGISTRY_START], 1);
	fr_close(&w);
}
END_TEST

/* What the ranks announce when they bring the reducer back, and how many of their lanes
 * must show that large messages pass. 2 is the feature `probe`. */
static const struct {
	uint64_t ranks[2];
	unsigned proofs;
} probing[] = {{{2, 2}, 4}, {{2, 1}, 2}, {{0, 3}, 2}, {{1, 1}, 0}};

START_TEST(start_waits_until_large_messages_pass)
{
	struct lane_event ev = {.type = LANE_PROVEN};
	struct registry_admit a;
	struct control_refused no;
	unsigned probes = 0;
	struct fr_world w;

	fr_open(&w, 9, 8, UINT64_MAX);
	for (unsigned i = 0; i < 4; i++) {
		struct control_hello h = retaining(i / 2, i % 2, true);

		h.features = probing[_i].ranks[i / 2];
		ck_assert_int_eq(registry_hello(w.r, &h, &a, &no), RS_OK);
		ck_assert(a.session.probe == (h.features >> 1 & 1));
		registry_admitted(w.r, a.stripe.job);
		probes += a.session.probe;
	}
	ck_assert_uint_eq(probes, probing[_i].proofs);
	ev.job = a.stripe.job;
	for (unsigned i = 0; i < 4; i++) {
		ck_assert_uint_eq(w.n[REGISTRY_START], probes == 0);
		ev.rank = i / 2;
		ev.lane = i % 2;
		probes -= probing[_i].ranks[i / 2] >> 1 & 1;
		registry_lane_event(w.r, &ev);
		registry_lane_event(w.r, &ev); /* it may come again */
	}
	ck_assert_uint_eq(w.n[REGISTRY_START], 1);
	fr_all_gone(&w, ev.job, true);
	fr_close(&w);
}
END_TEST

/* A lane that closes before it has shown that must show it again. Ranks that start a job
 * need not show it. */
START_TEST(a_lane_that_closes_proves_nothing)
{
	struct fr_world w;
	struct control_hello h;
	uint64_t id = 0;

	fr_open(&w, 9, 8, UINT64_MAX);
	for (unsigned i = 0; i < 4; i++) {
		h = retaining(i / 2, i % 2, _i);
		h.features = i == 3 ? 2 : 0;
		id = fr_admit(&w, &h);
	}
	ck_assert_uint_eq(w.n[REGISTRY_START], !_i);
	if (_i) {
		registry_session_closed(w.r, id, 1, 1, false);
		fr_admit(&w, &h);
		ck_assert_uint_eq(w.n[REGISTRY_START], 0);
		registry_tick(w.r); /* the others wait for rank 1 */
		ck_assert_uint_eq(w.n[REGISTRY_TELL], 1);
		registry_lane_event(w.r, &(struct lane_event){.type = LANE_PROVEN, .job = id, .rank = 1, .lane = 1});
		ck_assert_uint_eq(w.n[REGISTRY_START], 1);
	}
	fr_close(&w);
}
END_TEST

/* For an error of this reducer alone, the worker gets a code that shows that others may
 * not have it; with and without retain. */
START_TEST(errors_of_one_reducer_have_the_code_cut)
{
	struct fr_world w;
	struct control_hello h;
	uint64_t id = 0;

	fr_open(&w, 9, 8, UINT64_MAX);
	for (unsigned i = 0; i < 4; i++) {
		h = retaining(i / 2, i % 2, false);
		h.retain = _i % 2;
		id = fr_admit(&w, &h);
	}
	if (_i / 2)
		registry_abort_all(w.r, &(struct rs_err){.code = RS_ECLOSED, .msg = "the reducer was stopped"});
	else
		registry_session_closed(w.r, id, 1, 0, false);
	ck_assert_uint_eq(w.n[REGISTRY_ABORT], 1);
	ck_assert_int_eq(w.last.why.code, _i % 2 ? RS_ECUT : _i / 2 ? RS_ECLOSED : RS_EPEER);
	fr_close(&w);
}
END_TEST

/* DRAIN is sent to running jobs that can continue on other reducers, and again once a
 * second. */
START_TEST(a_drain_is_sent_to_jobs_with_failover)
{
	struct fr_world w;
	struct control_hello h;
	struct frame f;
	struct rs_err e;
	uint64_t id = 0;

	fr_open(&w, 9, 8, UINT64_MAX);
	for (unsigned i = 0; i < 4; i++) {
		h = retaining(i / 2, i % 2, false);
		h.retain = _i < 2;
		id = fr_admit(&w, &h);
	}
	if (_i == 1)
		registry_drain(w.r);
	if (_i == 2) {
		registry_drain(w.r);
		registry_tick(w.r);
		ck_assert_uint_eq(w.n[REGISTRY_TELL], 0); /* it has no other reducer */
	} else {
		ck_assert_uint_eq(w.n[REGISTRY_TELL], 1);
		registry_tick(w.r);
		registry_tick(w.r);
		ck_assert_uint_eq(w.n[REGISTRY_TELL], 3);
		ck_assert_uint_eq(w.last.job.id, id);
		ck_assert_int_eq(frame_decode(w.frame, &f, &e), RS_OK);
		ck_assert_uint_eq(f.type, FRAME_DRAIN);
		ck_assert_uint_eq(f.generation, 4);
		/* nothing is sent to a job that has ended */
		registry_failed(w.r, id, &(struct rs_err){.code = RS_ECUT, .msg = "rank 1 was lost"}, NULL);
		registry_tick(w.r);
		ck_assert_uint_eq(w.n[REGISTRY_TELL], 3);
	}
	ck_assert_uint_eq(w.n[REGISTRY_ABORT], _i < 2);
	fr_close(&w);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("registry_retain");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, all_ranks_fail_over_or_none, 0, 2);
	tcase_add_loop_test(tc, rejoining_ranks_join_only_rejoining_ranks, 0, 2);
	tcase_add_test(tc, a_job_returns_to_a_reducer);
	tcase_add_loop_test(tc, start_waits_until_large_messages_pass, 0, sizeof probing / sizeof probing[0]);
	tcase_add_loop_test(tc, a_lane_that_closes_proves_nothing, 0, 2);
	tcase_add_loop_test(tc, errors_of_one_reducer_have_the_code_cut, 0, 4);
	tcase_add_loop_test(tc, a_drain_is_sent_to_jobs_with_failover, 1, 3);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
