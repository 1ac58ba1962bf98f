/* SPDX-License-Identifier: Apache-2.0 */
/* An exchange of one worker, which sums by itself: the submitter's contribution is the
 * whole sum, so reducers would only send it back. The reducers stay connected, watch that
 * the job is alive, and take part in its end. Operations are done chunk by chunk, those
 * of higher priorities first. Failure modes are those of every exchange. */
#include "agent/worker/core/exchange_state.h"
#include "agent/worker/core/nonfinite.h"
#include "common/assert.h"

#include <stdatomic.h>

/* Returns the next chunk; chunks are done in order. */
static uint32_t single_next_chunk(const struct exchange_op *op)
{
	return (uint32_t)(op->chunks - op->chunks_left);
}

static bool single_is_ready(const struct exchange_op *op)
{
	uint32_t chunk = single_next_chunk(op);
	uint64_t end = (uint64_t)chunk * op->chunk_elems + frame_chunk_len(op->of.count, op->chunk_elems, chunk);

	return !op->ready || atomic_load_explicit(op->ready, memory_order_acquire) >= end;
}

/* Returns the oldest operation of the highest priority that has a chunk to do; NULL:
 * none. */
static struct exchange_op *single_most_urgent(const struct exchange *x)
{
	struct exchange_op *best = NULL;

	for (struct exchange_op *op = x->first; op; op = op->next) {
		if ((best && op->stream <= best->stream) || !single_is_ready(op))
			continue;
		best = op;
		if (op->stream + 1u == x->params->priorities)
			break;
	}
	return best;
}

/* Does the next chunk of op. Returns its bytes, counted for all processes. After the last
 * chunk op may be freed. */
static uint64_t single_do_chunk(struct exchange *x, struct exchange_op *op)
{
	uint32_t chunk = single_next_chunk(op), elems = frame_chunk_len(op->of.count, op->chunk_elems, chunk);
	uint64_t first = (uint64_t)chunk * op->chunk_elems, size = operation_wire_size(&op->of, op->wide);
	uint64_t bytes = (uint64_t)elems * op->of.size * x->opt.processes;

	if (elems > 0) {
		if (op->fill)
			op->fill(op, first, elems);
		if (!exchange_op_inspect(x, op,
					 (const char *)op->send + exchange_ring_offset(first * size, op->send_ring),
					 first, elems))
			return 0;
		if (op->finish)
			op->finish(op, first, elems);
		if (op->landed)
			op->landed(op, first, elems);
	}
	rs_assert(op->chunks_left > 0 && op->chunks_left <= op->chunks);
	if (--op->chunks_left == 0)
		exchange_op_done(x, op);
	return bytes;
}

bool exchange_run_single(struct exchange *x, uint64_t bytes)
{
	struct exchange_op *op;
	uint64_t did = 0;
	bool last;

	while (x->opt.single_worker && x->state == EXCHANGE_RUNNING && !x->send_error.code &&
	       (op = single_most_urgent(x))) {
		do {
			if (did >= bytes)
				return true;
			last = op->chunks_left == 1;
			did += single_do_chunk(x, op);
		} while (!last && !x->send_error.code && single_is_ready(op));
	}
	return false;
}
