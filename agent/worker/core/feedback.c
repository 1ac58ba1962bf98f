/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/worker/core/feedback.h"

#include "common/assert.h"

#include <math.h>
#include <stdlib.h>

static struct residual **feedback_chain(struct feedback *f, const struct operation *of)
{
	return &f->chains[of->name_hash % FEEDBACK_CHAINS];
}

static bool feedback_is(const struct residual *r, const struct operation *of)
{
	return r->of.name_hash == of->name_hash && r->of.count == of->count && r->of.tensors == of->tensors &&
	       r->of.dtype == of->dtype;
}

static void feedback_drop(struct feedback *f, struct residual **at)
{
	struct residual *r = *at;

	rs_assert(f->residuals_n > 0);
	*at = r->next;
	f->bytes -= r->of.count * sizeof(float);
	f->residuals_n--;
	free(r->values);
	free(r);
}

void feedback_close(struct feedback *f)
{
	for (unsigned i = 0; i < FEEDBACK_CHAINS; i++)
		while (f->chains[i])
			feedback_drop(f, &f->chains[i]);
}

/* Drops residuals that were not used for twice as many operations as there are residuals:
 * a program that uses its names in turn would have used them. */
static void feedback_drop_stale(struct feedback *f)
{
	uint64_t age = 2 * (uint64_t)f->residuals_n;

	for (unsigned i = 0; i < FEEDBACK_CHAINS; i++)
		for (struct residual **at = &f->chains[i]; *at;)
			if (!(*at)->busy && f->operations - (*at)->used > age)
				feedback_drop(f, at);
			else
				at = &(*at)->next;
}

static struct residual *feedback_new(struct feedback *f, const struct operation *of)
{
	struct residual **chain = feedback_chain(f, of), *r;
	uint64_t bytes = of->count * sizeof(float);

	if (of->count > f->limit / sizeof(float))
		return NULL;
	if (bytes > f->limit - f->bytes)
		feedback_drop_stale(f);
	if (bytes > f->limit - f->bytes)
		return NULL;
	r = calloc(1, sizeof *r);
	if (!r)
		return NULL;
	r->values = calloc(of->count, sizeof *r->values);
	if (!r->values) {
		free(r);
		return NULL;
	}
	r->of = *of;
	r->next = *chain;
	*chain = r;
	f->bytes += bytes;
	f->residuals_n++;
	return r;
}

struct residual *feedback_take(struct feedback *f, const struct operation *of)
{
	struct residual *r;

	if (!f->limit || !of->count)
		return NULL;
	if (!of->name_hash) {
		f->unnamed++;
		return NULL;
	}
	f->operations++;
	for (r = *feedback_chain(f, of); r && !feedback_is(r, of); r = r->next)
		continue;
	if (r && r->busy)
		return NULL;
	if (!r)
		r = feedback_new(f, of);
	if (!r) {
		f->refused++;
		return NULL;
	}
	r->busy = true;
	r->used = f->operations;
	return r;
}

void feedback_correct(struct residual *r, const struct rs_kernels *k, unsigned dtype, const void *from, uint64_t first,
		      uint32_t n)
{
	rs_assert(r->busy && first + n <= r->of.count);
	k->reduce[RS_SUM][dtype](r->values + first, from, n);
}

void feedback_settle(struct residual *r, const float *left, uint64_t first, uint32_t n)
{
	float *values = r->values + first;

	rs_assert(r->busy && first + n <= r->of.count);
	for (uint32_t i = 0; i < n; i++) {
		float lost = values[i] - left[i];

		values[i] = isfinite(lost) ? lost : 0;
	}
}
