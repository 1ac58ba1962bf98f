/* SPDX-License-Identifier: Apache-2.0 */
/* Sentences about a reducer that is silent: only small messages pass, or there is no sign
 * of that. */
#include "tests/unit/fake_reducer.h"

#include <check.h>
#include <string.h>

#define PATH                                                                                                           \
	"small messages pass and large ones do not (no answer to 4096 bytes): check the MTU and the filters of the "   \
	"path"

static const char one[] =
    "reducers: [{id: r0, address: \"127.0.0.1:1\"}]\nsharding: {chunk_bytes: 4096}\ntimeouts: {detect: 4s}\n";
static const char two[] = "reducers: [{id: r0, address: \"127.0.0.1:1\"}, {id: r1, address: \"127.0.0.1:2\"}]\n"
			  "sharding: {chunk_bytes: 4096, priorities: 1, map: {0: r0, 1: r1}}\ntimeouts: {detect: 4s}\n";
static const char silence[] = "rank 0 (pid 7 on here) was lost: nothing was heard from it for 4.0 s";
static const char own[] = "says that nothing was heard from rank 0, which hears the reducer: " PATH;

enum { ALL = 2048 /* elements: two chunks */ };

/* Opens a job that runs, and starts a sum that no reducer answers. */
static void start(struct reducers *f, struct reducers_op *o, const char *yaml, unsigned elements)
{
	reducers_open(f, yaml, 2, 4000);
	f->resume = true;
	reducers_pump(f);
	ck_assert_int_eq(exchange_state(f->x), EXCHANGE_RUNNING);
	f->answer = false;
	ck_assert_int_eq(reducers_submit(f, o, elements, NULL), 0);
	reducers_pump(f);
}

/* The only reducer is silent. It may hear this rank, and then tells the others why it
 * leaves. */
START_TEST(a_silent_reducer_that_answers_only_small_messages)
{
	struct reducers f;
	struct reducers_op o;

	start(&f, &o, one, _i ? 100 : ALL);
	reducers_advance(&f, 4000);
	reducers_expect_end(&f, RS_EPEER, "reducer r0 (127.0.0.1:1) was lost: nothing was heard from it for 4000 ms");
	ck_assert_int_eq(strstr(o.err.msg, "ms; if it runs, " PATH) != NULL, !_i);
	ck_assert_uint_eq(f.l[0].aborts, 1);
	reducers_expect_error(&f.l[0].abort, RS_EPEER, "rank 0: reducer r0 (127.0.0.1:1) was lost: nothing was heard");
	ck_assert_uint_eq(f.l[0].abort_cause.reducer, 1);
	reducers_close(&f);
}
END_TEST

/* A result shows that messages of its size pass. */
START_TEST(a_silent_reducer_that_has_answered_large_messages)
{
	struct reducers f;
	struct reducers_op a, b;

	reducers_open(&f, one, 2, 4000);
	reducers_submit(&f, &a, ALL, NULL);
	reducers_pump(&f);
	ck_assert_int_eq(a.done, 1);
	f.answer = false;
	reducers_submit(&f, &b, ALL, NULL);
	reducers_advance(&f, 4000);
	reducers_expect_end(&f, RS_EPEER, "was lost: nothing was heard from it for 4000 ms");
	ck_assert_ptr_null(strstr(b.err.msg, "small"));
	reducers_close(&f);
}
END_TEST

/* The only reducer has lost this rank, which lives. _i: 0 the path is to blame; 1 and 5
 * this process was stopped, and reads that before or after its next tick; 2 no large
 * message was sent; 3 the reducer gives another reason; 4 it has lost another rank. */
START_TEST(a_reducer_says_that_this_rank_was_lost)
{
	static const char broken[] = "rank 0 (pid 7 on here) was lost: connection reset by peer";
	const char *said = _i == 3 ? broken : silence;
	struct reducers f;
	struct reducers_op o;

	start(&f, &o, one, _i == 2 ? 100 : ALL);
	for (unsigned s = 0; s < 4; s++) {
		reducers_say_control(&f, 0, FRAME_PING, NULL, 0);
		reducers_pump(&f);
		if (_i != 1 && _i != 5)
			reducers_advance(&f, 1000);
	}
	if (_i == 1 || _i == 5)
		f.now_ms += 4000;
	if (_i == 5)
		exchange_tick(f.x, f.now_ms);
	reducers_say_lost(&f, 0, _i == 4, said);
	reducers_pump(&f);
	if (_i == 0) {
		reducers_expect_end(&f, RS_EPEER, "reducer r0 (127.0.0.1:1) says that nothing was heard from rank 0");
		reducers_expect_error(&o.err, RS_EPEER, own);
		ck_assert_ptr_null(strstr(o.err.msg, "was lost"));
	} else {
		ck_assert_msg(strstr(o.err.msg, said) != NULL, "%s", o.err.msg);
		ck_assert_ptr_null(strstr(o.err.msg, "small"));
		ck_assert_int_eq(strstr(o.err.msg, "r0 (127.0.0.1:1) has lost the connection to this rank") != NULL,
				 _i != 4);
	}
	reducers_close(&f);
}
END_TEST

/* A rank is lost while the job starts, and the start fails. What the reducers say then
 * hides the cause. */
START_TEST(a_rank_that_was_lost_while_the_job_started)
{
	struct reducers f;

	reducers_open(&f, two, 2, 4000);
	f.start = false;
	reducers_pump(&f);
	reducers_say_lost(&f, 0, 1, "rank 1 (pid 7 on there) was lost: it closed the connection");
	reducers_pump(&f);
	ck_assert_int_eq(exchange_state(f.x), EXCHANGE_JOINING);
	reducers_say_waiting(&f, 1, 1, 2, &(uint32_t){1}, 1);
	reducers_advance(&f, 4000);
	reducers_expect_end(&f, RS_ETIMEOUT,
			    "while the job started, rank 1 (pid 7 on there) was lost: it closed the connection; then "
			    "reducer r1: rank 1 of 2 has not joined job unit within 4 s");
	reducers_close(&f);
}
END_TEST

/* The other ranks may be faster than the reducer. */
START_TEST(another_rank_says_that_this_rank_was_lost)
{
	struct control_view v = {
	    .n = 2, .lives = {0, 1}, .lost = 2, .reported = true, .cause = {RS_EPEER, 1, 0, RS_LOSS_SILENT, false}};
	struct reducers f;
	struct reducers_op o;

	strcpy(v.why, silence);
	start(&f, &o, two, ALL);
	reducers_say_view(&f, 0, FRAME_VIEW, &v);
	reducers_pump(&f);
	ck_assert_uint_eq(f.lost, 1);
	ck_assert_ptr_nonnull(strstr(f.why, own));
	reducers_close(&f);
}
END_TEST

/* The other ranks learn it from this one: by VIEW, or without failover by ABORT. */
START_TEST(the_other_ranks_read_what_this_rank_knows)
{
	struct reducers f;
	struct reducers_op o;
	char yaml[400];

	snprintf(yaml, sizeof yaml, "%s%s", two, _i ? "job: {failover: fail}\n" : "");
	start(&f, &o, yaml, ALL);
	reducers_say_lost(&f, 1, 0, silence);
	reducers_pump(&f);
	if (_i) {
		reducers_expect_end(&f, RS_EPEER, own);
		reducers_expect_error(&f.l[0].abort, RS_EPEER, "rank 0: reducer r1 (127.0.0.1:2) says that nothing");
		ck_assert_uint_eq(f.l[0].abort_cause.reducer, 2);
		ck_assert_uint_eq(f.l[0].abort_cause.rank, 0);
	} else {
		ck_assert_int_eq(exchange_state(f.x), EXCHANGE_RUNNING);
		ck_assert_ptr_nonnull(strstr(f.why, own));
		ck_assert_ptr_nonnull(strstr(f.l[0].view.why, "small messages pass and large ones do not"));
		ck_assert(f.l[0].view.cause.narrow);
		ck_assert_uint_eq(f.l[0].view.cause.rank, 1); /* all reducers may say so */
	}
	reducers_close(&f);
}
END_TEST

/* After a return a rank first says which results it has: small frames, which are one
 * large message. */
START_TEST(a_reducer_that_returns_and_does_not_get_what_this_rank_has)
{
	static const char many[] =
	    "reducers: [{id: r0, address: \"127.0.0.1:1\"}, {id: r1, address: \"127.0.0.1:2\"}]\n"
	    "sharding: {chunk_bytes: 1024, priorities: 1, shards: 64}\ntimeouts: {detect: 4s}\n";
	struct reducers f;
	struct reducers_op o;

	reducers_open(&f, many, 2, 4000);
	f.resume = true;
	for (unsigned i = 0; i < 12; i++) {
		reducers_pump(&f);
		reducers_submit(&f, &o, ALL, NULL);
		reducers_pump(&f);
		ck_assert_int_eq(o.done, 1);
	}
	reducers_cut(&f, 1, "connection reset by peer");
	f.answer = false;
	while (!f.back)
		reducers_advance(&f, 50);
	reducers_pump(&f);
	reducers_say_lost(&f, 1, 0, silence);
	reducers_pump(&f);
	ck_assert_msg(strstr(f.why, "small messages pass and large ones do not (no answer to ") != NULL, "%s", f.why);
	ck_assert_msg(strstr(f.why, "; it was back and lost again without a large result, 1 time in a row; next") !=
			  NULL,
		      "%s", f.why);
	reducers_close(&f);
}
END_TEST

/* _i: 0 all connections are reset after a long silence; 1 the silence was short; 2 only
 * one was silent; 3 one is closed; 4 not at the same time. */
START_TEST(a_nat_forgets_all_connections)
{
	static const char slow[] =
	    "reducers: [{id: r0, address: \"127.0.0.1:1\"}, {id: r1, address: \"127.0.0.1:2\"}]\n"
	    "sharding: {chunk_bytes: 4096, priorities: 1, map: {0: r0, 1: r1}}\ntimeouts: {detect: 60s}\n";
	struct reducers f;

	reducers_open(&f, slow, 2, 4000);
	reducers_pump(&f);
	reducers_advance(&f, _i == 1 ? 9000 : 25000);
	if (_i == 2)
		reducers_say_control(&f, 0, FRAME_PING, NULL, 0);
	reducers_pump(&f);
	f.l[0].dead = f.l[1].dead = true;
	reducers_cut(&f, 1, "connection reset by peer");
	if (_i == 4)
		reducers_advance(&f, 2000);
	reducers_cut(&f, 0, _i == 3 ? "it closed the connection" : "connection reset by peer");
	reducers_pump(&f);
	reducers_expect_end(&f, RS_EPEER, "reducer r0 (127.0.0.1:1) was lost: ");
	ck_assert_int_eq(strstr(exchange_error(f.x)->msg,
				"all connections were reset at the same time, after 25 s without "
				"a message: a NAT or a firewall on the way may have") != NULL,
			 _i == 0);
	reducers_close(&f);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("exchange_text");
	TCase *tc = tcase_create("exchange_text");
	SRunner *r;
	int failed;

	tcase_add_loop_test(tc, a_silent_reducer_that_answers_only_small_messages, 0, 2);
	tcase_add_test(tc, a_silent_reducer_that_has_answered_large_messages);
	tcase_add_loop_test(tc, a_reducer_says_that_this_rank_was_lost, 0, 6);
	tcase_add_test(tc, a_rank_that_was_lost_while_the_job_started);
	tcase_add_test(tc, another_rank_says_that_this_rank_was_lost);
	tcase_add_loop_test(tc, the_other_ranks_read_what_this_rank_knows, 0, 2);
	tcase_add_test(tc, a_reducer_that_returns_and_does_not_get_what_this_rank_has);
	tcase_add_loop_test(tc, a_nat_forgets_all_connections, 0, 5);
	suite_add_tcase(s, tc);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
