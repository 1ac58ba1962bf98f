/* SPDX-License-Identifier: Apache-2.0 */
/* A session's sending side: control frames between results, results straight out of the accumulators. */
#include "server/stripe.h"

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

void session_queue_result(struct session *s, struct slot *slot, bool head_only)
{
	struct stripe *st = s->stripe;

	/* a slot is at most once in a ring of as many entries as there are slots, so there is always room */
	s->results[(s->results_head + s->results_n++) % st->slots_n] = (struct tx_result){slot, head_only};
	session_ready(s);
}

static uint32_t result_bytes(const struct tx_result *r)
{
	return FRAME_HEADER + (r->head_only ? 0 : r->slot->result_len);
}

/* Adds what is left of a result after its first `off` bytes. */
static unsigned gather_result(const struct tx_result *r, uint32_t off, struct iovec *iov)
{
	uint8_t *head = r->head_only ? r->slot->head_root : r->slot->head;
	uint32_t payload = result_bytes(r) - FRAME_HEADER;
	unsigned n = 0;

	if (off < FRAME_HEADER)
		iov[n++] = (struct iovec){head + off, FRAME_HEADER - off};
	off = off < FRAME_HEADER ? 0 : off - FRAME_HEADER;
	if (off < payload)
		iov[n++] = (struct iovec){r->slot->acc + off, payload - off};
	return n;
}

unsigned session_send_target(struct session *s, struct iovec *iov, unsigned max)
{
	unsigned n = 0;

	s->control_inflight = 0;
	if (s->lost)
		return 0;
	if (s->control_len > s->control_off && s->result_off == 0) {
		s->control_inflight = s->control_len - s->control_off;
		iov[n++] = (struct iovec){s->control + s->control_off, s->control_inflight};
	}
	for (unsigned i = 0; i < s->results_n && n + 2 <= max; i++)
		n += gather_result(&s->results[(s->results_head + i) % s->stripe->slots_n], i ? 0 : s->result_off,
				   iov + n);
	return n;
}

static void pop_result(struct session *s)
{
	struct slot *slot = s->results[s->results_head].slot;

	s->results_head = (s->results_head + 1) % s->stripe->slots_n;
	s->results_n--;
	s->result_off = 0;
	s->outstanding--;
	stripe_result_sent(s->stripe, slot);
}

void session_sent(struct session *s, size_t n, uint64_t now_ms)
{
	size_t control = n < s->control_inflight ? n : s->control_inflight;

	s->last_tx_ms = now_ms;
	s->control_off += (unsigned)control;
	if (s->control_off == s->control_len)
		s->control_off = s->control_len = 0;
	n -= control;
	while (n) {
		uint32_t left = result_bytes(&s->results[s->results_head]) - s->result_off;

		if (n < left) {
			s->result_off += (uint32_t)n;
			return;
		}
		n -= left;
		pop_result(s);
	}
	if (s->draining)
		session_ready(s);
}

void session_drain(struct session *s)
{
	unsigned keep = s->result_off ? 1 : 0;

	if (s->draining)
		return;
	s->draining = true;
	s->linger_until_ms = s->stripe->owner->now_ms + LANE_LINGER_MS;
	/* a result that is partly out must be completed, else the ABORT behind it could not be read */
	while (s->results_n > keep) {
		struct tx_result *last = &s->results[(s->results_head + --s->results_n) % s->stripe->slots_n];

		s->outstanding--;
		stripe_result_sent(s->stripe, last->slot);
	}
	session_ready(s);
}

bool session_shut(const struct session *s)
{
	return s->draining && !s->lost && s->results_n == 0 && s->control_off == s->control_len;
}

bool session_over(const struct session *s)
{
	return s->lost;
}

void session_free(struct session *s)
{
	struct stripe *st = s->stripe;
	struct lane *l = st->owner;
	struct lane_event ev = {
	    .type = LANE_GONE, .job = st->p.job, .rank = s->rank, .lane = st->p.lane, .clean = s->left};

	s->result_off = 0;
	while (s->results_n)
		pop_result(s);
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
	st->sessions[s->rank] = NULL;
	st->attached--;
	session_release(s);
	if (!st->attached)
		stripe_free(st);
	l->opt.event(l->opt.ctx, &ev);
}
