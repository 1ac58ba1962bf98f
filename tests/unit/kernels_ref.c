/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/kernels_ref.h"

#include "common/kernels/kernels.h"

#include <math.h>
#include <string.h>

uint64_t kref_random(uint64_t *state)
{
	uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

uint32_t kref_float_bits(float f)
{
	return (union kref_element){.f = f}.u32;
}

float kref_bits_float(uint32_t u)
{
	return (union kref_element){.u32 = u}.f;
}

/* ---- references ---- */

struct half_format {
	int fraction_bits, min_exponent, max_exponent; /* exponents of the normal numbers */
};
static const struct half_format f16_format = {10, -14, 15}, bf16_format = {7, -126, 127};

static float ref_widen(const struct half_format *fmt, uint16_t h)
{
	int fraction = h & ((1 << fmt->fraction_bits) - 1), exponent = (h & 0x7fff) >> fmt->fraction_bits;
	double value;

	if (exponent == fmt->max_exponent - fmt->min_exponent + 2 && fraction == 0)
		value = INFINITY;
	else if (exponent == 0)
		value = ldexp(fraction, fmt->min_exponent - fmt->fraction_bits);
	else
		value =
		    ldexp(fraction + (1 << fmt->fraction_bits), exponent - 1 + fmt->min_exponent - fmt->fraction_bits);
	return (float)copysign(value, h & 0x8000 ? -1 : 1);
}

float kref_load(unsigned dtype, uint16_t h)
{
	bool f16 = dtype == RS_FLOAT16;
	uint16_t infinity = f16 ? 0x7c00 : 0x7f80;

	if ((h & 0x7fff) > infinity) /* as F16C: the sign, the payload at the left, quiet; bfloat16 unchanged */
		return kref_bits_float((uint32_t)(h & 0x8000) << 16 |
				       (f16 ? 0x7fc00000 | (uint32_t)(h & 0x3ff) << 13 : (uint32_t)(h & 0x7fff) << 16));
	return ref_widen(f16 ? &f16_format : &bf16_format, h);
}

uint16_t kref_store(unsigned dtype, float f)
{
	const struct half_format *fmt = dtype == RS_FLOAT16 ? &f16_format : &bf16_format;
	uint16_t sign = signbit(f) ? 0x8000 : 0, infinity = dtype == RS_FLOAT16 ? 0x7c00 : 0x7f80;
	int exponent;
	double units;

	if (isnan(f)) {
		int drop = 23 - fmt->fraction_bits;
		uint32_t payload = (kref_float_bits(f) & 0x7fffff) >> drop, quiet = 1u << (fmt->fraction_bits - 1);

		return (uint16_t)(sign | infinity | quiet | payload);
	}
	if (isinf(f))
		return sign | infinity;
	if (f == 0)
		return sign;
	frexp(f, &exponent);
	exponent = exponent - 1 < fmt->min_exponent ? fmt->min_exponent : exponent - 1;
	/* whole units in the last place; a carry into the next binade or to infinity is
	 * correct */
	units = nearbyint(ldexp(fabs((double)f), fmt->fraction_bits - exponent));
	if (exponent > fmt->max_exponent)
		return sign | infinity;
	return (uint16_t)(sign + (int)units + ((exponent - fmt->min_exponent) << fmt->fraction_bits));
}

static float ref_float(float a, float b, unsigned op)
{
	double r = 0;

	if (isnan(a))
		return kref_bits_float(kref_float_bits(a) | 0x400000);
	if (isnan(b))
		return kref_bits_float(kref_float_bits(b) | 0x400000);
	switch (op) {
	case RS_SUM:
	case RS_AVG:
		r = (double)a + b; /* rounding twice has no effect: double has more than 2 * 24 + 1 bits */
		break;
	case RS_PROD:
		r = (double)a * b;
		break;
	case RS_MAX:
		return a > b ? a : b;
	case RS_MIN:
		return a < b ? a : b;
	}
	return isnan(r) ? kref_bits_float(0x7fc00000) : (float)r;
}

static double ref_double(double a, double b, unsigned op)
{
	union kref_element u = {.d = isnan(a) ? a : b};
	double r = op == RS_PROD ? a * b : op == RS_MAX ? (a > b ? a : b) : op == RS_MIN ? (a < b ? a : b) : a + b;

	if (isnan(a) || isnan(b))
		u.u64 |= UINT64_C(1) << 51;
	else if (isnan(r))
		u.u64 = UINT64_C(0x7ff8000000000000);
	else
		return r;
	return u.d;
}

/* Sums and products in 64 bits have correct low bits for every narrower type. */
static uint64_t ref_integer(uint64_t a, uint64_t b, unsigned op, bool is_signed)
{
	bool greater = is_signed ? (int64_t)a > (int64_t)b : a > b;

	switch (op) {
	case RS_PROD:
		return a * b;
	case RS_MAX:
		return greater ? a : b;
	case RS_MIN:
		return greater ? b : a;
	default:
		return a + b;
	}
}

static uint64_t widened(unsigned dtype, const union kref_element *e, bool *is_signed)
{
	*is_signed = dtype == RS_INT8 || dtype == RS_INT32 || dtype == RS_INT64;
	switch (dtype) {
	case RS_INT8:
		return (uint64_t)(int64_t)e->i8;
	case RS_UINT8:
		return e->u8;
	case RS_INT32:
		return (uint64_t)(int64_t)e->i32;
	case RS_UINT32:
		return e->u32;
	default:
		return e->u64;
	}
}

union kref_element kref_reduce(unsigned dtype, unsigned op, const union kref_element *acc,
			       const union kref_element *src)
{
	bool is_signed;

	switch (dtype) {
	case RS_FLOAT16:
	case RS_BFLOAT16:
		return (union kref_element){.f = ref_float(acc->f, kref_load(dtype, src->h), op)};
	case RS_FLOAT32:
		return (union kref_element){.f = ref_float(acc->f, src->f, op)};
	case RS_FLOAT64:
		return (union kref_element){.d = ref_double(acc->d, src->d, op)};
	default: {
		uint64_t b = widened(dtype, src, &is_signed), a = widened(dtype, acc, &is_signed);

		return (union kref_element){.u64 = ref_integer(a, b, op, is_signed)};
	}
	}
}

union kref_element kref_divide(unsigned dtype, const union kref_element *acc, uint64_t divisor)
{
	bool is_signed;
	uint64_t a;

	if (rs_dtype_is_half(dtype) || dtype == RS_FLOAT32)
		return (union kref_element){.f = isnan(acc->f) ? kref_bits_float(kref_float_bits(acc->f) | 0x400000)
							       : acc->f / (float)divisor};
	if (dtype == RS_FLOAT64) {
		union kref_element r = {.d = acc->d / (double)divisor};

		if (isnan(acc->d))
			r.u64 = acc->u64 | UINT64_C(1) << 51;
		return r;
	}
	a = widened(dtype, acc, &is_signed);
	if (is_signed) /* __int128 holds both */
		return (union kref_element){.i64 = (int64_t)((__int128)(int64_t)a / (__int128)divisor)};
	return (union kref_element){.u64 = a / divisor};
}

/* ---- values ---- */

static const uint32_t special_f32[] = {
    0x00000000, 0x80000000, 0x3f800000, 0xbf800000, 0x7f800000, 0xff800000, /* 0, 1, infinity of both signs */
    0x7fc00000, 0xffc00000, 0x7fc12345, 0xffd54321,                         /* quiet NaNs, with payloads */
    0x7f800001, 0xff800001, 0x7fa00bad, 0xffbfffff,                         /* signalling ones */
    0x00000001, 0x80000001, 0x007fffff, 0x807fffff, 0x00800000, 0x80800000, /* denormals, the smallest normals */
    0x7f7fffff, 0xff7fffff, 0x3f800001, 0x34000000, 0x33800000, 0x477fe000, 0x477ff000, 0x42280000};
static const uint64_t special_f64[] = {
    0x0000000000000000, 0x8000000000000000, 0x3ff0000000000000, 0xbff0000000000000, /* 0, 1 */
    0x7ff0000000000000, 0xfff0000000000000, 0x7ff8000000000000, 0xfff8000000012345, /* infinity, quiet NaN */
    0x7ff0000000000001, 0xfff4000000000bad, 0x0000000000000001, 0x800fffffffffffff, /* signalling NaN, denormal */
    0x0010000000000000, 0x7fefffffffffffff, 0xffefffffffffffff, 0x3ca0000000000000, /* smallest, largest */
};
static const uint16_t special_f16[] = {0x0000, 0x8000, 0x3c00, 0xbc00, 0x7c00, 0xfc00, 0x7e00, 0xfe00, 0x7d23, 0xfc01,
				       0x7fff, 0x0001, 0x8001, 0x03ff, 0x83ff, 0x0400, 0x7bff, 0xfbff, 0x3c01, 0x1000};
static const uint16_t special_bf16[] = {0x0000, 0x8000, 0x3f80, 0xbf80, 0x7f80, 0xff80, 0x7fc0, 0xffc0, 0x7f81, 0xffa5,
					0x7fff, 0x0001, 0x8001, 0x007f, 0x807f, 0x0080, 0x7f7f, 0xff7f, 0x3f81, 0x3400};
static const uint64_t special_int[] = {
    0x00000000,         0x00000001,         0x00000002,         0x00000003, 0x00000005, 0x00000007,
    0x0000007f,         0x00000080,                                                                 /* 8 bits */
    0x00000081,         0x000000ff,         0x7fffffff,         0x80000000, 0x80000001, 0xffffffff, /* 32 bits */
    0x7fffffffffffffff, 0x8000000000000000, 0xffffffffffffffff,                                     /* 64 bits */
};

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

union kref_element kref_special(unsigned dtype, size_t i, size_t *n)
{
	switch (dtype) {
	case RS_FLOAT16:
		*n = COUNT(special_f16);
		return (union kref_element){.h = special_f16[i % *n]};
	case RS_BFLOAT16:
		*n = COUNT(special_bf16);
		return (union kref_element){.h = special_bf16[i % *n]};
	case RS_FLOAT32:
		*n = COUNT(special_f32);
		return (union kref_element){.u32 = special_f32[i % *n]};
	case RS_FLOAT64:
		*n = COUNT(special_f64);
		return (union kref_element){.u64 = special_f64[i % *n]};
	default:
		*n = COUNT(special_int);
		return (union kref_element){.u64 = special_int[i % *n]};
	}
}

unsigned kref_acc_dtype(unsigned dtype)
{
	return rs_dtype_is_half(dtype) ? (unsigned)RS_FLOAT32 : dtype;
}

/* Random bits, every third element a special value; `calm` has small numbers only, so
 * that vectors without any NaN occur too. */
static union kref_element random_element(unsigned dtype, uint64_t *seed, bool calm)
{
	uint64_t r = kref_random(seed);
	float small = (float)(int)(r % 4001 - 2000) / 16;
	size_t n;

	if (calm && dtype == RS_FLOAT32)
		return (union kref_element){.f = small};
	if (calm && dtype == RS_FLOAT64)
		return (union kref_element){.d = (double)small / 3};
	if (calm && rs_dtype_is_half(dtype))
		return (union kref_element){.h = kref_store(dtype, small)};
	if (r % 3 == 0)
		return kref_special(dtype, r >> 8, &n);
	return (union kref_element){.u64 = kref_random(seed)};
}

void kref_fill(unsigned dtype, unsigned char *p, size_t n, uint64_t seed, bool calm)
{
	size_t size = rs_dtype_size(dtype);

	for (size_t i = 0; i < n; i++) {
		union kref_element e = random_element(dtype, &seed, calm);

		memcpy(p + i * size, &e, size);
	}
}
