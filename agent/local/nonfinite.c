/* SPDX-License-Identifier: Apache-2.0 */
/* Which of a node's local ranks sent NaN or infinity. One rank's bytes are looked at as they are. Of several the sum is
 * looked at, which has something of every NaN and infinity in it, and only when it is not finite the ranks' own
 * elements. What the sum does not keep is looked at before it is made: the first rank's bytes where the sum takes their
 * place, and of a maximum or minimum all ranks' bytes, since -infinity is in no maximum. */
#include "agent/local/priv.h"
#include "common/dtype.h"
#include "proto/frame.h"

#include <stdio.h>

static const char *bytes_of(const struct local_side *side, unsigned dtype, uint64_t element)
{
	return side->from + exchange_place(element * rs_dtype_size(dtype), side->from_ring);
}

static bool keeps_all(unsigned op)
{
	return op != RS_MAX && op != RS_MIN;
}

void local_op_suspect(struct local_op *op, const void *sum, uint64_t first, uint32_t n)
{
	const struct exchange_op *x = &op->x;
	unsigned last = op->job->members_n;

	op->suspect = op->job->members_n;
	if (!x->inspect || x->told)
		return;
	if (keeps_all(x->op))
		last = bytes_of(&op->side[0], x->dtype, first) == sum ? 1 : 0;
	for (unsigned i = 0; i < last && op->suspect == op->job->members_n; i++)
		if (nonfinite_find(&op->found, op->job->hub->kernels, x->dtype, bytes_of(&op->side[i], x->dtype, first),
				   first, n))
			op->suspect = i;
}

static int blame(const struct local_op *op, unsigned local_rank, const struct nonfinite *f, struct rs_err *e)
{
	char who[LOCAL_WHO], did[LOCAL_WHO + 8];

	snprintf(did, sizeof did, "%s sent", local_job_who(op->job, local_rank, who));
	return nonfinite_fail(e, did, f, &op->x);
}

/* Every local rank's element is finite, the sum is not. */
static int blame_all(const struct local_op *op, const struct nonfinite *f, struct rs_err *e)
{
	char who[LOCAL_WHO], did[LOCAL_WHO + 64];

	snprintf(did, sizeof did, "%s sent finite numbers whose %s is", local_job_all(op->job, who),
		 op->x.op == RS_PROD ? "product" : "sum");
	return nonfinite_fail(e, did, f, &op->x);
}

static int inspect_sum(struct exchange_op *x, const void *at, uint64_t first, uint32_t n, struct rs_err *e)
{
	struct local_op *op = (struct local_op *)x;
	const struct rs_kernels *k = op->job->hub->kernels;
	struct nonfinite in_sum, own;

	if (op->suspect < op->job->members_n)
		return blame(op, op->suspect, &op->found, e);
	if (!keeps_all(x->op) || !nonfinite_find(&in_sum, k, x->wide ? (unsigned)RS_FLOAT32 : x->dtype, at, first, n))
		return RS_OK;
	/* of the first rank only the sum may be left, but then it was looked at before */
	for (unsigned i = bytes_of(&op->side[0], x->dtype, first) == at ? 1 : 0; i < op->job->members_n; i++)
		if (nonfinite_find(&own, k, x->dtype, bytes_of(&op->side[i], x->dtype, in_sum.element), in_sum.element,
				   1))
			return blame(op, i, &own, e);
	return blame_all(op, &in_sum, e);
}

/* The bytes of one local rank: of the only one, or of a broadcast's root. */
static int inspect_one(struct exchange_op *x, const void *at, uint64_t first, uint32_t n, struct rs_err *e)
{
	const struct local_op *op = (const struct local_op *)x;
	struct nonfinite f;

	if (!nonfinite_find(&f, op->job->hub->kernels, x->dtype, at, first, n))
		return RS_OK;
	return blame(op, x->op == FRAME_OP_BROADCAST ? local_op_root(op) : 0, &f, e);
}

void local_op_watch_numbers(struct local_op *op)
{
	if (!nonfinite_wanted(op->job->hub->cfg, op->x.dtype))
		return;
	op->x.inspect = op->x.fill && op->x.op != FRAME_OP_BROADCAST ? inspect_sum : inspect_one;
}
