/* SPDX-License-Identifier: Apache-2.0 */
#include "server/core/report.h"

#include "server/core/stripe.h"
#include "server/core/stripe_late.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct lane_count report_difference(const struct lane_count *a, const struct lane_count *b)
{
	return (struct lane_count){
	    .bytes_in = a->bytes_in - b->bytes_in,
	    .bytes_out = a->bytes_out - b->bytes_out,
	    .chunks = a->chunks - b->chunks,
	    .late_ms = a->late_ms - b->late_ms,
	    .waited_ms = a->waited_ms - b->waited_ms,
	    .last_chunks = a->last_chunks - b->last_chunks,
	    .nan_operations = a->nan_operations - b->nan_operations,
	    .infinite_operations = a->infinite_operations - b->infinite_operations,
	    .served_ns = a->served_ns - b->served_ns,
	    .retransmits = a->retransmits - b->retransmits,
	};
}

void lane_count_second(struct lane *l, uint64_t now_ms)
{
	for (struct stripe *st = l->stripes; st; st = st->next)
		for (unsigned r = 0; r < stripe_places(st); r++) {
			struct session *s = st->sessions[r];

			if (!s)
				continue;
			s->second = report_difference(&s->count, &s->second_start);
			s->second_start = s->count;
		}
	l->second_ms = l->rolled_ms ? (uint32_t)(now_ms - l->rolled_ms) : 0;
	l->rolled_ms = now_ms;
}

static uint32_t report_since(uint64_t then_ms, uint64_t now_ms)
{
	uint64_t ms = now_ms > then_ms ? now_ms - then_ms : 0;

	return ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX;
}

static void report_relay(struct lane_report *report, const struct session *s)
{
	struct lane_report_relay *to = &report->relays[report->relays_n++];
	const char *id = strrchr(s->label, ' '); /* "relay r0" */

	*to = (struct lane_report_relay){.reducer = s->relay - 1,
					 .waited_ms = s->count.waited_ms,
					 .second_waited_ms = s->second.waited_ms,
					 .min_rtt_us = s->min_rtt_us};
	snprintf(to->id, sizeof to->id, "%.*s", CONTROL_JOB - 1, id ? id + 1 : s->label);
}

/* Adds the sessions of ranks, and the relays. */
static void report_sessions(struct lane_report *report, const struct stripe *st, uint64_t now_ms)
{
	const struct slot *oldest = st->running && !st->ended ? stripe_oldest(st) : NULL;
	bool relayed = oldest && stripe_is_relayed(st, oldest);

	for (unsigned r = 0; r < stripe_places(st); r++) {
		const struct session *s = st->sessions[r];

		if (!s)
			continue;
		lane_count_add(&report->total, &s->count);
		lane_count_add(&report->second, &s->second);
		if (s->relay) {
			report_relay(report, s);
			continue;
		}
		report->sessions[report->sessions_n++] = (struct lane_report_session){
		    .rank = r,
		    .weight = s->weight,
		    .total = s->count,
		    .second = s->second,
		    .outstanding = s->outstanding,
		    .rtt_us = s->rtt_us,
		    .min_rtt_us = s->min_rtt_us,
		    .silent_ms = report_since(s->last_rx_ms, now_ms),
		    .missing_ms = oldest && stripe_is_missing(st, oldest, r) && !(relayed && stripe_has_relay(st, r))
				      ? report_since(oldest->started_ms, now_ms)
				      : 0,
		};
	}
}

static unsigned report_lost_n(const struct stripe *st)
{
	unsigned n = 0;

	for (unsigned r = 0; r < st->view.n; r++)
		n += st->view.lives[r] % 2;
	return n;
}

static void report_losses(struct lane_report *report, const struct stripe *st, uint64_t now_ms)
{
	for (unsigned r = 0; r < st->view.n; r++) {
		struct lane_report_loss *to = &report->losses[report->losses_n];

		if (st->view.lives[r] % 2 == 0)
			continue;
		*to = (struct lane_report_loss){.index = r, .losses = (st->view.lives[r] + 1) / 2};
		if (st->losses) {
			to->for_ms = now_ms > st->losses[r].at_ms ? now_ms - st->losses[r].at_ms : 0;
			memcpy(to->id, st->losses[r].id, sizeof to->id);
			memcpy(to->why, st->losses[r].why, sizeof to->why);
			to->narrow = st->losses[r].narrow;
			to->empty = st->losses[r].empty;
		}
		report->losses_n++;
	}
}

/* Returns the number of shares that rank 0 has set. */
static unsigned report_shares_n(const struct stripe *st)
{
	return st->view.epoch ? st->view.n : 0;
}

static void report_shares(struct lane_report *report, const struct stripe *st)
{
	unsigned n = report_shares_n(st);

	memcpy(report->shares + report->shares_n, st->view.shares, n * sizeof *report->shares);
	report->shares_n += n;
}

static unsigned report_slots_used(const struct stripe *st)
{
	unsigned n = 0;

	for (unsigned i = 0; i <= st->mask; i++)
		for (const struct slot *s = st->chains[i]; s; s = s->next)
			n++;
	return n;
}

struct lane_report *lane_report_new(const struct lane *l, uint64_t now_ms)
{
	struct lane_report *report;
	size_t stripes = 0, sessions = 0, relays = 0, losses = 0, shares = 0;

	for (const struct stripe *st = l->stripes; st; st = st->next) {
		stripes++;
		sessions += st->attached;
		for (unsigned u = st->p.world_size; u < stripe_places(st); u++)
			relays += st->sessions[u] != NULL;
		losses += report_lost_n(st);
		shares += report_shares_n(st);
	}
	report =
	    malloc(sizeof *report + stripes * sizeof *report->stripes + sessions * sizeof *report->sessions +
		   relays * sizeof *report->relays + losses * sizeof *report->losses + shares * sizeof *report->shares);
	if (!report)
		return NULL;
	*report = (struct lane_report){.second_ms = l->second_ms, .total = l->closed};
	report->stripes = (struct lane_report_stripe *)(report + 1);
	report->sessions = (struct lane_report_session *)(report->stripes + stripes);
	report->relays = (struct lane_report_relay *)(report->sessions + sessions);
	report->losses = (struct lane_report_loss *)(report->relays + relays);
	report->shares = (uint32_t *)(report->losses + losses);
	for (const struct stripe *st = l->stripes; st; st = st->next) {
		struct lane_report_stripe *to = &report->stripes[report->stripes_n++];

		*to = (struct lane_report_stripe){
		    .job = st->p.job,
		    .lane = st->p.lane,
		    .sessions = report->sessions_n,
		    .relays = report->relays_n,
		    .chunks = st->chunks,
		    .encoded = st->encoded,
		    .up = st->up,
		    .down = st->down,
		    .operations = st->operations,
		    .times = st->times,
		    .slots = st->slots_n * st->p.priorities,
		    .slots_used = report_slots_used(st),
		    .reducers = st->view.n,
		    .losses = report->losses_n,
		    .losses_n = report_lost_n(st),
		    .epoch = st->view.epoch,
		    .shares = report->shares_n,
		};
		report_shares(report, st);
		report_losses(report, st, now_ms);
		report_sessions(report, st, now_ms);
		to->sessions_n = report->sessions_n - to->sessions;
		to->relays_n = report->relays_n - to->relays;
	}
	return report;
}

void session_worked(struct session *s, uint64_t ns)
{
	for (unsigned i = 0; i < s->worked_n; i++)
		s->worked[i]->worked_ns += ns / s->worked_n;
	if (s->stripe->trace.to)
		trace_worked(s->stripe->trace.to, ns);
}

void session_served(struct session *s, uint64_t ns)
{
	s->count.served_ns += ns;
}
