/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* wide enough for every integer dtype */
typedef __int128 whole;

static bool is_float(unsigned dtype)
{
	return rs_dtype_is_half(dtype) || dtype == RS_FLOAT32 || dtype == RS_FLOAT64;
}

/* v as an integer dtype holds it: modulo 2^bits */
static whole fold(unsigned dtype, whole v)
{
	switch (dtype) {
	case RS_INT8:
		return (int8_t)v;
	case RS_UINT8:
		return (uint8_t)v;
	case RS_INT32:
		return (int32_t)v;
	case RS_UINT32:
		return (uint32_t)v;
	case RS_INT64:
		return (int64_t)v;
	case RS_UINT64:
		return (uint64_t)v;
	default:
		return v;
	}
}

static whole value(unsigned dtype, unsigned op, unsigned rank, uint64_t seq, uint64_t i)
{
	static const int factors[] = {1, 2, -1, 3};
	whole v = (whole)((i * 37 + rank * 11 + seq * 5) % 251) - 125;

	if (op == RS_PROD)
		return fold(dtype, factors[(i + rank + seq) % 4]);
	/* 2048 + 1 + 1 is 2050 when float16 rounds once and 2048 when it rounds each
	 * time; bfloat16 likewise at 256 */
	if (rs_dtype_is_half(dtype) && (i + seq) % 3 == 0)
		return rank > 0 ? 1 : dtype == RS_FLOAT16 ? 2048 : 256;
	if (rs_dtype_size(dtype) == 8 && !is_float(dtype))
		v *= (whole)1 << 55;
	return fold(dtype, v);
}

static void put(void *buf, uint64_t at, unsigned dtype, whole v)
{
	size_t size = rs_dtype_size(dtype);
	float f = (float)v;
	double d = (double)v;
	uint16_t half;

	if (rs_dtype_is_half(dtype)) {
		half = oracle_half(dtype, d);
		memcpy((uint8_t *)buf + at * size, &half, size);
	} else if (dtype == RS_FLOAT32) {
		memcpy((uint8_t *)buf + at * size, &f, size);
	} else if (dtype == RS_FLOAT64) {
		memcpy((uint8_t *)buf + at * size, &d, size);
	} else {
		/* little-endian, as the wire is */
		memcpy((uint8_t *)buf + at * size, &v, size);
	}
}

static double bf16_value(uint16_t code)
{
	uint32_t bits = (uint32_t)code << 16;
	float f;

	memcpy(&f, &bits, sizeof f);
	return f;
}

static double f16_value(uint16_t code)
{
	int exponent = code >> 10 & 31, fraction = code & 1023;
	double x = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);

	return code & 0x8000 ? -x : x;
}

double oracle_half_value(unsigned dtype, uint16_t code)
{
	return dtype == RS_FLOAT16 ? f16_value(code) : bf16_value(code);
}

uint16_t oracle_half(unsigned dtype, double x)
{
	/* codes of positive numbers have the order of their values; infinity is last */
	uint16_t low = 0, high = dtype == RS_FLOAT16 ? 0x7c00 : 0x7f80, sign = signbit(x) ? 0x8000 : 0;
	double a = fabs(x), below, above;

	while (high - low > 1) {
		uint16_t mid = (uint16_t)((low + high) / 2);

		if (oracle_half_value(dtype, mid) <= a)
			low = mid;
		else
			high = mid;
	}
	below = oracle_half_value(dtype, low);
	above = oracle_half_value(dtype, high);
	if (dtype == RS_BFLOAT16 && isinf(above))
		above = ldexp(1, 128);
	if (a - below > above - a || (a - below == above - a && low & 1))
		low = high;
	return low | sign;
}

void oracle_fill(void *buf, uint64_t at, unsigned dtype, bool wide, unsigned op, unsigned rank, uint64_t seq,
		 uint64_t i)
{
	put(buf, at, wide ? RS_FLOAT32 : dtype, value(dtype, op, rank, seq, i));
}

static whole combine(unsigned dtype, unsigned op, whole a, whole b)
{
	switch (op) {
	case RS_PROD:
		return fold(dtype, a * b);
	case RS_MAX:
		return a > b ? a : b;
	case RS_MIN:
		return a < b ? a : b;
	default:
		return fold(dtype, a + b);
	}
}

void oracle_result(void *buf, uint64_t at, unsigned dtype, unsigned op, unsigned world, uint64_t processes,
		   uint64_t seq, uint64_t i)
{
	whole v = value(dtype, op, 0, seq, i);
	size_t size = rs_dtype_size(dtype);
	uint8_t *to = (uint8_t *)buf + at * size;
	float f;
	double d;
	uint16_t half;

	for (unsigned r = 1; r < world; r++)
		v = combine(dtype, op, v, value(dtype, op, r, seq, i));
	if (op != RS_AVG || !is_float(dtype)) {
		put(buf, at, dtype, op == RS_AVG ? v / (whole)processes : v);
		return;
	}
	f = (float)v / (float)processes;
	d = (double)v / (double)processes;
	half = oracle_half(dtype == RS_FLOAT16 ? RS_FLOAT16 : RS_BFLOAT16, f);
	memcpy(to, rs_dtype_is_half(dtype) ? (void *)&half : dtype == RS_FLOAT32 ? (void *)&f : (void *)&d, size);
}
