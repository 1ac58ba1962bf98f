/* SPDX-License-Identifier: Apache-2.0 */
/* Which operations are encoded, and what a chunk of them has. */
#include "proto/operation.h"

#include "common/dtype.h"
#include "proto/frame.h"

#include <check.h>
#include <stdlib.h>

/* The encodings of an operation for which two were chosen. */
static const struct {
	unsigned dtype, op, up, down, ret_up, ret_down;
} choices[] = {
    {RS_FLOAT32, RS_SUM, RS_WIRE_FP8, RS_WIRE_BF16, RS_WIRE_FP8, RS_WIRE_BF16},
    {RS_FLOAT32, RS_AVG, RS_WIRE_INT8, RS_WIRE_SAME, RS_WIRE_INT8, RS_WIRE_SAME},
    {RS_BFLOAT16, RS_SUM, RS_WIRE_INT8, RS_WIRE_FP8, RS_WIRE_INT8, RS_WIRE_FP8},
    {RS_BFLOAT16, RS_SUM, RS_WIRE_FP8, RS_WIRE_BF16, RS_WIRE_FP8, RS_WIRE_SAME},
    {RS_FLOAT16, RS_AVG, RS_WIRE_BF16, RS_WIRE_FP8, RS_WIRE_SAME, RS_WIRE_FP8},
    {RS_FLOAT32, RS_SUM, RS_WIRE_FP16, RS_WIRE_INT4, RS_WIRE_FP16, RS_WIRE_INT4},
    {RS_FLOAT16, RS_AVG, RS_WIRE_FP16, RS_WIRE_INT4, RS_WIRE_SAME, RS_WIRE_INT4},
    {RS_BFLOAT16, RS_AVG, RS_WIRE_INT4, RS_WIRE_FP16, RS_WIRE_INT4, RS_WIRE_SAME},
    {RS_FLOAT32, RS_MAX, RS_WIRE_FP8, RS_WIRE_FP8, RS_WIRE_SAME, RS_WIRE_SAME},
    {RS_FLOAT32, RS_PROD, RS_WIRE_BF16, RS_WIRE_BF16, RS_WIRE_SAME, RS_WIRE_SAME},
    {RS_FLOAT64, RS_SUM, RS_WIRE_FP8, RS_WIRE_FP8, RS_WIRE_SAME, RS_WIRE_SAME},
    {RS_INT8, RS_SUM, RS_WIRE_INT8, RS_WIRE_INT8, RS_WIRE_SAME, RS_WIRE_SAME},
    {RS_FLOAT32, FRAME_OP_BROADCAST, RS_WIRE_FP8, RS_WIRE_FP8, RS_WIRE_SAME, RS_WIRE_SAME},
    {RS_FLOAT32, RS_SUM, RS_WIRE_NR, 255, RS_WIRE_SAME, RS_WIRE_SAME},
};

static struct operation operation(unsigned dtype, unsigned op)
{
	return (struct operation){.dtype = dtype & 15, .op = op & 31, .size = rs_dtype_size(dtype) & OPERATION_SIZE};
}

START_TEST(encodings_that_fit_are_chosen)
{
	struct operation o = operation(choices[_i].dtype, choices[_i].op);

	o.up = RS_WIRE_BF16; /* nothing of before stays */
	operation_choose_wire(&o, choices[_i].up, choices[_i].down);
	ck_assert_uint_eq(o.up, choices[_i].ret_up);
	ck_assert_uint_eq(o.down, choices[_i].ret_down);
	ck_assert_uint_eq(o.dtype, choices[_i].dtype);
	ck_assert_uint_eq(o.op, choices[_i].op);
}
END_TEST

/* The bytes that a chunk takes in memory, if it may take so much as float32 on a
 * reducer. */
static const struct {
	unsigned dtype, up, down;
	uint32_t chunk, decoded;
	uint64_t span;
} spans[] = {
    {RS_FLOAT32, RS_WIRE_SAME, RS_WIRE_SAME, 32768, 65536, 32768},
    {RS_INT8, RS_WIRE_SAME, RS_WIRE_SAME, 1024, 2048, 1024},
    {RS_FLOAT32, RS_WIRE_BF16, RS_WIRE_BF16, 32768, 65536, 65536},
    {RS_FLOAT32, RS_WIRE_FP8, RS_WIRE_BF16, 32768, 131072, 65536},
    {RS_FLOAT32, RS_WIRE_FP8, RS_WIRE_INT8, 32768, 131072, 131072},
    {RS_FLOAT32, RS_WIRE_FP8, RS_WIRE_FP8, 32768, 65536, 65536},
    {RS_FLOAT32, RS_WIRE_FP8, RS_WIRE_SAME, 32768, 131072, 32768},
    {RS_BFLOAT16, RS_WIRE_FP8, RS_WIRE_FP8, 32768, 131072, 65536},
    {RS_FLOAT32, RS_WIRE_BF16, RS_WIRE_BF16, 1088, 2176, 2048}, /* whole blocks */
    {RS_FLOAT32, RS_WIRE_FP8, RS_WIRE_FP8, 1088, 4352, 4096},
    {RS_FLOAT32, RS_WIRE_FP16, RS_WIRE_BF16, 32768, 65536, 65536},
    {RS_FLOAT16, RS_WIRE_FP16, RS_WIRE_SAME, 32768, 65536, 32768},
    {RS_FLOAT32, RS_WIRE_INT4, RS_WIRE_INT4, 32768, 262144, 262144},
    {RS_FLOAT32, RS_WIRE_INT4, RS_WIRE_INT4, 32768, 131072, 131072},
    {RS_FLOAT32, RS_WIRE_INT4, RS_WIRE_INT8, 32768, 262144, 131072},
};

START_TEST(chunks_in_memory)
{
	struct operation o = operation(spans[_i].dtype, RS_SUM);

	operation_choose_wire(&o, spans[_i].up, spans[_i].down);
	ck_assert_uint_eq(operation_span(&o, spans[_i].chunk, spans[_i].decoded), spans[_i].span);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("operation");
	TCase *tc = tcase_create("operation");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, encodings_that_fit_are_chosen, 0, sizeof choices / sizeof choices[0]);
	tcase_add_loop_test(tc, chunks_in_memory, 0, sizeof spans / sizeof spans[0]);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
