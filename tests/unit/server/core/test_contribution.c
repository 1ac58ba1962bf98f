/* SPDX-License-Identifier: Apache-2.0 */
/* The order and number of contributions, and the errors of ranks that break these
 * rules. */
#include "tests/unit/fake_worker.h"

#include <check.h>

START_TEST(contributions_come_in_order_and_once)
{
	/* frames of rank 1: operation, chunk; the last one is wrong */
	static const struct {
		uint64_t seq[3];
		uint32_t chunk[3];
		unsigned n;
	} rows[] = {
	    {{0, 0}, {0, 0}, 2},
	    {{0, 0}, {1, 0}, 2},
	    {{1, 0}, {0, 1}, 2},
	    {{0, 1, 1}, {1, 0, 0}, 3},
	    {{FRAME_SEQ_MAX, 0}, {0, 0}, 2},
	};
	struct fw_world fw;
	unsigned peers = (unsigned)_i % 2 ? 1 : 2;

	/* with and without the other rank's contribution, so that the slot exists or
	 * not */
	_i /= 2;
	fw_running(&fw, &(struct fw_options){.world = 2});
	for (unsigned i = 0; i + 1 < rows[_i].n; i++)
		for (unsigned r = 2 - peers; r < 2; r++)
			fw_contribute(&fw, r, fw_data(&fw, RS_SUM, RS_FLOAT32, rows[_i].seq[i], 32, rows[_i].chunk[i]));
	fw_feed_all(&fw, 100);
	for (unsigned i = 0; i + 1 < rows[_i].n && peers == 2; i++)
		for (unsigned r = 0; r < 2; r++)
			fw_expect(&fw, r, FRAME_RESULT);
	fw_contribute(
	    &fw, 1, fw_data(&fw, RS_SUM, RS_FLOAT32, rows[_i].seq[rows[_i].n - 1], 32, rows[_i].chunk[rows[_i].n - 1]));
	fw_feed_all(&fw, 100);
	fw_expect_end(&fw, RS_EPROTO, "rank 1 (host-1)", "out of order or twice");
}
END_TEST

/* The order holds within a priority only. */
START_TEST(priorities_overtake_each_other)
{
	static const struct {
		uint64_t seq;
		uint8_t priority;
	} sent[] = {{5, 0}, {3, 2}, {4, 2}, {2, 1}, {6, 0}};
	struct fw_world fw;
	struct frame f;

	fw_running(&fw, &(struct fw_options){.world = 2, .priorities = 3, .window = 5});
	for (unsigned i = 0; i < 5; i++)
		for (unsigned r = 0; r < 2; r++) {
			f = fw_data(&fw, RS_SUM, RS_FLOAT32, sent[i].seq, 16, 0);
			f.of.priority = sent[i].priority;
			fw_contribute(&fw, r, f);
			fw_feed_all(&fw, 33);
			if (r == 1) {
				fw_expect_result(&fw, 0, f, 2);
				fw_expect_result(&fw, 1, f, 2);
			}
		}
	f = fw_data(&fw, RS_SUM, RS_FLOAT32, 1, 16, 0);
	f.of.priority = 1;
	fw_contribute(&fw, 0, f);
	fw_feed_all(&fw, 33);
	fw_expect_end(&fw, RS_EPROTO, "rank 0 (host-0) sent chunk 0 of operation 1 out of order or twice",
		      "its last one was chunk 0 of operation 2");
}
END_TEST

START_TEST(the_window_is_enforced)
{
	static const unsigned windows[] = {1, 2, 16};
	struct fw_world fw;

	fw_running(&fw, &(struct fw_options){.world = 2, .window = windows[_i]});
	for (unsigned i = 0; i <= windows[_i]; i++)
		fw_contribute(&fw, 1, fw_data(&fw, RS_SUM, RS_FLOAT32, i, 1, 0));
	fw_feed_all(&fw, 100);
	ck_assert_uint_eq(fw.slots_seen_max, windows[_i]);
	fw_expect_end(&fw, RS_EPROTO, "rank 1 (host-1) has more than", "chunks without a result");
}
END_TEST

/* A full window of one priority leaves only the reserve for the others. */
START_TEST(each_priority_has_a_reserve)
{
	static const struct {
		unsigned window, reserve;
	} rows[] = {{1, 1}, {2, 1}, {15, 1}, {16, 2}, {32, 4}};
	unsigned window = rows[_i].window, reserve = rows[_i].reserve;
	struct fw_world fw;
	struct frame f;
	uint64_t seq = 0;

	fw_running(&fw, &(struct fw_options){.world = 2, .window = window, .priorities = 3});
	for (unsigned i = 0; i < window + 2 * reserve; i++) {
		f = fw_data(&fw, RS_SUM, RS_FLOAT32, seq++, 1, 0);
		f.of.priority = i < window ? 1 : i < window + reserve ? 2 : 0;
		fw_contribute(&fw, 1, f);
	}
	fw_feed_all(&fw, 100);
	ck_assert_uint_eq(fw.failed, 0);
	ck_assert_uint_eq(fw.slots_seen_max, window + 2 * reserve);
	f.of.seq = seq;
	fw_contribute(&fw, 1, f);
	fw_feed_all(&fw, 100);
	fw_expect_end(&fw, RS_EPROTO, "rank 1 (host-1) has more than", "chunks without a result");
}
END_TEST

/* The last chunk had its place in the window before the urgent one arrived, took the
 * reserve and was sent first. */
START_TEST(urgent_chunks_may_overtake_a_chunk_in_the_window)
{
	static const uint8_t priorities[] = {0, 1, 0};
	struct fw_world fw;
	struct frame f;

	fw_running(&fw, &(struct fw_options){.world = 2, .window = 2, .priorities = 2});
	for (unsigned i = 0; i < 3; i++) {
		f = fw_data(&fw, RS_SUM, RS_FLOAT32, i, 1, 0);
		f.of.priority = priorities[i];
		fw_contribute(&fw, 1, f);
	}
	fw_feed_all(&fw, 100);
	ck_assert_uint_eq(fw.failed, 0);
	f.of.seq = 3;
	fw_contribute(&fw, 1, f);
	fw_feed_all(&fw, 100);
	fw_expect_end(&fw, RS_EPROTO, "rank 1 (host-1) has more than 2", "chunks without a result");
}
END_TEST

/* Rank 1 has one chunk too many here. That the operations differ is seen on the lane of
 * another chunk, maybe later. */
START_TEST(a_chunk_of_one_rank_alone_is_a_mismatch)
{
	struct fw_world fw;
	struct frame long_one, next;

	fw_running(&fw, &(struct fw_options){.world = 2});
	long_one = fw_data(&fw, RS_SUM, RS_FLOAT32, 6, 20, 1);
	next = fw_data(&fw, RS_SUM, RS_FLOAT32, 7, 5, 0);
	if (_i == 0)
		fw_contribute(&fw, 0, next);
	fw_feed_all(&fw, 100);
	fw_contribute(&fw, 1, long_one);
	fw_contribute(&fw, 1, next);
	fw_feed_all(&fw, 100);
	if (_i == 1)
		fw_contribute(&fw, 0, next);
	fw_feed_all(&fw, 100);
	fw_expect_end(&fw, RS_EMISMATCH, "ranks disagree about operation 6: rank 1 (host-1) sent chunk 1 of it, ",
		      "rank 0 (host-0) went on to operation 7 without it");
}
END_TEST

/* Rank 0 has a full window of urgent chunks, rank 1 of other chunks: both make
 * progress. */
START_TEST(full_windows_of_different_priorities_progress)
{
	enum { WINDOW = 3 };
	struct fw_world fw;
	struct frame f[2][WINDOW];

	fw_running(&fw, &(struct fw_options){.world = 2, .window = WINDOW, .priorities = 2});
	for (unsigned p = 0; p < 2; p++)
		for (unsigned i = 0; i < WINDOW; i++) {
			f[p][i] = fw_data(&fw, RS_SUM, RS_FLOAT32, p * WINDOW + i, 16, 0);
			f[p][i].of.priority = (uint8_t)p;
			fw_contribute(&fw, !p, f[p][i]);
		}
	fw_feed_all(&fw, 100);
	for (unsigned i = 0; i < WINDOW; i++)
		for (unsigned p = 0; p < 2; p++) {
			fw_contribute(&fw, p, f[p][i]);
			fw_feed_all(&fw, 100);
			fw_expect_result(&fw, 0, f[p][i], 2);
			fw_expect_result(&fw, 1, f[p][i], 2);
		}
	ck_assert_uint_eq(fw_slots_alive(&fw), 0);
	fw_close(&fw);
}
END_TEST

/* Ranks that skip chunks could each fill a window of their own. */
START_TEST(ranks_with_different_chunks_cannot_exhaust_memory)
{
	struct fw_world fw;

	fw_running(&fw, &(struct fw_options){.world = 3, .window = 2});
	for (uint64_t seq = 0; seq < 6; seq++)
		fw_contribute(&fw, (unsigned)(seq % 3), fw_data(&fw, RS_SUM, RS_FLOAT32, seq, 1, 0));
	fw_feed_all(&fw, 1000);
	ck_assert_uint_eq(fw.slots_seen_max, 4);
	/* all input of a rank is read at once: ranks 0 and 1 have been read */
	fw_expect_end(&fw, RS_EMISMATCH, "ranks disagree about operation 0: rank 0 (host-0) sent chunk 0 of it where",
		      "rank 1 (host-1) sent chunk 0 of operation 1");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("contribution");
	TCase *tc = tcase_create("order");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, contributions_come_in_order_and_once, 0, 10);
	tcase_add_test(tc, priorities_overtake_each_other);
	tcase_add_loop_test(tc, the_window_is_enforced, 0, 3);
	tcase_add_loop_test(tc, each_priority_has_a_reserve, 0, 5);
	tcase_add_loop_test(tc, a_chunk_of_one_rank_alone_is_a_mismatch, 0, 2);
	tcase_add_test(tc, urgent_chunks_may_overtake_a_chunk_in_the_window);
	tcase_add_test(tc, full_windows_of_different_priorities_progress);
	tcase_add_test(tc, ranks_with_different_chunks_cannot_exhaust_memory);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
