/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/fake_ops.h"

#include "common/dtype.h"

#include <check.h>
#include <stdlib.h>

static void on_done(struct exchange_op *op, const struct rs_err *err)
{
	struct fake_op *o = op->user;

	o->done++;
	if (err)
		o->err = *err;
}

static void on_fill(struct exchange_op *op, uint64_t first, uint32_t n)
{
	struct fake_op *o = op->user;

	ck_assert_uint_le(first + n, op->of.count);
	o->filled += n;
}

static void on_landed(struct exchange_op *op, uint64_t first, uint32_t n)
{
	struct fake_op *o = op->user;

	ck_assert_uint_le(first + n, op->of.count);
	o->landed += n;
}

void ops_submit(struct reducers *f, struct fake_op *o, struct exchange_op op)
{
	struct rs_err e = {0};

	*o = (struct fake_op){.op = op};
	o->op.of.size = rs_dtype_size(op.of.dtype) & OPERATION_SIZE;
	o->op.done = on_done;
	o->op.fill = on_fill;
	o->op.landed = on_landed;
	o->op.user = o;
	ck_assert_msg(exchange_submit(f->x, &o->op, f->now_ms, &e) == 0, "%s", e.msg);
}

void ops_submit_floats(struct reducers *f, struct fake_op *o, const float *send, float *recv, uint64_t count)
{
	ops_submit(f, o, (struct exchange_op){.send = send, .recv = recv, .of.count = count, .of.dtype = RS_FLOAT32});
}

float *ops_numbers(size_t n)
{
	float *x = malloc(n * sizeof *x + 1);

	for (size_t i = 0; i < n; i++)
		x[i] = (float)(i % 1000) + 1;
	return x;
}

void ops_expect_tripled(const float *x, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (x[i] != 3 * ((float)(i % 1000) + 1)) /* Check writes a file at every assertion */
			ck_abort_msg("element %zu is %g", i, x[i]);
}
