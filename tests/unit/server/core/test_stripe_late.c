/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that wait get LATE after a second and then once a second. Late ranks, and ranks
 * that do not read, get none. */
#include "tests/unit/fake_worker.h"

#include <stdlib.h>
#include <string.h>

/* Detection times are long: silence is not tested here. */
static const struct fw_options four = {.world = 4, .detect_ms = 3600000};

/* Passes time tick by tick; no rank is silent. */
static void pass(struct fw_world *fw, uint64_t ms)
{
	for (uint64_t t = 0; t < ms; t += LANE_TICK_MS)
		fw_tick(fw, LANE_TICK_MS);
}

/* Returns the next frame other than PING. False: none. */
static bool take(struct fw_world *fw, unsigned rank, struct frame *f, const uint8_t **payload)
{
	do {
		if (!fw_take(fw, rank, f, payload))
			return false;
	} while (f->type == FRAME_PING);
	return true;
}

static struct control_late expect_late(struct fw_world *fw, unsigned rank)
{
	struct control_late late;
	const uint8_t *payload;
	struct frame f;
	struct rs_err e;

	must(take(fw, rank, &f, &payload));
	must(f.type == FRAME_LATE);
	must(control_intact(&f, payload));
	must(control_unpack_late(payload, f.payload_len, &late, &e) == RS_OK);
	return late;
}

static void expect_silence(struct fw_world *fw, unsigned rank)
{
	const uint8_t *payload;
	struct frame f;

	ck_assert_msg(!take(fw, rank, &f, &payload), "rank %u got a %s", rank, frame_type_name(f.type));
}

START_TEST(waiting_ranks_get_the_late_ranks)
{
	struct fw_world fw;
	struct control_late late;
	struct frame f;

	fw_running(&fw, &four);
	f = fw_data(&fw, RS_SUM, RS_FLOAT32, 0, 16, 0);
	fw_contribute(&fw, 0, f);
	fw_contribute(&fw, 3, f);
	fw_feed_all(&fw, 1000);
	pass(&fw, 1000); /* the first tick notices it */
	for (unsigned r = 0; r < 4; r++)
		expect_silence(&fw, r);
	pass(&fw, 100);
	for (unsigned second = 1; second <= 30; second++) {
		for (unsigned r = 0; r < 4; r += 3) {
			late = expect_late(&fw, r);
			ck_assert_uint_eq(late.seq, 0);
			ck_assert_uint_eq(late.waited_ms, 1000 * second);
			ck_assert_uint_eq(late.missing_all, 2);
			ck_assert_uint_eq(late.missing_n, 2);
			ck_assert(late.missing[0] == 1 && late.missing[1] == 2);
			ck_assert_str_eq(late.label, "host-1");
		}
		for (unsigned r = 0; r < 4; r++)
			expect_silence(&fw, r);
		pass(&fw, 1000);
	}
	expect_late(&fw, 0);
	expect_late(&fw, 3);
	/* one of the two arrives: the time continues for the other */
	fw_contribute(&fw, 1, f);
	fw_feed_all(&fw, 1000);
	pass(&fw, 1000);
	late = expect_late(&fw, 1);
	ck_assert_uint_eq(late.waited_ms, 32000);
	ck_assert_uint_eq(late.missing_all, 1);
	ck_assert_uint_eq(late.missing[0], 2);
	ck_assert_str_eq(late.label, "host-2");
	expect_late(&fw, 0);
	expect_late(&fw, 3);
	expect_silence(&fw, 2);
	fw_contribute(&fw, 2, f);
	fw_feed_all(&fw, 1000);
	for (unsigned r = 0; r < 4; r++)
		fw_expect_result(&fw, r, f, 4);
	pass(&fw, 5000);
	for (unsigned r = 0; r < 4; r++)
		expect_silence(&fw, r);
	fw_close(&fw);
}
END_TEST

/* A slow rank that makes progress is not late. */
/* Ranks that have no chunk in common are at different operations. _i: the rank that is
 * ahead; 2: and is last to send.
 */
START_TEST(ranks_at_different_operations_are_both_named)
{
	struct fw_world fw;
	unsigned ahead = _i % 2;

	fw_running(&fw, &(struct fw_options){.world = 2, .priorities = 2, .detect_ms = 3600000});
	for (uint64_t seq = 0; seq < 3; seq++) {
		fw_contribute(&fw, ahead, fw_data(&fw, RS_SUM, RS_FLOAT32, seq + 5, 16, 0));
		fw_contribute(&fw, !ahead, fw_data(&fw, RS_SUM, RS_FLOAT32, seq, 16, 0));
		if (_i < 2)
			fw_feed_all(&fw, 50);
	}
	while (fw_feed(&fw, !ahead, 50))
		;
	fw_feed_all(&fw, 50);
	pass(&fw, 1000);
	ck_assert_uint_eq(fw.failed, 0);
	expect_silence(&fw, 0);
	expect_silence(&fw, 1);
	pass(&fw, LANE_TICK_MS);
	fw_expect_end(&fw, RS_EMISMATCH,
		      ahead ? "ranks disagree about operation 0: rank 0 (host-0) sent chunk 0 of it"
			    : "ranks disagree about operation 0: rank 1 (host-1) sent chunk 0 of it",
		      ahead ? "where rank 1 (host-1) sent chunk 0 of operation 5"
			    : "where rank 0 (host-0) sent chunk 0 of operation 5");
}
END_TEST

/* A rank that has sent urgent chunks only may still send the others. */
START_TEST(a_rank_ahead_in_one_priority_is_only_late)
{
	struct fw_world fw;
	struct frame f;

	fw_running(&fw, &(struct fw_options){.world = 2, .priorities = 2, .detect_ms = 3600000});
	fw_contribute(&fw, 0, fw_data(&fw, RS_SUM, RS_FLOAT32, 0, 16, 0));
	for (uint64_t seq = 1; seq < 3; seq++) {
		f = fw_data(&fw, RS_SUM, RS_FLOAT32, seq, 16, 0);
		f.of.priority = 1;
		fw_contribute(&fw, 1, f);
	}
	fw_feed_all(&fw, 50);
	pass(&fw, 2500);
	ck_assert_uint_eq(fw.failed, 0);
	ck_assert_uint_eq(expect_late(&fw, 0).seq, 0);
	fw_close(&fw);
}
END_TEST

START_TEST(progress_is_not_late)
{
	struct fw_world fw;
	const uint8_t *payload;
	struct frame f, got;

	fw_running(&fw, &(struct fw_options){.world = 2, .detect_ms = 3600000});
	for (uint64_t seq = 0; seq < 50; seq++) {
		f = fw_data(&fw, RS_SUM, RS_FLOAT32, seq, 16, 0);
		fw_contribute(&fw, 0, f);
		fw_feed_all(&fw, 1000);
		pass(&fw, 900);
		fw_contribute(&fw, 1, f);
		fw_feed_all(&fw, 1000);
		for (unsigned r = 0; r < 2; r++) {
			must(take(&fw, r, &got, &payload));
			must(got.type == FRAME_RESULT);
			expect_silence(&fw, r);
		}
	}
	fw_close(&fw);
}
END_TEST

/* The first bytes of the contribution have arrived, the last have not. */
START_TEST(an_incomplete_contribution_is_missing)
{
	struct fw_world fw;
	struct frame f;

	fw_running(&fw, &(struct fw_options){.world = 2, .detect_ms = 3600000});
	f = fw_data(&fw, RS_SUM, RS_FLOAT32, 0, 16, 0);
	fw_contribute(&fw, 0, f);
	fw_feed_all(&fw, 1000);
	fw_contribute(&fw, 1, f);
	fw_feed(&fw, 1, FRAME_HEADER + 20);
	pass(&fw, 1100);
	ck_assert_uint_eq(expect_late(&fw, 0).missing[0], 1);
	expect_silence(&fw, 1);
	fw_feed_all(&fw, 1000);
	fw_expect_result(&fw, 0, f, 2);
	fw_close(&fw);
}
END_TEST

START_TEST(late_names_the_oldest_operation)
{
	struct fw_world fw;
	struct frame oldest;

	fw_running(&fw, &(struct fw_options){.world = 2, .priorities = 4, .detect_ms = 3600000});
	oldest = fw_data(&fw, RS_SUM, RS_FLOAT32, 0, 16, 0);
	for (uint64_t seq = 3; seq > 0; seq--) {
		struct frame f = fw_data(&fw, RS_SUM, RS_FLOAT32, seq, 16, 0);

		f.of.priority = (uint8_t)(3 - seq); /* operations of one priority are in order */
		fw_contribute(&fw, 0, f);
	}
	fw_feed_all(&fw, 1000);
	pass(&fw, 1100);
	ck_assert_uint_eq(expect_late(&fw, 0).seq, 1);
	/* also if it arrives last, long after the others began to wait */
	oldest.of.priority = 3;
	fw_contribute(&fw, 0, oldest);
	fw_feed_all(&fw, 1000);
	pass(&fw, 1100);
	ck_assert_uint_eq(expect_late(&fw, 0).seq, 0);
	expect_silence(&fw, 0);
	fw_close(&fw);
}
END_TEST

START_TEST(many_late_ranks_are_counted)
{
	struct control_late late;
	struct fw_world fw;

	fw_running(&fw, &(struct fw_options){.world = FAKE_WORLD_MAX, .detect_ms = 3600000});
	fw_contribute(&fw, 40, fw_data(&fw, RS_SUM, RS_FLOAT32, 0, 16, 0));
	fw_feed_all(&fw, 1000);
	pass(&fw, 1100);
	late = expect_late(&fw, 40);
	ck_assert_uint_eq(late.missing_all, FAKE_WORLD_MAX - 1);
	ck_assert_uint_eq(late.missing_n, CONTROL_MISSING);
	for (unsigned i = 0; i < CONTROL_MISSING; i++)
		ck_assert_uint_eq(late.missing[i], i);
	fw_close(&fw);
}
END_TEST

/* A rank that does not read has at most one LATE queued, and ABORT still fits behind
 * it. */
START_TEST(a_rank_that_does_not_read_gets_one_late)
{
	struct fw_world fw;
	const uint8_t *payload;
	struct frame f;
	unsigned lates = 0;

	fw_running(&fw, &(struct fw_options){.world = 2, .detect_ms = 3600000});
	fw_contribute(&fw, 0, fw_data(&fw, RS_SUM, RS_FLOAT32, 0, 16, 0));
	fw_feed_all(&fw, 1000);
	fw_grant(&fw, 0, 0);
	pass(&fw, 60000);
	ck_assert_uint_eq(fw.failed, 0);
	fw_abort(&fw, RS_ECLOSED, "over");
	fw_grant(&fw, 0, SIZE_MAX);
	while (take(&fw, 0, &f, &payload) && f.type == FRAME_LATE)
		lates++;
	ck_assert_uint_eq(f.type, FRAME_ABORT);
	ck_assert_uint_le(lates, 1);
	fw_close(&fw);
}
END_TEST

/* Time in which this process stood still does not count as waiting. */
START_TEST(time_in_which_the_reducer_stood_still_is_not_counted)
{
	struct fw_world fw;

	fw_running(&fw, &(struct fw_options){.world = 2, .detect_ms = 2000});
	fw_contribute(&fw, 0, fw_data(&fw, RS_SUM, RS_FLOAT32, 0, 16, 0));
	fw_feed_all(&fw, 1000);
	pass(&fw, 500);
	fw_tick(&fw, 60000);
	expect_silence(&fw, 0);
	for (unsigned i = 0; i < 10; i++) {
		fw_send_type(&fw, 0, FRAME_PING);
		fw_send_type(&fw, 1, FRAME_PING);
		fw_feed_all(&fw, 1000);
		pass(&fw, 100);
	}
	ck_assert_uint_eq(expect_late(&fw, 0).waited_ms, 1000);
	fw_close(&fw);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("stripe_late");
	TCase *t = tcase_create("stripe_late");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_set_timeout(t, 60);
	tcase_add_test(t, waiting_ranks_get_the_late_ranks);
	tcase_add_loop_test(t, ranks_at_different_operations_are_both_named, 0, 3);
	tcase_add_test(t, a_rank_ahead_in_one_priority_is_only_late);
	tcase_add_test(t, progress_is_not_late);
	tcase_add_test(t, an_incomplete_contribution_is_missing);
	tcase_add_test(t, late_names_the_oldest_operation);
	tcase_add_test(t, many_late_ranks_are_counted);
	tcase_add_test(t, a_rank_that_does_not_read_gets_one_late);
	tcase_add_test(t, time_in_which_the_reducer_stood_still_is_not_counted);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
