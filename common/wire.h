/* SPDX-License-Identifier: Apache-2.0 */
/* Encodings: how the elements of a chunk are written on the network, apart from the dtype
 * of the operation. The contributions of an operation have one (up), its results have one
 * (down). Reducers decode to float32, sum, and encode the result once.
 *
 *   same   elements of the dtype
 *   bf16   bfloat16
 *   fp16   blocks of 128 elements with a scale, float16
 *   fp8    blocks of 128 elements with a scale, E4M3
 *   int8   blocks of 128 elements with a scale, integers -127 .. 127
 *   int4   blocks of 128 elements with a scale, integers -7 .. 7
 *
 * The layout of blocks is in kernels.h, which has the functions. */
#ifndef RS_COMMON_WIRE_H
#define RS_COMMON_WIRE_H

#include "common/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Frames carry these numbers. */
enum rs_wire {
	RS_WIRE_SAME = 0,
	RS_WIRE_BF16 = 1,
	RS_WIRE_FP8 = 2,
	RS_WIRE_INT8 = 3,
	RS_WIRE_FP16 = 4,
	RS_WIRE_INT4 = 5,
	RS_WIRE_NR
};

enum {
	RS_WIRE_BLOCK = 128, /* elements of a block; the last one of an operation may be shorter */
	RS_WIRE_SCALE = 2,   /* bytes of a block's scale */
	/* bytes of the largest block, one of fp16 */
	RS_WIRE_BLOCK_BYTES = RS_WIRE_SCALE + 2 * RS_WIRE_BLOCK,
};

/* Returns "same", "bf16", "fp8", "int8", "fp16" or "int4"; "wire?" for an unknown number.
 * Static storage. */
const char *rs_wire_name(unsigned wire);

/* Returns whether `wire` is an encoding that has blocks. */
static inline bool rs_wire_has_blocks(unsigned wire)
{
	return wire >= RS_WIRE_FP8 && wire < RS_WIRE_NR;
}

/* Returns whether an encoding takes fewer bytes than the dtype's own form, and keeps what
 * sums of it are used for: bf16 and fp16 for float32; fp8, int8 and int4 for float32,
 * float16 and bfloat16; only sum and avg. RS_WIRE_SAME is always true. */
bool rs_wire_fits(unsigned wire, unsigned dtype, unsigned op);

/* Returns whether contributions to an operation may have the encoding: one that fits, or
 * fp16 for averages of float16. These are sums of a node, which may be too large for
 * float16 although the average is not. */
bool rs_wire_fits_up(unsigned wire, unsigned dtype, unsigned op);

/* Returns how many half bytes an element takes, without scales. */
static inline uint32_t rs_wire_half_bytes(unsigned wire, uint32_t dtype_size)
{
	if (wire == RS_WIRE_SAME)
		return 2 * dtype_size;
	if (wire == RS_WIRE_BF16 || wire == RS_WIRE_FP16)
		return 4;
	return wire == RS_WIRE_INT4 ? 1 : 2;
}

/* Returns how many times the bytes of a chunk it may take decoded, in a job with these
 * encodings. A job that has 8 bits in one direction has room for both, so that single
 * operations may have them. */
unsigned rs_wire_decoded(unsigned up, unsigned down);

/* Returns the bytes of n elements, beginning with a block. */
static inline size_t rs_wire_bytes(unsigned wire, size_t dtype_size, size_t n)
{
	size_t codes = (n * rs_wire_half_bytes(wire, (uint32_t)dtype_size) + 1) / 2;

	return rs_wire_has_blocks(wire) ? codes + (n + RS_WIRE_BLOCK - 1) / RS_WIRE_BLOCK * RS_WIRE_SCALE : codes;
}

/* Returns the most bytes that any chunk of a job has on the network, with scales. Both
 * arguments are those of the job: see operation_chunk_elems(). */
uint32_t rs_wire_chunk_most(uint32_t chunk_bytes, uint32_t decoded_bytes);

#endif
