/* SPDX-License-Identifier: Apache-2.0 */
/* Every table that this machine can run, against references (kernels_ref.h) and, bit for
 * bit, against the scalar table.
 */
#include "common/kernels/kernels.h"
#include "tests/unit/kernels_ref.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

enum { ROOM = 64, LARGE = 4099 };

/* Buffers for LARGE elements of any dtype at any misalignment, with guard bytes
 * behind. */
struct buffers {
	unsigned char acc[LARGE * 8 + 2 * ROOM], before[LARGE * 8 + 2 * ROOM], src[LARGE * 8 + 2 * ROOM];
};

static void check_one(const char *what, const struct rs_kernels *k, unsigned dtype, unsigned op, size_t i,
		      const void *got, const union kref_element *want, size_t size)
{
	union kref_element g = {0}, w = {0};

	memcpy(&g, got, size);
	memcpy(&w, want, size);
	if (g.u64 != w.u64)
		ck_abort_msg("%s %s %s %s, element %zu: got %#llx, expected %#llx", k->name, what, rs_dtype_name(dtype),
			     rs_op_name(op), i, (unsigned long long)g.u64, (unsigned long long)w.u64);
}

/* Reduces n elements at the given misalignments and checks each one and the bytes around
 * them. */
static void check_reduce(const struct rs_kernels *k, struct buffers *b, unsigned dtype, unsigned op, size_t n,
			 size_t acc_at, size_t src_at)
{
	size_t acc_size = rs_acc_size(dtype), size = rs_dtype_size(dtype);

	memcpy(b->before, b->acc, sizeof b->acc);
	k->reduce[op][dtype](b->acc + acc_at, b->src + src_at, n);
	for (size_t i = 0; i < n; i++) {
		union kref_element a = {0}, s = {0}, want;

		memcpy(&a, b->before + acc_at + i * acc_size, acc_size);
		memcpy(&s, b->src + src_at + i * size, size);
		want = kref_reduce(dtype, op, &a, &s);
		check_one("reduce", k, dtype, op, i, b->acc + acc_at + i * acc_size, &want, acc_size);
	}
	ck_assert(memcmp(b->acc, b->before, acc_at) == 0);
	ck_assert(memcmp(b->acc + acc_at + n * acc_size, b->before + acc_at + n * acc_size, ROOM) == 0);
}

static void check_lengths(const struct rs_kernels *k, struct buffers *b, unsigned dtype, unsigned op, bool calm)
{
	uint64_t seed = dtype * 10 + op;

	for (size_t n = 0; n <= 67 + 3; n++) {
		size_t len = n <= 67 ? n : n == 68 ? 128 : n == 69 ? 1000 : LARGE;

		for (int round = 0; round < 4; round++) {
			size_t acc_at = round == 0 ? 0 : kref_random(&seed) % ROOM;
			size_t src_at = round == 0 ? 0 : kref_random(&seed) % ROOM;

			kref_fill(kref_acc_dtype(dtype), b->acc + acc_at, len, kref_random(&seed), calm);
			kref_fill(dtype, b->src + src_at, len, kref_random(&seed), calm);
			check_reduce(k, b, dtype, op, len, acc_at, src_at);
		}
	}
	for (size_t at = 0; at < ROOM; at++) {
		kref_fill(kref_acc_dtype(dtype), b->acc + at, 67, seed + at, calm);
		kref_fill(dtype, b->src + ROOM - 1 - at, 67, seed - at, calm);
		check_reduce(k, b, dtype, op, 67, at, ROOM - 1 - at);
	}
}

START_TEST(reduces_all_lengths_and_alignments)
{
	struct buffers *b = calloc(1, sizeof *b);
	const struct rs_kernels *k;

	ck_assert_ptr_nonnull(b);
	for (unsigned t = 0; (k = rs_kernels_usable(t)); t++)
		for (unsigned dtype = 0; dtype < RS_DTYPE_NR; dtype++)
			for (unsigned op = 0; op < RS_OP_NR; op++) {
				check_lengths(k, b, dtype, op, true);
				check_lengths(k, b, dtype, op, false);
			}
	free(b);
}
END_TEST

/* every special accumulator with every special source, at every place in a vector */
START_TEST(reduces_special_values)
{
	struct buffers *b = calloc(1, sizeof *b);
	const struct rs_kernels *k;
	size_t acc_n, src_n;

	ck_assert_ptr_nonnull(b);
	for (unsigned t = 0; (k = rs_kernels_usable(t)); t++)
		for (unsigned cell = 0; cell < RS_DTYPE_NR * RS_OP_NR; cell++) {
			unsigned dtype = cell / RS_OP_NR, op = cell % RS_OP_NR;
			size_t acc_size = rs_acc_size(dtype), size = rs_dtype_size(dtype);

			kref_special(kref_acc_dtype(dtype), 0, &acc_n);
			kref_special(dtype, 0, &src_n);
			for (size_t i = 0; i < acc_n * src_n; i++) {
				union kref_element a = kref_special(kref_acc_dtype(dtype), i / src_n, &acc_n);
				union kref_element s = kref_special(dtype, i % src_n, &src_n);

				memcpy(b->acc + i * acc_size, &a, acc_size);
				memcpy(b->src + i * size, &s, size);
			}
			for (size_t from = 0; from < 17; from++)
				check_reduce(k, b, dtype, op, acc_n * src_n - from, from * acc_size, from * size);
		}
	free(b);
}
END_TEST

START_TEST(agrees_with_scalar_on_random_bits)
{
	struct buffers *b = calloc(1, sizeof *b);
	const struct rs_kernels *k, *scalar = rs_kernels_usable(0);

	ck_assert_ptr_nonnull(b);
	ck_assert_str_eq(scalar->name, "scalar");
	for (unsigned t = 1; (k = rs_kernels_usable(t)); t++)
		for (unsigned cell = 0; cell < RS_DTYPE_NR * RS_OP_NR * 8; cell++) {
			unsigned dtype = cell % RS_DTYPE_NR, op = cell / RS_DTYPE_NR % RS_OP_NR;
			uint64_t seed = cell;

			for (size_t i = 0; i < LARGE * 8; i++) {
				b->acc[i] = b->before[i] = (unsigned char)(kref_random(&seed) >> 8);
				b->src[i] = (unsigned char)(kref_random(&seed) >> 8);
			}
			for (int rank = 0; rank < 3; rank++) {
				k->reduce[op][dtype](b->acc, b->src + rank, LARGE - 1);
				scalar->reduce[op][dtype](b->before, b->src + rank, LARGE - 1);
				ck_assert_msg(memcmp(b->acc, b->before, LARGE * 8) == 0, "%s %s %s differs from scalar",
					      k->name, rs_dtype_name(dtype), rs_op_name(op));
			}
		}
	free(b);
}
END_TEST

START_TEST(loads_every_half)
{
	static const unsigned halves[] = {RS_FLOAT16, RS_BFLOAT16};
	unsigned char *src = malloc(65536 * 2 + ROOM), *acc = malloc(65536 * 4 + ROOM);
	const struct rs_kernels *k;

	ck_assert(src && acc);
	for (unsigned t = 0; (k = rs_kernels_usable(t)); t++)
		for (unsigned d = 0; d < COUNT(halves); d++)
			for (size_t at = 0; at < 3; at++) {
				for (unsigned h = 0; h < 65536; h++)
					memcpy(src + at + 2 * (size_t)h, &(uint16_t){(uint16_t)h}, 2);
				k->load[halves[d]](acc + at, src + at, 65536);
				for (unsigned h = 0; h < 65536; h++) {
					union kref_element want = {.f = kref_load(halves[d], (uint16_t)h)};

					check_one("load", k, halves[d], 0, h, acc + at + 4 * (size_t)h, &want, 4);
				}
			}
	free(src);
	free(acc);
}
END_TEST

static void check_store(const struct rs_kernels *k, unsigned dtype, const float *values, size_t n, bool in_place,
			size_t misalign)
{
	unsigned char *acc = malloc(n * 4 + ROOM), *dst = malloc(n * 2 + ROOM), *out;

	ck_assert(acc && dst);
	memcpy(acc + misalign, values, n * 4);
	out = in_place ? acc + misalign : dst + misalign;
	memset(dst, 0xa5, n * 2 + ROOM);
	k->store[dtype](out, acc + misalign, n);
	for (size_t i = 0; i < n; i++) {
		union kref_element want = {.h = kref_store(dtype, values[i])};

		check_one(in_place ? "store in place" : "store", k, dtype, 0, i, out + 2 * i, &want, 2);
	}
	if (!in_place)
		ck_assert_int_eq(dst[misalign + n * 2], 0xa5);
	free(acc);
	free(dst);
}

/* all half values, the midpoints between them, both neighbours of each, and random floats
 * of all sizes */
START_TEST(stores_round_to_nearest_even)
{
	enum { N = 65536 * 6 + 200000 };
	static const unsigned halves[] = {RS_FLOAT16, RS_BFLOAT16};
	float *values = malloc(N * sizeof *values);
	const struct rs_kernels *k;

	ck_assert_ptr_nonnull(values);
	for (unsigned d = 0; d < COUNT(halves); d++) {
		uint64_t seed = d;
		size_t n = 0;

		for (unsigned h = 0; h < 65536; h++) {
			uint32_t value = kref_float_bits(kref_load(halves[d], (uint16_t)h));
			uint32_t next = kref_float_bits(kref_load(halves[d], (uint16_t)(h + 1)));
			/* the first holds if neighbours have the same exponent, the
			 * second between subnormals */
			uint32_t shared = value + (next - value) / 2;
			uint32_t even = kref_float_bits((kref_bits_float(value) + kref_bits_float(next)) / 2);
			uint32_t middle = halves[d] == RS_FLOAT16 && (h & 0x7fff) < 0x400 ? even : shared;
			uint32_t around[6] = {value, value + 1, value - 1, middle, middle + 1, middle - 1};

			for (unsigned i = 0; i < 6; i++)
				values[n++] = kref_bits_float(around[i]);
		}
		while (n < N)
			values[n++] = kref_bits_float((uint32_t)(kref_random(&seed) >> 16));
		for (unsigned t = 0; (k = rs_kernels_usable(t)); t++) {
			check_store(k, halves[d], values, N, false, 0);
			check_store(k, halves[d], values, N, true, 1);
			for (size_t len = 0; len <= 67; len++) {
				check_store(k, halves[d], values + len * 977, len, true, len % 9);
				check_store(k, halves[d], values + len * 977, len, false, len % 7);
			}
		}
	}
	free(values);
}
END_TEST

START_TEST(copies_full_width_types)
{
	struct buffers *b = calloc(1, sizeof *b);
	const struct rs_kernels *k;

	ck_assert_ptr_nonnull(b);
	for (unsigned t = 0; (k = rs_kernels_usable(t)); t++)
		for (unsigned dtype = 0; dtype < RS_DTYPE_NR; dtype++) {
			size_t bytes = 67 * rs_dtype_size(dtype);

			if (rs_dtype_is_half(dtype))
				continue;
			kref_fill(dtype, b->src + 3, 67, dtype, false);
			memset(b->acc, 0, sizeof b->acc);
			memset(b->before, 0, sizeof b->before);
			k->load[dtype](b->acc + 1, b->src + 3, 67);
			ck_assert(memcmp(b->acc + 1, b->src + 3, bytes) == 0 && b->acc[1 + bytes] == 0);
			k->store[dtype](b->before + 5, b->acc + 1, 67);
			ck_assert(memcmp(b->before + 5, b->src + 3, bytes) == 0 && b->before[5 + bytes] == 0);
			k->store[dtype](b->before + 5, b->before + 5, 67);
			ck_assert(memcmp(b->before + 5, b->src + 3, bytes) == 0);
		}
	free(b);
}
END_TEST

START_TEST(divides)
{
	static const uint64_t divisors[] = {
	    1,         2,    3,          4,           7,           127,         128,       255,
	    256,       1000, 2147483647, 2147483648u, 4294967295u, 4294967296u, INT64_MAX, UINT64_C(1) << 63,
	    UINT64_MAX};
	struct buffers *b = calloc(1, sizeof *b);
	const struct rs_kernels *k;

	ck_assert_ptr_nonnull(b);
	for (unsigned t = 0; (k = rs_kernels_usable(t)); t++)
		for (unsigned cell = 0; cell < RS_DTYPE_NR * COUNT(divisors); cell++) {
			unsigned dtype = cell % RS_DTYPE_NR;
			uint64_t divisor = divisors[cell / RS_DTYPE_NR];
			size_t size = rs_acc_size(dtype), n = 600 + cell % 67, at = cell % ROOM;

			kref_fill(kref_acc_dtype(dtype), b->acc + at, n, cell, false);
			memcpy(b->before, b->acc, sizeof b->acc);
			k->divide[dtype](b->acc + at, divisor, n);
			for (size_t i = 0; i < n; i++) {
				union kref_element a = {0}, want;

				memcpy(&a, b->before + at + i * size, size);
				want = kref_divide(dtype, &a, divisor);
				check_one("divide", k, dtype, RS_AVG, i, b->acc + at + i * size, &want, size);
			}
			ck_assert(memcmp(b->acc + at + n * size, b->before + at + n * size, ROOM) == 0);
		}
	free(b);
}
END_TEST

START_TEST(divides_every_small_integer)
{
	signed char s[256];
	unsigned char u[256];
	const struct rs_kernels *k;

	for (unsigned t = 0; (k = rs_kernels_usable(t)); t++)
		for (int divisor = 1; divisor <= 257; divisor++) {
			for (int i = 0; i < 256; i++) {
				s[i] = (signed char)(i - 128);
				u[i] = (unsigned char)i;
			}
			k->divide[RS_INT8](s, (uint64_t)divisor, 256);
			k->divide[RS_UINT8](u, (uint64_t)divisor, 256);
			for (int i = 0; i < 256; i++) {
				ck_assert_int_eq(s[i], (i - 128) / divisor);
				ck_assert_int_eq(u[i], i / divisor);
			}
		}
}
END_TEST

static bool ref_finite(unsigned dtype, const union kref_element *e)
{
	switch (dtype) {
	case RS_FLOAT16:
	case RS_BFLOAT16:
		return isfinite(kref_load(dtype, e->h));
	case RS_FLOAT32:
		return isfinite(e->f);
	case RS_FLOAT64:
		return isfinite(e->d);
	default:
		return true;
	}
}

static void check_nonfinite(const struct rs_kernels *k, unsigned dtype, const unsigned char *src, size_t n)
{
	size_t want = 0, size = rs_dtype_size(dtype), got = k->nonfinite[dtype](src, n);

	for (; want < n; want++) {
		union kref_element e = {0};

		memcpy(&e, src + want * size, size);
		if (!ref_finite(dtype, &e))
			break;
	}
	ck_assert_msg(got == want, "%s nonfinite of %zu %s: got %zu, expected %zu", k->name, n, rs_dtype_name(dtype),
		      got, want);
}

/* finite elements with a special one at every place, and after the end, where it must be
 * ignored */
START_TEST(finds_the_first_nonfinite)
{
	struct buffers *b = calloc(1, sizeof *b);
	const struct rs_kernels *k;
	size_t specials;

	ck_assert_ptr_nonnull(b);
	for (unsigned t = 0; (k = rs_kernels_usable(t)); t++)
		for (unsigned dtype = 0; dtype < RS_DTYPE_NR; dtype++) {
			size_t size = rs_dtype_size(dtype);

			for (size_t n = 0; n < 1300; n += n < 70 ? 1 : 97) {
				size_t misalign = n % 9;
				unsigned char *src = b->src + misalign;

				kref_fill(dtype, src, n + 1, n, true);
				for (size_t at = 0; at <= n; at++) {
					union kref_element e = kref_special(dtype, at + n, &specials), before;

					memcpy(&before, src + at * size, size);
					memcpy(src + at * size, &e, size);
					check_nonfinite(k, dtype, src, n);
					memcpy(src + at * size, &before, size);
				}
			}
			for (uint64_t seed = 0; seed < 50; seed++) {
				kref_fill(dtype, b->src, LARGE, seed, seed % 2);
				check_nonfinite(k, dtype, b->src, LARGE);
			}
		}
	free(b);
}
END_TEST

START_TEST(knows_every_nonfinite_half)
{
	static const unsigned halves[] = {RS_FLOAT16, RS_BFLOAT16};
	enum { N = 520 }; /* more than the largest block */
	unsigned char src[N * 2] = {0};
	const struct rs_kernels *k;

	for (unsigned t = 0; (k = rs_kernels_usable(t)); t++)
		for (unsigned d = 0; d < COUNT(halves); d++)
			for (unsigned h = 0; h < 65536; h++) {
				memcpy(src + 2 * (h % N), &(uint16_t){(uint16_t)h}, 2);
				check_nonfinite(k, halves[d], src, N);
				memset(src + 2 * (h % N), 0, 2);
			}
}
END_TEST

START_TEST(selects_by_name)
{
	const struct rs_kernels *k = NULL, *best = NULL, *found = NULL;
	struct rs_err e = {0};

	for (unsigned t = 0; (k = rs_kernels_usable(t)); t++) {
		ck_assert_int_eq(rs_kernels_select(k->name, &found, &e), RS_OK);
		ck_assert_ptr_eq(found, k);
		best = k;
	}
	ck_assert_int_eq(rs_kernels_select("auto", &found, &e), RS_OK);
	ck_assert_ptr_eq(found, best);
	ck_assert_int_eq(rs_kernels_select("sse9", &found, &e), RS_EINVAL);
	ck_assert_ptr_eq(found, best);
	ck_assert_str_eq(e.msg, strstr(e.msg, "there are no kernels \"sse9\", expected one of auto, scalar"));
	ck_assert_int_eq(rs_kernels_select("", &found, NULL), RS_EINVAL);
#if defined(__x86_64__)
	ck_assert_int_eq(rs_kernels_select("neon", &found, &e), RS_EINVAL);
	ck_assert_str_eq(e.msg, strstr(e.msg, "kernels \"neon\" do not run on this machine, expected one of auto"));
#endif
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("kernels");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 120); /* sanitizers on a small machine */
	tcase_add_test(tc, reduces_all_lengths_and_alignments);
	tcase_add_test(tc, reduces_special_values);
	tcase_add_test(tc, agrees_with_scalar_on_random_bits);
	tcase_add_test(tc, loads_every_half);
	tcase_add_test(tc, stores_round_to_nearest_even);
	tcase_add_test(tc, copies_full_width_types);
	tcase_add_test(tc, divides);
	tcase_add_test(tc, divides_every_small_integer);
	tcase_add_test(tc, finds_the_first_nonfinite);
	tcase_add_test(tc, knows_every_nonfinite_half);
	tcase_add_test(tc, selects_by_name);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
