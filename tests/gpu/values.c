/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/values.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SUM, PROD, MAX, MIN, AVG };

const struct value_type value_types[VALUES_TYPES] = {
    {"int8", 1, false, 0},    {"uint8", 1, false, 0},   {"int32", 4, false, 0},   {"uint32", 4, false, 0},
    {"int64", 8, false, 0},   {"uint64", 8, false, 0},  {"float16", 2, true, 11}, {"float32", 4, true, 24},
    {"float64", 8, true, 53}, {"bfloat16", 2, true, 8},
};
static const char *const op_names[VALUES_OPS] = {"sum", "prod", "max", "min", "avg"};

uint32_t value_mixed(uint32_t a, uint32_t b, uint32_t c)
{
	uint32_t h = a * 0x9e3779b1u ^ b * 0x85ebca6bu ^ (c + 1) * 0xc2b2ae35u;

	h ^= h >> 15;
	h *= 0x2c1b3c6du;
	return h ^ h >> 13;
}

/* What a rank sends for element i, a value that the type has exactly: small integers, and
 * floats with few digits; a product has powers of two only. */
static double value(int type, int op, int rank, size_t i)
{
	uint32_t h = value_mixed((uint32_t)rank, (uint32_t)i, (uint32_t)(type * VALUES_OPS + op));

	if (op == PROD)
		return value_types[type].real ? (double[]){0.5, 1, 2, -1}[h % 4] : (double)(1 + h % 2);
	if (!value_types[type].real)
		return type % 2 ? (double)(h % 32) : (double)(h % 63) - 31; /* odd: unsigned */
	return ((double)(h % 255) - 127) * ldexp(1, (int)(h >> 8) % 8 - 4);
}

static double half_value(int type, uint16_t bits)
{
	uint32_t wide = (uint32_t)bits << 16;
	float f;
	int e = bits >> 10 & 31;
	double m = bits & 1023;

	if (type == 9) {
		memcpy(&f, &wide, sizeof f);
		return (double)f;
	}
	return (bits & 0x8000 ? -1 : 1) * (e ? ldexp(1024 + m, e - 25) : ldexp(m, -24));
}

static uint16_t half_bits(int type, double v)
{
	float f = (float)v;
	uint32_t wide;
	int e;
	double m;

	memcpy(&wide, &f, sizeof wide);
	if (type == 9)
		return (uint16_t)(wide >> 16); /* exact: the value has at most 8 digits */
	if (v == 0)
		return 0;
	m = frexp(fabs(v), &e); /* 0.5 <= m < 1 */
	return (uint16_t)((v < 0 ? 0x8000 : 0) | (e + 14) << 10 | ((int)ldexp(m, 11) & 1023));
}

static void value_put(uint8_t *to, int type, double v)
{
	int64_t whole = (int64_t)v;
	float f = (float)v;
	uint16_t half;

	if (!value_types[type].real) {
		memcpy(to, &whole, value_types[type].bytes);
	} else if (value_types[type].bytes == 2) {
		half = half_bits(type, v);
		memcpy(to, &half, 2);
	} else if (value_types[type].bytes == 4) {
		memcpy(to, &f, 4);
	} else {
		memcpy(to, &v, 8);
	}
}

static double value_get(const uint8_t *from, int type)
{
	int64_t whole = 0;
	uint16_t half;
	float f;
	double d;

	if (!value_types[type].real) {
		size_t n = value_types[type].bytes;

		memcpy(&whole, from, n);
		if (type % 2 == 0 && n < 8) /* sign */
			whole = (int64_t)((uint64_t)whole << (64 - 8 * n)) >> (64 - 8 * n);
		return (double)whole;
	}
	if (value_types[type].bytes == 2) {
		memcpy(&half, from, 2);
		return half_value(type, half);
	}
	if (value_types[type].bytes == 4) {
		memcpy(&f, from, 4);
		return (double)f;
	}
	memcpy(&d, from, 8);
	return d;
}

/* The exact result in float64, and the sum of the absolute values. */
static double expected(int ranks, int type, int op, size_t i, double *sum_abs)
{
	double all = value(type, op, 0, i);

	*sum_abs = fabs(all);
	for (int k = 1; k < ranks; k++) {
		double v = value(type, op, k, i);

		*sum_abs += fabs(v);
		all = op == PROD ? all * v : op == MAX ? fmax(all, v) : op == MIN ? fmin(all, v) : all + v;
	}
	if (op == AVG)
		all = value_types[type].real ? all / ranks : trunc(all / ranks);
	return all;
}

/* Returns the largest error of a result: that of n - 1 roundings of a sum, and one more
 * of an average. */
static double bound_of(int ranks, int type, int op, double sum_abs)
{
	double rounding = sum_abs * ldexp(1, -value_types[type].bits);

	if (!value_types[type].real || (op != SUM && op != AVG))
		return 0;
	return op == SUM ? (ranks - 1) * rounding : rounding;
}

void values_fill(uint8_t *to, size_t count, int type, int op, int rank)
{
	size_t bytes = value_types[type].bytes, first = count < VALUES_PERIOD ? count : VALUES_PERIOD;

	for (size_t i = 0; i < first; i++)
		value_put(to + i * bytes, type, value(type, op, rank, i));
	if (count > first)
		for (size_t i = first * bytes; i < count * bytes; i += first * bytes)
			memcpy(to + i, to, i + first * bytes < count * bytes ? first * bytes : count * bytes - i);
}

/* Compares the values behind the first period with those in it. */
static bool check_periods(const uint8_t *got, size_t count, size_t bytes, char *why, size_t room)
{
	for (size_t i = VALUES_PERIOD; i < count; i++)
		if (memcmp(got + i * bytes, got + i % VALUES_PERIOD * bytes, bytes) != 0) {
			snprintf(why, room, "element %zu of %zu differs from element %zu, which is right", i, count,
				 i % VALUES_PERIOD);
			return false;
		}
	return true;
}

bool values_check(const uint8_t *got, size_t count, int type, int op, int ranks, double *largest, char *why,
		  size_t room)
{
	const struct value_type *t = &value_types[type];

	for (size_t i = 0; i < count && i < VALUES_PERIOD; i++) {
		double sum_abs, want = expected(ranks, type, op, i, &sum_abs),
				found = value_get(got + i * t->bytes, type);
		double error = fabs(found - want), bound = bound_of(ranks, type, op, sum_abs);

		if (!(error <= bound)) {
			snprintf(why, room, "%s %s, element %zu of %zu: %.17g was expected, found %.17g", t->name,
				 op_names[op], i, count, want, found);
			return false;
		}
		if (bound > 0 && error / bound > *largest)
			*largest = error / bound;
	}
	return check_periods(got, count, t->bytes, why, room);
}
