/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/worker/core/features.h"
#include "agent/worker/core/lead.h"

#include "proto/features.h"

#include <stdatomic.h>

/* A reducer without these may come back to a job that uses them: no operation depends on
 * them. */
static const uint64_t features_optional = FEATURE_START | FEATURE_PROBE | FEATURE_NONFINITE | FEATURE_RECONFIGURE |
					  FEATURE_WINDOWS | FEATURE_SLOTS | FEATURE_DECOUPLED;

/* What a job can use with the reducer of a link. One that was lost and is back must not
 * decide about the optional ones, since some ranks may have begun before; the others it
 * has, or these ranks do not take it back. */
static uint64_t features_with(const struct link *l)
{
	return l->x->view.lives[l->reducer] == 0 ? l->features : l->offers | features_optional;
}

uint64_t features_known(const struct exchange *x)
{
	uint64_t set = x->features;

	for (unsigned i = 0; !x->features_fixed && i < x->links_n; i++)
		if (x->links[i].state == LINK_RUNNING && link_lives(&x->links[i]))
			set &= features_with(&x->links[i]);
	return set;
}

void features_narrow(struct exchange *x, uint64_t set)
{
	if (!x->features_fixed)
		x->features &= set;
}

void features_fix(struct exchange *x)
{
	x->features = features_known(x);
	x->features_fixed = true;
	atomic_store(&x->can_shard, (x->features & FEATURE_SHARDED) && !x->opt.single_worker);
}

bool exchange_can_shard(const struct exchange *x)
{
	return atomic_load(&x->can_shard);
}

uint64_t exchange_features(const struct exchange *x)
{
	return features_known(x);
}

int features_check_reducer(const struct link *l, const char *software, struct rs_err *e)
{
	uint64_t missing = l->x->features & ~l->offers & ~features_optional;
	char names[120];

	if (!l->x->features_fixed || !missing || l->state < LINK_JOINED || l->state > LINK_RUNNING)
		return RS_OK;
	return rs_fail(e, RS_EREFUSED,
		       "it runs %s, which does not have what the job uses since its start (%s): start a newer release "
		       "there, or set job.features: baseline before the job starts",
		       software[0] ? software : "an unknown release", features_text(names, sizeof names, missing));
}

/* Two trainings with one name and one run have met: on this reducer this rank is in the
 * start of another rank 0 than on the reducers before. */
static int features_other_start(const struct link *l, struct rs_err *e)
{
	const struct exchange *x = l->x;

	return rs_fail(
	    e, RS_EMISMATCH,
	    "reducer %s (%s) has started job %s with %s than this rank: two trainings use this job name and "
	    "%s%s. Set REDUCTION_RUN to the same text on all ranks of a training, another one for each start",
	    link_reducer(l)->id, link_address(l), x->job, x->opt.rank ? "another rank 0" : "another process as rank 0",
	    x->run[0] ? "the run " : "no run", x->run);
}

int features_take_start(struct link *l, const struct control_start *s, struct rs_err *e)
{
	struct exchange *x = l->x;

	if (l->frame.payload_len && !(x->opt.features & FEATURE_START))
		return rs_fail(e, RS_EPROTO,
			       "its START has a payload, and this rank has not announced that it reads one");
	if (s->start && ((x->start && x->start != s->start) || (!x->opt.rank && x->opt.incarnation != s->start)))
		return features_other_start(l, e);
	if (s->start)
		x->start = s->start;
	l->features = s->features & x->opt.features;
	return lead_take_window(l, s->window, e);
}
