/* SPDX-License-Identifier: Apache-2.0 */
/* Scheduling: which chunk a link sends next. The happy path: a new operation is added to
 * all links; each link steps through its own chunks of it in the order (seq, chunk), as
 * far as its window and the slowest link allow. After the loss of a reducer all links
 * start again at one position: HAVE is sent for chunks whose result this rank has, DATA
 * for the rest. Of a reduce-scatter that is DATA also for the parts of others, which only
 * they know to have arrived. */
#include "agent/worker/core/stream.h"
#include "agent/worker/core/encoded.h"
#include "agent/worker/core/nonfinite.h"
#include "common/assert.h"

#include <stdatomic.h>
#include <string.h>

/* Returns the first chunk of op that goes through relays; UINT64_MAX: none does. */
static uint64_t stream_border(const struct exchange *x, const struct exchange_op *op)
{
	uint64_t border = x->border[op->stream];

	if (!x->relaying || op->of.op == FRAME_OP_BROADCAST || op->of.sharded ||
	    operation_bytes(&op->of) <= x->params->relay_above)
		return UINT64_MAX;
	return border > op->position ? border - op->position : 0;
}

const struct shard_list *stream_shards(const struct link *l, const struct exchange_op *op, uint64_t chunk)
{
	return chunk >= stream_border(l->x, op) ? &l->relayed : &l->own;
}

/* Moves the cursor to the first chunk at or after `from` whose shard, (chunk + seq) mod
 * shards, is in the list. Returns false if there is none. */
static bool stream_seek_in(const struct link *l, struct stream *s, const struct exchange_op *op, uint64_t from,
			   const struct shard_list *list)
{
	unsigned shards = l->x->params->shards;
	unsigned first = (unsigned)((op->of.seq + from) % shards); /* shard of that chunk */
	unsigned lo = 0, hi = list->n;

	if (list->n == 0)
		return false;
	while (lo < hi) {
		unsigned mid = (lo + hi) / 2;

		if (list->shards[mid] < first)
			lo = mid + 1;
		else
			hi = mid;
	}
	s->own_at = lo < list->n ? lo : 0;
	rs_assert(s->own_at < list->n);
	s->chunk = from + (lo < list->n ? list->shards[lo] - first : list->shards[0] + shards - first);
	return s->chunk < op->chunks;
}

/* Moves the cursor to the first own chunk of op at or after `from`. Returns false if
 * there is none. */
static bool stream_seek(const struct link *l, struct stream *s, const struct exchange_op *op, uint64_t from)
{
	uint64_t border = stream_border(l->x, op);

	if (from < border) {
		bool found = stream_seek_in(l, s, op, from, &l->own);

		if (border >= op->chunks || (found && s->chunk < border))
			return found;
		from = border;
	}
	return stream_seek_in(l, s, op, from, &l->relayed);
}

/* Moves the cursor to the first own chunk at or after a position, in the stream's
 * operations from op on. With single_worker links send no chunks. */
static void stream_pick(const struct link *l, struct stream *s, struct exchange_op *op, uint64_t position)
{
	if (l->x->opt.single_worker)
		op = NULL;
	for (; op; op = op->next) {
		uint64_t from = position > op->position ? position - op->position : 0;

		if (&l->streams[op->stream] == s && from < op->chunks && stream_seek(l, s, op, from))
			break;
	}
	s->op = op;
}

void link_add_op(struct link *l, struct exchange_op *op)
{
	struct stream *s = &l->streams[op->stream];

	/* a link that waits for RESUME finds it then */
	if (!s->op && l->view == l->x->view_number)
		stream_pick(l, s, op, 0);
}

/* Chunks of op may still have to be repeated: they are found among the retained results
 * then. */
void link_remove_op(struct link *l, const struct exchange_op *op)
{
	struct stream *s = &l->streams[op->stream];

	if (s->op == op)
		stream_pick(l, s, op->next, 0);
}

void stream_begin(struct link *l, unsigned priority, uint64_t position)
{
	struct stream *s = &l->streams[priority];

	s->replay = position;
	/* what has come since, through relays, was sent on another link in this view */
	s->replay_end = l->x->relaying ? l->x->border[priority] : l->x->retain.seen[priority];
	stream_pick(l, s, l->x->first, position);
}

/* Moves the cursor to the next own chunk, of this operation or a later one. */
static void stream_advance(const struct link *l, struct stream *s)
{
	const struct shard_list *list = stream_shards(l, s->op, s->chunk);
	uint64_t before = s->chunk, border = stream_border(l->x, s->op);
	unsigned at = s->own_at + 1;

	rs_assert(s->op && s->own_at < list->n);
	if (at < list->n) {
		s->chunk += list->shards[at] - list->shards[at - 1];
	} else {
		at = 0;
		s->chunk += list->shards[0] + l->x->params->shards - list->shards[list->n - 1];
	}
	s->own_at = at;
	if (before < border && s->chunk >= border)
		s->chunk = stream_seek(l, s, s->op, border) ? s->chunk : s->op->chunks;
	if (s->chunk >= s->op->chunks)
		stream_pick(l, s, s->op->next, 0);
}

static uint32_t stream_data_bytes(const struct exchange_op *op, const struct operation_place *at)
{
	if (op->of.op == FRAME_OP_BROADCAST && !exchange_op_is_root(op, at))
		return 0;
	if (op->wide && !op->of.up)
		return at->elems * (uint32_t)sizeof(float);
	return operation_up_bytes(&op->of, at->elems);
}

uint32_t stream_result_bytes(const struct exchange_op *op, const struct operation_place *at)
{
	bool root = exchange_op_is_root(op, at);

	if (operation_is_scatter(&op->of) ? !root : op->of.op == FRAME_OP_BROADCAST && root)
		return 0;
	return operation_down_bytes(&op->of, at->elems);
}

/* Returns the bytes that a chunk takes of the window. Those of sharded operations are
 * smaller than others for the sake of the queues of ports, so more of them in flight
 * would be no help: a full one counts as any full chunk. */
static uint32_t stream_window_bytes(const struct exchange *x, const struct exchange_op *op, uint32_t elems)
{
	uint32_t up = operation_up_bytes(&op->of, elems), down = operation_down_bytes(&op->of, elems);
	uint64_t bytes = up > down ? up : down;

	if (op->of.sharded)
		bytes = bytes * x->params->chunk_bytes / operation_chunk_limit(&op->of, x->params->chunk_bytes);
	return (uint32_t)bytes;
}

/* Returns how many chunks may be without a result. */
static uint32_t stream_ahead(const struct link *l)
{
	uint32_t most = l->window.limit > l->lookahead.limit ? l->window.limit : l->lookahead.limit;

	return l->x->relaying && l->x->params->uplinks && most < l->ahead ? most : l->ahead;
}

/* Returns whether a chunk of the stream may be sent. Each stream may have a few chunks in
 * flight in addition to the window: otherwise ranks whose windows are full of different
 * priorities would wait for each other; see frame_reserve(). */
static bool stream_may_send(struct link *l, const struct stream *s, uint32_t bytes)
{
	uint32_t owed = s->tail - s->head, ahead = stream_ahead(l);

	if (l->chunks_owed >= ahead)
		l->lookahead.held = true;
	/* without CREDIT the reducer expects no more than the window allows */
	if ((l->chunks_owed < ahead || owed < frame_reserve(ahead)) &&
	    window_open(&l->window, l->chunks_in_flight, l->bytes_in_flight, bytes))
		return true;
	return owed < frame_reserve(l->window.limit);
}

/* Returns the position of the first chunk of the stream without a result; added: of the
 * first one that the reducer may not have added. */
static uint64_t stream_first_missing(const struct link *l, unsigned priority, bool added)
{
	const struct stream *s = &l->streams[priority];
	uint32_t at = added ? s->credited : s->head;

	if (!link_lives(l))
		return UINT64_MAX;
	if (l->view != l->x->view_number)
		return l->x->view.start[priority];
	if (at != s->tail)
		return s->ring[at & s->mask].position;
	/* chunks that are still to be repeated may be missing on other ranks */
	if (s->replay < s->replay_end)
		return s->replay;
	return s->op ? s->op->position + s->chunk : UINT64_MAX;
}

/* Returns the lowest position of stream_first_missing() of all links. */
static uint64_t stream_floor(const struct exchange *x, unsigned priority, bool added)
{
	uint64_t floor = UINT64_MAX;

	for (unsigned i = 0; i < x->links_n; i++) {
		uint64_t here = stream_first_missing(&x->links[i], priority, added);

		floor = here < floor ? here : floor;
	}
	return floor;
}

/* Returns whether a chunk at this position may be sent as far as the other links are
 * concerned. All links share this machine's port. Without this rule, links with few
 * shards would send theirs first, and then the links with many shards would have the rest
 * of the operation for themselves while the other reducers are idle: 0.7 of the speed
 * that the links allow if reducers have 15 and 6 shards. So links stay within max_lead
 * chunks of each other; in a decoupled job, where this is a step, within `pace` chunks of
 * what the other reducers have added. This cannot deadlock: every rank may send the first
 * chunk of which any rank has no result. The rule also bounds the results that must be
 * retained, see retain.h. */
static bool stream_within_lead(struct link *l, unsigned priority, uint64_t position)
{
	struct exchange *x = l->x;

	if (position - x->floor[priority] > x->max_lead)
		x->floor[priority] = stream_floor(x, priority, false);
	if (x->pace && position - x->paced[priority] > x->pace)
		x->paced[priority] = stream_floor(x, priority, true);
	if (position - x->floor[priority] <= x->max_lead && (!x->pace || position - x->paced[priority] <= x->pace))
		return true;
	x->held_back = true;
	return false;
}

/* Adds the prepared next entry of the ring to the stream. */
static void stream_push(struct link *l, struct stream *s, struct outgoing *f)
{
	rs_assert(f == &s->ring[s->tail & s->mask] && s->tail - s->head <= s->mask);
	f->head.ack = l->x->first ? l->x->first->of.seq : l->x->next_seq;
	frame_encode(&f->head, f->header);
	l->chunks_in_flight++;
	l->chunks_owed++;
	l->bytes_in_flight += f->bytes;
	s->tail++;
}

/* Pushes what is retained of a chunk: HAVE, or the contribution once more. */
static bool stream_push_retained(struct link *l, unsigned priority, uint64_t position, const struct retained *k)
{
	struct stream *s = &l->streams[priority];
	struct outgoing *f = &s->ring[s->tail & s->mask];
	uint32_t bytes = retained_is_contribution(k) ? k->head.payload_len : 0;

	if (!stream_within_lead(l, priority, position) || !stream_may_send(l, s, bytes))
		return false;
	*f = (struct outgoing){.position = position, .head = k->head};
	f->head.generation = l->x->opt.generation; /* of a relayed chunk it was another number */
	if (retained_is_contribution(k)) {
		f->payload = k->data;
		f->bytes = bytes;
	} else {
		f->head.type = FRAME_HAVE;
		f->head.flags = 0;
		f->head.payload_len = f->head.payload_sum = 0;
	}
	stream_push(l, s, f);
	return true;
}

static bool stream_is_own(const struct link *l, const struct frame *f)
{
	const struct exchange *x = l->x;
	unsigned shard = (unsigned)((f->of.seq + f->chunk) % x->params->shards);

	return x->owner[shard] == l->reducer && x->lane_of[shard] == l->lane;
}

/* Moves `replay` to the next chunk before the cursor whose result this rank has and whose
 * operation is done. Returns NULL if there is none. */
static const struct retained *stream_next_retained(struct link *l, unsigned priority, uint64_t cursor)
{
	struct stream *s = &l->streams[priority];
	uint64_t before = s->replay;
	const struct retained *k = NULL;

	while (s->replay < cursor && s->replay < s->replay_end) {
		k = retain_find(&l->x->retain, priority, s->replay);
		if (k && stream_is_own(l, &k->head))
			break;
		k = NULL;
		s->replay++;
	}
	if (s->replay != before && l->x->held_back) {
		/* another link may have waited for this one */
		l->x->held_back = false;
		l->x->links_changed = true;
	}
	return k;
}

static struct frame stream_data_head(const struct exchange *x, const struct stream *s, const struct operation_place *at)
{
	const struct exchange_op *op = s->op;
	bool root = exchange_op_is_root(op, at);
	struct frame f = {
	    .of = op->of,
	    .type = FRAME_DATA,
	    .flags = (uint8_t)((op->wide && !op->of.up ? FRAME_WIDE : 0) | (root ? FRAME_ROOT : 0)),
	    .payload_len = stream_data_bytes(op, at),
	    .chunk = (uint32_t)s->chunk,
	    .chunk_elems = op->chunk_elems,
	    .generation = x->opt.generation,
	};

	f.of.priority = op->stream;
	if (s->chunk >= stream_border(x, op)) {
		unsigned shard = (unsigned)((op->of.seq + s->chunk) % x->params->shards);

		if (x->relay[shard] != RS_NO_RELAY) {
			f.flags |= FRAME_RELAY;
			f.generation = frame_home(x->owner[shard], x->lane_of[shard]);
		}
	}
	return f;
}

/* Pushes the chunk at the cursor as DATA. Returns false if it may not be sent yet. */
static bool stream_push_data(struct link *l, unsigned priority, uint64_t position)
{
	struct exchange *x = l->x;
	struct stream *s = &l->streams[priority];
	struct exchange_op *op = s->op;
	struct outgoing *f = &s->ring[s->tail & s->mask];
	const struct operation_place at = operation_place(&op->of, op->chunk_elems, (uint32_t)s->chunk);
	uint64_t first = at.first;
	uint32_t elems = at.elems, len = stream_data_bytes(op, &at);
	uint32_t bytes = stream_window_bytes(x, op, elems);
	bool first_time;

	if (op->ready && atomic_load_explicit(op->ready, memory_order_acquire) < at.staged + elems)
		return false;
	if (!stream_within_lead(l, priority, position) || !stream_may_send(l, s, bytes) ||
	    (op->of.up && !encoded_has_room(s)))
		return false;
	*f = (struct outgoing){.op = op, .position = position, .bytes = bytes, .head = stream_data_head(x, s, &at)};
	first_time = retain_mark_sent(&x->retain, priority, position);
	if (first_time && op->fill && len > 0)
		op->fill(op, first, elems);
	if (len > 0)
		f->payload = exchange_op_sent(op, &at);
	if (first_time && len > 0 && !exchange_op_inspect(x, op, f->payload, first, elems))
		return false;
	if (op->of.up && len > 0)
		f->payload =
		    encoded_contribution(l, s, op, &(struct encoded_part){f->payload, first, elems, first_time});
	if (x->params->checksum && len > 0) {
		f->head.flags |= FRAME_CHECKED;
		f->head.payload_sum = frame_checksum(f->payload, len);
	}
	stream_push(l, s, f);
	return true;
}

bool stream_next(struct link *l, unsigned priority)
{
	struct stream *s = &l->streams[priority];
	uint64_t cursor = s->op ? s->op->position + s->chunk : UINT64_MAX;
	const struct retained *k;

	if (l->x->state != EXCHANGE_RUNNING || l->x->send_error.code || l->view != l->x->view_number)
		return false;
	k = stream_next_retained(l, priority, cursor);
	if (k) {
		if (!stream_push_retained(l, priority, s->replay, k))
			return false;
		s->replay++;
		return true;
	}
	if (!s->op)
		return false;
	if (cursor < s->replay_end)
		k = retain_find(&l->x->retain, priority, cursor);
	if (!(k ? stream_push_retained(l, priority, cursor, k) : stream_push_data(l, priority, cursor)))
		return false;
	if (s->replay <= cursor)
		s->replay = cursor + 1;
	stream_advance(l, s);
	return true;
}
