/* SPDX-License-Identifier: Apache-2.0 */
#include "common/dtype.h"

#include <check.h>
#include <stdlib.h>

/* The values are NCCL's and go over the wire, so they are written out here once more. */
static const struct {
	const char *name;
	unsigned value;
	size_t size, acc_size;
	bool half;
} dtypes[] = {
    {"int8", 0, 1, 1, false},    {"uint8", 1, 1, 1, false},   {"int32", 2, 4, 4, false},  {"uint32", 3, 4, 4, false},
    {"int64", 4, 8, 8, false},   {"uint64", 5, 8, 8, false},  {"float16", 6, 2, 4, true}, {"float32", 7, 4, 4, false},
    {"float64", 8, 8, 8, false}, {"bfloat16", 9, 2, 4, true},
};

START_TEST(dtypes_are_as_on_the_wire)
{
	unsigned value = dtypes[_i].value;

	ck_assert_str_eq(rs_dtype_name(value), dtypes[_i].name);
	ck_assert_uint_eq(rs_dtype_size(value), dtypes[_i].size);
	ck_assert_uint_eq(rs_acc_size(value), dtypes[_i].acc_size);
	ck_assert(rs_dtype_is_half(value) == dtypes[_i].half);
}
END_TEST

START_TEST(ops_are_as_on_the_wire)
{
	static const char *const names[] = {"sum", "prod", "max", "min", "avg"};

	ck_assert_uint_eq(RS_OP_NR, sizeof names / sizeof names[0]);
	for (unsigned i = 0; i < RS_OP_NR; i++)
		ck_assert_str_eq(rs_op_name(i), names[i]);
}
END_TEST

START_TEST(unknown_dtypes_and_ops_are_harmless)
{
	static const unsigned none[] = {RS_DTYPE_NR, 255, 0x80000000u, 0xffffffffu};

	ck_assert_uint_eq(rs_dtype_size(none[_i]), 0);
	ck_assert_uint_eq(rs_acc_size(none[_i]), 0);
	ck_assert_str_eq(rs_dtype_name(none[_i]), "dtype?");
	ck_assert_str_eq(rs_op_name(none[_i]), "op?");
	ck_assert(!rs_dtype_is_half(none[_i]));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("dtype");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, dtypes_are_as_on_the_wire, 0, RS_DTYPE_NR);
	tcase_add_test(tc, ops_are_as_on_the_wire);
	tcase_add_loop_test(tc, unknown_dtypes_and_ops_are_harmless, 0, 4);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
