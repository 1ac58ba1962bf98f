/* SPDX-License-Identifier: Apache-2.0 */
/* The worker's side of the protocol without any I/O: which chunk goes next on which lane, what arrives where, when
 * an operation is done, when a peer is lost. No locks, no clock, no system calls; a driver (engine_uv.c, the simulator)
 * moves the bytes and tells the time.
 *
 * An exchange has one link for each (reducer, lane). Chunk i of operation q belongs to shard (i + q) mod shards; the
 * configuration says which link a shard lives on. Every link sends the chunks that are its own in the order (seq, chunk),
 * which is therefore the same on all ranks, and has at most `window` chunks without a result.
 *
 * The happy path of a link: connecting -> (driver connected) hello sent -> WELCOME -> joined -> START -> running.
 * REFUSED with retry, or a failed connect, goes back to waiting until the connect deadline. Any other failure of any
 * link ends the whole exchange: every pending operation fails with one sentence, which is also sent as ABORT to the
 * reducers that are still there so that the other ranks hear the cause and not just our silence. */
#ifndef RS_AGENT_EXCHANGE_H
#define RS_AGENT_EXCHANGE_H

#include "common/error.h"
#include "config/config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

/* One collective operation. The first part is set by the submitter, who keeps it valid until done was called. */
struct exchange_op {
	const void *send; /* this rank's contribution: elements of dtype, or float32 when wide */
	void *recv;       /* the result, elements of dtype; may be == send when not wide */
	uint64_t count;
	uint8_t dtype; /* enum rs_dtype */
	uint8_t op;    /* enum rs_op, or FRAME_OP_BROADCAST */
	bool wide;     /* send holds float32 partial sums of a float16 / bfloat16 operation */
	bool root;     /* of a broadcast: this rank's bytes are the data; recv is not written */
	uint32_t name_hash;
	/* Optional. Called before the bytes of elements [first, first + n) at send are read for the first time: lets the
	 * agent add up its local ranks just in time. */
	void (*fill)(struct exchange_op *op, uint64_t first, uint32_t n);
	/* Optional. The result of elements [first, first + n) stands in recv. */
	void (*landed)(struct exchange_op *op, uint64_t first, uint32_t n);
	/* The end: success with err NULL, or the reason. The exchange does not touch op afterwards. */
	void (*done)(struct exchange_op *op, const struct rs_err *err);
	void *user;

	/* of the exchange */
	struct exchange_op *next;
	uint64_t seq;
	uint32_t chunk_elems;
	uint64_t chunks;      /* in all */
	uint64_t chunks_left; /* without a result */
	uint64_t started_ms;
};

#endif
