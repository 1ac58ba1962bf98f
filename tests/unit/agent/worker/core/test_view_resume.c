/* SPDX-License-Identifier: Apache-2.0 */
/* How a rank resumes its operations after a view, by the rules of proto/README.md,
 * "Failover". */
#include "tests/unit/fake_views.h"

#include <check.h>
#include <string.h>

/* Where a frame with a chunk is cut: within its header and its payload, and at their
 * ends. */
static const unsigned stops[] = {1, 7, FRAME_HEADER - 1, FRAME_HEADER, FRAME_HEADER + 1, 500, FRAME_HEADER + 1023};
enum { STOPS = sizeof stops / sizeof stops[0] };

/* "From then on takes no RESULT and sends no chunk there." Nothing completes that not all
 * ranks have agreed to, but a frame in progress is read to its end. */
START_TEST(no_data_between_view_and_resume)
{
	struct reducers f;
	struct reducers_op o, next;
	unsigned sent[VIEWS_LINKS];

	views_open(&f, views_three);
	f.answer = false;
	views_submit(&f, &o, 6);
	/* links 0, 1, 2, 3 have 0, 3, 1 and 4, 2 and 5 */
	for (unsigned i = 0; i < VIEWS_LINKS; i++)
		sent[i] = f.l[i].data_n;
	f.l[2].dead = true;
	reducers_cut(&f, 2, "cut");
	for (unsigned i = 0; i < 2; i++) {
		f.l[3].answered = i;
		reducers_answer(&f, 3);
	}
	views_submit(&f, &next, 6);
	for (unsigned i = 0; i < VIEWS_LINKS; i++)
		ck_assert_uint_eq(f.l[i].data_n, sent[i]);
	ck_assert_uint_eq(f.lost, 1);
	for (unsigned i = 0; i < 6 * VIEWS_CHUNK; i++)
		ck_assert(o.x[i] == (float)i);
	/* on the link that has its RESUME all chunks are sent again */
	views_say_resume(&f, 3, 0);
	ck_assert_str_eq(views_said(&f, 3, sent[3]), "D2 D4 D5 D1.1");
	ck_assert_uint_eq(f.l[0].data_n, sent[0]);
	reducers_close(&f);
}
END_TEST

/* The chunks of operation 0 (six, on links 0 3 | 1 4 | 2 5 at first) that have a result
 * (bits) when r1 is lost, and the frames that r0's lanes and r2 get then. r1's chunks go
 * to the reducer with the least load: 1 to r0's first lane, 4 to r2. */
static const struct {
	unsigned have;
	const char *said[3];
} replays[] = {
    {0, {"D0 D1", "D3", "D2 D4 D5"}},      {1, {"H0 D1", "D3", "D2 D4 D5"}},
    {2, {"D0 H1", "D3", "D2 D4 D5"}},      {2 + 16, {"D0 H1", "D3", "D2 H4 D5"}},
    {4 + 32, {"D0 D1", "D3", "H2 D4 H5"}}, {63 - 16, {"H0 H1", "H3", "H2 D4 H5"}},
    {63, {"H0 H1", "H3", "H2 H4 H5"}}, /* it has completed: others may lack results of it */
};

START_TEST(have_for_stored_results_and_data_for_the_rest)
{
	static const unsigned links[] = {0, 1, 3};
	struct reducers f;
	struct reducers_op o;
	unsigned sent[VIEWS_LINKS];

	views_open(&f, views_three);
	f.answer = false;
	views_submit(&f, &o, 6);
	for (unsigned chunk = 0; chunk < 6; chunk++) {
		unsigned link = chunk % 3 ? chunk % 3 + 1 : chunk / 3;

		f.l[link].answered = chunk % 3 ? chunk / 3 : 0;
		if (replays[_i].have >> chunk & 1 &&
		    (chunk < 3 || chunk % 3 == 0 || replays[_i].have >> (chunk - 3) & 1)) {
			reducers_answer(&f, link);
			reducers_pump(&f);
		}
	}
	for (unsigned i = 0; i < VIEWS_LINKS; i++)
		sent[i] = f.l[i].data_n;
	f.l[2].dead = true;
	f.resume = f.answer = true;
	reducers_cut(&f, 2, "cut");
	reducers_pump(&f);
	for (unsigned i = 0; i < 3; i++)
		ck_assert_str_eq(views_said(&f, links[i], sent[links[i]]), replays[_i].said[i]);
	views_expect_done(&o);
	reducers_close(&f);
}
END_TEST

/* HAVE "carries what DATA would, without flags and payload". */
START_TEST(have_is_data_without_bytes)
{
	struct reducers f;
	struct reducers_op o;
	struct frame want, got;
	uint8_t want_bytes[FRAME_HEADER], got_bytes[FRAME_HEADER];

	views_open(&f, views_two);
	f.resume = true;
	views_submit(&f, &o, 2);
	want = f.l[1].data[0];
	f.l[1].dead = true;
	reducers_cut(&f, 1, "cut");
	reducers_pump(&f);
	ck_assert_str_eq(views_said(&f, 0, 1), "H0 H1");
	got = f.l[0].data[2];
	want.type = FRAME_HAVE;
	want.flags = 0;
	want.payload_len = want.payload_sum = 0;
	want.ack = 1; /* as every frame: all below 1 are complete here */
	frame_encode(&want, want_bytes);
	frame_encode(&got, got_bytes);
	ck_assert_mem_eq(got_bytes, want_bytes, sizeof want_bytes);
	views_expect_done(&o);
	reducers_close(&f);
}
END_TEST

/* All ranks resume at the largest start that one of them has sent. Chunks below it need
 * no frame. */
START_TEST(nothing_is_sent_below_the_common_start)
{
	static const char *const said_then[] = {"H0 H1 H2 H3", "H1 H2 H3", "H2 H3", "H3", "", ""};
	struct reducers f;
	struct reducers_op o, next;
	unsigned sent;

	views_open(&f, views_two);
	views_submit(&f, &o, 4);
	f.l[1].dead = true;
	sent = f.l[0].data_n;
	reducers_cut(&f, 1, "cut");
	reducers_pump(&f);
	views_say_resume(&f, 0, (uint64_t)_i);
	ck_assert_str_eq(views_said(&f, 0, sent), said_then[_i]);
	/* the next operation is behind it, also if other ranks had none of it */
	if (_i < 5) {
		views_submit(&f, &next, 1);
		views_expect_done(&next);
	}
	reducers_close(&f);
}
END_TEST

/* Nor do chunks of an operation that continues there. */
START_TEST(an_operation_resumes_in_the_middle)
{
	static const char *const said_then[] = {"H0 H1 H2 D3", "H1 H2 D3", "H2 D3", "D3"};
	struct reducers f;
	struct reducers_op o;

	views_open(&f, views_two);
	f.answer = false;
	views_submit(&f, &o, 4);
	reducers_answer(&f, 0);
	reducers_answer(&f, 0);
	reducers_answer(&f, 1);
	reducers_pump(&f);
	f.l[1].dead = true;
	reducers_cut(&f, 1, "cut");
	reducers_pump(&f);
	f.answer = true;
	views_say_resume(&f, 0, (uint64_t)_i);
	ck_assert_str_eq(views_said(&f, 0, 2), said_then[_i]);
	views_expect_done(&o);
	reducers_close(&f);
}
END_TEST

/* An operation may complete while HAVE frames of its results are still to be sent: its
 * owner takes its memory back. */
START_TEST(an_operation_ends_before_all_have_frames_are_sent)
{
	static const char narrow[] =
	    "reducers: [{id: r0, address: \"127.0.0.1:1\"}, {id: r1, address: \"127.0.0.1:2\"},\n"
	    "  {id: r2, address: \"127.0.0.1:3\"}]\n"
	    "sharding: {chunk_bytes: 1024, window: 1, priorities: 1, map: {0: r0, 1: r1, 2: r2}}\n";
	struct reducers f;
	struct reducers_op o, next;

	views_open(&f, narrow);
	f.answer = false;
	views_submit(&f, &o, 3);
	reducers_answer(&f, 0);
	reducers_answer(&f, 1);
	reducers_pump(&f);
	f.l[1].dead = f.resume = true;
	reducers_cut(&f, 1, "cut");
	reducers_pump(&f);
	ck_assert_str_eq(views_said(&f, 0, 1), "H0"); /* chunk 1 has no room in the window yet */
	ck_assert_str_eq(views_said(&f, 2, 1), "D2");
	reducers_answer(&f, 2);
	reducers_pump(&f);
	views_expect_done(&o);
	memset(&o, 0xdb, sizeof o);
	f.answer = true;
	reducers_answer(&f, 0);
	reducers_pump(&f);
	ck_assert_str_eq(views_said(&f, 0, 1), "H0 H1");
	views_submit(&f, &next, 6);
	views_expect_done(&next);
	reducers_close(&f);
}
END_TEST

/* The start that a rank sends follows from the last result that it has got; see
 * retain.h. */
START_TEST(the_start_follows_from_the_last_result)
{
	enum { OPS = 9 }; /* of 8 chunks */
	static struct reducers_op o[OPS];
	struct reducers f;

	views_open(&f, views_two);
	for (unsigned i = 0; i < OPS; i++) {
		views_submit(&f, &o[i], 8);
		views_expect_done(&o[i]);
	}
	f.l[1].dead = true;
	f.resume = true;
	reducers_cut(&f, 1, "cut");
	reducers_pump(&f);
	/* two links: 16 apart. Position 71 has its result: all ranks have all results
	 * below 71 - 16 */
	ck_assert_uint_eq(f.l[0].view.start[0], 55);
	ck_assert_str_eq(views_said(&f, 0, f.l[0].data_n - 17),
			 "H6.7 H7.0 H7.1 H7.2 H7.3 H7.4 H7.5 H7.6 H7.7 H8.0 H8.1 H8.2 H8.3 H8.4 H8.5 H8.6 H8.7");
	reducers_close(&f);
}
END_TEST

/* "A worker never begins a chunk that is more than D positions beyond the first one that
 * it has no result of." Link 1 gets no answer, so link 0 may go up to 1 + 16 and no
 * further, also when chunks are repeated. */
START_TEST(no_chunk_starts_beyond_the_retained_results)
{
	static struct reducers_op o[4];
	struct reducers f;

	views_open(&f, views_two);
	f.answer = false;
	for (unsigned i = 0; i < 4; i++)
		views_submit(&f, &o[i], 8);
	for (unsigned i = 0; i < 20; i++) {
		if (f.l[0].answered < f.l[0].data_n)
			reducers_answer(&f, 0);
		reducers_pump(&f);
	}
	/* operation 1 begins at position 8 with link 1's shard */
	ck_assert_str_eq(views_said(&f, 1, 0), "D1 D3 D5 D7");
	ck_assert_uint_eq(f.l[0].data[f.l[0].data_n - 1].of.seq, 2);
	ck_assert_uint_eq(f.l[0].data[f.l[0].data_n - 1].chunk, 0); /* position 16; 17 is link 1's, and 18 too far */
	reducers_close(&f);
}
END_TEST

/* Lost reducers hold no link back, but links without RESUME do: the results they may have
 * to repeat must be retained. */
START_TEST(links_wait_for_resumes_of_other_links)
{
	static struct reducers_op o[9];
	struct reducers f;
	const struct frame *last;

	views_open(&f, views_three);
	f.l[2].dead = true;
	reducers_cut(&f, 2, "cut");
	reducers_pump(&f);
	views_say_resume(&f, 3, 0);
	for (unsigned i = 0; i < 9; i++)
		views_submit(&f, &o[i], 8);
	last = &f.l[3].data[f.l[3].data_n - 1];
	ck_assert_uint_le(last->of.seq * 8 + last->chunk, VIEWS_SPREAD);
	ck_assert_uint_gt(last->of.seq * 8 + last->chunk, VIEWS_SPREAD - 6);
	ck_assert_uint_eq(f.l[0].data_n, 0);
	views_say_resume(&f, 0, 0);
	views_say_resume(&f, 1, 0);
	for (unsigned i = 0; i < 9; i++)
		views_expect_done(&o[i]);
	reducers_close(&f);
}
END_TEST

/* A link that still has to repeat results that others may lack holds the others back:
 * they would overwrite them. */
START_TEST(a_link_that_repeats_chunks_holds_others_back)
{
	static struct reducers_op before[9], after[9];
	struct reducers f;
	unsigned from;

	views_open(&f, views_three);
	for (unsigned i = 0; i < 9; i++)
		views_submit(&f, &before[i], 8);
	f.l[2].dead = true;
	reducers_cut(&f, 2, "cut");
	reducers_pump(&f);
	from = f.l[3].data_n;
	reducers_resume(&f, 0);
	for (unsigned i = 0; i < 2; i++) /* its header, its payload; then its socket takes nothing */
		reducers_step(&f, 0);
	f.l[0].up = false;
	views_say_resume(&f, 1, 72 - VIEWS_SPREAD - 1);
	views_say_resume(&f, 3, 72 - VIEWS_SPREAD - 1);
	for (unsigned i = 0; i < 9; i++)
		views_submit(&f, &after[i], 8);
	ck_assert_uint_gt(f.l[3].data_n, from);
	ck_assert_ptr_null(strchr(views_said(&f, 3, from), 'D'));
	f.l[0].up = true;
	reducers_pump(&f);
	for (unsigned i = 0; i < 9; i++)
		views_expect_done(&after[i]);
	reducers_close(&f);
}
END_TEST

/* After an invalid RESUME the reducer counts as lost; one for another view is ignored. */
enum { OLD, TWICE, BELOW, ODD_RESUMES };

START_TEST(invalid_resumes_are_refused)
{
	static const char *const says[] = {"", "it sent RESUME twice for one view",
					   "its RESUME starts at position 3, this rank's VIEW at 55"};
	static struct reducers_op o[9];
	struct control_view old = {.n = 3};
	struct reducers f;

	views_open(&f, views_three);
	for (unsigned i = 0; i < 9; i++)
		views_submit(&f, &o[i], 8);
	f.l[2].dead = true;
	reducers_cut(&f, 2, "cut");
	reducers_pump(&f);
	ck_assert_uint_eq(f.l[3].view.start[0], 72 - VIEWS_SPREAD - 1);
	if (_i == OLD)
		reducers_say_view(&f, 3, FRAME_RESUME, &old);
	else
		views_say_resume(&f, 3, _i == BELOW ? 3 : 72);
	if (_i == TWICE)
		views_say_resume(&f, 3, 72);
	reducers_pump(&f);
	if (_i == OLD) {
		ck_assert_uint_eq(f.lost, 1);
	} else {
		ck_assert_uint_eq(f.lost, 2);
		ck_assert_msg(strncmp(f.why, says[_i], 34) == 0, "%s", f.why);
	}
	reducers_close(&f);
}
END_TEST

/* "The caller's memory is not touched by a result that does not arrive completely, since
 * it may be the contribution that has to be sent again." */
START_TEST(a_truncated_result_changes_no_buffer)
{
	struct reducers f;
	struct reducers_op o;
	struct frame h;
	void *payload;
	float before[2 * VIEWS_CHUNK];

	views_open(&f, views_two);
	f.answer = false;
	views_submit(&f, &o, 2);
	memcpy(before, o.x, sizeof before);
	reducers_result(&f, 1, 0, &h, &payload);
	reducers_say(&f, 1, &h, payload);
	f.l[1].out.len -= FRAME_HEADER + h.payload_len - stops[_i];
	reducers_pump(&f);
	ck_assert_mem_eq(o.x, before, sizeof before);
	f.l[1].dead = true;
	f.resume = f.answer = true;
	reducers_cut(&f, 1, "cut");
	reducers_pump(&f);
	ck_assert_str_eq(views_said(&f, 0, 1), "D0 D1");
	ck_assert_mem_eq(f.l[0].payload[2], (const char *)before + 1024, 1024);
	views_expect_done(&o);
	reducers_close(&f);
}
END_TEST

/* The same if the connection stays open: the rest of a result of the previous view is
 * discarded. */
START_TEST(the_rest_of_an_old_result_is_discarded)
{
	struct reducers f;
	struct reducers_op o;
	struct frame h;
	void *payload;
	size_t rest;

	views_open(&f, views_two);
	f.answer = false;
	views_submit(&f, &o, 2);
	reducers_result(&f, 0, 0, &h, &payload);
	reducers_say(&f, 0, &h, payload);
	rest = FRAME_HEADER + h.payload_len - stops[_i];
	f.l[0].out.len -= rest;
	reducers_pump(&f);
	f.l[1].dead = true;
	reducers_cut(&f, 1, "cut");
	reducers_pump(&f);
	f.l[0].out.len += rest;
	f.answer = true;
	reducers_resume(&f, 0);
	reducers_pump(&f);
	ck_assert_uint_eq(f.lost, 1);
	ck_assert_str_eq(views_said(&f, 0, 1), "D0 D1");
	views_expect_done(&o);
	reducers_close(&f);
}
END_TEST

/* A partly sent frame is completed with the same bytes, although its operation has
 * completed by then. */
START_TEST(a_partly_sent_frame_is_completed)
{
	struct reducers f;
	struct reducers_op o, next;
	float before[VIEWS_CHUNK];
	struct rs_err e;

	views_open(&f, views_three);
	f.answer = false;
	ck_assert_int_eq(reducers_submit(&f, &o, VIEWS_CHUNK, &e), 0);
	for (unsigned i = 0; i < VIEWS_CHUNK; i++)
		o.x[i] = before[i] = (float)i;
	f.piece = stops[_i];
	reducers_step(&f, 0);
	f.piece = SIZE_MAX;
	reducers_say_view(&f, 3, FRAME_VIEW, &(struct control_view){.n = 3, .lives = {0, 1, 0}});
	while (reducers_step(&f, 3))
		;
	memset(o.x, 0, sizeof o.x); /* as if the other lane had its result */
	reducers_pump(&f);
	ck_assert_uint_eq(f.l[0].views, 1);
	ck_assert_uint_eq(f.l[0].data_n, 1);
	ck_assert_mem_eq(f.l[0].payload[0], before, sizeof before);
	memcpy(o.x, before, sizeof before);
	f.answer = true;
	views_say_resume(&f, 0, 0);
	views_say_resume(&f, 1, 0);
	views_say_resume(&f, 3, 0);
	ck_assert_str_eq(views_said(&f, 0, 0), "D0 D0");
	views_submit(&f, &next, 6);
	views_expect_done(&next);
	reducers_close(&f);
}
END_TEST

static void count_fill(struct exchange_op *op, uint64_t first, uint32_t n)
{
	struct reducers_op *o = op->user;

	for (uint64_t i = first; i < first + n; i++)
		o->x[i] += 1 + (float)i;
}

/* A chunk that is sent again is not filled again. */
START_TEST(contributions_are_filled_once)
{
	struct reducers f;
	struct reducers_op o = {0};
	struct rs_err e;

	views_open(&f, views_two);
	f.answer = false;
	ck_assert_int_eq(reducers_submit(&f, &o, 4 * VIEWS_CHUNK, &e), 0);
	o.op.fill = count_fill;
	reducers_pump(&f);
	f.l[1].dead = true;
	f.resume = f.answer = true;
	reducers_cut(&f, 1, "cut");
	reducers_pump(&f);
	ck_assert_str_eq(views_said(&f, 0, 2), "D0 D1 D2 D3");
	ck_assert_int_eq(o.done, 1);
	for (unsigned i = 0; i < 4 * VIEWS_CHUNK; i++)
		ck_assert(o.x[i] == 3 * (1 + (float)i));
	reducers_close(&f);
}
END_TEST

#define COUNT(a) (int)(sizeof(a) / sizeof(a)[0])

static void add_tests(TCase *tc)
{
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, no_data_between_view_and_resume);
	tcase_add_loop_test(tc, have_for_stored_results_and_data_for_the_rest, 0, COUNT(replays));
	tcase_add_test(tc, have_is_data_without_bytes);
	tcase_add_loop_test(tc, nothing_is_sent_below_the_common_start, 0, 5);
	tcase_add_loop_test(tc, an_operation_resumes_in_the_middle, 0, 4);
	tcase_add_test(tc, an_operation_ends_before_all_have_frames_are_sent);
	tcase_add_test(tc, the_start_follows_from_the_last_result);
	tcase_add_test(tc, links_wait_for_resumes_of_other_links);
	tcase_add_test(tc, a_link_that_repeats_chunks_holds_others_back);
	tcase_add_test(tc, no_chunk_starts_beyond_the_retained_results);
	tcase_add_loop_test(tc, invalid_resumes_are_refused, 0, ODD_RESUMES);
	tcase_add_loop_test(tc, a_truncated_result_changes_no_buffer, 0, STOPS);
	tcase_add_loop_test(tc, the_rest_of_an_old_result_is_discarded, 0, STOPS);
	tcase_add_loop_test(tc, a_partly_sent_frame_is_completed, 0, STOPS);
	tcase_add_test(tc, contributions_are_filled_once);
}

int main(void)
{
	Suite *suite = suite_create("view_resume");
	TCase *tc = tcase_create("view_resume");
	SRunner *runner;
	int failed;

	add_tests(tc);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
