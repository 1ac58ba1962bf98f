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

/* dst has rs_wire_bytes() bytes: the encoding of n float32 elements, rounded to nearest.
 * dst == src is allowed (encoding in place) */
typedef void (*rs_encode_fn)(void *dst, const void *src, size_t n);
/* As rs_encode_fn, with random rounding: the bits are a hash of `key` and of first + i,
 * the index of the element in its operation */
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
	/* by enum rs_wire, whose elements are float32 in memory; RS_WIRE_SAME: float32 */
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
