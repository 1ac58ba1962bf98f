/* SPDX-License-Identifier: Apache-2.0 */
/* What the registry remembers of a job: NaN, lost ranks, and its record at the end. */
#include "tests/unit/fake_registry.h"

#include <check.h>
#include <string.h>

static void found(struct fr_world *w, uint64_t id, unsigned rank, bool nan, uint64_t seq, const char *what)
{
	struct lane_event ev = {.type = LANE_NONFINITE, .job = id, .rank = rank, .nan = nan, .seq = seq};

	strcpy(ev.why.msg, what);
	registry_lane_event(w->r, &ev);
}

static void expect_found(struct fr_world *w, const char *what)
{
	struct status *st = registry_status(w->r);

	ck_assert_ptr_nonnull(st);
	ck_assert_str_eq(st->reply.m.jobs[0]->nonfinite, what);
	status_free(st);
}

/* NaN spreads: the status keeps that of the lowest operation, and NaN before infinity. */
START_TEST(the_first_nan_is_kept)
{
	struct fr_world w;
	uint64_t id;

	fr_open(&w, 1, 2, UINT64_C(1) << 20);
	id = fr_admit_all(&w);
	expect_found(&w, "");
	found(&w, id, 0, false, 3, "infinity in 3");
	expect_found(&w, "infinity in 3");
	found(&w, id, 0, true, 9, "NaN in 9");
	found(&w, id, 1, true, 8, "NaN in 8");
	ck_assert_uint_eq(w.n[REGISTRY_NONFINITE], 3);
	ck_assert_uint_eq(w.last.rank, 1);
	ck_assert_str_eq(w.last.why.msg, "NaN in 8");
	found(&w, id, 1, false, 1, "infinity in 1");
	found(&w, id, 0, true, 10, "NaN in 10");
	expect_found(&w, "NaN in 8");
	fr_all_gone(&w, id, true);
	fr_close(&w);
}
END_TEST

/* A rank is lost once, although each of its lanes says so. */
START_TEST(lost_ranks_are_counted)
{
	struct lane_event ev = {.type = LANE_LOST, .rank = 1};
	struct fr_world w;
	struct status *st;

	fr_open(&w, 1, 2, UINT64_C(1) << 20);
	ev.job = fr_admit_all(&w);
	for (ev.lane = 0; ev.lane < 2; ev.lane++)
		registry_lane_event(w.r, &ev);
	st = registry_status(w.r);
	ck_assert_ptr_nonnull(st);
	ck_assert_uint_eq(st->reply.m.lost_ranks, 1);
	status_free(st);
	fr_all_gone(&w, ev.job, true);
	fr_close(&w);
}
END_TEST

/* What the registry says of a job when its last session is closed. */
START_TEST(an_ended_job_leaves_a_record)
{
	struct lane_event ev = {.type = LANE_CLOSED, .bytes_in = 100, .bytes_out = 10, .operations = 7};
	const struct rs_err why = {.code = RS_ECUT, .msg = "rank 1 was lost"};
	struct fr_world w;

	fr_open(&w, 1, 2, UINT64_C(1) << 20);
	registry_set_time(w.r, 1000);
	ev.job = fr_admit_all(&w);
	registry_set_time(w.r, 4000);
	for (unsigned i = 0; i < 4; i++) {
		ev.operations = 7 - i;
		registry_count(w.r, &ev);
	}
	if (_i)
		registry_failed(w.r, ev.job, &why, &(struct rs_cause){.code = RS_EPEER, .rank = 2});
	fr_all_gone(&w, ev.job, true);
	ck_assert_int_eq(w.last.type, REGISTRY_CLOSED);
	ck_assert_int_eq(w.last.record.how, _i ? STATUS_ENDED_LOST : STATUS_ENDED_FINISHED);
	ck_assert_uint_eq(w.last.record.rank, _i ? 2 : 0);
	ck_assert_uint_eq(w.last.record.running_ms, 3000);
	ck_assert_uint_eq(w.last.record.operations, 7);
	ck_assert_uint_eq(w.last.record.bytes_in, 400);
	ck_assert_uint_eq(w.last.record.bytes_out, 40);
	registry_count(w.r, &ev); /* of a job that is gone */
	fr_close(&w);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("registry_records");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, an_ended_job_leaves_a_record, 0, 2);
	tcase_add_test(tc, the_first_nan_is_kept);
	tcase_add_test(tc, lost_ranks_are_counted);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
