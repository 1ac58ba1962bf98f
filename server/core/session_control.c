/* SPDX-License-Identifier: Apache-2.0 */
#include "server/core/session_control.h"

#include "server/core/session_fail.h"
#include "server/core/stripe_depart.h"
#include "server/core/stripe_fail.h"
#include "server/core/stripe_stable.h"
#include "server/core/stripe_view.h"

void session_take_abort(struct session *s)
{
	struct rs_cause cause = {.code = RS_EPEER};
	struct rs_err why, e;
	char name[160];

	if (control_unpack_abort(s->control_in, s->in.payload_len, &why, &cause, &e))
		rs_fail(&why, RS_EPEER, "%s ended the job without a readable reason",
			stripe_rank_name(s->stripe, s->rank, name, sizeof name));
	s->departed = true;
	session_drain(s);
	if (s->stripe->running && !s->relay)
		stripe_fail(s->stripe, &why, &cause);
}

void session_take_view(struct session *s)
{
	struct control_view v;
	struct rs_err e;
	char name[160];

	if (control_unpack_view(s->control_in, s->in.payload_len, &v, &e)) {
		rs_wrap(&e, "%s", stripe_rank_name(s->stripe, s->rank, name, sizeof name));
		session_fail(s, &e);
	} else if (stripe_take_view(s->stripe, s, &v, &e)) {
		session_fail(s, &e);
	}
}

void session_take_goodbye(struct session *s)
{
	struct stripe *st = s->stripe;
	struct rs_err why;
	char name[160];

	if (s->relay) {
		session_drain(s);
		return;
	}
	if (st->running && stripe_needs_rank(st, s->rank, s->in.ack)) {
		rs_fail(&why, RS_ECLOSED, "%s closed the communicator while operations were pending",
			stripe_rank_name(st, s->rank, name, sizeof name));
		stripe_fail(st, &why, NULL);
		return;
	}
	stripe_acked(st, s, s->in.ack);
	s->departed = true;
	s->keeps = false;
	session_drain(s);
	/* before START another connection may still take the place of this one */
	if (st->running)
		stripe_rank_departed(st, s, s->in.ack);
}
