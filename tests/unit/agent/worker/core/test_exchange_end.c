/* SPDX-License-Identifier: Apache-2.0 */
/* How an exchange ends: by the caller, by a peer, by a reducer's failure or invalid
 * frames. */
#include "tests/unit/fake_reducer.h"

#include <check.h>
#include <string.h>

#define TWO   "reducers: [{id: r0, address: \"127.0.0.1:1\"}, {id: r1, address: \"127.0.0.1:2\"}]\n"
#define FAIL  "job: {failover: fail}\n"
#define SMALL "sharding: {shards: 2, chunk_bytes: 1024, window: 2}\n"

static const char two[] = TWO SMALL FAIL "timeouts: {detect: 8s}\n";
static const char timed[] = TWO SMALL FAIL "timeouts: {detect: 8s, op: 3s}\n";

START_TEST(a_refusal_without_retry_ends_the_exchange)
{
	struct reducers f;
	struct reducers_op o;

	reducers_open(&f, two, 2, 5000);
	f.welcome = false;
	reducers_submit(&f, &o, 10, NULL);
	reducers_pump(&f);
	reducers_say_control(&f, 0, FRAME_WELCOME, NULL, 0);
	reducers_pump(&f);
	reducers_say_refused(&f, 1, RS_EMISMATCH, "rank 0 says the world size is 2, rank 1 says 3", false);
	reducers_pump(&f);
	reducers_expect_end(&f, RS_EMISMATCH,
			    "reducer r1 (127.0.0.1:2): rank 0 says the world size is 2, rank 1 says 3");
	ck_assert_int_eq(o.done, 1);
	reducers_expect_error(&o.err, RS_EMISMATCH, "says 3");
	/* the other ranks get the name of the sender */
	reducers_expect_error(&f.l[0].abort, RS_EMISMATCH, "rank 0: reducer r1 (127.0.0.1:2): rank 0 says");
	ck_assert_uint_eq(f.l[1].aborts, 0);
	reducers_close(&f);
}
END_TEST

/* A reducer asks because another process wants the place of this rank. */
START_TEST(a_ping_with_a_count_is_answered_at_once)
{
	static const uint64_t counts[] = {1, 5, 1}; /* 1 asks for an acknowledgement, more is a question */
	struct frame ping = {.type = FRAME_PING};
	struct reducers f;

	reducers_open(&f, two, 2, 1000);
	reducers_pump(&f);
	reducers_say(&f, 1, &ping, NULL);
	reducers_pump(&f);
	ck_assert_uint_eq(f.l[1].pings, 0);
	for (unsigned i = 0; i < 3; i++) {
		ping.of.count = counts[i];
		reducers_say(&f, 1, &ping, NULL);
		reducers_pump(&f);
		ck_assert_uint_eq(f.l[1].pings, 1 + i);
		ck_assert_uint_eq(f.l[1].ping_count, i ? 5 : 1);
	}
	ck_assert_uint_eq(f.l[0].pings, 0);
	reducers_advance(&f, 2000); /* without being asked */
	ck_assert_uint_eq(f.l[1].ping_count, 5);
	ck_assert_uint_eq(f.l[0].ping_count, 0);
	reducers_close(&f);
}
END_TEST

START_TEST(a_silent_reducer_is_lost)
{
	struct reducers f;
	struct reducers_op o;

	reducers_open(&f, two, 2, 1000);
	reducers_pump(&f);
	reducers_submit(&f, &o, 10, NULL);
	f.answer = false;
	for (unsigned s = 0; s < 7; s++) {
		reducers_say_control(&f, 0, FRAME_PING, NULL, 0);
		reducers_advance(&f, 1000);
	}
	ck_assert_int_eq(o.done, 0);
	reducers_say_control(&f, 0, FRAME_PING, NULL, 0);
	reducers_advance(&f, 999);
	ck_assert_int_eq(exchange_state(f.x), EXCHANGE_RUNNING);
	reducers_advance(&f, 1);
	reducers_expect_end(&f, RS_EPEER, "reducer r1 (127.0.0.1:2) was lost: nothing was heard from it for 8000 ms");
	reducers_expect_error(&o.err, RS_EPEER, "r1");
	reducers_expect_error(&f.l[0].abort, RS_EPEER, "rank 0: reducer r1 (127.0.0.1:2) was lost");
	reducers_close(&f);
}
END_TEST

START_TEST(a_broken_connection_ends_the_exchange)
{
	struct reducers f;
	struct reducers_op a, b;
	struct rs_err e;

	reducers_open(&f, two, 2, 1000);
	f.answer = false;
	reducers_submit(&f, &a, 2000, NULL);
	reducers_submit(&f, &b, 10, NULL);
	reducers_pump(&f);
	reducers_cut(&f, 1, "connection reset by peer");
	reducers_pump(&f);
	reducers_expect_end(&f, RS_EPEER, "reducer r1 (127.0.0.1:2) was lost: connection reset by peer");
	ck_assert(a.done == 1 && b.done == 1);
	reducers_expect_error(&b.err, RS_EPEER, "connection reset by peer");
	ck_assert_uint_eq(f.l[0].aborts, 1);
	ck_assert(f.l[0].shut);
	ck_assert_uint_eq(f.l[1].tries, 1);
	ck_assert_int_eq(reducers_submit(&f, &a, 10, &e), RS_EPEER);
	reducers_expect_error(&e, RS_EPEER, "connection reset by peer");
	ck_assert_int_eq(a.done, 0);
	reducers_close(&f);
}
END_TEST

START_TEST(an_abort_is_passed_on_unchanged)
{
	struct reducers f;
	struct reducers_op o;

	reducers_open(&f, two, 2, 1000);
	f.answer = false;
	reducers_submit(&f, &o, 2000, NULL);
	reducers_pump(&f);
	reducers_say_abort(&f, 1, RS_EPEER, "rank 1 (pid 9 on there) was lost");
	reducers_pump(&f);
	reducers_expect_end(&f, RS_EPEER, "");
	ck_assert_str_eq(exchange_error(f.x)->msg, "rank 1 (pid 9 on there) was lost");
	ck_assert_str_eq(o.err.msg, "rank 1 (pid 9 on there) was lost");
	ck_assert_str_eq(f.l[0].abort.msg, "rank 1 (pid 9 on there) was lost");
	ck_assert_int_eq(f.l[0].abort.code, RS_EPEER);
	ck_assert_uint_eq(f.l[1].aborts, 0); /* that reducer sent it */
	reducers_close(&f);
}
END_TEST

START_TEST(the_owner_aborts_the_exchange)
{
	struct reducers f;

	reducers_open(&f, two, 2, 1000);
	reducers_pump(&f);
	exchange_abort(f.x, RS_EPEER, "process 3 (pid 77) exited", f.now_ms);
	ck_assert(exchange_links_changed(f.x));
	reducers_pump(&f);
	reducers_expect_end(&f, RS_EPEER, "process 3 (pid 77) exited");
	ck_assert_str_eq(f.l[0].abort.msg, "process 3 (pid 77) exited");
	ck_assert_str_eq(f.l[1].abort.msg, "process 3 (pid 77) exited");
	reducers_close(&f);
}
END_TEST

/* The memory of a frame in progress is in use until the frame is sent, or for a
 * second. */
START_TEST(abort_waits_a_second_for_a_frame_in_progress)
{
	struct iovec iov[8];
	struct reducers f;
	struct reducers_op o;

	reducers_open(&f, two, 2, 1000);
	reducers_pump(&f);
	reducers_submit(&f, &o, 2000, NULL);
	ck_assert_uint_gt(exchange_send_target(f.x, 0, iov, 8), 0);
	exchange_sent(f.x, 0, FRAME_HEADER + 100, f.now_ms);
	f.mute = true;
	exchange_abort(f.x, RS_ECLOSED, "enough", f.now_ms);
	ck_assert_int_eq(exchange_state(f.x), EXCHANGE_ENDING);
	ck_assert_uint_eq(exchange_send_target(f.x, 0, iov, 8), 2);
	ck_assert_ptr_eq(iov[0].iov_base, (char *)o.x + 100);
	ck_assert_uint_eq(iov[0].iov_len, 1024 - 100);
	reducers_advance(&f, 999);
	ck_assert_int_eq(o.done, 0);
	ck_assert_int_eq(exchange_want(f.x, 0, f.now_ms), EXCHANGE_NOTHING);
	reducers_advance(&f, 1);
	ck_assert_int_eq(o.done, 1);
	ck_assert(!f.l[0].up && !f.l[1].up);
	reducers_expect_end(&f, RS_ECLOSED, "enough");
	ck_assert_uint_eq(exchange_send_target(f.x, 0, iov, 8), 0);
	ck_assert_uint_eq(exchange_next(f.x), UINT64_MAX);
	reducers_close(&f);
}
END_TEST

START_TEST(input_after_abort_is_discarded)
{
	struct reducers f;
	struct reducers_op o;

	reducers_open(&f, two, 2, 1000);
	f.answer = false;
	reducers_submit(&f, &o, 256, NULL);
	o.x[0] = 7;
	reducers_pump(&f);
	exchange_abort(f.x, RS_ECLOSED, "enough", f.now_ms);
	reducers_answer(&f, 0);
	reducers_say_abort(&f, 1, RS_EPEER, "something else");
	reducers_pump(&f);
	reducers_expect_end(&f, RS_ECLOSED, "enough");
	ck_assert(o.x[0] == 7 && o.done == 1);
	ck_assert(f.l[0].shut && f.l[0].up); /* the peer closes first */
	reducers_cut(&f, 0, "it closed the connection");
	reducers_advance(&f, 1000);
	ck_assert(!f.l[1].up);
	reducers_expect_end(&f, RS_ECLOSED, "enough");
	reducers_close(&f);
}
END_TEST

START_TEST(goodbye)
{
	struct reducers f;
	struct rs_err e;
	struct reducers_op o;

	reducers_open(&f, two, 2, 1000);
	reducers_submit(&f, &o, 2000, NULL);
	reducers_pump(&f);
	exchange_goodbye(f.x, f.now_ms);
	reducers_pump(&f);
	ck_assert_int_eq(exchange_state(f.x), EXCHANGE_ENDED);
	ck_assert_int_eq(exchange_error(f.x)->code, 0);
	for (unsigned i = 0; i < 2; i++) {
		ck_assert_uint_eq(f.l[i].goodbyes, 1);
		ck_assert_uint_eq(f.l[i].aborts, 0);
		ck_assert(f.l[i].shut);
	}
	ck_assert_int_eq(reducers_submit(&f, &o, 1, &e), RS_ECLOSED);
	reducers_close(&f);
}
END_TEST

START_TEST(goodbye_with_operations_pending)
{
	struct reducers f;
	struct reducers_op o;

	reducers_open(&f, two, 2, 1000);
	f.answer = false;
	reducers_submit(&f, &o, 2000, NULL);
	reducers_pump(&f);
	exchange_goodbye(f.x, f.now_ms);
	reducers_pump(&f);
	ck_assert_int_eq(o.done, 1);
	reducers_expect_error(&o.err, RS_ECLOSED, "closed before all-reduce 0 (grad) was done");
	ck_assert_uint_eq(f.l[0].goodbyes, 1);
	reducers_close(&f);
}
END_TEST

START_TEST(goodbye_before_start)
{
	struct reducers f;

	reducers_open(&f, two, 2, 1000);
	f.l[1].dead = true;
	reducers_pump(&f);
	exchange_goodbye(f.x, f.now_ms);
	reducers_pump(&f);
	ck_assert_int_eq(exchange_state(f.x), EXCHANGE_ENDED);
	ck_assert_uint_eq(f.l[0].goodbyes, 1);
	reducers_advance(&f, 2000);
	ck_assert_uint_eq(f.l[1].tries, 1);
	reducers_close(&f);
}
END_TEST

START_TEST(operations_time_out)
{
	struct reducers f;
	struct reducers_op a, b;

	reducers_open(&f, timed, 2, 1000);
	f.answer = false;
	reducers_pump(&f);
	reducers_advance(&f, 500);
	reducers_submit(&f, &a, 256 * 6, NULL);
	reducers_advance(&f, 1000);
	reducers_submit(&f, &b, 1, NULL);
	for (unsigned i = 0; i < 3; i++) {
		reducers_answer(&f, 0);
		reducers_pump(&f);
	}
	reducers_advance(&f, 1999);
	ck_assert_int_eq(a.done, 0);
	reducers_advance(&f, 1);
	ck_assert(a.done == 1 && b.done == 1);
	reducers_expect_end(&f, RS_EPEER,
			    "all-reduce 0 (grad) of 1536 float32 was not done within 3 s: 3 of 6 chunks are without a "
			    "result, of reducer r1");
	reducers_close(&f);
}
END_TEST

/* Reducers send LATE with the ranks they wait for. An old one, or one for another
 * operation, is not used as the reason. */
START_TEST(late_ranks_are_named)
{
	static const struct {
		unsigned a, b, more;
		uint64_t seq;
		uint32_t at_ms; /* before the end */
		const char *says;
	} cases[] = {
	    {3, 3, 0, 0, 0, "rank 3 (pid 9 on there) has not sent its part for 2 s"},
	    {3, 3, 0, 0, 1500, "rank 3 (pid 9 on there) has not sent its part for 4 s"},
	    {3, 5, 0, 0, 0, "rank 3 (pid 9 on there) and rank 5 have not sent their part for 2 s"},
	    {3, 5, 7, 0, 0, "rank 3 (pid 9 on there) and 8 others have not sent their part for 2 s"},
	    {3, 3, 0, 1, 0, "6 of 6 chunks are without a result, of reducers r0 and r1"},
	    {3, 3, 0, 0, 2500, "6 of 6 chunks are without a result, of reducers r0 and r1"},
	};
	char says[200];

	for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct reducers f;
		struct reducers_op o;

		reducers_open(&f, timed, 20, 1000);
		f.answer = false;
		reducers_pump(&f);
		reducers_submit(&f, &o, 256 * 6, NULL);
		reducers_advance(&f, 3000 - cases[i].at_ms - 1);
		reducers_say_late(&f, 1, cases[i].seq, 2900, cases[i].a, cases[i].b, cases[i].more);
		reducers_pump(&f);
		ck_assert_int_eq(o.done, 0);
		reducers_advance(&f, cases[i].at_ms + 1);
		snprintf(says, sizeof says, "all-reduce 0 (grad) of 1536 float32 was not done within 3 s: %s",
			 cases[i].says);
		reducers_expect_end(&f, RS_EPEER, says);
		ck_assert_uint_eq(f.lates, 0);
		reducers_close(&f);
	}
}
END_TEST

START_TEST(a_very_late_operation_is_warned_of_once)
{
	struct reducers f;
	struct reducers_op a, b;

	reducers_open(&f, two, 20, 1000);
	f.answer = false;
	reducers_pump(&f);
	reducers_submit(&f, &a, 256, NULL);
	reducers_submit(&f, &b, 256, NULL);
	reducers_pump(&f);
	for (unsigned s = 1; s <= 40; s++) {
		reducers_advance(&f, 1000);
		reducers_say_late(&f, 0, s < 25 ? 0 : 1, 1000 * s, 3, 3, 0);
		reducers_say_late(&f, 1, s < 25 ? 0 : 1, 1000 * s, 3, 3, 0);
		reducers_pump(&f);
		ck_assert_uint_eq(f.lates, s < 10 ? 0 : s < 25 ? 1 : 2);
		if (s == 10)
			ck_assert_str_eq(f.late, "all-reduce 0 (grad) waits: rank 3 (pid 9 on there) has not sent its "
						 "part for 10 s");
	}
	ck_assert_str_eq(f.late, "all-reduce 1 (grad) waits: rank 3 (pid 9 on there) has not sent its part for 25 s");
	ck_assert_int_eq(a.done, 0); /* and nothing failed */
	reducers_answer(&f, 0);
	reducers_answer(&f, 1);
	reducers_pump(&f);
	ck_assert(a.done == 1 && b.done == 1);
	ck_assert(!a.err.code && !b.err.code);
	reducers_close(&f);
}
END_TEST

/* As long as input is missing, the caller checks the time limit: only it can name the
 * local rank that is late. */
START_TEST(an_operation_without_all_input_does_not_time_out)
{
	struct reducers f;
	struct reducers_op a;
	_Atomic uint64_t ready = 255;

	reducers_open(&f, timed, 1, 1000);
	reducers_pump(&f);
	reducers_submit(&f, &a, 256, NULL);
	a.op.ready = &ready;
	reducers_advance(&f, 4000);
	ck_assert_int_eq(a.done, 0);
	ck_assert_int_eq(exchange_state(f.x), EXCHANGE_RUNNING);
	f.answer = false;
	ready = 256;
	reducers_advance(&f, 3000);
	reducers_expect_end(&f, RS_EPEER, "of 256 float32 was not done within 3 s");
	reducers_close(&f);
}
END_TEST

/* A ring has no room before results come: other ranks are late, and the time counts. */
START_TEST(an_operation_with_a_full_ring_times_out)
{
	struct reducers f;
	struct reducers_op a;
	_Atomic uint64_t ready = 256; /* a chunk */

	reducers_open(&f, timed, 1, 1000);
	f.answer = false;
	reducers_pump(&f);
	reducers_submit(&f, &a, 1024, NULL);
	a.op.ready = &ready;
	reducers_pump(&f);
	reducers_advance(&f, 4000);
	reducers_expect_end(&f, RS_EPEER, "of 1024 float32 was not done within 3 s");
	reducers_close(&f);
}
END_TEST

START_TEST(a_late_group_is_named_by_its_size)
{
	struct reducers f;
	struct reducers_op a;

	reducers_open(&f, timed, 1, 1000);
	f.answer = false;
	reducers_pump(&f);
	reducers_submit(&f, &a, 256, NULL);
	a.op.of.tensors = 200;
	reducers_advance(&f, 3000);
	reducers_expect_end(&f, RS_EPEER, "all-reduce 0 (group of 200 tensors) of 256 float32 was not done within 3 s");
	reducers_close(&f);
}
END_TEST

/* Frames that are invalid in a state, and invalid payloads. */
static const struct {
	const char *says;
	unsigned type;
	uint32_t len;
	bool running; /* sent after START, else before WELCOME */
} nonsense[] = {
    {"a WAITING frame", FRAME_WAITING, 0, false},
    {"a START frame", FRAME_START, 0, false},
    {"it sent the result of chunk 0 of operation 0 before", FRAME_RESULT, 0, false},
    {"a HELLO frame", FRAME_HELLO, 0, false},
    {"a DATA frame", FRAME_DATA, 0, false},
    {"a GOODBYE frame", FRAME_GOODBYE, 0, false},
    {"a PING frame with 3 payload bytes", FRAME_PING, 3, false},
    {"the WELCOME message cannot be decoded", FRAME_WELCOME, 9, false},
    {"the REFUSED message cannot be decoded", FRAME_REFUSED, 9, false},
    {"the ABORT message cannot be decoded", FRAME_ABORT, 9, false},
    {"a WELCOME frame", FRAME_WELCOME, 0, true},
    {"a REFUSED frame", FRAME_REFUSED, 0, true},
    {"a WAITING frame", FRAME_WAITING, 0, true},
    {"a START frame", FRAME_START, 0, true},
    {"the ABORT message cannot be decoded", FRAME_ABORT, 9, true},
    {"it sent the result of chunk 0 of operation 0 before", FRAME_RESULT, 0, true},
    {"announces 4097 payload bytes", FRAME_PING, 4097, true},
    {"a DATA frame with 200000 payload bytes", FRAME_DATA, 200000, false},
    {"a DATA frame with 200000 payload bytes", FRAME_DATA, 200000, true},
    {"a KEPT frame with 200000 payload bytes", FRAME_KEPT, 200000, true},
};

START_TEST(invalid_control_frames_end_the_exchange)
{
	static uint8_t payload[200000];
	struct reducers f;

	memset(payload, 0xff, sizeof payload);
	reducers_open(&f, two, 2, 1000);
	f.welcome = nonsense[_i].running;
	reducers_pump(&f);
	reducers_say_control(&f, 0, nonsense[_i].type, payload, nonsense[_i].len);
	reducers_pump(&f);
	reducers_expect_end(&f, RS_EPROTO, nonsense[_i].says);
	reducers_expect_error(exchange_error(f.x), RS_EPROTO, "reducer r0 (127.0.0.1:1): ");
	reducers_expect_error(&f.l[1].abort, RS_EPROTO, "rank 0: reducer r0 (127.0.0.1:1): ");
	reducers_close(&f);
}
END_TEST

START_TEST(random_bytes_end_the_exchange)
{
	struct reducers f;
	struct frame h = {.type = FRAME_PING};

	reducers_open(&f, two, 2, 1000);
	reducers_pump(&f);
	reducers_say(&f, 1, &h, NULL);
	memcpy(f.l[1].out.at + f.l[1].out.off, "HTTP/1.1 400 Bad Request", 24);
	reducers_pump(&f);
	reducers_expect_end(&f, RS_EPROTO,
			    "reducer r1 (127.0.0.1:2): the received bytes are not frames of this protocol");
	reducers_close(&f);
}
END_TEST

#define COUNT(a) (int)(sizeof(a) / sizeof(a)[0])

int main(void)
{
	Suite *suite = suite_create("exchange end");
	TCase *tc = tcase_create("ends");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, a_refusal_without_retry_ends_the_exchange);
	tcase_add_test(tc, a_ping_with_a_count_is_answered_at_once);
	tcase_add_test(tc, a_silent_reducer_is_lost);
	tcase_add_test(tc, a_broken_connection_ends_the_exchange);
	tcase_add_test(tc, an_abort_is_passed_on_unchanged);
	tcase_add_test(tc, the_owner_aborts_the_exchange);
	tcase_add_test(tc, abort_waits_a_second_for_a_frame_in_progress);
	tcase_add_test(tc, input_after_abort_is_discarded);
	tcase_add_test(tc, goodbye);
	tcase_add_test(tc, goodbye_with_operations_pending);
	tcase_add_test(tc, goodbye_before_start);
	tcase_add_test(tc, operations_time_out);
	tcase_add_test(tc, late_ranks_are_named);
	tcase_add_test(tc, a_very_late_operation_is_warned_of_once);
	tcase_add_test(tc, an_operation_without_all_input_does_not_time_out);
	tcase_add_test(tc, an_operation_with_a_full_ring_times_out);
	tcase_add_test(tc, a_late_group_is_named_by_its_size);
	tcase_add_loop_test(tc, invalid_control_frames_end_the_exchange, 0, COUNT(nonsense));
	tcase_add_test(tc, random_bytes_end_the_exchange);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
