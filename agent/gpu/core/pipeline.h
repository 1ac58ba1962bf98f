/* SPDX-License-Identifier: Apache-2.0 */
/* The pieces of one operation on a device's memory, without I/O: which piece is copied
 * out next, how much has been copied out, which piece is copied in next, and when the
 * operation ends.
 *
 * The operation's bytes pass through a ring in host memory. Piece i has its place at i %
 * places of the ring. The happy path of a piece: its place is free -> it is copied out of
 * the device -> all pieces before it are there too, so it is announced, and may be sent
 * -> its result lands in the same place -> it is copied into the device -> its place is
 * free. A rank that only receives announces free places; a rank that only sends has free
 * places when results have landed. Failure modes: a copy fails or the operation fails: no
 * further copy starts, and the operation ends when those that were started are
 * complete. */
#ifndef RS_AGENT_GPU_CORE_PIPELINE_H
#define RS_AGENT_GPU_CORE_PIPELINE_H

#include <stdbool.h>
#include <stdint.h>

enum {
	PIPELINE_PLACES = 64, /* most pieces of a ring */
	PIPELINE_DEPTH = 4,   /* copies of one direction that are started at a time: enough to keep the device busy */
};

enum pipeline_direction { PIPELINE_OUT, PIPELINE_IN };

/* Copies of one direction. Pieces [0, complete) are complete, those in [complete,
 * started) that are set in `early` are too. Invariant: complete <= started. */
struct pipeline_side {
	uint64_t started, complete; /* pieces */
	unsigned running;           /* copies that are started and not complete, <= PIPELINE_DEPTH */
	bool early[PIPELINE_PLACES];
};

/* One operation. Invariants: out.started <= in.complete + places, so no place is
 * overwritten before it is free; in.started <= landed pieces; announced and landed only
 * grow, landed <= announced. */
struct pipeline {
	uint64_t bytes, piece;
	uint64_t pieces, places; /* of the operation, of the ring */
	bool sends, receives;
	struct pipeline_side out, in;
	uint64_t announced, landed; /* bytes, from the first on */
	bool landed_all;            /* the operation has ended with success */
	bool failed;                /* no further copy starts */
	bool ended;                 /* by the backend, with success or not */
};

enum pipeline_kind {
	PIPELINE_WAIT,     /* nothing now */
	PIPELINE_COPY_OUT, /* start the copy of [at, at + bytes) to the ring at `offset` */
	PIPELINE_COPY_IN,  /* start the copy of [at, at + bytes) from the ring at `offset` */
	PIPELINE_ANNOUNCE, /* the first `bytes` bytes may be sent, and their results may land */
	PIPELINE_END,      /* the operation has ended and nothing is being copied */
};

/* What to do next. */
struct pipeline_step {
	enum pipeline_kind kind;
	uint64_t piece; /* of a copy */
	uint64_t at, bytes, offset;
};

/* Starts an operation of `bytes` > 0. `piece`: bytes of all pieces but the last; `ring`:
 * whole pieces, at most PIPELINE_PLACES, or at least `bytes`. sends: this rank's bytes
 * are needed; receives: the result is. */
void pipeline_init(struct pipeline *p, uint64_t bytes, uint64_t piece, uint64_t ring, bool sends, bool receives);

/* Returns the number of pieces that are whole in the first `bytes` bytes. */
uint64_t pipeline_pieces(const struct pipeline *p, uint64_t bytes);
/* Returns what to do next; a copy or an announcement counts as done from then on. */
struct pipeline_step pipeline_next(struct pipeline *p);

/* A copy that pipeline_next has returned is complete. In any order. */
void pipeline_copied(struct pipeline *p, enum pipeline_direction direction, uint64_t piece);
/* The results of the first `bytes` bytes are in the ring. */
void pipeline_landed(struct pipeline *p, uint64_t bytes);
/* A copy has failed or cannot be started, or the caller gives up: nothing is started any
 * more. A copy that was started must still complete. */
void pipeline_fail(struct pipeline *p);
/* The backend does not use the ring any more. ok: all results are in the ring. */
void pipeline_end(struct pipeline *p, bool ok);

#endif
