/* SPDX-License-Identifier: Apache-2.0 */
/* The copies of a sharded operation between a device's buffer and its ring: they take
 * each element of the buffer once, to or from the place of its chunk, in the order of the
 * chunks. */
#include "agent/gpu/core/shards.h"
#include "proto/frame.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { PARTS_MAX = 9, SIZE_MAX_ELEMS = 30 };

/* Check writes down each of its assertions, which takes most of the time here. */
#define MUST(cond) ((cond) ? (void)0 : ck_abort_msg("not true: %s", #cond))

/* What element i of the operation is, as a chunk's owner and its neighbours see it. */
static uint32_t element(uint64_t i)
{
	return (uint32_t)(i * 2654435761u + 1);
}

/* One way to cut an operation into pieces. */
struct row {
	struct operation of;
	uint32_t elems, own;
	bool own_only;
	uint64_t piece; /* chunks */
};

/* Copies a whole operation piece by piece out of `from` into a stage, or back. Returns
 * the number of copies. */
static unsigned copy_all(const struct row *row, uint32_t *buffer, uint32_t *stage, bool out)
{
	uint64_t stride = operation_stride(&row->of, row->elems), total = operation_staged(&row->of, row->elems);
	uint64_t whole = row->of.count / (row->own_only ? row->of.parts : 1);
	unsigned copies = 0;

	for (uint64_t at = 0; at < total; at += row->piece * stride) {
		uint64_t n = at + row->piece * stride < total ? row->piece * stride : total - at, before = 0;
		struct shards s = {
		    .of = &row->of, .chunk_elems = row->elems, .own_only = row->own_only, .own = row->own};
		struct shards_copy c;

		for (shards_begin(&s, at * 4, n * 4); shards_next(&s, &c); copies++) {
			MUST(c.bytes > 0 && c.bytes % 4 == 0 && c.at % 4 == 0 && c.place % 4 == 0);
			MUST(c.place + c.bytes <= n * 4 && c.at + c.bytes <= whole * 4);
			MUST(c.place >= before);
			before = c.place + c.bytes;
			if (out)
				memcpy(stage + at + c.place / 4, buffer + c.at / 4, c.bytes);
			else
				memcpy(buffer + c.at / 4, stage + at + c.place / 4, c.bytes);
		}
		MUST(!shards_next(&s, &c));
	}
	return copies;
}

/* Copies out: every chunk is in its place. Copies in: every element comes back. */
static void check_row(const struct row *row)
{
	uint64_t total = operation_staged(&row->of, row->elems), part = row->of.count / row->of.parts;
	uint64_t n = row->own_only ? part : row->of.count, base = row->own_only ? row->own * part : 0;
	uint32_t *buffer = calloc(n, 4), *back = calloc(n, 4), *stage = calloc(total, 4);

	for (uint64_t i = 0; i < n; i++)
		buffer[i] = element(base + i);
	copy_all(row, buffer, stage, true);
	for (uint32_t c = 0; c < operation_chunks(&row->of, row->elems); c++) {
		const struct operation_place p = operation_place(&row->of, row->elems, c);
		bool there = !row->own_only || p.part == row->own;

		for (uint32_t i = 0; i < operation_stride(&row->of, row->elems) && p.staged + i < total; i++)
			if (stage[p.staged + i] != (there && i < p.elems ? element(p.first + i) : 0))
				ck_abort_msg("element %u of chunk %u, %u parts of %u: not right", i, c, row->of.parts,
					     (unsigned)part);
	}
	copy_all(row, back, stage, false);
	MUST(memcmp(back, buffer, n * 4) == 0);
	free(buffer);
	free(back);
	free(stage);
}

static struct operation sharded(uint64_t part, uint32_t parts)
{
	return (struct operation){.sharded = 1, .parts = parts, .count = part * parts, .dtype = RS_FLOAT32, .size = 4};
}

/* _i: the number of parts */
START_TEST(each_element_once)
{
	uint32_t parts = (uint32_t)_i;

	for (uint64_t size = 1; size < SIZE_MAX_ELEMS; size++)
		for (uint32_t elems = 1; elems < 12; elems++)
			for (uint64_t piece = 1; piece < 8; piece++)
				for (uint32_t own = 0; own <= parts; own++)
					check_row(&(struct row){.of = sharded(size, parts),
								.elems = elems,
								.own = own % parts,
								.own_only = own < parts,
								.piece = piece});
}
END_TEST

/* Neighbours in both orders are one copy. */
static const struct {
	uint64_t part;
	uint32_t parts, elems, own;
	bool own_only;
	uint64_t piece;
	unsigned copies;
} rows[] = {
    {10, 4, 10, 0, false, 4, 1}, /* every part is one chunk */
    {7, 4, 10, 0, false, 4, 1},  /* and a short one */
    {7, 4, 10, 2, true, 4, 1},   /* of one part */
    {20, 1, 5, 0, false, 4, 1},  /* one part in all */
    {20, 2, 5, 0, false, 8, 5},  /* 0 | 1 1 | 0 0 | 1 1 | 0: the order turns in each round */
    {20, 3, 5, 1, true, 12, 4},  /* each chunk for itself */
    {20, 3, 5, 0, false, 12, 12}, {20, 3, 5, 0, false, 1, 12}, /* copies do not reach beyond their piece */
    {5, 3, 5, 0, false, 1, 3},
};

START_TEST(neighbours_are_one_copy)
{
	struct row row = {.of = sharded(rows[_i].part, rows[_i].parts),
			  .elems = rows[_i].elems,
			  .own = rows[_i].own,
			  .own_only = rows[_i].own_only,
			  .piece = rows[_i].piece};
	uint32_t buffer[100] = {0}, stage[100] = {0};

	ck_assert_uint_eq(copy_all(&row, buffer, stage, true), rows[_i].copies);
}
END_TEST

/* A ring where parts stand as in the buffer: any pieces together have the buffer's bytes
 * in their places, and no others. _i: the number of parts */
START_TEST(parts_in_order)
{
	const struct operation of = sharded(7, (uint32_t)_i);
	uint64_t all = of.count * 4, part = all / of.parts;

	for (uint32_t own = 0; own <= of.parts; own++)
		for (uint64_t piece = 1; piece <= all; piece++) {
			bool own_only = own < of.parts;
			uint64_t first = own_only ? own * part : 0, next = 0;

			for (uint64_t at = 0; at < all; at += piece) {
				uint64_t n = at + piece < all ? piece : all - at;
				struct shards_copy c = shards_in_order(&of, own_only, own % of.parts, at, n);

				if (!c.bytes)
					continue;
				MUST(c.at == next && at + c.place == first + next && c.place + c.bytes <= n);
				next += c.bytes;
			}
			MUST(next == (own_only ? part : all));
		}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("shards");
	TCase *tc = tcase_create("copies");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, each_element_once, 1, PARTS_MAX);
	tcase_add_loop_test(tc, neighbours_are_one_copy, 0, (int)(sizeof rows / sizeof rows[0]));
	tcase_add_loop_test(tc, parts_in_order, 1, PARTS_MAX);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
