/* SPDX-License-Identifier: Apache-2.0 */
/* The expected result of a reduction, computed without the kernels: integers modulo their
 * width, floats in the order of ranks as C adds them. In a job that is not deterministic,
 * the floats give the same bits in every order. */
#include "tests/sim/sim.h"

#include "common/dtype.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint64_t mix(uint64_t z)
{
	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

static uint64_t bits_of(const struct op_plan *p, unsigned r, uint64_t i)
{
	return mix(p->seed + (i * SIM_WORLD + r) * UINT64_C(0x9e3779b97f4a7c15));
}

static bool is_float(unsigned dtype)
{
	return rs_dtype_is_half(dtype) || dtype == RS_FLOAT32 || dtype == RS_FLOAT64;
}

/* Returns a float element of rank r, exact in its type. A product stays small in every
 * order; a sum of a job that is not deterministic consists of whole numbers, which are
 * exact in bfloat16 too: a relay may round them. */
static double float_value(const struct op_plan *p, bool deterministic, unsigned r, uint64_t i, unsigned type)
{
	uint64_t bits = bits_of(p, r, i);
	double sign = bits & 1 ? -1 : 1;
	unsigned mantissa = type == RS_FLOAT32 ? 23 : type == RS_FLOAT64 ? 52 : type == RS_FLOAT16 ? 10 : 7;

	if (!deterministic && p->op == RS_PROD)
		return sign * ((bits >> 8) % 2 ? 2 : 0.5);
	if (!deterministic)
		return sign * (double)(1 + (bits >> 8) % (rs_dtype_is_half(p->dtype) ? 32 : 4096));
	bits >>= 8;
	/* 1.mantissa times 2^-2 to 2^2; a sum of halves then shows whether it was rounded
	 * once */
	sign *= 1 + ldexp((double)(bits & ((UINT64_C(1) << mantissa) - 1)), -(int)mantissa);
	return p->op == RS_PROD ? sign : ldexp(sign, (int)(bits % 5) - 2);
}

/* Returns the code of a double that a half type can hold. */
static uint16_t half_code(unsigned dtype, double x)
{
	int bits = dtype == RS_FLOAT16 ? 10 : 7, bias = dtype == RS_FLOAT16 ? 15 : 127, e;
	uint16_t sign = signbit(x) ? 0x8000 : 0;
	double m = frexp(fabs(x), &e); /* m in [0.5, 1) */

	if (x == 0)
		return sign;
	if (e - 1 < 1 - bias)
		return sign | (uint16_t)ldexp(fabs(x), bits + bias - 1);
	return sign | (uint16_t)(((e - 1 + bias) << bits) + (int)((m * 2 - 1) * (1 << bits)));
}

/* Rounds to nearest even. The values are far from the type's limits. */
static double half_round(unsigned dtype, double x)
{
	int bits = dtype == RS_FLOAT16 ? 10 : 7, least = dtype == RS_FLOAT16 ? -14 : -126, e;

	if (x == 0)
		return x;
	frexp(x, &e);
	e = (e - 1 > least ? e - 1 : least) - bits;
	return ldexp(nearbyint(ldexp(x, -e)), e);
}

static void put(uint8_t *to, unsigned dtype, double x)
{
	float f = (float)x;
	uint16_t half;

	if (dtype == RS_FLOAT64) {
		memcpy(to, &x, sizeof x);
	} else if (dtype == RS_FLOAT32) {
		memcpy(to, &f, sizeof f);
	} else {
		half = half_code(dtype, x);
		memcpy(to, &half, sizeof half);
	}
}

void oracle_contribution(const struct op_plan *p, bool deterministic, unsigned r, void *buf, uint64_t first, uint64_t n)
{
	bool wide = p->wide >> r & 1;
	bool any = deterministic || p->rough;
	unsigned type = wide ? RS_FLOAT32 : p->dtype;
	size_t size = rs_dtype_size(type);

	for (uint64_t i = first; i < first + n; i++) {
		uint8_t *to = (uint8_t *)buf + i * size;
		uint64_t bits = bits_of(p, r, i);

		if (is_float(type) && p->op != FRAME_OP_BROADCAST)
			put(to, type, float_value(p, any, r, i, type));
		else
			memcpy(to, &bits, size); /* little-endian, as the wire is */
	}
}

/* Returns an integer of this dtype as 64 bits, with its sign. */
static uint64_t whole(unsigned dtype, uint64_t bits)
{
	switch (dtype) {
	case RS_INT8:
		return (uint64_t)(int64_t)(int8_t)bits;
	case RS_UINT8:
		return (uint8_t)bits;
	case RS_INT32:
		return (uint64_t)(int64_t)(int32_t)bits;
	case RS_UINT32:
		return (uint32_t)bits;
	default:
		return bits;
	}
}

static uint64_t integer_result(const struct team *t, const struct op_plan *p, uint64_t i)
{
	bool is_signed = p->dtype == RS_INT8 || p->dtype == RS_INT32 || p->dtype == RS_INT64;
	uint64_t a = whole(p->dtype, bits_of(p, 0, i));

	for (unsigned r = 1; r < t->world; r++) {
		uint64_t b = whole(p->dtype, bits_of(p, r, i));
		bool less = is_signed ? (int64_t)b < (int64_t)a : b < a;

		if (p->op == RS_PROD)
			a = whole(p->dtype, a * b);
		else if (p->op == RS_MAX || p->op == RS_MIN)
			a = less == (p->op == RS_MIN) ? b : a;
		else
			a = whole(p->dtype, a + b);
	}
	if (p->op != RS_AVG)
		return a;
	return is_signed ? (uint64_t)((int64_t)a / (int64_t)t->processes_all) : a / t->processes_all;
}

static double combine(const struct op_plan *p, double a, double b)
{
	bool narrow = p->dtype != RS_FLOAT64;
	double x = p->op == RS_PROD ? a * b : p->op == RS_MAX ? fmax(a, b) : p->op == RS_MIN ? fmin(a, b) : a + b;

	/* a double holds the exact sum or product of two floats, or its rounding to float
	 * gives the same */
	return narrow ? (float)x : x;
}

/* Returns the number of groups in which a job sums; without groups all ranks are one. */
static unsigned groups_of(const struct team *t)
{
	return t->cfg.groups_n && t->cfg.job.deterministic ? t->cfg.groups_n : 1;
}

static bool in_group(const struct team *t, unsigned r, unsigned group)
{
	return groups_of(t) == 1 || t->group_of[r] == group;
}

/* Returns whether all ranks of a group send float32. */
static bool group_is_wide(const struct team *t, const struct op_plan *p, unsigned group)
{
	for (unsigned r = 0; r < t->world; r++)
		if (in_group(t, r, group) && !(p->wide >> r & 1))
			return false;
	return true;
}

/* Returns the sum of a group, as its relay sends it. *ret_any: it has ranks. */
static double group_result(const struct team *t, const struct op_plan *p, unsigned group, uint64_t i, bool *ret_any)
{
	bool deterministic = t->cfg.job.deterministic || p->rough;
	double x = 0;

	*ret_any = false;
	for (unsigned r = 0; r < t->world; r++) {
		unsigned type = p->wide >> r & 1 ? RS_FLOAT32 : p->dtype;
		double v = float_value(p, deterministic, r, i, type);

		if (!in_group(t, r, group))
			continue;
		x = *ret_any ? combine(p, x, v) : v;
		*ret_any = true;
	}
	if (groups_of(t) > 1 && rs_dtype_is_half(p->dtype) && !group_is_wide(t, p, group))
		x = half_round(p->dtype, x);
	return x;
}

static double float_result(const struct team *t, const struct op_plan *p, uint64_t i)
{
	bool any = false, there;
	double x = 0;

	for (unsigned g = 0; g < groups_of(t); g++) {
		double v = group_result(t, p, g, i, &there);

		if (there)
			x = any ? combine(p, x, v) : v;
		any |= there;
	}
	if (p->op == RS_AVG && p->dtype == RS_FLOAT64)
		x /= t->processes_all;
	else if (p->op == RS_AVG)
		x = (float)x / (float)t->processes_all;
	return rs_dtype_is_half(p->dtype) ? half_round(p->dtype, x) : x;
}

/* Adds the decoded contributions of a group to a block, as its relay decodes, adds and
 * encodes them. */
static void encoded_group(const struct team *t, const struct op_plan *p, unsigned group, uint64_t first, unsigned n,
			  bool *any, double sum[RS_WIRE_BLOCK])
{
	double part[RS_WIRE_BLOCK], x[RS_WIRE_BLOCK];
	unsigned ranks = 0;

	for (unsigned r = 0; r < t->world; r++) {
		unsigned type = p->wide >> r & 1 ? RS_FLOAT32 : p->dtype;

		if (!in_group(t, r, group))
			continue;
		for (unsigned i = 0; i < n; i++)
			x[i] = float_value(p, t->cfg.job.deterministic, r, first + i, type);
		codec_pass(p->up, x, n);
		for (unsigned i = 0; i < n; i++)
			part[i] = ranks ? combine(p, part[i], x[i]) : x[i];
		ranks++;
	}
	if (!ranks)
		return;
	if (groups_of(t) > 1 && p->up)
		codec_pass(p->up, part, n);
	else if (groups_of(t) > 1 && rs_dtype_is_half(p->dtype) && !group_is_wide(t, p, group))
		for (unsigned i = 0; i < n; i++)
			part[i] = half_round(p->dtype, part[i]);
	for (unsigned i = 0; i < n; i++)
		sum[i] = *any ? combine(p, sum[i], part[i]) : part[i];
	*any = true;
}

/* Computes the result of a block of an encoded operation, from element `first` on. */
static void encoded_result(const struct team *t, const struct op_plan *p, uint64_t first, unsigned n)
{
	size_t size = rs_dtype_size(p->dtype);
	double sum[RS_WIRE_BLOCK];
	bool any = false;

	for (unsigned g = 0; g < groups_of(t); g++)
		encoded_group(t, p, g, first, n, &any, sum);
	for (unsigned i = 0; i < n && p->op == RS_AVG; i++)
		sum[i] = (double)((float)sum[i] / (float)t->processes_all);
	codec_pass(p->down, sum, n);
	for (unsigned i = 0; i < n; i++)
		put(p->want + (first + i) * size, p->dtype,
		    rs_dtype_is_half(p->dtype) ? half_round(p->dtype, sum[i]) : sum[i]);
}

/* Sums in any order, rounded after each step, are this close to each other. */
static bool is_close(double a, double b)
{
	return fabs(a - b) <= 1e-5 * (SIM_WORLD * 8);
}

/* The bits of the first rank that has an element are the reference, if they are a
 * possible sum. */
static bool rough_agrees(struct team *t, struct op_plan *p, const uint8_t *result, uint64_t first, uint64_t n)
{
	size_t size = rs_dtype_size(p->dtype);

	if (!p->known) {
		p->known = calloc(p->count + 1, 1);
		p->want = calloc(p->count + 1, size);
	}
	if (!p->known || !p->want)
		abort();
	for (uint64_t i = first; i < first + n; i++) {
		float f;

		memcpy(&f, result + i * size, sizeof f);
		if (!p->known[i] && !is_close(f, float_result(t, p, i)))
			return false;
		if (!p->known[i])
			memcpy(p->want + i * size, result + i * size, size);
		p->known[i] = 1;
		if (memcmp(p->want + i * size, result + i * size, size) != 0)
			return false;
	}
	return true;
}

bool oracle_agrees(struct team *t, unsigned op, const uint8_t *result, uint64_t first, uint64_t n)
{
	struct op_plan *p = &t->ops[op];
	size_t size = rs_dtype_size(p->dtype);

	if (n == 0)
		return true;
	if (p->rough)
		return rough_agrees(t, p, result, first, n);
	return memcmp(result + first * size, oracle_want(t, op) + first * size, n * size) == 0;
}

const uint8_t *oracle_want(struct team *t, unsigned op)
{
	struct op_plan *p = &t->ops[op];
	size_t size = rs_dtype_size(p->dtype);
	uint64_t part = p->sharded ? p->count / t->world : p->count; /* blocks begin anew in each part */

	if (p->want)
		return p->want;
	p->want = malloc(p->count * size + 1);
	if (!p->want)
		abort();
	for (unsigned r = 0; p->op == FRAME_OP_BROADCAST && p->sharded && r < t->world; r++)
		oracle_contribution(p, t->cfg.job.deterministic, r, p->want, r * (p->count / t->world),
				    p->count / t->world);
	if (p->op == FRAME_OP_BROADCAST && p->sharded)
		return p->want;
	if (p->op == FRAME_OP_BROADCAST) {
		oracle_contribution(p, t->cfg.job.deterministic, p->root, p->want, 0, p->count);
		return p->want;
	}
	for (uint64_t i = 0, n; (p->up || p->down) && i < p->count; i += n) {
		n = part - i % part < RS_WIRE_BLOCK ? part - i % part : RS_WIRE_BLOCK;
		encoded_result(t, p, i, (unsigned)n);
	}
	for (uint64_t i = 0; !p->up && !p->down && i < p->count; i++) {
		uint64_t bits;

		if (is_float(p->dtype)) {
			put(p->want + i * size, p->dtype, float_result(t, p, i));
			continue;
		}
		bits = integer_result(t, p, i);
		memcpy(p->want + i * size, &bits, size);
	}
	return p->want;
}
