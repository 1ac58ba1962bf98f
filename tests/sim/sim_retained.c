/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/sim_retained.h"

#include "agent/worker/core/link.h"
#include "proto/features.h"

static bool is_within(const void *at, const void *memory, size_t bytes)
{
	return (uintptr_t)at - (uintptr_t)memory < bytes;
}

bool retained_within(const struct exchange *x, const void *memory, size_t bytes)
{
	uint64_t entries = x->retain.size * x->params->priorities;

	for (uint64_t i = 0; i < entries; i++)
		if (x->retain.entries[i].tag && is_within(x->retain.entries[i].data, memory, bytes))
			return true;
	for (unsigned i = 0; i < x->links_n; i++) {
		const struct stream *s = &x->links[i].streams[LINK_RETAINED];

		for (uint32_t at = s->head; at != s->tail; at++)
			if (is_within(s->ring[at & s->mask].payload, memory, bytes))
				return true;
	}
	return false;
}

bool retained_sends(const struct exchange *x)
{
	bool sends = x->state == EXCHANGE_RUNNING && !x->leaving;

	for (unsigned i = 0; i < x->links_n; i++)
		sends &= !link_lives(&x->links[i]) ||
			 (x->links[i].state == LINK_RUNNING && x->links[i].view == x->view_number);
	return sends;
}

bool retained_waits(const struct exchange *x, unsigned link)
{
	const struct link *l = &x->links[link];
	bool waits = false;

	for (unsigned p = 0; p < x->params->priorities; p++)
		waits |= l->streams[p].credited != l->streams[p].sent;
	return waits && l->state == LINK_RUNNING && l->view == x->view_number && l->features & FEATURE_DECOUPLED;
}

bool retained_is_ahead(const struct exchange *x, unsigned link)
{
	return x->links[link].chunks_owed > x->links[link].window.most;
}

bool retained_agree(const struct exchange *a, const struct exchange *b)
{
	return a->view_number != b->view_number || a->max_lead == b->max_lead;
}
