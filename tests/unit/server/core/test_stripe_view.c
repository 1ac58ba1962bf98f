/* SPDX-License-Identifier: Apache-2.0 */
/* A lane while reducers are lost and return, by the rules of proto/README.md, "Failover".
 * The simulator tests all rules together. */
#include "proto/features.h"
#include "server/core/report.h"
#include "tests/unit/fake_lane_views.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "A reducer merges what its ranks say and sends VIEW to all that have not said as
 * much." */
START_TEST(a_new_view_goes_to_all_other_ranks)
{
	struct fw_world fw;

	lv_running(&fw, (struct fw_options){.world = 3});
	lv_send(&fw, 1, lv_of(0, 1, 0));
	lv_expect(&fw, 0, FRAME_VIEW, lv_of(0, 1, 0));
	fw_expect_nothing(&fw, 1);
	lv_expect(&fw, 2, FRAME_VIEW, lv_of(0, 1, 0));
	/* nothing new: no VIEW is sent */
	lv_send(&fw, 0, lv_of(0, 1, 0));
	fw_expect_nothing(&fw, 2);
	/* other news, without the first: rank 2 gets what it lacks, the others what it
	 * sent */
	lv_send(&fw, 2, lv_of(0, 0, 1));
	for (unsigned r = 0; r < 3; r++) {
		lv_expect(&fw, r, FRAME_VIEW, lv_of(0, 1, 1));
		fw_expect_nothing(&fw, r);
	}
	fw_close(&fw);
}
END_TEST

/* The report has what the ranks said of lost reducers, and since when. */
START_TEST(the_report_names_lost_reducers)
{
	struct control_view first = lv_of(0, 1, 0), second = lv_of(1, 1, 0), back = lv_of(1, 2, 0);
	struct lane_report *report;
	struct fw_world fw;

	lv_running(&fw, (struct fw_options){0});
	report = lane_report_new(fw.lane, fw.now_ms);
	must(report);
	ck_assert(report->losses_n == 0 && report->stripes[0].reducers == 0);
	free(report);
	first.lost = 2;
	strcpy(first.lost_id, "r1");
	strcpy(first.why, "connection refused");
	first.cause = (struct rs_cause){.code = RS_EPEER, .reducer = 2, .loss = RS_LOSS_SILENT, .narrow = true};
	lv_send(&fw, 0, first);
	lv_expect(&fw, 1, FRAME_VIEW, first);
	fw_tick(&fw, 300);
	lv_send(&fw, 1, second); /* does not say why */
	fw_tick(&fw, 300);
	report = lane_report_new(fw.lane, fw.now_ms);
	must(report);
	ck_assert(report->stripes[0].reducers == 3 && report->stripes[0].losses_n == 2 && report->losses_n == 2);
	ck_assert(report->losses[0].index == 0 && report->losses[0].for_ms == 300);
	ck_assert(report->losses[0].losses == 1 && report->losses[1].losses == 1);
	ck_assert_str_eq(report->losses[0].id, "");
	ck_assert(report->losses[1].index == 1 && report->losses[1].for_ms == 600);
	ck_assert_str_eq(report->losses[1].id, "r1");
	ck_assert_str_eq(report->losses[1].why, "connection refused");
	ck_assert(report->losses[1].narrow && !report->losses[0].narrow);
	free(report);
	lv_send(&fw, 1, back);
	report = lane_report_new(fw.lane, fw.now_ms);
	must(report);
	ck_assert(report->losses_n == 1 && report->losses[0].index == 0);
	free(report);
	back.lives[1] = 3;
	lv_send(&fw, 1, back);
	report = lane_report_new(fw.lane, fw.now_ms);
	must(report);
	ck_assert(report->losses_n == 2 && report->losses[1].losses == 2);
	free(report);
	fw_close(&fw);
}
END_TEST

START_TEST(an_old_view_is_answered_with_the_new_one)
{
	struct fw_world fw;

	lv_running(&fw, (struct fw_options){0});
	lv_send(&fw, 0, lv_of(3, 0, 0));
	lv_expect(&fw, 1, FRAME_VIEW, lv_of(3, 0, 0));
	lv_send(&fw, 1, lv_of(2, 0, 0));
	lv_expect(&fw, 1, FRAME_VIEW, lv_of(3, 0, 0));
	fw_expect_nothing(&fw, 0);
	fw_close(&fw);
}
END_TEST

/* The starts of two priorities in three ranks' views, and the start that RESUME has. */
static const struct {
	uint64_t starts[3][2], want[2];
} starts[] = {
    {{{0, 0}, {0, 0}, {0, 0}}, {0, 0}},
    {{{5, 0}, {7, 0}, {6, 9}}, {7, 9}},
    {{{9, 9}, {1, 1}, {2, 2}}, {9, 9}},
    {{{1, 9}, {9, 1}, {5, 5}}, {9, 9}},
};

/* "When all ranks have said the same view on a lane, (it) answers RESUME with the largest
 * start of all ranks." */
START_TEST(all_ranks_resume_at_the_largest_start)
{
	static const unsigned orders[3][3] = {{0, 1, 2}, {2, 0, 1}, {1, 2, 0}};
	struct control_view v = lv_of(0, 0, 1);
	struct fw_world fw;

	lv_running(&fw, (struct fw_options){.world = 3, .priorities = 2});
	for (unsigned i = 0; i < 3; i++) {
		unsigned r = orders[_i % 3][i];

		memcpy(v.start, starts[_i / 3].starts[r], sizeof starts[0].starts[0]);
		lv_send(&fw, r, v);
		for (unsigned k = 0; i < 2 && k < 3; k++)
			if (k != r && i == 0)
				lv_expect(&fw, k, FRAME_VIEW, v);
			else
				fw_expect_nothing(&fw, k);
	}
	for (unsigned r = 0; r < 3; r++) {
		v = lv_expect(&fw, r, FRAME_RESUME, v);
		ck_assert_mem_eq(v.start, starts[_i / 3].want, sizeof starts[0].want);
		fw_expect_nothing(&fw, r);
	}
	fw_close(&fw);
}
END_TEST

/* START is empty unless all ranks have announced that they read what is in it. */
START_TEST(start_says_what_the_job_uses)
{
	const struct lane_begin begin = {.processes = 2, .agreed = {.features = _i ? 5 : 4, .start = 77}};
	struct control_start got;
	const uint8_t *payload;
	struct fw_world fw;
	struct frame f;
	struct rs_err e;

	fw_attached(&fw, &(struct fw_options){.world = 2});
	lane_start(fw.lane, FAKE_JOB, &begin);
	fw_flush(&fw);
	for (unsigned r = 0; r < 2; r++) {
		must(fw_take(&fw, r, &f, &payload) && f.type == FRAME_START);
		ck_assert_uint_eq(f.payload_len > 0, _i);
		ck_assert_int_eq(control_unpack_start(payload, f.payload_len, &got, &e), RS_OK);
		ck_assert(got.features == (_i ? 5 : 0) && got.start == (_i ? 77 : 0));
	}
	fw_close(&fw);
}
END_TEST

/* RESUME has the features that all ranks have said; those of a view before do not
 * count. */
START_TEST(resume_has_what_all_ranks_use)
{
	struct control_view first = lv_of(0, 1, 0), second = lv_of(0, 1, 1);
	struct fw_world fw;

	lv_running(&fw, (struct fw_options){.world = 2});
	first.features = 1;
	lv_send(&fw, 0, first);
	lv_expect(&fw, 1, FRAME_VIEW, first);
	second.features = 7;
	lv_send(&fw, 1, second);
	lv_expect(&fw, 0, FRAME_VIEW, second);
	second.features = 11;
	lv_send(&fw, 0, second);
	for (unsigned r = 0; r < 2; r++)
		ck_assert_uint_eq(lv_expect(&fw, r, FRAME_RESUME, second).features, 3);
	fw_close(&fw);
}
END_TEST

/* No rank resumes while the views of two ranks differ. */
START_TEST(no_rank_resumes_before_all_agree)
{
	struct fw_world fw;

	lv_running(&fw, (struct fw_options){0});
	lv_send(&fw, 0, lv_of(1, 0, 0));
	lv_expect(&fw, 1, FRAME_VIEW, lv_of(1, 0, 0));
	lv_send(&fw, 1, lv_of(0, 1, 0));
	for (unsigned r = 0; r < 2; r++)
		lv_expect(&fw, r, FRAME_VIEW, lv_of(1, 1, 0));
	lv_send(&fw, 0, lv_of(1, 1, 0));
	fw_expect_nothing(&fw, 0);
	fw_expect_nothing(&fw, 1);
	lv_send(&fw, 1, lv_of(1, 1, 0));
	lv_expect(&fw, 0, FRAME_RESUME, lv_of(1, 1, 0));
	lv_expect(&fw, 1, FRAME_RESUME, lv_of(1, 1, 0));
	fw_close(&fw);
}
END_TEST

/* A RESUME that waits behind other frames is for the view of the time when it was
 * queued. */
START_TEST(a_rank_with_a_newer_view_is_not_resumed)
{
	struct control_view first = lv_of(0, 1, 0), second = lv_of(1, 1, 0);
	struct fw_world fw;

	lv_running(&fw, (struct fw_options){0});
	fw.w[0].room = 0;
	lv_send(&fw, 1, first);
	lv_send(&fw, 0, first);
	lv_expect(&fw, 1, FRAME_RESUME, first);
	lv_send(&fw, 0, second);
	lv_expect(&fw, 1, FRAME_VIEW, second);
	fw_grant(&fw, 0, SIZE_MAX);
	lv_expect(&fw, 0, FRAME_VIEW, first);
	fw_expect_nothing(&fw, 0);

	lv_send(&fw, 1, second);
	for (unsigned r = 0; r < 2; r++) {
		lv_expect(&fw, r, FRAME_RESUME, second);
		fw_expect_nothing(&fw, r);
	}
	fw_close(&fw);
}
END_TEST

/* The same if another rank has learnt more. */
START_TEST(a_rank_with_an_older_view_is_not_resumed)
{
	struct control_view first = lv_of(0, 1, 0), second = lv_of(1, 1, 0);
	struct fw_world fw;

	lv_running(&fw, (struct fw_options){0});
	fw.w[0].room = 0;
	lv_send(&fw, 1, first);
	lv_send(&fw, 0, first);
	lv_expect(&fw, 1, FRAME_RESUME, first);
	lv_send(&fw, 1, second);
	fw_grant(&fw, 0, SIZE_MAX);
	lv_expect(&fw, 0, FRAME_VIEW, first);
	lv_expect(&fw, 0, FRAME_VIEW, second);
	fw_expect_nothing(&fw, 0);
	fw_close(&fw);
}
END_TEST

/* A rank must not get a result that its view excludes; the other ranks may. */
START_TEST(paused_ranks_get_no_result)
{
	struct fw_world fw;
	struct frame f;

	lv_running(&fw, (struct fw_options){.world = 3});
	f = fw_data(&fw, RS_SUM, RS_FLOAT32, 0, 16, 0);
	for (unsigned r = 0; r < 2; r++)
		fw_contribute(&fw, r, f);
	fw_feed_all(&fw, SIZE_MAX);
	lv_send(&fw, 1, lv_of(0, 0, 1));
	fw_contribute(&fw, 2, f);
	fw_feed_all(&fw, SIZE_MAX);
	for (unsigned r = 0; r < 3; r += 2) {
		lv_expect(&fw, r, FRAME_VIEW, lv_of(0, 0, 1));
		fw_expect_result(&fw, r, f, 3);
	}
	fw_expect_nothing(&fw, 1);
	/* two have it now */
	lv_agree(&fw, lv_of(0, 0, 1));
	fw_contribute(&fw, 1, f);
	fw_have(&fw, 0, f);
	fw_have(&fw, 2, f);
	fw_feed_all(&fw, SIZE_MAX);
	fw_expect(&fw, 0, FRAME_FETCH);
	fw_close(&fw);
}
END_TEST

/* A queued result is not sent after its rank's VIEW, but one that has been sent in part
 * is completed, and no rank resumes before that. _i: bytes that have been sent. */
START_TEST(a_partly_sent_result_is_completed)
{
	struct fw_world fw;
	struct frame f;

	lv_running(&fw, (struct fw_options){0});
	f = fw_data(&fw, RS_SUM, RS_FLOAT32, 0, 48, 0);
	fw.w[0].room = (size_t)_i;
	for (unsigned r = 0; r < 2; r++)
		fw_contribute_all(&fw, r, f);
	fw_feed_all(&fw, SIZE_MAX);
	for (f.chunk = 0; f.chunk < 3; f.chunk++)
		fw_expect_result(&fw, 1, f, 2);
	lv_send(&fw, 0, lv_of(0, 0, 1));
	lv_send(&fw, 1, lv_of(0, 0, 1));
	lv_expect(&fw, 1, FRAME_VIEW, lv_of(0, 0, 1));
	if (_i % (FRAME_HEADER + 64))
		fw_expect_nothing(&fw, 1);
	fw_grant(&fw, 0, SIZE_MAX);
	for (f.chunk = 0; f.chunk * (FRAME_HEADER + 64) < (unsigned)_i; f.chunk++)
		fw_expect_result(&fw, 0, f, 2);
	for (unsigned r = 0; r < 2; r++) {
		lv_expect(&fw, r, FRAME_RESUME, lv_of(0, 0, 1));
		fw_expect_nothing(&fw, r);
	}
	ck_assert_uint_eq(fw_slots_alive(&fw), 0);
	fw_close(&fw);
}
END_TEST

/* Sums in progress are dropped: a sum contains nothing of the previous view. */
START_TEST(contributions_of_the_previous_view_do_not_count)
{
	struct fw_world fw;
	struct frame f;

	lv_running(&fw, (struct fw_options){.world = 3, .deterministic = _i & 1, .checksum = _i & 2});
	f = fw_data(&fw, RS_SUM, RS_FLOAT32, 5, 16, 0);
	for (f.of.seq = 5; f.of.seq < 9; f.of.seq++) { /* the window is full */
		fw_contribute(&fw, 0, f);
		fw_contribute(&fw, 2, f);
	}
	fw_feed_all(&fw, SIZE_MAX);
	ck_assert_uint_eq(fw_slots_alive(&fw), 4);
	lv_agree(&fw, lv_of(0, 1, 0));
	ck_assert_uint_eq(fw_slots_alive(&fw), 0);
	/* it is empty again; an earlier operation may arrive, since its chunk was on a
	 * lost reducer */
	for (unsigned r = 0; r < 3; r++)
		for (f.of.seq = 4; f.of.seq < 8; f.of.seq++)
			fw_contribute(&fw, r, f);
	fw_feed_all(&fw, SIZE_MAX);
	ck_assert_uint_eq(fw.failed, 0);
	for (unsigned r = 0; r < 3; r++)
		for (f.of.seq = 4; f.of.seq < 8; f.of.seq++)
			fw_expect_result(&fw, r, f, 3);
	fw_close(&fw);
}
END_TEST

/* Between VIEW and RESUME no chunk is sent. If one is sent, the ranks lose this reducer,
 * and the job continues. */
START_TEST(no_chunk_comes_between_view_and_resume)
{
	struct fw_world fw;
	struct frame f;

	lv_running(&fw, (struct fw_options){0});
	lv_send(&fw, 0, lv_of(0, 1, 0));
	f = fw_data(&fw, RS_SUM, RS_FLOAT32, 0, 16, 0);
	if (_i)
		fw_have(&fw, 0, f);
	else
		fw_contribute(&fw, 0, f);
	fw_feed_all(&fw, SIZE_MAX);
	lv_expect_end(&fw, RS_ECUT, "rank 0 (host-0) sent a chunk between VIEW and RESUME");
	fw_expect_abort(&fw, 0, RS_ECUT, "between VIEW", "");
	fw_close(&fw);
}
END_TEST

/* Jobs without failover have no views. */
START_TEST(jobs_without_failover_have_no_views)
{
	struct control_view v = lv_of(0, 1, 0);
	struct fw_world fw;
	struct frame f;

	fw_running(&fw, &(struct fw_options){0});
	f = fw_data(&fw, RS_SUM, RS_INT32, 0, 16, 0);
	if (_i == 0)
		fw_send_view(&fw, 1, &v);
	else if (_i == 1)
		fw_have(&fw, 1, f);
	else
		fw_send_kept(&fw, 1, f, 2);
	fw_feed_all(&fw, SIZE_MAX);
	lv_expect_end(&fw, RS_EPROTO,
		      _i == 0   ? "rank 1 (host-1) sent a VIEW frame, which only a reducer"
		      : _i == 1 ? "HAVE came with flags 0x0 in a job that does not fail over"
				: "which was not asked for");
	fw_close(&fw);
}
END_TEST

START_TEST(views_have_one_number_of_reducers)
{
	struct fw_world fw;

	lv_running(&fw, (struct fw_options){0});
	lv_send(&fw, 0, lv_of(0, 1, 0));
	lv_send(&fw, 1, (struct control_view){.n = 2, .lives = {0, 1}});
	lv_expect_end(&fw, RS_ECUT, "rank 1 (host-1) sent a view of 2 reducers, the other ranks have 3");
	fw_close(&fw);
}
END_TEST

/* Shares go to the other ranks and into RESUME as a loss does, and with one. */
START_TEST(shares_are_forwarded)
{
	struct control_view v = lv_with_shares(lv_of(0, 0, 0), 1, 7, 1, 65535), got;
	struct lane_report *report;
	struct fw_world fw;

	lv_running(&fw, (struct fw_options){.world = 3, .features = FEATURE_SHARES});
	report = lane_report_new(fw.lane, fw.now_ms);
	ck_assert(report->shares_n == 0 && report->stripes[0].epoch == 0);
	free(report);
	lv_send(&fw, _i ? 2 : 0, v); /* a rank may have it from another reducer */
	report = lane_report_new(fw.lane, fw.now_ms);
	ck_assert(report->shares_n == 3 && report->stripes[0].epoch == 1 && report->stripes[0].shares == 0);
	ck_assert(report->shares[0] == 7 && report->shares[1] == 1 && report->shares[2] == 65535);
	free(report);
	for (unsigned r = 0; r < 3; r++) {
		if (r == (_i ? 2 : 0))
			continue;
		fw_expect_nothing(&fw, _i ? 2 : 0);
		got = lv_expect(&fw, r, FRAME_VIEW, v);
		ck_assert(got.epoch == 1 && memcmp(got.shares, v.shares, sizeof v.shares) == 0);
	}
	lv_send(&fw, 1, lv_of(0, 1, 0)); /* a loss meanwhile, without the shares */
	v.lives[1] = 1;
	for (unsigned r = 0; r < 3; r++) {
		got = lv_expect(&fw, r, FRAME_VIEW, v);
		ck_assert(got.epoch == 1 && memcmp(got.shares, v.shares, sizeof v.shares) == 0);
		fw_expect_nothing(&fw, r);
	}
	for (unsigned r = 0; r < 3; r++)
		lv_send(&fw, r, v);
	for (unsigned r = 0; r < 3; r++) {
		got = lv_expect(&fw, r, FRAME_RESUME, v);
		ck_assert(got.epoch == 1 && memcmp(got.shares, v.shares, sizeof v.shares) == 0);
		fw_expect_nothing(&fw, r);
	}
	/* the next epoch replaces them; a rank that has not heard of it does not bring
	 * the last one back */
	lv_send(&fw, 0, lv_with_shares(v, 2, 1, 1, 1));
	for (unsigned r = 1; r < 3; r++)
		ck_assert_uint_eq(lv_expect(&fw, r, FRAME_VIEW, v).epoch, 2);
	v.lives[1] = 2;
	lv_send(&fw, 1, v);
	for (unsigned r = 0; r < 3; r++) {
		got = lv_expect(&fw, r, FRAME_VIEW, v);
		ck_assert(got.epoch == 2 && got.shares[0] == 1 && got.shares[2] == 1);
		fw_expect_nothing(&fw, r);
	}
	fw_close(&fw);
}
END_TEST

/* The views of ranks 0 and 1 that do not go together, and what the reducer says of rank
 * 1. */
static const struct {
	uint64_t features;
	uint32_t first[4], second[4]; /* epoch and shares */
	const char *says;
} odd_shares[] = {
    {FEATURE_SHARES, {1, 1, 2, 3}, {1, 1, 2, 4}, "view whose shares of epoch 1 differ from those of other ranks"},
    {FEATURE_SHARES, {7, 1, 2, 3}, {7, 3, 2, 1}, "view whose shares of epoch 7 differ from those of other ranks"},
    {FEATURE_ENCODINGS, {0, 0, 0, 0}, {1, 1, 1, 1}, "view with shares, which not all ranks have announced"},
    {FEATURE_SHARES, {1, 1, 2, 3}, {1, 1, 2, 3}, NULL},
    {FEATURE_SHARES, {1, 1, 2, 3}, {2, 1, 2, 4}, NULL},
    {FEATURE_SHARES, {3, 1, 2, 3}, {2, 1, 2, 4}, NULL},
};

START_TEST(shares_that_differ_end_the_job_here)
{
	const uint32_t *a = odd_shares[_i].first, *b = odd_shares[_i].second;
	struct fw_world fw;
	char text[160];

	lv_running(&fw, (struct fw_options){.features = odd_shares[_i].features});
	lv_send(&fw, 0, lv_with_shares(lv_of(0, 1, 0), a[0], a[1], a[2], a[3]));
	lv_expect(&fw, 1, FRAME_VIEW, lv_of(0, 1, 0));
	lv_send(&fw, 1, lv_with_shares(lv_of(0, 1, 0), b[0], b[1], b[2], b[3]));
	if (odd_shares[_i].says) {
		snprintf(text, sizeof text, "rank 1 (host-1) sent a %s", odd_shares[_i].says);
		lv_expect_end(&fw, RS_ECUT, text);
		fw_expect_abort(&fw, 0, RS_ECUT, text, "");
	} else {
		ck_assert_uint_eq(fw.failed, 0);
		lv_expect(&fw, a[0] > b[0], a[0] == b[0] ? FRAME_RESUME : FRAME_VIEW, lv_of(0, 1, 0));
	}
	fw_close(&fw);
}
END_TEST

/* A lost rank is lost to this reducer; the other reducers decide for themselves. */
START_TEST(a_lost_rank_ends_the_job_on_this_reducer_only)
{
	struct fw_world fw;

	lv_running(&fw, (struct fw_options){0});
	fw_close_peer(&fw, 1);
	lv_expect_end(&fw, RS_ECUT, "rank 1 (host-1) was lost: it closed the connection");
	fw_expect_abort(&fw, 0, RS_ECUT, "rank 1 (host-1) was lost", "");
	fw_close(&fw);
}
END_TEST

/* A returned reducer: a rank that attaches after another one's VIEW gets that view, and
 * RESUME follows START. */
START_TEST(views_from_before_the_start)
{
	struct fw_world fw;

	fw_init(&fw, &(struct fw_options){.retain = true});
	fw_attach(&fw, 0);
	fw_expect(&fw, 0, FRAME_WELCOME);
	lv_send(&fw, 0, lv_of(2, 1, 0));
	fw_expect_nothing(&fw, 0);
	fw_attach(&fw, 1);
	fw_expect(&fw, 1, FRAME_WELCOME);
	lv_expect(&fw, 1, FRAME_VIEW, lv_of(2, 1, 0));
	lv_send(&fw, 1, lv_of(2, 1, 0));
	fw_expect_nothing(&fw, 1);
	lane_start(fw.lane, FAKE_JOB, &(struct lane_begin){.processes = 2});
	fw_flush(&fw);
	for (unsigned r = 0; r < 2; r++) {
		fw_expect(&fw, r, FRAME_START);
		lv_expect(&fw, r, FRAME_RESUME, lv_of(2, 1, 0));
	}
	fw_close(&fw);
}
END_TEST

/* The same with shares, if all ranks know them. */
START_TEST(shares_from_before_the_start)
{
	struct lane_begin begin = {.processes = 2, .agreed = {.features = _i ? FEATURE_SHARES : 0}};
	struct control_view v = lv_with_shares(lv_of(2, 1, 0), 4, 9, 9, 1), got;
	struct fw_world fw;

	fw_attached(&fw, &(struct fw_options){.retain = true});
	lv_send(&fw, 0, v);
	got = lv_expect(&fw, 1, FRAME_VIEW, v);
	ck_assert(got.epoch == 4 && got.shares[2] == 1);
	lv_send(&fw, 1, v);
	lane_start(fw.lane, FAKE_JOB, &begin);
	fw_flush(&fw);
	for (unsigned r = 0; r < 2; r++) {
		if (!_i) {
			fw_expect_abort(&fw, r, RS_ECUT, "with shares, which not all ranks have announced", "");
			continue;
		}
		fw_expect(&fw, r, FRAME_START);
		got = lv_expect(&fw, r, FRAME_RESUME, v);
		ck_assert(got.epoch == 4 && got.shares[0] == 9);
	}
	fw_close(&fw);
}
END_TEST

#define COUNT(a) (int)(sizeof(a) / sizeof(a)[0])

int main(void)
{
	Suite *suite = suite_create("stripe_view");
	TCase *tc = tcase_create("stripe_view");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, a_new_view_goes_to_all_other_ranks);
	tcase_add_test(tc, the_report_names_lost_reducers);
	tcase_add_test(tc, an_old_view_is_answered_with_the_new_one);
	tcase_add_loop_test(tc, all_ranks_resume_at_the_largest_start, 0, 3 * COUNT(starts));
	tcase_add_loop_test(tc, start_says_what_the_job_uses, 0, 2);
	tcase_add_test(tc, resume_has_what_all_ranks_use);
	tcase_add_test(tc, no_rank_resumes_before_all_agree);
	tcase_add_test(tc, a_rank_with_a_newer_view_is_not_resumed);
	tcase_add_test(tc, a_rank_with_an_older_view_is_not_resumed);
	tcase_add_test(tc, paused_ranks_get_no_result);
	tcase_add_loop_test(tc, a_partly_sent_result_is_completed, 0, 2 * (FRAME_HEADER + 64) + 1);
	tcase_add_loop_test(tc, contributions_of_the_previous_view_do_not_count, 0, 4);
	tcase_add_loop_test(tc, no_chunk_comes_between_view_and_resume, 0, 2);
	tcase_add_loop_test(tc, jobs_without_failover_have_no_views, 0, 3);
	tcase_add_test(tc, views_have_one_number_of_reducers);
	tcase_add_test(tc, a_lost_rank_ends_the_job_on_this_reducer_only);
	tcase_add_test(tc, views_from_before_the_start);
	tcase_add_loop_test(tc, shares_from_before_the_start, 0, 2);
	tcase_add_loop_test(tc, shares_are_forwarded, 0, 2);
	tcase_add_loop_test(tc, shares_that_differ_end_the_job_here, 0, COUNT(odd_shares));
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
