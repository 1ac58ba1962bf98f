/* SPDX-License-Identifier: Apache-2.0 */
/* The float kernels in terms of vector primitives that the including table file has
 * defined before:
 *   vec_f32, vec_f64                  vector types on which + and * work
 *   mask_f32, mask_f64                what comparisons give; | works
 *   F32_LANES, F64_LANES              elements in a vector
 *   get_f32, get_f16, get_bf16        load a vec_f32 from unaligned float32, float16, bfloat16
 *   put_f32, put_f16, put_bf16        store one, rounding to nearest even
 *   max_f32, min_f32                  a > b ? a : b, a < b ? a : b
 *   unordered_f32(a, b)               mask of the lanes where a or b is a NaN
 *   any_f32(mask)                     whether any lane is set
 *   select_f32(mask, a, b)            a where the mask is set, b elsewhere
 *   quiet_f32(a), nan_f32()           a with F32_QUIET set; F32_NAN_BITS in all lanes
 * and get, put, max, min, unordered, any, select, quiet, nan for f64. */
#ifndef RS_COMMON_KERNELS_VEC_H
#define RS_COMMON_KERNELS_VEC_H

#include "common/kernels/loops.h"

#define ALWAYS_INLINE inline __attribute__((always_inline))

/* chooses get_source for the accumulator type; dtype is a constant at each use, so the
 * choice costs nothing */
static ALWAYS_INLINE vec_f32 get_source_f32(const char *s, enum rs_dtype dtype)
{
	if (dtype == RS_FLOAT16)
		return get_f16(s);
	if (dtype == RS_BFLOAT16)
		return get_bf16(s);
	return get_f32(s);
}

static ALWAYS_INLINE vec_f64 get_source_f64(const char *s, enum rs_dtype dtype)
{
	(void)dtype;
	return get_f64(s);
}

#define T(name) name##_f32
#define ELEMENT float
#define LANES   F32_LANES
#include "common/kernels/vec.inc"
#undef T
#undef ELEMENT
#undef LANES
#define T(name) name##_f64
#define ELEMENT double
#define LANES   F64_LANES
#include "common/kernels/vec.inc"
#undef T
#undef ELEMENT
#undef LANES

#define DEFINE_VEC_REDUCE(verb, op, dtype, code, acc_type)                                                             \
	static void verb##_##dtype(void *acc, const void *src, size_t n)                                               \
	{                                                                                                              \
		reduce_##acc_type(acc, src, n, code, op);                                                              \
	}
#define DEFINE_VEC_REDUCES(verb, op)                                                                                   \
	DEFINE_VEC_REDUCE(verb, op, float16, RS_FLOAT16, f32)                                                          \
	DEFINE_VEC_REDUCE(verb, op, bfloat16, RS_BFLOAT16, f32)                                                        \
	DEFINE_VEC_REDUCE(verb, op, float32, RS_FLOAT32, f32)                                                          \
	DEFINE_VEC_REDUCE(verb, op, float64, RS_FLOAT64, f64)

DEFINE_VEC_REDUCES(sum, RS_SUM)
DEFINE_VEC_REDUCES(prod, RS_PROD)
DEFINE_VEC_REDUCES(max, RS_MAX)
DEFINE_VEC_REDUCES(min, RS_MIN)

/* The store may be in place: each vector is written at or before the place it was read
 * from. */
#define DEFINE_VEC_COPIES(dtype, code, half)                                                                           \
	static void load_##dtype(void *acc, const void *src, size_t n)                                                 \
	{                                                                                                              \
		char *a = acc;                                                                                         \
		const char *s = src;                                                                                   \
                                                                                                                       \
		for (; n >= F32_LANES; n -= F32_LANES, a += F32_LANES * 4, s += F32_LANES * 2)                         \
			put_f32(a, get_##half(s));                                                                     \
		rs_kernels_scalar.load[code](a, s, n);                                                                 \
	}                                                                                                              \
	static void store_##dtype(void *dst, const void *acc, size_t n)                                                \
	{                                                                                                              \
		char *d = dst;                                                                                         \
		const char *a = acc;                                                                                   \
                                                                                                                       \
		for (; n >= F32_LANES; n -= F32_LANES, a += F32_LANES * 4, d += F32_LANES * 2)                         \
			put_##half(d, get_f32(a));                                                                     \
		rs_kernels_scalar.store[code](d, a, n);                                                                \
	}

DEFINE_VEC_COPIES(float16, RS_FLOAT16, f16)
DEFINE_VEC_COPIES(bfloat16, RS_BFLOAT16, bf16)

#endif
