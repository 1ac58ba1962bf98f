/* SPDX-License-Identifier: Apache-2.0 */
/* The life of an exchange: joining, heartbeats, time limits of operations.
 * test_exchange_end.c tests how it ends, test_link.c the chunks. */
#include "common/dtype.h"
#include "tests/unit/fake_reducer.h"

#include <check.h>
#include <limits.h>
#include <string.h>

#define TWO   "reducers: [{id: r0, address: \"127.0.0.1:1\"}, {id: r1, address: \"127.0.0.1:2\"}]\n"
#define FAIL  "job: {failover: fail}\n"
#define SMALL "sharding: {shards: 2, chunk_bytes: 1024, window: 2}\n"

static const char two[] = TWO SMALL FAIL "timeouts: {detect: 8s}\n";
static const char patient[] = TWO SMALL FAIL "timeouts: {detect: 10min}\n";
static const char timed[] = TWO SMALL FAIL "timeouts: {detect: 8s, op: 3s}\n";
static const char lanes[] =
    "reducers: [{id: r0, address: \"127.0.0.1:1\", lanes: 2}, {id: r1, address: \"127.0.0.1:2\"}]\n"
    "sharding: {shards: 5, chunk_bytes: 2048, window: 7}\njob: {deterministic: true}\ntimeouts: {detect: 4s}\n";

START_TEST(hello_has_all_fields)
{
	struct reducers f;

	reducers_open(&f, lanes, 3, 1000);
	ck_assert_int_eq(exchange_state(f.x), EXCHANGE_JOINING);
	ck_assert_str_eq(exchange_address(f.x, 1), "127.0.0.1:1");
	reducers_pump(&f);
	ck_assert_int_eq(exchange_state(f.x), EXCHANGE_RUNNING);
	for (unsigned i = 0; i < 3; i++) {
		const struct control_hello *h = &f.l[i].hello;

		ck_assert_str_eq(h->job, "unit");
		ck_assert_str_eq(h->label, "pid 7 on here");
		ck_assert_str_eq(h->reducer, i < 2 ? "r0" : "r1");
		ck_assert_uint_eq(h->lane, i == 1);
		ck_assert_uint_eq(h->lanes, i < 2 ? 2 : 1);
		ck_assert(h->rank == 0 && h->world_size == 3 && h->generation == 5 && h->processes == 1);
		ck_assert(h->chunk_bytes == 2048 && h->window == 7 && h->deterministic && !h->checksum);
		ck_assert(h->incarnation == 99 && h->detect_ms == 4000);
		ck_assert(h->config_digest == rs_config_digest(&f.cfg));
	}
	reducers_close(&f);
}
END_TEST

START_TEST(operations_wait_for_start)
{
	struct reducers f;
	struct reducers_op o;

	reducers_open(&f, two, 2, 1000);
	f.start = false;
	ck_assert_int_eq(reducers_submit(&f, &o, 2000, NULL), 0);
	reducers_pump(&f);
	reducers_say_control(&f, 0, FRAME_START, NULL, 0);
	reducers_pump(&f);
	ck_assert_uint_eq(f.l[0].data_n + f.l[1].data_n, 0);
	reducers_say_control(&f, 1, FRAME_START, NULL, 0);
	reducers_pump(&f);
	ck_assert_int_eq(o.done, 1);
	ck_assert_int_eq(o.err.code, 0);
	reducers_close(&f);
}
END_TEST

/* The start order does not matter: attempts follow after 50, 100, 200, 400, 800, 800
 * ms. */
START_TEST(connecting_is_repeated_until_the_reducer_listens)
{
	static const uint32_t waits[] = {50, 100, 200, 400, 800, 800, 800};
	struct reducers f;

	reducers_open(&f, two, 2, 60000);
	f.l[1].dead = true;
	reducers_pump(&f);
	for (unsigned i = 0; i < sizeof waits / sizeof waits[0]; i++) {
		ck_assert_uint_eq(f.l[1].tries, i + 1);
		reducers_advance(&f, waits[i] - 1);
		ck_assert_uint_eq(f.l[1].tries, i + 1);
		reducers_advance(&f, 1);
	}
	f.l[1].dead = false;
	reducers_advance(&f, 1000);
	ck_assert_int_eq(exchange_state(f.x), EXCHANGE_RUNNING);
	ck_assert_uint_eq(f.l[0].tries, 1);
	reducers_close(&f);
}
END_TEST

START_TEST(a_refusal_with_retry_is_retried)
{
	struct reducers f;

	reducers_open(&f, two, 2, 5000);
	f.welcome = false;
	reducers_pump(&f);
	f.welcome = true;
	reducers_say_control(&f, 0, FRAME_WELCOME, NULL, 0);
	reducers_say_refused(&f, 1, RS_EREFUSED, "generation 5 has not ended", true);
	reducers_pump(&f);
	ck_assert(!f.l[1].up);
	ck_assert_int_eq(exchange_state(f.x), EXCHANGE_JOINING);
	reducers_advance(&f, 50);
	ck_assert_uint_eq(f.l[1].tries, 2);
	ck_assert_int_eq(exchange_state(f.x), EXCHANGE_RUNNING);
	reducers_close(&f);
}
END_TEST

START_TEST(silence_at_connect_is_a_failed_attempt)
{
	struct reducers f;

	reducers_open(&f, two, 2, 20000);
	f.welcome = false;
	reducers_pump(&f);
	reducers_advance(&f, 7999);
	ck_assert_uint_eq(f.l[0].tries, 1);
	reducers_advance(&f, 51);
	ck_assert_uint_eq(f.l[0].tries, 2);
	reducers_advance(&f, 20000);
	reducers_expect_end(&f, RS_ETIMEOUT,
			    "reducer r0 at 127.0.0.1:1: no answer within 8000 ms (tried 3 times); reducer r1");
	reducers_close(&f);
}
END_TEST

START_TEST(unreachable_reducers_are_named)
{
	struct reducers f;

	reducers_open(&f, two, 2, 2000);
	f.l[1].dead = true;
	reducers_pump(&f);
	reducers_advance(&f, 1999);
	ck_assert_int_eq(exchange_state(f.x), EXCHANGE_JOINING);
	reducers_advance(&f, 1);
	reducers_expect_end(&f, RS_ETIMEOUT,
			    "reducer r1 at 127.0.0.1:2: connection refused (tried 6 times); gave up after 2 s");
	ck_assert(!strstr(exchange_error(f.x)->msg, "r0"));
	reducers_expect_error(&f.l[0].abort, RS_ETIMEOUT, "rank 0: reducer r1");
	reducers_close(&f);
}
END_TEST

static const struct {
	unsigned joined, world;
	uint32_t missing[16];
	unsigned n;
	const char *says, *refuses;
} absent[] = {
    {3, 4, {2}, 1, "reducer r1: rank 2 of 4 has not joined job unit within 1500 ms", NULL},
    {3, 4, {2}, 1, "rank 2 of 4 has not joined job unit; it says: no; gave up after 1500 ms", "no"},
    {2, 4, {2, 3}, 2, "reducer r1: ranks 2 and 3 of 4 have not joined job unit within 1500 ms", NULL},
    {1, 4, {1, 2, 3}, 3, "reducer r1: ranks 1, 2 and 3 of 4 have not", NULL},
    {1, 20, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, 16, ", 15, 16 and 3 more of 20 have not", NULL},
    {4, 4, {0}, 0, "reducer r0 has not started job unit within 1500 ms", NULL},
};

START_TEST(absent_ranks_are_named)
{
	struct reducers f;

	reducers_open(&f, two, absent[_i].world, 1500);
	f.start = false;
	reducers_pump(&f);
	reducers_say_waiting(&f, 1, 0, absent[_i].world, absent[0].missing, 1);
	strcpy(f.refuses, absent[_i].refuses ? absent[_i].refuses : "");
	reducers_say_waiting(&f, 1, absent[_i].joined, absent[_i].world, absent[_i].missing, absent[_i].n);
	reducers_advance(&f, 1500);
	reducers_expect_end(&f, RS_ETIMEOUT, absent[_i].says);
	reducers_close(&f);
}
END_TEST

/* Nobody waits in silence: a report after 3 s, 6 s, 12 s, ..., then every minute. */
START_TEST(waiting_is_reported)
{
	static const uint32_t at_s[] = {3, 6, 12, 24, 48, 96, 156, 216};
	struct reducers f;
	uint32_t s = 0;

	reducers_open(&f, two, 4, 300000);
	f.start = false;
	reducers_pump(&f);
	for (unsigned i = 0; i < sizeof at_s / sizeof at_s[0]; i++) {
		for (; s < at_s[i]; s++) {
			ck_assert_uint_eq(f.waits, i);
			reducers_say_waiting(&f, 0, 3, 4, &(uint32_t){2}, 1);
			reducers_say_waiting(&f, 1, 3, 4, &(uint32_t){2}, 1);
			reducers_advance(&f, 1000);
		}
		ck_assert_uint_eq(f.waits, i + 1);
	}
	ck_assert_str_eq(f.wait, "reducer r0: rank 2 of 4 has not joined job unit; waiting for 216 s");
	/* a refused rank is reported at once, and once, though every reducer says it */
	strcpy(f.refuses, "rank 2 has another run");
	for (unsigned i = 0; i < 4; i++) {
		reducers_say_waiting(&f, 1 - i % 2, 3, 4, &(uint32_t){2}, 1);
		reducers_pump(&f);
		reducers_advance(&f, 1);
	}
	ck_assert_uint_eq(f.waits, sizeof at_s / sizeof at_s[0] + 1);
	ck_assert_str_eq(f.wait, "reducer r1: rank 2 of 4 has not joined job unit; it says: rank 2 has another "
				 "run; waiting for 216 s");
	reducers_close(&f);
}
END_TEST

START_TEST(heartbeats)
{
	struct reducers f;
	struct reducers_op o;

	reducers_open(&f, two, 2, 1000); /* the reducers' detection time is 8 s */
	reducers_pump(&f);
	reducers_advance(&f, 1999);
	ck_assert_uint_eq(f.l[0].pings, 0);
	reducers_advance(&f, 1);
	ck_assert_uint_eq(f.l[0].pings, 1);
	reducers_advance(&f, 1000);
	ck_assert_int_eq(reducers_submit(&f, &o, 10, NULL), 0); /* seq 0: its only chunk is on link 0 */
	reducers_pump(&f);
	reducers_advance(&f, 1500);
	ck_assert_uint_eq(f.l[0].pings, 1);
	ck_assert_uint_eq(f.l[1].pings, 2);
	reducers_close(&f);
}
END_TEST

/* The reducers' detection time; heartbeats in a time. A tiny one means the usual maximal
 * rate, not every turn of the loop; with a long one a NAT must not forget the
 * connection. */
static const struct {
	uint32_t detect_ms, in_ms;
	unsigned pings;
} extremes[] = {{3, 1000, 10}, {600000, 60000, 3}};

START_TEST(extreme_detection_times)
{
	uint8_t payload[FRAME_CONTROL_MAX];
	struct reducers f;

	reducers_open(&f, patient, 2, 1000);
	f.welcome = false;
	reducers_pump(&f);
	for (unsigned i = 0; i < 2; i++) {
		const struct control_welcome w = {.detect_ms = extremes[_i].detect_ms};

		reducers_say_control(&f, i, FRAME_WELCOME, payload, control_pack_welcome(payload, &w));
		reducers_say_control(&f, i, FRAME_START, NULL, 0);
	}
	reducers_pump(&f);
	exchange_tick(f.x, f.now_ms);
	ck_assert_uint_gt(exchange_next(f.x), f.now_ms);
	reducers_advance(&f, extremes[_i].in_ms);
	ck_assert_uint_eq(f.l[0].pings, extremes[_i].pings);
	reducers_close(&f);
}
END_TEST

/* A process that was stopped for a minute must not report its peers as lost: it has not
 * read their bytes yet. _i 1: what it finds first, the loss of another reducer, makes a
 * tick due at once. */
START_TEST(time_in_which_the_worker_stood_still_is_not_silence)
{
	struct reducers f;

	reducers_open(&f, _i ? TWO SMALL "timeouts: {detect: 8s}\n" : two, 2, 1000);
	reducers_pump(&f);
	reducers_advance(&f, 1000);
	f.now_ms += 60000;
	if (_i)
		reducers_cut(&f, 0, "connection reset by peer");
	exchange_tick(f.x, f.now_ms);
	ck_assert_int_eq(exchange_state(f.x), EXCHANGE_RUNNING);
	reducers_advance(&f, 8000);
	if (!_i)
		reducers_expect_end(&f, RS_EPEER, "nothing was heard from it");
	reducers_close(&f);
}
END_TEST

START_TEST(a_connection_that_breaks_before_welcome_is_a_failed_attempt)
{
	struct reducers f;

	reducers_open(&f, two, 2, 1000);
	f.welcome = false;
	reducers_pump(&f);
	f.welcome = true;
	reducers_cut(&f, 0, "it closed the connection");
	reducers_cut(&f, 1, "it closed the connection");
	reducers_advance(&f, 50);
	ck_assert_int_eq(exchange_state(f.x), EXCHANGE_RUNNING);
	reducers_close(&f);
}
END_TEST

/* The time limit of an operation does not run before all ranks have joined. */
START_TEST(an_operation_starts_with_the_job)
{
	struct reducers f;
	struct reducers_op o;

	reducers_open(&f, timed, 2, 60000);
	f.start = f.answer = false;
	reducers_submit(&f, &o, 10, NULL);
	for (unsigned s = 0; s < 20; s++) {
		reducers_pump(&f);
		reducers_say_waiting(&f, 0, 1, 2, &(uint32_t){1}, 1);
		reducers_say_waiting(&f, 1, 1, 2, &(uint32_t){1}, 1);
		reducers_advance(&f, 1000);
	}
	ck_assert_int_eq(exchange_state(f.x), EXCHANGE_JOINING);
	reducers_say_control(&f, 0, FRAME_START, NULL, 0);
	reducers_say_control(&f, 1, FRAME_START, NULL, 0);
	reducers_pump(&f);
	reducers_advance(&f, 2999);
	ck_assert_int_eq(o.done, 0);
	reducers_advance(&f, 1);
	reducers_expect_error(&o.err, RS_EPEER, "within 3 s: 1 of 1 chunks");
	reducers_close(&f);
}
END_TEST

static const struct {
	uint64_t count;
	unsigned dtype;
	int rc;
} sizes[] = {
    {UINT64_C(256) * UINT32_MAX, RS_FLOAT32, RS_OK},
    {UINT64_C(256) * UINT32_MAX + 1, RS_FLOAT32, RS_EINVAL},
    {UINT64_C(1024) * UINT32_MAX, RS_INT8, RS_OK},
    {UINT64_MAX, RS_INT8, RS_EINVAL},
    {0, RS_FLOAT64, RS_OK},
};

START_TEST(operations_beyond_the_protocol_are_refused)
{
	struct exchange_op op = {.of = {.count = sizes[_i].count,
					.dtype = (uint8_t)sizes[_i].dtype,
					.size = rs_dtype_size(sizes[_i].dtype) & OPERATION_SIZE}};
	struct reducers f;
	struct rs_err e = {0};

	reducers_open(&f, two, 2, 1000);
	ck_assert_int_eq(exchange_check(f.cfg.sharding.chunk_bytes, &op.of, &e), sizes[_i].rc);
	if (sizes[_i].rc) {
		ck_assert_int_eq(exchange_submit(f.x, &op, f.now_ms, &e), RS_EINVAL);
		reducers_expect_error(&e, RS_EINVAL, "more than 2^32 - 1 chunks of 1024 bytes");
	}
	reducers_close(&f);
}
END_TEST

#define COUNT(a) (int)(sizeof(a) / sizeof(a)[0])

static const struct {
	const char *yaml;
	uint8_t asked;
	uint64_t bytes;
	unsigned want;
} priorities[] = {
    {"", 0, 1, 0},
    {"", 0, UINT64_MAX, 0},
    {"", 1, UINT64_MAX, 1},
    {"", 2, 1, 1},
    {"", OPERATION_AUTO - 1, 1, 1},
    {"", OPERATION_AUTO, 0, 1},
    {"", OPERATION_AUTO, 64 << 10, 1},
    {"", OPERATION_AUTO, (64 << 10) + 1, 0},
    {"", OPERATION_AUTO, UINT64_MAX, 0},
    {"sharding: {priorities: 1}\n", 5, 1, 0},
    {"sharding: {priorities: 1}\n", OPERATION_AUTO, 1, 0},
    {"sharding: {priorities: 4}\n", OPERATION_AUTO, 1, 3},
    {"sharding: {priorities: 4}\n", 2, 1, 2},
    {"sharding: {priorities: 4}\n", 4, 1, 3},
};

START_TEST(a_priority_follows_from_what_ranks_share)
{
	const struct operation of = {.count = priorities[_i].bytes, .size = 1, .priority = priorities[_i].asked};
	const char *yaml = priorities[_i].yaml;
	struct rs_config cfg;
	struct rs_err e;

	ck_assert_int_eq(rs_config_parse(&cfg, "test", yaml, strlen(yaml), &e), 0);
	ck_assert_uint_eq(exchange_priority(cfg.sharding.priorities, &of), priorities[_i].want);
	rs_config_close(&cfg);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("exchange");
	TCase *tc = tcase_create("life");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, hello_has_all_fields);
	tcase_add_test(tc, operations_wait_for_start);
	tcase_add_test(tc, connecting_is_repeated_until_the_reducer_listens);
	tcase_add_test(tc, a_refusal_with_retry_is_retried);
	tcase_add_test(tc, silence_at_connect_is_a_failed_attempt);
	tcase_add_test(tc, unreachable_reducers_are_named);
	tcase_add_loop_test(tc, absent_ranks_are_named, 0, COUNT(absent));
	tcase_add_test(tc, waiting_is_reported);
	tcase_add_test(tc, heartbeats);
	tcase_add_loop_test(tc, extreme_detection_times, 0, 2);
	tcase_add_loop_test(tc, time_in_which_the_worker_stood_still_is_not_silence, 0, 2);
	tcase_add_test(tc, a_connection_that_breaks_before_welcome_is_a_failed_attempt);
	tcase_add_test(tc, an_operation_starts_with_the_job);
	tcase_add_loop_test(tc, operations_beyond_the_protocol_are_refused, 0, COUNT(sizes));
	tcase_add_loop_test(tc, a_priority_follows_from_what_ranks_share, 0, sizeof priorities / sizeof priorities[0]);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
