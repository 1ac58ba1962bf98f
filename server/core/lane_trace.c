/* SPDX-License-Identifier: Apache-2.0 */
/* The trace of a lane: which operations of which stripes are recorded, and when it ends.
 * While there is none, a chunk costs a branch for each event. */
#include "server/core/lane_trace.h"

#include "server/core/stripe.h"

/* Returns the lowest number of an operation of which no rank has begun a chunk in this
 * stripe. */
static uint64_t trace_next(const struct stripe *st)
{
	uint64_t next = 0;

	for (unsigned r = 0; r < st->p.world_size; r++)
		for (unsigned p = 0; st->sessions[r] && p < st->p.priorities; p++) {
			const struct session_stream *t = &st->sessions[r]->streams[p];

			if (t->started && t->next_seq >= next)
				next = t->next_seq + 1;
		}
	return next;
}

static void trace_begin_stripe(struct stripe *st, struct trace *t, unsigned range)
{
	const struct trace_range *r = &t->ranges[range];
	uint64_t next = trace_next(st);
	int source = trace_add_source(t, range, st->p.lane, st->p.world_size, next);

	if (source < 0)
		return;
	t->missed |= next > r->from;
	st->trace = (struct stripe_trace){
	    .to = t, .from = r->from, .until = r->from + t->operations, .source = (uint16_t)source};
}

void lane_trace_begin(struct lane *l, struct trace *t)
{
	l->trace = t;
	for (unsigned i = 0; i < t->ranges_n; i++)
		for (struct stripe *st = l->stripes; st; st = st->next)
			if (st->p.job == t->ranges[i].id)
				trace_begin_stripe(st, t, i);
}

/* Returns whether a source has nothing more to record. */
static bool trace_source_done(struct lane *l, const struct trace_source *s)
{
	const struct trace_range *r = &l->trace->ranges[s->range];
	const struct stripe *st = stripe_find(l, r->id, s->lane);

	/* "stable": all ranks have the results of all operations below */
	return !st || st->ended || st->stable >= st->trace.until;
}

bool lane_trace_done(struct lane *l)
{
	struct trace *t = l->trace;
	unsigned done = 0;

	for (unsigned i = 0; i < t->sources_n; i++) {
		if (!trace_source_done(l, &t->sources[i]))
			continue;
		t->done |= 1u << t->sources[i].range;
		done++;
	}
	return t->missed || done == t->sources_n;
}

struct trace *lane_trace_end(struct lane *l)
{
	struct trace *t = l->trace;

	for (struct stripe *st = l->stripes; st; st = st->next)
		st->trace.to = NULL;
	l->trace = NULL;
	return t;
}

void stripe_record(struct stripe *st, enum trace_kind kind, uint64_t seq, uint32_t chunk, unsigned rank, uint32_t bytes)
{
	if (seq < st->trace.from || seq >= st->trace.until)
		return;
	trace_put(st->trace.to, &(struct trace_record){.at_us = st->owner->now_us,
						       .seq = seq,
						       .chunk = chunk,
						       .bytes = bytes,
						       .rank = (uint16_t)rank,
						       .source = st->trace.source,
						       .kind = kind});
}
