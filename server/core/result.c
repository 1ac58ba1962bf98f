/* SPDX-License-Identifier: Apache-2.0 */
/* The result of a chunk goes out: the slot is queued for each rank, session_tx.c sends it
 * out of the accumulator, and the slot is free when the last rank has it
 * (stripe_result_sent). */
#include "server/core/result.h"
#include "common/assert.h"
#include "server/core/groups.h"

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

void result_queue(struct stripe *st, struct slot *slot)
{
	stripe_trace(st, TRACE_SUMMED, slot, 0, slot->result_len);
	rs_assert(slot->unsent == 0 && !slot->fetching);
	rs_assert(slot->contributed > 0);
	/* each chunk starts at another rank; otherwise the results of all reducers would
	 * reach the port of rank 0 first
	 */
	for (unsigned i = 0, n = stripe_places(st), r = slot->header.chunk % n; i < n; i++) {
		if (result_rank_takes_part(st, r) && (!stripe_is_grouped(st) || slot_bit(slot->started, r))) {
			slot->unsent++;
			session_queue_result(st->sessions[r], slot, result_goes_to(slot, r) ? TX_RESULT : TX_HEADER);
		}
		r = r + 1 < n ? r + 1 : 0;
	}
}

void result_release(struct stripe *st, struct slot *slot)
{
	unsigned p = slot->header.of.priority;

	slot->waiting = true;
	while (st->oldest[p] && st->oldest[p]->waiting) {
		slot = st->oldest[p];
		groups_unlist(st, slot);
		slot->waiting = false;
		result_queue(st, slot);
	}
}

void result_send(struct stripe *st, struct slot *slot)
{
	if (stripe_is_grouped(st))
		result_release(st, slot);
	else if (st->fetching[slot->header.of.priority])
		slot->waiting = true;
	else
		result_queue(st, slot);
}
