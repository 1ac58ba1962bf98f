/* SPDX-License-Identifier: Apache-2.0 */
/* A slot: one chunk that is being summed, from its first contribution to the last sent
 * byte of its result. */
#ifndef RS_SERVER_CORE_SLOT_H
#define RS_SERVER_CORE_SLOT_H

#include "common/kernels/kernels.h"
#include "proto/frame.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SLOT_SETS = 6 }; /* bit sets of a slot */

/* How far the sum of a group is on its way to the home of its chunk. */
enum slot_uplink {
	SLOT_UPLINK_NONE,   /* ranks are missing, or this reducer is the home */
	SLOT_UPLINK_QUEUED, /* all or the rest of it is to be sent */
	SLOT_UPLINK_SENT,   /* the result of the home is missing */
	SLOT_UPLINK_DONE,
};

/* Invariant: filled <= elems; contributed <= expected; combined <= contributed. If
 * contributed equals `expected`, acc contains the result, or the sum of a group that is
 * on its way, and `unsent` ranks do not have the result yet. */
struct slot {
	struct slot *next;    /* in its chain of the table, or in the free list */
	struct frame header;  /* of the first contribution */
	unsigned first_rank;  /* the rank that sent it */
	uint64_t order;       /* number of chunks of its priority that each rank sends before it */
	uint64_t started_ms;  /* time at which the first contribution started */
	uint64_t started_us;  /* the same in microseconds, see lane_set_us */
	uint64_t full_us;     /* time at which the last contribution was complete */
	uint64_t worked_ns;   /* time for which the lane has worked on it */
	uint32_t elems;       /* elements of this chunk */
	uint32_t filled;      /* elements of the accumulator with a value; later contributions are added to these */
	unsigned expected;    /* ranks that contribute: all, or those of a group */
	unsigned contributed; /* ranks whose contribution is complete */
	unsigned combined;    /* deterministic: the accumulator contains ranks 0 to combined - 1 */
	unsigned have_n;      /* ranks that sent HAVE: they have the result already */
	bool fetching;        /* the rank `fetch_from` was asked for the result */
	unsigned fetch_from;
	bool closed;    /* no further contribution is expected */
	bool waiting;   /* the result is here and waits for the result of an earlier chunk */
	bool ahead;     /* waiting, and far uplinks have got it, or will */
	unsigned roots; /* number of ranks with the ROOT flag */
	unsigned root;  /* the rank with the ROOT flag: it has the elements (broadcast, all-gather) or gets them */
	unsigned unsent;
	bool relay;                 /* this reducer adds one group, for the home of the chunk */
	unsigned group;             /* relay: which one */
	uint32_t home;              /* relay: frame_home() */
	enum slot_uplink uplink;    /* relay */
	struct slot *uplink_next;   /* in the queue of its uplink */
	struct slot *older, *newer; /* in jobs with groups: among slots without a result, by (seq, chunk) */
	uint32_t result_len;        /* bytes of the result's payload */
	uint8_t *acc;               /* accumulator, then the result; 64-byte aligned */
	uint8_t
	    *stash; /* deterministic: the contribution of rank r waits at stash + (r - 1) * stash_stride for its turn */
	uint64_t *started;  /* bit r: rank r has started its contribution */
	uint64_t *complete; /* deterministic, bit r: the contribution of rank r is complete */
	uint64_t *wide;     /* deterministic, bit r: the stash of rank r contains float32 */
	uint64_t *have;     /* bit r: rank r has the result already */
	uint64_t *covered;  /* in jobs with groups, bit r: rank r's contribution has started, here or in its relay */
	uint64_t *early;    /* bit r: the result was queued for the far uplink r before those for ranks */
	uint8_t head[FRAME_HEADER];      /* header of the result, the same for all ranks */
	uint8_t head_root[FRAME_HEADER]; /* the same without payload, for ranks that get none */
};

/* The memory layout of one contribution. It is added in units: elements, or blocks of an
 * encoding, of which the last one of the operation may be shorter. */
struct slot_input {
	size_t size;    /* bytes of a unit on the network */
	uint32_t elems; /* elements of a unit */
	bool direct;    /* the accumulator has the same type, so bytes may be received into it */
};

enum { SLOT_UNIT_MAX = RS_WIRE_BLOCK_BYTES }; /* most bytes of a unit */

/* Returns the bytes of one accumulator element. A broadcast has no accumulation and keeps
 * its own dtype. */
size_t slot_acc_size(const struct slot *s);
/* Returns the layout of a contribution; wide: its elements are float32. */
struct slot_input slot_input_of(const struct slot *s, bool wide);

/* Adds n elements at src to the accumulator, from element pos <= filled of the chunk on.
 * Elements beyond `filled` are stored. wide: src contains float32. With blocks pos is the
 * beginning of one, and n the elements of whole blocks or of the rest of the chunk. */
void slot_add(struct slot *s, const struct rs_kernels *k, uint32_t pos, const void *src, uint32_t n, bool wide);

/* Deterministic: adds the complete contributions from the stash, as far as the order of
 * ranks allows. The contribution of rank 0 is already in the accumulator. stride: bytes
 * of a stash entry. */
void slot_combine(struct slot *s, const struct rs_kernels *k, size_t stride, unsigned world);

/* Turns the sum of all contributions into the result: divides for an average, rounds to
 * the dtype or encodes in place, and encodes the headers. */
void slot_finish(struct slot *s, const struct rs_kernels *k, uint64_t processes, uint64_t stable, bool checksum);

/* Encodes the headers of a result that is in acc, or that all ranks have already. */
void slot_encode_result(struct slot *s, uint64_t stable, bool checksum);

/* Encodes the header of FETCH in the place of the result's header. */
void slot_encode_fetch(struct slot *s, uint64_t stable);

/* Turns the sum of a group into its contribution at the home, in acc: rounds to the
 * dtype, or encodes, unless it stays float32 (wide). `head` and result_len become those
 * of this contribution. */
void slot_finish_partial(struct slot *s, const struct rs_kernels *k, bool wide, bool checksum);

/* Returns whether the chunk of a header comes before that of another one. */
static inline bool slot_is_before(const struct frame *a, const struct frame *b)
{
	return a->of.seq < b->of.seq || (a->of.seq == b->of.seq && a->chunk < b->chunk);
}

/* Compares the identity of the chunk: operation and chunk index. */
static inline bool slot_is(const struct slot *s, uint64_t seq, uint32_t chunk)
{
	return s->header.of.seq == seq && s->header.chunk == chunk;
}

static inline bool slot_bit(const uint64_t *set, unsigned r)
{
	return set[r / 64] >> (r % 64) & 1;
}

static inline void slot_bit_set(uint64_t *set, unsigned r)
{
	set[r / 64] |= UINT64_C(1) << (r % 64);
}

static inline void slot_bit_clear(uint64_t *set, unsigned r)
{
	set[r / 64] &= ~(UINT64_C(1) << (r % 64));
}

#endif
