/* SPDX-License-Identifier: Apache-2.0 */
#include "server/core/slot.h"
#include "tests/unit/oracle.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { ELEMS = 37, WORLD = 3, STRIDE = 512 };

/* A slot with exactly the memory it needs, filled with bytes that must not matter. */
struct fixture {
	struct slot s;
	uint64_t who, complete, wide;
	const struct rs_kernels *k;
};

static void open_slot(struct fixture *fx, unsigned op, unsigned dtype)
{
	struct rs_err e;

	*fx = (struct fixture){0};
	ck_assert_int_eq(rs_kernels_select("auto", &fx->k, &e), RS_OK);
	fx->s = (struct slot){
	    .header = {.type = FRAME_DATA,
		       .flags = FRAME_CHECKED,
		       .of.dtype = (uint8_t)dtype,
		       .of.size = rs_dtype_size(dtype) & OPERATION_SIZE,
		       .of.op = (uint8_t)op,
		       .of.seq = 11,
		       .of.count = ELEMS,
		       .chunk_elems = ELEMS,
		       .of.name_hash = 5,
		       .generation = 3,
		       .ack = 2,
		       .payload_len = 1},
	    .elems = ELEMS,
	    .started = &fx->who,
	    .complete = &fx->complete,
	    .wide = &fx->wide,
	};
	fx->s.acc = malloc(ELEMS * slot_acc_size(&fx->s));
	fx->s.stash = malloc((WORLD - 1) * STRIDE);
	memset(fx->s.acc, 0xa5, ELEMS * slot_acc_size(&fx->s));
}

static void close_slot(struct fixture *fx)
{
	free(fx->s.acc);
	free(fx->s.stash);
}

static void fill(void *buf, unsigned dtype, bool wide, unsigned op, unsigned rank)
{
	for (uint32_t i = 0; i < ELEMS; i++)
		oracle_fill(buf, i, dtype, wide, op, rank, 0, i);
}

static void expect_result(struct fixture *fx, uint64_t processes)
{
	uint8_t want[ELEMS * sizeof(double)];
	struct slot *s = &fx->s;

	for (uint32_t i = 0; i < ELEMS; i++)
		oracle_result(want, i, s->header.of.dtype, s->header.of.op, WORLD, processes, 0, i);
	ck_assert_uint_eq(s->result_len, ELEMS * rs_dtype_size(s->header.of.dtype));
	ck_assert_mem_eq(s->acc, want, s->result_len);
}

START_TEST(inputs_of_the_accumulators_type_are_direct)
{
	struct fixture fx;
	struct slot_input in;

	open_slot(&fx, RS_SUM, (unsigned)_i);
	in = slot_input_of(&fx.s, false);
	ck_assert_uint_eq(in.size, rs_dtype_size((unsigned)_i));
	ck_assert(in.direct == !rs_dtype_is_half((unsigned)_i));
	if (rs_dtype_is_half((unsigned)_i)) {
		in = slot_input_of(&fx.s, true);
		ck_assert_uint_eq(in.size, sizeof(float));
		ck_assert(in.direct);
	}
	close_slot(&fx);
	/* a broadcast moves bytes and widens nothing */
	open_slot(&fx, FRAME_OP_BROADCAST, (unsigned)_i);
	ck_assert_uint_eq(slot_acc_size(&fx.s), rs_dtype_size((unsigned)_i));
	ck_assert(slot_input_of(&fx.s, false).direct);
	close_slot(&fx);
}
END_TEST

/* Three ranks in turn: each adds where another rank has been already, and stores beyond.
 * _i: the dtype. */
START_TEST(parts_are_added_up_to_filled_and_stored_beyond)
{
	for (unsigned op = 0; op < RS_OP_NR; op++)
		for (uint32_t step = 1; step <= ELEMS; step += 3) {
			struct fixture fx;
			uint32_t pos[WORLD] = {0}, left = WORLD * ELEMS;
			uint8_t in[WORLD][ELEMS * sizeof(double)];
			unsigned dtype = (unsigned)_i;
			bool half = rs_dtype_is_half(dtype);

			open_slot(&fx, op, dtype);
			for (unsigned r = 0; r < WORLD; r++)
				fill(in[r], dtype, half && r == 1, op, r);
			for (unsigned turn = 0; left; turn++) {
				unsigned r = (turn + turn / 5) % WORLD;
				bool wide = half && r == 1;
				uint32_t n = step + r < ELEMS - pos[r] ? step + r : ELEMS - pos[r];

				slot_add(&fx.s, fx.k, pos[r], in[r] + pos[r] * (wide ? 4 : rs_dtype_size(dtype)), n,
					 wide);
				pos[r] += n;
				left -= n;
				ck_assert_uint_le(pos[r], fx.s.filled);
			}
			ck_assert_uint_eq(fx.s.filled, ELEMS);
			slot_finish(&fx.s, fx.k, 5, 9, false);
			expect_result(&fx, 5);
			close_slot(&fx);
		}
}
END_TEST

/* Ranks complete in the order of permutation _i; nothing is combined before its turn. */
START_TEST(rank_order_is_kept)
{
	static const unsigned orders[6][WORLD] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
	static const unsigned dtypes[] = {RS_FLOAT16, RS_INT64, RS_FLOAT32};

	for (unsigned d = 0; d < 3; d++) {
		struct fixture fx;
		uint8_t first[ELEMS * sizeof(double)];

		open_slot(&fx, RS_SUM, dtypes[d]);
		for (unsigned k = 0; k < WORLD; k++) {
			unsigned r = orders[_i][k], before;

			if (r == 0) {
				fill(first, dtypes[d], false, RS_SUM, 0);
				slot_add(&fx.s, fx.k, 0, first, ELEMS, false);
			} else {
				bool wide = rs_dtype_is_half(dtypes[d]) && r == 2;

				fill(fx.s.stash + (r - 1) * STRIDE, dtypes[d], wide, RS_SUM, r);
				if (wide)
					slot_bit_set(fx.s.wide, r);
			}
			slot_bit_set(fx.s.complete, r);
			slot_combine(&fx.s, fx.k, STRIDE, WORLD);
			for (before = 0; before < WORLD && slot_bit(fx.s.complete, before); before++)
				;
			ck_assert_uint_eq(fx.s.combined, before);
		}
		slot_finish(&fx.s, fx.k, WORLD, 0, false);
		expect_result(&fx, WORLD);
		close_slot(&fx);
	}
}
END_TEST

START_TEST(headers_of_the_result)
{
	struct fixture fx;
	struct frame f, root;
	struct rs_err e;
	bool checksum = _i;

	open_slot(&fx, FRAME_OP_BROADCAST, RS_INT32);
	memset(fx.s.acc, 1, ELEMS * 4);
	fx.s.filled = ELEMS;
	slot_finish(&fx.s, fx.k, 1, 77, checksum);
	ck_assert_int_eq(frame_decode(fx.s.head, &f, &e), RS_OK);
	ck_assert_int_eq(frame_decode(fx.s.head_root, &root, &e), RS_OK);
	ck_assert_uint_eq(f.type, FRAME_RESULT);
	ck_assert_uint_eq(f.flags, checksum ? FRAME_CHECKED : 0);
	ck_assert_uint_eq(f.payload_sum, checksum ? frame_checksum(fx.s.acc, ELEMS * 4) : 0);
	ck_assert_uint_eq(f.payload_len, ELEMS * 4);
	ck_assert_uint_eq(f.of.seq, 11);
	ck_assert_uint_eq(f.of.count, ELEMS);
	ck_assert_uint_eq(f.ack, 77);
	ck_assert_uint_eq(f.generation, 3);
	ck_assert_uint_eq(root.type, FRAME_RESULT);
	ck_assert_uint_eq(root.flags, 0);
	ck_assert_uint_eq(root.payload_len, 0);
	ck_assert_uint_eq(root.payload_sum, 0);
	ck_assert_uint_eq(root.of.seq, 11);
	close_slot(&fx);
}
END_TEST

START_TEST(bits_of_many_ranks)
{
	uint64_t set[2] = {0};
	static const unsigned ranks[] = {0, 31, 32, 63, 64, 127};

	slot_bit_set(set, ranks[_i]);
	for (unsigned r = 0; r < 128; r++)
		ck_assert(slot_bit(set, r) == (r == ranks[_i]));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("slot");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, inputs_of_the_accumulators_type_are_direct, 0, RS_DTYPE_NR);
	tcase_add_loop_test(tc, parts_are_added_up_to_filled_and_stored_beyond, 0, RS_DTYPE_NR);
	tcase_add_loop_test(tc, rank_order_is_kept, 0, 6);
	tcase_add_loop_test(tc, headers_of_the_result, 0, 2);
	tcase_add_loop_test(tc, bits_of_many_ranks, 0, 6);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
