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

int main(void)
{
	Suite *suite = suite_create("encode");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 120); /* sanitizers on a small machine */
	tcase_add_test(tc, encodes_all_lengths_and_alignments);
	tcase_add_test(tc, encodes_all_magnitudes);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
