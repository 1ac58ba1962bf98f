/* SPDX-License-Identifier: Apache-2.0 */
/* Uplinks: their list, their queues, and what changes of the view mean to them. */
#include "common/assert.h"
#include "server/core/uplink_state.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void uplink_ready(struct uplink *u)
{
	struct lane *l = u->owner;

	if (u->ready)
		return;
	u->ready = true;
	u->ready_next = l->uplinks_ready;
	l->uplinks_ready = u;
}

struct uplink *lane_next_uplink(struct lane *l)
{
	struct uplink *u = l->uplinks_ready;

	if (!u)
		return NULL;
	l->uplinks_ready = u->ready_next;
	u->ready = false;
	return u;
}

/* Frees an uplink of which neither the stripe nor the driver has anything. */
static void uplink_free(struct uplink *u)
{
	struct uplink **at = &u->owner->uplinks_ready;

	while (u->ready && *at != u)
		at = &(*at)->ready_next;
	if (u->ready)
		*at = u->ready_next;
	free(u);
}

unsigned uplink_reducer(const struct uplink *u)
{
	return u->reducer;
}

const struct control_hello *uplink_hello_of(const struct uplink *u)
{
	return u->stripe->hello;
}

void uplink_set_user(struct uplink *u, void *user)
{
	u->user = user;
}

void *uplink_user(const struct uplink *u)
{
	return u->user;
}

bool uplink_is_needed(const struct uplink *u)
{
	bool needed = u->state == UPLINK_BROKEN || u->late.missing_all;

	for (unsigned p = 0; p < FRAME_PRIORITIES; p++)
		needed |= u->queues[p].first != NULL;
	return needed;
}

enum uplink_want uplink_want(struct uplink *u)
{
	bool wanted = u->stripe && u->state != UPLINK_IDLE && u->state != UPLINK_BROKEN;

	if (u->open)
		return wanted ? UPLINK_SERVE : UPLINK_CLOSE;
	if (!u->stripe || u->state != UPLINK_IDLE || u->owner->now_ms < u->retry_ms || !uplink_is_needed(u))
		return UPLINK_SERVE;
	u->state = UPLINK_OPENING;
	u->open = true;
	u->last_rx_ms = u->owner->now_ms;
	return UPLINK_CONNECT;
}

void uplink_closed(struct uplink *u)
{
	rs_assert(u->open);
	u->open = false;
	u->user = NULL;
	if (!u->stripe)
		uplink_free(u);
	else
		uplink_ready(u);
}

void uplink_queue_bytes(struct uplink *u, const uint8_t *frame, uint32_t len)
{
	if (u->control_off == u->control_len)
		u->control_off = u->control_len = 0;
	if (len > sizeof u->control - u->control_len)
		return;
	memcpy(u->control + u->control_len, frame, len);
	u->control_len += len;
	uplink_ready(u);
}

void uplink_queue_frame(struct uplink *u, unsigned type, const uint8_t *payload, uint32_t len)
{
	uint8_t frame[FRAME_HEADER + FRAME_CONTROL_MAX];

	uplink_queue_bytes(u, frame,
			   control_frame(frame, type, u->stripe->p.generation, u->stripe->stable, payload, len));
}

void uplink_fail(struct uplink *u, uint64_t now_ms, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(u->why, sizeof u->why, fmt, ap);
	va_end(ap);
	if (!u->failing_ms)
		u->failing_ms = now_ms ? now_ms : 1;
	/* a chunk that was sent, even in part, may not be sent twice in one view */
	u->state = u->outstanding ? UPLINK_BROKEN : UPLINK_IDLE;
	u->view = UPLINK_NO_VIEW;
	u->backoff_ms = u->backoff_ms ? u->backoff_ms * 2 : UPLINK_RETRY_MIN_MS;
	if (u->backoff_ms > UPLINK_RETRY_MAX_MS)
		u->backoff_ms = UPLINK_RETRY_MAX_MS;
	u->retry_ms = now_ms + u->backoff_ms;
	u->view_due = u->skip = u->proven = false;
	u->slot = NULL;
	u->payload_left = u->raw_have = u->sent_off = 0;
	u->control_len = u->control_off = 0;
	uplink_ready(u);
}

void uplink_lost(struct uplink *u, const char *reason, uint64_t now_ms)
{
	if (u->stripe && u->state >= UPLINK_OPENING && u->state <= UPLINK_RUNNING)
		uplink_fail(u, now_ms, "%s", reason);
}

static struct uplink *uplink_find(struct stripe *st, const struct slot *slot)
{
	struct uplink *u = st->uplinks;

	while (u && (frame_home(u->reducer, u->lane) != slot->home || u->group != slot->group))
		u = u->next;
	return u;
}

static struct uplink *uplink_new(struct stripe *st, const struct slot *slot)
{
	struct uplink *u = calloc(1, sizeof *u);

	if (!u)
		return NULL;
	u->stripe = st;
	u->owner = st->owner;
	u->reducer = frame_home_reducer(slot->home);
	u->lane = frame_home_lane(slot->home);
	u->group = slot->group;
	u->view = UPLINK_NO_VIEW;
	u->window = st->p.window;
	u->next = st->uplinks;
	st->uplinks = u;
	return u;
}

/* Returns whether all contributions to the sum were float32. */
static bool uplink_stays_wide(const struct stripe *st, const struct slot *slot)
{
	for (unsigned i = 0; i < (st->p.world_size + 63) / 64; i++)
		if (slot->covered[i] & ~slot->wide[i])
			return false;
	return true;
}

void uplink_tell_late(struct stripe *st, const struct slot *slot, const struct control_late *late)
{
	struct uplink *u = uplink_find(st, slot);

	if (!u)
		u = uplink_new(st, slot);
	if (!u)
		return; /* it is only for people, and is said again */
	u->late = *late;
	u->late_of = slot->header;
	uplink_ready(u);
}

int uplink_forward(struct stripe *st, struct slot *slot, struct rs_err *e)
{
	struct uplink *u = uplink_find(st, slot);
	struct uplink_queue *q;

	if (!u)
		u = uplink_new(st, slot);
	if (!u)
		return rs_oom(e, 0, "a connection to reducer %s",
			      st->owner->opt.peers.ids[frame_home_reducer(slot->home)]);
	slot_finish_partial(slot, st->owner->opt.kernels, uplink_stays_wide(st, slot), st->p.checksum);
	q = &u->queues[slot->header.of.priority];
	slot->uplink = SLOT_UPLINK_QUEUED;
	slot->uplink_next = NULL;
	*(q->first ? &q->last->uplink_next : &q->first) = slot;
	q->last = slot;
	uplink_ready(u);
	return RS_OK;
}

bool uplinks_are_sending(const struct stripe *st)
{
	for (const struct uplink *u = st->uplinks; u; u = u->next)
		if (u->sent_off)
			return true;
	return false;
}

/* Forgets the chunks that it was to send, but the rest of one that is begun. */
static void uplink_forget(struct uplink *u)
{
	struct slot *rest = u->sent_off ? u->queues[u->partial].first : NULL;

	memset(u->queues, 0, sizeof u->queues);
	u->outstanding = rest ? 1 : 0;
	if (rest) {
		rest->uplink_next = NULL;
		u->queues[u->partial] = (struct uplink_queue){.first = rest, .last = rest, .outstanding = 1};
	}
	u->view = UPLINK_NO_VIEW;
	u->late.missing_all = 0;
	if (u->slot) {
		u->slot = NULL;
		u->skip = true;
	}
}

void uplinks_tell(struct stripe *st)
{
	if (st->told_view == st->view_number)
		return;
	st->told_view = st->view_number;
	for (struct uplink *u = st->uplinks; u; u = u->next) {
		bool lives = st->view.lives[u->reducer] % 2 == 0, broken = u->state == UPLINK_BROKEN;

		if (!lives || broken)
			u->sent_off = 0;
		uplink_forget(u);
		if (lives && !broken) {
			u->view_due = true;
		} else if (u->state != UPLINK_IDLE) {
			uplink_fail(u, st->owner->now_ms, "the view has changed");
			u->backoff_ms = 0;
			u->retry_ms = st->owner->now_ms;
		}
		u->failing_ms = 0;
		uplink_ready(u);
	}
}

void uplinks_begin_again(struct stripe *st)
{
	for (struct uplink *u = st->uplinks; u; u = u->next) {
		rs_assert(!u->sent_off && !u->slot);
		memset(u->queues, 0, sizeof u->queues);
		u->outstanding = 0;
		if (u->state == UPLINK_BROKEN) {
			/* it broke within the rest of a chunk of the view before */
			u->state = UPLINK_IDLE;
			u->failing_ms = 0;
		}
		uplink_ready(u);
	}
}

void uplinks_end(struct stripe *st)
{
	struct uplink *u;

	while ((u = st->uplinks)) {
		st->uplinks = u->next;
		u->stripe = NULL;
		u->slot = NULL;
		if (u->open)
			uplink_ready(u);
		else
			uplink_free(u);
	}
}

const char *uplinks_check(const struct stripe *st)
{
	for (const struct uplink *u = st->uplinks; u; u = u->next) {
		unsigned outstanding = 0;

		if (u->stripe != st)
			return "an uplink belongs to another stripe";
		for (unsigned p = 0; p < FRAME_PRIORITIES; p++) {
			outstanding += u->queues[p].outstanding;
			for (const struct slot *s = u->queues[p].first; s; s = s->uplink_next)
				if (!s->relay || s->uplink != SLOT_UPLINK_QUEUED)
					return "an uplink sends a slot that is not for it";
		}
		if (outstanding != u->outstanding)
			return "an uplink's `outstanding` differs from its queues";
		if (u->slot && (u->slot->uplink != SLOT_UPLINK_SENT || !u->payload_left))
			return "an uplink receives a result that is not for it";
	}
	return NULL;
}
