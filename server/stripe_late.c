/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that keep others waiting. Chunks have no clock of their own: a tick remembers the oldest chunk that is not
 * complete, and while later ticks find it still so, the time passes. After a second without progress the ranks that
 * have sent their part of it hear once a second for whom they wait. */
#include "server/stripe.h"

#include <string.h>

enum { LATE_MS = 1000 }; /* before the first LATE, and between two */

void stripe_watch_again(struct stripe *st)
{
	st->watch.slot = NULL;
}

static bool waits(const struct stripe *st, const struct slot *slot)
{
	return slot->contributed < st->p.world_size && !slot->closed;
}

/* A place may have been given to another chunk since, or be free: then its chunk was complete. */
static bool still_waits(const struct stripe *st)
{
	const struct stripe_watch *w = &st->watch;

	return w->slot && w->slot->of.seq == w->seq && w->slot->of.chunk == w->chunk && waits(st, w->slot);
}

static bool is_older(const struct frame *a, const struct frame *b)
{
	return a->seq < b->seq || (a->seq == b->seq && a->chunk < b->chunk);
}

static void look_for_oldest(struct stripe *st, uint64_t now_ms)
{
	const struct slot *oldest = NULL;

	for (unsigned i = 0; i <= st->mask; i++)
		for (const struct slot *s = st->buckets[i]; s; s = s->next)
			if (waits(st, s) && (!oldest || is_older(&s->of, &oldest->of)))
				oldest = s;
	st->watch = (struct stripe_watch){.slot = oldest, .since_ms = now_ms, .told_ms = now_ms};
	if (oldest) {
		st->watch.seq = oldest->of.seq;
		st->watch.chunk = oldest->of.chunk;
	}
}

/* It has not begun its part, or has not come to the end of it. */
static bool is_missing(const struct stripe *st, const struct slot *slot, unsigned rank)
{
	const struct session *s = st->sessions[rank];

	if (!slot_bit(slot->who, rank))
		return true;
	return s && s->left_in && s->mode != RX_CONTROL && s->slot == slot;
}

static void name_missing(const struct stripe *st, struct control_late *late)
{
	for (unsigned r = 0; r < st->p.world_size; r++) {
		if (!is_missing(st, st->watch.slot, r))
			continue;
		if (late->missing_all++ == 0 && st->sessions[r])
			memcpy(late->label, st->sessions[r]->label, sizeof late->label);
		if (late->missing_n < CONTROL_MISSING)
			late->missing[late->missing_n++] = r;
	}
}

static void tell_late(struct stripe *st, uint64_t now_ms)
{
	uint64_t waited = now_ms - st->watch.since_ms;
	struct control_late late = {.seq = st->watch.seq,
				    .waited_ms = waited < UINT32_MAX ? (uint32_t)waited : UINT32_MAX};
	uint8_t payload[FRAME_CONTROL_MAX];
	uint32_t len;

	name_missing(st, &late);
	if (!late.missing_all)
		return;
	len = control_pack_late(payload, &late);
	for (unsigned r = 0; r < st->p.world_size; r++) {
		struct session *s = st->sessions[r];

		/* one that does not read must not fill its queue, which the end has to fit into */
		if (s && !s->draining && !s->lost && !s->parked && s->control_off == s->control_len &&
		    !is_missing(st, st->watch.slot, r))
			session_queue_frame(s, FRAME_LATE, payload, len);
	}
}

void stripe_watch_late(struct stripe *st, uint64_t now_ms)
{
	if (!st->running || st->ended)
		return;
	if (!still_waits(st)) {
		look_for_oldest(st, now_ms);
		return;
	}
	if (now_ms - st->watch.told_ms < LATE_MS)
		return;
	st->watch.told_ms = now_ms;
	tell_late(st, now_ms);
}
