/* SPDX-License-Identifier: Apache-2.0 */
/* The link by itself: what it still has to send, how it is emptied, and how it tries
 * again. */
#include "agent/worker/core/link.h"

#include <string.h>

bool link_has_output(const struct link *l)
{
	return l->saved_off < l->saved_len || l->sent_off > 0 || l->control_off < l->control_len || l->view_due;
}

bool link_has_op(const struct link *l, const struct exchange_op *op)
{
	const struct stream *s = &l->streams[op->stream];

	for (uint32_t at = s->head; at != s->tail; at++)
		if (s->ring[at & s->mask].op == op)
			return true;
	return s->op == op;
}

void link_reset(struct link *l)
{
	l->sent_off = 0;
	l->control_off = l->control_len = 0;
	l->saved_off = l->saved_len = 0;
	l->header_have = 0;
	l->payload_left = 0;
	l->skip = l->stale = l->kept = false;
	link_forget(l);
}

void link_forget(struct link *l)
{
	l->proven = l->keeps = false;
	l->probe = LINK_PROBE_NONE;
	l->view = LINK_NO_VIEW;
	l->view_due = l->settle_due = l->ping_due = l->nonfinite_due = l->load_due = false;
	l->ping_on_done = l->load.wanted = l->load.marked = l->load.known = false;
	l->load.lane_at_ms = 0;
	l->question = 0;
}

void link_turn_stale(struct link *l)
{
	l->stale = true;
	l->skip = l->payload_left > 0;
}

/* Copies the rest of a partly sent frame to memory of its own: another reducer may
 * complete its chunk before this connection takes the rest. */
static void link_save_frame(struct link *l)
{
	struct stream *s = &l->streams[l->partial_stream];
	struct iovec iov[2];
	unsigned n = outgoing_iov(iov, &s->ring[s->sent & s->mask], l->sent_off);

	l->saved_off = l->saved_len = 0;
	for (unsigned i = 0; i < n; i++) {
		memcpy(l->saved + l->saved_len, iov[i].iov_base, iov[i].iov_len);
		l->saved_len += (uint32_t)iov[i].iov_len;
	}
	l->sent_off = 0;
}

void link_rewind(struct link *l)
{
	if (l->sent_off > 0)
		link_save_frame(l);
	for (unsigned p = 0; p < LINK_STREAMS; p++) {
		struct stream *s = &l->streams[p];

		*s = (struct stream){.ring = s->ring, .mask = s->mask};
	}
	l->chunks_in_flight = l->chunks_owed = 0;
	lookahead_init(&l->lookahead);
	l->load.flying_from_ms = 0;
	l->bytes_in_flight = 0;
	l->view = LINK_NO_VIEW;
	l->skip |= l->payload_left > 0 && l->frame.type == FRAME_RESULT;
}

void link_retry(struct link *l, uint64_t now_ms)
{
	l->state = LINK_WAITING;
	link_rewind(l);
	link_reset(l);
	l->retry_ms = now_ms + l->backoff_ms;
	if (l->retry_ms < l->x->losses[l->reducer].not_before_ms)
		l->retry_ms = l->x->losses[l->reducer].not_before_ms;
	l->backoff_ms = (uint32_t)min64(l->backoff_ms * 2, LINK_RETRY_MAX_MS);
	l->x->next_ms = min64(l->x->next_ms, l->retry_ms);
	l->x->links_changed = true;
}
