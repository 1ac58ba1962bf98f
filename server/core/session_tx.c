/* SPDX-License-Identifier: Apache-2.0 */
/* A session's sending side: control frames between results, results straight out of the accumulators. */
#include "server/core/stripe.h"

#include <string.h>

void session_ready(struct session *s)
{
	struct lane *l = s->stripe->owner;

	if (s->ready)
		return;
	s->ready = true;
	s->ready_next = NULL;
	if (l->ready_tail)
		l->ready_tail->ready_next = s;
	else
		l->ready_head = s;
	l->ready_tail = s;
}

bool session_queue(struct session *s, const void *frame, size_t len)
{
	if (s->control_off) {
		memmove(s->control, s->control + s->control_off, s->control_len - s->control_off);
		s->control_len -= s->control_off;
		s->control_off = 0;
	}
	if (len > sizeof s->control - s->control_len)
		return false;
	memcpy(s->control + s->control_len, frame, len);
	s->control_len += (unsigned)len;
	session_ready(s);
	return true;
}

bool session_queue_frame(struct session *s, unsigned type, const void *payload, uint32_t len)
{
	uint8_t frame[FRAME_HEADER + FRAME_CONTROL_MAX];

	return session_queue(s, frame,
			     control_frame(frame, type, s->stripe->p.generation, s->stripe->stable, payload, len));
}

void session_queue_result(struct session *s, struct slot *slot, enum tx_kind kind)
{
	struct session_stream *t = &s->streams[slot->header.priority];

	/* a slot is at most once in a ring of as many entries as there are slots, so there is always room */
	t->results[(t->results_head + t->results_n++) % s->stripe->slots_n] = (struct tx_result){slot, kind};
	s->results_n++;
	session_ready(s);
}

static uint32_t result_bytes(const struct tx_result *r)
{
	return FRAME_HEADER + (r->kind == TX_RESULT ? r->slot->result_len : 0);
}

/* Adds what is left of a result after its first `off` bytes. */
static unsigned gather_result(const struct tx_result *r, uint32_t off, struct iovec *iov)
{
	uint8_t *head = r->kind == TX_HEADER ? r->slot->head_root : r->slot->head;
	uint32_t payload = result_bytes(r) - FRAME_HEADER;
	unsigned n = 0;

	if (off < FRAME_HEADER)
		iov[n++] = (struct iovec){head + off, FRAME_HEADER - off};
	off = off < FRAME_HEADER ? 0 : off - FRAME_HEADER;
	if (off < payload)
		iov[n++] = (struct iovec){r->slot->acc + off, payload - off};
	return n;
}

/* Gives out the stream's next result, of which `off` bytes are sent. */
static unsigned offer_result(const struct session *s, struct session_stream *t, uint32_t off, struct iovec *iov)
{
	return gather_result(&t->results[(t->results_head + t->offered++) % s->stripe->slots_n], off, iov);
}

static void session_queue_view(struct session *s, unsigned type)
{
	uint8_t payload[CONTROL_VIEW];

	session_queue_frame(s, type, payload, control_pack_view(payload, &s->stripe->view));
}

/* PING that says what all ranks have, and asks the worker what it has. */
static void session_queue_query(struct session *s)
{
	struct frame f = {
	    .type = FRAME_PING, .generation = s->stripe->p.generation, .count = 1, .ack = s->stripe->stable};
	uint8_t head[FRAME_HEADER];

	frame_encode(&f, head);
	session_queue(s, head, sizeof head);
}

/* What does not wait in the queue but here, since there is always one at most of each, and it is as new as it can be.
 */
static void session_queue_due(struct session *s)
{
	if (s->draining || s->control_len > s->control_off)
		return;
	if (s->view_due)
		session_queue_view(s, FRAME_VIEW);
	if (s->resume_due)
		session_queue_view(s, FRAME_RESUME);
	if (s->query_due)
		session_queue_query(s);
	else if (s->ping_due)
		session_queue_frame(s, FRAME_PING, NULL, 0);
	s->view_due = s->resume_due = s->query_due = s->ping_due = false;
}

/* The order is: the result that is partly out, else control frames; then results, those of higher priorities first.
 * session_sent counts in the same order. */
unsigned session_send_target(struct session *s, struct iovec *iov, unsigned max)
{
	unsigned n = 0;

	s->control_inflight = 0;
	for (unsigned p = 0; p < s->stripe->p.priorities; p++)
		s->streams[p].offered = 0;
	if (s->lost)
		return 0;
	if (!s->result_off)
		session_queue_due(s);
	if (s->result_off) {
		n += offer_result(s, &s->streams[s->partial], s->result_off, iov);
	} else if (s->control_len > s->control_off) {
		s->control_inflight = s->control_len - s->control_off;
		iov[n++] = (struct iovec){s->control + s->control_off, s->control_inflight};
	}
	for (unsigned p = s->results_n ? s->stripe->p.priorities : 0; p-- > 0;) {
		struct session_stream *t = &s->streams[p];

		while (t->offered < t->results_n && n + 2 <= max)
			n += offer_result(s, t, 0, iov + n);
	}
	return n;
}

/* A result has reached its rank, or will not: it counts no more. */
static void forget_result(struct session *s, struct session_stream *t, const struct tx_result *r)
{
	t->results_n--;
	s->results_n--;
	if (r->kind == TX_FETCH)
		return;
	t->outstanding--;
	s->outstanding--;
	stripe_result_sent(s->stripe, r->slot);
}

static void pop_result(struct session *s, struct session_stream *t)
{
	const struct tx_result *first = &t->results[t->results_head];

	t->results_head = (t->results_head + 1) % s->stripe->slots_n;
	s->result_off = 0;
	forget_result(s, t, first);
	if ((s->paused || s->departed) && !s->results_n)
		stripe_try_resume(s->stripe);
}

/* Whose result the next bytes belong to that the last send target gave out; NULL when all were sent. */
static struct session_stream *sending(struct session *s)
{
	if (s->result_off)
		return &s->streams[s->partial];
	for (unsigned p = s->stripe->p.priorities; p-- > 0;)
		if (s->streams[p].offered)
			return &s->streams[p];
	return NULL;
}

void session_sent(struct session *s, size_t n, uint64_t now_ms)
{
	size_t control = n < s->control_inflight ? n : s->control_inflight;
	struct session_stream *t;

	s->last_tx_ms = now_ms;
	s->count.bytes_out += n;
	s->control_off += (unsigned)control;
	if (s->control_off == s->control_len)
		s->control_off = s->control_len = 0;
	n -= control;
	while (n && (t = sending(s))) {
		uint32_t left = result_bytes(&t->results[t->results_head]) - s->result_off;

		if (n < left) {
			s->result_off += (uint32_t)n;
			s->partial = (unsigned)(t - s->streams);
			return;
		}
		n -= left;
		t->offered--;
		pop_result(s, t);
	}
	if (s->draining)
		session_ready(s);
}

void session_forget_results(struct session *s)
{
	for (unsigned p = 0; p < s->stripe->p.priorities; p++) {
		struct session_stream *t = &s->streams[p];
		/* a result that is partly out must be completed, else the ABORT behind it could not be read */
		unsigned keep = s->result_off && p == s->partial ? 1 : 0;

		t->offered = keep;
		while (t->results_n > keep) {
			unsigned last = (t->results_head + t->results_n - 1) % s->stripe->slots_n;

			forget_result(s, t, &t->results[last]);
		}
	}
}

void session_drain(struct session *s)
{
	if (s->draining)
		return;
	s->draining = true;
	s->linger_until_ms = s->stripe->owner->now_ms + LANE_LINGER_MS;
	session_forget_results(s);
	session_ready(s);
}

bool session_shut(const struct session *s)
{
	return s->draining && !s->lost && s->results_n == 0 && s->control_off == s->control_len;
}

bool session_closed(const struct session *s)
{
	return s->lost;
}

void session_free(struct session *s)
{
	struct stripe *st = s->stripe;
	struct lane *l = st->owner;
	struct lane_event ev = {
	    .type = LANE_CLOSED, .job = st->p.job, .rank = s->rank, .lane = st->p.lane, .clean = s->departed};

	for (unsigned p = 0; p < st->p.priorities; p++)
		while (s->streams[p].results_n)
			pop_result(s, &s->streams[p]);
	if (s->ready) {
		struct session **at = &l->ready_head, *tail = NULL;

		while (*at != s) {
			tail = *at;
			at = &tail->ready_next;
		}
		*at = s->ready_next;
		if (l->ready_tail == s)
			l->ready_tail = tail;
	}
	lane_count_add(&l->closed, &s->count);
	st->stable_waiters -= s->waits_stable;
	st->sessions[s->rank] = NULL;
	st->attached--;
	session_release(s);
	if (!st->attached)
		stripe_free(st);
	l->opt.event(l->opt.ctx, &ev);
}
