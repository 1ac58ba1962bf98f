/* SPDX-License-Identifier: Apache-2.0 */
/* What an uplink receives: the results of chunks, into their slots, and control
 * frames. */
#include "common/assert.h"
#include "server/core/result.h"
#include "server/core/stripe_late.h"
#include "server/core/uplink_state.h"

#include <inttypes.h>
#include <string.h>

unsigned uplink_recv_target(struct uplink *u, struct iovec iov[2])
{
	if (!u->stripe || u->state < UPLINK_HANDSHAKE || u->state == UPLINK_BROKEN)
		return 0;
	if (!u->payload_left) {
		iov[0] = (struct iovec){u->raw + u->raw_have, FRAME_HEADER - u->raw_have};
		return 1;
	}
	if (u->skip) {
		iov[0] =
		    (struct iovec){u->owner->scratch, u->payload_left < LANE_SCRATCH ? u->payload_left : LANE_SCRATCH};
		return 1;
	}
	iov[0] = (struct iovec){u->at, u->payload_left};
	iov[1] = (struct iovec){u->raw, FRAME_HEADER};
	return 2;
}

/* Returns the slot that waits for the result of a header; NULL: none does. */
static struct slot *uplink_slot_of(struct uplink *u)
{
	const struct frame *f = &u->in;
	struct slot *s = stripe_find_slot(u->stripe, f->of.seq, f->chunk);
	const struct operation *o = s ? &s->header.of : NULL;

	if (!s || !s->relay || s->uplink != SLOT_UPLINK_SENT || s->home != frame_home(u->reducer, u->lane) ||
	    s->group != u->group)
		return NULL;
	return o->dtype == f->of.dtype && o->op == f->of.op && o->count == f->of.count && o->up == f->of.up &&
		       o->down == f->of.down && o->priority == f->of.priority &&
		       f->payload_len == operation_down_bytes(o, s->elems)
		   ? s
		   : NULL;
}

/* RESULT: it goes into the slot, whose sum the home has. */
static void uplink_begin_result(struct uplink *u, uint64_t now_ms)
{
	u->skip = u->view != u->stripe->resumed_view;
	if (u->skip)
		return; /* of an earlier view */
	u->slot = uplink_slot_of(u);
	if (u->slot)
		u->at = u->slot->acc;
	else
		uplink_fail(u, now_ms,
			    "it sent %u bytes as the result of chunk %u of operation %" PRIu64
			    ", which does not wait for that",
			    u->in.payload_len, u->in.chunk, u->in.of.seq);
}

static void uplink_end_result(struct uplink *u, uint64_t now_ms)
{
	struct slot *s = u->slot;
	struct uplink_queue *q;

	u->slot = NULL;
	if (u->in.flags & FRAME_CHECKED && frame_checksum(s->acc, u->in.payload_len) != u->in.payload_sum) {
		uplink_fail(u, now_ms, "the checksum of the result of chunk %u of operation %" PRIu64 " is wrong",
			    u->in.chunk, u->in.of.seq);
		return;
	}
	q = &u->queues[s->header.of.priority];
	rs_assert(q->outstanding > 0 && u->outstanding > 0);
	q->outstanding--;
	u->outstanding--;
	s->uplink = SLOT_UPLINK_DONE;
	slot_encode_result(s, u->stripe->stable, u->stripe->p.checksum);
	result_send(u->stripe, s);
	if (q->first)
		uplink_ready(u); /* the window may have been full */
}

static void uplink_on_resume(struct uplink *u, uint64_t now_ms)
{
	struct control_view v;
	struct rs_err e;

	if (control_unpack_view(u->control_in, u->in.payload_len, &v, &e)) {
		uplink_fail(u, now_ms, "%s", e.msg);
		return;
	}
	if (control_view_number(&v) != u->stripe->told_view || u->view_due)
		return; /* of an earlier view */
	u->view = u->stripe->told_view;
	uplink_ready(u);
}

static void uplink_on_abort(struct uplink *u, uint64_t now_ms)
{
	struct rs_cause cause;
	struct rs_err why, e;

	if (control_unpack_abort(u->control_in, u->in.payload_len, &why, &cause, &e))
		uplink_fail(u, now_ms, "it ended the job without a readable reason");
	else
		uplink_fail(u, now_ms, "%s", why.msg);
}

static void uplink_frame_complete(struct uplink *u, uint64_t now_ms)
{
	if (u->skip) {
		u->skip = false;
	} else if (u->slot) {
		uplink_end_result(u, now_ms);
	} else if (!control_intact(&u->in, u->control_in)) {
		uplink_fail(u, now_ms, "the checksum of its %s frame is wrong", frame_type_name(u->in.type));
	} else if (u->in.type == FRAME_ABORT) {
		uplink_on_abort(u, now_ms);
	} else if (u->in.type == FRAME_RESUME && u->state == UPLINK_RUNNING) {
		uplink_on_resume(u, now_ms);
	} else if (u->in.type == FRAME_LATE && u->state == UPLINK_RUNNING) {
		stripe_pass_late(u->stripe, u->control_in, u->in.payload_len);
	} else if (u->in.type != FRAME_PING && u->in.type != FRAME_VIEW && u->in.type != FRAME_WAITING &&
		   u->in.type != FRAME_DRAIN && !uplink_join(u, now_ms)) {
		/* what those mean, the ranks hear as well */
		uplink_fail(u, now_ms, "it sent a %s frame at the wrong time", frame_type_name(u->in.type));
	}
}

static void uplink_header_complete(struct uplink *u, uint64_t now_ms)
{
	struct rs_err e;

	u->raw_have = 0;
	if (frame_decode(u->raw, &u->in, &e)) {
		uplink_fail(u, now_ms, "%s", e.msg);
		return;
	}
	if (u->in.type == FRAME_RESULT && u->state == UPLINK_RUNNING) {
		uplink_begin_result(u, now_ms);
	} else if (u->in.payload_len > sizeof u->control_in) {
		uplink_fail(u, now_ms, "it sent a %s frame with %u bytes at the wrong time",
			    frame_type_name(u->in.type), u->in.payload_len);
	} else {
		u->at = u->control_in;
	}
	if (u->state < UPLINK_HANDSHAKE || u->state == UPLINK_BROKEN)
		return; /* it has failed */
	u->payload_left = u->in.payload_len;
	if (!u->payload_left)
		uplink_frame_complete(u, now_ms);
}

void uplink_received(struct uplink *u, size_t n, uint64_t now_ms)
{
	u->owner->now_ms = now_ms;
	u->last_rx_ms = now_ms;
	if (u->payload_left) {
		uint32_t part = n < u->payload_left ? (uint32_t)n : u->payload_left;

		n -= part;
		u->payload_left -= part;
		u->at += u->skip ? 0 : part;
		if (!u->payload_left)
			uplink_frame_complete(u, now_ms);
	}
	if (!n || u->state < UPLINK_HANDSHAKE || u->state == UPLINK_BROKEN)
		return;
	u->raw_have += (unsigned)n;
	rs_assert(u->raw_have <= FRAME_HEADER);
	if (u->raw_have == FRAME_HEADER)
		uplink_header_complete(u, now_ms);
}
