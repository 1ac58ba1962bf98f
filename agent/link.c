/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of one link. The happy path of a chunk: the cursor picks it, its header is encoded into the ring, header
 * and payload are handed to the driver, its RESULT is read straight into the operation's memory, its ring entry is
 * free. Failure modes are violations: a RESULT that is not the one expected next, a wrong checksum, a frame that does
 * not belong to the link's state. Each ends the exchange. */
#include "agent/link.h"
#include "common/dtype.h"

#include <stdatomic.h>
#include <string.h>

/* Sets the cursor to the first own chunk of op; false when it has none. The chunk's shard is (chunk + seq) mod shards.
 */
static bool seek(const struct link *l, struct stream *s, const struct exchange_op *op)
{
	unsigned shards = l->x->cfg->sharding.shards;
	unsigned first = (unsigned)(op->seq % shards); /* shard of chunk 0 */
	unsigned lo = 0, hi = l->own_n;

	if (l->own_n == 0)
		return false;
	while (lo < hi) {
		unsigned mid = (lo + hi) / 2;

		if (l->own[mid] < first)
			lo = mid + 1;
		else
			hi = mid;
	}
	s->own_at = lo < l->own_n ? lo : 0;
	s->chunk = lo < l->own_n ? l->own[lo] - first : l->own[0] + shards - first;
	return s->chunk < op->chunks;
}

/* Sets the cursor to the first own chunk of the stream's operations from op on. */
static void pick(const struct link *l, struct stream *s, struct exchange_op *op)
{
	while (op && (&l->streams[op->stream] != s || !seek(l, s, op)))
		op = op->next;
	s->op = op;
}

void link_offer(struct link *l, struct exchange_op *op)
{
	struct stream *s = &l->streams[op->stream];

	if (!s->op)
		pick(l, s, op);
}

/* To the next own chunk, of this operation or a later one. */
static void advance(const struct link *l, struct stream *s)
{
	unsigned shards = l->x->cfg->sharding.shards;
	unsigned at = s->own_at + 1;

	if (at < l->own_n) {
		s->chunk += l->own[at] - l->own[at - 1];
	} else {
		at = 0;
		s->chunk += l->own[0] + shards - l->own[l->own_n - 1];
	}
	s->own_at = at;
	if (s->chunk >= s->op->chunks)
		pick(l, s, s->op->next);
}

bool link_holds(const struct link *l, const struct exchange_op *op)
{
	const struct stream *s = &l->streams[op->stream];

	for (uint32_t at = s->head; at != s->tail; at++)
		if (s->ring[at & l->mask].op == op)
			return true;
	return s->op == op;
}

static uint32_t contribution_bytes(const struct exchange_op *op, uint32_t elems)
{
	if (op->op == FRAME_OP_BROADCAST && !op->root)
		return 0;
	return elems * (uint32_t)(op->wide ? sizeof(float) : rs_dtype_size(op->dtype));
}

static uint32_t result_bytes(const struct exchange_op *op, uint32_t elems)
{
	if (op->op == FRAME_OP_BROADCAST && op->root)
		return 0;
	return elems * (uint32_t)rs_dtype_size(op->dtype);
}

/* May a chunk of the stream go out? What a stream may have in flight whatever the others have keeps ranks whose windows
 * are full of different priorities from waiting for each other; see frame_reserve(). */
static bool may_send(struct link *l, const struct stream *s, uint32_t bytes)
{
	return window_open(&l->window, l->chunks, l->flying, bytes) ||
	       s->tail - s->head < frame_reserve(l->window.limit);
}

/* The first chunk of the stream without a result, counted over all operations of its priority. */
static uint64_t position(const struct link *l, const struct stream *s)
{
	const struct flight *f = &s->ring[s->head & l->mask];

	if (s->head != s->tail)
		return f->op->position + f->chunk;
	return s->op ? s->op->position + s->chunk : UINT64_MAX;
}

/* May the chunk at the cursor go, as far as the other links are concerned? All links share this machine's port. Links
 * with few shards would send theirs first, and when they are done the links with many shards have the rest of the
 * operation for themselves, with the others' reducers idle: 0.7 of the speed that the links allow where reducers have
 * 15 and 6 shards. So links stay within `spread` chunks of each other. No rank can wait for ever: the first chunk that
 * any rank has no result of is within every rank's reach. */
static bool in_step(struct link *l, const struct stream *s)
{
	struct exchange *x = l->x;
	unsigned p = (unsigned)(s - l->streams);
	uint64_t at = s->op->position + s->chunk, floor = UINT64_MAX;

	if (at - x->floor[p] <= x->spread)
		return true;
	for (unsigned i = 0; i < x->links_n; i++) {
		uint64_t here = position(&x->links[i], &x->links[i].streams[p]);

		floor = here < floor ? here : floor;
	}
	x->floor[p] = floor;
	if (at - floor <= x->spread)
		return true;
	x->held = true;
	return false;
}

/* Encodes the chunk at the cursor into the ring, if there is one and the window has room. */
static bool encode_next(struct link *l, struct stream *s)
{
	const struct exchange *x = l->x;
	struct exchange_op *op = s->op;
	struct flight *f = &s->ring[s->tail & l->mask];
	struct frame h;
	uint64_t first;
	uint32_t elems;
	bool checked;

	if (!op || x->state != EXCHANGE_RUNNING)
		return false;
	first = s->chunk * op->chunk_elems;
	elems = frame_chunk_len(op->count, op->chunk_elems, (uint32_t)s->chunk);
	if (op->ready && atomic_load_explicit(op->ready, memory_order_acquire) < first + elems)
		return false;
	f->bytes = elems * (uint32_t)rs_dtype_size(op->dtype);
	if (!in_step(l, s) || !may_send(l, s, f->bytes))
		return false;
	l->chunks++;
	l->flying += f->bytes;
	f->op = op;
	f->chunk = (uint32_t)s->chunk;
	f->payload_len = contribution_bytes(op, elems);
	f->payload = NULL;
	if (f->payload_len > 0) {
		f->payload = (const char *)op->send + exchange_place(first * (f->payload_len / elems), op->send_ring);
		if (op->fill)
			op->fill(op, first, elems);
	}
	checked = x->cfg->job.checksum && f->payload_len > 0;
	h = (struct frame){
	    .type = FRAME_DATA,
	    .flags =
		(uint8_t)((op->wide ? FRAME_WIDE : 0) | (op->root ? FRAME_ROOT : 0) | (checked ? FRAME_CHECKED : 0)),
	    .priority = op->stream,
	    .dtype = op->dtype,
	    .op = op->op,
	    .payload_len = f->payload_len,
	    .chunk = f->chunk,
	    .seq = op->seq,
	    .count = op->count,
	    .ack = x->first->seq,
	    .generation = x->opt.generation,
	    .name_hash = op->name_hash,
	    .tensors = op->tensors,
	    .chunk_elems = op->chunk_elems,
	    .payload_sum = checked ? frame_checksum(f->payload, f->payload_len) : 0,
	};
	frame_encode(&h, f->header);
	s->tail++;
	advance(l, s);
	return true;
}

static unsigned add_flight(struct iovec *iov, struct flight *f, uint32_t off)
{
	unsigned n = 0;

	if (off < FRAME_HEADER) {
		iov[n++] = (struct iovec){f->header + off, FRAME_HEADER - off};
		off = FRAME_HEADER;
	}
	off -= FRAME_HEADER;
	if (off < f->payload_len)
		iov[n++] = (struct iovec){(char *)f->payload + off, f->payload_len - off};
	return n;
}

/* The order is: the frame that is under way, control frames, further chunks, those of higher priorities first.
 * link_sent counts in the same order. */
unsigned link_send_target(struct link *l, struct iovec *iov, unsigned max)
{
	struct stream *s = &l->streams[l->partial];
	unsigned n = 0;

	if (l->state < LINK_GREETING || l->state > LINK_ENDING)
		return 0;
	if (l->sent_off > 0)
		n += add_flight(iov, &s->ring[s->sent & l->mask], l->sent_off);
	if (l->control_off < l->control_len)
		iov[n++] = (struct iovec){l->control_out + l->control_off, l->control_len - l->control_off};
	if (l->state != LINK_RUNNING)
		return n;
	for (unsigned p = l->x->cfg->sharding.priorities; p-- > 0;) {
		uint32_t at;

		s = &l->streams[p];
		at = s->sent + (l->sent_off > 0 && p == l->partial ? 1 : 0);
		for (; n + 2 <= max; at++) {
			if (at == s->tail && !encode_next(l, s))
				break;
			n += add_flight(iov + n, &s->ring[at & l->mask], 0);
		}
	}
	return n;
}

bool link_has_output(const struct link *l)
{
	return l->sent_off > 0 || l->control_off < l->control_len;
}

/* The stream whose bytes come next, when no control bytes do. */
static struct stream *sending(struct link *l)
{
	unsigned p = l->x->cfg->sharding.priorities - 1;

	if (l->sent_off > 0)
		return &l->streams[l->partial];
	while (p > 0 && l->streams[p].sent == l->streams[p].tail)
		p--;
	return &l->streams[p];
}

static size_t sent_flight(struct link *l, size_t n)
{
	struct stream *s = sending(l);
	size_t left = FRAME_HEADER + s->ring[s->sent & l->mask].payload_len - l->sent_off;

	if (n < left) {
		l->sent_off += (uint32_t)n;
		l->partial = (unsigned)(s - l->streams);
		return n;
	}
	l->sent_off = 0;
	s->sent++;
	return left;
}

static size_t sent_control(struct link *l, size_t n)
{
	size_t left = l->control_len - l->control_off;

	if (n < left) {
		l->control_off += (unsigned)n;
		return n;
	}
	l->control_off = l->control_len = 0;
	return left;
}

void link_sent(struct link *l, size_t n, uint64_t now_ms)
{
	if (n > 0)
		l->last_tx_ms = now_ms;
	while (n > 0) {
		bool control = l->sent_off == 0 && l->control_off < l->control_len;

		n -= control ? sent_control(l, n) : sent_flight(l, n);
	}
}

void link_reset(struct link *l)
{
	l->sent_off = 0;
	l->control_off = l->control_len = 0;
	l->header_have = 0;
	l->payload_left = 0;
}

unsigned link_recv_target(struct link *l, struct iovec iov[2])
{
	if (l->state < LINK_GREETING || l->state > LINK_ENDING)
		return 0;
	if (l->state == LINK_ENDING) {
		iov[0] = (struct iovec){l->control_in, sizeof l->control_in};
		return 1;
	}
	if (l->payload_left > 0) {
		iov[0] = (struct iovec){l->payload, l->payload_left};
		iov[1] = (struct iovec){l->header, FRAME_HEADER};
		return 2;
	}
	iov[0] = (struct iovec){l->header + l->header_have, FRAME_HEADER - l->header_have};
	return 1;
}

/* "RESULTs of a lane and a priority arrive in the order in which the worker sent its contributions": compares the
 * RESULT that begins with the oldest chunk in flight of its priority and finds its place. */
static void begin_result(struct link *l, uint64_t now_ms)
{
	const struct frame *f = &l->frame;
	const struct stream *s = &l->streams[f->priority];
	const struct flight *want = &s->ring[s->head & l->mask];
	const struct exchange_op *op = want->op;
	bool checked = l->x->cfg->job.checksum;
	uint32_t len;

	if (l->state != LINK_RUNNING || s->head == s->sent) {
		link_violation(l, now_ms,
			       "the result of chunk %u of operation %llu came before its contribution was sent",
			       f->chunk, (unsigned long long)f->seq);
		return;
	}
	if (f->seq != op->seq || f->chunk != want->chunk) {
		link_violation(l, now_ms,
			       "the result of chunk %u of operation %llu came, chunk %u of operation %llu was next",
			       f->chunk, (unsigned long long)f->seq, want->chunk, (unsigned long long)op->seq);
		return;
	}
	len = result_bytes(op, frame_chunk_len(op->count, op->chunk_elems, want->chunk));
	if (f->count != op->count || f->chunk_elems != op->chunk_elems || f->dtype != op->dtype || f->op != op->op ||
	    f->payload_len != len || (f->flags & ~(unsigned)FRAME_CHECKED) || (checked && len && !f->flags)) {
		link_violation(
		    l, now_ms,
		    "the result of chunk %u of operation %llu is %u bytes of %s (op %u, flags 0x%x, count %llu), "
		    "expected were %u bytes of %s (op %u, %schecksum, count %llu)",
		    f->chunk, (unsigned long long)f->seq, f->payload_len, rs_dtype_name(f->dtype), f->op, f->flags,
		    (unsigned long long)f->count, len, rs_dtype_name(op->dtype), op->op, checked ? "" : "no ",
		    (unsigned long long)op->count);
		return;
	}
	l->payload_left = len;
	if (len > 0)
		l->payload =
		    (uint8_t *)op->recv +
		    exchange_place((uint64_t)want->chunk * op->chunk_elems * rs_dtype_size(op->dtype), op->recv_ring);
}

static void end_result(struct link *l, uint64_t now_ms)
{
	struct stream *s = &l->streams[l->frame.priority];
	const struct flight *f = &s->ring[s->head & l->mask];
	struct exchange_op *op = f->op;
	uint32_t len = l->frame.payload_len;

	if ((l->frame.flags & FRAME_CHECKED) &&
	    frame_checksum(len ? l->payload - len : NULL, len) != l->frame.payload_sum) {
		link_violation(l, now_ms, "the checksum of the result of chunk %u of operation %llu is wrong", f->chunk,
			       (unsigned long long)op->seq);
		return;
	}
	s->head++;
	l->chunks--;
	l->flying -= f->bytes;
	l->x->sweep |= l->x->held;
	l->x->held = false;
	if (window_result(&l->window, f->bytes))
		l->wants_signal = l->x->opt.adaptive;
	if (op->landed && (len > 0 || op->root))
		op->landed(op, (uint64_t)f->chunk * op->chunk_elems,
			   frame_chunk_len(op->count, op->chunk_elems, f->chunk));
	if (--op->chunks_left == 0)
		exchange_op_done(l->x, op);
}

static void frame_complete(struct link *l, uint64_t now_ms)
{
	if (l->frame.type == FRAME_RESULT)
		end_result(l, now_ms);
	else
		link_control(l, now_ms);
}

static void header_complete(struct link *l, uint64_t now_ms)
{
	struct rs_err e;

	l->header_have = 0;
	if (frame_decode(l->header, &l->frame, &e)) {
		link_violation(l, now_ms, "%s", e.msg);
		return;
	}
	if (l->frame.type == FRAME_RESULT) {
		begin_result(l, now_ms);
	} else {
		l->payload = l->control_in;
		l->payload_left = l->frame.payload_len;
	}
	if (l->state < LINK_GREETING || l->state > LINK_RUNNING)
		return; /* a violation ended it */
	if (l->payload_left == 0)
		frame_complete(l, now_ms);
}

void link_received(struct link *l, size_t n, uint64_t now_ms)
{
	l->last_rx_ms = now_ms;
	while (n > 0 && l->state >= LINK_GREETING && l->state <= LINK_RUNNING) {
		size_t left = l->payload_left ? l->payload_left : FRAME_HEADER - l->header_have;
		size_t take = n < left ? n : left;

		n -= take;
		if (l->payload_left > 0) {
			l->payload += take;
			l->payload_left -= (uint32_t)take;
			if (take == left)
				frame_complete(l, now_ms);
		} else {
			l->header_have += (unsigned)take;
			if (take == left)
				header_complete(l, now_ms);
		}
	}
}
