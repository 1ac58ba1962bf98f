/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/worker/core/credit.h"

#include "agent/worker/core/link_fail.h"
#include "common/assert.h"
#include "proto/features.h"

void credit_landed(struct link *l, struct stream *s, uint64_t now_ms)
{
	uint32_t bytes = s->ring[s->credited++ & s->mask].bytes;

	rs_assert(l->chunks_in_flight > 0 && l->bytes_in_flight >= bytes);
	l->chunks_in_flight--;
	l->bytes_in_flight -= bytes;
	if (!l->chunks_in_flight)
		load_landed(l, now_ms);
	if (window_result(&l->window, bytes))
		l->wants_signal = l->x->opt.adaptive;
}

void credit_received(struct link *l, uint64_t now_ms)
{
	const struct frame *f = &l->frame;
	struct stream *s = &l->streams[f->of.priority];
	uint32_t added = (uint32_t)f->of.count - s->head;

	if (!(l->features & (FEATURE_DECOUPLED | FEATURE_RELAYS)) || f->of.priority >= l->x->params->priorities) {
		link_violation(l, now_ms, "it sent CREDIT for priority %u, which was not asked for", f->of.priority);
		return;
	}
	if (l->view != l->x->view_number)
		return; /* it is about chunks that are sent again */
	if (added > s->sent - s->head) {
		link_violation(l, now_ms, "it says that it has added %llu chunks of priority %u, this rank has sent %u",
			       (unsigned long long)f->of.count, f->of.priority, s->sent);
		return;
	}
	while (s->credited - s->head < added)
		credit_landed(l, s, now_ms);
	l->x->links_changed |= l->x->held_back;
	l->x->held_back = false;
}
