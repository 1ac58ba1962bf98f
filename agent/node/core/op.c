/* SPDX-License-Identifier: Apache-2.0 */
/* One operation of a node's local ranks: what they must agree on, and the sum that is
 * their one contribution.
 *
 * With one local rank the exchange works on the client's memory directly. With several,
 * the local sum of a chunk is made just before its bytes are sent (fill), in the order of
 * local ranks, and the result is copied to the other local ranks when it arrives
 * (landed). The sum is made where the first local rank's result will be: fill reads a
 * chunk's inputs for the last time, and its result cannot arrive earlier.
 *
 * Only float16 and bfloat16 need memory of their own (a stage), since they are summed in
 * float32. Their partial sum is rounded to the dtype before it is sent: then a stage
 * holds one chunk, and the node sends as many bytes as one rank would (local_op_rounds).
 * If it is not rounded, or encoded when it is sent, the stage holds the sums. It has at
 * most as many elements as the smallest ring: bytes are not filled before results of that
 * many earlier elements have landed. So local ranks cannot make the agent use more memory
 * than twice what they share with it.
 *
 * Without other nodes (single_worker) the local sum is the result: it is divided and
 * rounded here as reducers would do it (finish), also with one local rank, and a stage
 * needs to hold only one chunk. */
#include "agent/node/core/op.h"
#include "agent/node/core/buffer.h"
#include "agent/node/core/hub_state.h"
#include "agent/node/core/nonfinite.h"
#include "agent/node/core/progress.h"
#include "agent/node/core/sharded.h"
#include "agent/node/core/sum.h"
#include "agent/node/core/text.h"
#include "common/assert.h"
#include "common/dtype.h"

#include <stdlib.h>
#include <string.h>

/* Returns the operation of the exchange_op that the engine was given. */
static struct local_op *local_op_from(struct exchange_op *x)
{
	_Static_assert(offsetof(struct local_op, x) == 0, "x is first");
	return (struct local_op *)x;
}

static void local_op_copy_to_others(struct local_op *op, const char *from, uint64_t first, uint32_t n)
{
	size_t size = op->x.of.size, at = first * size;

	for (unsigned i = 0; n && i < op->job->members_n; i++)
		if (op->part[i].to != from)
			memcpy(op->part[i].to + exchange_ring_offset(at, op->part[i].ring),
			       from + exchange_ring_offset(at, op->x.recv_ring), n * size);
}

static void local_op_on_landed(struct exchange_op *x, uint64_t first, uint32_t n)
{
	struct local_op *op = local_op_from(x);

	if (!x->root) /* the root's node has the data from fill */
		local_op_copy_to_others(op, x->recv, first, n);
	if (op->ring)
		local_op_landed(op, first);
}

/* On the root's node: no result arrives, the data is here. */
static void local_op_fill_broadcast(struct exchange_op *x, uint64_t first, uint32_t n)
{
	local_op_copy_to_others(local_op_from(x), x->recv, first, n);
}

static void local_op_on_done(struct exchange_op *x, const struct rs_err *err)
{
	struct local_op *op = local_op_from(x);
	struct local_hub *h = op->job->hub;

	if (err)
		op->done.err = *err;
	else
		op->done.err.code = 0;
	rs_assert(op->done.owner == op);
	h->ports.post(h->ctx, &op->done);
}

int local_op_new(struct local_op **ret, struct local_job *j, unsigned local_rank, const struct local_submit *s,
		 struct rs_err *e)
{
	size_t bytes = sizeof *j->idle + j->members_n * sizeof j->idle->part[0];
	struct local_op *op = j->idle;

	if (op)
		j->idle = op->next;
	else
		op = malloc(bytes);
	if (!op)
		return rs_oom(e, bytes, "an operation in the agent on %s", j->hub->host);
	memset(op, 0, bytes);
	op->done.kind = LOCAL_EVENT_DONE;
	op->done.owner = op;
	op->job = j;
	op->since_ms = j->hub->now_ms;
	op->first_rank = local_rank;
	op->spec = *s;
	*ret = op;
	return RS_OK;
}

void local_op_free(struct local_op *op)
{
	for (unsigned i = 0; i < op->job->members_n; i++) {
		local_buffer_put(op->part[i].send);
		local_buffer_put(op->part[i].recv);
	}
	local_op_untrack_input(op);
	if (op->stage)
		local_stage_give(&op->job->stages, op->stage, op->stage_bytes);
	op->next = op->job->idle;
	op->job->idle = op;
}

/* Returns what a rank submitted, with the priority that it has among the reducers. */
static struct operation local_op_agreed(const struct local_op *op, const struct local_submit *s)
{
	struct operation of = s->of;

	of.priority = exchange_priority(op->job->cfg->sharding.priorities, &of);
	return of;
}

int local_op_compare(const struct local_op *op, unsigned local_rank, const struct local_submit *s, struct rs_err *e)
{
	struct operation mine = local_op_agreed(op, s), theirs = local_op_agreed(op, &op->spec);
	char me[LOCAL_RANK_TEXT], other[LOCAL_RANK_TEXT];

	return operation_check_same(
	    &(struct operation_call){&mine, local_job_rank_text(op->job, local_rank, me), s->name},
	    &(struct operation_call){&theirs, local_job_rank_text(op->job, op->first_rank, other), op->spec.name}, e);
}

static bool local_op_is_summed(const struct local_op *op)
{
	return (op->job->members_n > 1 || op->job->single_worker) && op->spec.of.op != FRAME_OP_BROADCAST;
}

/* Returns whether contributions to an average of float16 may be sums of nodes, on which
 * all nodes must agree. They are sent as blocks of float16 with a scale, which has any
 * range. As job.wire, this is for large tensors, and blocks with elements of two tensors
 * are avoided. */
static bool local_op_has_partials(const struct local_op *op)
{
	const struct operation *of = &op->spec.of;

	return of->op == RS_AVG && of->dtype == RS_FLOAT16 && !of->up && !of->tensors && !operation_is_small(of) &&
	       op->job->shared && !op->job->one_node && !op->job->cfg->job.exact_partials;
}

/* Returns the bytes of the ring that partial sums need; 0: all of them must be kept at a
 * time. */
static uint64_t local_op_stage_ring(const struct local_op *op)
{
	uint64_t elems = op->ring / op->spec.of.size;

	if (op->job->single_worker || local_op_rounds(op)) /* a chunk is done before the next one starts */
		elems = local_job_span(op->job, &op->spec.of) / op->spec.of.size;
	return elems < op->spec.of.count ? elems * sizeof(float) : 0;
}

size_t local_op_stage(const struct local_op *op)
{
	if (op->spec.of.sharded)
		return local_sharded_stage(op);
	if (!local_op_is_summed(op) || !rs_dtype_is_half(op->spec.of.dtype))
		return 0;
	return local_op_stage_ring(op) ? local_op_stage_ring(op) : op->spec.of.count * sizeof(float);
}

void local_op_prepare(struct local_op *op)
{
	struct exchange_op *x = &op->x;
	unsigned root;

	rs_assert(op->job->members_n > 0 && !x->done);
	x->of = op->spec.of;
	x->partials = local_op_has_partials(op);
	x->name = op->spec.name[0] ? op->spec.name : NULL;
	x->done = local_op_on_done;
	x->send = op->part[0].from;
	x->recv = op->part[0].to;
	x->send_ring = op->part[0].from_ring;
	x->recv_ring = op->part[0].ring;
	if (op->ring)
		local_op_pieces(op);
	if (!x->of.sharded && (op->ring || op->job->members_n > 1))
		x->landed = local_op_on_landed;
	if (x->of.sharded) {
		local_sharded_prepare(op);
	} else if (x->of.op == FRAME_OP_BROADCAST) {
		root = local_job_find_rank(op->job, op->spec.of.root);
		x->root = root < op->job->members_n;
		x->recv = op->part[x->root ? root : 0].to;
		x->send = x->recv;
		x->send_ring = x->recv_ring = op->part[x->root ? root : 0].ring;
		if (op->job->members_n > 1 && x->root)
			x->fill = local_op_fill_broadcast;
	} else if (local_op_is_summed(op)) {
		x->wide = local_op_is_wide(op);
		op->scratch = x->wide ? NULL : op->stage;
		x->send = x->wide ? op->stage : op->part[0].to;
		x->send_ring = x->wide ? local_op_stage_ring(op) : op->part[0].ring;
		x->fill = local_op_fill_sum;
		if (op->job->single_worker && (x->wide || x->of.op == RS_AVG))
			x->finish = local_op_finish_sum;
	}

	local_op_detect_nonfinite(op);
}
