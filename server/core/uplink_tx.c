/* SPDX-License-Identifier: Apache-2.0 */
/* What an uplink sends, and the clock. */
#include "common/assert.h"
#include "server/core/stripe_fail.h"
#include "server/core/stripe_view.h"
#include "server/core/uplink_state.h"

#include <string.h>

/* The home takes what belongs to the current view. */
static bool uplink_may_send(const struct uplink *u)
{
	return u->state == UPLINK_RUNNING && u->view == u->stripe->resumed_view;
}

void uplink_connected(struct uplink *u, const uint8_t *binding, size_t len, uint64_t now_ms)
{
	struct rs_err e;

	if (!u->stripe || u->state != UPLINK_OPENING)
		return; /* it wants to be closed by now */
	rs_assert(len <= sizeof u->binding);
	if (len)
		memcpy(u->binding, binding, len);
	u->binding_len = len;
	u->state = UPLINK_HANDSHAKE;
	u->last_rx_ms = u->last_tx_ms = u->since_ms = now_ms;
	if (uplink_hello(u, &e))
		uplink_fail(u, now_ms, "%s", e.msg);
}

/* Queues LATE. Its header describes the operation, so that the home can see whether other
 * ranks call it otherwise. */
static void uplink_queue_late(struct uplink *u)
{
	uint8_t frame[FRAME_HEADER + FRAME_CONTROL_MAX];
	struct frame f = u->late_of;

	f.type = FRAME_LATE;
	f.flags = FRAME_CHECKED;
	f.ack = 0;
	f.payload_len = control_pack_late(frame + FRAME_HEADER, &u->late);
	f.payload_sum = frame_checksum(frame + FRAME_HEADER, f.payload_len);
	frame_encode(&f, frame);
	u->late.missing_all = 0;
	uplink_queue_bytes(u, frame, FRAME_HEADER + f.payload_len);
}

static void uplink_queue_due(struct uplink *u)
{
	uint8_t payload[CONTROL_VIEW];

	if (u->late.missing_all && u->control_off == u->control_len && uplink_may_send(u))
		uplink_queue_late(u);
	if (!u->view_due || u->control_off < u->control_len || u->state != UPLINK_RUNNING ||
	    u->stripe->told_view != u->stripe->view_number)
		return;
	u->view_due = false;
	uplink_queue_frame(u, FRAME_VIEW, payload, control_pack_view(payload, &u->stripe->view));
}

/* Returns the queue whose first chunk is to be sent; NULL: none may be. As a worker's
 * window, each priority has a reserve. */
static struct uplink_queue *uplink_sending(struct uplink *u)
{
	if (u->sent_off)
		return &u->queues[u->partial];
	if (!uplink_may_send(u))
		return NULL;
	for (unsigned p = u->stripe->p.priorities; p-- > 0;) {
		struct uplink_queue *q = &u->queues[p];

		if (q->first && q->outstanding < u->window &&
		    (u->outstanding < u->window || q->outstanding < frame_reserve(u->window)))
			return q;
	}
	return NULL;
}

unsigned uplink_send_target(struct uplink *u, struct iovec iov[2])
{
	struct uplink_queue *q;
	const struct slot *s;
	uint32_t off = u->sent_off;
	unsigned n = 0;

	if (!u->stripe || u->state < UPLINK_HANDSHAKE || u->state == UPLINK_BROKEN)
		return 0;
	if (!off) {
		uplink_queue_due(u);
		if (u->control_off < u->control_len) {
			iov[0] = (struct iovec){u->control + u->control_off, u->control_len - u->control_off};
			return 1;
		}
	}
	q = uplink_sending(u);
	if (!q)
		return 0;
	s = q->first;
	if (off < FRAME_HEADER)
		iov[n++] = (struct iovec){(uint8_t *)s->head + off, FRAME_HEADER - off};
	off = off < FRAME_HEADER ? 0 : off - FRAME_HEADER;
	if (off < s->result_len)
		iov[n++] = (struct iovec){s->acc + off, s->result_len - off};
	return n;
}

void uplink_sent(struct uplink *u, size_t n, uint64_t now_ms)
{
	struct uplink_queue *q;
	struct slot *s;

	u->last_tx_ms = now_ms;
	if (!u->sent_off && u->control_off < u->control_len) {
		u->control_off += (unsigned)n;
		return;
	}
	q = uplink_sending(u);
	rs_assert(q && q->first);
	s = q->first;
	if (!u->sent_off) {
		q->outstanding++;
		u->outstanding++;
		u->partial = (unsigned)(q - u->queues);
	}
	u->sent_off += (uint32_t)n;
	rs_assert(u->sent_off <= FRAME_HEADER + s->result_len);
	if (u->sent_off < FRAME_HEADER + s->result_len)
		return;
	u->sent_off = 0;
	q->first = s->uplink_next;
	s->uplink_next = NULL;
	s->uplink = SLOT_UPLINK_SENT;
	if (u->stripe->view_number != u->stripe->resumed_view)
		stripe_try_resume(u->stripe); /* it may have waited for the rest of this chunk */
}

static void uplink_tick(struct uplink *u, uint64_t now_ms)
{
	uint32_t detect_ms = u->owner->opt.detect_ms;
	uint32_t ping_ms = (u->peer_detect_ms < detect_ms ? u->peer_detect_ms : detect_ms) / 4;

	if (u->state >= UPLINK_OPENING && u->state <= UPLINK_RUNNING && now_ms - u->last_rx_ms > detect_ms)
		uplink_fail(u, now_ms, "nothing was heard from it for %.1f s", (double)detect_ms / 1000);
	/* PINGs alone do not keep an uplink alive that nobody takes into the job */
	if ((u->state == UPLINK_HANDSHAKE || u->state == UPLINK_JOINED) && now_ms - u->since_ms > 2 * detect_ms)
		uplink_fail(u, now_ms, "it has not sent %s for %.1f s", u->state == UPLINK_JOINED ? "START" : "WELCOME",
			    2.0 * detect_ms / 1000);
	if ((u->state == UPLINK_JOINED || u->state == UPLINK_RUNNING) &&
	    now_ms - u->last_tx_ms >= (ping_ms < CONTROL_PING_MS ? ping_ms : CONTROL_PING_MS) && !u->sent_off &&
	    u->control_off == u->control_len)
		uplink_queue_frame(u, FRAME_PING, NULL, 0);
	if (u->state == UPLINK_IDLE && !u->open && now_ms >= u->retry_ms && uplink_is_needed(u))
		uplink_ready(u);
}

void uplinks_slept(struct stripe *st, uint64_t now_ms)
{
	for (struct uplink *u = st->uplinks; u; u = u->next) {
		u->last_rx_ms = u->since_ms = now_ms;
		u->failing_ms = u->failing_ms ? now_ms : 0;
	}
}

void uplinks_tick(struct stripe *st, uint64_t now_ms)
{
	uint32_t patience_ms = 2 * st->owner->opt.detect_ms;
	bool agreed = st->view_number == st->resumed_view;
	struct rs_err why;

	if (st->uplinks && !agreed)
		stripe_try_resume(st); /* an uplink may have broken within a chunk */
	for (struct uplink *u = st->uplinks; u; u = u->next) {
		uplink_tick(u, now_ms);
		if (u->failing_ms && !uplink_is_needed(u))
			u->failing_ms = now_ms; /* nobody has waited for it so far */
		/* until all ranks have the view, a home may be lost to some of them */
		if (!u->failing_ms || now_ms - u->failing_ms < patience_ms || !agreed)
			continue;
		rs_fail(&why, RS_ECUT, "it relays for a group and has no connection to reducer %s: %s",
			st->owner->opt.peers.ids[u->reducer], u->why);
		st->owner->opt.event(st->owner->opt.ctx,
				     &(struct lane_event){.type = LANE_UNLINKED, .job = st->p.job, .lane = st->p.lane});
		stripe_fail(st, &why, &(struct rs_cause){.code = RS_EPEER, .reducer = 1 + u->reducer});
		return; /* there are no uplinks any more */
	}
}
