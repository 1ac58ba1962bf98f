/* SPDX-License-Identifier: Apache-2.0 */
/* Operations: an operation is checked, numbered and added to the streams of all links.
 * After its last result it is removed. */
#include "agent/worker/core/encoded.h"
#include "agent/worker/core/exchange_text.h"
#include "agent/worker/core/features.h"
#include "agent/worker/core/stream.h"
#include "common/assert.h"
#include "common/dtype.h"
#include "proto/features.h"

#include <stdatomic.h>
#include <stdio.h>

enum { EXCHANGE_PIECE_MIN = 1 << 18 /* least bytes of a piece */ };

uint64_t exchange_piece_bytes(uint64_t chunk_bytes)
{
	return (EXCHANGE_PIECE_MIN + chunk_bytes - 1) / chunk_bytes * chunk_bytes;
}

/* What can be in flight on all links, and some pieces to copy meanwhile. */
uint64_t exchange_ring_bytes(const struct exchange_params *p)
{
	uint64_t lanes = 0;

	for (unsigned r = 0; r < p->reducers_n; r++)
		lanes += p->reducers[r].lanes;
	return lanes * p->ahead * p->chunk_bytes + 8 * exchange_piece_bytes(p->chunk_bytes);
}

uint8_t exchange_priority(unsigned priorities, const struct operation *of)
{
	uint8_t highest = (uint8_t)(priorities - 1);

	/* who gathers needs the parameters at once, and who scatters does not; with
	 * different priorities both go on at the same time */
	if (of->priority == OPERATION_AUTO)
		return operation_is_small(of) || operation_is_gather(of) ? highest : 0;
	return of->priority < highest ? of->priority : highest;
}

int exchange_check(uint32_t chunk_bytes, const struct operation *of, struct rs_err *e)
{
	rs_assert(of->size > 0);
	/* the least decoded_bytes of a job: no job has more chunks */
	if (operation_chunks(of, operation_chunk_elems(of, chunk_bytes, 2 * chunk_bytes)) > UINT32_MAX)
		return rs_fail(e, RS_EINVAL,
			       "%llu elements of %s are more than 2^32 - 1 chunks of %u bytes: use larger chunks",
			       (unsigned long long)of->count, rs_dtype_name(of->dtype), chunk_bytes);
	return RS_OK;
}

/* Returns the bytes that `elems` elements of `size` bytes take, at most those of the ring
 * if there is one. */
static uint64_t exchange_span(uint64_t elems, uint64_t size, uint64_t ring)
{
	return ring ? min64(elems * size, ring) : elems * size;
}

/* Returns whether no result overwrites anything that this rank sends. */
static bool exchange_is_disjoint(const struct exchange_op *op)
{
	uintptr_t send = (uintptr_t)op->send, recv = (uintptr_t)op->recv;
	uint64_t gets = op->of.sharded ? op->of.count / op->of.parts : op->of.count;

	if (op->of.op == FRAME_OP_BROADCAST)
		return true; /* a rank either sends or receives */
	return send + exchange_span(op->of.count, operation_wire_size(&op->of, op->wide), op->send_ring) <= recv ||
	       recv + exchange_span(gets, op->of.size, op->recv_ring) <= send;
}

/* Takes the residual of an operation, and says for the first one without why. */
static void exchange_take_residual(struct exchange *x, struct exchange_op *op)
{
	const struct feedback *f = &x->feedback;
	bool refused = f->refused > 0, unnamed = f->unnamed > 0;
	char text[160], sentence[320];

	op->residual = feedback_take(&x->feedback, &op->of);
	if (!x->opt.no_feedback || (refused == (f->refused > 0) && unnamed == (f->unnamed > 0)))
		return;
	if (!op->of.name_hash)
		snprintf(sentence, sizeof sentence, "%s has no error feedback (job.wire.feedback): it has no name",
			 op_text(op, text, sizeof text));
	else
		snprintf(sentence, sizeof sentence,
			 "%s has no error feedback: the residuals of %u names take %llu bytes, and "
			 "job.wire.feedback is %llu",
			 op_text(op, text, sizeof text), f->residuals_n, (unsigned long long)f->bytes,
			 (unsigned long long)f->limit);
	x->opt.no_feedback(x->opt.user, sentence);
}

/* Checks that the job can do this operation. */
static int sharded_check(const struct exchange *x, const struct exchange_op *op, struct rs_err *e)
{
	if (!op->of.sharded)
		return RS_OK;
	rs_assert(op->staged || (!op->send_ring && !op->recv_ring));
	rs_assert(op->part < op->of.parts || op->part == EXCHANGE_NO_PART);
	rs_assert(!op->wide || (operation_is_scatter(&op->of) && !op->staged));
	if (features_known(x) & FEATURE_SHARDED && !x->opt.single_worker)
		return RS_OK;
	return rs_fail(e, RS_EUNSUPPORTED,
		       "a rank or a reducer of job %s does not know %s: start a newer release everywhere%s", x->job,
		       operation_is_gather(&op->of) ? "all-gather" : "reduce-scatter",
		       x->opt.features & FEATURE_SHARDED ? "" : ", and do not set job.features: baseline");
}

int exchange_check_sharded(const struct exchange *x, struct rs_err *e)
{
	for (const struct exchange_op *op = x->first; op; op = op->next)
		if (sharded_check(x, op, e))
			return e->code;
	return RS_OK;
}

int exchange_submit(struct exchange *x, struct exchange_op *op, uint64_t now_ms, struct rs_err *e)
{
	int rc = exchange_check(x->params->chunk_bytes, &op->of, e);

	if (rc)
		return rc;
	if (x->state >= EXCHANGE_ENDING || x->leaving) {
		if (x->err.code)
			return rs_fail(e, x->err.code, "%s", x->err.msg);
		return rs_fail(e, RS_ECLOSED, "the communicator is closed");
	}

	rc = sharded_check(x, op, e);
	if (rc)
		return rc;
	if (x->opt.single_worker)
		op->of.up = op->of.down = RS_WIRE_SAME; /* nothing is sent */
	op->chunk_elems = operation_chunk_elems(&op->of, x->params->chunk_bytes, x->params->decoded_bytes);
	if (x->features_fixed)
		encoded_choose(x, op);
	rc = operation_is_encoded(&op->of) ? encoded_prepare(x, e) : RS_OK;
	if (rc)
		return rc;
	rs_assert(op->done != NULL);
	op->chunks = op->chunks_left = operation_chunks(&op->of, op->chunk_elems);
	op->stream = exchange_priority(x->params->priorities, &op->of);
	op->position = x->next_position[op->stream];
	x->next_position[op->stream] += op->chunks;
	op->of.seq = x->next_seq++;
	op->nonfinite_found = false;
	op->disjoint = exchange_is_disjoint(op);
	op->residual = NULL;
	if (op->of.up && !op->partials)
		exchange_take_residual(x, op);
	op->started_ms = now_ms;
	late_busy(&x->late, now_ms);
	load_busy(x, now_ms);
	op->next = NULL;
	op->prev = x->last;
	if (x->last)
		x->last->next = op;
	else
		x->first = op;
	x->last = op;
	for (unsigned i = 0; i < x->links_n; i++)
		link_add_op(&x->links[i], op);
	x->links_changed = true;
	if (x->params->op_ms)
		x->next_ms = min64(x->next_ms, now_ms + x->params->op_ms);
	return RS_OK;
}

void exchange_poke(struct exchange *x)
{
	x->links_changed = true;
}

uint64_t exchange_ops_done(const struct exchange *x)
{
	return atomic_load_explicit(&x->ops_done, memory_order_relaxed);
}

void exchange_op_done(struct exchange *x, struct exchange_op *op)
{
	if (op->residual)
		feedback_give(op->residual);
	for (unsigned i = 0; i < x->links_n; i++)
		link_remove_op(&x->links[i], op);
	rs_assert(op->chunks_left == 0 && op->of.seq < x->next_seq);
	rs_assert(op->prev || x->first == op);
	if (op->prev)
		op->prev->next = op->next;
	else
		x->first = op->next;
	if (op->next)
		op->next->prev = op->prev;
	else
		x->last = op->prev;
	for (unsigned i = 0; x->ping_on_done && i < x->links_n; i++)
		x->links[i].ping_due |= x->links[i].ping_on_done;
	x->links_changed |= x->ping_on_done;
	/* only one thread writes; before done(), so that the count is visible to whoever
	 * learns of the end */
	atomic_store_explicit(&x->ops_done, exchange_ops_done(x) + 1, memory_order_relaxed);
	op->done(op, NULL);
}
