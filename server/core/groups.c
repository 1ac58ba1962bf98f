/* SPDX-License-Identifier: Apache-2.0 */
#include "server/core/groups.h"

#include "common/assert.h"
#include "proto/features.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int groups_attach(struct stripe *st, const struct session *s, struct rs_err *e)
{
	if (!st->p.groups || s->relay)
		return RS_OK;
	if (!st->group_of) {
		st->group_of = calloc(st->p.world_size, sizeof *st->group_of);
		st->group_n = calloc(st->p.groups, sizeof *st->group_n);
	}
	if (!st->group_of || !st->group_n)
		return rs_oom(e, 0, "the groups of a job");
	rs_assert(s->group < st->p.groups);
	st->group_of[s->rank] = (uint16_t)s->group;
	return RS_OK;
}

unsigned groups_first(const struct stripe *st, unsigned group)
{
	unsigned r = 0;

	while (r + 1 < st->p.world_size && st->group_of[r] != group)
		r++;
	return r;
}

unsigned groups_covers(const struct stripe *st, const struct session *s)
{
	return s->relay ? st->group_n[s->group] : 1;
}

int groups_check_header(const struct stripe *st, const struct session *s, const struct frame *f, struct rs_err *e)
{
	unsigned reducer = frame_home_reducer(f->generation);
	const struct operation *o = &f->of;

	if (s->relay && (f->type == FRAME_HAVE || o->op == FRAME_OP_BROADCAST || o->sharded || !st->group_n[s->group]))
		return rs_fail(e, RS_EPROTO, "a relay sends only sums of all-reduces, of a group that has ranks");
	if (!(f->flags & FRAME_RELAY))
		return RS_OK;
	if (!st->hello || s->relay)
		return rs_fail(e, RS_EPROTO, "a chunk is to be relayed, %s",
			       s->relay ? "and comes from a relay" : "in a job that has not agreed on that");
	if (o->op == FRAME_OP_BROADCAST || o->sharded)
		return rs_fail(e, RS_EPROTO, "the RELAY flag goes with all-reduces only");
	if (reducer >= st->owner->opt.peers.n || reducer == st->self || frame_home_lane(f->generation) >= 64)
		return rs_fail(e, RS_EPROTO, "a chunk is to be relayed to lane %u of reducer %u, which is not there",
			       frame_home_lane(f->generation), reducer);
	return RS_OK;
}

/* Adds a slot to the list of its priority. Most chunks that begin are the last ones. */
static void groups_list(struct stripe *st, struct slot *slot)
{
	unsigned p = slot->header.of.priority;
	struct slot *older = st->newest[p];

	while (older && slot_is_before(&slot->header, &older->header))
		older = older->older;
	slot->older = older;
	slot->newer = older ? older->newer : st->oldest[p];
	*(slot->older ? &slot->older->newer : &st->oldest[p]) = slot;
	*(slot->newer ? &slot->newer->older : &st->newest[p]) = slot;
}

void groups_unlist(struct stripe *st, struct slot *slot)
{
	unsigned p = slot->header.of.priority;

	*(slot->older ? &slot->older->newer : &st->oldest[p]) = slot->newer;
	*(slot->newer ? &slot->newer->older : &st->newest[p]) = slot->older;
	slot->older = slot->newer = NULL;
}

void groups_start_slot(struct stripe *st, struct slot *slot, const struct session *s, const struct frame *f)
{
	slot->relay = f->flags & FRAME_RELAY;
	slot->header.flags = 0;
	slot->header.generation = st->p.generation;
	slot->group = s->group;
	slot->home = slot->relay ? f->generation : 0;
	slot->uplink = SLOT_UPLINK_NONE;
	slot->expected = slot->relay ? st->group_n[s->group] : st->p.world_size;
	groups_list(st, slot);
}

int groups_cover(struct stripe *st, struct slot *slot, const struct session *s, const struct frame *f, struct rs_err *e)
{
	bool relay = f->flags & FRAME_RELAY, twice = false;
	char name[160];

	for (unsigned r = s->relay ? 0 : s->rank; r < (s->relay ? st->p.world_size : s->rank + 1); r++) {
		if (s->relay && st->group_of[r] != s->group)
			continue;
		twice |= slot_bit(slot->covered, r);
		slot_bit_set(slot->covered, r);
	}
	if (!twice && relay == slot->relay && (!relay || (slot->home == f->generation && slot->group == s->group)))
		return RS_OK;
	return rs_fail(e, RS_EMISMATCH,
		       "ranks disagree about operation %" PRIu64 ": chunk %u of %s %s. All ranks and reducers need the "
		       "same groups and relays in their files",
		       f->of.seq, f->chunk, stripe_rank_name(st, s->rank, name, sizeof name),
		       twice ? "has come on another way already"
			     : "has another relay or home than that of other ranks");
}

/* Adds the stash of a rank, or of an uplink, to a sum. */
static void groups_add(const struct stripe *st, struct slot *to, const struct slot *from, unsigned rank)
{
	slot_add(to, st->owner->opt.kernels, 0, from->stash + rank * st->stash_stride, from->elems,
		 slot_bit(from->wide, rank));
}

void groups_fold(struct stripe *st, struct slot *slot)
{
	/* behind the stashes of all ranks: the sum of one group */
	struct slot part = *slot;

	part.acc = slot->stash + st->p.world_size * st->stash_stride;
	slot->filled = 0;
	for (unsigned g = 0; g < st->p.groups; g++) {
		bool wide = true;
		unsigned n = 0, last = 0;

		part.filled = 0;
		for (unsigned r = 0; r < st->p.world_size; r++) {
			if (st->group_of[r] != g || !slot_bit(slot->complete, r))
				continue;
			n++;
			last = r;
			wide &= slot_bit(slot->wide, r);
			if (!slot->relay)
				groups_add(st, &part, slot, r);
			else
				groups_add(st, slot, slot, r);
		}
		if (!n || slot->relay)
			continue;
		if (n == 1 && groups_first(st, g) == last && st->group_n[g] > 1) {
			groups_add(st, slot, slot, last); /* its relay has added and rounded it */
			continue;
		}
		slot_finish_partial(&part, st->owner->opt.kernels, wide, false);
		slot_add(slot, st->owner->opt.kernels, 0, part.acc, slot->elems, wide);
	}
}

void groups_forget(struct stripe *st, unsigned place)
{
	for (unsigned i = 0; i <= st->mask; i++)
		for (struct slot *s = st->chains[i]; s; s = s->next) {
			slot_bit_clear(s->started, place);
			slot_bit_clear(s->early, place);
		}
}
