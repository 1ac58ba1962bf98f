/* SPDX-License-Identifier: Apache-2.0 */
/* Which operations are encoded, what a chunk of them has, and where the chunks of a
 * sharded one are. */
#include "proto/operation.h"

#include "common/dtype.h"
#include "proto/frame.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

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

static struct operation sharded(unsigned op, uint64_t count, uint32_t parts)
{
	struct operation o = operation(RS_FLOAT32, op);

	o.sharded = 1;
	o.count = count;
	o.parts = parts;
	return o;
}

/* The chunks have each element exactly once, and neighbours have different owners. _i:
 * the number of parts */
START_TEST(chunks_of_parts_cover_everything)
{
	uint32_t parts = (uint32_t)_i;

	for (uint64_t size = 0; size < 30; size++)
		for (uint32_t elems = 1; elems < 12; elems++) {
			const struct operation o = sharded(RS_SUM, size * parts, parts);
			uint64_t chunks = operation_chunks(&o, elems);
			unsigned seen[30 * 16] = {0};

			ck_assert_uint_eq(chunks, parts * (size ? (size + elems - 1) / elems : 1));
			for (uint32_t c = 0; c < chunks; c++) {
				const struct operation_place at = operation_place(&o, elems, c);
				const struct operation_place next = operation_place(&o, elems, c + 1);

				if (at.part >= parts || at.elems > elems || at.first != at.part * size + at.offset ||
				    at.offset + at.elems > size || (!at.elems && size))
					ck_abort_msg("chunk %u of %u parts of %u is in part %u, from %u on", c, parts,
						     (unsigned)size, at.part, (unsigned)at.first);
				if (at.elems && operation_chunk_at(&o, elems, at.first) != c)
					ck_abort_msg("chunk %u of %u parts of %u is found as %u", c, parts,
						     (unsigned)size, operation_chunk_at(&o, elems, at.first));
				if (at.staged + at.elems > next.staged || next.staged - at.staged > elems ||
				    next.staged > operation_staged(&o, elems))
					ck_abort_msg("chunk %u of %u parts of %u is at %u of its stage, the next at %u",
						     c, parts, (unsigned)size, (unsigned)at.staged,
						     (unsigned)next.staged);
				if (parts > 2 && c + 1 < chunks && (c + 1) % parts && at.part == next.part)
					ck_abort_msg("chunks %u and %u are of one part", c, c + 1);
				for (uint32_t i = 0; i < at.elems; i++)
					seen[at.first + i]++;
			}
			for (uint64_t i = 0; i < size * parts; i++)
				if (seen[i] != 1)
					ck_abort_msg("element %u of %u parts of %u is in %u chunks", (unsigned)i, parts,
						     (unsigned)size, seen[i]);
		}
}
END_TEST

/* Places in large operations; without parts a chunk is where it always was. */
static const struct {
	uint64_t count;
	uint32_t parts, elems, chunk; /* parts 0: not sharded */
	uint64_t chunks, first;
	uint32_t length, part;
} places[] = {
    {10, 0, 4, 2, 3, 8, 2, 0},
    {0, 0, 4, 0, 1, 0, 0, 0},
    {12, 3, 4, 0, 3, 0, 4, 0},
    {30, 3, 4, 3, 9, 14, 4, 1},
    {30, 3, 4, 8, 9, 18, 2, 1},
    {0, 5, 4, 4, 5, 0, 0, 4},
    {UINT64_C(1) << 40, 1 << 20, 8192, 128 << 20, UINT64_C(1) << 27, 128, 0, 0},
    {UINT64_C(3) << 40, 3, 1 << 20, (3 << 20) - 1, 3 << 20, (UINT64_C(3) << 40) - (1 << 20), 1 << 20, 2},
};

START_TEST(places_of_chunks)
{
	const struct operation o = places[_i].parts
				       ? sharded(RS_SUM, places[_i].count, places[_i].parts)
				       : (struct operation){.count = places[_i].count, .dtype = RS_FLOAT32, .size = 4};
	const struct operation_place at = operation_place(&o, places[_i].elems, places[_i].chunk);

	ck_assert_uint_eq(operation_chunks(&o, places[_i].elems), places[_i].chunks);
	ck_assert_uint_eq(at.elems, places[_i].length);
	if (places[_i].chunk >= places[_i].chunks)
		return;
	ck_assert_uint_eq(at.first, places[_i].first);
	ck_assert_uint_eq(at.part, places[_i].part);
	if (at.elems)
		ck_assert_uint_eq(operation_chunk_at(&o, places[_i].elems, at.first), places[_i].chunk);
	if (!places[_i].parts) {
		ck_assert_uint_eq(at.staged, at.first);
		ck_assert_uint_eq(operation_staged(&o, places[_i].elems), places[_i].count);
	}
}
END_TEST

/* What ranks say of operations that differ. */
static const struct {
	struct operation a, b;
	const char *says;
} others[] = {
    {{.sharded = 1, .parts = 3, .count = 12, .dtype = RS_FLOAT32},
     {.sharded = 1, .parts = 4, .count = 12, .dtype = RS_FLOAT32},
     "rank 1 called a reduce-scatter sum of 12 float32 in 3 parts, rank 0 a reduce-scatter sum of 12 float32 in 4 "
     "parts"},
    {{.sharded = 1, .parts = 3, .count = 12, .dtype = RS_FLOAT32, .op = FRAME_OP_BROADCAST},
     {.sharded = 1, .parts = 3, .count = 12, .dtype = RS_FLOAT32, .op = RS_MAX},
     "rank 1 called an all-gather of 12 float32 in 3 parts, rank 0 a reduce-scatter max of 12 float32 in 3 parts"},
    {{.sharded = 1, .parts = 3, .count = 12, .dtype = RS_FLOAT32},
     {.count = 12, .dtype = RS_FLOAT32},
     "rank 1 called a reduce-scatter sum of 12 float32 in 3 parts, rank 0 an all-reduce sum of 12 float32"},
};

START_TEST(operations_that_differ)
{
	struct rs_err e = {0};

	ck_assert_int_eq(operation_check_same(&(struct operation_call){.of = &others[_i].a, .rank = "rank 1"},
					      &(struct operation_call){.of = &others[_i].b, .rank = "rank 0"}, &e),
			 RS_EMISMATCH);
	ck_assert_msg(strstr(e.msg, others[_i].says) != NULL, "%s", e.msg);
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
	tcase_add_loop_test(tc, chunks_of_parts_cover_everything, 1, 16);
	tcase_add_loop_test(tc, places_of_chunks, 0, sizeof places / sizeof places[0]);
	tcase_add_loop_test(tc, operations_that_differ, 0, sizeof others / sizeof others[0]);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
