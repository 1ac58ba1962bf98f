/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels that a compiler vectorizes well by itself: integers, divisions, copies.
 * Each table file includes this header, and so compiles them for its own instructions.
 *
 * The form matters. At -O2 gcc vectorizes only loops with a constant count (here the
 * blocks), and elements of unknown alignment only if they are copied. Signed sums and
 * products are computed in the unsigned type, where wrapping is defined. */
#ifndef RS_COMMON_KERNELS_LOOPS_H
#define RS_COMMON_KERNELS_LOOPS_H

#include "common/kernels/impl.h"

#include <string.h>

#define BLOCK_BYTES 256

/* expr combines x, the accumulator's element, and y, the source's element */
#define DEFINE_REDUCE(name, type, expr)                                                                                \
	static inline void name##_at(char *a, const char *s)                                                           \
	{                                                                                                              \
		type x, y;                                                                                             \
                                                                                                                       \
		memcpy(&x, a, sizeof x);                                                                               \
		memcpy(&y, s, sizeof y);                                                                               \
		x = (type)(expr);                                                                                      \
		memcpy(a, &x, sizeof x);                                                                               \
	}                                                                                                              \
	static void name(void *restrict acc, const void *restrict src, size_t n)                                       \
	{                                                                                                              \
		enum { BLOCK = BLOCK_BYTES / sizeof(type) };                                                           \
		char *restrict a = acc;                                                                                \
		const char *restrict s = src;                                                                          \
                                                                                                                       \
		for (; n >= BLOCK; n -= BLOCK, a += BLOCK_BYTES, s += BLOCK_BYTES)                                     \
			for (size_t i = 0; i < BLOCK; i++)                                                             \
				name##_at(a + i * sizeof(type), s + i * sizeof(type));                                 \
		for (size_t i = 0; i < n; i++)                                                                         \
			name##_at(a + i * sizeof(type), s + i * sizeof(type));                                         \
	}

#define DEFINE_INTEGER_REDUCES(dtype, type, wrapping)                                                                  \
	DEFINE_REDUCE(sum_##dtype, wrapping, x + y)                                                                    \
	DEFINE_REDUCE(prod_##dtype, wrapping, (x) * (y))                                                               \
	DEFINE_REDUCE(max_##dtype, type, x > y ? x : y)                                                                \
	DEFINE_REDUCE(min_##dtype, type, x < y ? x : y)

DEFINE_INTEGER_REDUCES(int8, int8_t, uint8_t)
DEFINE_INTEGER_REDUCES(uint8, uint8_t, uint8_t)
DEFINE_INTEGER_REDUCES(int32, int32_t, uint32_t)
DEFINE_INTEGER_REDUCES(uint32, uint32_t, uint32_t)
DEFINE_INTEGER_REDUCES(int64, int64_t, uint64_t)
DEFINE_INTEGER_REDUCES(uint64, uint64_t, uint64_t)

/* expr uses x, the element, and d, the divisor in divisor_type. A divisor above
 * divisor_max, which need not fit divisor_type, is larger than every element. */
#define DEFINE_DIVIDE(name, type, divisor_type, divisor_max, expr)                                                     \
	static inline void name##_at(char *a, divisor_type d)                                                          \
	{                                                                                                              \
		type x;                                                                                                \
                                                                                                                       \
		memcpy(&x, a, sizeof x);                                                                               \
		x = (type)(expr);                                                                                      \
		memcpy(a, &x, sizeof x);                                                                               \
	}                                                                                                              \
	static void name(void *acc, uint64_t divisor, size_t n)                                                        \
	{                                                                                                              \
		enum { BLOCK = BLOCK_BYTES / sizeof(type) };                                                           \
		const divisor_type d = (divisor_type)divisor;                                                          \
		char *a = acc;                                                                                         \
                                                                                                                       \
		if (divisor > (divisor_max)) {                                                                         \
			memset(acc, 0, n * sizeof(type));                                                              \
			return;                                                                                        \
		}                                                                                                      \
		for (; n >= BLOCK; n -= BLOCK, a += BLOCK_BYTES)                                                       \
			for (size_t i = 0; i < BLOCK; i++)                                                             \
				name##_at(a + i * sizeof(type), d);                                                    \
		for (size_t i = 0; i < n; i++)                                                                         \
			name##_at(a + i * sizeof(type), d);                                                            \
	}

/* Small integers are divided in a float type with twice their bits. Its rounded quotient
 * truncates to the exact one, and it divides in vectors. Other integers divide
 * magnitudes, since the divisor may not fit the signed type. */
DEFINE_DIVIDE(divide_int8, int8_t, float, UINT8_MAX, (int)((float)x / d))
DEFINE_DIVIDE(divide_uint8, uint8_t, float, UINT8_MAX, (int)((float)x / d))
DEFINE_DIVIDE(divide_int32, int32_t, double, UINT32_MAX, (int32_t)((double)x / d))
DEFINE_DIVIDE(divide_uint32, uint32_t, double, UINT32_MAX, (int64_t)((double)x / d))
DEFINE_DIVIDE(divide_int64, int64_t, uint64_t, UINT64_MAX, x < 0 ? 0 - (0 - (uint64_t)x) / d : (uint64_t)x / d)
DEFINE_DIVIDE(divide_uint64, uint64_t, uint64_t, UINT64_MAX, x / d)
DEFINE_DIVIDE(divide_float16, float, float, UINT64_MAX, x / d)
DEFINE_DIVIDE(divide_bfloat16, float, float, UINT64_MAX, x / d)
DEFINE_DIVIDE(divide_float32, float, float, UINT64_MAX, x / d)
DEFINE_DIVIDE(divide_float64, double, double, UINT64_MAX, x / d)

#define DEFINE_COPIES(dtype, type)                                                                                     \
	static void load_##dtype(void *acc, const void *src, size_t n)                                                 \
	{                                                                                                              \
		if (n > 0)                                                                                             \
			memcpy(acc, src, n * sizeof(type));                                                            \
	}                                                                                                              \
	static void store_##dtype(void *dst, const void *acc, size_t n)                                                \
	{                                                                                                              \
		if (n > 0 && dst != acc)                                                                               \
			memcpy(dst, acc, n * sizeof(type));                                                            \
	}

DEFINE_COPIES(int8, int8_t)
DEFINE_COPIES(uint8, uint8_t)
DEFINE_COPIES(int32, int32_t)
DEFINE_COPIES(uint32, uint32_t)
DEFINE_COPIES(int64, int64_t)
DEFINE_COPIES(uint64, uint64_t)
DEFINE_COPIES(float32, float)
DEFINE_COPIES(float64, double)

/* Bytes that are examined before the result is tested. */
#define SCAN_BYTES 1024

/* These functions only read data that is sent next, which ThreadSanitizer checks anyway;
 * checking each element here would be slow. */
#if defined(__SANITIZE_THREAD__)
#define NOT_FOR_TSAN __attribute__((no_sanitize_thread))
#else
#define NOT_FOR_TSAN
#endif

/* Infinities and NaNs are the numbers whose exponent is all ones. Without the sign,
 * adding `one`, the lowest bit of the exponent, carries into the sign's place exactly for
 * these. */
#define DEFINE_NONFINITE(dtype, word, one)                                                                             \
	NOT_FOR_TSAN static inline word carry_##dtype(const char *s)                                                   \
	{                                                                                                              \
		const word low = (word)-1 >> 1;                                                                        \
		word x;                                                                                                \
                                                                                                                       \
		memcpy(&x, s, sizeof x);                                                                               \
		return (word)((x & low) + (one));                                                                      \
	}                                                                                                              \
	NOT_FOR_TSAN static size_t nonfinite_##dtype(const void *src, size_t n)                                        \
	{                                                                                                              \
		enum { BLOCK = SCAN_BYTES / sizeof(word) };                                                            \
		const word low = (word)-1 >> 1;                                                                        \
		const char *s = src;                                                                                   \
		size_t at = 0;                                                                                         \
                                                                                                                       \
		for (; n - at >= BLOCK; at += BLOCK) {                                                                 \
			word any = 0;                                                                                  \
                                                                                                                       \
			for (size_t i = 0; i < BLOCK; i++)                                                             \
				any |= carry_##dtype(s + (at + i) * sizeof(word));                                     \
			if (any > low)                                                                                 \
				break;                                                                                 \
		}                                                                                                      \
		while (at < n && carry_##dtype(s + at * sizeof(word)) <= low)                                          \
			at++;                                                                                          \
		return at;                                                                                             \
	}

DEFINE_NONFINITE(float16, uint16_t, 0x0400)
DEFINE_NONFINITE(bfloat16, uint16_t, 0x0080)
DEFINE_NONFINITE(float32, uint32_t, UINT32_C(0x00800000))
DEFINE_NONFINITE(float64, uint64_t, UINT64_C(0x0010000000000000))

/* Integers are finite. */
static size_t nonfinite_integer(const void *src, size_t n)
{
	(void)src;
	return n;
}
#define nonfinite_int8   nonfinite_integer
#define nonfinite_uint8  nonfinite_integer
#define nonfinite_int32  nonfinite_integer
#define nonfinite_uint32 nonfinite_integer
#define nonfinite_int64  nonfinite_integer
#define nonfinite_uint64 nonfinite_integer

#endif
