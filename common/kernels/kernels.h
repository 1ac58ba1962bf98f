/* SPDX-License-Identifier: Apache-2.0 */
/* Reduction kernels: one table for each instruction set, chosen once at start.
 *
 * Accumulators are in the accumulator type of the dtype (float32 for float16 and
 * bfloat16, else the dtype itself). Every usable table gives the same bits as the scalar
 * one for every input; the tests check that.
 *   sum, prod  integers wrap modulo 2^bits; floats round to nearest even, once per addition
 *   max, min   a NaN on either side gives a NaN; of -0 and +0 the second argument (src) is taken
 *   avg        summed like sum; the caller then calls rs_kernels.divide
 * A NaN keeps sign and payload and becomes quiet. Of two NaNs the first argument's (acc)
 * is taken. inf - inf and 0 * inf give 0x7fc00000 (float64: 0x7ff8000000000000). This
 * holds on every architecture. Pointers may have any alignment; n counts elements; acc
 * and src must not overlap. Any thread; nothing is allocated.
 *
 * scalar.c is plain C, handles the remaining elements, and is the reference of the tests.
 * To add an instruction set: a table file that defines the primitives of vec.h, a test of
 * the processor in cpu.c, and a line in kernels.c. `make bench-kernels` compares the
 * tables. */
#ifndef RS_COMMON_KERNELS_KERNELS_H
#define RS_COMMON_KERNELS_KERNELS_H

#include "common/dtype.h"
#include "common/error.h"
#include "common/wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* acc[i] = acc[i] op src[i]; src elements in the dtype */
typedef void (*rs_reduce_fn)(void *acc, const void *src, size_t n);
/* acc[i] = src[i], widened where the accumulator is wider; memcpy otherwise */
typedef void (*rs_load_fn)(void *acc, const void *src, size_t n);
/* dst[i] = acc[i], rounded to nearest even where the dtype is narrower. dst == acc is
 * allowed (narrowing in place) */
typedef void (*rs_store_fn)(void *dst, const void *acc, size_t n);
/* acc[i] = acc[i] / divisor; integers truncate towards zero; divisor >= 1 */
typedef void (*rs_divide_fn)(void *acc, uint64_t divisor, size_t n);
/* Returns the first i whose src[i] is a NaN or an infinity; n if there is none, as always
 * with integers */
typedef size_t (*rs_nonfinite_fn)(const void *src, size_t n);

/* The encodings of enum rs_wire (common/wire.h) for float32 elements in memory. All
 * numbers are little-endian. RS_WIRE_SAME is float32; RS_WIRE_BF16 the store, load and
 * sum of bfloat16.
 *
 * The others have blocks of 128 elements; the last one may be shorter. A block is a
 * scale, 2 bytes of bfloat16, and a code for each element. An element's value is
 * value(code) * scale, one float32 multiplication, exact unless it overflows. A product
 * that is a NaN is 0x7fc00000: 0 * inf, and all elements of a block whose scale is a NaN.
 * Any scale and any code can be decoded.
 *   fp16   2 bytes: float16
 *   fp8    1 byte: E4M3, a sign, 4 bits of exponent with bias 7, 3 of fraction; exponent 0
 *          is subnormal. Without infinities and NaNs: 0x7f is 480; no encoder writes it
 *   int8   1 byte: two's complement; no encoder writes -128
 *   int4   4 bits: two's complement; no encoder writes -8. A byte has two codes, the
 *          first one in its low bits; behind the last one of an odd number the high bits
 *          are 0
 *
 * The encoder takes the scale from amax, the largest magnitude of the block:
 *   fp16   the power of two with 2^14 <= amax / s < 2^15, so that no code overflows
 *   fp8    amax / 448, one float32 division, rounded up to bfloat16
 *   int8   amax / 127 in the same way
 *   int4   amax / 7 in the same way
 *   all    at least 2^-126
 * and the code, rounded to nearest even, of x * (1 / s): a float32 division, a float32
 * product, then to the code. With fp16 and fp8 a zero keeps the sign of x. If the block
 * has a NaN, its scale is 0x7fc0 and all codes are 0. Otherwise, if it has an infinity,
 * its scale is infinity, 0x7f80; infinities have the codes of 1 and -1, other elements
 * the code 0, so that they become NaNs. A finite element above 0.92 of the largest
 * float32 may become an infinity.
 *
 * Random rounding takes the same scales. r, 32 random bits for each element, is a hash of
 * `key` and of its index in the operation, first + i (unsigned numbers that wrap; >>
 * shifts in zeros):
 *   z = key + 0x9e3779b97f4a7c15 * ((index >> 32) + 1)              64 bits
 *   z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9
 *   z = (z ^ z >> 27) * 0x94d049bb133111eb
 *   z = z ^ z >> 31
 *   x = lower half of index ^ lower half of z                        32 bits
 *   x = (x ^ x >> 16) * 0x7feb352d
 *   x = (x ^ x >> 15) + upper half of z
 *   x = x * 0x846ca68b
 *   r = x ^ x >> 16
 * Then
 *   bf16   the upper 16 bits of bits(x) + (r & 0xffff); a NaN as without random rounding
 *   fp16   v = |x * (1 / s)|; p = v < 2^-14 ? floor(v * 2^37) : bits(v) - 0x38000000, the
 *          place of v among the codes with 13 binary places;
 *          code = (p + (r & 0x1fff)) >> 13, with the sign of x
 *   fp8    v as above, at most 448; p = v < 2^-6 ? floor(v * 2^29) : bits(v) - 0x3c000000,
 *          the place of v with 20 binary places;
 *          code = (p + (r & 0xfffff)) >> 20, with the sign of x
 *   int8   v = x * (1 / s), at least -127 and at most 127; p = v * 2^24, rounded towards
 *          zero; code = floor((p + (r & 0xffffff)) / 2^24)
 *   int4   the same with at least -7 and at most 7
 * The expectation of a result is the element, but for less than 2^-15 of the distance of
 * neighbouring values. */

/* dst has rs_wire_bytes() bytes: the encoding of n float32 elements, which begin with a
 * block, rounded to nearest even. dst == src is allowed (encoding in place) */
typedef void (*rs_encode_fn)(void *dst, const void *src, size_t n);
/* As rs_encode_fn, with random rounding. `first` is the index in the operation of the
 * first element, any number */
typedef void (*rs_encode_random_fn)(void *dst, const void *src, size_t n, uint64_t key, uint64_t first);

/* A table of reduction functions. After rs_kernels_select no cell is NULL. */
struct rs_kernels {
	const char *name;
	bool (*usable)(void); /* both the processor and the operating system (OSXSAVE, XCR0) support it */
	rs_reduce_fn reduce[RS_OP_NR][RS_DTYPE_NR];
	rs_load_fn load[RS_DTYPE_NR];
	rs_store_fn store[RS_DTYPE_NR];
	rs_divide_fn divide[RS_DTYPE_NR];
	rs_nonfinite_fn nonfinite[RS_DTYPE_NR];
	/* by enum rs_wire; src of decode and add begins with a block */
	rs_encode_fn encode[RS_WIRE_NR];
	rs_encode_random_fn encode_random[RS_WIRE_NR];
	rs_load_fn decode[RS_WIRE_NR];
	rs_reduce_fn add[RS_WIRE_NR]; /* acc[i] = acc[i] + decoded src[i] */
};

/* Finds the table named "scalar", "avx2", "avx512" or "neon", or the fastest usable one
 * for "auto". Tables are complete: if an instruction set does not improve a cell, the
 * cell holds the function of the next slower table. Errors: RS_EINVAL with the names that
 * are usable here. Static storage, any thread. */
int rs_kernels_select(const char *name, const struct rs_kernels **ret, struct rs_err *e);

/* Returns the i-th table that this machine can run, slowest first; NULL after the last.
 * For tests and benchmarks. */
const struct rs_kernels *rs_kernels_usable(unsigned i);

#endif
