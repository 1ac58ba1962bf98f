/* SPDX-License-Identifier: Apache-2.0 */
/* Operations whose input arrives, and whose results leave, while they run. The happy
 * path: a local rank's SUBMIT says that not all of send has been written -> all local
 * ranks have started the operation and the engine has it -> each FILLED lets the engine
 * send what all local ranks have written so far -> results land, and LANDED tells clients
 * with a ring how far -> DONE. Failure modes: an invalid FILLED (its client is dropped);
 * a local rank that leaves or is too late with the rest (the job ends and names it). */
#include "agent/node/core/progress.h"
#include "agent/node/core/client.h"
#include "agent/node/core/text.h"
#include "common/assert.h"
#include "proto/frame.h"

#include <inttypes.h>
#include <stdatomic.h>

static uint64_t local_op_round_up(uint64_t n, uint64_t unit)
{
	return (n + unit - 1) / unit * unit;
}

int local_ring_check(const struct local_job *j, const struct local_submit *s, struct rs_err *e)
{
	uint64_t unit = j->cfg->sharding.chunk_bytes, chunk = local_job_span(j, &s->of);
	uint64_t least = (j->ring_bytes + unit - 1) / unit * chunk;

	if ((s->of.count - s->missing) * s->of.size > s->ring)
		return rs_fail(e, RS_EPROTO, "SUBMIT with %" PRIu64 " elements in a ring of %" PRIu64 " bytes",
			       s->of.count - s->missing, s->ring);
	if (s->ring >= operation_bytes(&s->of) || (s->ring >= least && s->ring % chunk == 0))
		return RS_OK;
	return rs_fail(e, RS_EPROTO,
		       "SUBMIT with a ring of %" PRIu64 " bytes, expected at least %" PRIu64
		       ", in whole chunks of %" PRIu64,
		       s->ring, least, chunk);
}

static uint64_t local_op_filled_by_all(const struct local_op *op)
{
	uint64_t least = op->spec.of.count;

	for (unsigned i = 0; i < op->job->members_n; i++)
		if (op->part[i].filled < least)
			least = op->part[i].filled;
	return least;
}

/* Returns what the engine may send when all local ranks have filled n elements. The
 * chunks of a sharded operation take all parts in turn, and it is filled as a whole. */
static uint64_t local_op_ready(const struct local_op *op, uint64_t n)
{
	return op->spec.of.sharded && n == op->spec.of.count ? UINT64_MAX : n;
}

/* Returns how far a local rank must have filled its memory at its next FILLED. */
static uint64_t local_op_min_filled(const struct local_op *op, const struct local_part *side)
{
	return op->spec.of.sharded ? op->spec.of.count : side->filled + 1;
}

/* Returns how far a local rank may have filled its ring: behind what has landed; if the
 * engine has not started, from the beginning. */
static uint64_t local_op_max_filled(const struct local_op *op, const struct local_part *side)
{
	uint64_t n = side->ring / op->spec.of.size;

	if (side->ring && atomic_load(&op->landed) + n < op->spec.of.count)
		return atomic_load(&op->landed) + n;
	return op->spec.of.count;
}

void local_op_track_input(struct local_op *op)
{
	struct local_job *j = op->job;
	uint64_t filled = local_op_filled_by_all(op);

	atomic_init(&op->ready, local_op_ready(op, filled));
	if (filled == op->spec.of.count)
		return;
	op->since_ms = j->hub->now_ms; /* from here on it waits for bytes, not for the start */
	op->x.ready = &op->ready;
	op->filling = true;
	op->next_filling = NULL;
	op->filling_at = j->filling_end;
	*j->filling_end = op;
	j->filling_end = &op->next_filling;
}

void local_op_untrack_input(struct local_op *op)
{
	struct local_job *j = op->job;

	if (!op->filling)
		return;
	op->filling = false;
	rs_assert(*op->filling_at == op);
	*op->filling_at = op->next_filling;
	if (op->next_filling)
		op->next_filling->filling_at = op->filling_at;
	else
		j->filling_end = op->filling_at;
}

/* Returns the operation of this seq if it waits for bytes. All with seq >= matched wait
 * for local ranks. */
static struct local_op *local_op_find_input(const struct local_job *j, uint64_t seq)
{
	struct local_op *op = j->filling;

	if (seq >= j->matched)
		return seq < j->newest ? j->ring[seq % j->hub->ops] : NULL;
	while (op && op->spec.of.seq != seq)
		op = op->next_filling;
	return op;
}

int local_job_filled(struct local_client *c, const struct local_filled *f, struct rs_err *e)
{
	struct local_job *j = c->job;
	struct local_member *m = &j->members[c->local_rank];
	struct local_part *side;
	struct local_op *op;
	uint64_t filled, ready;

	if (j->state > JOB_RUNNING)
		return RS_OK; /* it has not read the ABORT yet */
	if (f->seq >= m->next_seq)
		return rs_fail(e, RS_EPROTO, "FILLED of operation %" PRIu64 ", which it has not started", f->seq);
	op = local_op_find_input(j, f->seq);
	if (!op)
		return RS_OK; /* it has failed, and the client has not read that yet */
	side = &op->part[c->local_rank];
	if (f->count < local_op_min_filled(op, side) || f->count > local_op_max_filled(op, side))
		return rs_fail(e, RS_EPROTO,
			       "FILLED up to element %" PRIu64 " of operation %" PRIu64 ", expected %" PRIu64
			       " to %" PRIu64,
			       f->count, f->seq, local_op_min_filled(op, side), local_op_max_filled(op, side));
	side->filled = f->count;
	filled = local_op_filled_by_all(op);
	ready = local_op_ready(op, filled);
	if (!op->filling || ready == atomic_load_explicit(&op->ready, memory_order_relaxed))
		return RS_OK;
	if (filled == op->spec.of.count)
		local_op_untrack_input(op);
	rs_assert(ready > atomic_load_explicit(&op->ready, memory_order_relaxed));
	/* after this the engine may end the operation; its event is handled later, on
	 * this thread */
	atomic_store_explicit(&op->ready, ready, memory_order_release);
	j->hub->ports.engine_poke(j->hub->ctx, j->engine);
	return RS_OK;
}

int local_job_check_input(const struct local_job *j, struct rs_err *e)
{
	char who[LOCAL_RANK_TEXT];

	for (const struct local_op *op = j->filling; op; op = op->next_filling) {
		for (unsigned i = 0; i < j->members_n; i++) {
			if (!j->members[i].left || op->part[i].filled == op->spec.of.count)
				continue;
			return rs_fail(e, RS_ECLOSED,
				       "%s has left the job before it had given all of operation %" PRIu64,
				       local_job_rank_text(j, i, who), op->spec.of.seq);
		}
	}
	return RS_OK;
}

/* Returns the first local rank that could provide more; members_n: all wait for
 * results. */
static unsigned local_op_lagging_rank(const struct local_op *op)
{
	unsigned i = 0;

	while (i < op->job->members_n && op->part[i].filled == local_op_max_filled(op, &op->part[i]))
		i++;
	return i;
}

const struct local_op *local_job_lagging_op(const struct local_job *j)
{
	const struct local_op *op = j->filling;

	while (op && local_op_lagging_rank(op) == j->members_n)
		op = op->next_filling;
	return op;
}

int local_op_input_late(const struct local_op *op, struct rs_err *e)
{
	const struct local_job *j = op->job;
	unsigned i = local_op_lagging_rank(op);
	char what[80], who[LOCAL_RANK_TEXT];

	operation_describe(what, sizeof what, &op->spec.of);
	return rs_fail(
	    e, RS_EPEER, "operation %" PRIu64 ", %s, was not done within %u ms: %s has given only %" PRIu64 " elements",
	    op->spec.of.seq, what, j->cfg->timeouts.op_ms, local_job_rank_text(j, i, who), op->part[i].filled);
}

/* Returns the number of chunks of piece i; 0 after the last piece. */
static uint32_t local_op_piece_chunks(const struct local_op *op, uint64_t i)
{
	uint32_t chunk = (uint32_t)(local_job_span(op->job, &op->spec.of) / op->spec.of.size);
	uint64_t first = i * op->piece, n;

	if (first >= op->spec.of.count)
		return 0;
	n = op->spec.of.count - first < op->piece ? op->spec.of.count - first : op->piece;
	return (uint32_t)frame_chunks(n, chunk);
}

void local_op_pieces(struct local_op *op)
{
	unsigned size = op->spec.of.size;
	uint64_t chunk = local_job_span(op->job, &op->spec.of);

	/* so that a ring has at most half as many pieces as are counted at a time, and at
	 * least four */
	op->piece = local_op_round_up(op->ring / (LOCAL_PIECES / 2), chunk);
	if (op->piece < exchange_piece_bytes(chunk))
		op->piece = exchange_piece_bytes(chunk);
	rs_assert(op->piece > 0 && op->piece % size == 0);
	op->piece /= size;
	for (unsigned i = 0; i < LOCAL_PIECES; i++)
		op->left[i] = local_op_piece_chunks(op, i);
	op->progress.kind = LOCAL_EVENT_LANDED;
	op->progress.owner = op;
}

/* Publishes progress to all clients with a ring: now in their counters, and soon by
 * LANDED. */
static void local_op_publish_landed(struct local_op *op, uint64_t landed)
{
	struct local_hub *h = op->job->hub;

	atomic_store(&op->landed, landed);
	for (unsigned i = 0; i < op->job->members_n; i++)
		if (op->part[i].landed)
			atomic_store_explicit(op->part[i].landed, landed, memory_order_release);
	if (!atomic_exchange(&op->event_posted, true))
		h->ports.post(h->ctx, &op->progress);
}

void local_op_landed(struct local_op *op, uint64_t first)
{
	uint64_t i = op->pieces_landed;

	op->left[first / op->piece % LOCAL_PIECES]--;
	while (i * op->piece < op->spec.of.count && op->left[i % LOCAL_PIECES] == 0) {
		op->left[i % LOCAL_PIECES] = local_op_piece_chunks(op, i + LOCAL_PIECES);
		i++;
	}
	if (i == op->pieces_landed)
		return;
	op->pieces_landed = i;
	if (i * op->piece < op->spec.of.count) /* DONE covers the rest */
		local_op_publish_landed(op, i * op->piece);
}

void local_op_send_landed(struct local_op *op)
{
	struct local_job *j = op->job;
	union local_message m;

	atomic_store(&op->event_posted, false); /* first: what lands from here on posts an event of its own */
	local_init(&m, LOCAL_LANDED);
	for (unsigned i = 0; i < j->members_n; i++)
		if (op->part[i].landed && j->members[i].client)
			j->hub->ports.send(j->hub->ctx, j->members[i].client, &m, -1);
}
