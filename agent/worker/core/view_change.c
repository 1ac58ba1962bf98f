/* SPDX-License-Identifier: Apache-2.0 */
/* Changes of the view that rank 0 makes while all is well: other shares, and other
 * connections to a reducer. */
#include "agent/worker/core/features.h"
#include "agent/worker/core/view.h"
#include "proto/features.h"

/* Returns whether the exchange runs in a view that all ranks have, on all links. */
static bool view_is_settled(const struct exchange *x)
{
	if (x->state != EXCHANGE_RUNNING || x->leaving)
		return false;
	for (unsigned i = 0; i < x->links_n; i++)
		if (link_lives(&x->links[i]) && x->links[i].view != x->view_number)
			return false;
	return true;
}

bool exchange_set_shares(struct exchange *x, const uint32_t *shares, uint64_t now_ms)
{
	if (x->opt.rank || !x->retaining || !view_is_settled(x) || !(features_known(x) & FEATURE_SHARES) ||
	    x->params->shards < x->params->reducers_n || x->view.epoch == CONTROL_LIFE_MAX)
		return false;
	view_take_shares(x, x->view.epoch + 1, shares);
	view_apply(x, now_ms);
	return true;
}

/* Two others must live: the loss of one of them in this second must not end the job. */
bool exchange_connect_anew(struct exchange *x, unsigned reducer, const char *why, uint64_t now_ms)
{
	if (x->opt.rank || !x->retaining || !view_is_settled(x) || !exchange_lives(x, reducer) || exchange_alive(x) < 3)
		return false;
	view_lose_reducer(x, reducer, &(struct loss){.why = why}, NULL, now_ms);
	return true;
}
