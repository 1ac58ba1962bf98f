/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels that a compiler vectorizes well by itself: integers, divisions, copies. Each table file includes this
 * and so gets them compiled for its own instructions.
 *
 * Blocks of a constant size are what makes gcc vectorize at -O2 as it does at -O3. Elements are read through a type
 * of alignment 1. Signed sums and products are computed in the unsigned type, where wrapping is defined. */
#ifndef RS_COMMON_KERNELS_LOOPS_H
#define RS_COMMON_KERNELS_LOOPS_H

#include "common/kernels_impl.h"

#include <string.h>

#define BLOCK_BYTES 256

/* expr combines x, the accumulator's element, and y, the source's */
#define DEFINE_REDUCE(name, type, expr)                                                                                \
	static void name(void *restrict acc, const void *restrict src, size_t n)                                       \
	{                                                                                                              \
		typedef type element __attribute__((aligned(1), may_alias));                                           \
		enum { BLOCK = BLOCK_BYTES / sizeof(type) };                                                           \
		element *restrict a = acc;                                                                             \
		const element *restrict s = src;                                                                       \
		size_t done = n - n % BLOCK;                                                                           \
                                                                                                                       \
		for (size_t at = 0; at < done; at += BLOCK)                                                            \
			for (size_t i = at; i < at + BLOCK; i++) {                                                     \
				const type x = a[i], y = s[i];                                                         \
				a[i] = (type)(expr);                                                                   \
			}                                                                                              \
		for (size_t i = done; i < n; i++) {                                                                    \
			const type x = a[i], y = s[i];                                                                 \
			a[i] = (type)(expr);                                                                           \
		}                                                                                                      \
	}

#define DEFINE_INTEGER_REDUCES(dtype, type, wrapping)                                                                  \
	DEFINE_REDUCE(sum_##dtype, wrapping, x + y)                                                                    \
	DEFINE_REDUCE(prod_##dtype, wrapping, x *y)                                                                    \
	DEFINE_REDUCE(max_##dtype, type, x > y ? x : y)                                                                \
	DEFINE_REDUCE(min_##dtype, type, x < y ? x : y)

DEFINE_INTEGER_REDUCES(int8, int8_t, uint8_t)
DEFINE_INTEGER_REDUCES(uint8, uint8_t, uint8_t)
DEFINE_INTEGER_REDUCES(int32, int32_t, uint32_t)
DEFINE_INTEGER_REDUCES(uint32, uint32_t, uint32_t)
DEFINE_INTEGER_REDUCES(int64, int64_t, uint64_t)
DEFINE_INTEGER_REDUCES(uint64, uint64_t, uint64_t)

/* expr is made of x, the element, and d, the divisor in the type divisor_type, which must hold it */
#define DEFINE_DIVIDE(name, type, divisor_type, divisor_max, expr)                                                     \
	static void name(void *acc, uint64_t divisor, size_t n)                                                        \
	{                                                                                                              \
		typedef type element __attribute__((aligned(1), may_alias));                                           \
		enum { BLOCK = BLOCK_BYTES / sizeof(type) };                                                           \
		element *a = acc;                                                                                      \
		size_t done = n - n % BLOCK;                                                                           \
		const divisor_type d = (divisor_type)divisor;                                                          \
                                                                                                                       \
		if (divisor > (divisor_max)) {                                                                         \
			memset(acc, 0, n * sizeof(type)); /* all elements are nearer to 0 than the divisor */          \
			return;                                                                                        \
		}                                                                                                      \
		for (size_t at = 0; at < done; at += BLOCK)                                                            \
			for (size_t i = at; i < at + BLOCK; i++) {                                                     \
				const type x = a[i];                                                                   \
				a[i] = (type)(expr);                                                                   \
			}                                                                                              \
		for (size_t i = done; i < n; i++) {                                                                    \
			const type x = a[i];                                                                           \
			a[i] = (type)(expr);                                                                           \
		}                                                                                                      \
	}

/* Small integers go through a float type with twice their bits, whose rounded quotient truncates to the exact one and
 * which divides in vectors. The others divide magnitudes, since the divisor may not fit the signed type. */
DEFINE_DIVIDE(divide_int8, int8_t, float, UINT8_MAX, (int)((float)x / d))
DEFINE_DIVIDE(divide_uint8, uint8_t, float, UINT8_MAX, (int)((float)x / d))
DEFINE_DIVIDE(divide_int32, int32_t, double, UINT32_MAX, (int32_t)((double)x / d))
DEFINE_DIVIDE(divide_uint32, uint32_t, uint32_t, UINT32_MAX, x / d)
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

#endif
