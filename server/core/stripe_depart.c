/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that close their communicator: may a rank depart now, and what becomes of the
 * chunks that do not need it? */
#include "server/core/stripe_depart.h"
#include "server/core/retained.h"
#include "server/core/stripe_stable.h"
#include "server/core/stripe_view.h"

bool stripe_needs_rank(const struct stripe *st, unsigned rank, uint64_t ack)
{
	unsigned holder;

	if (!st->p.retain && st->sessions[rank]->outstanding)
		return true;
	/* a rank of a job that fails over departs when all ranks have its results, so
	 * chunks below its ack do not matter; nor do results that were asked for in an
	 * earlier view, see retained_fetch() */
	for (unsigned i = 0; i <= st->mask; i++)
		for (const struct slot *slot = st->chains[i]; slot; slot = slot->next)
			if (st->p.retain ? (slot->header.of.seq >= ack && slot->contributed < slot->expected) ||
					       (slot->fetching && st->view_number == st->resumed_view &&
						!retained_find_holder(st, slot, rank, &holder))
					 : stripe_is_absent(st, slot, rank))
				return true;
	return false;
}

bool stripe_is_over(const struct stripe *st, const struct frame *f, uint64_t view)
{
	return st->p.retain && f->of.seq < st->departed_ack &&
	       (f->type == FRAME_HAVE || operation_is_scatter(&f->of) || view != st->view_number);
}

/* Returns the next slot of a priority, in the order of chunks, that became full because a
 * rank departed; NULL: none. */
static struct slot *depart_next_full(const struct stripe *st, unsigned priority)
{
	struct slot *first = NULL;

	for (unsigned i = 0; i <= st->mask; i++)
		for (struct slot *s = st->chains[i]; s; s = s->next)
			if (s->header.of.priority == priority && s->contributed < s->expected && !s->closed &&
			    stripe_is_full(st, s) && (!first || slot_is_before(&s->header, &first->header)))
				first = s;
	return first;
}

void stripe_rank_departed(struct stripe *st, struct session *s, uint64_t ack)
{
	struct slot *slot;

	if (!st->departed || ack < st->departed_ack) {
		st->departed_ack = ack;
		st->departed_rank = s->rank;
	}
	st->departed = true;
	stripe_find_stable(st);
	retained_fetch_again(st, s->rank);
	for (unsigned p = 0; p < st->p.priorities; p++)
		while (!st->ended && (slot = depart_next_full(st, p)))
			retained_complete(st, slot);
	stripe_try_resume(st);
}
