/* SPDX-License-Identifier: Apache-2.0 */
/* Sentences about the shares of reducers. */
#include "agent/worker/core/exchange_text.h"
#include "agent/worker/core/text.h"

#include <stdio.h>

enum { NAMED = 6 /* most reducers that a sentence names */ };

static double percent(uint64_t part, uint64_t of)
{
	return of ? 100.0 * (double)part / (double)of : 0;
}

/* "r0 25.0 % -> 14.3 %, r1 25.0 % -> 28.6 %", of living reducers. */
static void text_shares(struct text *t, const struct exchange *x, const struct balance_reducer *r,
			const struct balance_verdict *v)
{
	uint64_t now = 0, then = 0;
	unsigned named = 0;

	for (unsigned i = 0; i < x->params->reducers_n; i++) {
		now += r[i].lives ? r[i].share : 0;
		then += r[i].lives ? v->shares[i] : 0;
	}
	for (unsigned i = 0; i < x->params->reducers_n && named < NAMED; i++)
		if (r[i].lives)
			text_add(t, "%s%s %.1f %% -> %.1f %%", named++ ? ", " : "", x->params->reducers[i].id,
				 percent(r[i].share, now), percent(v->shares[i], then));
	if (named == NAMED)
		text_add(t, ", ..");
}

void balance_text(const struct exchange *x, const struct balance_reducer *r, const struct balance_verdict *v, bool did,
		  char *buf, size_t size)
{
	const struct rs_reducer *about = &x->params->reducers[v->reducer];
	struct text t = {.len = 0};
	unsigned busy = v->busy / 10, others = v->others / 10;

	switch (v->kind) {
	case BALANCE_SHARES:
		text_add(&t,
			 "reducer %s (%s) is busy for %u %% of the communication, the median reducer%s for %u %%; its "
			 "threads run or wait for a core for %u %%. Saves about %u %%%s: ",
			 about->id, exchange_params_address(x->params, about), busy,
			 x->relaying ? " for this group" : "", others, r[v->reducer].processor / 10, v->gain / 10,
			 did           ? ""
			 : x->relaying ? " with other relays in the file"
				       : " with sharding.rebalance: on");
		text_shares(&t, x, r, v);
		break;
	case BALANCE_BACK:
		text_add(&t, "the last change of the shares has made operations slower, so it is taken back: ");
		text_shares(&t, x, r, v);
		break;
	case BALANCE_SLOW_RANK:
		text_add(
		    &t,
		    "rank %u is slow: its connections to most reducers are busy for up to %u %% of the communication, "
		    "those of the median rank for %u %%. Other shares of the reducers do not help: look at its link "
		    "and its processors",
		    v->rank, busy, others);
		break;
	case BALANCE_SLOW_PATH:
	case BALANCE_ANEW:
		text_add(&t,
			 "the path between rank %u and reducer %s (%s) is slow: it is busy for %u %% of the "
			 "communication, that of the median rank for %u %%",
			 v->rank, about->id, exchange_params_address(x->params, about), busy, others);
		if (v->kind == BALANCE_ANEW && (did || !x->relaying))
			text_add(&t, "%s ranks connect to it anew, from other ports",
				 did ? "; all" : "; with sharding.rebalance: on all");
		break;
	default:
		break;
	}
	snprintf(buf, size, "%s", t.buf);
}
