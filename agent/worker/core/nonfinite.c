/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/worker/core/nonfinite.h"
#include "agent/worker/core/exchange_text.h"
#include "agent/worker/core/link.h"
#include "common/dtype.h"
#include "proto/features.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NONFINITE_TELL_MS = 1000 }; /* between two NONFINITE */

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

int nonfinite_fail(struct rs_err *e, const char *did, const struct nonfinite *f, struct exchange_op *op)
{
	char text[160];

	op->nonfinite_is_nan = !strcmp(f->value, "NaN");
	return rs_fail(e, RS_ENONFINITE, "%s %s: element %" PRIu64 " of %s", did, f->value, f->element,
		       op_text(op, text, sizeof text));
}

/* Counts the operation. The first one with NaN is named, without one the first with
 * infinity: a scaled loss may have infinities in good order. */
static void nonfinite_count(struct exchange *x, const struct exchange_op *op, const struct rs_err *what)
{
	struct control_nonfinite *f = &x->found;
	uint64_t of_kind = op->nonfinite_is_nan ? f->nan_operations++ : f->infinite_operations++;

	if (!of_kind && (op->nonfinite_is_nan || !f->nan_operations)) {
		f->seq = op->of.seq;
		snprintf(f->first, sizeof f->first, "%.*s", CONTROL_FOUND - 1, what->msg);
	}
	x->found_new = true;
	x->next_ms = min64(x->next_ms, x->told_ms ? x->told_ms + NONFINITE_TELL_MS : 0);
}

uint64_t exchange_tell_nonfinite(struct exchange *x, uint64_t now_ms)
{
	if (!x->found_new || x->state != EXCHANGE_RUNNING)
		return UINT64_MAX;
	if (x->told_ms && now_ms < x->told_ms + NONFINITE_TELL_MS)
		return x->told_ms + NONFINITE_TELL_MS;
	x->found_new = false;
	x->told_ms = now_ms;
	for (unsigned i = 0; i < x->links_n; i++)
		x->links[i].nonfinite_due = true;
	x->links_changed = true;
	return UINT64_MAX;
}

bool exchange_op_inspect(struct exchange *x, struct exchange_op *op, const void *at, uint64_t first, uint32_t n)
{
	struct rs_err e;

	if (!op->inspect || op->nonfinite_found || !op->inspect(op, at, first, n, &e))
		return true;
	op->nonfinite_found = true;
	nonfinite_count(x, op, &e);
	if (x->params->detect_nonfinite == RS_NONFINITE_LOG) {
		if (x->opt.on_nonfinite)
			x->opt.on_nonfinite(x->opt.user, &e);
		return true;
	}
	x->send_error = e;
	x->next_ms = 0;
	return false;
}
