/* SPDX-License-Identifier: Apache-2.0 */
/* A lane of a job with failover, after its ranks have agreed on a view: results that only
 * some ranks have, and ranks that leave when they have all results. */
#include "tests/unit/fake_lane_views.h"

/* The ranks of three that have the result already (bit r), and what happens to the chunk.
 * _i: the bits, and variants. */
START_TEST(data_and_have_complete_a_chunk)
{
	unsigned have = (unsigned)_i % 8, from = UINT32_MAX;
	struct fw_options opt = {.world = 3, .deterministic = _i & 8, .checksum = _i & 16};
	struct fw_world fw;
	struct frame f;

	lv_running(&fw, opt);
	lv_agree(&fw, lv_of(0, 1, 0));
	f = fw_data(&fw, RS_AVG, _i & 32 ? RS_FLOAT16 : RS_INT32, 6, 100, 1);
	for (unsigned i = 0; i < 3; i++) {
		unsigned r = (i + (unsigned)_i / 64) % 3;

		if (have >> r & 1)
			fw_have(&fw, r, f);
		else
			fw_contribute(&fw, r, f);
		fw_feed_all(&fw, 19);
	}
	if (have > 0 && have < 7) {
		for (unsigned r = 0; r < 3; r++) {
			struct frame asked;
			const uint8_t *payload;

			if (!fw_take(&fw, r, &asked, &payload))
				continue;
			ck_assert_uint_eq(asked.type, FRAME_FETCH);
			ck_assert(asked.of.seq == f.of.seq && asked.chunk == f.chunk && asked.payload_len == 0);
			ck_assert(have >> r & 1);
			ck_assert_uint_eq(from, UINT32_MAX); /* one is enough */
			from = r;
		}
		ck_assert_uint_ne(from, UINT32_MAX);
		fw_send_kept(&fw, from, f, 3);
		fw_feed_all(&fw, 7);
	}
	for (unsigned r = 0; r < 3; r++) {
		if (have >> r & 1)
			fw_expect_head(&fw, r, f);
		else
			fw_expect_result(&fw, r, f, 3);
		fw_expect_nothing(&fw, r);
		ck_assert_uint_eq(fw.w[r].session->outstanding, 0);
	}
	ck_assert_uint_eq(fw_slots_alive(&fw), 0);
	ck_assert_uint_eq(fw.failed, 0);
	fw_close(&fw);
}
END_TEST

/* The payload of KEPT is the result, even if a sum would give other bits, so all ranks
 * get the same bits. */
START_TEST(a_retained_result_is_not_computed_again)
{
	static const float odd[16] = {1.5f, -3, 7.25f};
	struct fw_world fw;
	struct frame f, got;
	const uint8_t *payload;

	lv_running(&fw, (struct fw_options){.deterministic = _i});
	lv_agree(&fw, lv_of(0, 1, 0));
	f = fw_data(&fw, RS_SUM, RS_FLOAT32, 0, 16, 0);
	fw_contribute(&fw, 0, f);
	fw_have(&fw, 1, f);
	fw_feed_all(&fw, SIZE_MAX);
	f = fw_expect(&fw, 1, FRAME_FETCH);
	f.type = FRAME_KEPT;
	f.payload_len = sizeof odd;
	fw_send(&fw, 1, f, odd);
	fw_feed_all(&fw, 30);
	ck_assert(fw_take(&fw, 0, &got, &payload));
	ck_assert_uint_eq(got.type, FRAME_RESULT);
	ck_assert_uint_eq(got.payload_len, sizeof odd);
	ck_assert_mem_eq(payload, odd, sizeof odd);
	fw_close(&fw);
}
END_TEST

/* "RESULTs still come in that order": chunks 0..4, some of which (bit i) are fetched from
 * rank 1; the answers arrive in the same order, and no result is sent before an earlier
 * missing one. */
START_TEST(results_wait_behind_fetched_ones)
{
	unsigned asked = (unsigned)_i, out = 0;
	struct fw_world fw;
	struct frame f;

	lv_running(&fw, (struct fw_options){.window = 5});
	lv_agree(&fw, lv_of(0, 1, 0));
	f = fw_data(&fw, RS_SUM, RS_INT32, 3, 5 * 16, 0);
	for (f.chunk = 0; f.chunk < 5; f.chunk++) {
		fw_contribute(&fw, 0, f);
		if (asked >> f.chunk & 1)
			fw_have(&fw, 1, f);
		else
			fw_contribute(&fw, 1, f);
	}
	fw_feed_all(&fw, SIZE_MAX);
	for (f.chunk = 0; f.chunk <= 5; f.chunk++) {
		if (f.chunk < 5 && !(asked >> f.chunk & 1))
			continue;
		/* those before the first missing one have been sent */
		for (struct frame g = f; out < f.chunk; out++) {
			g.chunk = out;
			fw_expect_result(&fw, 0, g, 2);
		}
		fw_expect_nothing(&fw, 0);
		if (f.chunk == 5)
			break;
		fw_send_kept(&fw, 1, f, 2);
		fw_feed_all(&fw, SIZE_MAX);
	}
	ck_assert_uint_eq(fw_slots_alive(&fw), 0);
	ck_assert_uint_eq(fw.failed, 0);
	fw_close(&fw);
}
END_TEST

/* KEPT frames of two ranks, in another order than the FETCH frames. */
START_TEST(answers_may_overtake_each_other)
{
	struct fw_world fw;
	struct frame a, b;

	lv_running(&fw, (struct fw_options){.world = 3});
	lv_agree(&fw, lv_of(0, 1, 0));
	a = fw_data(&fw, RS_SUM, RS_INT32, 3, 32, 0);
	b = fw_data(&fw, RS_SUM, RS_INT32, 3, 32, 1);
	fw_contribute(&fw, 0, a);
	fw_contribute(&fw, 0, b);
	fw_have(&fw, 1, a);
	fw_contribute(&fw, 1, b);
	fw_contribute(&fw, 2, a);
	fw_have(&fw, 2, b);
	fw_feed_all(&fw, SIZE_MAX);
	fw_expect(&fw, 1, FRAME_FETCH);
	fw_expect(&fw, 2, FRAME_FETCH);
	fw_send_kept(&fw, 2, b, 3);
	fw_feed_all(&fw, SIZE_MAX);
	for (unsigned r = 0; r < 3; r++)
		fw_expect_nothing(&fw, r);
	fw_send_kept(&fw, 1, a, 3);
	fw_feed_all(&fw, SIZE_MAX);
	fw_expect_result(&fw, 0, a, 3);
	fw_expect_result(&fw, 0, b, 3);
	fw_expect_head(&fw, 1, a);
	fw_expect_result(&fw, 1, b, 3);
	fw_expect_result(&fw, 2, a, 3);
	fw_expect_head(&fw, 2, b);
	fw_close(&fw);
}
END_TEST

/* Each priority has its own order: an urgent result does not wait for a FETCH of another
 * priority. */
START_TEST(priorities_do_not_wait_for_each_others_answers)
{
	struct fw_world fw;
	struct frame slow, urgent;

	lv_running(&fw, (struct fw_options){.priorities = 2});
	lv_agree(&fw, lv_of(0, 1, 0));
	slow = fw_data(&fw, RS_SUM, RS_INT32, 3, 16, 0);
	urgent = fw_data(&fw, RS_SUM, RS_INT32, 4, 16, 0);
	urgent.of.priority = 1;
	fw_contribute(&fw, 0, slow);
	fw_have(&fw, 1, slow);
	for (unsigned r = 0; r < 2; r++)
		fw_contribute(&fw, r, urgent);
	fw_feed_all(&fw, SIZE_MAX);
	fw_expect_result(&fw, 0, urgent, 2);
	fw_expect_nothing(&fw, 0);
	fw_close(&fw);
}
END_TEST

/* A view that changes during a FETCH: the answer is no longer waited for, and another
 * rank may be asked. */
START_TEST(a_fetch_ends_with_its_view)
{
	struct control_view v;
	struct fw_world fw;
	struct frame f;

	lv_running(&fw, (struct fw_options){0});
	lv_agree(&fw, lv_of(0, 1, 0));
	f = fw_data(&fw, RS_SUM, RS_INT32, 3, 16, 0);
	for (unsigned round = 0; round < 2; round++) {
		/* the first time FETCH is not even sent */
		fw.w[1].room = round ? SIZE_MAX : 0;
		fw_contribute(&fw, 0, f);
		fw_have(&fw, 1, f);
		fw_feed_all(&fw, SIZE_MAX);
		if (round)
			fw_expect(&fw, 1, FRAME_FETCH);
		v = lv_of(0, 2 + round, 0);
		fw_send_view(&fw, 0, &v);
		fw_send_view(&fw, 1, &v);
		fw_feed_all(&fw, SIZE_MAX);
		fw_grant(&fw, 1, SIZE_MAX);
		if (round)
			lv_expect(&fw, 1, FRAME_VIEW, v);
		for (unsigned r = 0; r < 2; r++) {
			lv_expect(&fw, r, FRAME_RESUME, v);
			fw_expect_nothing(&fw, r);
		}
		ck_assert_uint_eq(fw_slots_alive(&fw), 0);
	}
	/* all as ever */
	for (unsigned r = 0; r < 2; r++)
		fw_contribute(&fw, r, f);
	fw_feed_all(&fw, SIZE_MAX);
	for (unsigned r = 0; r < 2; r++)
		fw_expect_result(&fw, r, f, 2);
	fw_close(&fw);
}
END_TEST

/* KEPT frames that do not match a FETCH to this rank. */
enum wrong_answer {
	UNASKED,
	OF_ANOTHER_CHUNK,
	OF_ANOTHER_RANK,
	TOO_SHORT,
	TOO_LONG,
	WITHOUT_CHECKSUM,
	DAMAGED,
	TWICE,
	AFTER_VIEW,
	WRONG_NR
};

START_TEST(wrong_kept_frames)
{
	const struct control_view after = lv_of(0, 2, 0);
	struct fw_world fw;
	struct frame f;
	uint8_t payload[256] = {0};

	lv_running(&fw, (struct fw_options){.world = 3, .checksum = true});
	lv_agree(&fw, lv_of(0, 1, 0));
	f = fw_data(&fw, RS_SUM, RS_INT32, 3, 32, 0);
	if (_i != UNASKED) {
		fw_contribute(&fw, 0, f);
		fw_have(&fw, 1, f);
		fw_have(&fw, 2, f);
		fw_feed_all(&fw, SIZE_MAX);
		fw_expect(&fw, 1, FRAME_FETCH);
	}
	if (_i == TWICE) { /* the first of them waits for its turn */
		f.chunk = 1;
		fw_contribute(&fw, 0, f);
		fw_have(&fw, 1, f);
		fw_have(&fw, 2, f);
		fw_feed_all(&fw, SIZE_MAX);
		fw_expect(&fw, 1, FRAME_FETCH);
		fw_send_kept(&fw, 1, f, 3);
	}
	if (_i == AFTER_VIEW)
		fw_send_view(&fw, 1, &after);
	f.type = FRAME_KEPT;
	f.chunk = _i == OF_ANOTHER_CHUNK || _i == TWICE;
	f.payload_len = _i == TOO_SHORT ? 60 : _i == TOO_LONG ? 68 : 64;
	f.flags = _i == WITHOUT_CHECKSUM ? 0 : FRAME_CHECKED;
	f.payload_sum = f.flags ? frame_checksum(payload, f.payload_len) ^ (_i == DAMAGED) : 0;
	fw_send(&fw, _i == OF_ANOTHER_RANK ? 2 : 1, f, payload);
	fw_feed_all(&fw, SIZE_MAX);
	lv_expect_end(&fw, RS_ECUT,
		      _i == DAMAGED           ? "the checksum of rank 1 (host-1)'s chunk 0 of operation 3 is wrong"
		      : _i == OF_ANOTHER_RANK ? "rank 2 (host-2) sent 64 bytes (flags 0x4) as the result of chunk 0"
					      : "which was not asked for");
	fw_close(&fw);
}
END_TEST

/* A HAVE is a contribution without bytes: it has its place in the sequence, and must
 * agree with the others. */
static const struct {
	const char *what, *says;
	int code;
	uint8_t flags, dtype;
	uint32_t payload_len;
	uint64_t seq;
} haves[] = {
    {"with a flag", "HAVE came with flags 0x2 in a job that knows none", RS_ECUT, FRAME_ROOT, RS_INT32, 0, 3},
    {"with a payload", "has 4 payload bytes instead of 0", RS_ECUT, 0, RS_INT32, 4, 3},
    {"of another type", "ranks disagree about operation 3", RS_EMISMATCH, 0, RS_FLOAT32, 0, 3},
    {"out of order", "sent chunk 0 of operation 2 out of order or twice", RS_ECUT, 0, RS_INT32, 0, 2},
};

START_TEST(wrong_have_frames)
{
	struct fw_world fw;
	struct frame f;

	lv_running(&fw, (struct fw_options){0});
	lv_agree(&fw, lv_of(0, 1, 0));
	f = fw_data(&fw, RS_SUM, RS_INT32, 3, 32, 0);
	fw_contribute(&fw, 0, f);
	if (haves[_i].seq < 3)
		fw_have(&fw, 1, f);
	f.type = FRAME_HAVE;
	f.flags = haves[_i].flags;
	f.of.dtype = haves[_i].dtype;
	f.of.seq = haves[_i].seq;
	f.payload_len = haves[_i].payload_len;
	fw_send(&fw, 1, f, "abcd");
	fw_feed_all(&fw, SIZE_MAX);
	lv_expect_end(&fw, haves[_i].code, haves[_i].says);
	fw_close(&fw);
}
END_TEST

static void say_done(struct fw_world *fw, unsigned rank, unsigned type, uint64_t ack)
{
	fw_send(fw, rank, (struct frame){.type = (uint8_t)type, .generation = FAKE_GENERATION, .ack = ack}, NULL);
	fw_feed_all(fw, SIZE_MAX);
}

/* "A worker that has all results says SETTLE and waits until a frame's ack says that all
 * ranks have them. A reducer asks the others with a PING that has count 1." _i: at the
 * same time a rank is asked whether it lives. */
START_TEST(settle_waits_for_all_ranks)
{
	struct fw_world fw;
	struct frame f;

	lv_running(&fw, (struct fw_options){.world = 3});
	say_done(&fw, 2, FRAME_PING, 7);
	if (_i)
		lane_ask(fw.lane, FAKE_JOB, fw.params.lane, 1, 2);
	say_done(&fw, 0, FRAME_SETTLE, 7);
	fw_expect_nothing(&fw, 0);
	if (_i)
		ck_assert_uint_eq(fw_expect(&fw, 1, FRAME_PING).of.count, 2);
	f = fw_expect(&fw, 1, FRAME_PING);
	ck_assert(f.of.count == 1 && f.ack == 0);
	fw_expect_nothing(&fw, 2); /* it has sent it already */
	say_done(&fw, 1, FRAME_PING, 6);
	fw_expect_nothing(&fw, 0);
	say_done(&fw, 1, FRAME_PING, 7);
	f = fw_expect(&fw, 0, FRAME_PING);
	ck_assert(f.of.count == 0 && f.ack == 7);
	/* a rank that asks later gets its answer at once */
	say_done(&fw, 1, FRAME_SETTLE, 7);
	f = fw_expect(&fw, 1, FRAME_PING);
	ck_assert(f.of.count == 0 && f.ack == 7);
	for (unsigned r = 0; r < 3; r++)
		fw_expect_nothing(&fw, r);
	fw_close(&fw);
}
END_TEST

/* "When one has left, a chunk of an operation below its GOODBYE's ack needs no entry of
 * it." _i: whether ranks leave before (bit 0) or after (bit 1) the others have sent DATA
 * or HAVE. */
START_TEST(a_departed_rank_is_not_expected)
{
	const struct control_view later = lv_of(0, 1, 1);
	struct fw_world fw;
	struct frame f;

	lv_running(&fw, (struct fw_options){.world = 3});
	lv_agree(&fw, lv_of(0, 1, 0));
	f = fw_data(&fw, RS_SUM, RS_INT32, 3, 16, 0);
	if (_i == 0)
		say_done(&fw, 2, FRAME_GOODBYE, 4);
	fw_have(&fw, 0, f);
	fw_have(&fw, 1, f);
	fw_feed_all(&fw, SIZE_MAX);
	if (_i == 1) {
		fw_expect_nothing(&fw, 0);
		say_done(&fw, 2, FRAME_GOODBYE, 4);
	}
	for (unsigned r = 0; r < 2; r++)
		fw_expect_head(&fw, r, f);
	fw_expect_nothing(&fw, 2);
	ck_assert_uint_eq(fw_slots_alive(&fw), 0);
	ck_assert_uint_eq(fw.failed, 0);
	/* nor does RESUME wait for it, before or after its connection is closed */
	if (_i == 0)
		fw_close_peer(&fw, 2);
	for (unsigned r = 0; r < 2; r++)
		fw_send_view(&fw, r, &later);
	fw_feed_all(&fw, SIZE_MAX);
	fw_expect_view(&fw, 1, FRAME_VIEW);
	for (unsigned r = 0; r < 2; r++)
		fw_expect_view(&fw, r, FRAME_RESUME);
	fw_close(&fw);
}
END_TEST

/* A rank that has left cannot have a result it did not report, and without it nothing new
 * can be summed. */
static const struct {
	uint64_t ack;
	bool have;
} leavings[] = {{4, false}, {5, false}, {4, true}, {3, true}};

START_TEST(no_new_operation_after_a_departure)
{
	struct fw_world fw;
	struct frame f;

	lv_running(&fw, (struct fw_options){.world = 3});
	f = fw_data(&fw, RS_SUM, RS_INT32, 4, 16, 0);
	say_done(&fw, 2, FRAME_GOODBYE, leavings[_i].ack);
	if (leavings[_i].have)
		fw_have(&fw, 0, f);
	else
		fw_contribute(&fw, 0, f);
	fw_feed_all(&fw, SIZE_MAX);
	lv_expect_end(&fw, RS_ECLOSED, "rank 2 (host-2) closed the communicator before operation 4");
	fw_close(&fw);
}
END_TEST

/* A chunk that some ranks lack and that is not below its ack may be needed: then leaving
 * counts as an error. */
START_TEST(departure_with_pending_chunks)
{
	struct fw_world fw;
	struct frame f;

	lv_running(&fw, (struct fw_options){.world = 3});
	f = fw_data(&fw, RS_SUM, RS_INT32, 4, 16, 0);
	fw_contribute(&fw, 0, f);
	fw_feed_all(&fw, SIZE_MAX);
	say_done(&fw, 2, FRAME_GOODBYE, (uint64_t)_i + 4);
	if (_i == 0) {
		lv_expect_end(&fw, RS_ECLOSED, "rank 2 (host-2) closed the communicator while operations were pending");
	} else {
		ck_assert_uint_eq(fw.failed, 0);
	}
	fw_close(&fw);
}
END_TEST

/* A rank leaves with all results of a later view while contributions of an earlier view
 * are still on their way: they are not summed without that rank, and the view of the
 * others drops them. _i: deterministic (bit 0); rank 1's begins to arrive only after the
 * GOODBYE (bit 1) */
START_TEST(contributions_of_an_earlier_view_are_not_summed)
{
	const struct control_view later = lv_of(0, 1, 0);
	struct fw_world fw;
	struct frame f;

	lv_running(&fw, (struct fw_options){.world = 3, .deterministic = _i & 1});
	f = fw_data(&fw, RS_SUM, RS_INT32, 3, 16, 0);
	fw_contribute(&fw, 0, f);
	fw_contribute(&fw, 1, f);
	fw_feed(&fw, 0, FRAME_HEADER + 10);
	if (_i < 2)
		fw_feed(&fw, 1, FRAME_HEADER + 10);
	fw_send_view(&fw, 2, &later);
	fw_send(&fw, 2, (struct frame){.type = FRAME_GOODBYE, .generation = FAKE_GENERATION, .ack = 5}, NULL);
	fw_feed(&fw, 2, SIZE_MAX);
	fw_feed_all(&fw, SIZE_MAX);
	for (unsigned r = 0; r < 2; r++) {
		fw_expect_view(&fw, r, FRAME_VIEW);
		fw_expect_nothing(&fw, r);
		fw_send_view(&fw, r, &later);
	}
	fw_feed_all(&fw, SIZE_MAX);
	for (unsigned r = 0; r < 2; r++)
		fw_expect_view(&fw, r, FRAME_RESUME);
	ck_assert_uint_eq(fw_slots_alive(&fw), 0);
	ck_assert_uint_eq(fw.failed, 0);
	fw_close(&fw);
}
END_TEST

/* A rank leaves although a result was fetched from it: another rank that has it is asked,
 * if there is one. If its view is a later one, the others have that result from another
 * lane, and their views drop the chunk here. */
START_TEST(departure_without_kept)
{
	const struct control_view later = lv_of(0, 2, 0);
	struct fw_world fw;
	struct frame f;

	lv_running(&fw, (struct fw_options){.world = 3});
	lv_agree(&fw, lv_of(0, 1, 0));
	f = fw_data(&fw, RS_SUM, RS_INT32, 3, 16, 1); /* the chunk number selects the first rank to ask */
	f.of.count = 32;
	fw_contribute(&fw, 0, f);
	fw_have(&fw, 1, f);
	if (_i == 0)
		fw_have(&fw, 2, f);
	else
		fw_contribute(&fw, 2, f);
	fw_feed_all(&fw, SIZE_MAX);
	fw_expect(&fw, 1, FRAME_FETCH);
	if (_i == 2)
		lv_send(&fw, 1, later);
	say_done(&fw, 1, FRAME_GOODBYE, _i == 2 ? 4 : 3);
	if (_i == 2) {
		ck_assert_uint_eq(fw.failed, 0);
		lv_expect(&fw, 0, FRAME_VIEW, later);
		lv_expect(&fw, 2, FRAME_VIEW, later);
		lv_send(&fw, 0, later);
		lv_send(&fw, 2, later);
		lv_expect(&fw, 0, FRAME_RESUME, later);
		lv_expect(&fw, 2, FRAME_RESUME, later);
		ck_assert_uint_eq(fw_slots_alive(&fw), 0);
	} else if (_i == 0) {
		fw_expect(&fw, 2, FRAME_FETCH);
		ck_assert_uint_eq(fw.failed, 0);
	} else {
		lv_expect_end(&fw, RS_ECLOSED, "rank 1 (host-1) closed the communicator while operations were pending");
	}
	fw_close(&fw);
}
END_TEST

#define COUNT(a) (int)(sizeof(a) / sizeof(a)[0])

int main(void)
{
	Suite *suite = suite_create("retained");
	TCase *tc = tcase_create("retained");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, data_and_have_complete_a_chunk, 0, 3 * 64);
	tcase_add_loop_test(tc, a_retained_result_is_not_computed_again, 0, 2);
	tcase_add_loop_test(tc, results_wait_behind_fetched_ones, 0, 32);
	tcase_add_test(tc, answers_may_overtake_each_other);
	tcase_add_test(tc, priorities_do_not_wait_for_each_others_answers);
	tcase_add_test(tc, a_fetch_ends_with_its_view);
	tcase_add_loop_test(tc, wrong_kept_frames, 0, WRONG_NR);
	tcase_add_loop_test(tc, wrong_have_frames, 0, COUNT(haves));
	tcase_add_loop_test(tc, settle_waits_for_all_ranks, 0, 2);
	tcase_add_loop_test(tc, a_departed_rank_is_not_expected, 0, 2);
	tcase_add_loop_test(tc, no_new_operation_after_a_departure, 0, COUNT(leavings));
	tcase_add_loop_test(tc, departure_with_pending_chunks, 0, 2);
	tcase_add_loop_test(tc, departure_without_kept, 0, 3);
	tcase_add_loop_test(tc, contributions_of_an_earlier_view_are_not_summed, 0, 4);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
