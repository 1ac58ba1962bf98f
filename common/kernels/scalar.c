/* SPDX-License-Identifier: Apache-2.0 */
/* Plain C. Runs everywhere, processes the remaining elements after the vector kernels,
 * and is the reference that tests compare them with. */
#include "common/kernels/loops.h"

static inline uint16_t load_u16(const void *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof v);
	return v;
}

static inline void store_u16(void *p, uint16_t v)
{
	memcpy(p, &v, sizeof v);
}

static inline uint32_t bits_of(float f)
{
	uint32_t u;

	memcpy(&u, &f, sizeof u);
	return u;
}

static inline float float_of(uint32_t u)
{
	float f;

	memcpy(&f, &u, sizeof f);
	return f;
}

static inline float float_of_f16(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = (h >> 10) & 0x1f, fraction = h & 0x3ff;

	if (exponent == 0x1f)
		return float_of(sign | 0x7f800000 | fraction << 13 | (fraction ? F32_QUIET : 0));
	if (exponent == 0)
		return float_of(sign | bits_of((float)fraction * 0x1p-24f)); /* exact; +-0 or subnormal */
	return float_of(sign | (exponent + 112) << 23 | fraction << 13);
}

static inline uint16_t f16_of_float(float f)
{
	uint32_t bits = bits_of(f), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;

	if (magnitude > 0x7f800000)
		return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
	if (magnitude >= 0x47800000) /* 65536 and more */
		return (uint16_t)(sign | 0x7c00);
	if (magnitude < 0x33000000) /* less than half of the smallest subnormal */
		return (uint16_t)sign;
	if (magnitude < 0x38800000) { /* becomes a subnormal: a multiple of 2^-24 */
		uint32_t shift = 126 - (magnitude >> 23), fraction = (magnitude & 0x7fffff) | 0x800000;
		uint32_t half = fraction >> shift, rest = fraction & ((1u << shift) - 1), tie = 1u << (shift - 1);

		return (uint16_t)(sign | (half + (rest > tie || (rest == tie && (half & 1)))));
	}
	return (uint16_t)(sign | (magnitude + 0xfff + (magnitude >> 13 & 1) - 0x38000000) >> 13);
}

static inline float float_of_bf16(uint16_t b)
{
	return float_of((uint32_t)b << 16);
}

static inline uint16_t bf16_of_float(float f)
{
	uint32_t bits = bits_of(f);

	if ((bits & 0x7fffffff) > 0x7f800000)
		return (uint16_t)(bits >> 16 | F32_QUIET >> 16);
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Returns a op b if the result is a NaN. */
static float nan_rule_f32(float a, float b)
{
	if (a != a)
		return float_of(bits_of(a) | F32_QUIET);
	return float_of(b != b ? bits_of(b) | F32_QUIET : F32_NAN_BITS);
}

static double nan_rule_f64(double a, double b)
{
	uint64_t bits = F64_NAN_BITS;
	double r;

	if (a != a)
		memcpy(&bits, &a, sizeof bits);
	else if (b != b)
		memcpy(&bits, &b, sizeof bits);
	bits |= F64_QUIET;
	memcpy(&r, &bits, sizeof r);
	return r;
}

#define DEFINE_FLOAT_OP(verb, expr)                                                                                    \
	static inline float verb##_f32(float a, float b)                                                               \
	{                                                                                                              \
		float r = expr;                                                                                        \
                                                                                                                       \
		return r != r || a != a ? nan_rule_f32(a, b) : r;                                                      \
	}                                                                                                              \
	static inline double verb##_f64(double a, double b)                                                            \
	{                                                                                                              \
		double r = expr;                                                                                       \
                                                                                                                       \
		return r != r || a != a ? nan_rule_f64(a, b) : r;                                                      \
	}

DEFINE_FLOAT_OP(sum, a + b)
DEFINE_FLOAT_OP(prod, (a) * (b))
DEFINE_FLOAT_OP(max, a > b ? a : b) /* Returns b if it is a NaN. */
DEFINE_FLOAT_OP(min, a < b ? a : b)

/* widen makes the accumulator's type of a source element */
#define DEFINE_FLOAT_REDUCE(name, type, source, op, widen)                                                             \
	static void name(void *restrict acc, const void *restrict src, size_t n)                                       \
	{                                                                                                              \
		char *a = acc;                                                                                         \
		const char *s = src;                                                                                   \
                                                                                                                       \
		for (; n > 0; n--, a += sizeof(type), s += sizeof(source)) {                                           \
			type x;                                                                                        \
			source y;                                                                                      \
                                                                                                                       \
			memcpy(&x, a, sizeof x);                                                                       \
			memcpy(&y, s, sizeof y);                                                                       \
			x = op(x, widen(y));                                                                           \
			memcpy(a, &x, sizeof x);                                                                       \
		}                                                                                                      \
	}

#define DEFINE_FLOAT_REDUCES(verb)                                                                                     \
	DEFINE_FLOAT_REDUCE(verb##_float16, float, uint16_t, verb##_f32, float_of_f16)                                 \
	DEFINE_FLOAT_REDUCE(verb##_bfloat16, float, uint16_t, verb##_f32, float_of_bf16)                               \
	DEFINE_FLOAT_REDUCE(verb##_float32, float, float, verb##_f32, )                                                \
	DEFINE_FLOAT_REDUCE(verb##_float64, double, double, verb##_f64, )

DEFINE_FLOAT_REDUCES(sum)
DEFINE_FLOAT_REDUCES(prod)
DEFINE_FLOAT_REDUCES(max)
DEFINE_FLOAT_REDUCES(min)

/* The store may be in place: each element is written at or before the place it was read
 * from. */
#define DEFINE_HALF_COPIES(dtype, widen, narrow)                                                                       \
	static void load_##dtype(void *acc, const void *src, size_t n)                                                 \
	{                                                                                                              \
		char *a = acc;                                                                                         \
		const char *s = src;                                                                                   \
                                                                                                                       \
		for (; n > 0; n--, a += sizeof(float), s += sizeof(uint16_t)) {                                        \
			float f = widen(load_u16(s));                                                                  \
                                                                                                                       \
			memcpy(a, &f, sizeof f);                                                                       \
		}                                                                                                      \
	}                                                                                                              \
	static void store_##dtype(void *dst, const void *acc, size_t n)                                                \
	{                                                                                                              \
		char *d = dst;                                                                                         \
		const char *a = acc;                                                                                   \
                                                                                                                       \
		for (; n > 0; n--, a += sizeof(float), d += sizeof(uint16_t)) {                                        \
			float f;                                                                                       \
                                                                                                                       \
			memcpy(&f, a, sizeof f);                                                                       \
			store_u16(d, narrow(f));                                                                       \
		}                                                                                                      \
	}

DEFINE_HALF_COPIES(float16, float_of_f16, f16_of_float)
DEFINE_HALF_COPIES(bfloat16, float_of_bf16, bf16_of_float)

#include "common/kernels/encode.h"

KERNELS_TABLE(scalar, rs_cpu_always);
