/* SPDX-License-Identifier: Apache-2.0 */
/* The state of one operation of the local ranks. */
#ifndef RS_AGENT_NODE_CORE_OP_STATE_H
#define RS_AGENT_NODE_CORE_OP_STATE_H

#include "agent/node/core/job_state.h"
#include "agent/worker/core/nonfinite.h"

enum {
	LOCAL_PIECES = 64, /* pieces that can be in flight; a ring has fewer */
};

struct local_buffer;

/* One local rank's part of an operation. */
struct local_part {
	struct local_buffer *send, *recv; /* with a reference; NULL with count 0 */
	const char *from;
	char *to;
	uint64_t filled;          /* elements at `from` that have been written */
	uint64_t from_ring, ring; /* bytes of the rings at `from` and `to`; 0: none */
	_Atomic uint64_t *landed; /* the client's counter that LANDED is about */
};

/* One operation of all local ranks. While it runs, the engine's thread owns x, done.err,
 * left and pieces_landed and reads the other members, except those that only the hub's
 * thread uses: filled, filling and its links. */
struct local_op {
	struct exchange_op x; /* first */
	struct local_event done;
	struct local_job *job;
	struct local_op *next;
	unsigned parts_n;         /* local ranks that have started it */
	uint64_t since_ms;        /* when the first one did */
	unsigned first_rank;      /* its local rank */
	struct local_submit spec; /* its SUBMIT */
	void *stage;
	size_t stage_bytes;
	void *scratch; /* in the stage: float32 sums of the chunk that is filled, if they are rounded; else NULL */
	bool filling;  /* in job->filling */
	struct local_op *next_filling, **filling_at;
	_Atomic uint64_t ready; /* as in exchange_op: what all local ranks have filled; grows while filling */

	uint64_t ring;               /* bytes of the smallest ring of the parts; 0: none */
	uint64_t piece;              /* elements; the last piece has fewer */
	uint32_t left[LOCAL_PIECES]; /* chunks of piece i without a result, at i % LOCAL_PIECES */
	uint64_t pieces_landed;      /* pieces with none left, counted from the first */
	_Atomic uint64_t landed;     /* elements of these */
	_Atomic bool event_posted;   /* `progress` is on its way to the hub */
	struct local_event progress;
	unsigned bad_rank; /* local rank with a NaN or infinity in the chunk that is being filled; members_n: none */
	struct nonfinite bad_value;
	struct local_part part[]; /* by local rank */
};

#endif
