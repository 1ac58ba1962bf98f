/* SPDX-License-Identifier: Apache-2.0 */
#include "server/core/check.h"

#include "server/core/lane_state.h"
#include "server/core/stripe.h"
#include "server/core/uplink.h"

static unsigned check_count(const uint64_t *set, unsigned world_size)
{
	unsigned n = 0;

	for (unsigned i = 0; i < (world_size + 63) / 64; i++)
		n += (unsigned)__builtin_popcountll(set[i]);
	return n;
}

/* Returns whether every rank in `set` is in `of` too. */
static bool check_subset(const uint64_t *set, const uint64_t *of, unsigned world_size)
{
	for (unsigned i = 0; i < (world_size + 63) / 64; i++)
		if (set[i] & ~of[i])
			return false;
	return true;
}

/* A slot in use, without its place in the stripe. */
static const char *slot_check(const struct slot *s, const struct stripe *st)
{
	unsigned world_size = stripe_places(st);

	if (s->filled > s->elems)
		return "a slot has more filled elements than elements";
	if (s->contributed > check_count(stripe_is_grouped(st) ? s->covered : s->started, world_size))
		return "a slot has contributions that never started";
	if (s->combined > s->contributed)
		return "a slot has combined more contributions than are complete";
	if (s->have_n != check_count(s->have, world_size))
		return "a slot's have_n differs from its set `have`";
	if (!check_subset(s->have, s->started, world_size))
		return "a slot's set `have` has a rank that did not start";
	if (!check_subset(s->complete, stripe_is_grouped(st) ? s->covered : s->started, world_size))
		return "a slot's set `complete` has a rank that did not start";
	if (!check_subset(s->wide, stripe_is_grouped(st) ? s->covered : s->started, world_size))
		return "a slot's set `wide` has a rank that did not start";
	if (s->roots > 1)
		return "a slot has two roots";
	if (s->roots && s->root >= world_size)
		return "a slot's root is not a rank";
	if (s->first_rank >= world_size || (s->first_rank < st->p.world_size && !slot_bit(s->started, s->first_rank)))
		return "a slot's first rank did not start";
	if (s->fetching && s->fetch_from >= world_size)
		return "a slot asks for its result, but no rank";
	if (s->fetching && s->waiting)
		return "a slot asks for its result and has it";
	if (s->unsent > world_size)
		return "a slot has more unsent results than ranks";
	if (s->unsent && s->contributed == 0)
		return "a slot sends a result without a contribution";
	return NULL;
}

/* Returns the number of queued results of a session, without FETCH, which no slot counts
 * as unsent. */
static unsigned check_queued(const struct session *s)
{
	unsigned n = 0;

	for (unsigned p = 0; p < s->stripe->p.priorities; p++) {
		const struct session_stream *t = &s->streams[p];

		for (unsigned i = 0; i < t->results_n; i++)
			n += t->results[(t->results_head + i) % s->stripe->slots_n].kind != TX_FETCH;
	}
	return n;
}

/* The retained results that a stripe asks for: `fetching`, and results that wait in line
 * behind them. */
static const char *retained_check(const struct stripe *st)
{
	unsigned fetching[FRAME_PRIORITIES] = {0}, ahead[FRAME_PRIORITIES] = {0};
	uint64_t first[FRAME_PRIORITIES]; /* order of the first chunk that is fetched */

	for (unsigned i = 0; i < st->slots_n * st->p.priorities; i++) {
		const struct slot *s = &st->slots[i];
		unsigned p = i / st->slots_n;

		if (s->fetching && (fetching[p]++ == 0 || s->order < first[p]))
			first[p] = s->order;
		if (s->ahead && (!s->waiting || ++ahead[p] > st->p.window))
			return "a slot that is ahead does not wait, or there are too many";
	}
	for (unsigned p = 0; p < st->p.priorities; p++) {
		if (fetching[p] != st->fetching[p])
			return "a stripe's `fetching` differs from its slots";
		if (ahead[p] != st->ahead[p])
			return "a stripe's `ahead` differs from its slots";
	}
	for (unsigned i = 0; i < st->slots_n * st->p.priorities; i++) {
		const struct slot *s = &st->slots[i];
		unsigned p = i / st->slots_n;

		if (s->waiting && !stripe_is_grouped(st) && (!fetching[p] || first[p] >= s->order))
			return "a result waits, but no earlier chunk is fetched";
	}
	return NULL;
}

/* Each slot is in its chain of the table or in the free list of its priority, once. */
static const char *check_table(const struct stripe *st)
{
	unsigned used = 0, unused = 0, all = st->slots_n * st->p.priorities;

	for (unsigned i = 0; i <= st->mask; i++)
		for (const struct slot *s = st->chains[i]; s; s = s->next) {
			if (++used > all)
				return "a stripe's table has more entries than slots, or a circle";
			if (s->header.of.priority >= st->p.priorities ||
			    (unsigned)(s - st->slots) / st->slots_n != s->header.of.priority)
				return "a slot is in use for another priority than its own";
			if (stripe_chain((struct stripe *)st, s->header.of.seq, s->header.chunk) != &st->chains[i])
				return "a slot is in the wrong chain";
			if (stripe_find_slot((struct stripe *)st, s->header.of.seq, s->header.chunk) != s)
				return "two slots have the same chunk";
		}
	for (unsigned p = 0; p < st->p.priorities; p++)
		for (const struct slot *s = st->free[p]; s; s = s->next) {
			if (++unused > all)
				return "a free list has more entries than slots, or a circle";
			if ((unsigned)(s - st->slots) / st->slots_n != p)
				return "a slot is in the free list of another priority";
			if (s->fetching || s->waiting)
				return "a free slot waits for a result";
		}
	if (used + unused != all)
		return "a slot is neither in use nor free";
	return NULL;
}

/* `stable` and what belongs to it. Holds while the job runs. */
static const char *check_stable(const struct stripe *st)
{
	unsigned at_stable = 0, waiters = 0, present = 0;

	for (unsigned r = 0; r < st->p.world_size; r++) {
		const struct session *s = st->sessions[r];

		if (!s || s->departed)
			continue;
		present++;
		at_stable += s->done == st->stable;
		waiters += s->waits_stable;
		if (s->done < st->stable)
			return "a rank has fewer results than `stable` says";
		if (s->waits_stable && s->done <= st->stable)
			return "a rank waits for what all ranks have";
	}
	if (present && (!at_stable || at_stable != st->at_stable))
		return "a stripe's at_stable differs from its ranks";
	if (waiters > st->stable_waiters)
		return "a stripe's stable_waiters is too small";
	return NULL;
}

static const char *check_sessions(const struct stripe *st)
{
	unsigned attached = 0, queued = 0, unsent = 0;
	const char *broken = NULL;

	for (unsigned r = 0; r < stripe_places(st) && !broken; r++) {
		const struct session *s = st->sessions[r];

		if (!s)
			continue;
		if (s->rank != r || s->stripe != st)
			return "a session is in the place of another rank";
		attached++;
		broken = session_check(s);
		if (!broken)
			queued += check_queued(s);
	}
	if (broken)
		return broken;
	for (unsigned i = 0; i <= st->mask; i++)
		for (const struct slot *s = st->chains[i]; s; s = s->next)
			unsent += s->unsent;
	if (queued != unsent)
		return "the slots have another number of unsent results than the queues";
	return attached > 0 && attached == st->attached ? NULL : "a stripe's `attached` differs from its sessions";
}

const char *stripe_check(const struct stripe *st)
{
	const char *broken = check_table(st);

	if (!broken)
		broken = check_sessions(st);
	if (!broken)
		broken = retained_check(st);
	if (!broken)
		broken = uplinks_check(st);
	if (broken || st->ended || !st->running)
		return broken; /* an ended stripe only sends what is queued */
	for (unsigned i = 0; i <= st->mask && !broken; i++)
		for (const struct slot *s = st->chains[i]; s && !broken; s = s->next)
			broken = slot_check(s, st);
	return broken ? broken : check_stable(st);
}

const char *session_check(const struct session *s)
{
	unsigned outstanding = 0, results = 0;

	for (unsigned p = 0; p < s->stripe->p.priorities; p++) {
		const struct session_stream *t = &s->streams[p];

		if (t->results_n > s->stripe->slots_n || t->results_head >= s->stripe->slots_n)
			return "a session's ring has more results than entries";
		if (t->offered > t->results_n)
			return "a session offers more results than it has";
		if (t->outstanding > s->stripe->p.window)
			return "a session has more chunks than the window";
		if (t->credited > t->added || t->added > t->started)
			return "a session has told of more chunks than were added, or has added more than came";
		outstanding += t->outstanding;
		results += t->results_n;
	}
	if (check_queued(s) > s->outstanding)
		return "a session sends a result for which nothing is outstanding";
	if (s->outstanding != outstanding)
		return "a session's `outstanding` differs from its streams";
	if (s->results_n != results)
		return "a session's results_n differs from its streams";
	if (s->result_off && s->streams[s->partial].results_n == 0)
		return "a partly sent result is not queued";
	if (s->control_off > s->control_len || s->control_len > sizeof s->control)
		return "a session's queue of control frames is out of bounds";
	if (s->draining && s->results_n > 1)
		return "a draining session has results queued";
	if (s->echo_off > s->echo_len)
		return "a session has sent more of its answer to PROBE than it has";
	if (s->probe > SESSION_PROBE_NONE && s->probe < SESSION_PROBE_DONE && (s->stripe->running || s->results_n))
		return "a job has started before large messages have passed";
	if (s->raw_have >= FRAME_HEADER)
		return "a complete header was not handled";
	if (s->carry_n && s->carry_n >= s->input.size)
		return "a complete element was not added";
	if (!s->draining && s->payload_left > s->in.payload_len)
		return "a payload is longer than its frame says";
	return NULL;
}

const char *lane_check(const struct lane *l)
{
	const char *broken = NULL;
	unsigned sessions = 0, ready = 0, listed = 0;

	for (const struct stripe *st = l->stripes; st && !broken; st = st->next) {
		if (st->owner != l)
			return "a stripe belongs to another lane";
		for (unsigned r = 0; r < stripe_places(st); r++) {
			sessions += st->sessions[r] != NULL;
			ready += st->sessions[r] && st->sessions[r]->ready;
		}
		broken = stripe_check(st);
	}
	if (broken)
		return broken;
	for (const struct session *s = l->ready_head; s; s = s->ready_next) {
		if (++listed > sessions)
			return "the list of ready sessions has a circle";
		if (!s->ready)
			return "a session is in the list of ready sessions, and not ready";
		if (!s->ready_next && s != l->ready_tail)
			return "the list of ready sessions ends in another session";
	}
	if (listed != ready)
		return "a ready session is not in the list";
	return NULL;
}
