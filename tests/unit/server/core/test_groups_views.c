/* SPDX-License-Identifier: Apache-2.0 */
/* A home, the views of whose ranks and uplinks change, and what none of them may send;
 * and how much far uplinks may be ahead of the ranks. */
#include "tests/unit/fake_groups.h"
#include "tests/unit/fake_lane_views.h"

#include <string.h>

enum { WINDOW = 4 };

static void ranks_send(struct fw_world *fw, struct control_view v)
{
	for (unsigned r = 0; r < FG_WORLD; r++)
		lv_send(fw, r, v);
}

static void take_all(struct fw_world *fw)
{
	const uint8_t *payload;
	struct frame f;

	for (unsigned r = 0; r < FG_WORLD; r++)
		while (fw_take(fw, r, &f, &payload))
			;
}

/* The first view is resumed while a rank says a second one, before anything is sent: the
 * relay may not take RESUME of the first one for that of the second. _i: the relay says
 * the second one before or after the rank */
START_TEST(a_relay_resumes_the_view_that_it_has_sent)
{
	struct control_view first = lv_of(0, 0, 1), second = lv_of(0, 0, 2);
	uint8_t packed[FRAME_CONTROL_MAX];
	struct frame f = {.type = FRAME_VIEW};
	struct fw_world fw;
	unsigned place;

	fg_running(&fw, (struct fw_options){0});
	place = fg_uplink(&fw, 1, 1);
	for (unsigned r = 1; r < FG_WORLD; r++)
		lv_send(&fw, r, first);
	lv_send(&fw, place, first);
	fw_expect_nothing(&fw, place);
	f.payload_len = control_pack_view(packed, &first);
	fw_send(&fw, 0, f, packed);
	f.payload_len = control_pack_view(packed, &second);
	fw_send(&fw, 0, f, packed);
	fw_feed_all(&fw, SIZE_MAX);
	fw_expect_nothing(&fw, place);
	if (_i)
		lv_send(&fw, place, second);
	for (unsigned r = 1; r < FG_WORLD; r++) {
		fw_expect_nothing(&fw, place);
		lv_send(&fw, r, second);
	}
	if (!_i)
		lv_send(&fw, place, second);
	lv_expect(&fw, place, FRAME_RESUME, second);
	ck_assert_msg(fw.failed == 0, "%s", fw.why.msg);
	fw_close(&fw);
}
END_TEST

/* A relay that repeats its view leaves the job; chunks of it are on their way. _i: the
 * view, the second one has been resumed, too */
START_TEST(a_relay_sends_a_view_once)
{
	struct control_view v = lv_of(0, 0, (uint32_t)_i);
	uint8_t bytes[FG_CHUNK] = {0};
	struct fw_world fw;
	struct frame f;
	unsigned place;

	fg_running(&fw, (struct fw_options){0});
	place = fg_uplink(&fw, 1, 1);
	if (_i) {
		ranks_send(&fw, v);
		lv_send(&fw, place, v);
		lv_expect(&fw, place, FRAME_RESUME, v);
		take_all(&fw);
	}
	f = fw_data(&fw, RS_SUM, RS_FLOAT32, FG_SEQ, FG_CHUNK / 4, 0);
	fg_contribute(&fw, place, f, bytes, FG_CHUNK);
	fw_feed_all(&fw, SIZE_MAX);
	lv_send(&fw, place, v);
	ck_assert(fw.w[place].shut);
	fw_expect_abort(&fw, place, RS_EPROTO, "relay r1",
			_i ? "sent view 1 after view 1" : "sent view 0 after view 0");
	for (unsigned r = 0; r < FG_WORLD; r++)
		if (fg_group_of[r] != 1)
			fw_contribute(&fw, r, f);
	fw_feed_all(&fw, SIZE_MAX);
	ck_assert_msg(fw.failed == 0, "%s", fw.why.msg);
	fw_close(&fw);
}
END_TEST

/* The same of a rank. */
START_TEST(a_rank_sends_no_view_that_has_been_resumed)
{
	struct control_view v = lv_of(0, 0, (uint32_t)_i);
	struct fw_world fw;

	fg_running(&fw, (struct fw_options){0});
	if (_i)
		ranks_send(&fw, v);
	take_all(&fw);
	lv_send(&fw, 2, v);
	ck_assert_uint_eq(fw.failed, 1);
	ck_assert_int_eq(fw.why.code, RS_ECUT);
	ck_assert_msg(strstr(fw.why.msg, "rank 2") && strstr(fw.why.msg, "sent view ") &&
			  strstr(fw.why.msg, _i ? " 1 after view 1" : " 0 after view 0"),
		      "\"%s\"", fw.why.msg);
	fw_close(&fw);
}
END_TEST

/* Rank 0 alone has begun chunk 0. Far uplinks get the results of later chunks at once,
 * but not without end: the slots of those stay. */
START_TEST(far_uplinks_are_ahead_by_a_window)
{
	unsigned place[FG_GROUPS], outstanding = 0;
	uint8_t bytes[FG_CHUNK] = {0};
	struct fw_world fw;
	struct frame f;
	uint32_t len;

	fg_running(&fw, (struct fw_options){.window = WINDOW});
	for (unsigned g = 0; g < FG_GROUPS; g++) {
		place[g] = fg_uplink(&fw, g, 1);
		session_network(fw.w[place[g]].session, 20000, 20000, 0, 0);
	}
	f = fw_data(&fw, RS_SUM, RS_FLOAT32, FG_SEQ, 1000 * FG_CHUNK, 0);
	fw_contribute(&fw, 0, f);
	fw_feed_all(&fw, SIZE_MAX);
	for (f.chunk = 1; f.chunk < 1000 && outstanding < WINDOW; f.chunk++) {
		for (unsigned g = 0; g < FG_GROUPS; g++)
			fg_contribute(&fw, place[g], f, bytes, FG_CHUNK);
		fw_feed_all(&fw, SIZE_MAX);
		ck_assert_msg(fw.failed == 0, "chunk %u: %s", f.chunk, fw.why.msg);
		outstanding += fw.w[place[0]].in.off == fw.w[place[0]].in.len;
		for (unsigned g = 0; !outstanding && g < FG_GROUPS; g++)
			fg_result(&fw, place[g], &f, &len);
	}
	ck_assert_uint_eq(f.chunk, 1 + 2 * WINDOW);
	/* the rest of chunk 0 sets all free, in order */
	f.chunk = 0;
	for (unsigned r = 1; r < FG_WORLD; r++)
		fw_contribute(&fw, r, f);
	fw_feed_all(&fw, SIZE_MAX);
	for (f.chunk = 1 + WINDOW; f.chunk < 1 + 2 * WINDOW; f.chunk++)
		for (unsigned g = 0; g < FG_GROUPS; g++)
			fg_result(&fw, place[g], &f, &len);
	ck_assert_uint_eq(fw_slots_alive(&fw), 0);
	ck_assert_msg(fw.failed == 0, "%s", fw.why.msg);
	fw_close(&fw);
}
END_TEST

/* While uplinks of a job close whose ranks have left, no other one attaches: nobody would
 * close that. */
START_TEST(an_uplink_needs_ranks)
{
	const struct session_params sp = {.peer_detect_ms = FAKE_DETECT_MS, .group = 1, .relay = 2};
	struct session *s = NULL;
	struct fw_world fw;
	unsigned place;
	struct rs_err e;

	fg_running(&fw, (struct fw_options){0});
	place = fg_uplink(&fw, 1, 1);
	for (unsigned r = 0; r < FG_WORLD; r++)
		fw_send_type(&fw, r, FRAME_GOODBYE);
	fw_feed_all(&fw, SIZE_MAX);
	for (unsigned r = 0; r < FG_WORLD; r++)
		if (fw.w[r].session)
			session_lost(fw.w[r].session, "it closed the connection");
	fw_flush(&fw);
	ck_assert_ptr_null(fw.w[0].session);
	ck_assert_ptr_nonnull(fw.w[place].session);
	ck_assert_int_eq(lane_attach(fw.lane, &s, &fw.params, &sp, NULL, fw.now_ms, &e), RS_EREFUSED);
	ck_assert_str_eq(e.msg, "the job has ended");
	fw_close(&fw);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("groups_views");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, a_relay_resumes_the_view_that_it_has_sent, 0, 2);
	tcase_add_loop_test(tc, a_relay_sends_a_view_once, 0, 2);
	tcase_add_loop_test(tc, a_rank_sends_no_view_that_has_been_resumed, 0, 2);
	tcase_add_test(tc, far_uplinks_are_ahead_by_a_window);
	tcase_add_test(tc, an_uplink_needs_ranks);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
