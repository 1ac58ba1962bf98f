/* SPDX-License-Identifier: Apache-2.0 */
/* Encoded operations: contributions are encoded when their chunk is pushed, into a stage
 * that holds them until they are sent; results are decoded when they are complete. What
 * is encoded depends only on the operation, the elements and this rank, so a contribution
 * that is sent again after a failover has the same bytes.
 *
 * No I/O; one thread. */
#ifndef RS_AGENT_WORKER_CORE_ENCODED_H
#define RS_AGENT_WORKER_CORE_ENCODED_H

#include "agent/worker/core/link.h"

enum {
	/* Chunks of one stream that are encoded and not sent. Few, so that they stay in
	 * the caches; enough for one system call. */
	ENCODED_STAGE = 8,
};

/* Checks that the job may use encodings, as far as this rank knows. Errors:
 * RS_EREFUSED. */
int encoded_check(const struct exchange *x, struct rs_err *e);
/* The same, and allocates the stages of all links at the first encoded operation. Errors:
 * RS_ENOMEM, RS_EREFUSED. */
int encoded_prepare(struct exchange *x, struct rs_err *e);
/* The features of the job are fixed: chooses the encoding of an operation with partials.
 * It has as many elements in a chunk as before. */
void encoded_choose(const struct exchange *x, struct exchange_op *op);
/* The same for all operations, and prepares for encoded ones that wait already. Errors:
 * as of encoded_prepare. */
int encoded_begin(struct exchange *x, struct rs_err *e);
/* The reducer of a link, which runs `software`, has sent WELCOME. Checks that it knows
 * encodings, if job.wire is set. Errors: RS_EREFUSED. */
int encoded_check_reducer(const struct link *l, const char *software, struct rs_err *e);

/* Returns whether the stage of a stream has room for one more contribution. */
static inline bool encoded_has_room(const struct stream *s)
{
	return s->tail - s->sent < ENCODED_STAGE;
}

/* Elements [first, first + n) of a contribution, which are at `at`. */
struct encoded_part {
	const void *at;
	uint64_t first;
	uint32_t n;
	bool first_time; /* they were not encoded before */
};

/* Encodes a part of op into the place of the stream's next chunk. Returns the place. The
 * stream has room. */
const uint8_t *encoded_contribution(struct link *l, const struct stream *s, const struct exchange_op *op,
				    const struct encoded_part *part);
/* Writes a contribution, which was encoded before, once more to `to`: the same bytes. */
void encoded_repeat(const struct exchange *x, const struct exchange_op *op, const struct encoded_part *part,
		    uint8_t *to);
/* The result of elements [first, first + n) is here, and they are not sent again: keeps
 * what their encoding has lost. */
void encoded_settle(const struct exchange *x, const struct exchange_op *op, uint64_t first, uint32_t n);

/* Returns where a link without retained results receives an encoded result. */
uint8_t *encoded_landing(const struct link *l);
/* Decodes the result of n elements from `from` to `to`, elements of op's dtype. */
void encoded_result(const struct exchange *x, const struct exchange_op *op, void *to, const uint8_t *from, uint32_t n);

#endif
