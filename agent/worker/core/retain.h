/* SPDX-License-Identifier: Apache-2.0 */
/* Retained results: those of the last chunks, for ranks that may lack them when a reducer
 * is lost.
 *
 * Chunks of one priority are numbered over all operations; that number is a chunk's
 * position. No rank sends a chunk that is more than `max_lead` positions beyond its first
 * chunk without a result (stream_within_lead), and a result shows that all ranks have
 * sent the chunk. So a rank that sees the result of position q knows that every rank has
 * the results of all positions below q - max_lead. A ring of max_lead + 1 results for
 * each priority therefore holds everything that a rank can lack, for any number of
 * operations and without acknowledgements.
 *
 * A result is in the ring's own memory, or is lent by its operation, whose memory nobody
 * else may touch before the operation is done. The ring must have dropped a lent result
 * by then without a call: so a result may be lent only if its entry is overwritten by a
 * later chunk of the same operation (retain_overwritten), because that chunk has a result
 * too when the operation is done. A result that is to be sent from here outlives that and
 * is copied first (retain_own).
 *
 * No I/O; one thread. */
#ifndef RS_AGENT_WORKER_CORE_RETAIN_H
#define RS_AGENT_WORKER_CORE_RETAIN_H

#include "common/error.h"
#include "proto/frame.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One retained result. Invariant: data has head.payload_len bytes; the other fields of
 * head are those of its contribution. */
struct retained {
	uint64_t tag; /* position + 1; 0: empty */
	struct frame head;
	const uint8_t *data;
};

/* The retained results of all priorities. Invariant: entry i of a priority is empty or
 * holds a position that is i modulo size. */
struct retain {
	uint64_t size; /* entries of each priority; 0: nothing is retained */
	struct retained *entries;
	uint64_t *sent; /* position + 1 of the last contribution that was sent for this entry */
	uint8_t *data;  /* the ring's own: entry i has `stride` bytes at i * stride */
	size_t stride;
	uint64_t seen[FRAME_PRIORITIES]; /* one more than the highest position whose result began to arrive */
};

/* Returns whether an entry is this rank's contribution to another rank's part of a
 * reduce-scatter, and no result. */
static inline bool retained_is_contribution(const struct retained *k)
{
	return operation_is_scatter(&k->head.of) && !(k->head.flags & FRAME_ROOT);
}

/* Allocates memory for results of at most `bytes` bytes and touches it, so that no later
 * call does. Errors: RS_ENOMEM; *r is then empty. */
int retain_init(struct retain *r, unsigned priorities, uint64_t max_lead, size_t bytes, struct rs_err *e);
void retain_close(struct retain *r);
/* Returns the bytes that the results of these priorities can take. */
uint64_t retain_bytes(const struct retain *r, unsigned priorities);
/* Forgets all results: positions begin at 0 again. */
void retain_clear(struct retain *r, unsigned priorities);

/* The contribution of a position is about to be read. Returns true the first time. */
bool retain_mark_sent(struct retain *r, unsigned priority, uint64_t position);
/* The result of a position begins to arrive. No rank lacks the previous result of its
 * entry any more. Returns the ring's own memory for the new one. */
uint8_t *retain_reserve(struct retain *r, unsigned priority, uint64_t position);
/* The result is complete at data: in the ring's own memory, or elsewhere if
 * retain_overwritten allows it. */
void retain_store(struct retain *r, unsigned priority, uint64_t position, const struct frame *of, uint32_t bytes,
		  const uint8_t *data);
/* Returns whether the entry of a position belongs to another position by the time when
 * all positions below end have results. */
bool retain_overwritten(const struct retain *r, uint64_t position, uint64_t end);
/* Returns the result of a position; NULL: it is not retained. */
const struct retained *retain_find(const struct retain *r, unsigned priority, uint64_t position);
/* The same, after copying its data to the ring's own memory. */
const struct retained *retain_own(struct retain *r, unsigned priority, uint64_t position);
/* Returns a position below which all ranks have all results. */
uint64_t retain_resume_position(const struct retain *r, unsigned priority);

#endif
