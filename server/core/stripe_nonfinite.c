/* SPDX-License-Identifier: Apache-2.0 */
#include "server/core/stripe_nonfinite.h"

#include "proto/features.h"

bool stripe_hears_nonfinite(const struct stripe *st)
{
	return st->features & FEATURE_NONFINITE;
}

/* The worker counts and this side remembers, so a frame that is lost does no harm. */
int stripe_take_nonfinite(struct session *s, struct rs_err *e)
{
	struct lane_count *c = &s->count;
	struct lane_event ev = {
	    .type = LANE_NONFINITE, .job = s->stripe->p.job, .rank = s->rank, .lane = s->stripe->p.lane};
	struct control_nonfinite n;
	bool infinite;
	char name[160];

	if (control_unpack_nonfinite(s->control_in, s->in.payload_len, &n, e))
		return rs_wrap(e, "%s", stripe_rank_name(s->stripe, s->rank, name, sizeof name));
	ev.nan = n.nan_operations && !c->nan_operations;
	infinite = n.infinite_operations && !c->infinite_operations && !n.nan_operations;
	if (n.nan_operations > c->nan_operations)
		c->nan_operations = n.nan_operations;
	if (n.infinite_operations > c->infinite_operations)
		c->infinite_operations = n.infinite_operations;
	if (!ev.nan && !infinite)
		return RS_OK;
	ev.seq = n.seq;
	rs_fail(&ev.why, RS_ENONFINITE, "%s", n.first);
	s->stripe->owner->opt.event(s->stripe->owner->opt.ctx, &ev);
	return RS_OK;
}
