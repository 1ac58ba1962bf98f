/* SPDX-License-Identifier: Apache-2.0 */
/* Test data whose result is known exactly, computed without the library's own kernels. */
#include "bench/bench.h"

#include <limits.h>
#include <string.h>

/* Returns the limit up to which every integer is exact in the dtype, at most a
 * million. */
static long exact_limit(enum rs_dtype dtype)
{
	switch (dtype) {
	case RS_INT8:
	case RS_UINT8:
		return 127;
	case RS_BFLOAT16:
		return 256;
	case RS_FLOAT16:
		return 2048;
	default:
		return 1000000;
	}
}

/* Returns element i of rank r. With n ranks a sum stays within the limit; a product is a
 * small power of two; an average is a whole number or a half. */
static long value(enum rs_dtype dtype, enum rs_op op, int r, int n, int i)
{
	long limit = exact_limit(dtype);
	switch (op) {
	case RS_PROD:
		return r == i % n || r == (i / 7) % n || r == (i / 3) % n ? 2 : 1;
	case RS_MAX:
	case RS_MIN:
		return (i * 7L + r * 31L) % 101;
	case RS_AVG:
		if ((long)n * (n - 1) / 2 < limit / 2)
			return i % ((limit / 2) / n) + (r + i) % n;
		return i % (limit / n + 1);
	default:
		return (i * 7L + r * 13L) % (limit / n + 1);
	}
}

/* Returns twice the result, so that the half of an average is a whole number too. */
static long result_twice(enum rs_dtype dtype, enum rs_op op, int n, int i)
{
	long acc = value(dtype, op, 0, n, i);
	for (int r = 1; r < n; r++) {
		long v = value(dtype, op, r, n, i);
		if (op == RS_PROD)
			acc *= v;
		else if (op == RS_MAX)
			acc = v > acc ? v : acc;
		else if (op == RS_MIN)
			acc = v < acc ? v : acc;
		else
			acc += v;
	}
	if (op != RS_AVG)
		return 2 * acc;
	return dtype < RS_FLOAT16 ? 2 * (acc / n) : 2 * acc / n;
}

static uint16_t half_bits(float f, int mantissa, int bias)
{
	union {
		float f;
		uint32_t u;
	} v = {.f = f};
	if (f == 0)
		return 0;
	uint32_t exponent = (v.u >> 23 & 0xff) - 127 + (uint32_t)bias;
	return (uint16_t)(v.u >> 31 << 15 | exponent << mantissa | (v.u & 0x7fffff) >> (23 - mantissa));
}

/* Stores half of `twice`, which is exact in the dtype. */
static void store(uint8_t *dst, enum rs_dtype dtype, long twice)
{
	union {
		int64_t i;
		uint16_t h;
		float f;
		double d;
	} v = {.i = twice / 2}; /* little-endian: a narrower integer consists of the first bytes */
	if (dtype == RS_FLOAT16)
		v.h = half_bits((float)twice / 2, 10, 15);
	else if (dtype == RS_BFLOAT16)
		v.h = half_bits((float)twice / 2, 7, 127);
	else if (dtype == RS_FLOAT32)
		v.f = (float)twice / 2;
	else if (dtype == RS_FLOAT64)
		v.d = (double)twice / 2;
	memcpy(dst, &v, rs_dtype_size(dtype));
}

void bench_store(void *dst, enum rs_dtype dtype, long value)
{
	store(dst, dtype, 2 * value);
}

void bench_pattern_init(struct bench_pattern *p, enum rs_dtype dtype, enum rs_op op, int rank, int world)
{
	p->elem = rs_dtype_size(dtype);
	p->near = false;
	for (int i = 0; i < BENCH_PERIOD; i++) {
		store(p->mine + (size_t)i * p->elem, dtype, 2 * value(dtype, op, rank, world, i));
		store(p->expected + (size_t)i * p->elem, dtype, result_twice(dtype, op, world, i));
	}
}

/* Returns a hash of i, all of whose bits depend on all bits of i. */
static uint32_t mixed(uint32_t i)
{
	i = (i ^ i >> 16) * 0x85ebca6b;
	i = (i ^ i >> 13) * 0xc2b2ae35;
	return i ^ i >> 16;
}

/* Returns element i of rank r, -1, 0 or 1: one rank has 1 or -1, and in half of the
 * elements another one has the opposite. */
static long value_near(int r, int n, int i)
{
	uint32_t h = mixed((uint32_t)i + 1);
	int first = (int)(h % (uint32_t)n), second;
	long sign = h >> 31 ? -1 : 1;

	if (r == first)
		return sign;
	second = (first + 1 + (n > 1 ? (int)(h / 64 % (uint32_t)(n - 1)) : 0)) % n;
	return (h >> 30 & 1) && r == second ? -sign : 0;
}

void bench_pattern_init_near(struct bench_pattern *p, enum rs_dtype dtype, enum rs_op op, int rank, int world)
{
	p->elem = rs_dtype_size(dtype);
	p->near = true;
	p->dtype = dtype;
	for (int i = 0; i < BENCH_PERIOD; i++) {
		long sum = 0, times = op == RS_AVG ? world : 1;
		for (int r = 0; r < world; r++)
			sum += value_near(r, world, i);
		bench_store(p->mine + (size_t)i * p->elem, dtype, times * value_near(rank, world, i));
		bench_store(p->expected + (size_t)i * p->elem, dtype, sum);
	}
}

void bench_pattern_fill(const struct bench_pattern *p, void *dst, size_t count)
{
	uint8_t *d = dst;
	for (size_t left = count; left;) {
		size_t n = left < BENCH_PERIOD ? left : BENCH_PERIOD;
		memcpy(d, p->mine, n * p->elem);
		d += n * p->elem;
		left -= n;
	}
}

/* Returns the least n with 2^n >= v. */
static unsigned log2_up(long v)
{
	unsigned n = 0;
	while (1L << n < v)
		n++;
	return n;
}

unsigned bench_pattern_lasts(enum rs_dtype dtype, enum rs_op op, int world)
{
	unsigned most = dtype == RS_FLOAT16 ? 15 : dtype == RS_FLOAT64 ? 1023 : 127, n = 1;
	unsigned bits = op == RS_SUM ? log2_up(exact_limit(dtype)) : 3; /* a product has at most three twos */
	if (dtype < RS_FLOAT16 || world == 1 || (op != RS_SUM && op != RS_PROD))
		return UINT_MAX;
	for (;; n++) {
		bits = op == RS_SUM ? bits + log2_up(world) : bits * (unsigned)world;
		if (bits > most)
			return n;
	}
}

/* Returns an element of float32, float16 or bfloat16. A subnormal float16 becomes a
 * smaller number, which does not matter here. */
static float load(const uint8_t *src, enum rs_dtype dtype)
{
	union {
		uint32_t u;
		float f;
	} v;
	uint16_t h;

	if (dtype == RS_FLOAT32) {
		memcpy(&v.u, src, sizeof(v.u));
		return v.f;
	}
	memcpy(&h, src, sizeof(h));
	v.u = (uint32_t)h << 16;
	if (dtype == RS_FLOAT16) {
		uint32_t exponent = h >> 10 & 31;
		exponent = exponent == 31 ? 255 : exponent ? exponent + 127 - 15 : 0;
		v.u = (h & 0x8000u) << 16 | exponent << 23 | (h & 0x3ffu) << 13;
	}
	return v.f;
}

/* Returns whether element i, which is not equal to the expected one, is wrong. */
static bool is_wrong(const struct bench_pattern *p, const uint8_t *element, size_t i)
{
	float expected, found;

	if (!p->near)
		return true;
	expected = load(p->expected + i * p->elem, p->dtype);
	found = load(element, p->dtype);
	return !(found >= expected - BENCH_NEAR && found <= expected + BENCH_NEAR); /* a NaN is wrong */
}

uint64_t bench_pattern_wrong(const struct bench_pattern *p, const void *src, size_t count)
{
	const uint8_t *s = src;
	uint64_t wrong = 0;
	for (size_t left = count; left;) {
		size_t n = left < BENCH_PERIOD ? left : BENCH_PERIOD;
		if (memcmp(s, p->expected, n * p->elem))
			for (size_t i = 0; i < n; i++)
				wrong += memcmp(s + i * p->elem, p->expected + i * p->elem, p->elem) != 0 &&
					 is_wrong(p, s + i * p->elem, i);
		s += n * p->elem;
		left -= n;
	}
	return wrong;
}
