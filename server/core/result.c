/* SPDX-License-Identifier: Apache-2.0 */
/* The result of a chunk goes out: the slot is queued for each rank, session_tx.c sends it
 * out of the accumulator, and the slot is free when the last rank has it
 * (stripe_result_sent). */
#include "server/core/result.h"
#include "common/assert.h"
#include "server/core/groups.h"

enum { RESULT_FAR_US = 500 }; /* round trip to a relay */

/* Returns true if chunks come from this rank and results go to it. A departed rank has
 * the results of all chunks that it sent. */
static bool result_rank_takes_part(const struct stripe *st, unsigned rank)
{
	const struct session *s = st->sessions[rank];

	return s && !s->paused && !s->departed;
}

/* Returns whether a rank gets the elements, and not the header alone. */
static bool result_goes_to(const struct slot *slot, unsigned rank)
{
	bool root = slot->roots && rank == slot->root;

	if (operation_is_scatter(&slot->header.of))
		return root && !slot->have_n;
	return !slot_bit(slot->have, rank) && !(slot->header.of.op == FRAME_OP_BROADCAST && root);
}

static void result_queue_for(struct stripe *st, struct slot *slot, unsigned place)
{
	if (!result_rank_takes_part(st, place) || (stripe_is_grouped(st) && !slot_bit(slot->started, place)))
		return;
	slot->unsent++;
	session_queue_result(st->sessions[place], slot, result_goes_to(slot, place) ? TX_RESULT : TX_HEADER);
}

void result_queue(struct stripe *st, struct slot *slot)
{
	stripe_trace(st, TRACE_SUMMED, slot, 0, slot->result_len);
	rs_assert(!slot->fetching && !slot->waiting);
	rs_assert(slot->unsent == 0 || stripe_is_grouped(st)); /* far uplinks are first */
	rs_assert(slot->contributed > 0);
	/* each chunk starts at another rank; otherwise the results of all reducers would
	 * reach the port of rank 0 first
	 */
	for (unsigned i = 0, n = stripe_places(st), r = slot->header.chunk % n; i < n; i++) {
		if (!slot_bit(slot->early, r))
			result_queue_for(st, slot, r);
		r = r + 1 < n ? r + 1 : 0;
	}
}

/* In a job with groups the result for ranks goes out when no chunk before it lacks its
 * own, whatever that waits for: the home, or a retained result. */
static void result_release(struct stripe *st, struct slot *slot)
{
	unsigned p = slot->header.of.priority;

	slot->waiting = true;
	while (st->oldest[p] && st->oldest[p]->waiting) {
		slot = st->oldest[p];
		groups_unlist(st, slot);
		slot->waiting = false;
		st->ahead[p] -= slot->ahead;
		slot->ahead = false;
		result_queue(st, slot);
		if (!slot->unsent)
			stripe_result_done(st, slot); /* it was for far uplinks alone, which have it */
	}
}

/* Relays take results in any order, and pass them on in that of their ranks. A result for
 * a near one leaves in the order of ranks too: earlier it would only take the port from
 * results for which ranks wait. Two racks, uplinks of half the rate, some shards straight
 * home, MB/s: 24.9 in order, 22.4 at once. But then a chunk waits for those before it
 * that this reducer relays, and so each for a way to the other rack and back. Two zones
 * 20 ms apart: 2.6 in order, 18.7 at once. So a far one gets it at once.
 *
 * The slot stays until the chunks before it have their results, although it may be
 * outstanding for nobody: stripe_slot_count() has room for `window` of these. */
static void result_queue_for_far(struct stripe *st, struct slot *slot)
{
	unsigned *ahead = &st->ahead[slot->header.of.priority];

	if (*ahead >= st->p.window)
		return;
	for (unsigned r = st->p.world_size; r < stripe_places(st); r++)
		if (st->sessions[r] && st->sessions[r]->min_rtt_us >= RESULT_FAR_US && slot_bit(slot->started, r)) {
			result_queue_for(st, slot, r);
			slot_bit_set(slot->early, r);
			slot->ahead = true;
		}
	*ahead += slot->ahead;
}

void result_send(struct stripe *st, struct slot *slot)
{
	if (stripe_is_grouped(st)) {
		result_queue_for_far(st, slot);
		result_release(st, slot);
	} else if (st->fetching[slot->header.of.priority]) {
		slot->waiting = true;
	} else {
		result_queue(st, slot);
	}
}
