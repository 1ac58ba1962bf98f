/* SPDX-License-Identifier: Apache-2.0 */
/* Retained results. The happy path: all ranks sent DATA or HAVE for a chunk -> a rank
 * that has the result is asked for it (FETCH) -> its answer (KEPT) goes to the ranks that
 * do not have it. Results of later chunks wait in line until then, because ranks expect
 * results in the order of their contributions. No second sum is made: no two ranks may
 * get different bits. Of a reduce-scatter only the owner of a part has its result, so
 * nothing is fetched: HAVE says that the others need not wait.
 *
 * Failure modes: the asked rank departs: another one is asked. All ranks with the result
 * have departed: the job cannot go on. */
#include "server/core/retained.h"

#include "common/assert.h"
#include "server/core/result.h"
#include "server/core/stripe_fail.h"

/* Returns the first slot of a priority, in the order of chunks, that is being fetched or
 * (waiting) that waits in line; NULL: none. */
static struct slot *retained_first(const struct stripe *st, unsigned priority, bool waiting)
{
	struct slot *slots = st->slots + (size_t)priority * st->slots_n, *first = NULL;

	for (unsigned i = 0; i < st->slots_n; i++)
		if ((waiting ? slots[i].waiting : slots[i].fetching) && (!first || slots[i].order < first->order))
			first = &slots[i];
	return first;
}

struct slot *retained_fetched_slot(struct stripe *st, const struct frame *f, unsigned rank)
{
	struct slot *slot = stripe_find_slot(st, f->of.seq, f->chunk);

	return slot && slot->fetching && slot->fetch_from == rank ? slot : NULL;
}

bool retained_find_holder(const struct stripe *st, const struct slot *slot, unsigned except, unsigned *ret)
{
	unsigned r = slot->header.chunk % st->p.world_size;

	for (unsigned i = 0; i < st->p.world_size; i++) {
		const struct session *s = st->sessions[r];

		if (r != except && slot_bit(slot->have, r) && s && !s->departed) {
			*ret = r;
			return true;
		}
		r = r + 1 < st->p.world_size ? r + 1 : 0;
	}
	return false;
}

/* Asks a rank that has the result for it. If all of them have departed, no rank can have
 * it any more. If they departed in a later view than that of the chunk, all ranks have
 * the result from another lane, and the next RESUME drops the chunk. */
static void retained_fetch(struct stripe *st, struct slot *slot)
{
	const struct session *holder;
	struct rs_err why;
	char name[160];

	if (!retained_find_holder(st, slot, st->p.world_size, &slot->fetch_from)) {
		if (st->view_number != st->resumed_view)
			return;
		rs_fail(&why, RS_ECLOSED, "%s closed the communicator while operations were pending",
			stripe_rank_name(st, st->departed_rank, name, sizeof name));
		stripe_fail(st, &why, NULL);
		return;
	}
	slot_encode_fetch(slot, st->stable);
	holder = st->sessions[slot->fetch_from];
	if (holder && !holder->paused && !holder->departed)
		session_queue_result(st->sessions[slot->fetch_from], slot, TX_FETCH);
}

void retained_fetch_again(struct stripe *st, unsigned rank)
{
	for (unsigned i = 0; i < st->slots_n * st->p.priorities && !st->ended; i++)
		if (st->slots[i].fetching && st->slots[i].fetch_from == rank)
			retained_fetch(st, &st->slots[i]);
}

void retained_complete(struct stripe *st, struct slot *slot)
{
	rs_assert(!slot->closed && !slot->fetching);
	rs_assert(slot->have_n <= slot->contributed);
	slot->closed = true;
	if (slot->have_n == slot->contributed || operation_is_scatter(&slot->header.of)) {
		slot_encode_result(slot, st->stable, false);
		result_send(st, slot);
		return;
	}
	slot->fetching = true;
	st->fetching[slot->header.of.priority]++;
	retained_fetch(st, slot);
}

void retained_received(struct stripe *st, struct slot *slot)
{
	unsigned p = slot->header.of.priority;
	struct slot *next;

	rs_assert(slot->fetching && st->fetching[p] > 0);
	slot->fetching = false;
	st->fetching[p]--;
	slot_encode_result(slot, st->stable, st->p.checksum);
	if (stripe_is_grouped(st)) {
		result_send(st, slot);
		return;
	}
	slot->waiting = true;
	/* the results behind it in line go out as well, up to the next one that is not
	 * here yet */
	while ((next = retained_first(st, p, true))) {
		const struct slot *missing = retained_first(st, p, false);

		if (missing && missing->order < next->order)
			return;
		next->waiting = false;
		result_queue(st, next);
	}
}
