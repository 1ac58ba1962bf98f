/* SPDX-License-Identifier: Apache-2.0 */
/* The queues of a session: control frames, and results in one ring for each priority. */
#include "common/assert.h"
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
	rs_assert(s->control_off <= s->control_len);
	if (s->control_off) {
		memmove(s->control, s->control + s->control_off, s->control_len - s->control_off);
		s->control_len -= s->control_off;
		s->control_off = 0;
	}
	rs_assert(s->control_off == 0 && s->control_len <= sizeof s->control);
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
	struct session_stream *t = &s->streams[slot->header.of.priority];

	/* a ring has an entry for each slot and contains a slot at most once, so there is
	 * always room */
	rs_assert(t->results_n < s->stripe->slots_n);
	t->results[(t->results_head + t->results_n++) % s->stripe->slots_n] = (struct tx_result){slot, kind};
	s->results_n++;
	session_ready(s);
}

void session_added(struct session *s, unsigned priority)
{
	s->streams[priority].added++;
	s->credit_due = true;
	session_ready(s);
}

void session_uncount_result(struct session *s, struct session_stream *t, const struct tx_result *r)
{
	rs_assert(t->results_n > 0 && s->results_n > 0);
	t->results_n--;
	s->results_n--;
	if (r->kind == TX_FETCH)
		return;
	rs_assert(t->outstanding > 0 && s->outstanding > 0);
	t->outstanding--;
	s->outstanding--;
	stripe_result_sent(s->stripe, r->slot);
}

void session_drop_results(struct session *s)
{
	for (unsigned p = 0; p < s->stripe->p.priorities; p++) {
		struct session_stream *t = &s->streams[p];
		/* a result that is partly sent must be completed; otherwise the peer
		 * could not read the ABORT behind it
		 */
		unsigned keep = s->result_off && p == s->partial ? 1 : 0;

		t->offered = keep;
		while (t->results_n > keep) {
			unsigned last = (t->results_head + t->results_n - 1) % s->stripe->slots_n;

			session_uncount_result(s, t, &t->results[last]);
		}
	}
}

void session_drain(struct session *s)
{
	if (s->draining)
		return;
	s->draining = true;
	if (s->probe == SESSION_PROBE_ANSWER && !s->echo_off)
		s->probe = SESSION_PROBE_NONE;
	s->linger_until_ms = s->stripe->owner->now_ms + LANE_LINGER_MS;
	session_drop_results(s);
	session_ready(s);
}
