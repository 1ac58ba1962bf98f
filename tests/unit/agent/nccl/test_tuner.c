/* SPDX-License-Identifier: Apache-2.0 */
/* The tuner of the NCCL plugin: its model, and tables of costs as NCCL makes them. */
#include "agent/nccl/tuner.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>

enum { ALGORITHMS = 7, PROTOCOLS = 3, NONE = -1, GBIT = 1000000000, REDUCERS_MAX = 8, SHARDS = 8 };

static const size_t NEVER = SIZE_MAX;

/* Links in Gbit/s, 0: the configuration does not say it. Shards are spread evenly. */
static const struct {
	const char *what;
	size_t nodes;
	unsigned reducers;
	double link, of_reducers, of_plan;
	bool always;
	double want_ring, want_reducers;
	size_t want_from;
} models[] = {
    {"as many reducers as nodes", 4, 4, 10, 0, 0, false, 1.5, 1, 42500},
    {"faster links", 4, 4, 100, 0, 0, false, 1.5, 1, 425000},
    {"more nodes gain more", 8, 8, 10, 0, 0, false, 1.75, 1, 28333},
    {"two nodes: a tie", 2, 2, 10, 0, 0, false, 1, 1, 425000},
    {"two nodes, one reducer", 2, 1, 10, 0, 0, false, 1, 2, NEVER},
    {"half as many reducers", 4, 2, 10, 0, 0, false, 1.5, 2, NEVER},
    {"half as many, which are faster", 4, 2, 10, 20, 0, false, 1.5, 1, 42500},
    {"one fast reducer", 8, 1, 10, 100, 0, false, 1.75, 1, 28333},
    {"slow reducers", 4, 4, 10, 5, 0, false, 1.5, 2, NEVER},
    {"uneven shares: 3 of 8 shards", 4, 3, 10, 0, 0, false, 1.5, 1.5, 425000},
    {"the file's bandwidth for all", 4, 4, 10, 0, 100, false, 1.5, 1, 425000},
    {"the file's, and faster reducers", 8, 4, 10, 200, 100, false, 1.75, 1, 283333},
    {"always", 4, 1, 10, 0, 0, true, 1.5, 4, 0},
};

START_TEST(test_model)
{
	struct rs_reducer reducers[REDUCERS_MAX] = {{.weight = 1}};
	uint16_t owner[SHARDS];
	struct rs_config cfg = {.reducers = reducers, .reducers_n = models[_i].reducers};
	struct tuner t;

	cfg.sharding.shards = SHARDS;
	cfg.sharding.owner = owner;
	cfg.plan.bandwidth = (uint64_t)(models[_i].of_plan * GBIT);
	for (unsigned i = 0; i < models[_i].reducers; i++)
		reducers[i].bandwidth = (uint64_t)(models[_i].of_reducers * GBIT);
	for (unsigned i = 0; i < SHARDS; i++)
		owner[i] = (uint16_t)(i * models[_i].reducers / SHARDS);
	cfg.job.baseline = _i % 2;
	tuner_init(&t, &cfg, models[_i].link * GBIT, models[_i].nodes, models[_i].always);
	ck_assert_int_eq(t.shards, _i % 2 == 0);
	ck_assert_msg(fabs(t.ring - models[_i].want_ring) < 1e-9, "%s: ring %g", models[_i].what, t.ring);
	ck_assert_msg(fabs(t.reducers - models[_i].want_reducers) < 1e-9, "%s: reducers %g", models[_i].what,
		      t.reducers);
	ck_assert_msg(t.from == models[_i].want_from || t.from + 1 == models[_i].want_from, "%s: from %zu",
		      models[_i].what, t.from); /* rounded down */
}
END_TEST

/* Costs of the protocol SIMPLE; the others have 50. All-reduces from 16 KiB on are faster
 * through the reducers. */
static const struct {
	const char *what;
	int collective;
	size_t bytes;
	float ring, direct, chain, want_direct, want_chain;
} rows[] = {
    {"large: the chain", NCCL_ALL_REDUCE, 1 << 20, 10, NONE, 40, NONE, 0},
    {"the first size", NCCL_ALL_REDUCE, 16384, 10, NONE, 40, NONE, 0},
    {"smaller: the reducers' time is added", NCCL_ALL_REDUCE, 16383, 10, NONE, 40, NONE, 56.383f},
    {"small: both", NCCL_ALL_REDUCE, 1000, 10, 30, 40, 31, 41},
    {"no CollNet", NCCL_ALL_REDUCE, 1 << 20, 10, NONE, NONE, NONE, NONE},
    {"small, no CollNet", NCCL_ALL_REDUCE, 1000, 10, NONE, NONE, NONE, NONE},
    {"the cheaper of two", NCCL_ALL_REDUCE, 1 << 20, 10, 30, 40, 0, 40},
    {"small all-gather: the reducers' time is added", NCCL_ALL_GATHER, 1000, 10, 5, NONE, 7, NONE},
    {"large reduce-scatter", NCCL_REDUCE_SCATTER, 1000000, 10, 5, NONE, 2005, NONE},
    {"all-gather without Direct", NCCL_ALL_GATHER, 1 << 10, 10, NONE, NONE, NONE, NONE},
    {"broadcast", 0, 1 << 20, 10, NONE, NONE, NONE, NONE},
};

static const struct tuner tuner = {.ring = 1.5, .reducers = 2, .us_per_byte = 0.001, .from = 16 << 10, .shards = true};

START_TEST(test_choose)
{
	float costs[ALGORITHMS][PROTOCOLS];

	for (int a = 0; a < ALGORITHMS; a++)
		for (int p = 0; p < PROTOCOLS; p++)
			costs[a][p] = 50;
	costs[1][NCCL_SIMPLE] = rows[_i].ring;
	costs[NCCL_COLLNET_DIRECT][NCCL_SIMPLE] = rows[_i].direct;
	costs[NCCL_COLLNET_CHAIN][NCCL_SIMPLE] = rows[_i].chain;
	tuner_choose(&tuner, rows[_i].collective, rows[_i].bytes, &costs[0][0], ALGORITHMS, PROTOCOLS);
	ck_assert_msg(costs[NCCL_COLLNET_DIRECT][NCCL_SIMPLE] == rows[_i].want_direct, "%s", rows[_i].what);
	ck_assert_msg(costs[NCCL_COLLNET_CHAIN][NCCL_SIMPLE] == rows[_i].want_chain, "%s", rows[_i].what);
	ck_assert(costs[1][NCCL_SIMPLE] == rows[_i].ring && costs[0][0] == 50);
}
END_TEST

/* A job that may not have them does not get CollNet Direct. */
START_TEST(test_without_shards)
{
	float costs[ALGORITHMS][PROTOCOLS] = {{0}};
	struct tuner t = tuner;

	t.shards = false;
	costs[NCCL_COLLNET_DIRECT][NCCL_SIMPLE] = 5;
	tuner_choose(&t, _i ? NCCL_ALL_GATHER : NCCL_REDUCE_SCATTER, 1000, &costs[0][0], ALGORITHMS, PROTOCOLS);
	ck_assert(costs[NCCL_COLLNET_DIRECT][NCCL_SIMPLE] == 1e9f);
	costs[NCCL_COLLNET_DIRECT][NCCL_SIMPLE] = NONE; /* what NCCL cannot do stays so */
	tuner_choose(&t, _i ? NCCL_ALL_GATHER : NCCL_REDUCE_SCATTER, 1000, &costs[0][0], ALGORITHMS, PROTOCOLS);
	ck_assert(costs[NCCL_COLLNET_DIRECT][NCCL_SIMPLE] == NONE);
}
END_TEST

START_TEST(test_slower)
{
	static const struct tuner fast = {.ring = 1.5, .reducers = 1, .us_per_byte = 0.001};

	ck_assert(!tuner_is_slower(&tuner, 34000)); /* 34 us x (2 - 1.5) is as much as the latency */
	ck_assert(tuner_is_slower(&tuner, 34001));
	ck_assert(!tuner_is_slower(&fast, 1 << 30));
}
END_TEST

START_TEST(test_small_table)
{
	float costs[2] = {1, 1};

	tuner_choose(&tuner, NCCL_ALL_REDUCE, 1 << 20, costs, 2, 1);
	ck_assert(costs[0] == 1 && costs[1] == 1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("tuner");
	TCase *tc = tcase_create("tuner");
	SRunner *sr;
	int failed;

	tcase_add_loop_test(tc, test_model, 0, sizeof models / sizeof models[0]);
	tcase_add_loop_test(tc, test_choose, 0, sizeof rows / sizeof rows[0]);
	tcase_add_loop_test(tc, test_without_shards, 0, 2);
	tcase_add_test(tc, test_slower);
	tcase_add_test(tc, test_small_table);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
