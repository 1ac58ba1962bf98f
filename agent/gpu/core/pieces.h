/* SPDX-License-Identifier: Apache-2.0 */
/* A record of operations on a device's memory, piece by piece: when each piece was copied
 * out, on the network, and copied in. Without I/O and without a clock. */
#ifndef RS_AGENT_GPU_CORE_PIECES_H
#define RS_AGENT_GPU_CORE_PIECES_H

#include "agent/gpu/core/pipeline.h"

#include <stddef.h>

enum { PIECES_MAX = 1 << 16 }; /* most pieces of a record: 5 MiB */

/* What happens to a piece, in this order. A rank that only sends does not copy in; one
 * that only receives does not copy out. */
enum piece_part {
	PIECE_OUT,     /* copied from the device to the ring */
	PIECE_NETWORK, /* with the backend: from the announcement until its result is in the ring */
	PIECE_IN,      /* copied from the ring to the device */
	PIECE_PARTS,
};

/* A time in nanoseconds of one clock; 0: it has not come. */
struct piece_span {
	uint64_t begin, end;
};

/* One piece. Until pieces_join(), a copy begins when it was queued, or later, when the
 * device had done the work of the caller's stream. */
struct piece {
	uint64_t op; /* number of the operation in the record */
	uint32_t index, bytes;
	unsigned row; /* set by pieces_join: pieces of one row are not in flight at the same time */
	struct piece_span part[PIECE_PARTS];
};

/* A record. Invariants: n <= size; the pieces of an operation stand together until
 * pieces_join(). */
struct pieces {
	size_t size, n;
	uint64_t ops;
	uint64_t dropped; /* pieces that had no room */
	/* Set by pieces_join: the nanoseconds of all copies, and of those while at least
	 * one piece was on the network. */
	uint64_t copies_ns, overlap_ns;
	struct piece piece[];
};

/* Allocates a record for `size` pieces, with its memory touched; the caller frees it with
 * free(). NULL: no memory. */
struct pieces *pieces_new(size_t size);
/* Adds an operation that begins. Returns its first piece, at index 0; NULL: there is no
 * room for all of them. */
struct piece *pieces_add(struct pieces *p, const struct pipeline *of);

/* Ends the record, once. A device does the copies of one direction in order: a copy that
 * was queued behind another one begins when that one ends. So no copy of an operation
 * overlaps another one of the same direction. Pieces are then in the order of their
 * begin, and have rows; those that have not begun are last. Returns false if there is no
 * memory. */
bool pieces_join(struct pieces *p);
/* Returns when a piece began and ended, as far as it is known; both 0: it has not
 * begun. */
struct piece_span pieces_whole(const struct piece *p);

#endif
