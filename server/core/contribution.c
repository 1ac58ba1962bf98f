/* SPDX-License-Identifier: Apache-2.0 */
/* The happy path of a chunk: the first contribution takes a slot (contribution_begin) ->
 * session_rx.c receives the bytes of each rank into the accumulator or adds them to it ->
 * the last contribution is complete (contribution_complete) -> the sum becomes the result
 * (slot_finish) -> result_send queues it for all ranks.
 *
 * Failure modes: the header does not fit the job (RS_EPROTO), or differs from that of
 * another rank (RS_EMISMATCH). */
#include "server/core/contribution.h"

#include "common/assert.h"
#include "proto/features.h"
#include "server/core/groups.h"
#include "server/core/result.h"
#include "server/core/retained.h"
#include "server/core/stripe_fail.h"
#include "server/core/stripe_late.h"
#include "server/core/uplink.h"

#include <inttypes.h>
#include <string.h>

/* Checks that two ranks describe the operation alike; otherwise their bytes may not be
 * added. */
static int contribution_check_operation(struct stripe *st, const struct slot *slot, const struct frame *f,
					unsigned rank, struct rs_err *e)
{
	const struct operation *o = &f->of, *first = &slot->header.of;
	char name[160], other[160];

	/* before any text is made, since every contribution passes here */
	if (o->dtype == first->dtype && o->op == first->op && o->count == first->count && o->root == first->root &&
	    o->sharded == first->sharded && o->tensors == first->tensors && o->priority == first->priority &&
	    o->name_hash == first->name_hash && o->up == first->up && o->down == first->down)
		return RS_OK;
	return operation_check_same(
	    &(struct operation_call){.of = o, .rank = stripe_rank_name(st, rank, name, sizeof name)},
	    &(struct operation_call){.of = first, .rank = stripe_rank_name(st, slot->first_rank, other, sizeof other)},
	    e);
}

/* Checks that two ranks send the chunks of a priority in the same sequence. Otherwise one
 * rank has a chunk that the other one lacks, and neither could see that in the result
 * that comes next. */
static int contribution_check_sequence(struct stripe *st, const struct slot *slot, unsigned rank, struct rs_err *e)
{
	uint64_t started = st->sessions[rank]->streams[slot->header.of.priority].started;
	bool skipped = started < slot->order; /* `rank` left out a chunk; else the other rank did */
	uint64_t order = skipped ? started : slot->order;
	const struct slot *odd = slot; /* the chunk that only one of the two has sent; it cannot be complete */
	char me[160], other[160];

	if (started == slot->order)
		return RS_OK;
	for (unsigned i = 0; i <= st->mask; i++)
		for (const struct slot *s = st->chains[i]; s; s = s->next)
			if (s->header.of.priority == slot->header.of.priority && s->order == order &&
			    slot_bit(s->started, rank) != skipped)
				odd = s;
	stripe_rank_name(st, skipped ? slot->first_rank : rank, me, sizeof me);
	stripe_rank_name(st, skipped ? rank : slot->first_rank, other, sizeof other);
	return rs_fail(e, RS_EMISMATCH,
		       "ranks disagree about operation %" PRIu64
		       ": %s sent chunk %u of it, %s went on to operation %" PRIu64 " without it",
		       odd->header.of.seq, me, odd->header.chunk, other, slot->header.of.seq);
}

/* Fails because all slots of a priority are in use. Ranks that send one sequence of
 * chunks and keep to the window never need more. So two ranks sent different chunks in
 * the same place. */
static int contribution_no_slot(struct stripe *st, const struct frame *f, unsigned rank, struct rs_err *e)
{
	const struct slot *slots = st->slots + (size_t)f->of.priority * st->slots_n;
	struct slot mine = {
	    .header = *f, .first_rank = rank, .order = st->sessions[rank]->streams[f->of.priority].started};
	const struct slot *a = &mine, *b = &mine;

	for (unsigned i = 0; i < st->slots_n && a == b; i++)
		for (unsigned j = i + 1; j <= st->slots_n && a == b; j++) {
			const struct slot *other = j < st->slots_n ? &slots[j] : &mine;

			if (slots[i].order == other->order) {
				a = slots[i].header.of.seq < other->header.of.seq ? &slots[i] : other;
				b = a == other ? &slots[i] : other;
			}
		}
	return stripe_out_of_step(st, a, a->first_rank, b, b->first_rank, e);
}

/* Checks the encodings of an operation. */
static int contribution_check_wire(const struct stripe *st, const struct operation *o, struct rs_err *e)
{
	if (!operation_is_encoded(o))
		return RS_OK;
	if (!(st->features & FEATURE_ENCODINGS))
		return rs_fail(e, RS_EPROTO, "encodings %u and %u came in a job that has agreed on none", o->up,
			       o->down);
	if (!rs_wire_fits_up(o->up, o->dtype, o->op) || !rs_wire_fits(o->down, o->dtype, o->op))
		return rs_fail(e, RS_EPROTO, "the encodings %u (%s) and %u (%s) do not go with %s of %s", o->up,
			       rs_wire_name(o->up), o->down, rs_wire_name(o->down),
			       o->op == FRAME_OP_BROADCAST ? "broadcast" : rs_op_name(o->op), rs_dtype_name(o->dtype));
	return RS_OK;
}

/* Checks what a sharded operation has in addition. */
static int contribution_check_parts(const struct stripe *st, const struct operation *o, struct rs_err *e)
{
	if (!o->sharded)
		return RS_OK;
	if (!(st->features & FEATURE_SHARDED))
		return rs_fail(e, RS_EPROTO, "a sharded operation came in a job that has agreed on none");
	if (o->parts == 0 || o->parts > OPERATION_PARTS_MAX || o->count % o->parts)
		return rs_fail(e, RS_EPROTO, "%" PRIu64 " elements came in %" PRIu32 " parts, which must be equal",
			       o->count, o->parts);
	return RS_OK;
}

/* Checks that the header of a contribution fits the job. It comes from the network, so
 * nothing is used unchecked. */
static int contribution_check_header(const struct stripe *st, const struct frame *f, struct rs_err *e)
{
	uint32_t size = f->of.size, elems;
	bool broadcast = f->of.op == FRAME_OP_BROADCAST, root = f->flags & FRAME_ROOT, have = f->type == FRAME_HAVE;
	uint64_t want;

	if (have && (!st->p.retain || f->flags))
		return rs_fail(e, RS_EPROTO, "HAVE came with flags 0x%x in a job that %s", f->flags,
			       st->p.retain ? "knows none" : "does not fail over");

	if (size == 0)
		return rs_fail(e, RS_EPROTO, "dtype %u is unknown", f->of.dtype);
	if (f->of.op >= RS_OP_NR && !broadcast)
		return rs_fail(e, RS_EPROTO, "operation type %u is unknown", f->of.op);
	if (contribution_check_wire(st, &f->of, e) || contribution_check_parts(st, &f->of, e))
		return RS_EPROTO;
	if (f->flags & FRAME_WIDE && (broadcast || !rs_dtype_is_half(f->of.dtype) || f->of.up))
		return rs_fail(e, RS_EPROTO, "the WIDE flag does not go with %s of %s",
			       broadcast  ? "a broadcast"
			       : f->of.up ? "encoded contributions"
					  : "an all-reduce",
			       rs_dtype_name(f->of.dtype));
	if (root && !broadcast && !f->of.sharded)
		return rs_fail(e, RS_EPROTO, "the ROOT flag goes with broadcasts and sharded operations only");
	if (f->of.priority >= st->p.priorities)
		return rs_fail(e, RS_EPROTO, "priority %u is beyond the job's highest, which is %u", f->of.priority,
			       st->p.priorities - 1);
	if (f->of.seq > FRAME_SEQ_MAX)
		return rs_fail(e, RS_EPROTO, "operation %" PRIu64 " is beyond the highest number, 2^63 - 1", f->of.seq);
	elems = operation_chunk_elems(&f->of, st->p.chunk_bytes, st->decoded_bytes);
	if (f->chunk_elems != elems)
		return rs_fail(e, RS_EPROTO, "chunks of %u bytes have %u elements of %s instead of %u",
			       operation_chunk_limit(&f->of, st->p.chunk_bytes), f->chunk_elems,
			       rs_dtype_name(f->of.dtype), elems);
	if (f->chunk >= operation_chunks(&f->of, f->chunk_elems))
		return rs_fail(e, RS_EPROTO, "chunk %u is past the end of %" PRIu64 " elements", f->chunk, f->of.count);
	elems = operation_place(&f->of, f->chunk_elems, f->chunk).elems;
	want = f->flags & FRAME_WIDE ? elems * (uint64_t)sizeof(float) : operation_up_bytes(&f->of, elems);
	if (have || (broadcast && !root))
		want = 0;
	if (f->payload_len != want)
		return rs_fail(e, RS_EPROTO,
			       "chunk %u of operation %" PRIu64 " has %u payload bytes instead of %" PRIu64, f->chunk,
			       f->of.seq, f->payload_len, want);
	if (st->p.checksum && !(f->flags & FRAME_CHECKED) && want)
		return rs_fail(e, RS_EPROTO, "a payload has no checksum, although the job asks for checksums");
	return RS_OK;
}

static void contribution_start_slot(struct stripe *st, struct slot *slot, const struct frame *f, unsigned rank)
{
	size_t words = (stripe_places(st) + 63) / 64;

	slot->header = *f;
	slot->first_rank = rank;
	slot->started_ms = st->owner->now_ms;
	slot->started_us = slot->full_us = st->owner->now_us;
	slot->worked_ns = 0;
	slot->order = st->sessions[rank]->streams[f->of.priority].started;
	slot->elems = operation_place(&f->of, f->chunk_elems, f->chunk).elems;
	slot->filled = 0;
	slot->contributed = 0;
	slot->have_n = 0;
	slot->fetching = slot->waiting = slot->ahead = slot->closed = false;
	slot->combined = 0;
	slot->roots = 0;
	slot->unsent = 0;
	memset(slot->started, 0, SLOT_SETS * words * sizeof *slot->started);
	if (stripe_is_grouped(st))
		groups_start_slot(st, slot, st->sessions[rank], f);
}

/* Takes a free slot for the first contribution to a chunk. */
static int contribution_take_slot(struct stripe *st, const struct frame *f, unsigned rank, struct slot **ret,
				  struct rs_err *e)
{
	struct slot **chain = stripe_chain(st, f->of.seq, f->chunk), *slot = st->free[f->of.priority];

	if (!slot && stripe_is_grouped(st))
		return rs_fail(e, RS_EMISMATCH, "ranks have begun more than %u chunks of priority %u that others lack",
			       st->slots_n, f->of.priority);
	if (!slot)
		return contribution_no_slot(st, f, rank, e);
	rs_assert((size_t)(slot - st->slots) / st->slots_n == f->of.priority);
	rs_assert(slot->unsent == 0 && !slot->fetching && !slot->waiting);
	st->free[f->of.priority] = slot->next;
	contribution_start_slot(st, slot, f, rank);
	slot->next = *chain;
	*chain = slot;
	*ret = slot;
	return RS_OK;
}

/* Fails because the ranks say that a chunk of a sharded operation has two owners, or
 * none. */
static int contribution_owners(struct stripe *st, const struct slot *slot, unsigned rank, struct rs_err *e)
{
	const struct frame *f = &slot->header;
	uint32_t part = operation_place(&f->of, f->chunk_elems, f->chunk).part;
	char name[160], other[160];

	if (!slot->roots)
		return rs_fail(e, RS_EMISMATCH,
			       "ranks disagree about operation %" PRIu64 ": no rank says that part %" PRIu32
			       " is its own",
			       f->of.seq, part);
	return rs_fail(e, RS_EMISMATCH,
		       "ranks disagree about operation %" PRIu64 ": both %s and %s say that part %" PRIu32
		       " is their own",
		       f->of.seq, stripe_rank_name(st, rank, name, sizeof name),
		       stripe_rank_name(st, slot->root, other, sizeof other), part);
}

/* Stores the ROOT flag of a chunk, which only one rank may set. */
static int contribution_take_root(struct stripe *st, struct slot *slot, unsigned rank, struct rs_err *e)
{
	char name[160], other[160];

	if (slot->roots && slot->header.of.sharded)
		return contribution_owners(st, slot, rank, e);
	if (slot->roots++ > 0)
		return rs_fail(e, RS_EMISMATCH,
			       "ranks disagree about operation %" PRIu64
			       ": both %s and %s say that they are the root of the broadcast",
			       slot->header.of.seq, stripe_rank_name(st, rank, name, sizeof name),
			       stripe_rank_name(st, slot->root, other, sizeof other));
	slot->root = rank;
	return RS_OK;
}

unsigned contribution_stash(const struct stripe *st, const struct session *s)
{
	return s->relay ? groups_first(st, s->group) : s->rank;
}

int contribution_begin(struct stripe *st, const struct frame *f, unsigned rank, struct slot **ret, struct rs_err *e)
{
	struct slot *slot;
	char name[160];
	int rc = contribution_check_header(st, f, e);

	if (!rc)
		rc = groups_check_header(st, st->sessions[rank], f, e);
	if (rc)
		return rs_wrap(e, "%s broke the protocol", stripe_rank_name(st, rank, name, sizeof name));
	slot = stripe_find_slot(st, f->of.seq, f->chunk);
	if (slot) {
		rc = contribution_check_operation(st, slot, f, rank, e);
		if (!rc && !stripe_is_grouped(st))
			rc = contribution_check_sequence(st, slot, rank, e);
	} else {
		rc = contribution_take_slot(st, f, rank, &slot, e);
	}
	if (!rc && stripe_is_grouped(st))
		rc = groups_cover(st, slot, st->sessions[rank], f, e);
	if (rc)
		return rc;
	rs_assert(rank < stripe_places(st) && !slot_bit(slot->started, rank));
	slot_bit_set(slot->started, rank);
	if (f->type == FRAME_HAVE) {
		slot_bit_set(slot->have, rank);
		slot->have_n++;
	}
	if (f->flags & FRAME_WIDE)
		slot_bit_set(slot->wide, contribution_stash(st, st->sessions[rank]));
	/* of a reduce-scatter the owner alone has a result */
	if (f->flags & FRAME_ROOT || (f->type == FRAME_HAVE && operation_is_scatter(&f->of)))
		rc = contribution_take_root(st, slot, rank, e);
	if (!rc)
		*ret = slot;
	return rc;
}

/* All expected ranks are covered: the sum of a group goes to the home, that of all ranks
 * is the result. */
static void contribution_all(struct stripe *st, struct slot *slot)
{
	struct rs_err why;

	if (!slot->relay) {
		slot_finish(slot, st->owner->opt.kernels, st->processes, st->stable, st->p.checksum);
		result_send(st, slot);
	} else if (uplink_forward(st, slot, &why)) {
		why.code = stripe_loss_code(st);
		stripe_fail(st, &why, NULL);
	}
}

int contribution_complete(struct stripe *st, struct slot *slot, unsigned rank, struct rs_err *e)
{
	bool broadcast = slot->header.of.op == FRAME_OP_BROADCAST, full;

	rs_assert(slot->contributed < slot->expected && slot_bit(slot->started, rank));
	if (st->p.deterministic && !broadcast) {
		slot_bit_set(slot->complete, contribution_stash(st, st->sessions[rank]));
		if (!slot->have_n && !stripe_is_grouped(st))
			slot_combine(slot, st->owner->opt.kernels, st->stash_stride, st->p.world_size);
	}
	slot->contributed += groups_covers(st, st->sessions[rank]);
	stripe_trace(st, TRACE_COMPLETE, slot, rank, 0);
	full = stripe_is_full(st, slot);
	stripe_count_contribution(st, slot, rank, full);
	if (!full)
		return RS_OK;
	slot->full_us = st->owner->now_us;
	if (slot->have_n || slot->contributed < slot->expected) {
		retained_complete(st, slot);
		return RS_OK;
	}
	if (slot->header.of.sharded && slot->roots == 0)
		return contribution_owners(st, slot, rank, e);
	if (broadcast && slot->roots == 0)
		return rs_fail(e, RS_EMISMATCH, "no rank says that it is the root of broadcast %" PRIu64,
			       slot->header.of.seq);
	if (st->p.deterministic && !broadcast && stripe_is_grouped(st))
		groups_fold(st, slot);
	rs_assert(slot->filled == slot->elems);
	contribution_all(st, slot);
	return RS_OK;
}
