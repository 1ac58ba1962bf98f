/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of one link. The happy path of a chunk: stream.c picks it and encodes its
 * header into the ring; the driver sends header and payload; its RESULT is read into the
 * operation's memory, directly or by way of the retained results; its ring entry is free.
 * Failure modes are violations: a RESULT that is not the expected one, a wrong checksum,
 * a frame that does not belong to the link's state. Each makes the exchange lose this
 * reducer. */
#include "agent/worker/core/link_io.h"
#include "agent/worker/core/credit.h"
#include "agent/worker/core/encoded.h"
#include "agent/worker/core/link_control.h"
#include "agent/worker/core/link_fail.h"
#include "agent/worker/core/link_queue.h"
#include "agent/worker/core/stream.h"
#include "common/assert.h"
#include "common/cold_copy.h"
#include "common/dtype.h"

#include <string.h>

/* The order is: the frame that is partly sent, control frames, retained results, then
 * chunks by descending priority. link_sent counts in the same order. */
unsigned link_send_target(struct link *l, struct iovec *iov, unsigned max)
{
	struct stream *s = &l->streams[l->partial_stream];
	unsigned n = 0;

	if (l->state < LINK_HANDSHAKE || l->state > LINK_ENDING)
		return 0;
	if (l->control_len == 0)
		link_queue_due(l);
	if (l->saved_off < l->saved_len)
		iov[n++] = (struct iovec){l->saved + l->saved_off, l->saved_len - l->saved_off};
	else if (l->sent_off > 0)
		n += outgoing_iov(iov, &s->ring[s->sent & s->mask], l->sent_off);
	if (l->control_off < l->control_len)
		iov[n++] = (struct iovec){l->control_out + l->control_off, l->control_len - l->control_off};
	if (l->state != LINK_RUNNING)
		return n;
	for (unsigned p = LINK_STREAMS; p-- > 0;) {
		uint32_t at;

		s = &l->streams[p];
		at = s->sent + (l->sent_off > 0 && p == l->partial_stream ? 1 : 0);
		for (; n + 2 <= max; at++) {
			if (at == s->tail && (p >= l->x->params->priorities || !stream_next(l, p)))
				break;
			n += outgoing_iov(iov + n, &s->ring[at & s->mask], 0);
		}
	}
	return n;
}

/* Returns the stream whose bytes are sent next if no control bytes are. */
static struct stream *link_sending_stream(struct link *l)
{
	unsigned p = LINK_STREAMS - 1;

	if (l->sent_off > 0)
		return &l->streams[l->partial_stream];
	while (p > 0 && l->streams[p].sent == l->streams[p].tail)
		p--;
	return &l->streams[p];
}

static size_t link_sent_outgoing(struct link *l, size_t n, uint64_t now_ms)
{
	struct stream *s = link_sending_stream(l);
	struct outgoing *o = &s->ring[s->sent & s->mask];
	const struct frame *f = &o->head;
	size_t left = FRAME_HEADER + f->payload_len - l->sent_off;

	rs_assert(s->sent != s->tail && s->sent - s->head <= s->tail - s->head);
	rs_assert(l->sent_off < FRAME_HEADER + f->payload_len);
	if (l->sent_off == 0 && s != &l->streams[LINK_RETAINED])
		link_trace(l, TRACE_SENDING, f);
	if (n < left) {
		l->sent_off += (uint32_t)n;
		l->partial_stream = (unsigned)(s - l->streams);
		return n;
	}
	l->sent_off = 0;
	o->sent_ms = (uint32_t)now_ms;
	s->sent++;
	if (s == &l->streams[LINK_RETAINED])
		s->head++;
	else
		link_trace(l, TRACE_SENT, f);
	return left;
}

static size_t link_sent_saved(struct link *l, size_t n)
{
	size_t left = l->saved_len - l->saved_off;

	rs_assert(l->saved_off <= l->saved_len);
	l->saved_off += (uint32_t)(n < left ? n : left);
	return n < left ? n : left;
}

static size_t link_sent_control(struct link *l, size_t n)
{
	size_t left = l->control_len - l->control_off;

	rs_assert(l->control_off <= l->control_len && l->control_len <= sizeof l->control_out);
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
	if (l->chunks_in_flight > 0 && !l->load.flying_from_ms)
		l->load.flying_from_ms = now_ms;
	while (n > 0) {
		if (l->saved_off < l->saved_len)
			n -= link_sent_saved(l, n);
		else if (l->sent_off == 0 && l->control_off < l->control_len)
			n -= link_sent_control(l, n);
		else
			n -= link_sent_outgoing(l, n, now_ms);
	}
}

unsigned link_recv_target(struct link *l, struct iovec iov[2])
{
	if (l->state < LINK_HANDSHAKE || l->state > LINK_ENDING)
		return 0;
	if (l->state >= LINK_LEAVING && !l->stale) {
		iov[0] = (struct iovec){l->control_in, sizeof l->control_in};
		return 1;
	}
	if (l->skip) {
		l->payload = l->control_in;
		iov[0] = (struct iovec){l->control_in, sizeof l->control_in};
		if (l->payload_left < sizeof l->control_in)
			iov[0].iov_len = l->payload_left;
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

/* Checks that the RESULT that begins is the one for which the oldest chunk in flight of
 * its priority waits. */
static bool link_result_fits(struct link *l, const struct outgoing *want, uint32_t len, uint64_t now_ms)
{
	const struct frame *f = &l->frame, *h = &want->head;
	bool checked = l->x->params->checksum;

	if (f->of.seq != h->of.seq || f->chunk != h->chunk) {
		link_violation(l, now_ms,
			       "it sent the result of chunk %u of operation %llu, expected chunk %u of operation %llu",
			       f->chunk, (unsigned long long)f->of.seq, h->chunk, (unsigned long long)h->of.seq);
		return false;
	}
	if (f->of.count == h->of.count && f->chunk_elems == h->chunk_elems && f->of.dtype == h->of.dtype &&
	    f->of.op == h->of.op && f->of.sharded == h->of.sharded && f->of.up == h->of.up &&
	    f->of.down == h->of.down && f->payload_len == len && !(f->flags & ~(unsigned)FRAME_CHECKED) &&
	    (!checked || !len || f->flags))
		return true;
	link_violation(l, now_ms,
		       "the result of chunk %u of operation %llu is %u bytes of %s (op %u, encodings %u and %u, "
		       "flags 0x%x, count %llu), expected were %u bytes of %s (op %u, encodings %u and %u, %schecksum, "
		       "count %llu)",
		       f->chunk, (unsigned long long)f->of.seq, f->payload_len, rs_dtype_name(f->of.dtype), f->of.op,
		       f->of.up, f->of.down, f->flags, (unsigned long long)f->of.count, len, rs_dtype_name(h->of.dtype),
		       h->of.op, h->of.up, h->of.down, checked ? "" : "no ", (unsigned long long)h->of.count);
	return false;
}

static struct operation_place link_place(const struct outgoing *f)
{
	return operation_place(&f->head.of, f->head.chunk_elems, f->head.chunk);
}

/* Returns where the result of a chunk belongs in the caller's memory. */
static uint8_t *link_result_memory(const struct outgoing *f)
{
	const struct exchange_op *op = f->op;
	const struct operation_place at = link_place(f);

	rs_assert(op->chunk_elems == f->head.chunk_elems && f->head.chunk < op->chunks);
	return exchange_op_result(op, &at);
}

/* Returns whether the contribution is retained and not the result: it is the result
 * (broadcast, all-gather), or its owner may still need it (reduce-scatter). The result
 * has no payload then. */
static bool link_retains_sent(const struct outgoing *f)
{
	if (operation_is_scatter(&f->head.of))
		return !outgoing_is_root(f);
	return f->head.of.op == FRAME_OP_BROADCAST && outgoing_is_root(f);
}

/* Returns whether the result of a chunk is read directly to where it belongs. Reading may
 * fail in the middle, and the contribution is then sent again: so the contribution must
 * not be there. A ring is not read to directly: its owner may reuse it as soon as results
 * have landed. An encoded result is decoded first. */
static bool link_is_direct(const struct outgoing *f)
{
	return !link_retains_sent(f) && f->op->disjoint && !f->op->recv_ring && !f->op->of.down;
}

/* Returns whether what is retained of a chunk stays in the operation's own memory (lent),
 * until a later chunk of the same operation takes its entry. */
static bool link_is_lent(const struct link *l, const struct outgoing *f)
{
	const struct exchange_op *op = f->op;

	if (!retain_overwritten(&l->x->retain, f->position, op->position + op->chunks))
		return false;
	return link_retains_sent(f) ? !op->send_ring && !op->of.up : link_is_direct(f);
}

/* "RESULTs of a lane and a priority arrive in the order in which the worker sent its
 * contributions": compares the RESULT that begins with the oldest chunk in flight of its
 * priority, and sets where its payload goes. */
static void link_begin_result(struct link *l, uint64_t now_ms)
{
	const struct frame *f = &l->frame;
	const struct stream *s = &l->streams[f->of.priority];
	const struct outgoing *want;
	uint32_t len = 0;

	if (f->of.priority >= l->x->params->priorities) {
		link_violation(l, now_ms, "it sent a result of priority %u, the job's highest is %u", f->of.priority,
			       l->x->params->priorities - 1);
		return;
	}
	if (l->state == LINK_RUNNING && l->view != l->x->view_number) {
		/* this rank has said in VIEW that it lacks this result, and all others
		 * rely on that */
		l->payload_left = f->payload_len;
		l->skip = true;
		return;
	}
	if (l->state != LINK_RUNNING || s->head == s->sent) {
		link_violation(
		    l, now_ms,
		    "it sent the result of chunk %u of operation %llu before this rank sent its contribution", f->chunk,
		    (unsigned long long)f->of.seq);
		return;
	}
	rs_assert(s->sent - s->head <= s->tail - s->head);
	want = &s->ring[s->head & s->mask];
	if (want->op) {
		const struct operation_place at = link_place(want);

		len = stream_result_bytes(want->op, &at);
	}
	if (!link_result_fits(l, want, len, now_ms))
		return;
	l->payload_left = len;
	if (len > 0)
		l->payload = want->op->of.down ? encoded_landing(l) : link_result_memory(want);
	if (l->x->retaining && want->op) {
		uint8_t *own = retain_reserve(&l->x->retain, f->of.priority, want->position);

		if (!link_is_direct(want) && !link_is_lent(l, want))
			l->payload = own;
	}
}

/* Copies or decodes a result to the caller's memory. */
static void link_deliver(struct link *l, const struct outgoing *f, const uint8_t *at, uint32_t len)
{
	if (f->op->of.down)
		encoded_result(l->x, f->op, link_result_memory(f), at, link_place(f).elems);
	else if (len > 0)
		memcpy(link_result_memory(f), at, len);
}

/* Copies the contribution to a chunk as it was sent. What was encoded for it has been
 * overwritten since. Returns `to`. */
static const uint8_t *link_copy_sent(struct link *l, const struct outgoing *f, uint8_t *to)
{
	const struct operation_place at = link_place(f);

	if (!f->op->of.up)
		return memcpy(to, f->payload, f->head.payload_len);
	encoded_repeat(l->x, f->op, &(struct encoded_part){exchange_op_sent(f->op, &at), at.first, at.elems, false},
		       to);
	return to;
}

/* Returns where what is retained of a complete chunk is. What is not lent is copied
 * between there and the operation's memory. Few entries are ever read, so they need no
 * place in the caches. */
static const uint8_t *link_retain_result(struct link *l, const struct outgoing *f, uint32_t len)
{
	struct retain *r = &l->x->retain;
	const uint8_t *at = link_retains_sent(f) ? f->payload : l->payload - len;

	if (!(link_retains_sent(f) ? f->head.payload_len : len))
		return NULL; /* no element */
	if (link_is_lent(l, f))
		return at;
	if (link_retains_sent(f))
		return link_copy_sent(l, f, retain_reserve(r, f->head.of.priority, f->position));
	if (link_is_direct(f)) {
		uint8_t *own = retain_reserve(r, f->head.of.priority, f->position);

		rs_cold_copy(own, at, len);
		return own;
	}
	link_deliver(l, f, at, len);
	return at;
}

/* The own part of an all-gather comes from this rank itself. */
static void link_gather_own(const struct outgoing *f)
{
	uint8_t *to = link_result_memory(f);

	if (f->head.payload_len && to != f->payload)
		memcpy(to, f->payload, f->head.payload_len);
}

/* Passes a complete result on: to the caller's memory and to the retained results. */
static void link_take_result(struct link *l, const struct outgoing *f, uint32_t len)
{
	struct exchange *x = l->x;
	const struct operation_place at = link_place(f);

	if (len > x->losses[l->reducer].passed)
		x->losses[l->reducer].passed = len;
	if (x->retaining)
		retain_store(&x->retain, f->head.of.priority, f->position, &f->head,
			     link_retains_sent(f) ? f->head.payload_len : operation_down_bytes(&f->head.of, at.elems),
			     link_retain_result(l, f, len));
	else if (f->op->of.down && len > 0)
		link_deliver(l, f, l->payload - len, len);
	if (operation_is_gather(&f->head.of) && outgoing_is_root(f))
		link_gather_own(f);
	if (f->op->residual)
		encoded_settle(x, f->op, at.first, at.elems);
	if (f->op->landed && (len > 0 || link_retains_sent(f)))
		f->op->landed(f->op, at.first, at.elems);
}

static void link_end_result(struct link *l, uint64_t now_ms)
{
	struct stream *s = &l->streams[l->frame.of.priority];
	const struct outgoing *f = &s->ring[s->head & s->mask];
	struct exchange_op *op = f->op;
	uint32_t len = l->frame.payload_len;

	if ((l->frame.flags & FRAME_CHECKED) &&
	    frame_checksum(len ? l->payload - len : NULL, len) != l->frame.payload_sum) {
		link_violation(l, now_ms, "the checksum of the result of chunk %u of operation %llu is wrong",
			       f->head.chunk, (unsigned long long)f->head.of.seq);
		return;
	}
	rs_assert(s->head != s->sent && l->chunks_owed > 0);
	link_trace(l, TRACE_RESULT, &f->head);
	if (s->credited == s->head)
		credit_landed(l, s, now_ms);
	if (f->head.flags & FRAME_RELAY)
		lookahead_result(&l->lookahead, (uint32_t)now_ms - f->sent_ms, l->ahead);
	s->head++;
	l->chunks_owed--;
	l->x->load.bytes += f->bytes;
	l->x->links_changed |= l->x->held_back;
	l->x->held_back = false;
	if (!op)
		return;
	link_take_result(l, f, len);
	rs_assert(op->chunks_left > 0 && op->chunks_left <= op->chunks);
	if (--op->chunks_left > 0)
		return;
	exchange_op_done(l->x, op);
	if (l->x->first)
		return;
	late_idle(&l->x->late, now_ms);
	load_idle(&l->x->load, now_ms);
}

/* FETCH: another rank lacks a result that this rank said it has. Queues it as KEPT. */
static void link_answer_fetch(struct link *l, uint64_t now_ms)
{
	const struct frame *f = &l->frame;
	const struct stream *s = &l->streams[f->of.priority];
	struct stream *to = &l->streams[LINK_RETAINED];
	const struct retained *k = NULL;
	struct outgoing *a;

	if (l->state != LINK_RUNNING || l->view != l->x->view_number)
		return; /* it belongs to an earlier view */
	for (uint32_t at = s->head; at != s->sent && !k; at++) {
		const struct outgoing *had = &s->ring[at & s->mask];

		if (had->head.type == FRAME_HAVE && had->head.of.seq == f->of.seq && had->head.chunk == f->chunk)
			k = retain_own(&l->x->retain, f->of.priority, had->position);
	}
	if (!k || to->tail - to->head > to->mask) {
		link_violation(l, now_ms,
			       "it asks for the result of chunk %u of operation %llu, which this rank did not offer",
			       f->chunk, (unsigned long long)f->of.seq);
		return;
	}
	rs_assert(k->head.payload_len <= l->x->retain.stride);
	a = &to->ring[to->tail++ & to->mask];
	*a = (struct outgoing){.payload = k->data, .head = k->head};
	a->head.type = FRAME_KEPT;
	a->head.generation = l->x->opt.generation;
	a->head.ack = 0;
	a->head.flags = 0;
	a->head.payload_sum = 0;
	if (l->x->params->checksum && a->head.payload_len) {
		a->head.flags = FRAME_CHECKED;
		a->head.payload_sum = frame_checksum(a->payload, a->head.payload_len);
	}
	frame_encode(&a->head, a->header);
}

/* PROBE: a chunk begins to come back. */
static void link_begin_probe(struct link *l, uint64_t now_ms)
{
	if (l->probe != LINK_PROBE_SENT || l->frame.payload_len != l->x->params->chunk_bytes) {
		link_violation(l, now_ms, "it sent a PROBE frame with %u payload bytes, which was not asked for",
			       l->frame.payload_len);
		return;
	}
	l->payload_left = l->frame.payload_len;
	l->skip = true;
}

/* The path takes large messages. The reducer waits for this news too: it does not know
 * whether they pass back. */
static void link_end_probe(struct link *l)
{
	l->probe = LINK_PROBE_NONE;
	l->x->losses[l->reducer].barren = 0;
	link_queue_empty(l, FRAME_PROBE);
	l->x->links_changed = true;
}

static void link_frame_complete(struct link *l, uint64_t now_ms)
{
	if (l->skip) {
		l->skip = false;
		if (l->frame.type == FRAME_PROBE && !l->stale)
			link_end_probe(l);
	} else if (l->frame.type == FRAME_RESULT) {
		link_end_result(l, now_ms);
	} else if (!control_intact(&l->frame, l->control_in)) {
		link_violation(l, now_ms, "the checksum of its %s frame is wrong", frame_type_name(l->frame.type));
	} else if (l->frame.type == FRAME_FETCH && l->x->retaining) {
		link_answer_fetch(l, now_ms);
	} else {
		link_control(l, now_ms);
	}
}

/* Returns whether the frame that begins belongs to the last generation on this
 * connection. Before the answer to HELLO all others do: the reducer has answered no
 * earlier HELLO since. */
static bool link_is_stale(struct link *l)
{
	unsigned type = l->frame.type;

	l->stale &=
	    l->state != LINK_HANDSHAKE || (type != FRAME_CHALLENGE && type != FRAME_WELCOME && type != FRAME_REFUSED);
	return l->stale;
}

static void link_header_complete(struct link *l, uint64_t now_ms)
{
	struct rs_err e;

	l->header_have = 0;
	if (frame_decode(l->header, &l->frame, &e)) {
		l->stale = false;
		link_violation(l, now_ms, "%s", e.msg);
		return;
	}
	if (link_is_stale(l)) {
		l->payload_left = l->frame.payload_len;
		l->skip = l->payload_left > 0;
		return;
	}
	exchange_raise_stable(l->x, l->frame.ack, now_ms);
	if (l->state < LINK_HANDSHAKE || l->state > LINK_RUNNING)
		return;
	if (l->frame.type == FRAME_RESULT) {
		link_begin_result(l, now_ms);
	} else if (l->frame.type == FRAME_PROBE) {
		link_begin_probe(l, now_ms);
	} else if (l->frame.payload_len > sizeof l->control_in) {
		/* of the rest only DATA and KEPT may be this long, and no reducer sends
		 * them */
		link_violation(l, now_ms, "it sent a %s frame with %u payload bytes in a state that does not allow it",
			       frame_type_name(l->frame.type), l->frame.payload_len);
	} else {
		l->payload = l->control_in;
		l->payload_left = l->frame.payload_len;
	}
	if (l->state < LINK_HANDSHAKE || l->state > LINK_RUNNING)
		return; /* a violation has ended it */
	if (l->payload_left == 0)
		link_frame_complete(l, now_ms);
}

void link_received(struct link *l, size_t n, uint64_t now_ms)
{
	l->last_rx_ms = now_ms;
	while (n > 0 && l->state >= LINK_HANDSHAKE && (l->state <= LINK_RUNNING || l->stale)) {
		size_t left = l->payload_left ? l->payload_left : FRAME_HEADER - l->header_have;
		size_t take = n < left ? n : left;

		rs_assert(l->header_have < FRAME_HEADER);
		n -= take;
		if (l->payload_left > 0) {
			l->payload += take;
			l->payload_left -= (uint32_t)take;
			if (take == left)
				link_frame_complete(l, now_ms);
		} else {
			l->header_have += (unsigned)take;
			if (take == left)
				link_header_complete(l, now_ms);
		}
	}
}
