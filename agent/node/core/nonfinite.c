/* SPDX-License-Identifier: Apache-2.0 */
/* Finds which of a node's local ranks sent NaN or infinity. With one local rank its bytes
 * are checked as they are. With several, the sum is checked, since every NaN and infinity
 * shows in it, and the ranks' own elements only if the sum is not finite. What the sum
 * does not show is checked before it is made: the first rank's bytes if the sum
 * overwrites them, and for a maximum or minimum all ranks' bytes, since a maximum hides
 * -infinity. */
#include "agent/node/core/nonfinite.h"
#include "agent/node/core/hub_state.h"
#include "agent/node/core/parts.h"
#include "agent/node/core/text.h"
#include "common/dtype.h"
#include "proto/frame.h"

#include <stdio.h>

static const char *local_nonfinite_bytes(const struct local_part *side, const struct operation *of, uint64_t element)
{
	return side->from + exchange_ring_offset(element * of->size, side->from_ring);
}

static bool local_nonfinite_in_result(unsigned op)
{
	return op != RS_MAX && op != RS_MIN;
}

void local_op_check_inputs(struct local_op *op, const void *sum, uint64_t first, uint32_t n)
{
	const struct exchange_op *x = &op->x;
	unsigned last = op->job->members_n;

	op->bad_rank = op->job->members_n;
	if (!x->inspect || x->nonfinite_found)
		return;
	if (local_nonfinite_in_result(x->of.op))
		last = local_nonfinite_bytes(&op->part[0], &x->of, first) == sum ? 1 : 0;
	for (unsigned i = 0; i < last && op->bad_rank == op->job->members_n; i++)
		if (nonfinite_find(&op->bad_value, op->job->hub->kernels, x->of.dtype,
				   local_nonfinite_bytes(&op->part[i], &x->of, first), first, n))
			op->bad_rank = i;
}

static int local_nonfinite_fail(struct local_op *op, unsigned local_rank, const struct nonfinite *f, struct rs_err *e)
{
	char who[LOCAL_RANK_TEXT], did[LOCAL_RANK_TEXT + 8];

	snprintf(did, sizeof did, "%s sent", local_job_rank_text(op->job, local_rank, who));
	return nonfinite_fail(e, did, f, &op->x);
}

/* Every local rank's element is finite, but the sum is not. */
static int local_nonfinite_fail_all(struct local_op *op, const struct nonfinite *f, struct rs_err *e)
{
	char who[LOCAL_RANK_TEXT], did[LOCAL_RANK_TEXT + 64];

	snprintf(did, sizeof did, "%s sent finite numbers whose %s is", local_job_ranks_text(op->job, who),
		 op->x.of.op == RS_PROD ? "product" : "sum");
	return nonfinite_fail(e, did, f, &op->x);
}

static int local_nonfinite_inspect_sum(struct exchange_op *x, const void *at, uint64_t first, uint32_t n,
				       struct rs_err *e)
{
	struct local_op *op = (struct local_op *)x;
	const struct rs_kernels *k = op->job->hub->kernels;
	struct nonfinite in_sum, own;

	if (op->bad_rank < op->job->members_n)
		return local_nonfinite_fail(op, op->bad_rank, &op->bad_value, e);
	if (!local_nonfinite_in_result(x->of.op) ||
	    !nonfinite_find(&in_sum, k, x->wide ? (unsigned)RS_FLOAT32 : x->of.dtype, at, first, n))
		return RS_OK;
	/* the first rank's element may be overwritten by the sum, but then it was checked
	 * before */
	for (unsigned i = local_nonfinite_bytes(&op->part[0], &x->of, first) == at ? 1 : 0; i < op->job->members_n; i++)
		if (nonfinite_find(&own, k, x->of.dtype, local_nonfinite_bytes(&op->part[i], &x->of, in_sum.element),
				   in_sum.element, 1))
			return local_nonfinite_fail(op, i, &own, e);
	return local_nonfinite_fail_all(op, &in_sum, e);
}

/* Checks the bytes of one local rank: of the only one, of a broadcast's root, or of the
 * owner of a part. */
static int local_nonfinite_inspect_one(struct exchange_op *x, const void *at, uint64_t first, uint32_t n,
				       struct rs_err *e)
{
	struct local_op *op = (struct local_op *)x;
	const struct operation *of = &op->spec.of;
	struct nonfinite f;
	unsigned whose = 0;

	if (!nonfinite_find(&f, op->job->hub->kernels, x->of.dtype, at, first, n))
		return RS_OK;
	if (operation_is_gather(of))
		whose = local_sharded_owner(op, f.element);
	else if (of->op == FRAME_OP_BROADCAST)
		whose = local_job_find_rank(op->job, of->root);
	return local_nonfinite_fail(op, whose, &f, e);
}

void local_op_detect_nonfinite(struct local_op *op)
{
	if (!nonfinite_wanted(op->job->cfg->job.detect_nonfinite, op->x.of.dtype))
		return;
	op->x.inspect =
	    op->x.fill && op->x.of.op != FRAME_OP_BROADCAST ? local_nonfinite_inspect_sum : local_nonfinite_inspect_one;
}
