/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank says of its connections, and how rank 0 changes the shares of reducers: one
 * of three links has chunks in flight all the time, the others wait for it. */
#include "proto/features.h"
#include "tests/unit/fake_reducer.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

enum { LINKS = 3, OPERATION = 6 * 256 /* elements: two chunks for each reducer */ };

static const uint64_t offers = FEATURE_START | FEATURE_SHARES, with_relays = FEATURE_RELAYS;

/* Takes START from all reducers of a job whose file was read. */
static void start_job(struct reducers *f, uint64_t features)
{
	const struct control_start s = {.features = features, .start = 99};
	uint8_t payload[CONTROL_START_LEN];

	f->start = f->answer = false;
	f->resume = true;
	reducers_pump(f);
	for (unsigned i = 0; i < LINKS; i++) {
		f->l[i].started = true;
		reducers_say_control(f, i, FRAME_START, payload, control_pack_start(payload, &s));
	}
	reducers_pump(f);
	ck_assert_int_eq(exchange_state(f->x), EXCHANGE_RUNNING);
}

static void open_job(struct reducers *f, const char *rebalance, unsigned rank)
{
	char yaml[500];

	snprintf(yaml, sizeof yaml,
		 "reducers: [{id: r0, address: \"127.0.0.1:1\"}, {id: r1, address: \"127.0.0.1:2\"},\n"
		 "  {id: r2, address: \"127.0.0.1:3\"}]\ntimeouts: {detect: 4s}\n"
		 "sharding: {chunk_bytes: 1024, window: 4, shards: 48, priorities: 1, rebalance: %s}\n",
		 rebalance);
	reducers_open_rank(f, yaml, rank, 2, offers);
	start_job(f, offers);
}

static void answer_all(struct reducers *f, unsigned link)
{
	while (f->l[link].answered < f->l[link].data_n)
		reducers_answer(f, link);
	reducers_pump(f);
}

/* An operation in which the reducers take so many milliseconds. */
static void operate(struct reducers *f, const uint32_t takes[LINKS])
{
	static struct reducers_op o;
	uint32_t last = 0;
	struct rs_err e;

	ck_assert_int_eq(reducers_submit(f, &o, OPERATION, &e), 0);
	reducers_pump(f);
	for (uint32_t ms = 1; !o.done && ms < 1000; ms++) {
		reducers_advance(f, 1);
		for (unsigned i = 0; i < LINKS; i++) {
			f->l[i].busy_us += ms <= takes[i] ? 1000 : 0;
			if (ms >= takes[i])
				answer_all(f, i);
		}
		last = ms;
	}
	ck_assert(o.done == 1 && last < 999);
}

/* Operations for some time. Returns the time until a verdict came, or all of it. */
static uint64_t operate_for(struct reducers *f, const uint32_t takes[LINKS], uint32_t ms)
{
	uint64_t from_ms = f->now_ms;

	while (f->now_ms - from_ms < ms && !f->verdicts)
		operate(f, takes);
	return f->now_ms - from_ms;
}

static const uint32_t slow_first[LINKS] = {20, 7, 7};

START_TEST(rank_0_sets_shares)
{
	struct reducers f;

	open_job(&f, "on", 0);
	ck_assert_uint_lt(operate_for(&f, slow_first, 20000), 8000);
	ck_assert_uint_eq(f.epoch, 1);
	ck_assert_uint_lt(f.shares[0] * 2, f.shares[1]);
	ck_assert_ptr_nonnull(strstr(f.verdict, "reducer r0 (127.0.0.1:1) is busy for 100 % of the communication, "));
	ck_assert_ptr_nonnull(strstr(f.verdict, ": r0 33.3 % -> 1"));
	for (unsigned i = 0; i < LINKS; i++)
		ck_assert_uint_eq(f.l[i].view.epoch, 1);
	operate(&f, slow_first);
	reducers_close(&f);
}
END_TEST

START_TEST(rank_0_only_says_it)
{
	struct reducers f;

	open_job(&f, "log", 0);
	operate_for(&f, slow_first, 20000);
	ck_assert_uint_eq(f.verdicts, 1);
	ck_assert_ptr_nonnull(strstr(f.verdict, "with sharding.rebalance: on: r0 33.3 % -> 1"));
	f.verdicts = 0;
	ck_assert_uint_ge(operate_for(&f, slow_first, 50000), 50000); /* not again within a minute */
	ck_assert_uint_eq(f.epoch, 0);
	reducers_close(&f);
}
END_TEST

/* Who says what of its connections: rebalance, rank. */
static const struct {
	const char *rebalance;
	unsigned rank;
	bool says, asks;
} rows[] = {
    {"off", 0, false, false}, {"log", 0, true, true},   {"on", 0, true, true},
    {"log", 1, true, false},  {"off", 1, false, false},
};

START_TEST(ranks_say_how_busy_links_are)
{
	unsigned loads;
	struct reducers f;

	open_job(&f, rows[_i].rebalance, rows[_i].rank);
	reducers_advance(&f, 3000); /* nothing to say without operations */
	ck_assert_uint_eq(f.l[0].loads, 0);
	operate_for(&f, slow_first, 3000);
	ck_assert(rows[_i].says ? f.l[0].loads >= 4 && f.l[0].loads <= 6 : !f.l[0].loads);
	if (rows[_i].says) {
		ck_assert(f.l[0].load.ranks == 1 && f.l[0].load.answer == rows[_i].asks);
		ck_assert(f.l[0].load.up > 900 && f.l[1].load.up > 250 && f.l[1].load.up < 450);
	}
	reducers_advance(&f, 1000);
	loads = f.l[0].loads;
	reducers_advance(&f, 3000);
	ck_assert_uint_eq(f.l[0].loads, loads);
	reducers_close(&f);
}
END_TEST

/* Only rank 0 asks. */
START_TEST(an_answer_to_another_rank_is_a_breach)
{
	const struct control_load l = {.up = 10, .ranks = 2};
	uint8_t payload[CONTROL_LOAD_LEN];
	struct reducers f;

	open_job(&f, "on", 1);
	reducers_say_control(&f, 1, FRAME_LOAD, payload, control_pack_load(payload, &l));
	reducers_pump(&f);
	ck_assert_uint_eq(f.lost, 1);
	ck_assert_ptr_nonnull(strstr(f.why, "LOAD frame, which this rank has not asked for"));
	reducers_close(&f);
}
END_TEST

/* r0 and r1 get the chunks of this rank's group, r2 those of the other group. The
 * reducers of the group are compared with each other, and r2 hears that this rank does
 * not count. _i: r0 is slow */
START_TEST(with_relays_a_group_compares_its_own)
{
	static const char yaml[] =
	    "reducers: [{id: r0, address: \"127.0.0.1:1\"}, {id: r1, address: \"127.0.0.1:2\"},\n"
	    "  {id: r2, address: \"127.0.0.1:3\"}]\ntimeouts: {detect: 4s}\n"
	    "sharding: {chunk_bytes: 1024, window: 4, shards: 48, priorities: 1}\n"
	    "groups: [{name: a, relays: [r0, r1]}, {name: b, relays: [r2]}]\n";
	static const uint32_t even[LINKS] = {20, 20, 0};
	struct reducers f;

	reducers_open_group(&f, yaml, 0, 0, offers | with_relays);
	start_job(&f, offers | with_relays);
	operate_for(&f, _i ? slow_first : even, 20000);
	ck_assert(f.l[0].loads > 4 && f.l[0].load.ranks == 1 && f.l[2].load.ranks == 0);
	ck_assert_uint_eq(f.verdicts, _i);
	ck_assert(!_i || strstr(f.verdict, "the median reducer for this group for "));
	ck_assert_msg(!_i || strstr(f.verdict, " with other relays in the file: r0 50.0 % -> 2"), "%s", f.verdict);
	ck_assert(!_i || !strstr(f.verdict, "r2"));
	reducers_close(&f);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("rebalance");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, rank_0_sets_shares);
	tcase_add_test(tc, rank_0_only_says_it);
	tcase_add_loop_test(tc, ranks_say_how_busy_links_are, 0, sizeof rows / sizeof rows[0]);
	tcase_add_loop_test(tc, with_relays_a_group_compares_its_own, 0, 2);
	tcase_add_test(tc, an_answer_to_another_rank_is_a_breach);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
