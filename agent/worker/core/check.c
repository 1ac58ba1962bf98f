/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/worker/core/check.h"

#include "agent/worker/core/link.h"
#include "agent/worker/core/stream.h"

static const char *window_check(const struct window *w)
{
	if (w->most == 0)
		return NULL; /* the link has not been connected yet */
	if (w->limit < 1 || w->limit > w->most)
		return "a window's limit is 0 or above the configured window";
	if (w->hold_ms < WINDOW_HOLD_MIN_MS || w->hold_ms > WINDOW_HOLD_MAX_MS)
		return "a window's hold time is out of its range";
	return NULL;
}

/* The retained results of all priorities. */
static const char *retain_check(const struct retain *r, unsigned priorities)
{
	for (unsigned p = 0; p < priorities; p++)
		for (uint64_t i = 0; i < r->size; i++) {
			const struct retained *k = &r->entries[p * r->size + i];

			if (!k->tag)
				continue;
			if ((k->tag - 1) % r->size != i)
				return "a retained result is in the entry of another position";
			if (k->tag > r->seen[p])
				return "a result is retained whose position was never seen";
			if (k->head.of.priority != p)
				return "a retained result has another priority than its entry";
			if (k->head.payload_len && !k->data)
				return "a retained result has no data";
		}
	return NULL;
}

/* The chunks in the ring are in the order of their positions, and each has the header of
 * its operation. */
static const char *check_ring(const struct link *l, const struct stream *s)
{
	unsigned priority = (unsigned)(s - l->streams);

	for (uint32_t at = s->head; at != s->tail; at++) {
		const struct outgoing *f = &s->ring[at & s->mask];

		if (f->op && (f->op->of.seq != f->head.of.seq || f->op->stream != priority))
			return "a frame in a stream belongs to another operation";
		if (priority == LINK_RETAINED)
			continue;
		if (f->head.of.priority != priority)
			return "a frame is in the stream of another priority";
		if (at != s->head && f->position <= s->ring[(at - 1) & s->mask].position)
			return "the chunks of a stream are out of order";
	}
	return NULL;
}

static const char *check_cursor(const struct link *l, const struct stream *s)
{
	const struct exchange_op *op = s->op;
	const unsigned shards = l->x->params->shards;
	const struct shard_list *list;

	if (!op)
		return NULL;
	if (&l->streams[op->stream] != s)
		return "the cursor of a stream is in an operation of another priority";
	list = stream_shards(l, op, s->chunk);
	if (s->chunk >= op->chunks || s->own_at >= list->n)
		return "the cursor of a stream is behind its operation";
	if (list->shards[s->own_at] != (op->of.seq + s->chunk) % shards)
		return "the cursor of a stream is at a chunk of another link";
	return NULL;
}

const char *stream_check(const struct link *l, const struct stream *s)
{
	const char *broken;

	if (s->sent - s->head > s->tail - s->head)
		return "a stream has sent more frames than it has";
	if (s->credited - s->head > s->sent - s->head && s != &l->streams[LINK_RETAINED])
		return "a reducer has added more chunks of a stream than were sent";
	if (s->tail - s->head > s->mask + 1)
		return "a stream has more frames than its ring";
	if (s != &l->streams[LINK_RETAINED] && s->tail - s->head > l->ahead)
		return "a stream has more chunks without a result than the window";
	if (l->x->state > EXCHANGE_RUNNING)
		return NULL; /* its operations are done, and frames of them are not sent any more */
	broken = check_ring(l, s);
	return broken ? broken : check_cursor(l, s);
}

/* A link with its window and streams. */
static const char *link_check(const struct link *l)
{
	uint32_t chunks = 0, owed = 0;
	uint64_t bytes = 0;
	const struct stream *part = &l->streams[l->partial_stream];
	const char *broken = window_check(&l->window);

	for (unsigned p = 0; p < LINK_STREAMS && !broken; p++) {
		const struct stream *s = &l->streams[p];

		broken = stream_check(l, s);
		if (p == LINK_RETAINED || broken)
			continue;
		owed += s->tail - s->head;
		for (uint32_t at = s->credited; at != s->tail; at++, chunks++)
			bytes += s->ring[at & s->mask].bytes;
	}
	if (broken)
		return broken;
	if (chunks != l->chunks_in_flight || bytes != l->bytes_in_flight || owed != l->chunks_owed)
		return "a link counts other chunks in flight than its streams have";
	if (l->sent_off && part->sent == part->tail)
		return "a link has sent a part of a frame that is not there";
	if (l->sent_off && l->sent_off >= FRAME_HEADER + part->ring[part->sent & part->mask].head.payload_len)
		return "a completely sent frame still counts as partly sent";
	if (l->saved_off > l->saved_len)
		return "a link has sent more of its saved frame than it has";
	if (l->control_off > l->control_len || l->control_len > sizeof l->control_out)
		return "a link's queue of control frames is out of bounds";
	if (l->header_have >= FRAME_HEADER)
		return "a complete header was not handled";
	for (unsigned i = 1; i < l->own.n; i++)
		if (l->own.shards[i] <= l->own.shards[i - 1])
			return "the shards of a link are not ascending";
	return NULL;
}

static const char *check_operations(const struct exchange *x)
{
	const struct exchange_op *before = NULL;

	for (const struct exchange_op *op = x->first; op; before = op, op = op->next) {
		if (op->prev != before || (before && op->of.seq <= before->of.seq))
			return "the pending operations are not in the order of their numbers";
		if (op->of.seq >= x->next_seq)
			return "a pending operation has a number that was never given";
		if (op->chunks_left == 0 || op->chunks_left > op->chunks)
			return "a pending operation has no chunk left, or more than it has";
		if (op->position + op->chunks > x->next_position[op->stream])
			return "a pending operation ends behind the next operation's position";
	}
	if (x->last != before)
		return "the list of pending operations ends elsewhere";
	return x->state == EXCHANGE_ENDED && x->first ? "an ended exchange has pending operations" : NULL;
}

/* Returns whether a view has one share for each reducer, or none. */
static bool shares_are_sound(const struct control_view *v)
{
	for (unsigned r = 0; v->epoch && r < v->n; r++)
		if (v->shares[r] < 1 || v->shares[r] > CONTROL_SHARE_MAX)
			return false;
	return v->epoch <= CONTROL_LIFE_MAX;
}

const char *exchange_check_state(const struct exchange *x)
{
	const char *broken = check_operations(x);
	unsigned shards = 0;

	if (!broken)
		broken = retain_check(&x->retain, x->params->priorities);
	for (unsigned i = 0; i < x->links_n && !broken; i++) {
		broken = link_check(&x->links[i]);
		shards += x->links[i].own.n;
	}
	if (broken)
		return broken;
	if (!shares_are_sound(&x->view))
		return "an exchange's view has shares that are out of range";
	if (x->retaining && x->view_number != control_view_number(&x->view))
		return "an exchange's view has another number than it says";
	if (x->links_n && shards != x->params->shards)
		return "the links do not share all shards among themselves";
	return NULL;
}
