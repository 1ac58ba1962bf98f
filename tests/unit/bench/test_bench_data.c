/* SPDX-License-Identifier: Apache-2.0 */
/* The oracle of reduction-bench against the reduction kernels, and its statistics. */
#include "bench/bench.h"

#include "common/kernels/kernels.h"
#include "common/wire.h"

#include <check.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifdef __SANITIZE_ADDRESS__ /* the number of ranks does not matter for the sanitizer, and takes most of the time */
static const int worlds[] = {1, 2, 3, 4, 8};
#else
static const int worlds[] = {1, 2, 3, 4, 8, 16, 64, 130};
#endif
enum { WORLDS = sizeof(worlds) / sizeof(worlds[0]) };

static uint8_t data_of[130][BENCH_PERIOD * 8]; /* all ranks' elements of one case */

static void make_data(enum rs_dtype dtype, enum rs_op op, int world, bool near)
{
	static struct bench_pattern p;

	for (int r = 0; r < world; r++) {
		(near ? bench_pattern_init_near : bench_pattern_init)(&p, dtype, op, r, world);
		memcpy(data_of[r], p.mine, BENCH_PERIOD * p.elem);
	}
}

/* The kernels' result for all ranks' data, in the order of ranks or in reverse. */
static void reduce_all(uint8_t *out, enum rs_dtype dtype, enum rs_op op, int world, bool backwards)
{
	static uint64_t acc[BENCH_PERIOD];
	const struct rs_kernels *k;
	struct rs_err e;

	ck_assert_int_eq(rs_kernels_select("scalar", &k, &e), 0);
	for (int i = 0; i < world; i++) {
		const uint8_t *data = data_of[backwards ? world - 1 - i : i];

		if (i == 0)
			k->load[dtype](acc, data, BENCH_PERIOD);
		else
			k->reduce[op][dtype](acc, data, BENCH_PERIOD);
	}
	if (op == RS_AVG)
		k->divide[dtype](acc, (uint64_t)world, BENCH_PERIOD);
	k->store[dtype](out, acc, BENCH_PERIOD);
}

START_TEST(expected_is_what_the_kernels_compute)
{
	static struct bench_pattern p;
	static uint8_t out[BENCH_PERIOD * 8];
	enum rs_dtype dtype = (enum rs_dtype)(_i / RS_OP_NR);
	enum rs_op op = (enum rs_op)(_i % RS_OP_NR);

	for (int w = 0; w < WORLDS; w++) {
		make_data(dtype, op, worlds[w], false);
		bench_pattern_init(&p, dtype, op, 0, worlds[w]);
		for (int backwards = 0; backwards < 2; backwards++) {
			reduce_all(out, dtype, op, worlds[w], backwards);
			ck_assert_msg(bench_pattern_wrong(&p, out, BENCH_PERIOD) == 0, "%s %s of %d ranks",
				      rs_dtype_name(dtype), rs_op_name(op), worlds[w]);
		}
	}
}
END_TEST

/* Kernels reduce in place repeatedly: elements are finite as long as promised, and not
 * much longer. */
START_TEST(in_place_data_stays_finite)
{
	static const enum rs_dtype dtypes[] = {RS_FLOAT16, RS_BFLOAT16, RS_FLOAT32, RS_FLOAT64};
	static uint8_t now[BENCH_PERIOD * 8];
	static uint64_t acc[BENCH_PERIOD];
	const struct rs_kernels *k = rs_kernels_usable(0);

	for (int at = 0; at < 4 * WORLDS * 2; at++) {
		enum rs_dtype dtype = dtypes[at % 4];
		enum rs_op op = at / 4 % 2 ? RS_PROD : RS_SUM;
		int world = worlds[at / 8];
		unsigned lasts = bench_pattern_lasts(dtype, op, world), n;

		if (world == 1) {
			ck_assert_uint_eq(lasts, UINT_MAX);
			continue;
		}
		ck_assert_uint_ge(lasts, 1);
		make_data(dtype, op, world, false);
		reduce_all(now, dtype, op, world, false);
		for (n = 1; k->nonfinite[dtype](now, BENCH_PERIOD) == BENCH_PERIOD; n++) {
			k->load[dtype](acc, now, BENCH_PERIOD);
			for (int r = 1; r < world; r++)
				k->reduce[op][dtype](acc, now, BENCH_PERIOD);
			k->store[dtype](now, acc, BENCH_PERIOD);
		}
		ck_assert_msg(n > lasts && n <= 2 * lasts + 3, "%s %s of %d ranks: infinite after %u, said %u",
			      rs_dtype_name(dtype), rs_op_name(op), world, n, lasts);
	}
	ck_assert_uint_eq(bench_pattern_lasts(RS_INT32, RS_SUM, 8), UINT_MAX);
	ck_assert_uint_eq(bench_pattern_lasts(RS_FLOAT16, RS_MAX, 8), UINT_MAX);
	ck_assert_uint_eq(bench_pattern_lasts(RS_FLOAT16, RS_AVG, 8), UINT_MAX);
}
END_TEST

START_TEST(every_wrong_element_is_counted)
{
	static struct bench_pattern p;
	size_t count = 3 * BENCH_PERIOD + 17;
	uint8_t *x = malloc(count * 4);

	ck_assert_ptr_nonnull(x);
	bench_pattern_init(&p, RS_FLOAT32, RS_SUM, 0, 1); /* one rank: the result is the data */
	bench_pattern_fill(&p, x, count);
	ck_assert_uint_eq(bench_pattern_wrong(&p, x, count), 0);
	x[0] ^= 1;
	x[4 * BENCH_PERIOD + 3] ^= 0x80;
	x[4 * count - 1] ^= 1;
	ck_assert_uint_eq(bench_pattern_wrong(&p, x, count), 3);
	free(x);
}
END_TEST

START_TEST(a_chunk_in_the_wrong_place_is_wrong)
{
	static struct bench_pattern p;
	enum { CHUNK = 8192, COUNT = 4 * CHUNK };
	float *x = malloc(COUNT * sizeof(*x));

	ck_assert_ptr_nonnull(x);
	bench_pattern_init(&p, RS_FLOAT32, RS_SUM, 0, 1);
	bench_pattern_fill(&p, x, COUNT);
	memcpy(x + CHUNK, x + 2 * CHUNK, CHUNK * sizeof(*x));
	ck_assert_uint_gt(bench_pattern_wrong(&p, x, COUNT), CHUNK / 2);
	free(x);
}
END_TEST

/* The result of an all-reduce of bench_pattern_init_near's data over two nodes, with odd
 * and even ranks. left_out: the rank whose data does not arrive. */
struct near_case {
	enum rs_wire up, down;
	enum rs_op op;
	int world, left_out;
	bool random;
};
static void reduce_encoded(float *out, const struct near_case *c)
{
	static float node[BENCH_PERIOD], sum[BENCH_PERIOD];
	static unsigned char wire[BENCH_PERIOD * sizeof(float)];
	const struct rs_kernels *k = rs_kernels_usable(0);

	memset(sum, 0, sizeof(sum));
	for (int first = 0; first < 2 && first < c->world; first++) {
		memset(node, 0, sizeof(node));
		for (int r = first; r < c->world; r += 2) {
			if (r != c->left_out)
				k->reduce[RS_SUM][RS_FLOAT32](node, data_of[r], BENCH_PERIOD);
		}
		if (c->random && k->encode_random[c->up])
			k->encode_random[c->up](wire, node, BENCH_PERIOD, (uint64_t)c->world, (uint64_t)first);
		else
			k->encode[c->up](wire, node, BENCH_PERIOD);
		k->add[c->up](sum, wire, BENCH_PERIOD);
	}
	if (c->op == RS_AVG)
		k->divide[RS_FLOAT32](sum, (uint64_t)c->world, BENCH_PERIOD);
	k->encode[c->down](wire, sum, BENCH_PERIOD);
	k->decode[c->down](out, wire, BENCH_PERIOD);
}

/* With every encoding the result of all ranks is right, one without a rank is wrong. */
START_TEST(encoded_sums_are_near_what_is_expected)
{
	static const int few[] = {2, 3, 17, 64};
	static struct bench_pattern p;
	static float out[BENCH_PERIOD];
	struct near_case c = {.up = (enum rs_wire)(_i / RS_WIRE_NR), .down = (enum rs_wire)(_i % RS_WIRE_NR)};

	for (int at = 0; at < 16; at++) {
		c.op = at % 2 ? RS_AVG : RS_SUM;
		c.random = at / 2 % 2;
		c.world = few[at / 4];
		make_data(RS_FLOAT32, c.op, c.world, true);
		bench_pattern_init_near(&p, RS_FLOAT32, c.op, 0, c.world);
		for (c.left_out = -1; c.left_out < c.world; c.left_out += 1 + c.world / 8) {
			reduce_encoded(out, &c);
			if (c.left_out < 0)
				ck_assert_msg(!bench_pattern_wrong(&p, out, BENCH_PERIOD), "%s of %d as %s and %s",
					      rs_op_name(c.op), c.world, rs_wire_name(c.up), rs_wire_name(c.down));
			else
				ck_assert_msg(bench_pattern_wrong(&p, out, BENCH_PERIOD), "%s of %d without %d as %s",
					      rs_op_name(c.op), c.world, c.left_out, rs_wire_name(c.up));
		}
	}
}
END_TEST

/* Rounded elements are not wrong, others are. */
START_TEST(near_elements_are_not_wrong)
{
	static const enum rs_dtype dtypes[] = {RS_FLOAT32, RS_FLOAT16, RS_BFLOAT16};
	static const float errors[] = {0.1f, 0.3f, 1, NAN, INFINITY};
	static struct bench_pattern p;
	static uint8_t x[BENCH_PERIOD * 4];
	static float values[BENCH_PERIOD];
	const struct rs_kernels *k = rs_kernels_usable(0);
	enum rs_dtype dtype = dtypes[_i];

	bench_pattern_init_near(&p, dtype, RS_SUM, 0, 3);
	ck_assert_uint_gt(bench_pattern_wrong(&p, p.mine, BENCH_PERIOD), BENCH_PERIOD / 4);
	for (size_t e = 0; e < 10; e++) {
		float add = errors[e / 2];
		k->load[dtype](values, p.expected, BENCH_PERIOD);
		for (size_t i = 0; i < BENCH_PERIOD; i += 10)
			values[i] += e % 2 ? -add : add;
		k->store[dtype](x, values, BENCH_PERIOD);
		ck_assert_uint_eq(bench_pattern_wrong(&p, x, BENCH_PERIOD), e < 2 ? 0 : BENCH_PERIOD / 10 + 1);
	}
}
END_TEST

START_TEST(an_encoded_chunk_in_the_wrong_place_is_wrong)
{
	static struct bench_pattern p;
	enum { CHUNK = 32768, COUNT = 4 * CHUNK };
	float *x = malloc(COUNT * sizeof(*x));

	ck_assert_ptr_nonnull(x);
	bench_pattern_init_near(&p, RS_FLOAT32, RS_SUM, 0, 1);
	for (int shift = 1; shift < 4; shift++) {
		bench_pattern_fill(&p, x, COUNT);
		ck_assert_uint_eq(bench_pattern_wrong(&p, x, COUNT), 0);
		memmove(x, x + shift * CHUNK, CHUNK * sizeof(*x));
		ck_assert_uint_gt(bench_pattern_wrong(&p, x, COUNT), CHUNK / 4);
	}
	free(x);
}
END_TEST

static const struct {
	const char *what;
	unsigned n;
	double us[100];
	double avg, p50, p99, min, max;
} statistics[] = {
    {"one", 1, {7}, 7, 7, 7, 7, 7},
    {"two", 2, {9, 1}, 5, 5, 9, 1, 9},
    {"odd", 5, {5, 1, 4, 2, 3}, 3, 3, 5, 1, 5},
    {"outlier", 4, {1000, 1, 1, 2}, 251, 1.5, 1000, 1, 1000},
};

START_TEST(statistics_of_times)
{
	struct bench_times t;
	double us[100];

	memcpy(us, statistics[_i].us, sizeof(us));
	bench_times_of(&t, us, statistics[_i].n);
	ck_assert_msg(t.avg == statistics[_i].avg && t.p50 == statistics[_i].p50 && t.p99 == statistics[_i].p99 &&
			  t.min == statistics[_i].min && t.max == statistics[_i].max,
		      "%s: %g %g %g %g %g", statistics[_i].what, t.avg, t.p50, t.p99, t.min, t.max);
}
END_TEST

START_TEST(percentile_99_uses_the_nearest_rank)
{
	struct bench_times t;
	double us[200];

	for (int i = 0; i < 200; i++)
		us[i] = 200 - i;
	bench_times_of(&t, us, 200);
	ck_assert_double_eq(t.p99, 198);
	ck_assert_double_eq(t.p50, 100.5);
}
END_TEST

static const struct {
	const char *what;
	uint64_t min, max, step;
	double factor;
	uint64_t sizes[8]; /* 0 ends */
} steps[] = {
    {"factor", 4, 64, 0, 4, {4, 16, 64}},
    {"last below the maximum", 4, 100, 0, 4, {4, 16, 64}},
    {"step", 10, 30, 10, 4, {10, 20, 30}},
    {"one size", 8, 8, 0, 2, {8}},
    {"a factor that rounds down moves on", 2, 5, 0, 1.25, {2, 3, 4, 5}},
    {"from nothing", 0, 4, 0, 2, {0, 1, 2, 4}},
    {"to the end", 1ull << 62, UINT64_MAX, 0, 1000, {1ull << 62, UINT64_MAX}},
};

START_TEST(sequence_of_sizes)
{
	struct bench_options o = {.min_bytes = steps[_i].min,
				  .max_bytes = steps[_i].max,
				  .step_bytes = steps[_i].step,
				  .factor = steps[_i].factor};
	uint64_t bytes = o.min_bytes;

	for (int i = 0; i == 0 || steps[_i].sizes[i]; i++) {
		ck_assert_msg(bytes == steps[_i].sizes[i], "%s: size %d is %llu", steps[_i].what, i,
			      (unsigned long long)bytes);
		bytes = bench_next_size(&o, bytes);
	}
	ck_assert_msg(bytes == 0, "%s: goes on with %llu", steps[_i].what, (unsigned long long)bytes);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("bench_data");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 120); /* sanitizers on a small machine */
	tcase_add_loop_test(tc, expected_is_what_the_kernels_compute, 0, RS_DTYPE_NR * RS_OP_NR);
	tcase_add_test(tc, in_place_data_stays_finite);
	tcase_add_test(tc, every_wrong_element_is_counted);
	tcase_add_test(tc, a_chunk_in_the_wrong_place_is_wrong);
	tcase_add_loop_test(tc, encoded_sums_are_near_what_is_expected, 0, RS_WIRE_NR * RS_WIRE_NR);
	tcase_add_loop_test(tc, near_elements_are_not_wrong, 0, 3);
	tcase_add_test(tc, an_encoded_chunk_in_the_wrong_place_is_wrong);
	tcase_add_loop_test(tc, statistics_of_times, 0, sizeof(statistics) / sizeof(statistics[0]));
	tcase_add_test(tc, percentile_99_uses_the_nearest_rank);
	tcase_add_loop_test(tc, sequence_of_sizes, 0, sizeof(steps) / sizeof(steps[0]));
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
