/* SPDX-License-Identifier: Apache-2.0 */
/* A stripe while reducers come and go. The happy path: a rank says VIEW; what is new in it goes to all other ranks;
 * from then on nothing of that rank is expected, and nothing is sent to it, until all ranks have said the same view.
 * What the stripe was reducing is forgotten then, and RESUME tells all ranks the position from which they begin again:
 * the largest that one of them named, since all have all results below it (agent/core/retain.h). */
#include "server/core/stripe.h"

#include <string.h>

/* Everything that this rank has begun here it will begin again. */
static void pause(struct session *s)
{
	unsigned outstanding = 0;

	session_forget_results(s);
	for (unsigned p = 0; p < s->stripe->p.priorities; p++) {
		struct session_stream *t = &s->streams[p];

		/* what is left is a result that is partly out, or a question, which nobody counts */
		t->outstanding = t->results_n && t->results[t->results_head].kind != TX_FETCH;
		t->next_seq = t->next_chunk = t->started = 0;
		outstanding += t->outstanding;
	}
	s->outstanding = outstanding;
	s->paused = true;
}

int stripe_take_view(struct stripe *st, struct session *s, const struct control_view *v, struct rs_err *e)
{
	char name[160];

	if (st->view.n && st->view.n != v->n)
		return rs_fail(e, RS_EPROTO, "%s speaks of %u reducers, the others of %u",
			       stripe_rank_name(st, s->rank, name, sizeof name), v->n, st->view.n);
	st->view.n = v->n;
	pause(s);
	s->resume_due = false; /* one that has not gone yet is not for this view */
	s->view = control_view_number(v);
	memcpy(s->start, v->start, sizeof s->start);
	if (control_view_merge(&st->view, v)) {
		st->view_number = control_view_number(&st->view);
		for (unsigned r = 0; r < st->p.world_size; r++) {
			struct session *other = st->sessions[r];

			if (!other || other == s)
				continue;
			other->view_due = true;
			other->resume_due = false;
			session_ready(other);
		}
	}
	if (s->view != st->view_number) {
		s->view_due = true;
		session_ready(s);
	}
	stripe_try_resume(st);
	return RS_OK;
}

/* Does nobody have to wait for this rank? One that has left is none to agree with: whoever sends something that needs
 * it will be told. */
static bool gone(const struct session *s)
{
	return !s || s->departed;
}

bool stripe_is_full(const struct stripe *st, const struct slot *slot)
{
	unsigned n = slot->contributed;

	if (n == st->p.world_size || !st->departed || !st->p.retain || slot->header.seq >= st->departed_ack)
		return n == st->p.world_size;
	for (unsigned r = 0; r < st->p.world_size; r++)
		n += gone(st->sessions[r]) && !slot_bit(slot->started, r);
	return n == st->p.world_size;
}

/* The next of a priority's slots, in line, that has become full without the rank that left. */
static struct slot *full_without(const struct stripe *st, unsigned priority)
{
	struct slot *first = NULL;

	for (unsigned i = 0; i <= st->mask; i++)
		for (struct slot *s = st->chains[i]; s; s = s->next)
			if (s->header.priority == priority && s->contributed < st->p.world_size && s->have_n &&
			    !s->closed && stripe_is_full(st, s) && (!first || s->order < first->order))
				first = s;
	return first;
}

void stripe_rank_departed(struct stripe *st, struct session *s, uint64_t ack)
{
	struct slot *slot;

	if (!st->departed || ack < st->departed_ack)
		st->departed_ack = ack;
	st->departed = true;
	st->departed_rank = s->rank;
	stripe_find_stable(st);
	stripe_refetch(st, s->rank);
	for (unsigned p = 0; p < st->p.priorities; p++)
		while (!st->ended && (slot = full_without(st, p)))
			stripe_complete_retained(st, slot);
	stripe_try_resume(st);
}

static bool all_agree(const struct stripe *st)
{
	for (unsigned r = 0; r < st->p.world_size; r++) {
		const struct session *s = st->sessions[r];

		if ((s && s->results_n) || (gone(s) ? !st->departed : !s->paused || s->view != st->view_number))
			return false;
	}
	return true;
}

void stripe_try_resume(struct stripe *st)
{
	if (!st->running || st->ended || !all_agree(st))
		return;
	stripe_clear(st);
	for (unsigned r = 0; r < st->p.world_size; r++)
		for (unsigned p = 0; !gone(st->sessions[r]) && p < FRAME_PRIORITIES; p++)
			if (st->view.start[p] < st->sessions[r]->start[p])
				st->view.start[p] = st->sessions[r]->start[p];
	for (unsigned r = 0; r < st->p.world_size; r++) {
		struct session *s = st->sessions[r];

		if (gone(s))
			continue;
		s->paused = false;
		s->view_due = false;
		s->resume_due = true;
		session_ready(s);
	}
}
