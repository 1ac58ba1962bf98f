/* SPDX-License-Identifier: Apache-2.0 */
/* The copies of a piece of a sharded operation, without I/O. In the ring its chunks stand
 * in their order, which takes all parts in turn; in the device's memory each part is in
 * one place. So a piece is several copies. Only a reduce-scatter's input and an
 * all-gather's result have the parts of all ranks; their other buffer has the own part
 * alone, and other chunks are not copied. */
#ifndef RS_AGENT_GPU_CORE_SHARDS_H
#define RS_AGENT_GPU_CORE_SHARDS_H

#include "proto/operation.h"

/* The copies between one buffer of an operation and a piece of its ring that are still to
 * be returned. Invariant: next <= end. */
struct shards {
	const struct operation *of;
	uint32_t chunk_elems;
	bool own_only; /* the buffer has the part `own` alone */
	uint32_t own;
	uint64_t first, next, end; /* chunks: of the piece, of the rest */
};

/* One copy, in bytes. */
struct shards_copy {
	uint64_t at;    /* in the buffer */
	uint64_t place; /* in the piece */
	uint64_t bytes;
};

/* Returns the one copy of bytes [at, at + bytes) of a ring where all parts stand as in
 * the device's memory; bytes 0: there is none. own_only and own: as above. */
struct shards_copy shards_in_order(const struct operation *of, bool own_only, uint32_t own, uint64_t at,
				   uint64_t bytes);

/* Begins with the piece of bytes [at, at + bytes) in the ring's order (operation_staged),
 * which are whole chunks. The caller has set the members up to `own`. */
void shards_begin(struct shards *s, uint64_t at, uint64_t bytes);
/* Returns the next copy; false: there is none. Chunks that are neighbours in the piece
 * and in the buffer are one copy. */
bool shards_next(struct shards *s, struct shards_copy *ret);

#endif
