/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/worker/core/lead.h"

#include "common/assert.h"
#include "common/wire.h"
#include "proto/features.h"

#include <stdlib.h>

size_t lead_retained_bytes(const struct exchange *x)
{
	const struct exchange_params *p = x->params;
	size_t most = rs_wire_chunk_most(p->chunk_bytes, p->decoded_bytes);

	/* float32 partial sums of a node, in a reduce-scatter */
	if (x->opt.processes > 1 && x->opt.features & FEATURE_SHARDED && most < 2 * (size_t)p->chunk_bytes)
		most = 2 * (size_t)p->chunk_bytes;
	return most;
}

uint32_t lead_retained_ring(const struct exchange_params *p, uint32_t ring)
{
	return p->priorities > 2 ? 4 * ring : p->priorities * ring;
}

/* Returns the lead that the configuration gives. */
static uint64_t lead_base(const struct exchange *x)
{
	return exchange_params_lead(x->params, x->params->ahead, x->links_n, x->features & FEATURE_SLOTS);
}

void lead_init(struct exchange *x)
{
	x->max_lead = x->own_lead = lead_base(x);
	x->lead_fixed = false;
}

uint32_t lead_window(const struct link *l)
{
	const struct exchange *x = l->x;
	uint64_t rtt_us = (uint64_t)link_reducer(l)->rtt_ms * 1000;

	if (!(x->features & FEATURE_WINDOWS))
		return x->params->window;
	return exchange_params_window(x->params, rtt_us > l->rtt_us ? rtt_us : l->rtt_us, x->links_n);
}

uint32_t lead_most_window(const struct link *l)
{
	const struct exchange *x = l->x;
	uint32_t wanted = lead_window(l), others = exchange_params_others_window(x->params, x->links_n);

	return (x->features & FEATURE_WINDOWS) && others > wanted ? others : wanted;
}

/* Gives a link, which has nothing in flight, room for more chunks. */
static bool lead_allocate(struct link *l, uint32_t window)
{
	const struct exchange *x = l->x;
	unsigned priorities = x->params->priorities;
	uint32_t ring = 1, retained;
	struct outgoing *all;

	while (ring < window)
		ring *= 2;
	if (ring - 1 <= l->streams[0].mask)
		return true;
	retained = x->retaining ? lead_retained_ring(x->params, ring) : 0;
	all = calloc((size_t)priorities * ring + retained, sizeof *all);
	if (!all)
		return false;
	free(l->outgoing);
	l->outgoing = all;
	for (unsigned p = 0; p < LINK_STREAMS; p++) {
		struct stream *s = &l->streams[p];
		uint32_t entries = p < priorities ? ring : p == LINK_RETAINED ? retained : 0;

		rs_assert(s->head == s->tail);
		if (!entries)
			continue;
		s->head = s->credited = s->sent = s->tail = 0;
		s->ring = all;
		s->mask = entries - 1;
		all += entries;
	}
	return true;
}

int lead_take_window(struct link *l, uint32_t window, struct rs_err *e)
{
	const struct exchange_params *p = l->x->params;

	if (!window) {
		/* a decoupled job on a long link may have room for what the link takes */
		window_widen(&l->window, (uint32_t)min64(lead_window(l), p->ahead));
		return RS_OK;
	}
	if (!(l->features & FEATURE_WINDOWS) || window < p->ahead || window > l->most_window)
		return rs_fail(e, RS_EPROTO,
			       "its START has a window of %u chunks, and this rank's HELLO allows %u to %u", window,
			       p->ahead, l->most_window);
	if (!lead_allocate(l, window))
		return rs_oom(e, 0, "a window of %u chunks", window);
	l->ahead = window;
	window_widen(&l->window, window);
	return RS_OK;
}

/* Makes room for so many retained results, before any is there. */
static int lead_retain(struct exchange *x, uint64_t lead, struct rs_err *e)
{
	if (!x->retaining || x->retain.size > lead) /* it may be larger since an earlier generation */
		return RS_OK;
	retain_close(&x->retain);
	return retain_init(&x->retain, x->params->priorities, lead, lead_retained_bytes(x), e);
}

int lead_fix(struct exchange *x, struct rs_err *e)
{
	struct exchange_params coupled = *x->params;
	uint32_t most = 0, flight = 0;
	uint64_t lead;

	if (x->lead_fixed)
		return RS_OK;
	x->lead_fixed = true;
	for (unsigned i = 0; i < x->links_n; i++) {
		const struct link *l = &x->links[i];
		uint32_t window = l->state == LINK_RUNNING ? l->ahead : lead_window(l);

		most = window > most ? window : most;
		window = l->state == LINK_RUNNING ? l->window.most : lead_window(l);
		flight = window > flight ? window : flight;
	}
	coupled.ahead = coupled.window;
	if (x->params->ahead > x->params->window)
		x->pace = exchange_params_lead(&coupled, flight, x->links_n, x->features & FEATURE_SLOTS);
	lead = exchange_params_lead(x->params, most, x->links_n, x->features & FEATURE_SLOTS);
	if (lead <= x->max_lead)
		return RS_OK;
	if (lead_retain(x, lead, e))
		return e->code;
	x->max_lead = x->own_lead = lead;
	return RS_OK;
}

int lead_settle(struct exchange *x, struct rs_err *e)
{
	uint64_t base = lead_base(x);

	if (base > x->own_lead) {
		if (lead_retain(x, base, e))
			return e->code;
		x->own_lead = base;
	}
	x->max_lead = x->max_lead > base ? x->max_lead : base;
	return RS_OK;
}

bool exchange_is_long(const struct exchange *x, uint64_t *ret_chunks, uint64_t *ret_bytes)
{
	*ret_chunks = x->own_lead;
	*ret_bytes = retain_bytes(&x->retain, x->params->priorities);
	return x->own_lead > lead_base(x);
}

uint32_t lead_to_tell(const struct exchange *x)
{
	return x->own_lead > lead_base(x) ? (uint32_t)x->own_lead : 0;
}

void lead_resume(struct exchange *x, uint32_t lead)
{
	uint64_t base = lead_base(x);

	x->max_lead = lead > base ? min64(lead, x->own_lead) : base;
}
