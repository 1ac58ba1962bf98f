/* SPDX-License-Identifier: Apache-2.0 */
/* The ring of retained results. Its rule: a rank that gets the result of position q knows
 * that all ranks have the results of all positions below q - max_lead, and retains those
 * from there on. */
#include "agent/worker/core/retain.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

enum { BYTES = 100, PRIORITIES = 3 };

static void open_ring(struct retain *r, uint64_t max_lead)
{
	struct rs_err e;

	ck_assert_int_eq(retain_init(r, PRIORITIES, max_lead, BYTES, &e), RS_OK);
}

static struct frame head_of(unsigned priority, uint64_t position)
{
	return (struct frame){.type = FRAME_DATA,
			      .of.priority = (uint8_t)priority,
			      .of.seq = 1000 + position,
			      .chunk = 7,
			      .of.count = 500,
			      .payload_len = 4 * BYTES};
}

static uint8_t byte_of(unsigned priority, uint64_t position)
{
	return (uint8_t)(position * 5 + priority + 1);
}

/* The result of a position begins to arrive, and is completed. */
static void take(struct retain *r, unsigned priority, uint64_t position)
{
	struct frame of = head_of(priority, position);

	uint8_t *at = retain_reserve(r, priority, position);

	memset(at, byte_of(priority, position), BYTES);
	retain_store(r, priority, position, &of, BYTES, at);
}

static void expect_kept(const struct retain *r, unsigned priority, uint64_t position)
{
	const struct retained *k = retain_find(r, priority, position);
	uint8_t want[BYTES];

	memset(want, byte_of(priority, position), sizeof want);
	if (!k || k->head.of.seq != 1000 + position || k->head.of.priority != priority ||
	    k->head.payload_len != BYTES || memcmp(k->data, want, sizeof want) != 0)
		ck_abort_msg("priority %u has not what it should have at %llu", priority, (unsigned long long)position);
}

/* The start, below which all ranks have all results: max_lead, results that have begun in
 * their order, and the start. */
static const struct {
	uint64_t max_lead, taken[6];
	unsigned n;
	uint64_t start;
} starts[] = {
    {8, {0}, 0, 0},
    {8, {0}, 1, 0},
    {8, {8}, 1, 0}, /* 8 - 8: nothing is below */
    {8, {9}, 1, 1}, /* below 9 - 8 all have all */
    {8, {0, 1, 2, 3, 4, 20}, 6, 12},
    {8, {20, 3, 2}, 3, 12}, /* the highest counts, not the last */
    {1, {0, 1, 2}, 3, 1},
    {0, {0, 1, 2}, 3, 2},
    {64, {63, 64, 65, 66}, 4, 2},
};

START_TEST(the_start_follows_from_the_highest_result)
{
	struct retain r;

	open_ring(&r, starts[_i].max_lead);
	for (unsigned i = 0; i < starts[_i].n; i++)
		take(&r, 1, starts[_i].taken[i]);
	ck_assert_uint_eq(retain_resume_position(&r, 1), starts[_i].start);
	/* priorities are independent */
	ck_assert_uint_eq(retain_resume_position(&r, 0), 0);
	ck_assert_uint_eq(retain_resume_position(&r, 2), 0);
	retain_close(&r);
}
END_TEST

/* For any order of arrival, every position that has arrived and is not below the start is
 * found. */
START_TEST(results_that_a_rank_may_lack_are_retained)
{
	static const uint64_t spreads[] = {0, 1, 2, 7, 8, 31};
	uint64_t max_lead = spreads[_i], last = 5 * (max_lead + 1);
	struct retain r;

	open_ring(&r, max_lead);
	for (uint64_t q = 0; q <= last; q++)
		for (unsigned p = 0; p < PRIORITIES; p++) {
			take(&r, p, q);
			for (uint64_t k = retain_resume_position(&r, p); k <= q; k++)
				expect_kept(&r, p, k);
			/* and a missing one is not taken for another */
			ck_assert_ptr_null(retain_find(&r, p, q + 1));
			ck_assert_ptr_null(retain_find(&r, p, q + max_lead + 1));
			if (q > max_lead)
				ck_assert_ptr_null(retain_find(&r, p, q - max_lead - 1));
		}
	retain_close(&r);
}
END_TEST

/* Links progress independently, so results arrive out of order, within max_lead. */
START_TEST(results_out_of_order_displace_no_needed_result)
{
	enum { SPREAD = 8 };
	static const uint64_t order[] = {8, 0, 1, 7, 2, 3, 6, 4, 5, 9, 10, 17, 11};
	struct retain r;

	open_ring(&r, SPREAD);
	for (unsigned i = 0; i < sizeof order / sizeof order[0]; i++) {
		take(&r, 0, order[i]);
		for (unsigned j = 0; j <= i; j++)
			if (order[j] >= retain_resume_position(&r, 0))
				expect_kept(&r, 0, order[j]);
	}
	retain_close(&r);
}
END_TEST

/* A result that has begun counts for the start at once, but is found only after its last
 * byte. */
START_TEST(a_partial_result_is_not_retained)
{
	struct retain r;

	open_ring(&r, 3);
	take(&r, 0, 1);
	memset(retain_reserve(&r, 0, 5), 0xee, BYTES / 2);
	ck_assert_ptr_null(retain_find(&r, 0, 5));
	ck_assert_ptr_null(retain_find(&r, 0, 1)); /* its place is overwritten */
	ck_assert_uint_eq(retain_resume_position(&r, 0), 2);
	take(&r, 0, 5);
	expect_kept(&r, 0, 5);
	/* the same position again, in another view */
	memset(retain_reserve(&r, 0, 5), 0xee, 1);
	ck_assert_ptr_null(retain_find(&r, 0, 5));
	ck_assert_uint_eq(retain_resume_position(&r, 0), 2);
	retain_close(&r);
}
END_TEST

START_TEST(a_contribution_begins_once)
{
	struct retain r;

	open_ring(&r, 2);
	for (uint64_t q = 0; q < 20; q++)
		for (unsigned p = 0; p < PRIORITIES; p++) {
			ck_assert(retain_mark_sent(&r, p, q));
			ck_assert(!retain_mark_sent(&r, p, q));
			/* as long as it may be sent again */
			ck_assert(q == 0 || !retain_mark_sent(&r, p, q - 1));
			ck_assert(q < 2 || !retain_mark_sent(&r, p, q - 2));
		}
	retain_close(&r);
}
END_TEST

/* Without failover there is no ring: nothing is retained and every result may begin. */
START_TEST(an_empty_ring)
{
	struct retain r = {0};

	ck_assert_ptr_null(retain_find(&r, 0, 0));
	ck_assert(retain_mark_sent(&r, 0, 0));
	ck_assert(retain_mark_sent(&r, 0, 0));
	retain_close(&r);
}
END_TEST

#define COUNT(a) (int)(sizeof(a) / sizeof(a)[0])

int main(void)
{
	Suite *suite = suite_create("retain");
	TCase *tc = tcase_create("retain");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, the_start_follows_from_the_highest_result, 0, COUNT(starts));
	tcase_add_loop_test(tc, results_that_a_rank_may_lack_are_retained, 0, 6);
	tcase_add_test(tc, results_out_of_order_displace_no_needed_result);
	tcase_add_test(tc, a_partial_result_is_not_retained);
	tcase_add_test(tc, a_contribution_begins_once);
	tcase_add_test(tc, an_empty_ring);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
