/* SPDX-License-Identifier: Apache-2.0 */
/* Sums: every operation and dtype, in every order in which bytes can arrive.
 * test_session_rx.c tests errors. */
#include "tests/unit/fake_worker.h"
#include "tests/unit/oracle.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static const size_t pieces[] = {1, 3, 61, 65, 130, SIZE_MAX};
enum { PIECES_N = sizeof pieces / sizeof pieces[0] };

static void expect_all_results(struct fw_world *fw, unsigned rank, struct frame f, uint64_t processes)
{
	for (f.chunk = 0; f.chunk < frame_chunks(f.of.count, f.chunk_elems); f.chunk++)
		fw_expect_result(fw, rank, f, processes);
}

enum wide { NARROW, WIDE, MIXED };

/* One operation of two and a half chunks on all ranks. */
static void reduce_once(const struct fw_options *opt, unsigned op, unsigned dtype, enum wide wide, size_t piece)
{
	struct fw_world fw;
	struct frame f;
	uint64_t processes = opt->world;

	fw_running(&fw, opt);
	f = fw_data(&fw, op, dtype, 3, 0, 0);
	f.of.count = 2 * f.chunk_elems + f.chunk_elems / 2;
	for (unsigned r = 0; r < opt->world; r++) {
		f.flags = wide == WIDE || (wide == MIXED && r % 2) ? FRAME_WIDE : 0;
		fw_contribute_all(&fw, r, f);
	}
	f.flags = 0;
	fw.out_piece = piece;
	fw_feed_all(&fw, piece);
	for (unsigned r = 0; r < opt->world; r++)
		expect_all_results(&fw, r, f, processes);
	fw_say_goodbye(&fw);
}

/* _i: the dtype */
START_TEST(every_op_and_dtype)
{
	static const unsigned worlds[] = {1, 2, 3};

	for (unsigned op = 0; op < RS_OP_NR; op++)
		for (unsigned w = 0; w < 3; w++)
			for (unsigned p = 0; p < PIECES_N; p++)
				for (unsigned det = 0; det < 2; det++)
					reduce_once(&(struct fw_options){.world = worlds[w], .deterministic = det}, op,
						    (unsigned)_i, NARROW, pieces[p]);
}
END_TEST

START_TEST(half_types_take_wide_partial_sums)
{
	static const unsigned halves[] = {RS_FLOAT16, RS_BFLOAT16};

	for (unsigned op = 0; op < RS_OP_NR; op++)
		for (unsigned p = 0; p < PIECES_N; p++)
			for (unsigned det = 0; det < 2; det++)
				for (enum wide wide = WIDE; wide <= MIXED; wide++)
					reduce_once(&(struct fw_options){.world = 3, .deterministic = det}, op,
						    halves[_i], wide, pieces[p]);
}
END_TEST

START_TEST(every_kernel_table_sums)
{
	const struct rs_kernels *k;

	for (unsigned i = 0; (k = rs_kernels_usable(i)); i++)
		for (unsigned dtype = 0; dtype < RS_DTYPE_NR; dtype++)
			reduce_once(&(struct fw_options){.world = 3, .kernels = k, .chunk_bytes = 1024}, RS_SUM, dtype,
				    NARROW, 333);
}
END_TEST

START_TEST(payloads_larger_than_the_scratch)
{
	static const struct {
		unsigned dtype;
		enum wide wide;
	} rows[] = {{RS_FLOAT32, NARROW}, {RS_INT8, NARROW}, {RS_FLOAT16, NARROW}, {RS_BFLOAT16, MIXED}};
	uint32_t chunk = 2 * LANE_SCRATCH + 64;

	for (unsigned det = 0; det < 2; det++)
		for (unsigned p = 0; p < 2; p++)
			reduce_once(&(struct fw_options){.world = 2, .deterministic = det, .chunk_bytes = chunk},
				    RS_SUM, rows[_i].dtype, rows[_i].wide, p ? 100001 : SIZE_MAX);
}
END_TEST

/* The read-ahead buffer ends at the end of a chunk of the default size, and of the size
 * for slower links. */
START_TEST(four_chunks_of_32_kib_fit_one_call)
{
	static const uint32_t chunks[] = {32 << 10, 16 << 10, 8 << 10};
	struct iovec iov[2];
	struct fw_world fw;
	size_t all = (size_t)(128 << 10) / chunks[_i] * (FRAME_HEADER + chunks[_i]);

	fw_running(&fw, &(struct fw_options){.world = 2, .window = 16, .chunk_bytes = chunks[_i]});
	ck_assert_uint_eq(session_recv_target(fw.w[0].session, iov), 1);
	ck_assert_uint_ge(iov[0].iov_len, all);
	fw_say_goodbye(&fw);
}
END_TEST

/* Contributions that arrive together need one call, wherever the previous call
 * stopped. */
START_TEST(contributions_that_arrive_together_need_one_call)
{
	static const size_t stops[] = {0, 1, FRAME_HEADER - 1, FRAME_HEADER, FRAME_HEADER + 1, FRAME_HEADER + 7};
	struct fw_world fw;
	struct frame f;

	fw_running(&fw, &(struct fw_options){.world = 2, .window = 8, .checksum = _i & 1, .deterministic = _i & 2});
	f = fw_data(&fw, RS_SUM, RS_FLOAT32, 0, 8 * 16, 0);
	for (unsigned r = 0; r < 2; r++)
		for (f.chunk = 0; f.chunk < 8; f.chunk++)
			fw_contribute(&fw, r, f);
	for (unsigned r = 0; r < 2; r++) {
		if (stops[_i / 4])
			ck_assert(fw_feed(&fw, r, stops[_i / 4]));
		ck_assert(fw_feed(&fw, r, SIZE_MAX));
		ck_assert(!fw_feed(&fw, r, SIZE_MAX));
	}
	for (unsigned r = 0; r < 2; r++)
		expect_all_results(&fw, r, f, 2);
	fw_say_goodbye(&fw);
}
END_TEST

START_TEST(large_worlds)
{
	static const unsigned ops[] = {RS_SUM, RS_AVG, RS_MAX};

	for (unsigned i = 0; i < 3; i++)
		for (unsigned det = 0; det < 2; det++) {
			struct fw_options opt = {.world = 65, .deterministic = det, .checksum = true};

			reduce_once(&opt, ops[i], RS_FLOAT16, MIXED, 77);
			reduce_once(&opt, ops[i], RS_INT64, NARROW, 77);
		}
}
END_TEST

/* Ranks overtake each other within a chunk; elements are split at every byte. */
START_TEST(ranks_may_overtake_each_other)
{
	static const unsigned dtypes[] = {RS_FLOAT64, RS_FLOAT32, RS_FLOAT16, RS_INT8};
	struct fw_world fw;

	for (uint32_t seed = 1; seed <= 60; seed++) {
		struct frame f;
		unsigned dtype = dtypes[seed % 4];

		fw_running(&fw, &(struct fw_options){
				    .world = 4, .chunk_bytes = 128, .deterministic = _i & 1, .checksum = _i & 2});
		fw.random = seed * 7919;
		fw.out_piece = 1 + seed % 97;
		f = fw_data(&fw, RS_SUM, dtype, seed, 3 * 128 / rs_dtype_size(dtype) + 1, 0);
		for (unsigned r = 0; r < 4; r++) {
			f.flags = rs_dtype_is_half(dtype) && r == seed % 5 ? FRAME_WIDE : 0;
			fw_contribute_all(&fw, r, f);
		}
		f.flags = 0;
		fw_feed_shuffled(&fw, seed % 2 ? 13 : 200);
		for (unsigned r = 0; r < 4; r++)
			expect_all_results(&fw, r, f, 4);
		fw_say_goodbye(&fw);
	}
}
END_TEST

/* Two ranks, two elements each: every way to split both and every order of the parts. */
START_TEST(every_split_of_two_ranks)
{
	enum { BYTES = FRAME_HEADER + 2 * sizeof(double) };
	struct fw_world fw;
	struct frame f;

	for (size_t a = 1; a < BYTES; a++)
		for (size_t b = 1; b < BYTES; b += a % 8 == 3 ? 1 : 5) {
			fw_running(&fw, &(struct fw_options){.world = 2});
			f = fw_data(&fw, RS_SUM, _i ? RS_FLOAT64 : RS_INT64, 0, 2, 0);
			fw_contribute(&fw, 0, f);
			fw_contribute(&fw, 1, f);
			/* a recvmsg may end after a header; the rest arrives with the
			 * next one */
			for (size_t done = 0; done < a;)
				done += fw_feed(&fw, 0, a - done);
			for (size_t done = 0; done < b;)
				done += fw_feed(&fw, 1, b - done);
			while (fw_feed(&fw, (unsigned)(a & 1), SIZE_MAX))
				;
			fw_feed_all(&fw, SIZE_MAX);
			fw_expect_result(&fw, 0, f, 2);
			fw_expect_result(&fw, 1, f, 2);
			fw_close(&fw);
		}
}
END_TEST

static float sum_in_order(const float v[4])
{
	volatile float acc = v[0];

	for (unsigned r = 1; r < 4; r++)
		acc = acc + v[r];
	return acc;
}

/* The bits of the sum when ranks arrive in the order of permutation p. */
static uint32_t sum_of_arrival(unsigned p, bool deterministic, const float v[4])
{
	struct fw_world fw;
	struct frame f, got;
	const uint8_t *payload;
	unsigned left[4] = {0, 1, 2, 3};
	uint32_t bits;

	fw_running(&fw, &(struct fw_options){.world = 4, .deterministic = deterministic});
	f = fw_data(&fw, RS_SUM, RS_FLOAT32, 0, 1, 0);
	f.payload_len = sizeof(float);
	for (unsigned n = 4; n > 0; n--) {
		unsigned k = p % n, rank = left[k];

		p /= n;
		memmove(left + k, left + k + 1, (3 - k) * sizeof left[0]);
		fw_send(&fw, rank, f, &v[rank]);
		fw_feed_all(&fw, 7);
	}
	ck_assert(fw_take(&fw, 0, &got, &payload));
	memcpy(&bits, payload, sizeof bits);
	fw_close(&fw);
	return bits;
}

START_TEST(deterministic_sums_do_not_depend_on_arrival)
{
	static const float rows[][4] = {
	    {1e8f, 1, -1e8f, 1}, {1, 1e8f, 1, -1e8f}, {1, 16777216, 0.5f, 1}, {3e38f, 3e38f, -3e38f, 1}};
	unsigned others = 0;
	float want = sum_in_order(rows[_i]);
	uint32_t bits;

	memcpy(&bits, &want, sizeof bits);
	for (unsigned p = 0; p < 24; p++) {
		ck_assert_uint_eq(sum_of_arrival(p, true, rows[_i]), bits);
		others += sum_of_arrival(p, false, rows[_i]) != bits;
	}
	/* otherwise this test would show nothing */
	ck_assert_uint_gt(others, 0);
}
END_TEST

START_TEST(broadcast_gives_all_the_roots_bytes)
{
	static const unsigned dtypes[] = {RS_UINT8, RS_BFLOAT16, RS_INT64};
	struct fw_world fw;
	struct frame f;
	unsigned root = 2;

	for (unsigned d = 0; d < 3; d++)
		for (unsigned order = 0; order < 3; order++) {
			fw_running(&fw, &(struct fw_options){
					    .world = 3, .window = 7, .deterministic = _i & 1, .checksum = _i & 2});
			f = fw_data(&fw, FRAME_OP_BROADCAST, dtypes[d], 9, 50, 0);
			for (unsigned k = 0; k < 3; k++) {
				unsigned r = (k + order) % 3;

				f.flags = r == root ? FRAME_ROOT : 0;
				fw_contribute_all(&fw, r, f);
				fw_feed_all(&fw, 19);
			}
			for (unsigned r = 0; r < 3; r++) {
				f.flags = r == root ? FRAME_ROOT : 0;
				expect_all_results(&fw, r, f, 3);
			}
			fw_say_goodbye(&fw);
		}
}
END_TEST

START_TEST(an_empty_operation_is_a_barrier)
{
	static const unsigned ops[] = {RS_SUM, RS_AVG, RS_MIN, FRAME_OP_BROADCAST};
	struct fw_world fw;
	struct frame f;

	fw_running(&fw, &(struct fw_options){.world = 3, .deterministic = _i & 1, .checksum = _i & 2});
	for (unsigned i = 0; i < 4; i++) {
		f = fw_data(&fw, ops[i], RS_FLOAT16, i, 0, 0);
		for (unsigned r = 0; r < 3; r++) {
			f.flags = ops[i] == FRAME_OP_BROADCAST && r == 2 ? FRAME_ROOT : 0;
			fw_expect_nothing(&fw, 0);
			fw_contribute(&fw, r, f);
			fw_feed_all(&fw, 50);
		}
		for (unsigned r = 0; r < 3; r++) {
			f.flags = ops[i] == FRAME_OP_BROADCAST && r == 2 ? FRAME_ROOT : 0;
			fw_expect_result(&fw, r, f, 3);
		}
	}
	fw_say_goodbye(&fw);
}
END_TEST

START_TEST(an_average_divides_by_processes_not_workers)
{
	static const unsigned dtypes[] = {RS_FLOAT32, RS_FLOAT16, RS_INT32, RS_UINT64, RS_INT8};
	struct fw_world fw;
	struct frame f;

	fw_attached(&fw, &(struct fw_options){.world = 2});
	lane_start(fw.lane, FAKE_JOB, &(struct lane_begin){.processes = 7});
	fw_flush(&fw);
	f = fw_data(&fw, RS_AVG, dtypes[_i], 0, 8, 0);
	for (unsigned r = 0; r < 2; r++) {
		fw_expect(&fw, r, FRAME_START);
		fw_contribute_all(&fw, r, f);
	}
	fw_feed_all(&fw, 5);
	expect_all_results(&fw, 0, f, 7);
	expect_all_results(&fw, 1, f, 7);
	fw_say_goodbye(&fw);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("lane");
	TCase *tc = tcase_create("sums");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, every_op_and_dtype, 0, RS_DTYPE_NR);
	tcase_add_loop_test(tc, half_types_take_wide_partial_sums, 0, 2);
	tcase_add_test(tc, every_kernel_table_sums);
	tcase_add_loop_test(tc, payloads_larger_than_the_scratch, 0, 4);
	tcase_add_test(tc, large_worlds);
	tcase_add_loop_test(tc, four_chunks_of_32_kib_fit_one_call, 0, 3);
	tcase_add_loop_test(tc, contributions_that_arrive_together_need_one_call, 0, 6 * 4);
	tcase_add_loop_test(tc, ranks_may_overtake_each_other, 0, 4);
	tcase_add_loop_test(tc, every_split_of_two_ranks, 0, 2);
	tcase_add_loop_test(tc, deterministic_sums_do_not_depend_on_arrival, 0, 4);
	tcase_add_loop_test(tc, broadcast_gives_all_the_roots_bytes, 0, 4);
	tcase_add_loop_test(tc, an_empty_operation_is_a_barrier, 0, 4);
	tcase_add_loop_test(tc, an_average_divides_by_processes_not_workers, 0, 5);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
