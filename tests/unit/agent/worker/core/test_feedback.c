/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/worker/core/feedback.h"

#include <check.h>
#include <math.h>
#include <string.h>

static struct operation named(uint32_t name, uint64_t count)
{
	return (struct operation){.name_hash = name, .count = count, .dtype = RS_FLOAT32, .size = 4};
}

static struct residual *take(struct feedback *f, uint32_t name, uint64_t count)
{
	const struct operation of = named(name, count);

	return feedback_take(f, &of);
}

/* A residual belongs to a name and a count, starts with zeros and keeps its values. */
START_TEST(a_residual_belongs_to_its_name)
{
	struct feedback f = {.limit = 1 << 20};
	struct residual *a = take(&f, 7, 100), *b;

	ck_assert_ptr_nonnull(a);
	ck_assert(a->values[0] == 0 && a->values[99] == 0);
	a->values[5] = 3;
	ck_assert_ptr_null(take(&f, 7, 100)); /* an operation uses it now */
	feedback_give(a);
	ck_assert_ptr_eq(take(&f, 7, 100), a);
	ck_assert(a->values[5] == 3);
	b = take(&f, 7, 101);
	ck_assert(b && b != a && b->values[5] == 0);
	ck_assert_ptr_null(take(&f, 0, 100)); /* no name */
	ck_assert_uint_eq(f.unnamed, 1);
	ck_assert_ptr_null(take(&f, 9, 0));
	feedback_give(a);
	feedback_give(b);
	ck_assert_uint_eq(f.bytes, 201 * sizeof(float));
	ck_assert_uint_eq(f.refused, 0);
	feedback_close(&f);
	ck_assert_uint_eq(f.bytes, 0);
}
END_TEST

START_TEST(without_a_limit_there_is_no_feedback)
{
	struct feedback f = {0};

	ck_assert_ptr_null(take(&f, 7, 100));
	ck_assert_uint_eq(f.refused, 0);
}
END_TEST

/* Names that are used in turn keep their residuals; names that never come again do not
 * fill the memory for ever. */
START_TEST(memory_is_bounded)
{
	struct feedback f = {.limit = 4 * 400};
	struct residual *r;
	unsigned others = 0;

	for (uint32_t turn = 0; turn < 5; turn++)
		for (uint32_t name = 1; name <= 5; name++) {
			r = take(&f, name, 100);
			ck_assert_int_eq(r != NULL, name <= 4);
			if (r)
				feedback_give(r);
		}
	ck_assert_uint_eq(f.refused, 5);
	for (uint32_t name = 100; name < 120; name++) { /* the four are not used any more */
		r = take(&f, name, 100);
		if (r)
			feedback_give(r);
		others += r != NULL;
	}
	ck_assert_uint_ge(others, 4);
	ck_assert_uint_le(f.bytes, f.limit);
	ck_assert_ptr_null(take(&f, 1000, 401)); /* never has room */
	ck_assert_ptr_null(take(&f, 1000, UINT64_MAX));
	feedback_close(&f);
}
END_TEST

/* What is lost at one time is sent at the next one; NaN and infinity leave nothing. */
START_TEST(what_is_lost_is_kept)
{
	static const float first[] = {1.25F, -2, 0.125F, NAN, INFINITY}, sent[] = {1, -2, 0, NAN, INFINITY};
	static const float second[] = {0.5F, 1, 0, 1, 2}, both[] = {0.75F, 1, 0.125F, 1, 2};
	struct feedback f = {.limit = 1 << 20};
	struct residual *r = take(&f, 7, 8);
	const struct rs_kernels *k = rs_kernels_usable(0);

	feedback_correct(r, k, RS_FLOAT32, first, 3, 5);
	ck_assert_mem_eq(r->values + 3, first, 3 * sizeof(float));
	feedback_settle(r, sent, 3, 5);
	feedback_correct(r, k, RS_FLOAT32, second, 3, 5);
	ck_assert_mem_eq(r->values + 3, both, sizeof both);
	ck_assert(r->values[2] == 0);
	feedback_give(r);
	feedback_close(&f);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("feedback");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_test(tc, a_residual_belongs_to_its_name);
	tcase_add_test(tc, without_a_limit_there_is_no_feedback);
	tcase_add_test(tc, memory_is_bounded);
	tcase_add_test(tc, what_is_lost_is_kept);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
