/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel files share; nothing outside this folder includes it.
 *
 * Every table file defines static functions sum_<dtype>, prod_, max_, min_, load_,
 * store_, divide_ and nonfinite_<dtype> for all dtypes and ends with KERNELS_TABLE, so a
 * table without a cell does not compile. On an architecture that lacks the instructions,
 * the file defines a table that is never usable. */
#ifndef RS_COMMON_KERNELS_IMPL_H
#define RS_COMMON_KERNELS_IMPL_H

#include "common/kernels/cpu.h"
#include "common/kernels/kernels.h"

#include <float.h>

#ifdef __FAST_MATH__
#error "the kernels guarantee exact bits, which -ffast-math breaks: remove it from CFLAGS"
#endif
_Static_assert(FLT_EVAL_METHOD == 0, "the kernels need float arithmetic without excess precision");

/* The bit that makes a NaN quiet, and the NaN that inf - inf and 0 * inf give.
 * Architectures differ in that NaN, and in whose payload survives if both operands are
 * NaN; a compiler may also swap the operands of an addition. So the kernels look for NaNs
 * in the result and then set them explicitly (nan_rule in each file). */
#define F32_QUIET    UINT32_C(0x00400000)
#define F32_NAN_BITS UINT32_C(0x7fc00000)
#define F64_QUIET    UINT64_C(0x0008000000000000)
#define F64_NAN_BITS UINT64_C(0x7ff8000000000000)

extern const struct rs_kernels rs_kernels_scalar;
extern const struct rs_kernels rs_kernels_neon;
extern const struct rs_kernels rs_kernels_avx2;
extern const struct rs_kernels rs_kernels_avx512;

#define KERNELS_ROW(verb)                                                                                              \
	{                                                                                                              \
		[RS_INT8] = verb##_int8, [RS_UINT8] = verb##_uint8, [RS_INT32] = verb##_int32,                         \
		[RS_UINT32] = verb##_uint32, [RS_INT64] = verb##_int64, [RS_UINT64] = verb##_uint64,                   \
		[RS_FLOAT16] = verb##_float16, [RS_FLOAT32] = verb##_float32, [RS_FLOAT64] = verb##_float64,           \
		[RS_BFLOAT16] = verb##_bfloat16,                                                                       \
	}

#define KERNELS_TABLE(isa, cpu)                                                                                        \
	const struct rs_kernels rs_kernels_##isa = {                                                                   \
	    .name = #isa,                                                                                              \
	    .usable = cpu,                                                                                             \
	    .reduce = {[RS_SUM] = KERNELS_ROW(sum),                                                                    \
		       [RS_PROD] = KERNELS_ROW(prod),                                                                  \
		       [RS_MAX] = KERNELS_ROW(max),                                                                    \
		       [RS_MIN] = KERNELS_ROW(min),                                                                    \
		       [RS_AVG] = KERNELS_ROW(sum)},                                                                   \
	    .load = KERNELS_ROW(load),                                                                                 \
	    .store = KERNELS_ROW(store),                                                                               \
	    .divide = KERNELS_ROW(divide),                                                                             \
	    .nonfinite = KERNELS_ROW(nonfinite),                                                                       \
	    .encode = {store_float32, store_bfloat16, encode_fp8, encode_int8, encode_fp16, encode_int4},              \
	    .encode_random = {encode_random_same, encode_random_bf16, encode_random_fp8, encode_random_int8,           \
			      encode_random_fp16, encode_random_int4},                                                 \
	    .decode = {load_float32, load_bfloat16, decode_fp8, decode_int8, decode_fp16, decode_int4},                \
	    .add = {sum_float32, sum_bfloat16, add_fp8, add_int8, add_fp16, add_int4},                                 \
	}

#endif
