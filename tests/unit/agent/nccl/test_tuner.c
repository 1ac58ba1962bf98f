/* SPDX-License-Identifier: Apache-2.0 */
/* The tuner of the NCCL plugin, with tables of costs as NCCL makes them. */
#include "agent/nccl/tuner.h"

#include <check.h>
#include <stdlib.h>

enum { ALGORITHMS = 7, PROTOCOLS = 3, NONE = -1 };

/* Costs of the protocol SIMPLE; the others have 50. */
static const struct {
	const char *what;
	int collective;
	size_t bytes;
	float ring, direct, chain, want_direct, want_chain;
} rows[] = {
    {"large: the chain", NCCL_ALL_REDUCE, 1 << 20, 10, NONE, 40, NONE, 0},
    {"small: as NCCL says", NCCL_ALL_REDUCE, 1 << 10, 10, NONE, 40, NONE, 40},
    {"no CollNet", NCCL_ALL_REDUCE, 1 << 20, 10, NONE, NONE, NONE, NONE},
    {"the cheaper of two", NCCL_ALL_REDUCE, 1 << 20, 10, 30, 40, 0, 40},
    {"all-gather: not Direct", NCCL_ALL_GATHER, 1 << 10, 10, 5, NONE, 1e9f, NONE},
    {"reduce-scatter: not Direct", NCCL_REDUCE_SCATTER, 1 << 20, 10, 5, NONE, 1e9f, NONE},
    {"all-gather without Direct", NCCL_ALL_GATHER, 1 << 10, 10, NONE, NONE, NONE, NONE},
    {"broadcast", 0, 1 << 20, 10, NONE, NONE, NONE, NONE},
};

START_TEST(test_choose)
{
	float costs[ALGORITHMS][PROTOCOLS];

	for (int a = 0; a < ALGORITHMS; a++)
		for (int p = 0; p < PROTOCOLS; p++)
			costs[a][p] = 50;
	costs[1][NCCL_SIMPLE] = rows[_i].ring;
	costs[NCCL_COLLNET_DIRECT][NCCL_SIMPLE] = rows[_i].direct;
	costs[NCCL_COLLNET_CHAIN][NCCL_SIMPLE] = rows[_i].chain;
	tuner_choose(rows[_i].collective, rows[_i].bytes, &costs[0][0], ALGORITHMS, PROTOCOLS);
	ck_assert_msg(costs[NCCL_COLLNET_DIRECT][NCCL_SIMPLE] == rows[_i].want_direct, "%s", rows[_i].what);
	ck_assert_msg(costs[NCCL_COLLNET_CHAIN][NCCL_SIMPLE] == rows[_i].want_chain, "%s", rows[_i].what);
	ck_assert(costs[1][NCCL_SIMPLE] == rows[_i].ring && costs[0][0] == 50);
}
END_TEST

START_TEST(test_small_table)
{
	float costs[2] = {1, 1};

	tuner_choose(NCCL_ALL_REDUCE, 1 << 20, costs, 2, 1);
	ck_assert(costs[0] == 1 && costs[1] == 1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("tuner");
	TCase *tc = tcase_create("tuner");
	SRunner *sr;
	int failed;

	tcase_add_loop_test(tc, test_choose, 0, sizeof rows / sizeof rows[0]);
	tcase_add_test(tc, test_small_table);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
