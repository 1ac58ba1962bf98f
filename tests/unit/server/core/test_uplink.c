/* SPDX-License-Identifier: Apache-2.0 */
/* An uplink that has joined: what it sends and when, what it receives, and what it does
 * when it breaks. */
#include "tests/unit/fake_lane_views.h"
#include "tests/unit/fake_relay.h"

#include <string.h>

/* _i: the size of the pieces, in both directions, and checksums */
START_TEST(sums_go_up_and_results_come_down)
{
	static const size_t pieces[] = {1, 7, 64, 65, 300, SIZE_MAX};
	struct fw_world fw;
	struct fh_homes homes;
	struct fh_home *h;
	struct frame f;

	fy_open(&fw, &homes, (struct fw_options){.checksum = _i % 2});
	homes.piece = pieces[_i / 2];
	for (f = fy_chunk(&fw, FG_SEQ, 0); f.chunk < 3; f.chunk++)
		fy_forward(&fw, f);
	ck_assert_uint_eq(homes.dialled, 1);
	h = fh_join(&homes, FG_HOME);
	for (f.chunk = 0; f.chunk < 3; f.chunk++)
		fy_expect_data(h, f);
	fh_expect_nothing(h);
	/* results leave in order, in whichever they come */
	for (unsigned i = 0; i < 3; i++) {
		f.chunk = (i + 1) % 3;
		fy_answer(&homes, h, f, (uint8_t)(10 + f.chunk));
	}
	for (f.chunk = 0; f.chunk < 3; f.chunk++)
		for (unsigned r = 1; r < 4; r += 2) {
			uint32_t len;

			ck_assert_uint_eq(fg_result(&fw, r, &f, &len)[0], 10 + f.chunk);
		}
	ck_assert_uint_eq(fw_slots_alive(&fw), 0);
	/* all ranks leave: the connection closes with the job */
	ck_assert_uint_eq(homes.closed, 0);
	fh_close(&homes);
	ck_assert_uint_eq(homes.closed, 1);
}
END_TEST

/* The window counts all priorities; each has a reserve. */
START_TEST(the_window_is_that_of_the_home)
{
	struct fw_world fw;
	struct fh_homes homes;
	struct fh_home *h;
	struct frame low, high;
	uint8_t packed[FRAME_CONTROL_MAX];

	fy_open(&fw, &homes, (struct fw_options){.window = 16, .priorities = 2});
	low = high = fy_chunk(&fw, FG_SEQ, 0);
	high.of.seq++;
	high.of.priority = 1;
	for (low.chunk = 0; low.chunk < 8; low.chunk++)
		fy_forward(&fw, low);
	h = fh_accept(&homes, FG_HOME);
	fh_send_control(&homes, h, FRAME_WELCOME, packed,
			control_pack_welcome(packed, &(struct control_welcome){.detect_ms = FAKE_DETECT_MS}));
	fh_expect_nothing(h);
	fh_send_start(&homes, h, FAKE_START, 4);
	for (low.chunk = 0; low.chunk < 4; low.chunk++)
		fy_expect_data(h, low);
	fh_expect_nothing(h);
	/* an urgent chunk has its reserve, and no more */
	for (high.chunk = 0; high.chunk < frame_reserve(4) + 1; high.chunk++)
		fy_forward(&fw, high);
	for (high.chunk = 0; high.chunk < frame_reserve(4); high.chunk++)
		fy_expect_data(h, high);
	fh_expect_nothing(h);
	/* each result makes room for the most urgent one */
	high.chunk = 0;
	fy_answer(&homes, h, high, 1);
	fy_expect_answer(&fw, high, 1);
	high.chunk = frame_reserve(4);
	fy_expect_data(h, high);
	fh_expect_nothing(h);
	for (low.chunk = 0; low.chunk < 4; low.chunk++) {
		fy_answer(&homes, h, low, 2);
		fy_expect_answer(&fw, low, 2);
	}
	for (low.chunk = 4; h->in.off < h->in.len; low.chunk++)
		fy_expect_data(h, low);
	ck_assert_uint_ge(low.chunk, 5);
	fh_close(&homes);
}
END_TEST

/* A connection that is not needed is not made again. */
START_TEST(it_connects_when_it_is_needed)
{
	struct fw_world fw;
	struct fh_homes homes;
	struct fh_home *h = fy_open_joined(&fw, &homes, (struct fw_options){0});
	struct frame f = fy_chunk(&fw, FG_SEQ, 0);

	fy_answer(&homes, h, f, 1);
	fy_expect_answer(&fw, f, 1);
	fh_break(&homes, h, "connection reset by peer");
	fy_pass(&fw, &homes, 3 * FAKE_DETECT_MS);
	ck_assert_uint_eq(homes.dialled, 1);
	f.chunk = 1;
	fy_forward(&fw, f);
	ck_assert_uint_eq(homes.dialled, 2);
	/* only now it has something to wait for */
	fy_pass(&fw, &homes, 2 * FAKE_DETECT_MS - 100);
	ck_assert_msg(fw.failed == 0, "%s", fw.why.msg);
	if (!fh_find(&homes, FG_HOME))
		fy_pass(&fw, &homes, 100); /* that attempt has taken too long */
	fy_expect_data(fh_join(&homes, FG_HOME), f);
	ck_assert_uint_eq(fw.failed, 0);
	fh_close(&homes);
}
END_TEST

enum loss { NEVER_UP, REFUSED_LATER, MUTE, NEVER_STARTS, SENT, PARTLY, SILENT, ENDED };

static const struct {
	const char *what;
	enum loss how;
	bool again;    /* it is dialled again */
	unsigned from; /* detection times until the end of the job */
	const char *says;
} losses[] = {
    {"never up", NEVER_UP, true, 2, "no route to host"},
    {"a chunk waits", REFUSED_LATER, true, 2, "no route to host"},
    {"pings, and takes nobody", MUTE, true, 4, "it has not sent WELCOME for 2.0 s"},
    {"pings, and does not start", NEVER_STARTS, true, 4, "it has not sent START for 2.0 s"},
    {"a chunk is sent", SENT, false, 2, "connection reset by peer"},
    {"a part of a chunk is sent", PARTLY, false, 2, "connection reset by peer"},
    {"silent", SILENT, false, 3, "nothing was heard from it for 1.0 s"},
    {"ended by its home", ENDED, false, 2, "its lane is full"},
};

/* A chunk that may have come cannot be sent again in this view. If the home is not lost,
 * this reducer leaves the job. */
START_TEST(a_broken_uplink_ends_the_job_here)
{
	enum loss how = losses[_i].how;
	struct fw_world fw;
	struct fh_homes homes;
	struct fh_home *h = NULL;
	struct frame f;
	uint64_t since;
	uint8_t packed[FRAME_CONTROL_MAX];
	const struct control_welcome takes = {.detect_ms = FAKE_DETECT_MS};
	struct rs_err why;

	if (how == NEVER_UP || how == MUTE || how == NEVER_STARTS) {
		fy_open(&fw, &homes, (struct fw_options){0});
	} else {
		h = fy_open_joined(&fw, &homes, (struct fw_options){0});
		if (how == REFUSED_LATER) {
			fy_answer(&homes, h, fy_chunk(&fw, FG_SEQ, 0), 1);
			fh_break(&homes, h, "connection reset by peer");
			fy_pass(&fw, &homes, 100);
		}
	}
	f = fy_chunk(&fw, FG_SEQ, 1);
	if (how == PARTLY)
		fh_grant(&homes, h, 100);
	if (how != SENT)
		fy_forward(&fw, f);
	since = fw.now_ms;
	if (how == SENT || how == PARTLY)
		fh_break(&homes, h, "connection reset by peer");
	if (how == ENDED) {
		rs_fail(&why, RS_EPROTO, "its lane is full");
		fh_send_control(&homes, h, FRAME_ABORT, packed, control_pack_abort(packed, &why, NULL));
		ck_assert(!h->up);
	}
	while (!fw.failed && fw.now_ms - since < 5 * FAKE_DETECT_MS) {
		h = fh_find(&homes, FG_HOME);
		if (how <= REFUSED_LATER && h)
			fh_break(&homes, h, "no route to host");
		if ((how == MUTE || how == NEVER_STARTS) && h && !h->up) {
			h = fh_accept(&homes, FG_HOME);
			if (how == NEVER_STARTS)
				fh_send_control(&homes, h, FRAME_WELCOME, packed, control_pack_welcome(packed, &takes));
		}
		fy_pass(&fw, how == MUTE || how == NEVER_STARTS ? &homes : NULL, 50);
	}
	ck_assert_msg(fw.failed == 1 && fw.unlinked == 1, "%s", losses[_i].what);
	ck_assert_int_eq(fw.why.code, RS_ECUT);
	ck_assert_msg(strstr(fw.why.msg, "it relays for a group and has no connection to reducer r1: ") &&
			  strstr(fw.why.msg, losses[_i].says),
		      "%s: \"%s\"", losses[_i].what, fw.why.msg);
	ck_assert_uint_ge(fw.now_ms - since, losses[_i].from * FAKE_DETECT_MS);
	ck_assert_uint_le(fw.now_ms - since, losses[_i].from * FAKE_DETECT_MS + 200);
	ck_assert_msg((homes.dialled > 1) == losses[_i].again, "%s: dialled %u times", losses[_i].what, homes.dialled);
	fh_close(&homes);
}
END_TEST

/* The home lives, and so does the uplink: nothing ends, for as long as the result
 * takes. */
START_TEST(a_slow_result_ends_nothing)
{
	struct fw_world fw;
	struct fh_homes homes;
	struct fh_home *h = fy_open_joined(&fw, &homes, (struct fw_options){0});
	struct frame f;
	const uint8_t *payload;
	unsigned pings = 0;

	fy_pass(&fw, &homes, 10 * FAKE_DETECT_MS);
	ck_assert_uint_eq(fw.failed, 0);
	ck_assert(h->up);
	while (fw_take_from(&h->in, &f, &payload))
		pings += f.type == FRAME_PING;
	ck_assert_uint_ge(pings, 20); /* the home hears from it, too */
	fh_close(&homes);
}
END_TEST

/* This process was stopped: the silence until now is its own. */
START_TEST(a_stop_of_the_relay_ends_nothing)
{
	struct fw_world fw;
	struct fh_homes homes;
	struct fh_home *h = fy_open_joined(&fw, &homes, (struct fw_options){0});
	struct frame f = fy_chunk(&fw, FG_SEQ, 0);

	fy_pass(&fw, &homes, 200);
	fw_tick(&fw, 10 * FAKE_DETECT_MS);
	ck_assert(h->up);
	fy_pass(&fw, &homes, 2 * FAKE_DETECT_MS);
	ck_assert_msg(fw.failed == 0, "%s", fw.why.msg);
	while (h->in.off < h->in.len) {
		const uint8_t *payload;

		fh_expect(h, FRAME_PING, &payload);
	}
	for (unsigned r = 0; r < FG_WORLD; r++)
		fw.w[r].in.off = fw.w[r].in.len;
	fy_answer(&homes, h, f, 1);
	fy_expect_answer(&fw, f, 1);
	fh_close(&homes);
}
END_TEST

enum wrong {
	SUM_WRONG,
	SIZE_WRONG,
	NOT_SENT,
	NOT_KNOWN,
	TWICE,
	OTHER_OP,
	OTHER_DTYPE,
	OTHER_COUNT,
	OTHER_PRIORITY,
	STRAIGHT,    /* a chunk of which this reducer is the home */
	OTHER_GROUP, /* of another group, for the same home */
	DATA,
	CREDIT,
	KEPT,
	VIEW_SPOILT,
	HEADER_SPOILT,
};

static const struct {
	const char *what;
	enum wrong how;
} wrongs[] = {
    {"checksum", SUM_WRONG},
    {"size", SIZE_WRONG},
    {"a chunk that waits for the window", NOT_SENT},
    {"an unknown chunk", NOT_KNOWN},
    {"twice", TWICE},
    {"another operation", OTHER_OP},
    {"another dtype", OTHER_DTYPE},
    {"another count", OTHER_COUNT},
    {"another priority", OTHER_PRIORITY},
    {"not relayed", STRAIGHT},
    {"another group's", OTHER_GROUP},
    {"DATA", DATA},
    {"CREDIT", CREDIT},
    {"KEPT", KEPT},
    {"a frame whose checksum is wrong", VIEW_SPOILT},
    {"a header whose checksum is wrong", HEADER_SPOILT},
};

/* What a home may not send: the connection closes, and no rank gets it. */
START_TEST(wrong_results_are_not_taken)
{
	enum wrong how = wrongs[_i].how;
	uint8_t bytes[2 * FG_CHUNK] = {0}, packed[FRAME_CONTROL_MAX];
	struct fw_world fw;
	struct fh_homes homes;
	struct fh_home *h =
	    fy_open_joined(&fw, &homes, (struct fw_options){.checksum = true, .window = 2, .priorities = 2});
	struct frame f = fy_chunk(&fw, FG_SEQ, how == NOT_KNOWN ? 7 : 0);
	uint32_t len = how == SIZE_WRONG ? FG_CHUNK - 4 : FG_CHUNK;

	if (how == TWICE || how == NOT_SENT)
		fy_forward(&fw, fy_chunk(&fw, FG_SEQ, 1));
	if (how == TWICE) {
		/* the other result is missing, so this one waits */
		f.chunk = 1;
		fy_answer(&homes, h, f, 1);
	}
	if (how == NOT_SENT) {
		fh_grant(&homes, h, 0);
		f = fy_chunk(&fw, FG_SEQ + 1, 0);
		f.of.priority = 1;
		fy_forward(&fw, f);
	}
	if (how == STRAIGHT) {
		f.chunk = 1;
		fw_contribute(&fw, 1, f);
		fw_feed_all(&fw, SIZE_MAX);
	}
	if (how == OTHER_GROUP) {
		fy_answer(&homes, h, f, 1);
		fy_expect_answer(&fw, f, 1);
		f.chunk = 1;
		fw_contribute(&fw, 4, fg_relayed(f)); /* group 2 */
		fw_feed_all(&fw, SIZE_MAX);
		fy_expect_data(fh_join(&homes, FG_HOME), f);
	}
	f.of.op = how == OTHER_OP ? RS_MAX : f.of.op;
	f.of.dtype = how == OTHER_DTYPE ? RS_INT32 & 15 : f.of.dtype;
	f.of.count += how == OTHER_COUNT;
	f.of.priority = how == OTHER_PRIORITY ? 1 : f.of.priority;
	f.type = how == DATA ? FRAME_DATA : how == CREDIT ? FRAME_CREDIT : how == KEPT ? FRAME_KEPT : FRAME_RESULT;
	f.flags = FRAME_CHECKED;
	f.payload_len = how >= CREDIT ? 0 : len;
	f.payload_sum = frame_checksum(bytes, len) + (how == SUM_WRONG);
	if (how == VIEW_SPOILT) {
		uint8_t frame[FRAME_HEADER + FRAME_CONTROL_MAX];
		struct control_view v = lv_of(0, 0, 0);
		uint32_t n =
		    control_frame(frame, FRAME_RESUME, FAKE_GENERATION, 0, packed, control_pack_view(packed, &v));

		frame[FRAME_HEADER] ^= 1;
		fh_send_bytes(&homes, h, frame, n);
	} else if (how == HEADER_SPOILT) {
		frame_encode(&f, bytes);
		bytes[20] ^= 1;
		fh_send_bytes(&homes, h, bytes, FRAME_HEADER);
	} else {
		fh_send(&homes, h, f, bytes);
	}
	ck_assert_msg(!h->up, "%s is taken", wrongs[_i].what);
	for (unsigned r = 0; r < FG_WORLD; r++)
		fw_expect_nothing(&fw, r);
	ck_assert_uint_eq(fw.failed, 0);
	fh_close(&homes);
}
END_TEST

/* Rank 3 is late: rank 1 hears so, and the home too. */
START_TEST(the_home_hears_who_is_late)
{
	struct fw_world fw;
	struct fh_homes homes;
	struct fh_home *h = fy_open_joined(&fw, &homes, (struct fw_options){0});
	struct frame f = fy_chunk(&fw, FG_SEQ, 1), got;
	const uint8_t *payload;
	struct control_late late = {.seq = FG_SEQ, .waited_ms = 5000, .missing = {4}, .missing_n = 1, .missing_all = 1};
	uint8_t packed[FRAME_CONTROL_MAX];
	struct rs_err e;
	bool heard = false;

	fw_contribute(&fw, 1, fg_relayed(f));
	fw_feed_all(&fw, SIZE_MAX);
	fy_pass(&fw, &homes, 1200);
	while (fw_take_from(&h->in, &got, &payload)) {
		struct control_late said;

		if (got.type != FRAME_LATE)
			continue;
		must(control_unpack_late(payload, got.payload_len, &said, &e) == RS_OK);
		ck_assert(said.seq == FG_SEQ && said.missing_n == 1 && said.missing_all == 1 && said.missing[0] == 3);
		ck_assert(got.of.seq == FG_SEQ && got.of.count == FY_COUNT);
		heard = true;
	}
	ck_assert(heard);
	/* what the home says, the ranks hear that wait for it */
	for (unsigned r = 0; r < FG_WORLD; r++)
		while (fw_take(&fw, r, &got, &payload))
			;
	fh_send_control(&homes, h, FRAME_LATE, packed, control_pack_late(packed, &late));
	for (unsigned r = 0; r < FG_WORLD; r++)
		if (fg_group_of[r] == 0)
			fw_expect(&fw, r, FRAME_LATE);
		else
			fw_expect_nothing(&fw, r);
	fh_close(&homes);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("uplink");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, sums_go_up_and_results_come_down, 0, 12);
	tcase_add_test(tc, the_window_is_that_of_the_home);
	tcase_add_test(tc, it_connects_when_it_is_needed);
	tcase_add_loop_test(tc, a_broken_uplink_ends_the_job_here, 0, sizeof losses / sizeof losses[0]);
	tcase_add_test(tc, a_slow_result_ends_nothing);
	tcase_add_test(tc, a_stop_of_the_relay_ends_nothing);
	tcase_add_loop_test(tc, wrong_results_are_not_taken, 0, sizeof wrongs / sizeof wrongs[0]);
	tcase_add_test(tc, the_home_hears_who_is_late);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
