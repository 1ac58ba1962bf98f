/* SPDX-License-Identifier: Apache-2.0 */
/* The sending side of a session. Before START there is an answer to PROBE, between two
 * control frames. Results are sent out of the accumulators without a copy. The order is:
 * the rest of the result that is partly sent; control frames, which would never come if
 * each call ended within a result; then results, those of higher priorities first.
 * session_sent counts in the same order. */
#include "common/assert.h"
#include "server/core/stripe.h"
#include "server/core/stripe_view.h"

static uint32_t session_result_bytes(const struct tx_result *r)
{
	return FRAME_HEADER + (r->kind == TX_RESULT ? r->slot->result_len : 0);
}

/* Adds the rest of a result after its first `off` bytes to iov. Returns the number of
 * iovecs. */
static unsigned session_gather_result(const struct tx_result *r, uint32_t off, struct iovec *iov)
{
	uint8_t *head = r->kind == TX_HEADER ? r->slot->head_root : r->slot->head;
	uint32_t payload = session_result_bytes(r) - FRAME_HEADER;
	unsigned n = 0;

	rs_assert(off < FRAME_HEADER + payload);
	if (off < FRAME_HEADER)
		iov[n++] = (struct iovec){head + off, FRAME_HEADER - off};
	off = off < FRAME_HEADER ? 0 : off - FRAME_HEADER;
	if (off < payload)
		iov[n++] = (struct iovec){r->slot->acc + off, payload - off};
	return n;
}

/* Adds the next result of a stream, of which `off` bytes are sent, to iov. Returns the
 * number of iovecs. */
static unsigned session_offer_result(const struct session *s, struct session_stream *t, uint32_t off, struct iovec *iov)
{
	return session_gather_result(&t->results[(t->results_head + t->offered++) % s->stripe->slots_n], off, iov);
}

static void session_queue_view(struct session *s, unsigned type)
{
	uint8_t payload[CONTROL_VIEW];

	session_queue_frame(s, type, payload, control_pack_view(payload, &s->stripe->view));
}

static void session_queue_start(struct session *s)
{
	const struct stripe *st = s->stripe;
	const struct control_start start = {.features = st->features, .start = st->start, .window = st->p.window};
	uint8_t payload[CONTROL_START_LEN];

	session_queue_frame(s, FRAME_START, payload, control_pack_start(payload, &start));
}

/* Queues a PING that carries `stable` and asks the worker for a PING. count: 1, for its
 * acknowledgement, or the number of a question, for a sign of life. */
static void session_queue_query(struct session *s, uint64_t count)
{
	struct frame f = {
	    .type = FRAME_PING, .generation = s->stripe->p.generation, .of.count = count, .ack = s->stripe->stable};
	uint8_t head[FRAME_HEADER];

	frame_encode(&f, head);
	session_queue(s, head, sizeof head);
}

static void session_queue_question(struct session *s)
{
	session_queue_query(s, s->question);
	s->asked = s->question;
	s->question = 0;
}

/* Queues CREDIT for each priority with contributions that were added since, unless their
 * results are on the way: those say the same. */
static void session_queue_credits(struct session *s)
{
	for (unsigned p = 0; p < s->stripe->p.priorities; p++) {
		struct session_stream *t = &s->streams[p];
		struct frame f = {.type = FRAME_CREDIT,
				  .generation = s->stripe->p.generation,
				  .of.priority = (uint8_t)p,
				  .of.count = t->added,
				  .ack = s->stripe->stable};
		uint8_t head[FRAME_HEADER];

		if (t->added == t->credited || t->added + t->outstanding <= t->started + t->results_n)
			continue;
		frame_encode(&f, head);
		if (session_queue(s, head, sizeof head))
			t->credited = t->added;
	}
}

/* Queues the frames that are due. They wait in flags and not in the queue: there is at
 * most one of each, and its content is as new as possible. */
static void session_queue_due(struct session *s)
{
	if (s->draining || s->control_len > s->control_off)
		return;
	if (s->start_due)
		session_queue_start(s);
	if (s->view_due)
		session_queue_view(s, FRAME_VIEW);
	if (s->resume_due)
		session_queue_view(s, FRAME_RESUME);
	if (s->question)
		session_queue_question(s);
	if (s->query_due)
		session_queue_query(s, 1);
	else if (s->ping_due)
		session_queue_frame(s, FRAME_PING, NULL, 0);
	if (s->credit_due)
		session_queue_credits(s);
	s->start_due = s->view_due = s->resume_due = s->query_due = s->ping_due = s->credit_due = false;
}

/* Adds the rest of the answer to PROBE to iov. Returns the number of iovecs. */
static unsigned session_offer_answer(struct session *s, struct iovec *iov, unsigned max)
{
	static const uint8_t zeros[4096];
	const struct frame f = {
	    .type = FRAME_PROBE, .generation = s->stripe->p.generation, .payload_len = s->echo_len - FRAME_HEADER};
	uint32_t off = s->echo_off;
	unsigned n = 0;

	if (off < FRAME_HEADER) {
		frame_encode(&f, s->echo);
		iov[n++] = (struct iovec){s->echo + off, FRAME_HEADER - off};
		off = FRAME_HEADER;
	}
	for (uint32_t left = s->echo_len - off, part; left && n < max; left -= part) {
		part = left < sizeof zeros ? left : sizeof zeros;
		iov[n++] = (struct iovec){(void *)zeros, part};
	}
	return n;
}

static void session_sent_answer(struct session *s, size_t n)
{
	s->echo_off += (uint32_t)n;
	rs_assert(s->echo_off <= s->echo_len);
	if (s->echo_off < s->echo_len)
		return;
	s->probe = SESSION_PROBE_SENT;
	session_ready(s); /* control frames have waited */
}

unsigned session_send_target(struct session *s, struct iovec *iov, unsigned max)
{
	unsigned n = 0;

	s->control_inflight = 0;
	for (unsigned p = 0; p < s->stripe->p.priorities; p++)
		s->streams[p].offered = 0;
	if (s->lost)
		return 0;
	if (s->probe == SESSION_PROBE_ANSWER && (s->echo_off || s->control_off == s->control_len))
		return session_offer_answer(s, iov, max);
	session_queue_due(s);
	if (s->result_off)
		n += session_offer_result(s, &s->streams[s->partial], s->result_off, iov);
	if (s->control_len > s->control_off) {
		s->control_inflight = s->control_len - s->control_off;
		iov[n++] = (struct iovec){s->control + s->control_off, s->control_inflight};
	}
	for (unsigned p = s->results_n ? s->stripe->p.priorities : 0; p-- > 0;) {
		struct session_stream *t = &s->streams[p];

		while (t->offered < t->results_n && n + 2 <= max)
			n += session_offer_result(s, t, 0, iov + n);
	}
	return n;
}

void session_pop_result(struct session *s, struct session_stream *t)
{
	const struct tx_result *first = &t->results[t->results_head];

	rs_assert(t->results_n > 0);
	t->results_head = (t->results_head + 1) % s->stripe->slots_n;
	s->result_off = 0;
	session_uncount_result(s, t, first);
	if ((s->paused || s->departed) && !s->results_n)
		stripe_try_resume(s->stripe);
}

/* Returns the stream to which the next bytes of the last send target belong; NULL: all of
 * them are sent. */
static struct session_stream *session_sending(struct session *s)
{
	if (s->result_off)
		return &s->streams[s->partial];
	for (unsigned p = s->stripe->p.priorities; p-- > 0;)
		if (s->streams[p].offered)
			return &s->streams[p];
	return NULL;
}

/* Removes up to n > 0 bytes of the control frames of the last send target. Returns how
 * many are left. */
static size_t session_sent_control(struct session *s, size_t n)
{
	size_t part = n < s->control_inflight ? n : s->control_inflight;

	s->control_inflight -= (unsigned)part;
	s->control_off += (unsigned)part;
	rs_assert(s->control_off <= s->control_len);
	if (s->control_off == s->control_len)
		s->control_off = s->control_len = 0;
	return n - part;
}

/* The same for the first result of a stream. */
static size_t session_sent_result(struct session *s, struct session_stream *t, size_t n)
{
	const struct tx_result *r = &t->results[t->results_head];
	uint32_t left = session_result_bytes(r) - s->result_off;

	rs_assert(t->offered > 0 && t->offered <= t->results_n);
	rs_assert(s->result_off < session_result_bytes(r));
	if (n < left) {
		s->result_off += (uint32_t)n;
		s->partial = (unsigned)(t - s->streams);
		return 0;
	}
	t->offered--;
	if (r->kind != TX_FETCH)
		stripe_trace(s->stripe, TRACE_RETURNED, r->slot, s->rank, session_result_bytes(r) - FRAME_HEADER);
	session_pop_result(s, t);
	return n - left;
}

void session_sent(struct session *s, size_t n, uint64_t now_ms)
{
	struct session_stream *t;

	s->last_tx_ms = now_ms;
	s->count.bytes_out += n;
	if (s->probe == SESSION_PROBE_ANSWER && !s->control_inflight) {
		session_sent_answer(s, n); /* there are no results yet */
		return;
	}
	while (n) {
		if (!s->result_off && s->control_inflight) {
			n = session_sent_control(s, n);
			continue;
		}
		t = session_sending(s);
		if (!t)
			break;
		n = session_sent_result(s, t, n);
	}
	if (s->draining)
		session_ready(s);
}

bool session_parts(const struct session *s)
{
	return s->keeps && session_shut(s);
}

bool session_shut(const struct session *s)
{
	return s->draining && !s->lost && s->results_n == 0 && s->control_off == s->control_len &&
	       s->probe != SESSION_PROBE_ANSWER;
}
