/* SPDX-License-Identifier: Apache-2.0 */
/* The results of the last chunks, for ranks that may lack them when a reducer is lost.
 *
 * Chunks of one priority are counted over all operations: that number is a chunk's position. No rank begins a chunk
 * that is more than `spread` positions beyond the first one that it has no result of (exchange_in_step), and a result
 * says that all ranks have begun the chunk. So whoever sees the result of position q knows that every rank has the
 * results of all positions below q - spread, and a ring of spread + 1 results for each priority holds all that anybody
 * can lack, however many operations they belong to, without any acknowledgement. Results are received into the ring and
 * copied from there: one that is cut off in the middle has not touched the caller's memory, which may still be the
 * contribution.
 *
 * No I/O; one thread. */
#ifndef RS_AGENT_RETAIN_H
#define RS_AGENT_RETAIN_H

#include "common/error.h"
#include "proto/frame.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A result. of: what its contribution said; of.payload_len: bytes of the result. */
struct kept {
	uint64_t place; /* position + 1; 0: nothing is here */
	struct frame of;
	uint8_t *data;
};

/* Invariant: entry i of a priority holds a position that is i modulo size, or nothing. */
struct retain {
	uint64_t size; /* entries of each priority; 0: nothing is retained */
	struct kept *kept;
	uint64_t *begun; /* position + 1 of the last contribution that was begun in this place */
	uint8_t *data;
	uint64_t seen[FRAME_PRIORITIES]; /* one more than the highest position whose result began to arrive */
};

/* Memory for results of at most `bytes`, touched here and not later. Errors: RS_ENOMEM; *r is then empty. */
int retain_init(struct retain *r, unsigned priorities, uint64_t spread, size_t bytes, struct rs_err *e);
void retain_close(struct retain *r);

/* The contribution of a position is about to be read: true when it is so for the first time. */
bool retain_begin(struct retain *r, unsigned priority, uint64_t position);
/* Where the result of a position goes, which begins to arrive; what was there before nobody lacks. */
uint8_t *retain_place(struct retain *r, unsigned priority, uint64_t position);
/* It is complete there. */
void retain_keep(struct retain *r, unsigned priority, uint64_t position, const struct frame *of, uint32_t bytes);
/* NULL when it is not there. */
const struct kept *retain_find(const struct retain *r, unsigned priority, uint64_t position);
/* All ranks have the results of all positions below. */
uint64_t retain_start(const struct retain *r, unsigned priority);

#endif
