/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/node/core/sum.h"
#include "agent/node/core/hub_state.h"
#include "agent/node/core/nonfinite.h"
#include "common/assert.h"
#include "common/dtype.h"

_Static_assert(offsetof(struct local_op, x) == 0, "an exchange_op of the engine is a local_op");

/* Sums of bfloat16 have the range of float32. A product of two values is often out of
 * range, and stays float32. A float16 sum for an average may be out of range although the
 * average is not: see local_op_has_partials() in op.c. The sum for an average of ranks
 * that are all on this node stays float32, since it would be rounded before and after the
 * division. A sum that is encoded is rounded by that, once. Maxima and minima are
 * exact. */
bool local_op_rounds(const struct local_op *op)
{
	unsigned x = op->spec.of.op;

	if (!rs_dtype_is_half(op->spec.of.dtype) || op->job->single_worker)
		return false;
	if (x == RS_MAX || x == RS_MIN)
		return true;
	if (op->job->cfg->job.exact_partials || op->spec.of.up)
		return false;
	return x == RS_SUM || (x == RS_AVG && op->spec.of.dtype == RS_BFLOAT16 && !op->job->one_node);
}

bool local_op_is_wide(const struct local_op *op)
{
	return rs_dtype_is_half(op->spec.of.dtype) && !local_op_rounds(op);
}

void local_op_fill_sum(struct exchange_op *x, uint64_t first, uint32_t n)
{
	struct local_op *op = (struct local_op *)x;
	const struct rs_kernels *k = op->job->hub->kernels;
	const struct local_part *side = op->part;
	size_t at = first * x->of.size;
	char *sent = (char *)(uintptr_t)x->send +
		     exchange_ring_offset(first * operation_wire_size(&x->of, x->wide), x->send_ring);
	char *acc = op->scratch ? op->scratch : sent;

	if (n == 0)
		return;
	rs_assert(first <= x->of.count && n <= x->of.count - first);
	rs_assert(op->job->members_n > 0);
	local_op_check_inputs(op, sent, first, n);
	if (acc != side[0].from + exchange_ring_offset(at, side[0].from_ring))
		k->load[x->of.dtype](acc, side[0].from + exchange_ring_offset(at, side[0].from_ring), n);
	for (unsigned i = 1; i < op->job->members_n; i++)
		k->reduce[x->of.op][x->of.dtype](acc, side[i].from + exchange_ring_offset(at, side[i].from_ring), n);
	if (acc != sent)
		k->store[x->of.dtype](sent, acc, n);
}

void local_op_finish_sum(struct exchange_op *x, uint64_t first, uint32_t n)
{
	struct local_op *op = (struct local_op *)x;
	const struct rs_kernels *k = op->job->hub->kernels;
	char *to = (char *)x->recv + exchange_ring_offset(first * x->of.size, x->recv_ring);
	void *acc = x->wide ? op->stage : to;

	if (x->of.op == RS_AVG)
		k->divide[x->wide ? (unsigned)RS_FLOAT32 : x->of.dtype](acc, op->job->members_n, n);
	if (x->wide)
		k->store[x->of.dtype](to, acc, n);
}
