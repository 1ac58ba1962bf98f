/* SPDX-License-Identifier: Apache-2.0 */
/* The table of slots of a stripe, its memory and its names. */
#include "server/core/stripe.h"
#include "common/assert.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	CHECKSUM_STATE = 640,       /* most bytes of an XXH3_state_t */
	STRIPE_SLOTS_MAX = 1 << 16, /* more than a worker's D allows */
};

/* A rank is at most `window` chunks ahead of its oldest missing result. A chunk is
 * complete only when the slowest rank has sent it. So no rank is more than 2 x window
 * chunks ahead of the oldest slot in use. */
unsigned stripe_slot_count(const struct stripe_params *p)
{
	/* With groups, chunks come in a sequence for each group and for each uplink: a
	 * chunk that some have begun and others not is outstanding for those. With
	 * uplinks some chunks are outstanding for nobody: result_queue_for_far(). */
	uint64_t n = (2 * (uint64_t)(p->groups ? p->groups : 1) + p->uplinks + (p->uplinks > 0)) * p->window;

	return n < STRIPE_SLOTS_MAX ? (unsigned)n : STRIPE_SLOTS_MAX;
}

static size_t stripe_align(size_t bytes)
{
	return (bytes + 63) & ~(size_t)63;
}

/* Returns the bytes of an accumulator. Half types accumulate in float32, which takes
 * twice the bytes of the chunk; elements of 8 bits would take four times as many, those
 * of 4 bits eight times. */
static uint32_t stripe_decoded(const struct stripe_params *p)
{
	return p->decoded_bytes > 2 * p->chunk_bytes ? p->decoded_bytes : 2 * p->chunk_bytes;
}

/* Returns the bytes of a stash entry: a contribution as it came, at most twice the chunk
 * (a node's partial sums in float32). */
static size_t stripe_stash(const struct stripe_params *p)
{
	return stripe_align((size_t)p->chunk_bytes * 2);
}

/* Returns the bytes of a slot's accumulator and stash. */
static uint64_t stripe_buffers(const struct stripe_params *p)
{
	uint64_t stash = p->deterministic ? p->world_size - 1 : 0;

	/* with groups also that of the first rank, and the sum of a group */
	if (p->deterministic && p->groups)
		return 2 * stripe_align(stripe_decoded(p)) + p->world_size * stripe_stash(p);
	return stripe_align(stripe_decoded(p)) + stash * stripe_stash(p);
}

/* Returns the words of a bit set of a slot. */
static size_t stripe_words(const struct stripe_params *p)
{
	return (p->world_size + p->uplinks + 63) / 64;
}

uint64_t stripe_memory(const struct stripe_params *p)
{
	uint64_t bytes;

	if (__builtin_mul_overflow(stripe_buffers(p), (uint64_t)stripe_slot_count(p) * p->priorities, &bytes))
		return UINT64_MAX;
	return bytes;
}

static unsigned stripe_chain_count(const struct stripe_params *p)
{
	unsigned n = 1;

	while (n < 2 * stripe_slot_count(p) * p->priorities)
		n *= 2;
	return n;
}

/* Returns the most bytes that malloc takes for `bytes`: its header, alignment, and whole
 * pages if it asks the kernel.
 */
static uint64_t stripe_allocation(uint64_t bytes)
{
	return bytes + 64 + (bytes >= 64 << 10 ? 4096 : 0);
}

/* Returns the bytes of what a job with groups needs in addition: its tables, and uplinks
 * to the lanes of other reducers, which are about as many as come from there. */
static uint64_t stripe_groups_overhead(const struct stripe_params *p)
{
	if (!p->groups)
		return 0;
	return stripe_allocation(p->world_size * sizeof(uint16_t)) + stripe_allocation(p->groups * sizeof(unsigned)) +
	       stripe_allocation(sizeof(struct control_hello)) + p->uplinks * UPLINK_BYTES;
}

uint64_t stripe_overhead(const struct stripe_params *p)
{
	uint64_t slots = (uint64_t)stripe_slot_count(p) * p->priorities, words = stripe_words(p);
	uint64_t session = stripe_allocation(sizeof(struct session)) +
			   stripe_allocation(slots * sizeof(struct tx_result)) + stripe_allocation(CHECKSUM_STATE);

	return stripe_allocation(sizeof(struct stripe)) + stripe_allocation(slots * sizeof(struct slot)) +
	       stripe_allocation(slots * SLOT_SETS * words * sizeof(uint64_t)) +
	       stripe_allocation(stripe_chain_count(p) * sizeof(struct slot *)) +
	       stripe_allocation((p->world_size + p->uplinks) * sizeof(struct session *)) +
	       (p->world_size + p->uplinks) * session + stripe_groups_overhead(p);
}

struct stripe *stripe_find(struct lane *l, uint64_t job, unsigned lane)
{
	struct stripe *st = l->stripes;

	while (st && (st->p.job != job || st->p.lane != lane))
		st = st->next;
	return st;
}

void stripe_watch_restart(struct stripe *st)
{
	st->watch.slot = NULL;
	st->waited_until_ms = st->owner->now_ms;
}

void stripe_clear(struct stripe *st)
{
	size_t words = stripe_words(&st->p);
	uint64_t buffers = stripe_buffers(&st->p);

	memset(st->chains, 0, ((size_t)st->mask + 1) * sizeof(*st->chains));
	memset(st->free, 0, sizeof st->free);
	memset(st->fetching, 0, sizeof st->fetching);
	memset(st->oldest, 0, sizeof st->oldest);
	memset(st->newest, 0, sizeof st->newest);
	memset(st->ahead, 0, sizeof st->ahead);
	stripe_watch_restart(st);
	for (unsigned i = st->slots_n * st->p.priorities; i-- > 0;) {
		struct slot *s = &st->slots[i], **list = &st->free[i / st->slots_n];

		s->fetching = s->waiting = s->ahead = s->relay = false;
		s->uplink = SLOT_UPLINK_NONE;
		s->expected = st->p.world_size;
		s->acc = st->p.memory + i * buffers;
		s->stash = buffers > st->stride ? s->acc + st->stride : NULL;
		s->started = st->bits + i * SLOT_SETS * words;
		s->complete = s->started + words;
		s->wide = s->complete + words;
		s->have = s->wide + words;
		s->covered = s->have + words;
		s->early = s->covered + words;
		s->next = *list;
		*list = s;
	}
}

static void stripe_free_tables(struct stripe *st)
{
	free(st->slots);
	free(st->chains);
	free(st->bits);
}

/* Allocates what depends on the window. Returns false without memory. */
static bool stripe_allocate_tables(struct stripe *st)
{
	const struct stripe_params *p = &st->p;
	size_t words = stripe_words(p), slots;
	unsigned chains = stripe_chain_count(p);

	st->slots_n = stripe_slot_count(p);
	st->mask = chains - 1;
	slots = (size_t)st->slots_n * p->priorities;
	st->slots = calloc(slots, sizeof *st->slots);
	st->chains = calloc(chains, sizeof(*st->chains));
	st->bits = calloc(slots * SLOT_SETS * words, sizeof *st->bits);
	if (st->slots && st->chains && st->bits)
		return true;
	stripe_free_tables(st);
	return false;
}

int stripe_new(struct stripe **ret, struct lane *l, const struct stripe_params *p, struct rs_err *e)
{
	struct stripe *st = calloc(1, sizeof *st);

	if (!st)
		return rs_oom(e, 0, "the lane's tables");
	st->owner = l;
	st->p = *p;
	st->decoded_bytes = stripe_decoded(p);
	st->stride = stripe_align(st->decoded_bytes);
	st->stash_stride = stripe_stash(p);
	st->sessions = calloc(p->world_size + p->uplinks, sizeof *st->sessions);
	if (!st->sessions || !stripe_allocate_tables(st)) {
		free(st->sessions);
		free(st);
		return rs_oom(e, 0, "the lane's tables");
	}
	st->at_stable = p->world_size;
	stripe_clear(st);
	st->next = l->stripes;
	l->stripes = st;
	*ret = st;
	return RS_OK;
}

int stripe_widen(struct stripe *st, uint32_t window, uint8_t *memory, struct rs_err *e)
{
	struct stripe old = *st;

	rs_assert(!st->running);
	st->p.window = window;
	st->p.memory = memory + st->p.lane * stripe_memory(&st->p);
	if (!stripe_allocate_tables(st)) {
		*st = old;
		return rs_oom(e, 0, "a window of %u chunks", window);
	}
	stripe_free_tables(&old);
	stripe_clear(st);
	return RS_OK;
}

void stripe_free(struct stripe *st)
{
	struct stripe **at = &st->owner->stripes;

	rs_assert(st->attached == 0);
	while (*at != st)
		at = &(*at)->next;
	*at = st->next;
	free(st->group_of);
	free(st->group_n);
	free(st->hello);
	free(st->sessions);
	stripe_free_tables(st);
	free(st->losses);
	free(st);
}

struct slot **stripe_chain(struct stripe *st, uint64_t seq, uint32_t chunk)
{
	uint64_t h = (seq * UINT64_C(0x9e3779b97f4a7c15)) ^ (chunk * UINT64_C(0xc2b2ae3d27d4eb4f));

	return &st->chains[(h >> 32) & st->mask];
}

struct slot *stripe_find_slot(struct stripe *st, uint64_t seq, uint32_t chunk)
{
	struct slot *slot = *stripe_chain(st, seq, chunk);

	while (slot && !slot_is(slot, seq, chunk))
		slot = slot->next;
	return slot;
}

void stripe_result_done(struct stripe *st, struct slot *slot)
{
	struct slot **at = stripe_chain(st, slot->header.of.seq, slot->header.chunk);

	lane_times_put(&st->times.waiting, slot->full_us - slot->started_us);
	lane_times_put(&st->times.summing, slot->worked_ns / 1000);
	lane_times_put(&st->times.sending, st->owner->now_us - slot->full_us);
	rs_assert(!slot->fetching && slot->contributed > 0);
	while (*at != slot)
		at = &(*at)->next;
	*at = slot->next;
	slot->next = st->free[slot->header.of.priority];
	st->free[slot->header.of.priority] = slot;
}

void stripe_result_sent(struct stripe *st, struct slot *slot)
{
	rs_assert(slot->unsent > 0);
	if (--slot->unsent == 0 && !slot->waiting)
		stripe_result_done(st, slot);
}

bool stripe_is_full(const struct stripe *st, const struct slot *slot)
{
	unsigned n = slot->contributed;
	/* no rank sends HAVE for a part whose owner has departed */
	bool settled = slot->have_n || (operation_is_scatter(&slot->header.of) && !slot->roots);

	if (n == slot->expected || !st->departed || !st->p.retain || slot->header.of.seq >= st->departed_ack ||
	    !settled || slot->relay)
		return n == slot->expected;
	for (unsigned r = 0; r < st->p.world_size; r++)
		n += stripe_has_departed(st, r) && stripe_is_absent(st, slot, r);
	return n == slot->expected;
}

const char *stripe_rank_name(const struct stripe *st, unsigned rank, char *buf, size_t size)
{
	const struct session *s = st->sessions[rank];

	if (rank >= st->p.world_size) {
		snprintf(buf, size, "%s", s && s->label[0] ? s->label : "a relay");
		return buf;
	}
	if (s && s->label[0])
		snprintf(buf, size, "rank %u (%s)", rank, s->label);
	else
		snprintf(buf, size, "rank %u", rank);
	return buf;
}

int stripe_out_of_step(const struct stripe *st, const struct slot *a, unsigned rank_a, const struct slot *b,
		       unsigned rank_b, struct rs_err *e)
{
	char name_a[160], name_b[160];

	stripe_rank_name(st, rank_a, name_a, sizeof name_a);
	stripe_rank_name(st, rank_b, name_b, sizeof name_b);
	return rs_fail(e, RS_EMISMATCH,
		       "ranks disagree about operation %" PRIu64 ": %s sent chunk %u of it where %s sent chunk %u of "
		       "operation %" PRIu64,
		       a->header.of.seq, name_a, a->header.chunk, name_b, b->header.chunk, b->header.of.seq);
}

int stripe_loss_code(const struct stripe *st)
{
	return st->p.retain ? RS_ECUT : RS_EPEER;
}
