/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/worker/core/rebalance.h"

#include "agent/worker/core/exchange_text.h"
#include "agent/worker/core/link.h"

enum { REBALANCE_SAY_MS = 60000 /* between two sentences of one kind */ };

static uint32_t larger(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

/* Adds what a lane has said of the paths to it. */
static void rebalance_add_paths(const struct control_load *lane, struct balance_reducer *ret)
{
	bool up = lane->up_most >= lane->down_most;
	uint32_t most = up ? lane->up_most : lane->down_most;

	ret->processor = larger(ret->processor, lane->processor);
	ret->path = larger(ret->path, larger(lane->up, lane->down));
	if (!lane->ranks || most < ret->most)
		return;
	ret->most = most;
	ret->most_rank = up ? lane->up_most_rank : lane->down_most_rank;
}

/* Fills in the shares of the reducers, and which ones are compared. With relays this rank
 * knows of those that get its chunks: the others are busy with what it does not see. */
static void rebalance_gather_shares(const struct exchange *x, struct balance_reducer r[RS_REDUCERS_MAX])
{
	for (unsigned i = 0; i < x->params->reducers_n; i++)
		r[i] = (struct balance_reducer){.lives = exchange_lives(x, i)};
	if (!x->relaying) {
		for (unsigned s = 0; s < x->params->shards; s++) {
			r[x->owner[s]].share++;
			r[x->params->home[s]].home++;
		}
		return;
	}
	for (unsigned i = 0; i < x->links_n; i++)
		r[x->links[i].reducer].share += x->links[i].relayed.n;
	for (unsigned i = 0; i < x->params->reducers_n; i++) {
		r[i].home = r[i].share;
		r[i].lives = r[i].lives && r[i].share;
	}
}

/* Fills in what is known of each reducer. */
static void rebalance_gather(const struct exchange *x, uint64_t passed_ms, uint64_t now_ms,
			     struct balance_reducer r[RS_REDUCERS_MAX])
{
	uint64_t flying_ms[RS_REDUCERS_MAX] = {0};

	rebalance_gather_shares(x, r);
	for (unsigned i = 0; i < x->links_n; i++) {
		const struct link *l = &x->links[i];

		flying_ms[l->reducer] += load_flying_ms(l, now_ms);
		if (l->load.lane_at_ms && now_ms - l->load.lane_at_ms <= LOAD_FRESH_MS)
			rebalance_add_paths(&l->load.lane, &r[l->reducer]);
	}
	for (unsigned i = 0; i < x->params->reducers_n; i++) {
		r[i].share += !r[i].share;
		r[i].busy = (uint32_t)(flying_ms[i] * BALANCE_PERMIL / passed_ms / x->params->reducers[i].lanes);
	}
}

/* Says what the verdict is, once a minute if it stays the same. */
static void rebalance_say(struct exchange *x, const struct balance_reducer *r, const struct balance_verdict *v,
			  bool did, uint64_t now_ms)
{
	struct load_watch *w = &x->load;

	if (!did && w->said == v->kind && w->said_ms && now_ms - w->said_ms < REBALANCE_SAY_MS)
		return;
	w->said = v->kind;
	w->said_ms = now_ms;
	balance_text(x, r, v, did, w->sentence, sizeof w->sentence);
	if (x->opt.balance)
		x->opt.balance(x->opt.user, v->kind, did, w->sentence);
}

/* Makes the change that a verdict asks for, if the configuration allows it. Returns false
 * if it has to wait; a slow path is named all the same. */
static bool rebalance_change(struct exchange *x, const struct balance_reducer *r, struct balance_verdict *v, bool *did,
			     uint64_t now_ms)
{
	bool asks = v->kind == BALANCE_SHARES || v->kind == BALANCE_BACK || v->kind == BALANCE_ANEW;
	char why[LOAD_TEXT];

	*did = asks && x->params->rebalance == RS_REBALANCE_ON;
	if (!*did)
		return true;
	balance_text(x, r, v, true, why, sizeof why);
	*did = v->kind == BALANCE_ANEW ? exchange_connect_anew(x, v->reducer, why, now_ms)
				       : exchange_set_shares(x, v->shares, now_ms);
	if (*did)
		balance_applied(&x->load.balance, r, x->params->reducers_n, v, now_ms);
	else if (v->kind == BALANCE_ANEW)
		v->kind = BALANCE_SLOW_PATH;
	return *did || v->kind == BALANCE_SLOW_PATH;
}

static void rebalance_decide(struct exchange *x, uint32_t active, uint64_t passed_ms, uint64_t now_ms)
{
	struct balance_reducer r[RS_REDUCERS_MAX];
	struct load_watch *w = &x->load;
	struct balance_verdict v;
	bool did;

	rebalance_gather(x, passed_ms, now_ms, r);
	balance_sample(&w->balance, r, x->params->reducers_n, (uint32_t)passed_ms, active, w->bytes, now_ms, &v);
	if (v.kind != BALANCE_EVEN && rebalance_change(x, r, &v, &did, now_ms))
		rebalance_say(x, r, &v, did, now_ms);
}

uint64_t rebalance_tick(struct exchange *x, uint64_t now_ms)
{
	struct load_watch *w = &x->load;
	uint64_t active_ms, passed_ms = now_ms - w->from_ms;

	if (!w->on)
		return UINT64_MAX;
	if (passed_ms < LOAD_MS)
		return w->from_ms + LOAD_MS;
	active_ms = w->active_ms + (w->active_from_ms ? now_ms - w->active_from_ms : 0);
	if (!x->opt.rank)
		rebalance_decide(x, (uint32_t)(active_ms * BALANCE_PERMIL / passed_ms), passed_ms, now_ms);
	w->on = active_ms > 0;
	w->from_ms = now_ms;
	w->active_ms = w->bytes = 0;
	if (w->active_from_ms)
		w->active_from_ms = now_ms;
	for (unsigned i = 0; i < x->links_n; i++) {
		x->links[i].load.wanted = w->on;
		x->links[i].load.flying_ms = 0;
	}
	x->links_changed |= w->on;
	return w->on ? now_ms + LOAD_MS : UINT64_MAX;
}
