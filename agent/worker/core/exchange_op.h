/* SPDX-License-Identifier: Apache-2.0 */
/* One operation of an exchange. */
#ifndef RS_AGENT_WORKER_CORE_EXCHANGE_OP_H
#define RS_AGENT_WORKER_CORE_EXCHANGE_OP_H

#include "common/error.h"
#include "config/exchange_params.h"
#include "proto/operation.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct residual;

/* Of a sharded operation of which this rank owns no part. */
#define EXCHANGE_NO_PART UINT32_MAX

/* One operation on this worker. The submitter sets the first part and keeps the struct
 * until done() is called. Invariant between submit and done: chunks_left <= chunks, and
 * chunks_left > 0. */
struct exchange_op {
	const void *send; /* this rank's contribution: elements of dtype, or float32 if wide. Of an all-gather its own
			     part */
	void *recv;       /* the result: elements of dtype. May equal send unless wide. Of a reduce-scatter this rank's
			     own part. Of a sharded operation one may be the own part of the other. Nobody else may
			     write to send or recv before done(), except, in a ring, to places whose results have
			     landed */
	struct operation of; /* the exchange sets its seq */
	bool wide;           /* send holds float32 partial sums of a float16 or bfloat16 operation */
	/* An average of float16, and some nodes of the job have several ranks: all send
	 * contributions as fp16, if the job has encodings. Their sums may be out of
	 * range for float16. */
	bool partials;
	bool root;     /* of a broadcast: this rank sends the data; recv is not written */
	uint32_t part; /* if sharded: the own part, or EXCHANGE_NO_PART */
	/* If sharded: send and recv are one stage, where the chunks stand in their order
	 * (operation_stride). Then it is not wide. False: there are no rings. */
	bool staged;
	const char *name; /* for messages; NULL: none */
	/* Optional. Size of the ring at send or recv in bytes, a multiple of the chunk
	 * size; 0: it is not a ring. */
	uint64_t send_ring, recv_ring;
	/* Optional. Number of elements of send that have been written so far; if sharded,
	 * those of its stage, or UINT64_MAX: all. Chunks beyond it are not sent. Another
	 * thread may increase it; exchange_poke() must follow. NULL: all elements. */
	const _Atomic uint64_t *ready;
	/* Optional. Called before elements [first, first + n) of send are read for the
	 * first time. The agent adds up its local ranks here. */
	void (*fill)(struct exchange_op *op, uint64_t first, uint32_t n);
	/* Optional. Checks the contribution of elements [first, first + n), which is at
	 * `at` in the form in which it is sent, before it is sent for the first time and
	 * after fill(). The error is RS_ENONFINITE and does not end the operation:
	 * job.detect_nonfinite decides. Not called again after it returned an error. */
	int (*inspect)(struct exchange_op *op, const void *at, uint64_t first, uint32_t n, struct rs_err *e);
	/* Optional, only with exchange_options.single_worker. Computes the result of
	 * elements [first, first + n) in recv from the contribution at send. NULL: the
	 * contribution is the result and is in recv already. */
	void (*finish)(struct exchange_op *op, uint64_t first, uint32_t n);
	/* Optional. The result of elements [first, first + n) is in recv. For a root:
	 * their bytes at send are not needed any more. */
	void (*landed)(struct exchange_op *op, uint64_t first, uint32_t n);
	/* The operation has ended: err is NULL on success, else the reason. The exchange
	 * does not use op afterwards. */
	void (*done)(struct exchange_op *op, const struct rs_err *err);
	void *user;

	/* set by the exchange */
	struct exchange_op *next, *prev; /* in the order of seq */
	uint8_t stream;                  /* priority on the connection */
	bool nonfinite_found;            /* inspect() has returned an error */
	bool nonfinite_is_nan;           /* and found NaN, not infinity */
	bool disjoint;                   /* send and recv share no bytes */
	struct residual *residual;       /* NULL: no error feedback */
	uint32_t chunk_elems;
	uint64_t position;    /* number of chunks of earlier operations with the same priority */
	uint64_t chunks;      /* in total */
	uint64_t chunks_left; /* without a result */
	uint64_t started_ms;
};

/* Returns the bytes of the smallest piece in which landed chunks are counted: whole
 * chunks. */
uint64_t exchange_piece_bytes(uint64_t chunk_bytes);
/* Returns the bytes of a ring that does not slow an operation down. */
uint64_t exchange_ring_bytes(const struct exchange_params *p);

/* Returns the offset of byte `at` in a ring of `ring` bytes; ring 0: `at` itself. */
static inline uint64_t exchange_ring_offset(uint64_t at, uint64_t ring)
{
	return ring ? at % ring : at;
}

/* Returns whether this rank is the root of a chunk: the one that has its elements
 * (broadcast, all-gather), or the one that gets them (reduce-scatter). */
static inline bool exchange_op_is_root(const struct exchange_op *op, const struct operation_place *at)
{
	return op->of.sharded ? at->part == op->part : op->root;
}

/* Returns where this rank's contribution to a chunk is. */
static inline const void *exchange_op_sent(const struct exchange_op *op, const struct operation_place *at)
{
	uint64_t first = op->staged ? at->staged : operation_is_gather(&op->of) ? at->offset : at->first;

	return (const char *)op->send +
	       exchange_ring_offset(first * operation_wire_size(&op->of, op->wide), op->send_ring);
}

/* Returns where the result of a chunk belongs. */
static inline uint8_t *exchange_op_result(const struct exchange_op *op, const struct operation_place *at)
{
	uint64_t first = op->staged ? at->staged : operation_is_scatter(&op->of) ? at->offset : at->first;

	return (uint8_t *)op->recv + exchange_ring_offset(first * op->of.size, op->recv_ring);
}

/* Returns the priority of an operation on the connection, 0 .. priorities - 1. Depends
 * only on what is equal on all ranks. Any thread. */
uint8_t exchange_priority(unsigned priorities, const struct operation *of);

/* Checks that the protocol can express the operation. Errors: RS_EINVAL (too many
 * chunks). Any thread. */
int exchange_check(uint32_t chunk_bytes, const struct operation *of, struct rs_err *e);

#endif
