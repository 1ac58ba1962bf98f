/* SPDX-License-Identifier: Apache-2.0 */
/* A rank that loses reducers, by the rules of proto/README.md, "Failover": views and
 * FETCH. test_view_resume.c tests how operations resume, test_view_end.c returned
 * reducers and the end, test_stripe_view.c the reducers' side, and the simulator all of
 * it together. */
#include "tests/unit/fake_views.h"

#include <check.h>
#include <string.h>

/* ---- views ---- */

/* The ways in which the only lane of r1 can end, and the reason of the loss. */
enum ending { BROKEN, SILENT, DRAINS, CUT_OFF, LIES, NEWS, ENDINGS };

static const char *const reasons[] = {
    "connection reset by peer", "nothing was heard from it for 4000 ms",  "it is shutting down",
    "rank 1 was lost: cut",     "before this rank sent its contribution", "another rank has lost it"};

static void end_link(struct reducers *f, unsigned link, enum ending how)
{
	struct frame h = {.type = FRAME_RESULT};

	switch (how) {
	case BROKEN:
		reducers_cut(f, link, reasons[BROKEN]);
		break;
	case SILENT:
		for (unsigned s = 0; s < 8; s++) { /* the others are not */
			for (unsigned i = 0; i < f->links_n; i++)
				if (i != link)
					reducers_say_control(f, i, FRAME_PING, NULL, 0);
			reducers_advance(f, 500);
		}
		break;
	case DRAINS:
		reducers_say_control(f, link, FRAME_DRAIN, NULL, 0);
		break;
	case CUT_OFF:
		reducers_say_abort(f, link, RS_ECUT, reasons[CUT_OFF]);
		break;
	case LIES:
		reducers_say(f, link, &h, NULL);
		break;
	default:
		views_say_lives(f, 3, 0, 1, 0);
	}
	reducers_pump(f);
}

/* A rank that loses a reducer sends VIEW on all connections to the others; operations are
 * not affected. */
START_TEST(the_other_ranks_learn_of_a_loss)
{
	struct reducers f;
	struct reducers_op o;

	views_open(&f, views_three);
	f.resume = true;
	end_link(&f, 2, (enum ending)_i);
	ck_assert_uint_eq(f.lost, 1);
	ck_assert_msg(strstr(f.why, reasons[_i]) != NULL, "%s", f.why);
	views_expect_lives(&f, 0, 1, 0, 1, 0);
	views_expect_lives(&f, 1, 1, 0, 1, 0);
	views_expect_lives(&f, 3, 1, 0, 1, 0);
	ck_assert_uint_eq(f.l[2].views, 0);
	ck_assert_int_eq(exchange_state(f.x), EXCHANGE_RUNNING);
	f.l[2].dead = true;
	views_submit(&f, &o, 6);
	views_expect_done(&o);
	reducers_close(&f);
}
END_TEST

/* "Closes the connections of the dead (with ABORT, code -13, on those that still work)":
 * r0 has another lane. */
START_TEST(the_other_lanes_of_a_lost_rank_get_the_reason)
{
	struct reducers f;

	views_open(&f, views_three);
	end_link(&f, 1, (enum ending)_i);
	ck_assert_uint_eq(f.l[1].aborts, 0);
	ck_assert_uint_eq(f.l[0].aborts, 1);
	reducers_expect_error(&f.l[0].abort, RS_ECUT,
			      "rank 0 continues without reducer r0 (127.0.0.1:1): connection reset by peer");
	views_expect_lives(&f, 2, 1, 1, 0, 0);
	views_expect_lives(&f, 3, 1, 1, 0, 0);
	ck_assert_uint_eq(f.l[0].views + f.l[1].views, 0);
	reducers_close(&f);
}
END_TEST

/* An ABORT that ends the job is no loss of a reducer. */
START_TEST(an_abort_ends_the_job)
{
	struct reducers f;

	views_open(&f, views_three);
	reducers_say_abort(&f, 2, RS_EMISMATCH, "ranks disagree about operation 3");
	reducers_pump(&f);
	reducers_expect_end(&f, RS_EMISMATCH, "ranks disagree about operation 3");
	for (unsigned i = 0; i < VIEWS_LINKS; i++)
		ck_assert_uint_eq(f.l[i].aborts, i != 2);
	reducers_close(&f);
}
END_TEST

/* The view that arrives on link 3 after r1 was lost here, and the view sent then; 0 views
 * more: none. */
static const struct {
	uint32_t heard[3], want[3];
	unsigned more, lost;
} news[] = {
    {{0, 0, 0}, {0, 1, 0}, 0, 0}, {{0, 1, 0}, {0, 1, 0}, 0, 0},
    {{1, 1, 0}, {1, 1, 0}, 1, 1}, {{1, 0, 0}, {1, 1, 0}, 1, 1},
    {{1, 3, 0}, {1, 3, 0}, 1, 2}, {{0, 3, 0}, {0, 3, 0}, 1, 1}, /* it was back in between, unnoticed here */
    {{0, 2, 0}, {0, 3, 0}, 1, 1},                               /* it is back for others, not here */
    {{2, 1, 0}, {3, 1, 0}, 1, 1}, /* it was lost and back, and these connections are older */
    {{1, 0, 1}, {1, 1, 1}, 0, 2}, /* no reducer is left */
};

START_TEST(views_are_merged_by_their_maximum)
{
	struct reducers f;
	unsigned lost;

	views_open(&f, views_three);
	f.l[2].dead = true;
	end_link(&f, 2, BROKEN);
	lost = f.lost;
	views_say_lives(&f, 3, news[_i].heard[0], news[_i].heard[1], news[_i].heard[2]);
	ck_assert_uint_eq(f.lost - lost, news[_i].lost);
	views_expect_lives(&f, 3, 1 + news[_i].more, news[_i].more ? news[_i].want[0] : 0,
			   news[_i].more ? news[_i].want[1] : 1, 0);
	if (news[_i].want[0] % 2 == 0)
		views_expect_lives(&f, 0, f.l[3].views, news[_i].want[0], news[_i].want[1], 0);
	else if (news[_i].want[2] % 2 == 0)
		ck_assert_uint_gt(f.l[0].aborts + f.l[1].aborts, 0);
	else
		ck_assert_int_eq(exchange_state(f.x), EXCHANGE_ENDED);
	reducers_close(&f);
}
END_TEST

/* A view with another number of reducers than the configuration is invalid: its sender
 * counts as lost. */
START_TEST(views_of_other_reducers)
{
	struct control_view v = {.n = _i ? 2 : 4, .lives = {1}};
	struct reducers f;

	views_open(&f, views_three);
	reducers_say_view(&f, 3, FRAME_VIEW, &v);
	reducers_pump(&f);
	ck_assert_ptr_nonnull(strstr(f.why, "reducers, the configuration has 3"));
	views_expect_lives(&f, 0, 1, 0, 0, 1);
	reducers_close(&f);
}
END_TEST

/* DRAIN of the last reducer is no reason to leave it. */
START_TEST(drain_of_the_last_reducer_is_ignored)
{
	struct reducers f;
	struct reducers_op o;

	views_open(&f, views_two);
	f.resume = true;
	f.l[1].dead = true;
	reducers_cut(&f, 1, "it closed the connection");
	reducers_pump(&f);
	reducers_say_control(&f, 0, FRAME_DRAIN, NULL, 0);
	reducers_pump(&f);
	ck_assert_uint_eq(f.lost, 1);
	ck_assert_uint_eq(f.left, 0); /* a cut is no report */
	views_submit(&f, &o, 4);
	views_expect_done(&o);
	reducers_close(&f);
}
END_TEST

/* ---- FETCH ---- */

/* "FETCH to one that has it, which answers KEPT": the result, whatever the caller's
 * memory contains by now. */
START_TEST(kept_carries_the_result)
{
	static const char checked[] =
	    "reducers: [{id: r0, address: \"127.0.0.1:1\"}, {id: r1, address: \"127.0.0.1:2\"}]\n"
	    "sharding: {chunk_bytes: 1024, window: 4, priorities: 1, map: {0: r0, 1: r1}}\njob: {checksum: true}\n";
	struct reducers f;
	struct reducers_op o;
	float want[VIEWS_CHUNK];

	views_open(&f, _i ? checked : views_two);
	views_submit(&f, &o, 4);
	memcpy(want, o.x + VIEWS_CHUNK, sizeof want);
	memset(o.x, 0xee, sizeof o.x);
	f.answer = false;
	f.resume = true;
	f.l[1].dead = true;
	reducers_cut(&f, 1, "cut");
	reducers_pump(&f);
	ck_assert_str_eq(views_said(&f, 0, 2), "H0 H1 H2 H3");
	for (unsigned i = 2; i < 6; i++)
		ck_assert(f.l[0].data[i].flags == 0 && f.l[0].data[i].payload_sum == 0);
	reducers_fetch(&f, 0, 3);
	reducers_pump(&f);
	ck_assert_uint_eq(f.l[0].kept_n, 1);
	ck_assert(f.l[0].kept.of.seq == 0 && f.l[0].kept.chunk == 1 && f.l[0].kept.of.count == 4 * VIEWS_CHUNK);
	ck_assert_uint_eq(f.l[0].kept.payload_len, sizeof want);
	ck_assert_mem_eq(f.l[0].kept_payload, want, sizeof want);
	ck_assert_uint_eq(f.l[0].kept.flags, _i ? FRAME_CHECKED : 0);
	if (_i)
		ck_assert_uint_eq(f.l[0].kept.payload_sum, frame_checksum(want, sizeof want));
	reducers_close(&f);
}
END_TEST

/* The root of a broadcast gets a result without bytes, but can answer with them. */
START_TEST(the_root_of_a_broadcast_answers_fetch)
{
	struct reducers f;
	struct reducers_op o = {0};
	struct rs_err e;

	views_open(&f, views_two);
	ck_assert_int_eq(reducers_submit(&f, &o, 2 * VIEWS_CHUNK, &e), 0);
	o.op.of.op = FRAME_OP_BROADCAST;
	o.op.root = true;
	for (unsigned i = 0; i < 2 * VIEWS_CHUNK; i++)
		o.x[i] = (float)(7 * i);
	reducers_pump(&f);
	ck_assert_int_eq(o.done, 1);
	f.answer = false;
	f.resume = true;
	f.l[1].dead = true;
	reducers_cut(&f, 1, "cut");
	reducers_pump(&f);
	ck_assert_str_eq(views_said(&f, 0, 1), "H0 H1");
	reducers_fetch(&f, 0, 2);
	reducers_pump(&f);
	ck_assert_uint_eq(f.l[0].kept.payload_len, 1024);
	ck_assert_mem_eq(f.l[0].kept_payload, o.x + VIEWS_CHUNK, 1024);
	reducers_close(&f);
}
END_TEST

/* After FETCH of a chunk that was not offered the reducer counts as lost; FETCH of an old
 * view is not answered. */
enum { OF_DATA, OF_NOTHING, TOO_OFTEN, OF_THE_VIEW_BEFORE, ODD_QUESTIONS };

START_TEST(invalid_fetches_are_refused)
{
	struct reducers f;
	struct reducers_op o, next;
	struct frame h;

	views_open(&f, views_three);
	views_submit(&f, &o, 6);
	f.answer = false;
	f.resume = true;
	f.l[2].dead = true;
	reducers_cut(&f, 2, "cut");
	reducers_pump(&f);
	views_submit(&f, &next, 1); /* seq 1, chunk 0: shard 1, which is r0's now */
	ck_assert_str_eq(views_said(&f, 0, 1), "H0 H1 D1.0");
	h = f.l[0].data[_i == OF_DATA ? 3 : 1];
	h.type = FRAME_FETCH;
	h.flags = 0;
	h.payload_len = 0;
	h.chunk += _i == OF_NOTHING ? 3 : 0; /* the other lane's */
	f.resume = _i != OF_THE_VIEW_BEFORE;
	if (_i == OF_THE_VIEW_BEFORE) {
		reducers_cut(&f, 3, "cut");
		reducers_pump(&f);
	}
	f.mute = _i == TOO_OFTEN; /* or the answer is out before the next one */
	for (unsigned i = 0; i < (_i == TOO_OFTEN ? 5 : 1); i++)
		reducers_say(&f, 0, &h, NULL);
	reducers_pump(&f);
	f.mute = false;
	reducers_pump(&f);
	ck_assert_uint_eq(f.l[0].kept_n, 0);
	ck_assert_uint_eq(f.lost, 2);
	if (_i != OF_THE_VIEW_BEFORE)
		ck_assert_ptr_nonnull(strstr(f.why, "which this rank did not offer"));
	reducers_close(&f);
}
END_TEST

#define COUNT(a) (int)(sizeof(a) / sizeof(a)[0])

static void add_tests(TCase *tc)
{
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, the_other_ranks_learn_of_a_loss, 0, ENDINGS);
	tcase_add_loop_test(tc, the_other_lanes_of_a_lost_rank_get_the_reason, 0, 1);
	tcase_add_test(tc, an_abort_ends_the_job);
	tcase_add_loop_test(tc, views_are_merged_by_their_maximum, 0, COUNT(news));
	tcase_add_loop_test(tc, views_of_other_reducers, 0, 2);
	tcase_add_test(tc, drain_of_the_last_reducer_is_ignored);
	tcase_add_loop_test(tc, kept_carries_the_result, 0, 2);
	tcase_add_test(tc, the_root_of_a_broadcast_answers_fetch);
	tcase_add_loop_test(tc, invalid_fetches_are_refused, 0, ODD_QUESTIONS);
}

int main(void)
{
	Suite *suite = suite_create("view");
	TCase *tc = tcase_create("views");
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
