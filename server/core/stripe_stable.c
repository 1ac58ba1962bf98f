/* SPDX-License-Identifier: Apache-2.0 */
/* Acknowledgements of the ranks, and the lowest of them: the number `stable`, below which
 * every rank has all results.
 */
#include "server/core/stripe_stable.h"
#include "common/assert.h"

/* Returns the acknowledgement of a rank. A departed rank has the results of all
 * operations that it started. */
static uint64_t stripe_done_of(const struct stripe *st, unsigned rank)
{
	const struct session *s = st->sessions[rank];

	return s && !s->departed ? s->done : UINT64_MAX;
}

/* Sends PING to the workers that wait for the others and now have no more than all
 * have. */
static void stripe_notify_stable(struct stripe *st)
{
	for (unsigned r = 0; st->stable_waiters && r < st->p.world_size; r++) {
		struct session *s = st->sessions[r];

		if (!s || !s->waits_stable || s->done > st->stable)
			continue;
		s->waits_stable = false;
		rs_assert(st->stable_waiters > 0);
		st->stable_waiters--;
		s->ping_due = true;
		session_ready(s);
	}
}

void stripe_find_stable(struct stripe *st)
{
	uint64_t least = UINT64_MAX;

	st->at_stable = 0;
	for (unsigned r = 0; r < st->p.world_size; r++) {
		uint64_t done = stripe_done_of(st, r);

		if (done < least) {
			least = done;
			st->at_stable = 0;
		}
		if (done == least)
			st->at_stable++;
	}
	if (least == UINT64_MAX || least <= st->stable)
		return;
	st->stable = least;
	stripe_notify_stable(st);
}

void stripe_acked(struct stripe *st, struct session *s, uint64_t ack)
{
	uint64_t old = s->done;

	if (ack <= old || s->departed)
		return;
	s->done = ack;
	/* the minimum changes only when its last rank leaves it, so most frames do not
	 * compute it */
	rs_assert(st->stable <= old);
	rs_assert(old != st->stable || st->at_stable > 0);
	if (old == st->stable && --st->at_stable == 0)
		stripe_find_stable(st);
}

void stripe_request_stable(struct stripe *st, struct session *s)
{
	st->stable_waiters += !s->waits_stable;
	s->waits_stable = true;
	stripe_find_stable(st);
	stripe_notify_stable(st);
	for (unsigned r = 0; s->waits_stable && r < st->p.world_size; r++) {
		struct session *other = st->sessions[r];

		if (stripe_done_of(st, r) >= s->done)
			continue;
		other->query_due = true;
		session_ready(other);
	}
}
