/* SPDX-License-Identifier: Apache-2.0 */
/* Shares of a lane's time, in a simulated loop: each pass reads all connections that have
 * something to read, in steps that cost the same. */
#include "server/core/share.h"

#include <check.h>
#include <stdlib.h>

enum { CONNECTIONS = 8 };

struct flow {
	double weight;
	uint64_t step_ns; /* of one read; 0: there is no connection */
	uint64_t pending; /* reads that come with each pass; UINT64_MAX: without end */
};

/* Runs the loop for a second, and adds up the time of each connection. */
static void run(const struct flow flows[CONNECTIONS], double heaviest, uint64_t ret_ns[CONNECTIONS])
{
	struct share shares[CONNECTIONS];
	struct shares all = {.heaviest = heaviest};
	uint64_t now_ns = 0;

	for (unsigned i = 0; i < CONNECTIONS; i++) {
		shares[i] = (struct share){.weight = flows[i].weight};
		ret_ns[i] = 0;
	}
	while (now_ns < 1000000000) {
		for (unsigned i = 0; i < CONNECTIONS; i++) {
			uint64_t used = 0, limit = flows[i].step_ns ? share_begin(&shares[i], &all) : 0;

			for (uint64_t n = 0; n < flows[i].pending && n < 4096 && used < limit; n++)
				used += flows[i].step_ns;
			ck_assert_uint_eq(share_charge(&shares[i], used, used), used);
			ret_ns[i] += used;
			now_ns += used;
		}
		now_ns += 1000; /* the pass itself */
		shares_next_round(&all);
	}
}

/* Parts of a second, in thousandths, of two groups of connections: the first is one
 * connection, the second all others. */
static const struct {
	const char *name;
	struct flow one, others;
	unsigned others_n;
	unsigned low, high; /* of the first */
} cases[] = {
    {"equal weights", {1, 10000, UINT64_MAX}, {1, 10000, UINT64_MAX}, 1, 490, 510},
    {"twice the weight", {2, 10000, UINT64_MAX}, {1, 10000, UINT64_MAX}, 1, 650, 680},
    {"a hundredth of the weight", {0.01, 10000, UINT64_MAX}, {1, 10000, UINT64_MAX}, 1, 8, 12},
    {"steps longer than a round", {1, 1000000, UINT64_MAX}, {1, 5000, UINT64_MAX}, 1, 480, 520},
    {"three times the weight, and long steps", {3, 250000, UINT64_MAX}, {1, 250000, UINT64_MAX}, 1, 730, 770},
    {"one of eight connections", {1, 10000, UINT64_MAX}, {1, 10000, UINT64_MAX}, 7, 120, 130},
    {"a flood beside a job with little to read", {1, 10000, 4}, {1, 200, UINT64_MAX}, 1, 270, 300},
    {"who is alone has all, whatever its weight", {0.01, 10000, UINT64_MAX}, {1, 0, 0}, 1, 800, 1000},
};

START_TEST(time_is_shared_by_weight)
{
	struct flow flows[CONNECTIONS] = {cases[_i].one};
	uint64_t ns[CONNECTIONS];
	double heaviest =
	    cases[_i].one.weight > cases[_i].others.weight ? cases[_i].one.weight : cases[_i].others.weight;

	for (unsigned i = 1; i <= cases[_i].others_n; i++)
		flows[i] = cases[_i].others;
	run(flows, heaviest, ns);
	ck_assert_msg(ns[0] / 1000000 >= cases[_i].low && ns[0] / 1000000 <= cases[_i].high, "%s: %llu ms",
		      cases[_i].name, (unsigned long long)(ns[0] / 1000000));
}
END_TEST

/* Alone on its lane a job has no limit, and what it took then is not held against it. */
START_TEST(one_job_has_no_limit)
{
	struct shares all = {.heaviest = 0};
	struct share s = {.weight = 1};

	ck_assert_uint_eq(share_begin(&s, &all), UINT64_MAX);
	share_charge(&s, 5000000000, 1 << 20);
	shares_next_round(&all);
	ck_assert_uint_eq(share_begin(&s, &all), UINT64_MAX);
	shares_next_round(&all);
	all.heaviest = 1;
	ck_assert_uint_gt(share_begin(&s, &all), 0);
	/* a thread without a processor: not the fault of who is served */
	ck_assert_uint_lt(share_charge(&s, 20000000, 32768), 1000000);
	ck_assert_uint_eq(share_begin(&s, &all), 0);
	/* a pause pays debts, and saves nothing */
	for (unsigned i = 0; i < 1000; i++)
		shares_next_round(&all);
	ck_assert_uint_le(share_begin(&s, &all), 110000);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("share");
	TCase *tc = tcase_create("share");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, time_is_shared_by_weight, 0, sizeof cases / sizeof cases[0]);
	tcase_add_test(tc, one_job_has_no_limit);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
