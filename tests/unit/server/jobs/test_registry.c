/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a job: its ranks join, leave and are lost, generations replace each other,
 * the reducer drains. */
#include "tests/unit/fake_registry.h"

#include <check.h>
#include <string.h>

START_TEST(a_job_gathers_runs_and_closes)
{
	struct fr_world w;
	uint64_t id;

	fr_open(&w, 1, 2, UINT64_C(1) << 20);
	id = fr_admit_all(&w);
	ck_assert_uint_eq(w.n[REGISTRY_OPENED], 1);
	ck_assert_str_eq(w.name, "train");
	ck_assert_uint_eq(w.last.job.id, id);
	ck_assert_uint_eq(w.last.job.generation, 4);
	ck_assert_uint_eq(w.last.job.world_size, 2);
	ck_assert_uint_eq(w.last.job.lanes, 2);
	ck_assert_uint_eq(w.last.job.processes, 3);
	ck_assert_uint_eq(w.allocated, 2 * FR_JOB_BYTES);
	/* two lanes with two ranks each */
	ck_assert_uint_gt(w.last.job.memory, 2 * FR_JOB_BYTES + 4 * FR_CONNECTION_BYTES);
	registry_admitted(w.r, id);
	registry_tick(w.r);
	ck_assert_uint_eq(w.n[REGISTRY_START], 1);
	ck_assert_uint_eq(w.n[REGISTRY_TELL], 0);
	fr_all_gone(&w, id, true);
	ck_assert_uint_eq(w.n[REGISTRY_ABORT], 0);
	/* events of a closed job are ignored */
	registry_session_closed(w.r, id, 0, 0, false);
	registry_failed(w.r, id, &(struct rs_err){.code = RS_EPEER, .msg = "x"}, NULL);
	registry_admitted(w.r, id);
	/* the same name and generation again, under another number */
	memset(w.n, 0, sizeof w.n);
	ck_assert_uint_ne(fr_admit_all(&w), id);
	fr_close(&w);
}
END_TEST

START_TEST(lanes_have_their_own_memory_and_threads)
{
	struct fr_world w;
	struct registry_admit a[2];
	struct control_refused no;

	fr_open(&w, 1, 2, UINT64_C(1) << 20);
	for (unsigned lane = 0; lane < 2; lane++) {
		struct control_hello h = fr_hello(1, lane);

		ck_assert_int_eq(registry_hello(w.r, &h, &a[lane], &no), RS_OK);
		ck_assert_uint_eq(stripe_memory(&a[lane].stripe), FR_JOB_BYTES);
		ck_assert_uint_eq(a[lane].stripe.generation, 4);
		ck_assert_uint_eq(a[lane].stripe.window, FR_WINDOW);
		ck_assert_uint_eq(a[lane].stripe.priorities, FR_PRIORITIES);
		ck_assert_uint_eq(a[lane].stripe.chunk_bytes, FR_CHUNK);
		ck_assert_uint_lt(a[lane].thread, 3);
	}
	ck_assert_ptr_eq(a[1].stripe.memory, a[0].stripe.memory + FR_JOB_BYTES);
	ck_assert_uint_ne(a[0].thread, a[1].thread);
	fr_close(&w);
}
END_TEST

/* The worker's detection time is used if it is in the valid range. */
START_TEST(detect_is_clamped)
{
	static const struct {
		uint32_t said, taken;
	} rows[] = {{1, 400}, {399, 400}, {5000, 5000}, {UINT32_MAX, 3600000}};
	struct fr_world w;
	struct registry_admit a;
	struct control_refused no;
	struct control_hello h = fr_hello(0, 0);

	fr_open(&w, 1, 2, UINT64_C(1) << 20);
	h.detect_ms = rows[_i].said;
	ck_assert_int_eq(registry_hello(w.r, &h, &a, &no), RS_OK);
	ck_assert_uint_eq(a.session.peer_detect_ms, rows[_i].taken);
	fr_close(&w);
}
END_TEST

/* A rank that returns before the others have left must not join the old run: it would
 * never get START. */
START_TEST(a_running_job_admits_no_worker)
{
	struct fr_world w;
	struct control_hello h = fr_hello(0, 0);
	uint64_t id;

	fr_open(&w, 1, 8, UINT64_MAX);
	id = fr_admit_all(&w);
	registry_session_closed(w.r, id, 0, 0, true);
	registry_session_closed(w.r, id, 0, 1, true);
	h.incarnation = 6;
	fr_refused(&w, &h, RS_EREFUSED, true,
		   "rank 0 has left generation 4 of job train, which still runs on other ranks");
	registry_session_closed(w.r, id, 1, 0, true);
	registry_session_closed(w.r, id, 1, 1, true);
	ck_assert_uint_eq(w.n[REGISTRY_CLOSED], 1);
	ck_assert_uint_ne(fr_admit(&w, &h), id);
	fr_close(&w);
}
END_TEST

/* Somebody starts one process with the name of a job that runs, and nothing says that it
 * is the same training. */
START_TEST(a_single_process_without_a_run_ends_no_job)
{
	static const char says[] =
	    "generation 4 of job train runs with 2 ranks; rank 0 of 1 came with generation 6, and no run";
	struct fr_world w;
	struct control_hello h = fr_hello(0, 0);
	uint64_t id;

	fr_open(&w, 9, 8, UINT64_MAX);
	id = fr_admit_all(&w);
	h.generation = 6;
	h.incarnation = 7;
	h.world_size = 1;
	fr_refused(&w, &h, RS_EREFUSED, true, says);
	registry_lane_event(
	    w.r, &(struct lane_event){.type = LANE_ANSWERED, .job = id, .rank = w.last.rank, .question = w.question});
	fr_refused(&w, &h, RS_EREFUSED, false, says);
	ck_assert_uint_eq(w.n[REGISTRY_ABORT], 0);
	registry_failed(w.r, id, &(struct rs_err){.code = RS_EPEER, .msg = "rank 0 was lost: reset"}, NULL);
	ck_assert_uint_ne(fr_admit(&w, &h), id);
	fr_close(&w);
}
END_TEST

START_TEST(generations_replace_each_other)
{
	struct fr_world w;
	struct control_hello h = fr_hello(0, 0);
	uint64_t id, next;

	fr_open(&w, 9, 8, UINT64_MAX);
	id = _i ? fr_admit_all(&w) : fr_admit(&w, &h);
	h.generation = 3;
	fr_refused(&w, &h, RS_EREFUSED, false, "job train is at generation 4 already, rank 0 came with generation 3");
	h.generation = 6;
	h.incarnation = 7;
	h.lanes = 1;
	next = fr_admit(&w, &h);
	ck_assert_uint_ne(next, id);
	ck_assert_uint_eq(w.n[REGISTRY_ABORT], 1);
	ck_assert_uint_eq(w.n[REGISTRY_START], _i);
	ck_assert_uint_eq(registry_jobs(w.r), 2);
	strcpy(h.job, "other");
	h.generation = 1;
	fr_admit(&w, &h);
	ck_assert_uint_eq(w.n[REGISTRY_ABORT], 1);
	/* the old generation has ended, but its workers are still connected */
	h = fr_hello(0, 0);
	h.incarnation = 8;
	fr_refused(&w, &h, RS_EREFUSED, false, "job train is at generation 6 already");
	registry_failed(w.r, next, &(struct rs_err){.code = RS_EPEER, .msg = "rank 0 was lost: reset"}, NULL);
	ck_assert_uint_eq(w.n[REGISTRY_ABORT], 2);
	ck_assert_str_eq(w.last.why.msg, "rank 0 was lost: reset");
	h.generation = 6;
	fr_refused(&w, &h, RS_EREFUSED, true, "generation 6 of job train has ended (rank 0 was lost: reset)");
	registry_session_closed(w.r, next, 0, 0, false);
	fr_admit(&w, &h);
	fr_close(&w);
}
END_TEST

START_TEST(a_rank_may_leave_and_return_while_the_job_gathers)
{
	struct fr_world w;
	struct control_hello h[4];
	uint64_t id = 0;

	fr_open(&w, 1, 8, UINT64_MAX);
	for (unsigned i = 0; i < 4; i++)
		h[i] = fr_hello(i / 2, i % 2);
	for (unsigned i = 0; i < 3; i++)
		id = fr_admit(&w, &h[i]);
	registry_session_closed(w.r, id, 0, 1, _i);
	fr_admit(&w, &h[3]);
	ck_assert_uint_eq(w.n[REGISTRY_START], 0);
	/* its other lane is still open: it is the same process or none */
	h[1].incarnation = 5;
	fr_refused(&w, &h[1], RS_EREFUSED, true, "already taken");
	registry_session_closed(w.r, id, 0, 0, _i);
	h[0].incarnation = 5;
	h[0].processes = 40;
	h[1].processes = 40;
	fr_admit(&w, &h[0]);
	ck_assert_uint_eq(w.n[REGISTRY_START], 0);
	fr_admit(&w, &h[1]);
	ck_assert_uint_eq(w.n[REGISTRY_START], 1);
	ck_assert_uint_eq(w.last.job.processes, 42);
	ck_assert_uint_eq(w.n[REGISTRY_ABORT], 0);
	fr_all_gone(&w, id, true);
	fr_close(&w);
}
END_TEST

START_TEST(a_loss_that_crosses_start_ends_the_job)
{
	struct fr_world w;
	struct control_hello h = fr_hello(1, 1);
	uint64_t id;

	fr_open(&w, 1, 8, UINT64_MAX);
	id = fr_admit_all(&w);
	registry_session_closed(w.r, id, 1, 0, false);
	ck_assert_uint_eq(w.n[REGISTRY_ABORT], 1);
	ck_assert_str_eq(w.last.why.msg, "rank 1 was lost while the job was starting");
	fr_refused(&w, &h, RS_EREFUSED, true, "has ended");
	registry_failed(w.r, id, &(struct rs_err){.code = RS_EPEER, .msg = "another reason"}, NULL);
	registry_session_closed(w.r, id, 1, 1, false);
	ck_assert_uint_eq(w.n[REGISTRY_ABORT], 1);
	fr_close(&w);
}
END_TEST

START_TEST(waiting_names_missing_ranks)
{
	struct fr_world w;
	struct control_hello h = fr_hello(0, 0);
	struct control_waiting got;
	struct frame f;
	struct rs_err e;
	uint64_t id;

	fr_open(&w, 2, 100, UINT64_MAX);
	h.world_size = 40;
	id = fr_admit(&w, &h);
	h.lane = 1;
	fr_admit(&w, &h);
	h = fr_hello(2, 1);
	h.world_size = 40;
	fr_admit(&w, &h);
	registry_tick(w.r);
	ck_assert_uint_eq(w.n[REGISTRY_TELL], 1);
	ck_assert_uint_eq(w.last.job.id, id);
	ck_assert_int_eq(frame_decode(w.frame, &f, &e), RS_OK);
	ck_assert_uint_eq(f.type, FRAME_WAITING);
	ck_assert_uint_eq(f.generation, 4);
	ck_assert_uint_eq(f.payload_len + FRAME_HEADER, w.last.frame_len);
	ck_assert_int_eq(control_unpack_waiting(w.frame + FRAME_HEADER, f.payload_len, &got, &e), RS_OK);
	ck_assert_uint_eq(got.joined, 1);
	ck_assert_uint_eq(got.world_size, 40);
	ck_assert_uint_eq(got.missing_n, CONTROL_MISSING);
	/* rank 2 has one of its two lanes */
	for (unsigned i = 0; i < CONTROL_MISSING; i++)
		ck_assert_uint_eq(got.missing[i], i + 1);
	ck_assert_str_eq(got.refused, "");
	/* a refused rank is reported at once, further ones with the next tick; one that
	 * may retry is not */
	h.window = 5;
	for (unsigned i = 0; i < 2; i++) {
		fr_refused(&w, &h, RS_EMISMATCH, false, "ranks 2 and 0 of job train are configured differently: ");
		ck_assert_uint_eq(w.n[REGISTRY_TELL], 2);
	}
	ck_assert_int_eq(frame_decode(w.frame, &f, &e), RS_OK);
	ck_assert_int_eq(control_unpack_waiting(w.frame + FRAME_HEADER, f.payload_len, &got, &e), RS_OK);
	ck_assert_ptr_nonnull(strstr(got.refused, "window 5 and 2"));
	registry_abort_all(w.r, &(struct rs_err){.code = RS_ECLOSED, .msg = "stop"});
	registry_tick(w.r);
	ck_assert_uint_eq(w.n[REGISTRY_TELL], 2);
	fr_close(&w);
}
END_TEST

START_TEST(all_64_lanes_join)
{
	struct fr_world w;
	struct control_hello h = fr_hello(0, 0);
	struct control_waiting got;
	struct rs_err e;

	fr_open(&w, 2, 100, UINT64_MAX);
	h.world_size = 1;
	h.lanes = 64;
	for (h.lane = 0; h.lane < 63; h.lane++)
		fr_admit(&w, &h);
	registry_tick(w.r);
	ck_assert_int_eq(control_unpack_waiting(w.frame + FRAME_HEADER, w.last.frame_len - FRAME_HEADER, &got, &e),
			 RS_OK);
	ck_assert_uint_eq(got.joined, 0);
	ck_assert_uint_eq(got.missing_n, 1);
	fr_admit(&w, &h);
	ck_assert_uint_eq(w.n[REGISTRY_START], 1);
	fr_close(&w);
}
END_TEST

START_TEST(a_drain_ends_a_job_that_only_gathers)
{
	struct fr_world w;
	struct control_hello h = fr_hello(0, 0);
	uint64_t id;

	fr_open(&w, 9, 8, UINT64_MAX);
	h.retain = _i;
	id = fr_admit(&w, &h);
	registry_drain(w.r);
	ck_assert_uint_eq(w.n[REGISTRY_ABORT], 1);
	/* a rank that has other reducers tries again, and may find the next process */
	ck_assert_int_eq(w.last.why.code, _i ? RS_ECUT : RS_ECLOSED);
	ck_assert_str_eq(w.last.why.msg, "the reducer was stopped before all ranks had joined");
	registry_session_closed(w.r, id, 0, 0, true);
	ck_assert_uint_eq(registry_jobs(w.r), 0);
	fr_close(&w);
}
END_TEST

START_TEST(a_drain_lets_jobs_end)
{
	struct fr_world w;
	struct control_hello h = fr_hello(0, 0), other = fr_hello(0, 0);
	uint64_t id;

	fr_open(&w, 9, 8, UINT64_MAX);
	id = fr_admit(&w, &h);
	for (unsigned i = 1; i < 4; i++) {
		h = fr_hello(i / 2, i % 2);
		fr_admit(&w, &h);
	}
	ck_assert_uint_eq(w.n[REGISTRY_START], 1);
	registry_drain(w.r);
	strcpy(other.job, "other");
	fr_refused(&w, &other, RS_ECLOSED, true, "this reducer is shutting down");
	ck_assert_uint_eq(w.n[REGISTRY_ABORT], 0);
	registry_abort_all(w.r, &(struct rs_err){.code = RS_ECLOSED, .msg = "the reducer was stopped"});
	registry_abort_all(w.r, &(struct rs_err){.code = RS_ECLOSED, .msg = "the reducer was stopped"});
	ck_assert_uint_eq(w.n[REGISTRY_ABORT], 1);
	ck_assert_str_eq(w.last.why.msg, "the reducer was stopped");
	fr_all_gone(&w, id, false);
	fr_close(&w);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("registry");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_test(tc, a_job_gathers_runs_and_closes);
	tcase_add_test(tc, lanes_have_their_own_memory_and_threads);
	tcase_add_loop_test(tc, detect_is_clamped, 0, 4);
	tcase_add_test(tc, a_running_job_admits_no_worker);
	tcase_add_loop_test(tc, generations_replace_each_other, 0, 2);
	tcase_add_test(tc, a_single_process_without_a_run_ends_no_job);
	tcase_add_loop_test(tc, a_rank_may_leave_and_return_while_the_job_gathers, 0, 2);
	tcase_add_test(tc, a_loss_that_crosses_start_ends_the_job);
	tcase_add_test(tc, waiting_names_missing_ranks);
	tcase_add_test(tc, all_64_lanes_join);
	tcase_add_test(tc, a_drain_lets_jobs_end);
	tcase_add_loop_test(tc, a_drain_ends_a_job_that_only_gathers, 0, 2);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
