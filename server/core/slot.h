/* SPDX-License-Identifier: Apache-2.0 */
/* A slot: one chunk being reduced, from its first contribution to the last byte of its result on the wire. */
#ifndef RS_SERVER_CORE_SLOT_H
#define RS_SERVER_CORE_SLOT_H

#include "common/dtype.h"
#include "common/kernels/kernels.h"
#include "proto/frame.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SLOT_SETS = 4 }; /* bit sets of a slot */

/* Invariant: filled <= elems; contributed <= world; combined <= contributed; a slot with contributed == world has its
 * result in acc and `unsent` ranks that have not got it yet. */
struct slot {
	struct slot *next;    /* in its hash chain, or in the free list */
	struct frame header;  /* what is being reduced: the first contribution's header */
	unsigned first_rank;  /* whose header `of` is */
	uint64_t order;       /* how many chunks of its priority each rank sends before it */
	uint64_t started_ms;  /* when the first contribution began */
	uint32_t elems;       /* elements of this chunk */
	uint32_t filled;      /* accumulator elements that hold something; later contributions are added up to here */
	unsigned contributed; /* ranks whose contribution is complete */
	unsigned combined;    /* deterministic: ranks 0..combined-1 are in the accumulator */
	unsigned have_n;      /* of them, ranks that have the result already */
	bool fetching;        /* one of those, `fetch_from`, was asked for it */
	unsigned fetch_from;
	bool closed;    /* all have contributed that will */
	bool waiting;   /* the result is there, but not that of a chunk before it */
	unsigned roots; /* broadcast: ranks that said they are the root */
	unsigned root;  /* broadcast: the rank that did */
	unsigned unsent;
	uint32_t result_len; /* bytes of the result's payload */
	uint8_t *acc;        /* accumulator, then the result; 64-byte aligned */
	uint8_t *stash;     /* deterministic: contribution of rank r at stash + (r - 1) * stride until it is its turn */
	uint64_t *started;  /* bit r: rank r has begun its contribution */
	uint64_t *complete; /* deterministic, bit r: rank r's contribution is complete */
	uint64_t *wide;     /* deterministic, bit r: the stash of rank r holds float32 */
	uint64_t *have;     /* bit r: rank r has the result already */
	uint8_t head[FRAME_HEADER];      /* the result's header, shared by all ranks */
	uint8_t head_root[FRAME_HEADER]; /* the same without payload, for the root of a broadcast */
};

/* What one contribution looks like in memory. */
struct slot_input {
	size_t size; /* bytes of an element on the wire */
	bool direct; /* the accumulator has the same type: bytes may be received into it */
};

/* Bytes of an accumulator element of the operation (a broadcast accumulates nothing). */
size_t slot_acc_size(const struct slot *s);
struct slot_input slot_input_of(const struct slot *s, bool wide);

/* n elements at src, which start at element pos of the chunk, go into the accumulator: added as far as it is filled,
 * stored beyond. pos <= filled. wide: src is float32. */
void slot_add(struct slot *s, const struct rs_kernels *k, uint32_t pos, const void *src, uint32_t n, bool wide);

/* The contributions that rank order allows are combined (deterministic; rank 0 went straight into acc). */
void slot_combine(struct slot *s, const struct rs_kernels *k, size_t stride, unsigned world);

/* All have contributed: divides an average, rounds to the dtype in place and writes the result's headers. */
void slot_finish(struct slot *s, const struct rs_kernels *k, uint64_t processes, uint64_t stable, bool checksum);

/* The result of a chunk that some ranks had already is in acc, or all of them had it: writes the headers. */
void slot_encode_result(struct slot *s, uint64_t stable, bool checksum);

/* Writes the header of FETCH in place of the result's. */
void slot_encode_fetch(struct slot *s, uint64_t stable);

static inline bool slot_bit(const uint64_t *set, unsigned r)
{
	return set[r / 64] >> (r % 64) & 1;
}
static inline void slot_bit_set(uint64_t *set, unsigned r)
{
	set[r / 64] |= UINT64_C(1) << (r % 64);
}

#endif
