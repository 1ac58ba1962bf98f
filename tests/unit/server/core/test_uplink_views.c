/* SPDX-License-Identifier: Apache-2.0 */
/* An uplink when the view changes: reducers are lost, ranks repeat, or leave. */
#include "tests/unit/fake_lane_views.h"
#include "tests/unit/fake_relay.h"

#include <string.h>

static void rank_views(struct fw_world *fw, struct control_view v)
{
	for (unsigned r = 0; r < FG_WORLD; r++)
		fw_send_view(fw, r, &v);
	fw_feed_all(fw, SIZE_MAX);
}

/* Takes what rank r gets up to RESUME. Returns false if that does not come. */
static bool resumed(struct fw_world *fw, unsigned r)
{
	const uint8_t *payload;
	struct frame f;

	while (fw_take(fw, r, &f, &payload))
		if (f.type == FRAME_RESUME)
			return true;
	return false;
}

static bool all_resumed(struct fw_world *fw)
{
	unsigned n = 0;

	for (unsigned r = 0; r < FG_WORLD; r++)
		n += resumed(fw, r);
	ck_assert(n == 0 || n == FG_WORLD);
	return n;
}

static void expect_view(struct fh_home *h, struct control_view v)
{
	const uint8_t *payload;
	struct frame f = fh_expect(h, FRAME_VIEW, &payload);
	struct control_view got;
	struct rs_err e;

	must(control_unpack_view(payload, f.payload_len, &got, &e) == RS_OK);
	ck_assert_uint_eq(control_view_number(&got), control_view_number(&v));
}

/* Reducer r2 is lost. The home hears so when all ranks have said it; nothing of the new
 * view is sent before its RESUME, and results of the old one are discarded. */
START_TEST(views_pass_through)
{
	struct fw_world fw;
	struct fh_homes homes;
	struct fh_home *h = fy_open_joined(&fw, &homes, (struct fw_options){0});
	struct frame f = fy_chunk(&fw, FG_SEQ, 0);
	struct control_view v = lv_of(0, 0, 1), old = lv_of(0, 0, 0);

	for (unsigned r = 0; r < FG_WORLD; r++) {
		fh_expect_nothing(h);
		ck_assert(!resumed(&fw, r));
		lv_send(&fw, r, v);
	}
	expect_view(h, v);
	fh_expect_nothing(h);
	ck_assert(all_resumed(&fw));
	ck_assert_uint_eq(fw_slots_alive(&fw), 0);
	/* the chunk again, straight after RESUME */
	fy_forward(&fw, f);
	fh_expect_nothing(h);
	fy_answer(&homes, h, f, 1); /* of the old view */
	for (unsigned r = 0; r < FG_WORLD; r++)
		fw_expect_nothing(&fw, r);
	fh_send_resume(&homes, h, &old);
	fh_expect_nothing(h);
	fh_send_resume(&homes, h, &v);
	fy_expect_data(h, f);
	fy_answer(&homes, h, f, 2);
	fy_expect_answer(&fw, f, 2);
	ck_assert_uint_eq(homes.dialled, 1);
	ck_assert_uint_eq(fw.failed, 0);
	fh_close(&homes);
}
END_TEST

/* Two changes of the view, faster than the home answers. */
START_TEST(the_last_view_counts)
{
	struct fw_world fw;
	struct fh_homes homes;
	struct fh_home *h = fy_open_joined(&fw, &homes, (struct fw_options){0});
	struct frame f = fy_chunk(&fw, FG_SEQ, 0);
	struct control_view first = lv_of(0, 0, 1), second = lv_of(0, 0, 2);

	rank_views(&fw, first);
	expect_view(h, first);
	ck_assert(all_resumed(&fw));
	fy_forward(&fw, f);
	rank_views(&fw, second);
	expect_view(h, second);
	ck_assert(all_resumed(&fw));
	fh_send_resume(&homes, h, &first);
	fy_forward(&fw, f);
	fh_expect_nothing(h);
	fh_send_resume(&homes, h, &second);
	fy_expect_data(h, f);
	fh_close(&homes);
}
END_TEST

enum rest { REST_SENT, REST_BROKEN, REST_HOME_LOST, REST_SILENT };

/* A chunk is partly sent when the view changes: the rest of it goes out first, out of
 * memory that is not used again before that. _i: enum rest */
START_TEST(the_rest_of_a_chunk_goes_first)
{
	struct fw_world fw;
	struct fh_homes homes;
	struct fh_home *h = fy_open_joined(&fw, &homes, (struct fw_options){0});
	struct control_view v = _i == REST_HOME_LOST ? lv_of(0, 1, 0) : lv_of(0, 0, 1);
	struct frame f = fy_chunk(&fw, FG_SEQ, 1);

	fh_grant(&homes, h, 100);
	fy_forward(&fw, f);
	f.chunk++;
	fy_forward(&fw, f); /* this one is forgotten */
	rank_views(&fw, v);
	ck_assert_int_eq(all_resumed(&fw), _i == REST_HOME_LOST);
	if (_i == REST_SENT) {
		fh_grant(&homes, h, SIZE_MAX);
		f.chunk = 1;
		fy_expect_data(h, f);
		expect_view(h, v);
		fh_expect_nothing(h);
		fh_send_resume(&homes, h, &v);
	} else if (_i == REST_BROKEN) {
		fh_break(&homes, h, "connection reset by peer");
	}
	if (_i != REST_HOME_LOST) {
		fy_pass(&fw, NULL, _i == REST_SILENT ? FAKE_DETECT_MS + 200 : 100);
		ck_assert(all_resumed(&fw));
	}
	ck_assert_uint_eq(fw_slots_alive(&fw), 0);
	ck_assert_uint_eq(homes.closed, _i != REST_SENT);
	if (_i == REST_HOME_LOST) {
		v = lv_of(0, 2, 0); /* it is back */
		rank_views(&fw, v);
		ck_assert(all_resumed(&fw));
	}
	/* the chunk once more, in the new view */
	f.chunk = 1;
	fy_forward(&fw, f);
	if (_i != REST_SENT) {
		fy_pass(&fw, NULL, 100);
		ck_assert_uint_eq(homes.dialled, 2);
		h = fh_join(&homes, FG_HOME);
		expect_view(h, v);
		fh_expect_nothing(h);
		fh_send_resume(&homes, h, &v);
	}
	fy_expect_data(h, f);
	fy_answer(&homes, h, f, 3);
	fy_expect_answer(&fw, f, 3);
	ck_assert_uint_eq(fw.failed, 0);
	fh_close(&homes);
}
END_TEST

/* A home is lost, and chunks are on their way: the uplink closes, and the ranks repeat
 * them where the next view says. */
START_TEST(a_lost_home_is_forgotten)
{
	struct fw_world fw;
	struct fh_homes homes;
	struct fh_home *h = fy_open_joined(&fw, &homes, (struct fw_options){0});
	struct frame f = fy_chunk(&fw, FG_SEQ, 1);

	if (_i)
		fh_break(&homes, h, "connection reset by peer");
	fy_forward(&fw, f);
	rank_views(&fw, lv_of(0, 1, 0));
	ck_assert(all_resumed(&fw));
	ck_assert_uint_eq(homes.closed, 1);
	fy_pass(&fw, &homes, 4 * FAKE_DETECT_MS);
	ck_assert_uint_eq(fw.failed, 0);
	ck_assert_uint_eq(homes.dialled, 1);
	fh_close(&homes);
}
END_TEST

/* The ranks close their communicator in mid-operation, when a part of a result has come:
 * there is no view to be resumed. _i: the part, in bytes */
START_TEST(ranks_leave_within_a_result)
{
	struct fw_world fw;
	struct fh_homes homes;
	struct fh_home *h = fy_open_joined(&fw, &homes, (struct fw_options){0});

	fy_answer_part(&homes, h, fy_chunk(&fw, FG_SEQ, 0), (size_t)_i);
	ck_assert_msg(h->up, "the home's result is not taken");
	for (unsigned r = 0; r < FG_WORLD; r++)
		fw_send_type(&fw, r, FRAME_GOODBYE);
	fw_feed_all(&fw, SIZE_MAX);
	ck_assert_msg(fw.failed == 0, "%s", fw.why.msg);
	fh_close(&homes);
	ck_assert_uint_eq(homes.closed, 1);
}
END_TEST

/* All ranks repeat a view that has been resumed, while a result comes. */
START_TEST(a_repeated_view_does_not_begin_again)
{
	struct fw_world fw;
	struct fh_homes homes;
	struct fh_home *h = fy_open_joined(&fw, &homes, (struct fw_options){0});

	fy_answer_part(&homes, h, fy_chunk(&fw, FG_SEQ, 0), FRAME_HEADER + 1);
	rank_views(&fw, lv_of(0, 0, 0));
	ck_assert_uint_eq(fw.failed, 1);
	ck_assert_int_eq(fw.why.code, RS_ECUT);
	ck_assert_msg(strstr(fw.why.msg, "sent view 0 after view 0"), "\"%s\"", fw.why.msg);
	fh_close(&homes);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("uplink_views");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_test(tc, views_pass_through);
	tcase_add_test(tc, the_last_view_counts);
	tcase_add_loop_test(tc, the_rest_of_a_chunk_goes_first, 0, REST_SILENT + 1);
	tcase_add_loop_test(tc, a_lost_home_is_forgotten, 0, 2);
	tcase_add_loop_test(tc, ranks_leave_within_a_result, 0, FRAME_HEADER + FG_CHUNK);
	tcase_add_test(tc, a_repeated_view_does_not_begin_again);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
