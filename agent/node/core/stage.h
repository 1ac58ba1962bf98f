/* SPDX-License-Identifier: Apache-2.0 */
/* Stages: the private memory of a job for float32 partial sums. */
#ifndef RS_AGENT_NODE_CORE_STAGE_H
#define RS_AGENT_NODE_CORE_STAGE_H

#include <stdbool.h>
#include <stddef.h>

struct local_hub;

enum {
	LOCAL_STAGE_CLASSES = 64,
	LOCAL_STAGE_MIN = 1 << 16,   /* bytes of the smallest stage */
	LOCAL_STAGE_LIMIT = 1 << 28, /* bytes of stages of one job; a single operation may exceed it */
};

/* Recycled memory of one job. The size of a stage is the power of two above what was
 * asked for. An idle stage holds the pointer to the next one of its size. Invariant:
 * busy_bytes + idle_bytes <= max(limit, the largest stage in use). */
struct local_stages {
	void *idle[LOCAL_STAGE_CLASSES]; /* by log2 of the size */
	size_t idle_bytes, busy_bytes, limit;
};

/* Returns whether a stage of `bytes` bytes is within the limit. */
bool local_stage_fits(const struct local_stages *s, size_t bytes);
/* Takes a stage of at least `bytes` bytes; NULL: out of memory. */
void *local_stage_take(struct local_stages *s, size_t bytes, const struct local_hub *h);
/* Returns a stage that was taken with the same `bytes`. */
void local_stage_give(struct local_stages *s, void *stage, size_t bytes);
/* Frees all stages; none may be in use. */
void local_stages_close(struct local_stages *s, const struct local_hub *h);

#endif
