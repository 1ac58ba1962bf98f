/* SPDX-License-Identifier: Apache-2.0 */
/* The encodings of every table that this machine can run, bit for bit against
 * wire_ref.h. */
#include "common/kernels/kernels.h"
#include "tests/unit/kernels_ref.h"
#include "tests/unit/wire_ref.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = 64, MOST = 1000, BLOCK = RS_WIRE_BLOCK };

/* Memory for MOST elements at any misalignment, with guard bytes around them. */
struct buffers {
	float values[MOST];
	unsigned char src[MOST * 4 + 2 * ROOM], dst[MOST * 4 + 2 * ROOM], want[MOST * 4 + 2 * ROOM];
};

static void check_bytes(const struct rs_kernels *k, const char *what, unsigned wire, size_t n, const void *got,
			const void *want, size_t size)
{
	const unsigned char *g = got, *w = want;

	for (size_t i = 0; i < size; i++)
		if (g[i] != w[i])
			ck_abort_msg("%s %s %s of %zu elements, byte %zu: got %#x, expected %#x", k->name, what,
				     rs_wire_name(wire), n, i, g[i], w[i]);
}

/* Encodes the n values at these misalignments, apart and in place. */
static void check_encode(const struct rs_kernels *k, struct buffers *b, unsigned wire, size_t n, size_t src_at,
			 size_t dst_at, struct wref_rounding rounding)
{
	size_t bytes = rs_wire_bytes(wire, sizeof(float), n);
	const char *what = rounding.random ? "encode_random" : "encode";

	for (int in_place = 0; in_place < 2; in_place++) {
		unsigned char *src = b->src + src_at, *dst = in_place ? src : b->dst + dst_at;

		memset(b->dst, 0xa5, sizeof b->dst);
		memset(b->src, 0xa5, sizeof b->src);
		memcpy(src, b->values, n * sizeof(float));
		memset(b->want, 0xa5, dst_at);
		wref_encode(wire, b->want, b->values, n, rounding);
		if (rounding.random)
			k->encode_random[wire](dst, src, n, rounding.key, rounding.first);
		else
			k->encode[wire](dst, src, n);
		check_bytes(k, what, wire, n, dst, b->want, bytes);
		memset(b->want, 0xa5, ROOM);
		if (!in_place)
			check_bytes(k, "behind encode", wire, n, dst + bytes, b->want, ROOM);
		else
			check_bytes(k, "behind encode in place", wire, n, src + n * 4, b->want, ROOM);
	}
}

/* Fills values with floats around 2^exponent, some of them zero. */
static void fill(struct buffers *b, size_t n, int exponent, uint64_t *seed)
{
	for (size_t i = 0; i < n; i++) {
		uint64_t r = kref_random(seed);
		double fraction = (double)(int32_t)r * 0x1p-31;

		b->values[i] = r >> 60 == 0 ? 0 : (float)ldexp(fraction, exponent - (int)(r >> 40 & 15));
	}
}

START_TEST(encodes_all_lengths_and_alignments)
{
	struct buffers *b = calloc(1, sizeof *b);
	const struct rs_kernels *k;
	uint64_t seed = 39;

	ck_assert_ptr_nonnull(b);
	for (unsigned t = 0; (k = rs_kernels_usable(t)); t++)
		for (unsigned wire = 0; wire < RS_WIRE_NR; wire++)
			for (size_t n = 0; n <= 301; n++) {
				size_t len = n <= 300 ? n : MOST;
				struct wref_rounding rounding = {.key = kref_random(&seed), .first = n * BLOCK};

				fill(b, len, (int)(n % 40) - 20, &seed);
				check_encode(k, b, wire, len, n % ROOM, n / 7 % ROOM, rounding);
				rounding.random = true;
				check_encode(k, b, wire, len, n / 3 % ROOM, n % ROOM, rounding);
			}
	free(b);
}
END_TEST

/* random bits have every exponent, and some NaNs and infinities */
START_TEST(encodes_all_magnitudes)
{
	struct buffers *b = calloc(1, sizeof *b);
	const struct rs_kernels *k;
	uint64_t seed = 4711;

	ck_assert_ptr_nonnull(b);
	for (unsigned t = 0; (k = rs_kernels_usable(t)); t++)
		for (unsigned round = 0; round < 600; round++)
			for (unsigned wire = 0; wire < RS_WIRE_NR; wire++) {
				struct wref_rounding rounding = {.key = kref_random(&seed), .first = round * BLOCK};

				fill(b, BLOCK, (int)round % 300 - 160, &seed);
				if (round >= 300)
					for (size_t i = 0; i < BLOCK; i++)
						b->values[i] = kref_bits_float((uint32_t)(kref_random(&seed) >> 7));
				check_encode(k, b, wire, BLOCK, 0, 0, rounding);
				rounding.random = true;
				check_encode(k, b, wire, BLOCK, 0, 0, rounding);
			}
	free(b);
}
END_TEST

/* The sum as the sum of float32 has it. */
static float sum(float acc, float value)
{
	union kref_element a = {.f = acc}, v = {.f = value};

	return kref_reduce(RS_FLOAT32, RS_SUM, &a, &v).f;
}

/* Decodes and adds the n elements of src at these misalignments. */
static void check_decode(const struct rs_kernels *k, struct buffers *b, unsigned wire, size_t n, size_t dst_at)
{
	static const uint32_t accs[] = {0, 0x80000000, 0x3f800000, 0x7f800000, 0xff800000, 0x7fc12345, 0xff800001};

	memset(b->dst, 0xa5, sizeof b->dst);
	memset(b->want, 0xa5, sizeof b->want);
	for (size_t i = 0; i < n; i++) {
		float f = wref_decode(wire, b->src, i);

		memcpy(b->want + dst_at + i * sizeof f, &f, sizeof f);
	}
	k->decode[wire](b->dst + dst_at, b->src, n);
	check_bytes(k, "decode", wire, n, b->dst, b->want, n * sizeof(float) + 2 * ROOM);
	for (size_t i = 0; i < n; i++) {
		float acc = kref_bits_float(accs[(i + n) % (sizeof accs / sizeof accs[0])]);
		float f = sum(acc, wref_decode(wire, b->src, i));

		memcpy(b->dst + dst_at + i * sizeof f, &acc, sizeof f);
		memcpy(b->want + dst_at + i * sizeof f, &f, sizeof f);
	}
	k->add[wire](b->dst + dst_at, b->src, n);
	check_bytes(k, "add", wire, n, b->dst, b->want, n * sizeof(float) + 2 * ROOM);
}

START_TEST(decodes_all_lengths)
{
	struct buffers *b = calloc(1, sizeof *b);
	const struct rs_kernels *k;
	uint64_t seed = 5;

	ck_assert_ptr_nonnull(b);
	for (unsigned t = 0; (k = rs_kernels_usable(t)); t++)
		for (unsigned wire = 0; wire < RS_WIRE_NR; wire++)
			for (size_t n = 0; n <= 301; n++) {
				for (size_t i = 0; i < sizeof b->src; i++)
					b->src[i] = (unsigned char)(kref_random(&seed) >> 8);
				check_decode(k, b, wire, n <= 300 ? n : MOST, n % ROOM);
			}
	free(b);
}
END_TEST

/* Decodes 256 codes from `first` on, at these distances, with a scale. */
static void check_codes(const struct rs_kernels *k, struct buffers *b, unsigned wire, unsigned scale, unsigned first,
			unsigned distance)
{
	size_t block = rs_wire_bytes(wire, 0, BLOCK);

	for (unsigned i = 0; i < 2; i++)
		memcpy(b->src + i * block, &(uint16_t){(uint16_t)scale}, RS_WIRE_SCALE);
	for (unsigned i = 0; i < 256; i++) {
		unsigned code = first + i * distance;
		unsigned char *codes = b->src + i / BLOCK * block + RS_WIRE_SCALE;
		double v = wref_value(wire, wire == RS_WIRE_FP16 ? code & 0xffff : code & 0xff);
		float f;

		v *= (double)kref_bits_float(scale << 16);
		f = isnan(v) ? kref_bits_float(0x7fc00000) : (float)v;
		memcpy(b->want + i * sizeof f, &f, sizeof f);
		if (wire == RS_WIRE_FP16)
			memcpy(codes + i % BLOCK * 2, &(uint16_t){(uint16_t)code}, 2);
		else if (wire == RS_WIRE_INT4)
			codes[i % BLOCK / 2] = (unsigned char)(i % 2 ? codes[i % BLOCK / 2] | code << 4 : code & 15);
		else
			codes[i % BLOCK] = (unsigned char)code;
	}
	k->decode[wire](b->dst, b->src, 256);
	if (memcmp(b->dst, b->want, 256 * sizeof(float)) != 0)
		ck_abort_msg("%s decode %s with scale %#x, codes from %#x on", k->name, rs_wire_name(wire), scale,
			     first);
}

/* also scales that no encoder makes: negative and subnormal ones, NaNs */
START_TEST(decodes_every_code_with_every_scale)
{
	struct buffers *b = calloc(1, sizeof *b);
	const struct rs_kernels *k;

	ck_assert_ptr_nonnull(b);
	for (unsigned t = 0; (k = rs_kernels_usable(t)); t++) {
		for (unsigned wire = RS_WIRE_FP8; wire < RS_WIRE_NR; wire++)
			for (unsigned scale = 0; scale < 65536; scale++)
				check_codes(k, b, wire, scale, wire == RS_WIRE_FP16 ? scale % 255 : 0,
					    wire == RS_WIRE_FP16 ? 257 : 1);
		for (unsigned first = 0; first < 65536; first += 256)
			for (unsigned scale = 0; scale < 65536; scale += 0x7f)
				check_codes(k, b, RS_WIRE_FP16, scale, first, 1);
	}
	free(b);
}
END_TEST

/* Encodes the n values with all tables. */
static void check_all(struct buffers *b, unsigned wire, size_t n, struct wref_rounding rounding)
{
	const struct rs_kernels *k;

	for (unsigned t = 0; (k = rs_kernels_usable(t)); t++) {
		check_encode(k, b, wire, n, 0, 0, (struct wref_rounding){0});
		check_encode(k, b, wire, n, 0, 0, rounding);
	}
}

/* values, midpoints between them, and both neighbours of each, with the least scale, the
 * largest, and others */
START_TEST(rounds_to_nearest_even)
{
	static const int exponents[] = {-126, -125, -1, 0, 1, 100, 119, 120};
	struct buffers *b = calloc(1, sizeof *b);

	ck_assert_ptr_nonnull(b);
	for (unsigned e = 0; e < sizeof exponents / sizeof exponents[0]; e++)
		for (unsigned wire = RS_WIRE_FP8; wire < RS_WIRE_NR; wire++)
			/* fp16: no element of a block has its largest code by itself */
			for (unsigned code = 0, most = wref_largest(wire) - (wire == RS_WIRE_FP16); code < most;
			     code += wire == RS_WIRE_FP16 ? 241 : 1) {
				double scale = ldexp(1, exponents[e]), low = wref_value(wire, code);
				double middle = (low + wref_value(wire, code + 1)) / 2;
				size_t n = 0;

				b->values[n++] = (float)fmin(scale * wref_value(wire, most), 0x1.fffffep127);
				for (int sign = -1; sign <= 1; sign += 2)
					for (int i = 0; i < 2 && (i ? middle : low) * scale <= b->values[0]; i++) {
						float x = (float)(sign * scale * (i ? middle : low));

						b->values[n++] = x;
						b->values[n++] = nextafterf(x, 0);
						if (fabsf(x) < b->values[0])
							b->values[n++] = nextafterf(x, sign * INFINITY);
					}
				check_all(b, wire, n, (struct wref_rounding){.random = true, .key = code});
			}
	free(b);
}
END_TEST

/* amax at the borders of scales: 2^15 times each power of two for fp16, for others
 * numbers whose quotient is a bfloat16 */
START_TEST(chooses_scales)
{
	struct buffers *b = calloc(1, sizeof *b);
	struct wref_rounding rounding = {.random = true};

	ck_assert_ptr_nonnull(b);
	for (unsigned wire = RS_WIRE_FP8; wire < RS_WIRE_NR; wire++)
		for (int e = -160; e < 126; e++)
			for (int i = 0; i < 3; i++) {
				double amax = ldexp(wref_value(wire, wref_largest(wire)) * (1 + i / 64.0), e);

				if (amax > 0x1.fffffep127)
					continue;
				b->values[0] = (float)amax;
				check_all(b, wire, 1, rounding);
				b->values[0] = nextafterf((float)amax, 0);
				check_all(b, wire, 1, rounding);
				b->values[0] = nextafterf((float)amax, INFINITY);
				if (isfinite(b->values[0]))
					check_all(b, wire, 1, rounding);
			}
	free(b);
}
END_TEST

/* what of kernels.h's words is not seen in a comparison with the reference */
START_TEST(keeps_specials)
{
	static const uint32_t elements[] = {0x7f800000, 0xff800000, 0x3f800000, 0x80000000, 0};
	static const uint32_t want[] = {0x7f800000, 0xff800000, 0x7fc00000, 0x7fc00000, 0x7fc00000};
	enum { N = sizeof want / sizeof want[0] };
	unsigned char block[RS_WIRE_SCALE + 2 * N] = {0};
	uint32_t got[N];
	float zeros[2] = {0.0f, -0.0f}, nan[2] = {1, NAN}, small[2] = {0x1p-149f, -0x1p-149f}, back[2];
	const struct rs_kernels *k;

	for (unsigned t = 0; (k = rs_kernels_usable(t)); t++)
		for (unsigned wire = RS_WIRE_FP8; wire < RS_WIRE_NR; wire++) {
			k->encode[wire](block, elements, N);
			k->decode[wire](got, block, N);
			ck_assert(memcmp(got, want, sizeof want) == 0);
			k->encode[wire](block, nan, 2);
			ck_assert(memcmp(block, "\xc0\x7f\0\0", 4) == 0);
			k->encode[wire](block, zeros, 2);
			k->decode[wire](back, block, 2);
			ck_assert(memcmp(block, "\x80", 2) == 0 && back[0] == 0 && back[1] == 0);
			ck_assert(!signbit(back[0]) &&
				  (signbit(back[1]) != 0) == (wire == RS_WIRE_FP8 || wire == RS_WIRE_FP16));
			k->encode[wire](block, small, 2);
			k->decode[wire](back, block, 2);
			if (wire == RS_WIRE_FP16)
				ck_assert_mem_eq(back, small, sizeof back);
			else
				ck_assert(back[0] == 0 && back[1] == 0);
		}
}
END_TEST

/* a range may be split at any border of blocks, and indices may pass 2^32 and 2^64 */
START_TEST(random_bits_belong_to_the_index)
{
	static const uint64_t firsts[] = {0, BLOCK, (UINT64_C(1) << 32) - 300, UINT64_MAX - 200};
	struct buffers *b = calloc(1, sizeof *b);
	const struct rs_kernels *k;
	uint64_t seed = 8;

	ck_assert_ptr_nonnull(b);
	fill(b, MOST, 0, &seed);
	for (unsigned t = 0; (k = rs_kernels_usable(t)); t++)
		for (unsigned wire = 0; wire < RS_WIRE_NR; wire++)
			for (unsigned f = 0; f < sizeof firsts / sizeof firsts[0]; f++) {
				struct wref_rounding rounding = {.random = true, .key = f, .first = firsts[f]};
				size_t bytes = rs_wire_bytes(wire, 4, MOST), at = rs_wire_bytes(wire, 4, 3 * BLOCK);

				check_encode(k, b, wire, MOST, 0, 0, rounding);
				k->encode_random[wire](b->want, b->values, MOST, f, firsts[f]);
				k->encode_random[wire](b->dst, b->values, 3 * BLOCK, f, firsts[f]);
				k->encode_random[wire](b->dst + at, b->values + 3 * BLOCK, MOST - 3 * BLOCK, f,
						       firsts[f] + 3 * BLOCK);
				check_bytes(k, "split encode_random", wire, MOST, b->dst, b->want, bytes);
			}
	free(b);
}
END_TEST

/* Elements whose places, together with their random bits, just reach the next code, or
 * miss it by one in the last place. The first element makes the scale 1. */
START_TEST(every_random_bit_counts)
{
	struct buffers *b = calloc(1, sizeof *b);
	struct wref_rounding rounding = {.random = true, .key = 39};

	ck_assert_ptr_nonnull(b);
	for (unsigned wire = RS_WIRE_BF16; wire < RS_WIRE_NR; wire++)
		for (uint32_t miss = 0; miss < 2; miss++) {
			b->values[0] = wire == RS_WIRE_FP16 ? 0x1p14f : (float)wref_value(wire, wref_largest(wire));
			for (uint32_t i = 1; i < BLOCK; i++) {
				uint32_t r = wref_hash(rounding.key, i), code = i % 100 + 8;

				if (wire == RS_WIRE_BF16)
					b->values[i] = kref_bits_float((i << 20) + 0x10000 - (r & 0xffff) - miss);
				else if (wire == RS_WIRE_FP8)
					b->values[i] = kref_bits_float(0x3c000000 + (code << 20) + 0x100000 -
								       (r & 0xfffff) - miss);
				else if (wire == RS_WIRE_FP16)
					b->values[i] =
					    kref_bits_float(0x38000000 + (code << 18) + 0x2000 - (r & 0x1fff) - miss);
				else
					b->values[i] = (float)(0x1000000 - (r & 0xffffff) - miss) * 0x1p-24f;
			}
			check_all(b, wire, BLOCK, rounding);
		}
	free(b);
}
END_TEST

/* Products may exceed the largest code in the last place: random bits must not make the
 * next one of that. */
START_TEST(random_rounding_stays_in_range)
{
	struct buffers *b = calloc(1, sizeof *b);
	struct wref_rounding high = {.random = true}, low = {.random = true};

	ck_assert_ptr_nonnull(b);
	while ((wref_hash(high.key, 0) & 0xffffff) < 0xffffc0)
		high.key++;
	while ((wref_hash(low.key, 0) & 0xffffff) > 0x40)
		low.key++;
	for (unsigned wire = RS_WIRE_FP8; wire < RS_WIRE_NR; wire++)
		for (unsigned i = 0; i < 256; i++) {
			b->values[0] = (float)wref_value(wire, wref_largest(wire)) * (1 + (float)i / 256);
			check_all(b, wire, 1, high);
			b->values[0] = -b->values[0];
			check_all(b, wire, 1, wire == RS_WIRE_INT8 || wire == RS_WIRE_INT4 ? low : high);
		}
	b->values[0] = 0x1.fffffep14f;
	check_all(b, RS_WIRE_FP16, 1, high);
	free(b);
}
END_TEST

/* The most that random rounding can change an element of a block whose amax is 1. */
static double step_of(unsigned wire, double size)
{
	switch (wire) {
	case RS_WIRE_BF16:
		return size / 128;
	case RS_WIRE_FP16:
		return fmax(size / 1024, 0x1p-38);
	case RS_WIRE_FP8:
		return fmax(size / 8, 0x1p-17);
	default:
		return 1.01 / wref_value(wire, wref_largest(wire));
	}
}

/* The mean of many random roundings is the element. The standard deviation of one is at
 * most half a step. */
START_TEST(random_rounding_is_unbiased)
{
	enum { KEYS = 20000, N = 64 };
	const struct rs_kernels *k;
	float values[N], back[N];
	unsigned char block[4 * N];
	uint64_t seed = 77;

	ck_assert_int_eq(rs_kernels_select("auto", &k, NULL), RS_OK);
	for (unsigned wire = RS_WIRE_BF16; wire < RS_WIRE_NR; wire++) {
		double sums[N] = {0}, together = 0;

		for (size_t i = 0; i < N; i++)
			values[i] = (float)((int32_t)kref_random(&seed) * 0x1p-31);
		values[0] = 1;
		for (uint64_t key = 0; key < KEYS; key++) {
			double all = 0;

			k->encode_random[wire](block, values, N, key, 128);
			k->decode[wire](back, block, N);
			for (size_t i = 0; i < N; i++) {
				sums[i] += (double)back[i] - (double)values[i];
				all += ((double)back[i] - (double)values[i]) / step_of(wire, fabs((double)values[i]));
			}
			together += all * all;
		}
		for (size_t i = 0; i < N; i++) {
			double step = step_of(wire, fabs((double)values[i]));

			if (fabs(sums[i]) / KEYS > 5 * step / 2 / sqrt(KEYS))
				ck_abort_msg("%s of %g: mean error %g", rs_wire_name(wire), (double)values[i],
					     sums[i] / KEYS);
		}
		/* errors of elements are independent: their sum grows with the root of
		 * their number */
		together = sqrt(together / KEYS);
		ck_assert_msg(together < sqrt(N), "%s: errors of elements add up to %g steps", rs_wire_name(wire),
			      together);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("encode");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 120); /* sanitizers on a small machine */
	tcase_add_test(tc, encodes_all_lengths_and_alignments);
	tcase_add_test(tc, encodes_all_magnitudes);
	tcase_add_test(tc, decodes_all_lengths);
	tcase_add_test(tc, decodes_every_code_with_every_scale);
	tcase_add_test(tc, rounds_to_nearest_even);
	tcase_add_test(tc, chooses_scales);
	tcase_add_test(tc, keeps_specials);
	tcase_add_test(tc, random_bits_belong_to_the_index);
	tcase_add_test(tc, every_random_bit_counts);
	tcase_add_test(tc, random_rounding_stays_in_range);
	tcase_add_test(tc, random_rounding_is_unbiased);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
