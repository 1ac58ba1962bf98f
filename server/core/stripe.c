/* SPDX-License-Identifier: Apache-2.0 */
#include "server/core/stripe.h"

#include "proto/control.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHECKSUM_STATE = 640 }; /* most bytes of an XXH3_state_t */

/* Slots of each priority. A rank is at most `window` chunks ahead of its own oldest missing result, and a chunk is
 * complete only when the slowest rank has sent it, so no rank is more than 2 x window ahead of the oldest slot still in
 * use. */
static unsigned stripe_slot_count(const struct stripe_params *p)
{
	return 2 * p->window;
}

/* Half types accumulate in float32: twice the bytes of the chunk. */
static size_t stripe_stride(const struct stripe_params *p)
{
	return ((size_t)p->chunk_bytes * 2 + 63) & ~(size_t)63;
}

static uint64_t stripe_buffers(const struct stripe_params *p)
{
	return (uint64_t)stripe_slot_count(p) * p->priorities * (p->deterministic ? p->world_size : 1);
}

uint64_t stripe_memory(const struct stripe_params *p)
{
	uint64_t bytes;

	if (__builtin_mul_overflow(stripe_buffers(p), (uint64_t)stripe_stride(p), &bytes))
		return UINT64_MAX;
	return bytes;
}

static unsigned stripe_chain_count(const struct stripe_params *p)
{
	unsigned chains = 1;

	while (chains < 2 * stripe_slot_count(p) * p->priorities)
		chains *= 2;
	return chains;
}

/* Most bytes that malloc takes for `bytes`: its own, alignment, and whole pages where it asks the kernel. */
static uint64_t allocation(uint64_t bytes)
{
	return bytes + 64 + (bytes >= 64 << 10 ? 4096 : 0);
}

uint64_t stripe_overhead(const struct stripe_params *p)
{
	uint64_t slots = (uint64_t)stripe_slot_count(p) * p->priorities, words = (p->world_size + 63) / 64;
	uint64_t session = allocation(sizeof(struct session)) + allocation(slots * sizeof(struct tx_result));

	if (p->checksum)
		session += allocation(CHECKSUM_STATE);
	return allocation(sizeof(struct stripe)) + allocation(slots * sizeof(struct slot)) +
	       allocation(slots * SLOT_SETS * words * sizeof(uint64_t)) +
	       allocation(stripe_chain_count(p) * sizeof(struct slot *)) +
	       allocation(p->world_size * sizeof(struct session *)) + p->world_size * session;
}

struct stripe *stripe_find(struct lane *l, uint64_t job, unsigned lane)
{
	struct stripe *st = l->stripes;

	while (st && (st->p.job != job || st->p.lane != lane))
		st = st->next;
	return st;
}

void stripe_clear(struct stripe *st)
{
	size_t words = (st->p.world_size + 63) / 64;
	size_t buffers = st->p.deterministic ? st->p.world_size : 1;

	memset(st->chains, 0, ((size_t)st->mask + 1) * sizeof(*st->chains));
	memset(st->free, 0, sizeof st->free);
	memset(st->fetching, 0, sizeof st->fetching);
	stripe_watch_restart(st);
	for (unsigned i = st->slots_n * st->p.priorities; i-- > 0;) {
		struct slot *s = &st->slots[i], **list = &st->free[i / st->slots_n];

		s->fetching = s->waiting = false;
		s->acc = st->p.memory + i * buffers * st->stride;
		s->stash = buffers > 1 ? s->acc + st->stride : NULL;
		s->started = st->bits + i * SLOT_SETS * words;
		s->complete = s->started + words;
		s->wide = s->complete + words;
		s->have = s->wide + words;
		s->next = *list;
		*list = s;
	}
}

int stripe_new(struct stripe **ret, struct lane *l, const struct stripe_params *p, struct rs_err *e)
{
	struct stripe *st = calloc(1, sizeof *st);
	size_t words = (p->world_size + 63) / 64;
	unsigned chains = stripe_chain_count(p), slots;

	if (!st)
		goto no_memory;
	st->owner = l;
	st->p = *p;
	st->slots_n = stripe_slot_count(p);
	st->stride = stripe_stride(p);
	slots = st->slots_n * p->priorities;
	st->mask = chains - 1;
	st->sessions = calloc(p->world_size, sizeof *st->sessions);
	st->slots = calloc(slots, sizeof *st->slots);
	st->chains = calloc(chains, sizeof(*st->chains));
	st->bits = calloc((size_t)slots * SLOT_SETS * words, sizeof *st->bits);
	if (!st->sessions || !st->slots || !st->chains || !st->bits)
		goto no_memory;
	st->at_stable = p->world_size;
	stripe_clear(st);
	st->next = l->stripes;
	l->stripes = st;
	*ret = st;
	return RS_OK;

no_memory:
	if (st) {
		free(st->sessions);
		free(st->slots);
		free(st->chains);
		free(st->bits);
		free(st);
	}
	return rs_fail(e, RS_ENOMEM, "no memory for the lane's tables");
}

void stripe_free(struct stripe *st)
{
	struct stripe **at = &st->owner->stripes;

	while (*at != st)
		at = &(*at)->next;
	*at = st->next;
	free(st->sessions);
	free(st->slots);
	free(st->chains);
	free(st->bits);
	free(st);
}

const char *stripe_rank_name(const struct stripe *st, unsigned rank, char *buf, size_t size)
{
	const struct session *s = st->sessions[rank];

	if (s && s->label[0])
		snprintf(buf, size, "rank %u (%s)", rank, s->label);
	else
		snprintf(buf, size, "rank %u", rank);
	return buf;
}

struct slot **stripe_chain(struct stripe *st, uint64_t seq, uint32_t chunk)
{
	uint64_t h = (seq * UINT64_C(0x9e3779b97f4a7c15)) ^ (chunk * UINT64_C(0xc2b2ae3d27d4eb4f));

	return &st->chains[(h >> 32) & st->mask];
}

static void describe(char *buf, size_t size, const struct frame *f)
{
	if (f->op == FRAME_OP_BROADCAST)
		snprintf(buf, size, "a broadcast of %" PRIu64 " %s", f->count, rs_dtype_name(f->dtype));
	else if (f->tensors)
		snprintf(buf, size, "an all-reduce %s of %" PRIu64 " %s (group of %u tensors)", rs_op_name(f->op),
			 f->count, rs_dtype_name(f->dtype), f->tensors);
	else
		snprintf(buf, size, "an all-reduce %s of %" PRIu64 " %s", rs_op_name(f->op), f->count,
			 rs_dtype_name(f->dtype));
}

/* What two ranks must agree on before their bytes may be added up. */
static bool is_same(const struct frame *f, const struct frame *g)
{
	return f->dtype == g->dtype && f->op == g->op && f->count == g->count && f->chunk_elems == g->chunk_elems &&
	       f->tensors == g->tensors;
}

static int check_agreement(struct stripe *st, const struct slot *slot, const struct frame *f, unsigned rank,
			   struct rs_err *e)
{
	const struct frame *g = &slot->header;
	char mine[96], theirs[96], me[160], other[160];

	/* before any words are made: this is every contribution's way */
	if (is_same(f, g) && f->priority == g->priority && f->name_hash == g->name_hash)
		return RS_OK;
	stripe_rank_name(st, rank, me, sizeof me);
	stripe_rank_name(st, slot->first_rank, other, sizeof other);
	if (!is_same(f, g)) {
		describe(mine, sizeof mine, f);
		describe(theirs, sizeof theirs, g);
		return rs_fail(e, RS_EMISMATCH, "ranks disagree about operation %" PRIu64 ": %s called %s, %s %s",
			       f->seq, me, mine, other, theirs);
	}
	if (f->priority != g->priority)
		return rs_fail(e, RS_EMISMATCH,
			       "ranks disagree about operation %" PRIu64 ": %s gave it priority %u, %s priority %u",
			       f->seq, me, f->priority, other, g->priority);
	if (f->tensors)
		return rs_fail(e, RS_EMISMATCH,
			       "ranks disagree about operation %" PRIu64
			       ": %s gave its group of %u tensors other counts or names than %s",
			       f->seq, me, f->tensors, other);
	return rs_fail(e, RS_EMISMATCH, "ranks disagree about operation %" PRIu64 ": %s gave it another name than %s",
		       f->seq, me, other);
}

/* All ranks send the chunks of a priority in one sequence. Where they do not, one has chunks that another has not, and
 * neither could tell from the result that comes next. */
static int check_sequence(struct stripe *st, const struct slot *slot, unsigned rank, struct rs_err *e)
{
	uint64_t begun = st->sessions[rank]->streams[slot->header.priority].started;
	bool skipped = begun < slot->order; /* rank did, else the other */
	uint64_t order = skipped ? begun : slot->order;
	const struct slot *odd = slot; /* the chunk that only one of the two has sent: it cannot be complete */
	char me[160], other[160];

	if (begun == slot->order)
		return RS_OK;
	for (unsigned i = 0; i <= st->mask; i++)
		for (const struct slot *s = st->chains[i]; s; s = s->next)
			if (s->header.priority == slot->header.priority && s->order == order &&
			    slot_bit(s->started, rank) != skipped)
				odd = s;
	stripe_rank_name(st, skipped ? slot->first_rank : rank, me, sizeof me);
	stripe_rank_name(st, skipped ? rank : slot->first_rank, other, sizeof other);
	return rs_fail(e, RS_EMISMATCH,
		       "ranks disagree about operation %" PRIu64
		       ": %s sent chunk %u of it, %s went on to operation %" PRIu64 " without it",
		       odd->header.seq, me, odd->header.chunk, other, slot->header.seq);
}

/* All slots of a priority are in use. Ranks that send one sequence of chunks and keep to the window do not get there,
 * so two of them sent different chunks in the same place. */
static int no_slot(struct stripe *st, const struct frame *f, unsigned rank, struct rs_err *e)
{
	const struct slot *slots = st->slots + (size_t)f->priority * st->slots_n;
	struct slot mine = {
	    .header = *f, .first_rank = rank, .order = st->sessions[rank]->streams[f->priority].started};
	const struct slot *a = &mine, *b = &mine;
	char who_a[160], who_b[160];

	for (unsigned i = 0; i < st->slots_n && a == b; i++)
		for (unsigned j = i + 1; j <= st->slots_n && a == b; j++) {
			const struct slot *other = j < st->slots_n ? &slots[j] : &mine;

			if (slots[i].order == other->order) {
				a = slots[i].header.seq < other->header.seq ? &slots[i] : other;
				b = a == other ? &slots[i] : other;
			}
		}
	stripe_rank_name(st, a->first_rank, who_a, sizeof who_a);
	stripe_rank_name(st, b->first_rank, who_b, sizeof who_b);
	return rs_fail(e, RS_EMISMATCH,
		       "ranks disagree about operation %" PRIu64 ": %s sent chunk %u of it where %s sent chunk %u of "
		       "operation %" PRIu64,
		       a->header.seq, who_a, a->header.chunk, who_b, b->header.chunk, b->header.seq);
}

/* A frame from the network says what it is; nothing of it is believed before it fits the job. */
static int check_contribution(const struct stripe *st, const struct frame *f, struct rs_err *e)
{
	size_t size = rs_dtype_size(f->dtype), wire = f->flags & FRAME_WIDE ? sizeof(float) : size;
	bool broadcast = f->op == FRAME_OP_BROADCAST, root = f->flags & FRAME_ROOT, have = f->type == FRAME_HAVE;
	uint64_t want;

	if (have && (!st->p.retain || f->flags))
		return rs_fail(e, RS_EPROTO, "HAVE came with flags 0x%x in a job that %s", f->flags,
			       st->p.retain ? "knows none" : "does not fail over");

	if (size == 0)
		return rs_fail(e, RS_EPROTO, "dtype %u is unknown", f->dtype);
	if (f->op >= RS_OP_NR && !broadcast)
		return rs_fail(e, RS_EPROTO, "operation type %u is unknown", f->op);
	if (f->flags & FRAME_WIDE && (broadcast || !rs_dtype_is_half(f->dtype)))
		return rs_fail(e, RS_EPROTO, "the WIDE flag does not go with %s of %s",
			       broadcast ? "a broadcast" : "an all-reduce", rs_dtype_name(f->dtype));
	if (root && !broadcast)
		return rs_fail(e, RS_EPROTO, "the ROOT flag goes with a broadcast only");
	if (f->priority >= st->p.priorities)
		return rs_fail(e, RS_EPROTO, "priority %u is beyond the job's highest, which is %u", f->priority,
			       st->p.priorities - 1);
	if (f->chunk_elems == 0 || f->chunk_elems * (uint64_t)size > st->p.chunk_bytes)
		return rs_fail(e, RS_EPROTO, "chunks of %u elements do not fit the job's %u bytes", f->chunk_elems,
			       st->p.chunk_bytes);
	if (f->chunk >= frame_chunks(f->count, f->chunk_elems))
		return rs_fail(e, RS_EPROTO, "chunk %u is past the end of %" PRIu64 " elements", f->chunk, f->count);
	want = have || (broadcast && !root) ? 0 : frame_chunk_len(f->count, f->chunk_elems, f->chunk) * (uint64_t)wire;
	if (f->payload_len != want)
		return rs_fail(e, RS_EPROTO,
			       "chunk %u of operation %" PRIu64 " has %u payload bytes instead of %" PRIu64, f->chunk,
			       f->seq, f->payload_len, want);
	if (st->p.checksum && !(f->flags & FRAME_CHECKED) && want)
		return rs_fail(e, RS_EPROTO, "a payload has no checksum, although the job asks for checksums");
	return RS_OK;
}

static void slot_begin(struct stripe *st, struct slot *slot, const struct frame *f, unsigned rank)
{
	size_t words = (st->p.world_size + 63) / 64;

	slot->header = *f;
	slot->first_rank = rank;
	slot->started_ms = st->owner->now_ms;
	slot->elems = frame_chunk_len(f->count, f->chunk_elems, f->chunk);
	slot->filled = 0;
	slot->contributed = 0;
	slot->have_n = 0;
	slot->fetching = slot->waiting = slot->closed = false;
	slot->combined = 0;
	slot->roots = 0;
	slot->unsent = 0;
	memset(slot->started, 0, SLOT_SETS * words * sizeof *slot->started);
}

int stripe_open_slot(struct stripe *st, const struct frame *f, unsigned rank, struct slot **ret, struct rs_err *e)
{
	struct slot **chain = stripe_chain(st, f->seq, f->chunk), *slot = *chain;
	char name[160];
	int rc = check_contribution(st, f, e);

	if (rc)
		return rs_wrap(e, "%s broke the protocol", stripe_rank_name(st, rank, name, sizeof name));
	while (slot && (slot->header.seq != f->seq || slot->header.chunk != f->chunk))
		slot = slot->next;
	if (slot) {
		rc = check_agreement(st, slot, f, rank, e);
		if (!rc)
			rc = check_sequence(st, slot, rank, e);
		if (rc)
			return rc;
	} else {
		slot = st->free[f->priority];
		if (!slot)
			return no_slot(st, f, rank, e);
		st->free[f->priority] = slot->next;
		slot_begin(st, slot, f, rank);
		slot->order = st->sessions[rank]->streams[f->priority].started;
		slot->next = *chain;
		*chain = slot;
	}
	slot_bit_set(slot->started, rank);
	if (f->type == FRAME_HAVE) {
		slot_bit_set(slot->have, rank);
		slot->have_n++;
	}
	if (f->flags & FRAME_WIDE)
		slot_bit_set(slot->wide, rank);
	if (f->flags & FRAME_ROOT && slot->roots++ > 0) {
		char other[160];

		return rs_fail(e, RS_EMISMATCH,
			       "ranks disagree about operation %" PRIu64
			       ": both %s and %s say that they are the root of the broadcast",
			       f->seq, stripe_rank_name(st, rank, name, sizeof name),
			       stripe_rank_name(st, slot->root, other, sizeof other));
	}
	if (f->flags & FRAME_ROOT)
		slot->root = rank;
	*ret = slot;
	return RS_OK;
}

int stripe_loss_code(const struct stripe *st)
{
	return st->p.retain ? RS_ECUT : RS_EPEER;
}

int stripe_contribution_complete(struct stripe *st, struct slot *slot, unsigned rank, struct rs_err *e)
{
	bool broadcast = slot->header.op == FRAME_OP_BROADCAST, full;

	if (st->p.deterministic && !broadcast && !slot->have_n) {
		slot_bit_set(slot->complete, rank);
		slot_combine(slot, st->owner->opt.kernels, st->stride, st->p.world_size);
	}
	slot->contributed++;
	full = stripe_is_full(st, slot);
	stripe_count_contribution(st, slot, rank, full);
	if (!full)
		return RS_OK;
	if (slot->have_n) {
		stripe_complete_retained(st, slot);
		return RS_OK;
	}
	if (broadcast && slot->roots == 0)
		return rs_fail(e, RS_EMISMATCH, "no rank says that it is the root of broadcast %" PRIu64,
			       slot->header.seq);
	slot_finish(slot, st->owner->opt.kernels, st->processes, st->stable, st->p.checksum);
	stripe_send_result(st, slot);
	return RS_OK;
}

bool stripe_needs_rank(const struct stripe *st, unsigned rank, uint64_t ack)
{
	unsigned keeper;

	if (!st->p.retain && st->sessions[rank]->outstanding)
		return true;
	/* where jobs fail over, a rank leaves when all have what it has, and chunks of the past are of no interest */
	for (unsigned i = 0; i <= st->mask; i++)
		for (const struct slot *slot = st->chains[i]; slot; slot = slot->next)
			if (st->p.retain ? (slot->header.seq >= ack && slot->contributed < st->p.world_size) ||
					       (slot->fetching && !stripe_find_holder(st, slot, rank, &keeper))
					 : !slot_bit(slot->started, rank))
				return true;
	return false;
}

void stripe_result_sent(struct stripe *st, struct slot *slot)
{
	struct slot **at = stripe_chain(st, slot->header.seq, slot->header.chunk);

	if (--slot->unsent > 0)
		return;
	while (*at != slot)
		at = &(*at)->next;
	*at = slot->next;
	slot->next = st->free[slot->header.priority];
	st->free[slot->header.priority] = slot;
}

/* Whom the result of an operation could still interest: one that has left has all it started. */
static uint64_t done_of(const struct stripe *st, unsigned rank)
{
	const struct session *s = st->sessions[rank];

	return s && !s->departed ? s->done : UINT64_MAX;
}

static void notify_stable(struct stripe *st)
{
	for (unsigned r = 0; st->stable_waiters && r < st->p.world_size; r++) {
		struct session *s = st->sessions[r];

		if (!s || !s->waits_stable || s->done > st->stable)
			continue;
		s->waits_stable = false;
		st->stable_waiters--;
		s->ping_due = true;
		session_ready(s);
	}
}

void stripe_find_stable(struct stripe *st)
{
	uint64_t least = UINT64_MAX;

	st->at_stable = 0;
	for (unsigned r = 0; r < st->p.world_size; r++) {
		uint64_t done = done_of(st, r);

		if (done < least) {
			least = done;
			st->at_stable = 0;
		}
		if (done == least)
			st->at_stable++;
	}
	if (least == UINT64_MAX || least <= st->stable)
		return;
	st->stable = least;
	notify_stable(st);
}

void stripe_acked(struct stripe *st, struct session *s, uint64_t ack)
{
	uint64_t old = s->done;

	if (ack <= old || s->departed)
		return;
	s->done = ack;
	/* the minimum can only move when the last rank leaves it, which keeps this off the path of most frames */
	if (old == st->stable && --st->at_stable == 0)
		stripe_find_stable(st);
}

void stripe_request_stable(struct stripe *st, struct session *s)
{
	st->stable_waiters += !s->waits_stable;
	s->waits_stable = true;
	stripe_find_stable(st);
	notify_stable(st);
	for (unsigned r = 0; s->waits_stable && r < st->p.world_size; r++) {
		struct session *other = st->sessions[r];

		if (done_of(st, r) >= s->done)
			continue;
		other->query_due = true;
		session_ready(other);
	}
}

void stripe_end(struct stripe *st, const struct rs_err *why)
{
	uint8_t payload[FRAME_CONTROL_MAX];
	uint32_t len = control_pack_abort(payload, why->code, why->msg);

	st->ended = true;
	for (unsigned r = 0; r < st->p.world_size; r++) {
		struct session *s = st->sessions[r];

		if (!s || s->draining)
			continue;
		session_queue_frame(s, FRAME_ABORT, payload, len);
		session_drain(s);
	}
}

void stripe_fail(struct stripe *st, const struct rs_err *why)
{
	struct lane_event ev = {.type = LANE_FAILED, .job = st->p.job, .lane = st->p.lane, .why = *why};

	if (st->ended)
		return;
	stripe_end(st, why);
	st->owner->opt.event(st->owner->opt.ctx, &ev);
}
