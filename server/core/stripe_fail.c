/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a stripe: every session sends ABORT with the sentence and drains. */
#include "server/core/stripe_fail.h"

#include "server/core/uplink.h"

void stripe_end(struct stripe *st, const struct rs_err *why, const struct rs_cause *cause)
{
	uint8_t payload[FRAME_CONTROL_MAX];
	uint32_t len = control_pack_abort(payload, why, cause);

	st->ended = true;
	for (unsigned r = 0; r < stripe_places(st); r++) {
		struct session *s = st->sessions[r];

		if (!s || s->draining)
			continue;
		session_queue_frame(s, FRAME_ABORT, payload, len);
		session_drain(s);
	}
	uplinks_end(st);
}

void stripe_fail(struct stripe *st, const struct rs_err *why, const struct rs_cause *cause)
{
	struct lane_event ev = {.type = LANE_FAILED, .job = st->p.job, .lane = st->p.lane, .why = *why};

	ev.cause = cause ? *cause : (struct rs_cause){.code = why->code};
	if (st->ended)
		return;
	stripe_end(st, why, &ev.cause);
	st->owner->opt.event(st->owner->opt.ctx, &ev);
}

void stripe_fail_lost(struct stripe *st, unsigned rank, enum rs_loss loss, bool narrow, const struct rs_err *why)
{
	struct lane_event ev = {.type = LANE_LOST, .job = st->p.job, .rank = rank, .lane = st->p.lane, .why = *why};

	st->owner->opt.event(st->owner->opt.ctx, &ev);
	stripe_fail(st, why, &(struct rs_cause){.code = RS_EPEER, .rank = 1 + rank, .loss = loss, .narrow = narrow});
}
