/* SPDX-License-Identifier: Apache-2.0 */
/* The results of the last chunks, for ranks that may lack them when a reducer is lost.
 *
 * Chunks of one priority are counted over all operations: that number is a chunk's position. No rank begins a chunk
 * that is more than `spread` positions beyond the first one that it has no result of (exchange_in_step), and a result
 * says that all ranks have begun the chunk. So whoever sees the result of position q knows that every rank has the
 * results of all positions below q - spread, and a ring of spread + 1 results for each priority holds all that anybody
 * can lack, however many operations they belong to, without any acknowledgement.
 *
 * A result stands in the ring's own memory, or is lent by its operation, whose memory nobody else may touch before the
 * operation is done. The ring must have forgotten it by then, without being told: so only a result whose place goes to
 * a later chunk of the same operation may be lent (retain_overwritten), since that chunk has a result as well when the
 * operation is done. What is to be sent from here outlives that, and is copied first (retain_own).
 *
 * No I/O; one thread. */
#ifndef RS_AGENT_CORE_RETAIN_H
#define RS_AGENT_CORE_RETAIN_H

#include "common/error.h"
#include "proto/frame.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A result. of: what its contribution said; of.payload_len: bytes of the result, which stand at data. */
struct retained {
	uint64_t tag; /* position + 1; 0: nothing is here */
	struct frame of;
	const uint8_t *data;
};

/* Invariant: entry i of a priority holds a position that is i modulo size, or nothing. */
struct retain {
	uint64_t size; /* entries of each priority; 0: nothing is retained */
	struct retained *entries;
	uint64_t *sent; /* position + 1 of the last contribution that was begun in this place */
	uint8_t *data;  /* the ring's own: entry i has `stride` bytes at i * stride */
	size_t stride;
	uint64_t seen[FRAME_PRIORITIES]; /* one more than the highest position whose result began to arrive */
};

/* Memory for results of at most `bytes`, touched here and not later. Errors: RS_ENOMEM; *r is then empty. */
int retain_init(struct retain *r, unsigned priorities, uint64_t max_lead, size_t bytes, struct rs_err *e);
void retain_close(struct retain *r);

/* The contribution of a position is about to be read: true when it is so for the first time. */
bool retain_mark_sent(struct retain *r, unsigned priority, uint64_t position);
/* The result of a position begins to arrive; what was in its place before nobody lacks. Returns the ring's own memory
 * for it. */
uint8_t *retain_reserve(struct retain *r, unsigned priority, uint64_t position);
/* It is complete, at data: in the ring's own memory, or, when retain_overwritten says so, elsewhere. */
void retain_store(struct retain *r, unsigned priority, uint64_t position, const struct frame *of, uint32_t bytes,
		  const uint8_t *data);
/* Whether the place of a position has gone to another one by the time when all positions below end have results. */
bool retain_overwritten(const struct retain *r, uint64_t position, uint64_t end);
/* NULL when it is not there. */
const struct retained *retain_find(const struct retain *r, unsigned priority, uint64_t position);
/* The same, and its data is in the ring's own memory. */
const struct retained *retain_own(struct retain *r, unsigned priority, uint64_t position);
/* All ranks have the results of all positions below. */
uint64_t retain_resume_position(const struct retain *r, unsigned priority);

#endif
