/* SPDX-License-Identifier: Apache-2.0 */
#include "server/core/session_fail.h"

#include "server/core/stripe_fail.h"

/* Ends this session alone. */
static void session_end(struct session *s, const struct rs_err *why)
{
	uint8_t payload[FRAME_CONTROL_MAX];

	session_queue_frame(s, FRAME_ABORT, payload, control_pack_abort(payload, why, NULL));
	session_drain(s);
}

void session_fail(struct session *s, const struct rs_err *why)
{
	struct stripe *st = s->stripe;
	struct rs_err cut;

	s->keeps &= why->code != RS_EPROTO;
	if (s->relay && why->code == RS_EPROTO) {
		session_end(s, why); /* the relay leaves the job then, and the ranks go on without it */
		return;
	}
	if (st->running && st->p.retain && why->code == RS_EPROTO) {
		/* this connection cannot be used any more, but those to other reducers
		 * may be */
		cut = *why;
		cut.code = stripe_loss_code(st);
		stripe_fail(st, &cut, &(struct rs_cause){.code = why->code, .rank = 1 + s->rank});
		return;
	}
	if (st->running) {
		stripe_fail(st, why, NULL);
		return;
	}
	session_end(s, why);
}
