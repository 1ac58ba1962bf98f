/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/worker/core/load.h"

#include "agent/worker/core/features.h"
#include "agent/worker/core/link.h"
#include "proto/features.h"

#include <string.h>

void load_begin(struct load_watch *w)
{
	memset(w, 0, sizeof *w);
	balance_init(&w->balance);
}

/* Returns whether the job may have other shares than those of the map. */
static bool load_matters(const struct exchange *x)
{
	return x->params->rebalance != RS_REBALANCE_OFF && x->retaining && x->features_fixed &&
	       (x->features & FEATURE_SHARES) && x->params->reducers_n > 1;
}

void load_busy(struct exchange *x, uint64_t now_ms)
{
	struct load_watch *w = &x->load;

	if (!w->active_from_ms)
		w->active_from_ms = now_ms;
	if (w->on || !load_matters(x))
		return;
	w->on = true;
	w->from_ms = now_ms;
	w->active_from_ms = now_ms;
	w->active_ms = w->bytes = 0;
	for (unsigned i = 0; i < x->links_n; i++) {
		x->links[i].load.marked = false;
		x->links[i].load.wanted = true;
		x->links[i].load.flying_ms = 0;
	}
	x->next_ms = min64(x->next_ms, now_ms + LOAD_MS);
}

void load_idle(struct load_watch *w, uint64_t now_ms)
{
	if (w->active_from_ms)
		w->active_ms += now_ms - w->active_from_ms;
	w->active_from_ms = 0;
}

uint64_t load_flying_ms(const struct link *l, uint64_t now_ms)
{
	uint64_t from_ms = l->load.flying_from_ms, began_ms = l->x->load.from_ms;

	return l->load.flying_ms + (from_ms ? now_ms - (from_ms > began_ms ? from_ms : began_ms) : 0);
}

void load_landed(struct link *l, uint64_t now_ms)
{
	l->load.flying_ms = load_flying_ms(l, now_ms);
	l->load.flying_from_ms = 0;
}

void load_disturbed(struct exchange *x, uint64_t now_ms)
{
	balance_disturbed(&x->load.balance, now_ms);
}

bool exchange_wants_load(const struct exchange *x, unsigned link)
{
	return x->links[link].load.wanted;
}

void exchange_load(struct exchange *x, unsigned link, uint64_t busy_us, uint64_t now_ms)
{
	struct link *l = &x->links[link];
	uint64_t passed_ms = now_ms - l->load.from_ms, up;

	l->load.wanted = false;
	if (l->load.marked && passed_ms == 0)
		return;
	if (l->load.marked) {
		up = busy_us > l->load.busy_us ? (busy_us - l->load.busy_us) / passed_ms : 0;
		l->load.up = up < BALANCE_PERMIL ? (uint32_t)up : BALANCE_PERMIL;
		l->load.known = true;
		l->load_due = l->state == LINK_RUNNING;
		x->links_changed = true;
	}
	l->load.marked = true;
	l->load.busy_us = busy_us;
	l->load.from_ms = now_ms;
}

int load_received(struct link *l, uint64_t now_ms, struct rs_err *e)
{
	if (l->x->opt.rank || !(l->x->opt.features & FEATURE_SHARES))
		return rs_fail(e, RS_EPROTO, "it sent a LOAD frame, which this rank has not asked for");
	if (control_unpack_load(l->control_in, l->frame.payload_len, &l->load.lane, e))
		return e->code;
	l->load.lane_at_ms = now_ms;
	return RS_OK;
}
