/* SPDX-License-Identifier: Apache-2.0 */
/* The counters of a lane: bytes, chunks, and the time for which others wait for a
 * rank. */
#include "server/core/report.h"
#include "tests/unit/fake_groups.h"

#include <stdlib.h>
#include <string.h>

/* Detection times are long: silence is not tested here. */
static const struct fw_options three = {.world = 3, .detect_ms = 3600000};

/* Passes time tick by tick; no rank is silent. */
static void pass(struct fw_world *fw, uint64_t ms)
{
	for (uint64_t t = 0; t < ms; t += LANE_TICK_MS)
		fw_tick(fw, LANE_TICK_MS);
}

static struct lane_report *report(struct fw_world *fw)
{
	struct lane_report *r = lane_report_new(fw->lane, fw->now_ms);

	must(r);
	return r;
}

/* One chunk of 16 float32: rank r's contribution arrives at[r] ms after the first one, in
 * the order of these times. */
static void chunk(struct fw_world *fw, uint64_t seq, const unsigned at[3])
{
	struct frame f = fw_data(fw, RS_SUM, RS_FLOAT32, seq, 16, 0);

	for (unsigned ms = 0, came = 0; came < 3; ms += LANE_TICK_MS) {
		for (unsigned r = 0; r < 3; r++)
			if (at[r] == ms) {
				fw_contribute(fw, r, f);
				fw_feed_all(fw, 1000);
				came++;
			}
		if (came < 3)
			pass(fw, LANE_TICK_MS);
	}
	for (unsigned r = 0; r < 3; r++) {
		const uint8_t *payload;
		struct frame got;

		do
			must(fw_take(fw, r, &got, &payload));
		while (got.type == FRAME_PING);
		must(got.type == FRAME_RESULT);
	}
}

static const struct {
	const char *what;
	unsigned at[3];
	uint64_t late[3], waited[3]; /* of one chunk */
} rows[] = {
    {"all at once", {0, 0, 0}, {0, 0, 0}, {0, 0, 0}},
    {"one is late", {0, 0, 500}, {0, 0, 500}, {0, 0, 500}},
    {"two are late, one more than the other: for the time of both both are waited for",
     {300, 0, 700},
     {300, 0, 700},
     {300, 0, 700}},
    {"two come late together", {0, 400, 400}, {0, 400, 400}, {0, 400, 400}},
};

START_TEST(waiting_is_counted_for_the_late_rank)
{
	struct lane_report *r;
	struct fw_world fw;

	fw_running(&fw, &three);
	for (uint64_t seq = 0; seq < 5; seq++)
		chunk(&fw, seq, rows[_i].at);
	r = report(&fw);
	ck_assert_uint_eq(r->stripes_n, 1);
	ck_assert_uint_eq(r->sessions_n, 3);
	ck_assert_uint_eq(r->stripes[0].job, FAKE_JOB);
	ck_assert_uint_eq(r->stripes[0].lane, 1);
	ck_assert_uint_eq(r->stripes[0].chunks, 5);
	ck_assert_uint_eq(r->stripes[0].operations, 5);
	for (unsigned i = 0; i < 3; i++) {
		const struct lane_report_session *s = &r->sessions[i];

		ck_assert_uint_eq(s->rank, i);
		ck_assert_uint_eq(s->total.chunks, 5);
		ck_assert_msg(s->total.late_ms == 5 * rows[_i].late[i] && s->total.waited_ms == 5 * rows[_i].waited[i],
			      "%s: rank %u was late by %lu and waited for %lu ms", rows[_i].what, i,
			      (unsigned long)s->total.late_ms, (unsigned long)s->total.waited_ms);
		ck_assert_uint_eq(s->missing_ms, 0);
		ck_assert_uint_eq(s->outstanding, 0);
		ck_assert_uint_eq(s->total.bytes_in, 5 * (FRAME_HEADER + 64));
		/* WELCOME, START, PINGs and the results */
		ck_assert_uint_ge(s->total.bytes_out, 5 * (FRAME_HEADER + 64) + 2 * FRAME_HEADER);
	}
	ck_assert_uint_eq(r->total.chunks, 15);
	free(r);
	fw_close(&fw);
}
END_TEST

/* The counters show waiting while it lasts, not only afterwards. */
START_TEST(an_absent_rank_is_missing)
{
	struct lane_report *r;
	struct fw_world fw;
	struct frame f;

	fw_running(&fw, &three);
	f = fw_data(&fw, RS_SUM, RS_FLOAT32, 8, 16, 0);
	fw_contribute(&fw, 0, f);
	fw_contribute(&fw, 2, f);
	fw_feed_all(&fw, 1000);
	pass(&fw, 2500);
	r = report(&fw);
	ck_assert_uint_eq(r->sessions[1].missing_ms, 2500);
	ck_assert_uint_eq(r->sessions[1].total.waited_ms, 2500);
	ck_assert_uint_eq(r->sessions[1].total.chunks, 0);
	for (unsigned i = 0; i < 3; i += 2) {
		ck_assert_uint_eq(r->sessions[i].missing_ms, 0);
		ck_assert_uint_eq(r->sessions[i].total.waited_ms, 0);
		ck_assert_uint_eq(r->sessions[i].outstanding, 1);
		ck_assert_uint_eq(r->sessions[i].silent_ms, 2500);
	}
	ck_assert_uint_eq(r->stripes[0].chunks, 0);
	ck_assert_uint_eq(r->stripes[0].operations, 0);
	free(r);
	/* the registry got it once, and gets the next chunk's again */
	ck_assert_uint_eq(fw.late, 1);
	ck_assert_uint_eq(fw.event.rank, 1);
	ck_assert_uint_eq(fw.event.late, 1);
	ck_assert_uint_eq(fw.event.seq, 8);
	ck_assert_uint_eq(fw.event.waited_ms, 1000);
	fw_contribute(&fw, 1, f);
	fw_feed_all(&fw, 1000);
	f = fw_data(&fw, RS_SUM, RS_FLOAT32, 9, 16, 0);
	fw_contribute(&fw, 0, f);
	fw_feed_all(&fw, 1000);
	pass(&fw, 3000);
	ck_assert_uint_eq(fw.late, 2);
	ck_assert_uint_eq(fw.event.late, 2);
	r = report(&fw);
	ck_assert_uint_eq(r->stripes[0].chunks, 1);
	ck_assert_uint_eq(r->stripes[0].operations, 9);
	free(r);
	fw_close(&fw);
}
END_TEST

/* Group 1, ranks 0 and 2, has a relay. At the home its ranks are not late in what the
 * relay sends: the relay itself is the one that knows. In what they send themselves they
 * are late, as all others. _i: rank 2 has sent the chunk itself, and rank 0 has not */
START_TEST(ranks_behind_a_relay_are_late_there)
{
	struct lane_report *r;
	struct fw_world fw;
	struct frame f;

	fg_running(&fw, (struct fw_options){0});
	fg_uplink(&fw, 1, 1);
	f = fw_data(&fw, RS_SUM, RS_FLOAT32, FG_SEQ, FG_CHUNK / 4, 0);
	for (unsigned rank = 1; rank < FG_WORLD; rank++)
		if (rank == 1 || (rank == 2 && _i))
			fw_contribute(&fw, rank, f);
	fw_feed_all(&fw, 1000);
	pass(&fw, 500);
	r = report(&fw);
	ck_assert_uint_eq(r->sessions_n, FG_WORLD);
	for (unsigned rank = 0; rank < FG_WORLD; rank++) {
		bool late = rank == 3 || rank == 4 || (rank == 0 && _i);

		ck_assert_msg(r->sessions[rank].missing_ms == (late ? 500 : 0), "rank %u: missing for %u ms", rank,
			      r->sessions[rank].missing_ms);
		ck_assert_msg(r->sessions[rank].total.waited_ms == (late ? 500 : 0), "rank %u: waited for %u ms", rank,
			      (unsigned)r->sessions[rank].total.waited_ms);
	}
	free(r);
	fw_close(&fw);
}
END_TEST

/* Chunks wait for the sum of relay r1: that is its time, whenever its sum comes. */
START_TEST(waiting_for_a_relay_is_its_own)
{
	uint8_t sum[FG_CHUNK] = {0};
	struct lane_report *r;
	struct fw_world fw;
	struct frame f;
	unsigned place;

	fg_running(&fw, (struct fw_options){0});
	place = fg_uplink(&fw, 1, 1);
	f = fw_data(&fw, RS_SUM, RS_FLOAT32, FG_SEQ, FG_CHUNK / 4, 0);
	for (unsigned rank = 1; rank < FG_WORLD; rank++)
		if (rank != 2)
			fw_contribute(&fw, rank, f);
	fw_feed_all(&fw, 1000);
	pass(&fw, 500);
	fg_contribute(&fw, place, f, sum, sizeof sum);
	fw_feed_all(&fw, 1000);
	r = report(&fw);
	ck_assert(r->relays_n == 1 && r->stripes[0].relays == 0 && r->stripes[0].relays_n == 1);
	ck_assert(r->relays[0].reducer == 1 && r->relays[0].waited_ms == 500);
	ck_assert_str_eq(r->relays[0].id, "r1");
	for (unsigned rank = 0; rank < FG_WORLD; rank++)
		ck_assert_uint_eq(r->sessions[rank].total.waited_ms, 0);
	free(r);
	fw_close(&fw);
}
END_TEST

/* No rank was late while this process stood still. */
START_TEST(a_stopped_reducer_counts_no_waiting)
{
	struct lane_report *r;
	struct fw_world fw;

	fw_running(&fw, &(struct fw_options){.world = 3, .detect_ms = 2000});
	fw_contribute(&fw, 0, fw_data(&fw, RS_SUM, RS_FLOAT32, 0, 16, 0));
	fw_feed_all(&fw, 1000);
	pass(&fw, 500);
	fw_tick(&fw, 60000);
	r = report(&fw);
	ck_assert_uint_eq(r->sessions[1].total.waited_ms, 500);
	free(r);
	fw_close(&fw);
}
END_TEST

/* The last second's part of the counts. */
START_TEST(counts_of_the_last_second)
{
	struct lane_report *r;
	struct fw_world fw;

	fw_running(&fw, &three);
	pass(&fw, 1000);
	r = report(&fw);
	ck_assert_uint_eq(r->second_ms, 0); /* the start of the first interval is not known */
	free(r);
	pass(&fw, 900);
	chunk(&fw, 0, (const unsigned[]){0, 0, 0});
	pass(&fw, 200);
	r = report(&fw);
	ck_assert_uint_eq(r->second_ms, 1000);
	ck_assert_uint_eq(r->sessions[0].second.chunks, 1);
	ck_assert_uint_eq(r->second.chunks, 3);
	ck_assert_uint_eq(r->sessions[0].second.bytes_in, FRAME_HEADER + 64);
	free(r);
	pass(&fw, 1000);
	r = report(&fw);
	ck_assert_uint_eq(r->sessions[0].second.chunks, 0);
	ck_assert_uint_eq(r->sessions[0].total.chunks, 1);
	free(r);
	fw_close(&fw);
}
END_TEST

/* The traffic of a closed session stays in the lane's counters. */
START_TEST(lanes_keep_the_counts_of_closed_sessions)
{
	struct lane_report *before, *after;
	struct fw_world fw;

	fw_running(&fw, &three);
	chunk(&fw, 0, (const unsigned[]){0, 0, 0});
	before = report(&fw);
	fw_close_peer(&fw, 2);
	ck_assert_uint_eq(fw.lost, 1);
	ck_assert_uint_eq(fw.event.rank, 2);
	ck_assert_ptr_nonnull(strstr(fw.event.why.msg, "rank 2 (host-2) was lost"));
	ck_assert_uint_eq(fw.failed, 1);
	for (unsigned r = 0; r < 2; r++)
		fw_close_peer(&fw, r);
	ck_assert_uint_eq(fw.lost, 1); /* the others left because of it */
	after = report(&fw);
	ck_assert_uint_eq(after->sessions_n, 0);
	ck_assert_uint_eq(after->stripes_n, 0);
	ck_assert_uint_eq(after->total.chunks, before->total.chunks);
	ck_assert_uint_eq(after->total.bytes_in, before->total.bytes_in);
	ck_assert_uint_ge(after->total.bytes_out, before->total.bytes_out);
	free(before);
	free(after);
	fw_close(&fw);
}
END_TEST

/* Uplinks of relays are no ranks: the report counts their bytes for the lane alone. A
 * silent one is lost, even if its machine acknowledges. */
START_TEST(uplinks_count_for_the_lane_alone)
{
	struct lane_report *report;
	uint64_t bytes = 0;
	struct fw_world fw;
	struct frame f;
	unsigned place;
	uint8_t payload[FG_CHUNK] = {0};

	fg_running(&fw, (struct fw_options){.direct = true});
	place = fg_uplink(&fw, 1, 1);
	f = fw_data(&fw, RS_SUM, RS_FLOAT32, FG_SEQ, FG_CHUNK / 4, 0);
	fg_contribute(&fw, place, f, payload, FG_CHUNK);
	fw_contribute(&fw, 4, f);
	fw_feed_all(&fw, SIZE_MAX);
	report = lane_report_new(fw.lane, fw.now_ms);
	must(report);
	ck_assert_uint_eq(report->stripes_n, 1);
	ck_assert_uint_eq(report->sessions_n, FG_WORLD);
	ck_assert(report->stripes[0].sessions == 0 && report->stripes[0].sessions_n == FG_WORLD);
	for (unsigned i = 0; i < FG_WORLD; i++) {
		ck_assert_uint_eq(report->sessions[i].rank, i);
		bytes += report->sessions[i].total.bytes_in;
	}
	ck_assert_uint_eq(bytes, FRAME_HEADER + FG_CHUNK);
	ck_assert_uint_eq(report->total.bytes_in, 2 * bytes);
	free(report);
	while (fw.w[place].session && !fw.w[place].shut) {
		for (unsigned r = 0; r < FG_WORLD; r++)
			fw_send_type(&fw, r, FRAME_PING);
		fw_feed_all(&fw, SIZE_MAX);
		session_acknowledged(fw.w[place].session, fw.now_ms);
		fw_tick(&fw, LANE_TICK_MS);
		ck_assert_uint_eq(fw.stopped, 0);
	}
	ck_assert_uint_eq(fw.lost, 0);
	ck_assert_uint_eq(fw.failed, 0);
	fw_close(&fw);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("report");
	TCase *t = tcase_create("report");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, waiting_is_counted_for_the_late_rank, 0, sizeof rows / sizeof rows[0]);
	tcase_add_test(t, an_absent_rank_is_missing);
	tcase_add_test(t, waiting_for_a_relay_is_its_own);
	tcase_add_loop_test(t, ranks_behind_a_relay_are_late_there, 0, 2);
	tcase_add_test(t, a_stopped_reducer_counts_no_waiting);
	tcase_add_test(t, counts_of_the_last_second);
	tcase_add_test(t, lanes_keep_the_counts_of_closed_sessions);
	tcase_add_test(t, uplinks_count_for_the_lane_alone);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
