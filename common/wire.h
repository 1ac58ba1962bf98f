/* SPDX-License-Identifier: Apache-2.0 */
/* Encodings: how the elements of a chunk are written on the network, apart from the dtype
 * of the operation. The contributions of an operation have one (up), its results have one
 * (down). Reducers decode to float32, sum, and encode the result once.
 *
 *   same   elements of the dtype
 *   bf16   bfloat16
 *   fp8    blocks of 128 elements with a scale, E4M3
 *   int8   blocks of 128 elements with a scale, integers -127 .. 127
 *
 * The layout of blocks is in kernels.h, which has the functions. */
#ifndef RS_COMMON_WIRE_H
#define RS_COMMON_WIRE_H

#include "common/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Frames carry these numbers. */
enum rs_wire { RS_WIRE_SAME = 0, RS_WIRE_BF16 = 1, RS_WIRE_FP8 = 2, RS_WIRE_INT8 = 3, RS_WIRE_NR };

enum {
	RS_WIRE_BLOCK = 128, /* elements of a block of fp8 and int8; the last one of an operation may be shorter */
	RS_WIRE_SCALE = 2,   /* bytes of a block's scale */
};

/* Returns "same", "bf16", "fp8" or "int8"; "wire?" for an unknown number. Static
 * storage. */
const char *rs_wire_name(unsigned wire);

/* Returns whether `wire` is an encoding of 8 bits, which has blocks. */
static inline bool rs_wire_has_blocks(unsigned wire)
{
	return wire == RS_WIRE_FP8 || wire == RS_WIRE_INT8;
}

/* Returns whether an encoding takes fewer bytes than the dtype's own form, and keeps what
 * sums of it are used for: bf16 for float32; fp8 and int8 for float32, float16 and
 * bfloat16; only sum and avg. RS_WIRE_SAME is always true. */
bool rs_wire_fits(unsigned wire, unsigned dtype, unsigned op);

/* Returns the bytes of n elements, beginning with a block. */
static inline size_t rs_wire_bytes(unsigned wire, size_t dtype_size, size_t n)
{
	if (wire == RS_WIRE_SAME)
		return n * dtype_size;
	if (wire == RS_WIRE_BF16)
		return n * 2;
	return n + (n + RS_WIRE_BLOCK - 1) / RS_WIRE_BLOCK * RS_WIRE_SCALE;
}

#endif
