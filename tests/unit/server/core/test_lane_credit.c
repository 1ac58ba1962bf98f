/* SPDX-License-Identifier: Apache-2.0 */
/* CREDIT: a lane says which contributions it has added, to ranks that wait for others. */
#include "proto/features.h"
#include "tests/unit/fake_lane_views.h"

#include <check.h>

enum { DECOUPLED = FEATURE_START | FEATURE_DECOUPLED, ELEMS = 16, CHUNK = FRAME_HEADER + ELEMS * 4 };

static struct frame chunk_of(const struct fw_world *fw, uint64_t seq, unsigned priority)
{
	struct frame f = fw_data(fw, RS_SUM, RS_FLOAT32, seq, ELEMS, 0);

	f.of.priority = (uint8_t)priority;
	return f;
}

static void expect_credit(struct fw_world *fw, unsigned rank, unsigned priority, uint64_t count)
{
	struct frame f = fw_expect(fw, rank, FRAME_CREDIT);

	ck_assert_uint_eq(f.of.priority, priority);
	ck_assert_uint_eq(f.of.count, count);
	ck_assert_uint_eq(f.payload_len, 0);
}

/* One CREDIT for what comes together; none for the last rank, which gets the result. */
START_TEST(a_rank_that_waits_is_told)
{
	struct fw_world fw;

	fw_running(&fw, &(struct fw_options){.features = DECOUPLED, .window = 8, .deterministic = _i});
	for (uint64_t seq = 0; seq < 3; seq++)
		fw_contribute(&fw, 0, chunk_of(&fw, seq, 0));
	fw_feed_all(&fw, SIZE_MAX);
	expect_credit(&fw, 0, 0, 3);
	fw_expect_nothing(&fw, 0);
	fw_contribute(&fw, 0, chunk_of(&fw, 3, 0));
	for (uint64_t seq = 0; seq < 3; seq++)
		fw_contribute(&fw, 1, chunk_of(&fw, seq, 0));
	fw_feed_all(&fw, SIZE_MAX);
	expect_credit(&fw, 0, 0, 4);
	for (unsigned r = 0; r < 2; r++) {
		for (uint64_t seq = 0; seq < 3; seq++)
			fw_expect_result(&fw, r, chunk_of(&fw, seq, 0), 2);
		fw_expect_nothing(&fw, r);
	}
	fw_contribute(&fw, 1, chunk_of(&fw, 3, 0));
	fw_feed_all(&fw, SIZE_MAX);
	for (unsigned r = 0; r < 2; r++)
		fw_expect_result(&fw, r, chunk_of(&fw, 3, 0), 2);
	fw_say_goodbye(&fw);
}
END_TEST

/* A contribution that has not come completely is not added. */
START_TEST(only_complete_chunks_count)
{
	struct fw_world fw;

	fw_running(&fw, &(struct fw_options){.features = DECOUPLED});
	fw_contribute(&fw, 0, chunk_of(&fw, 0, 0));
	fw_contribute(&fw, 0, chunk_of(&fw, 1, 0));
	ck_assert_uint_eq(fw_feed(&fw, 0, 2 * CHUNK - 1), 2 * CHUNK - 1);
	expect_credit(&fw, 0, 0, 1);
	fw_expect_nothing(&fw, 0);
	fw_feed_all(&fw, SIZE_MAX);
	expect_credit(&fw, 0, 0, 2);
	fw_close(&fw);
}
END_TEST

START_TEST(each_priority_is_counted)
{
	struct fw_world fw;

	fw_running(&fw, &(struct fw_options){.features = DECOUPLED, .priorities = 3});
	fw_contribute(&fw, 0, chunk_of(&fw, 0, 2));
	fw_contribute(&fw, 0, chunk_of(&fw, 1, 0));
	fw_contribute(&fw, 0, chunk_of(&fw, 2, 2));
	fw_feed_all(&fw, SIZE_MAX);
	expect_credit(&fw, 0, 0, 1);
	expect_credit(&fw, 0, 2, 2);
	fw_expect_nothing(&fw, 0);
	fw_close(&fw);
}
END_TEST

/* Ranks that read no START do not know of CREDIT. */
static const uint64_t others[] = {0, FEATURE_START, FEATURE_DECOUPLED, FEATURE_RELAYS,
				  FEATURES_ALL & ~(FEATURE_DECOUPLED | FEATURE_RELAYS)};

START_TEST(other_jobs_get_none)
{
	struct fw_world fw;

	fw_running(&fw, &(struct fw_options){.features = others[_i]});
	fw_contribute(&fw, 0, chunk_of(&fw, 0, 0));
	fw_feed_all(&fw, SIZE_MAX);
	fw_expect_nothing(&fw, 0);
	fw_close(&fw);
}
END_TEST

/* So do jobs with relays, behind which a chunk is under way for longer. _i: uplinks */
START_TEST(jobs_with_relays_get_it)
{
	struct fw_world fw;

	fw_running(&fw, &(struct fw_options){.features = FEATURE_START | FEATURE_RELAYS, .uplinks = (unsigned)_i});
	fw_contribute(&fw, 0, chunk_of(&fw, 0, 0));
	fw_feed_all(&fw, SIZE_MAX);
	if (_i)
		expect_credit(&fw, 0, 0, 1);
	fw_expect_nothing(&fw, 0);
	fw_close(&fw);
}
END_TEST

/* A CREDIT is stuck in a full socket: then there is one for all that came since, or none
 * if their results are there. */
START_TEST(credits_gather_while_a_socket_is_full)
{
	struct fw_world fw;

	fw_running(&fw, &(struct fw_options){.features = DECOUPLED});
	fw.w[0].room = 0;
	for (uint64_t seq = 0; seq < 4; seq++) {
		fw_contribute(&fw, 0, chunk_of(&fw, seq, 0));
		fw_feed_all(&fw, SIZE_MAX);
	}
	if (_i)
		for (uint64_t seq = 0; seq < 4; seq++)
			fw_contribute(&fw, 1, chunk_of(&fw, seq, 0));
	fw_feed_all(&fw, SIZE_MAX);
	fw_grant(&fw, 0, SIZE_MAX);
	expect_credit(&fw, 0, 0, 1);
	if (_i == 0)
		expect_credit(&fw, 0, 0, 4);
	for (uint64_t seq = 0; _i && seq < 4; seq++)
		fw_expect_result(&fw, 0, chunk_of(&fw, seq, 0), 2);
	fw_expect_nothing(&fw, 0);
	fw_close(&fw);
}
END_TEST

/* The count begins at RESUME again, and HAVE counts. */
START_TEST(resume_begins_a_new_count)
{
	struct fw_world fw;

	lv_running(&fw, (struct fw_options){.features = DECOUPLED});
	fw_contribute(&fw, 0, chunk_of(&fw, 0, 0));
	fw_contribute(&fw, 0, chunk_of(&fw, 1, 0));
	fw_feed_all(&fw, SIZE_MAX);
	expect_credit(&fw, 0, 0, 2);
	fw.w[0].room = 0;
	fw_contribute(&fw, 0, chunk_of(&fw, 2, 0));
	fw_feed_all(&fw, SIZE_MAX);
	lv_send(&fw, 0, lv_of(0, 1, 0));
	fw_grant(&fw, 0, SIZE_MAX);
	expect_credit(&fw, 0, 0, 3); /* it was queued before VIEW came */
	lv_expect(&fw, 1, FRAME_VIEW, lv_of(0, 1, 0));
	lv_send(&fw, 1, lv_of(0, 1, 0));
	for (unsigned r = 0; r < 2; r++)
		lv_expect(&fw, r, FRAME_RESUME, lv_of(0, 1, 0));
	fw_have(&fw, 0, chunk_of(&fw, 0, 0));
	fw_feed_all(&fw, SIZE_MAX);
	expect_credit(&fw, 0, 0, 1);
	fw_contribute(&fw, 0, chunk_of(&fw, 1, 0));
	fw_feed_all(&fw, SIZE_MAX);
	expect_credit(&fw, 0, 0, 2);
	fw_close(&fw);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("lane_credit");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, a_rank_that_waits_is_told, 0, 2);
	tcase_add_test(tc, only_complete_chunks_count);
	tcase_add_test(tc, each_priority_is_counted);
	tcase_add_loop_test(tc, other_jobs_get_none, 0, sizeof others / sizeof others[0]);
	tcase_add_loop_test(tc, jobs_with_relays_get_it, 0, 2);
	tcase_add_loop_test(tc, credits_gather_while_a_socket_is_full, 0, 2);
	tcase_add_test(tc, resume_begins_a_new_count);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
