/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/worker/core/exchange_trace.h"

#include "agent/worker/core/link.h"

#include <stdio.h>

void exchange_trace_begin(struct exchange *x, struct trace *t)
{
	x->trace =
	    (struct exchange_trace){.to = t, .from = t->ranges[0].from, .until = t->ranges[0].from + t->operations};
	for (unsigned i = 0; i < x->links_n; i++) {
		const struct link *l = &x->links[i];

		if (trace_add_source(t, 0, l->lane, x->opt.world_size, x->next_seq) < 0)
			break;
		snprintf(t->sources[i].reducer, sizeof t->sources[i].reducer, "%s", link_reducer(l)->id);
	}
	t->missed = x->next_seq > x->trace.from;
}

void exchange_set_us(struct exchange *x, uint64_t from_us, uint64_t now_us)
{
	x->trace.from_us = from_us;
	x->trace.now_us = now_us;
}

bool exchange_trace_done(struct exchange *x)
{
	const struct exchange_trace *tr = &x->trace;
	bool ended = x->state == EXCHANGE_ENDED;

	if (!ended && !tr->to->missed && (x->next_seq < tr->until || (x->first && x->first->of.seq < tr->until)))
		return false;
	if (!tr->to->missed)
		tr->to->done = 1;
	return true;
}

void exchange_trace_end(struct exchange *x)
{
	x->trace.to = NULL;
}

void link_record(struct link *l, enum trace_kind kind, const struct frame *f)
{
	const struct exchange_trace *tr = &l->x->trace;
	size_t source = (size_t)(l - l->x->links);

	if (f->of.seq < tr->from || f->of.seq >= tr->until || source >= tr->to->sources_n)
		return;
	trace_put(tr->to, &(struct trace_record){.at_us = kind == TRACE_SENDING ? tr->from_us : tr->now_us,
						 .seq = f->of.seq,
						 .chunk = f->chunk,
						 .bytes = f->payload_len,
						 .rank = (uint16_t)l->x->opt.rank,
						 .source = (uint16_t)source,
						 .kind = kind});
}
