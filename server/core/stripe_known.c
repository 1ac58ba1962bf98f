/* SPDX-License-Identifier: Apache-2.0 */
/* How a slot's result gets to the ranks, and what happens when some of them have it already: after the loss of a
 * reducer they say HAVE. The happy path is: nobody has it, it goes to all, at once. Else one that has it is asked
 * (FETCH), its answer (KEPT) goes to those that have not, and the results of later chunks wait in line until then,
 * since ranks expect them in the order in which they sent their contributions. */
#include "server/core/stripe.h"

/* Has the rank a session that chunks come and go on? One that has left has all that it sent chunks of. */
static bool takes_part(const struct stripe *st, unsigned rank)
{
	const struct session *s = st->sessions[rank];

	return s && !s->paused && !s->departed;
}

/* Queues the result for all ranks; those that have it already get its header. */
static void queue_result(struct stripe *st, struct slot *slot)
{
	bool broadcast = slot->header.op == FRAME_OP_BROADCAST;

	/* each chunk begins at another rank: else all reducers' results would meet at rank 0's port first */
	for (unsigned i = 0, r = slot->header.chunk % st->p.world_size; i < st->p.world_size; i++) {
		bool has = slot_bit(slot->have, r) || (broadcast && slot->roots && r == slot->root);

		if (takes_part(st, r)) {
			slot->unsent++;
			session_queue_result(st->sessions[r], slot, has ? TX_HEADER : TX_RESULT);
		}
		r = r + 1 < st->p.world_size ? r + 1 : 0;
	}
}

/* The first in line of a priority that is being fetched, or that is held; NULL. */
static struct slot *first_in_line(const struct stripe *st, unsigned priority, bool held)
{
	struct slot *slots = st->slots + (size_t)priority * st->slots_n, *first = NULL;

	for (unsigned i = 0; i < st->slots_n; i++)
		if ((held ? slots[i].waiting : slots[i].fetching) && (!first || slots[i].order < first->order))
			first = &slots[i];
	return first;
}

void stripe_send_result(struct stripe *st, struct slot *slot)
{
	if (st->fetching[slot->header.priority])
		slot->waiting = true;
	else
		queue_result(st, slot);
}

/* What stood behind it in line goes out as well, up to the next one that is not there yet. */
void stripe_retained_complete(struct stripe *st, struct slot *slot)
{
	unsigned p = slot->header.priority;
	struct slot *next;

	slot->fetching = false;
	st->fetching[p]--;
	slot_encode_result(slot, st->stable, st->p.checksum);
	slot->waiting = true;
	while ((next = first_in_line(st, p, true))) {
		const struct slot *missing = first_in_line(st, p, false);

		if (missing && missing->order < next->order)
			return;
		next->waiting = false;
		queue_result(st, next);
	}
}

struct slot *stripe_fetched_slot(struct stripe *st, const struct frame *f, unsigned rank)
{
	struct slot *slot = *stripe_chain(st, f->seq, f->chunk);

	while (slot && (slot->header.seq != f->seq || slot->header.chunk != f->chunk))
		slot = slot->next;
	return slot && slot->fetching && slot->fetch_from == rank ? slot : NULL;
}

bool stripe_find_holder(const struct stripe *st, const struct slot *slot, unsigned besides, unsigned *ret)
{
	unsigned r = slot->header.chunk % st->p.world_size;

	for (unsigned i = 0; i < st->p.world_size; i++) {
		const struct session *s = st->sessions[r];

		if (r != besides && slot_bit(slot->have, r) && s && !s->departed) {
			*ret = r;
			return true;
		}
		r = r + 1 < st->p.world_size ? r + 1 : 0;
	}
	return false;
}

/* Asks one that has the result for it. When they have all left, nobody can have it any more. */
static void fetch(struct stripe *st, struct slot *slot)
{
	struct rs_err why;
	char name[160];

	if (!stripe_find_holder(st, slot, st->p.world_size, &slot->fetch_from)) {
		rs_fail(&why, RS_ECLOSED, "%s closed the communicator while operations were pending",
			stripe_rank_name(st, st->departed_rank, name, sizeof name));
		stripe_fail(st, &why);
		return;
	}
	slot_encode_fetch(slot, st->stable);
	if (takes_part(st, slot->fetch_from))
		session_queue_result(st->sessions[slot->fetch_from], slot, TX_FETCH);
}

void stripe_refetch(struct stripe *st, unsigned rank)
{
	for (unsigned i = 0; i < st->slots_n * st->p.priorities && !st->ended; i++)
		if (st->slots[i].fetching && st->slots[i].fetch_from == rank)
			fetch(st, &st->slots[i]);
}

/* All ranks have said DATA or HAVE. Who has the result is asked for it, if somebody has not: no two ranks may end with
 * different bits. */
void stripe_complete_retained(struct stripe *st, struct slot *slot)
{
	slot->closed = true;
	if (slot->have_n == slot->contributed) {
		slot_encode_result(slot, st->stable, false);
		stripe_send_result(st, slot);
		return;
	}
	slot->fetching = true;
	st->fetching[slot->header.priority]++;
	fetch(st, slot);
}
