/* SPDX-License-Identifier: Apache-2.0 */
/* Error feedback: what the encoding of a contribution loses is added to the next
 * contribution of the same name (Seide et al., 1-bit SGD, 2014; Karimireddy et al., Error
 * Feedback Fixes SignSGD, 2019). For each name there is a residual, one float32 for each
 * element.
 *
 * While an operation runs, its residual is the corrected contribution itself. So a chunk
 * that is sent again is encoded from the same values. When the result of a chunk is here,
 * the chunk is never encoded again, and its residual becomes what the encoding has lost:
 * what a reduce-scatter may send again is retained before that.
 *
 * Memory is bounded: an operation that finds no room goes without, unless a residual was
 * not used for long. Not thread-safe; no I/O. */
#ifndef RS_AGENT_WORKER_CORE_FEEDBACK_H
#define RS_AGENT_WORKER_CORE_FEEDBACK_H

#include "common/kernels/kernels.h"
#include "proto/operation.h"

enum { FEEDBACK_CHAINS = 1024 };

/* The residual of one name. Invariant: values has `count` elements; no two residuals have
 * the same name, count, tensors and dtype. */
struct residual {
	struct residual *next; /* in its chain */
	struct operation of;   /* of its first operation */
	uint64_t used;         /* number of the last operation that used it, from 1 */
	bool busy;             /* an operation uses it now */
	float *values;
};

/* All residuals. Invariant: bytes <= limit is the sum over them. */
struct feedback {
	struct residual *chains[FEEDBACK_CHAINS];
	uint64_t limit, bytes; /* limit 0: no feedback */
	uint64_t operations;   /* that asked for a residual */
	unsigned residuals_n;
	uint64_t refused; /* operations that found no room */
	uint64_t unnamed; /* operations that have no name */
};

/* Frees all residuals. */
void feedback_close(struct feedback *f);

/* Returns the residual of an operation, which is busy until feedback_give; NULL: there is
 * none, because the operation has no name, or its residual is busy, or there is no
 * room. */
struct residual *feedback_take(struct feedback *f, const struct operation *of);
static inline void feedback_give(struct residual *r)
{
	r->busy = false;
}

/* Adds the contribution of elements [first, first + n), of dtype, to the residual. They
 * are then the corrected contribution. */
void feedback_correct(struct residual *r, const struct rs_kernels *k, unsigned dtype, const void *from, uint64_t first,
		      uint32_t n);
/* The encoding has left n values of the corrected contribution from `first` on: keeps the
 * difference. Where it is not finite, nothing is kept. */
void feedback_settle(struct residual *r, const float *left, uint64_t first, uint32_t n);

#endif
