/* SPDX-License-Identifier: Apache-2.0 */
/* How many chunks that go through relays may be without a result: it follows the delay of
 * results. */
#include "agent/worker/core/lookahead.h"

#include <check.h>

enum { MOST = 32 };

/* One round: as many results as the limit, with these delays; the last one again and
 * again. */
static void take_round(struct lookahead *a, const uint32_t *delay, unsigned n, bool held)
{
	uint32_t limit = a->limit;

	for (uint32_t i = 0; i < limit; i++) {
		a->held |= held;
		lookahead_result(a, delay[i < n ? i : n - 1], MOST);
	}
	ck_assert_uint_eq(a->results, 0);
}

static void take_rounds(struct lookahead *a, uint32_t delay, unsigned rounds)
{
	while (rounds--)
		take_round(a, &delay, 1, true);
}

/* Delays in milliseconds, the smallest one ever and that of a round, and what the limit
 * becomes after the first growth to 8. */
static const struct {
	uint32_t least, now, limit;
} rows[] = {
    {0, 0, 16},  {0, 1, 16},  {0, 2, 8},      {0, 4, 8},     {0, 5, 6},     {2, 3, 16},
    {2, 4, 8},   {2, 6, 8},   {2, 7, 6},      {20, 20, 16},  {20, 25, 16},  {20, 26, 8},
    {20, 30, 8}, {20, 31, 6}, {200, 250, 16}, {200, 251, 8}, {200, 300, 8}, {200, 301, 6},
};

START_TEST(the_limit_follows_the_delay)
{
	struct lookahead a;

	lookahead_init(&a);
	ck_assert_uint_eq(a.limit, LOOKAHEAD_HOPS);
	take_rounds(&a, rows[_i].least, 1);
	ck_assert_uint_eq(a.limit, 8);
	take_rounds(&a, rows[_i].now, 1);
	ck_assert_uint_eq(a.limit, rows[_i].limit);
}
END_TEST

/* Ranks that are late delay most results of a round, but seldom all. */
START_TEST(the_quickest_result_of_a_round_counts)
{
	const uint32_t late[] = {90, 90, 21, 90};
	struct lookahead a;

	lookahead_init(&a);
	take_rounds(&a, 20, 1);
	take_round(&a, late, 4, true);
	ck_assert_uint_eq(a.limit, 16);
}
END_TEST

START_TEST(it_grows_only_where_it_holds_chunks_back)
{
	const uint32_t delay = 20;
	struct lookahead a;

	lookahead_init(&a);
	for (unsigned i = 0; i < 5; i++)
		take_round(&a, &delay, 1, false);
	ck_assert_uint_eq(a.limit, LOOKAHEAD_HOPS);
}
END_TEST

/* It doubles until a queue was seen, then it grows by one. */
START_TEST(it_stays_within_its_bounds)
{
	struct lookahead a;

	lookahead_init(&a);
	take_rounds(&a, 20, 6);
	ck_assert_uint_eq(a.limit, MOST);
	take_rounds(&a, 100, 40);
	ck_assert_uint_eq(a.limit, LOOKAHEAD_HOPS);
	take_rounds(&a, 20, 3);
	ck_assert_uint_eq(a.limit, LOOKAHEAD_HOPS + 3);
	take_rounds(&a, 20, 60);
	ck_assert_uint_eq(a.limit, MOST);
}
END_TEST

/* A rank with room for fewer chunks than hops keeps what it has: what the reducer expects
 * bounds it elsewhere. */
START_TEST(it_does_not_grow_above_a_small_most)
{
	struct lookahead a;

	lookahead_init(&a);
	for (unsigned i = 0; i < 20; i++) {
		a.held = true;
		lookahead_result(&a, 20, 2);
	}
	ck_assert_uint_eq(a.limit, LOOKAHEAD_HOPS);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("lookahead");
	TCase *c = tcase_create("limit");
	SRunner *r;
	int failed;

	tcase_add_loop_test(c, the_limit_follows_the_delay, 0, sizeof rows / sizeof rows[0]);
	tcase_add_test(c, the_quickest_result_of_a_round_counts);
	tcase_add_test(c, it_grows_only_where_it_holds_chunks_back);
	tcase_add_test(c, it_stays_within_its_bounds);
	tcase_add_test(c, it_does_not_grow_above_a_small_most);
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
