/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/worker/core/nonfinite.h"
#include "agent/worker/core/exchange_text.h"
#include "common/dtype.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

bool nonfinite_wanted(int detect, unsigned dtype)
{
	return detect != RS_NONFINITE_OFF && (rs_dtype_is_half(dtype) || dtype == RS_FLOAT32 || dtype == RS_FLOAT64);
}

static const char *nonfinite_name(const struct rs_kernels *k, unsigned dtype, const void *at)
{
	double d;
	float f;

	if (dtype == RS_FLOAT64) {
		memcpy(&d, at, sizeof d);
	} else {
		k->load[dtype](&f, at, 1);
		d = (double)f;
	}
	if (isnan(d))
		return "NaN";
	return d > 0 ? "infinity" : "-infinity";
}

bool nonfinite_find(struct nonfinite *ret, const struct rs_kernels *k, unsigned dtype, const void *at, uint64_t first,
		    uint32_t n)
{
	size_t i = k->nonfinite[dtype](at, n);

	if (i == n)
		return false;
	ret->element = first + i;
	ret->value = nonfinite_name(k, dtype, (const char *)at + i * rs_dtype_size(dtype));
	return true;
}

int nonfinite_fail(struct rs_err *e, const char *did, const struct nonfinite *f, const struct exchange_op *op)
{
	char text[160];

	return rs_fail(e, RS_ENONFINITE, "%s %s: element %" PRIu64 " of %s", did, f->value, f->element,
		       op_text(op, text, sizeof text));
}

bool exchange_op_inspect(struct exchange *x, struct exchange_op *op, const void *at, uint64_t first, uint32_t n)
{
	struct rs_err e;

	if (!op->inspect || op->nonfinite_found || !op->inspect(op, at, first, n, &e))
		return true;
	op->nonfinite_found = true;
	if (x->params->detect_nonfinite == RS_NONFINITE_LOG) {
		if (x->opt.on_nonfinite)
			x->opt.on_nonfinite(x->opt.user, &e);
		return true;
	}
	x->inspect_error = e;
	x->next_ms = 0;
	return false;
}
