/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that delay others. Chunks have no clock of their own: a tick remembers the oldest
 * incomplete chunk, and the time passes while later ticks find the same one. After a
 * second without progress, the ranks that have sent their part of it get a LATE frame
 * each second. It names the ranks that they wait for. */
#include "server/core/stripe_late.h"
#include "server/core/stripe_fail.h"
#include "server/core/uplink.h"

#include <string.h>

enum { LATE_MS = 1000 }; /* before the first LATE, and between two */

const struct slot *stripe_oldest(const struct stripe *st)
{
	const struct slot *oldest = NULL;

	for (unsigned i = 0; i <= st->mask; i++)
		for (const struct slot *s = st->chains[i]; s; s = s->next)
			if (s->contributed < s->expected && !s->closed &&
			    (!oldest || slot_is_before(&s->header, &oldest->header)))
				oldest = s;
	return oldest;
}

/* Returns true if the oldest chunk is the same as before. Its slot may have got another
 * chunk since. */
static bool late_is_watched(const struct stripe_watch *w, const struct slot *oldest)
{
	return w->slot == oldest && w->seq == oldest->header.of.seq && w->chunk == oldest->header.chunk;
}

bool stripe_is_missing(const struct stripe *st, const struct slot *slot, unsigned rank)
{
	const struct session *s = st->sessions[rank];

	if (stripe_is_absent(st, slot, rank))
		return true;
	return s && s->payload_left && s->mode != RX_CONTROL && s->slot == slot;
}

bool stripe_has_relay(const struct stripe *st, unsigned rank)
{
	for (unsigned u = st->p.world_size; u < stripe_places(st); u++)
		if (st->sessions[u] && st->sessions[u]->group == st->group_of[rank])
			return true;
	return false;
}

bool stripe_is_relayed(const struct stripe *st, const struct slot *slot)
{
	if (slot->relay || stripe_places(st) == st->p.world_size)
		return false;
	/* of a small operation ranks with relays send their chunks themselves */
	for (unsigned r = 0; r < st->p.world_size; r++)
		if (slot_bit(slot->started, r) && stripe_has_relay(st, r))
			return false;
	return true;
}

/* Returns whether the relay of a rank's group has said for which other ranks it waits, or
 * has not had the time to say it. */
static bool late_is_cleared(const struct stripe *st, const struct slot *slot, unsigned rank, uint32_t waited_ms)
{
	bool there = false;

	for (unsigned u = st->p.world_size; !slot->relay && u < stripe_places(st); u++) {
		const struct session *s = st->sessions[u];
		bool named = false;

		if (!s || st->group_of[rank] != s->group)
			continue;
		there = true;
		if (!s->late.missing_all || s->late.seq != slot->header.of.seq)
			continue;
		for (unsigned i = 0; i < s->late.missing_n; i++)
			named |= s->late.missing[i] == rank;
		return !named && s->late.missing_n == s->late.missing_all;
	}
	return there && waited_ms < 2 * LATE_MS;
}

static void late_name_missing(const struct stripe *st, struct control_late *late)
{
	for (unsigned r = 0; r < st->p.world_size; r++) {
		if (!stripe_is_missing(st, st->watch.slot, r) ||
		    late_is_cleared(st, st->watch.slot, r, late->waited_ms))
			continue;
		if (late->missing_all++ == 0 && st->sessions[r])
			memcpy(late->label, st->sessions[r]->label, sizeof late->label);
		if (late->missing_n < CONTROL_MISSING)
			late->missing[late->missing_n++] = r;
	}
}

/* Reports a late chunk to the registry, once for each chunk. */
static void late_report(struct stripe *st, const struct control_late *late)
{
	struct lane_event ev = {.type = LANE_LATE,
				.job = st->p.job,
				.rank = late->missing[0],
				.lane = st->p.lane,
				.seq = late->seq,
				.waited_ms = late->waited_ms,
				.late = late->missing_all};

	if (st->watch.reported)
		return;
	st->watch.reported = true;
	st->owner->opt.event(st->owner->opt.ctx, &ev);
}

/* Sends LATE. The queue of a peer that does not read must keep room for ABORT. */
static void late_send(struct session *s, const uint8_t *payload, uint32_t len)
{
	if (!s->draining && !s->lost && !s->paused && s->control_off == s->control_len)
		session_queue_frame(s, FRAME_LATE, payload, len);
}

/* Returns whether a rank waits for the oldest chunk: it has sent its own part. */
static bool late_waits(const struct stripe *st, unsigned rank)
{
	const struct slot *slot = st->watch.slot;

	return !stripe_is_missing(st, slot, rank) && (!slot->relay || st->group_of[rank] == slot->group);
}

/* Returns whether a rank has a chunk of an operation whose sum is on its way to the
 * home. */
static bool late_waits_for_home(const struct stripe *st, uint64_t seq, unsigned rank)
{
	for (unsigned i = 0; i <= st->mask; i++)
		for (const struct slot *s = st->chains[i]; s; s = s->next)
			if (s->relay && s->header.of.seq == seq && s->uplink == SLOT_UPLINK_SENT &&
			    slot_bit(s->started, rank))
				return true;
	return false;
}

/* Sends LATE to the ranks that wait, which happens once a second. */
static void late_notify(struct stripe *st, uint64_t now_ms)
{
	uint64_t waited = now_ms - st->watch.since_ms;
	struct control_late late = {.seq = st->watch.seq,
				    .waited_ms = waited < UINT32_MAX ? (uint32_t)waited : UINT32_MAX};
	uint8_t payload[FRAME_CONTROL_MAX];
	uint32_t len;

	late_name_missing(st, &late);
	if (!late.missing_all)
		return;
	late_report(st, &late);
	if (st->watch.slot->relay)
		uplink_tell_late(st, st->watch.slot, &late);
	len = control_pack_late(payload, &late);
	for (unsigned r = 0; r < stripe_places(st); r++) {
		struct session *s = st->sessions[r];

		if (s && (s->relay ? slot_bit(st->watch.slot->started, r) : late_waits(st, r)))
			late_send(s, payload, len);
	}
}

int stripe_hear_late(struct stripe *st, struct session *s, struct rs_err *e)
{
	char name[160], other[160];

	if (control_unpack_late(s->control_in, s->in.payload_len, &s->late, e))
		return e->code;
	for (unsigned i = 0; i <= st->mask; i++)
		for (const struct slot *slot = st->chains[i]; slot; slot = slot->next)
			if (slot->header.of.seq == s->in.of.seq &&
			    operation_check_same(
				&(struct operation_call){.of = &s->in.of,
							 .rank = stripe_rank_name(st, s->rank, name, sizeof name)},
				&(struct operation_call){
				    .of = &slot->header.of,
				    .rank = stripe_rank_name(st, slot->first_rank, other, sizeof other)},
				e))
				return e->code;
	return RS_OK;
}

void stripe_pass_late(struct stripe *st, const uint8_t *payload, uint32_t len)
{
	struct control_late late;
	struct rs_err e;

	/* only the ranks that wait for the home have something to learn from it */
	if (control_unpack_late(payload, len, &late, &e))
		return;
	for (unsigned r = 0; r < st->p.world_size; r++)
		if (st->sessions[r] && late_waits_for_home(st, late.seq, r))
			late_send(st->sessions[r], payload, len);
}

/* Returns the time from which waiting for this chunk is not counted yet. */
static uint64_t late_counted_from(const struct stripe *st, const struct slot *slot)
{
	return slot->started_ms > st->waited_until_ms ? slot->started_ms : st->waited_until_ms;
}

void stripe_count_contribution(struct stripe *st, const struct slot *slot, unsigned rank, bool last)
{
	struct lane_count *c = &st->sessions[rank]->count;
	uint64_t now_ms = st->owner->now_ms, from;

	c->chunks++;
	c->late_ms += now_ms - slot->started_ms;
	if (!last)
		return;
	st->chunks++;
	if (operation_is_encoded(&slot->header.of)) {
		st->encoded++;
		st->up = slot->header.of.up;
		st->down = slot->header.of.down;
	}
	c->last_chunks++;
	if (slot->header.of.seq >= st->operations)
		st->operations = slot->header.of.seq + 1;
	from = late_counted_from(st, slot);
	if (now_ms > from) {
		c->waited_ms += now_ms - from;
		st->waited_until_ms = now_ms;
	}
}

/* Counts the time that the oldest chunk waits, while it waits: a rank that never comes is
 * the latest of all. The wait for a relay counts when its sum has come: which relay it
 * is, is not known before. */
static void late_count_waiting(struct stripe *st, const struct slot *oldest, uint64_t now_ms)
{
	uint64_t from = late_counted_from(st, oldest);
	bool relayed, for_relays = false, for_ranks = false;

	if (now_ms < from + LANE_TICK_MS)
		return;
	relayed = stripe_is_relayed(st, oldest);
	for (unsigned r = 0; r < st->p.world_size; r++) {
		if (!st->sessions[r] || !stripe_is_missing(st, oldest, r))
			continue;
		if (relayed && stripe_has_relay(st, r)) {
			for_relays = true;
			continue;
		}
		for_ranks = true;
		st->sessions[r]->count.waited_ms += now_ms - from;
	}
	if (for_ranks || !for_relays)
		st->waited_until_ms = now_ms;
}

/* Checks that no rank has sent another chunk in the place of the oldest one, which then
 * nobody can complete. Each arrival is compared with what others have sent of the same
 * chunk; this finds ranks that have no chunk in common. */
static int late_check_places(const struct stripe *st, const struct slot *oldest, struct rs_err *e)
{
	unsigned priority = oldest->header.of.priority;

	for (unsigned r = 0; r < st->p.world_size; r++) {
		const struct session *s = st->sessions[r];

		if (!s || s->draining || s->paused || slot_bit(oldest->started, r) ||
		    s->streams[priority].started <= oldest->order)
			continue;
		for (unsigned i = 0; i <= st->mask; i++)
			for (const struct slot *other = st->chains[i]; other; other = other->next)
				if (other->header.of.priority == priority && other->order == oldest->order &&
				    slot_bit(other->started, r))
					return stripe_out_of_step(st, oldest, oldest->first_rank, other, r, e);
	}
	return RS_OK;
}

void stripe_watch_late(struct stripe *st, uint64_t now_ms)
{
	const struct slot *oldest = st->running && !st->ended ? stripe_oldest(st) : NULL;
	struct rs_err why;

	if (!oldest) {
		st->watch.slot = NULL;
		return;
	}
	late_count_waiting(st, oldest, now_ms);
	if (!late_is_watched(&st->watch, oldest))
		st->watch = (struct stripe_watch){.slot = oldest,
						  .seq = oldest->header.of.seq,
						  .chunk = oldest->header.chunk,
						  .since_ms = now_ms,
						  .notified_ms = now_ms};
	if (now_ms - st->watch.notified_ms < LATE_MS)
		return;
	st->watch.notified_ms = now_ms;
	if (!stripe_is_grouped(st) && late_check_places(st, oldest, &why))
		stripe_fail(st, &why, NULL);
	else
		late_notify(st, now_ms);
}
