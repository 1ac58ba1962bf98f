/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/worker/core/report.h"

#include "agent/worker/core/exchange_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct exchange_report *exchange_report_new(unsigned reducers, unsigned shards)
{
	struct exchange_report *r =
	    calloc(1, sizeof *r + reducers * sizeof *r->reducers + 2 * shards * sizeof *r->owner);

	if (!r)
		return NULL;
	r->reducers_n = reducers;
	r->shards_n = shards;
	r->reducers = (struct report_reducer *)(r + 1);
	r->owner = (uint16_t *)(r->reducers + r->reducers_n);
	r->home = r->owner + r->shards_n;
	return r;
}

/* Adds what the reducer's links know. Returns since when all of them are joined. */
static uint64_t report_links(const struct exchange *x, unsigned reducer, struct report_reducer *ret)
{
	uint64_t since_ms = x->opened_ms;

	for (unsigned i = 0; i < x->links_n; i++) {
		const struct link *l = &x->links[i];

		if (l->reducer != reducer)
			continue;
		ret->lanes++;
		if (l->window.limit && (!ret->window || l->window.limit < ret->window)) {
			ret->window = l->window.limit;
			ret->window_max = l->window.most;
		}
		ret->tries = l->tries > ret->tries ? l->tries : ret->tries;
		if (l->state == LINK_JOINED || l->state == LINK_RUNNING) {
			ret->lanes_up++;
			since_ms = l->since_ms > since_ms ? l->since_ms : since_ms;
		} else if (!ret->why[0]) {
			snprintf(ret->why, sizeof ret->why, "%s", l->reason);
		}
	}
	return since_ms;
}

static void report_reducer(const struct exchange *x, unsigned reducer, uint64_t now_ms, struct report_reducer *ret)
{
	const struct rs_reducer *r = &x->params->reducers[reducer];
	const struct reducer_loss *loss = &x->losses[reducer];
	uint64_t since_ms;

	*ret = (struct report_reducer){.reach = REPORT_CONNECTING};
	memcpy(ret->id, r->id, sizeof ret->id);
	memcpy(ret->address, r->address, sizeof ret->address);
	/* a number of the view: one more at each loss and at each return */
	ret->losses = (x->view.lives[reducer] + 1) / 2 - loss->began_empty;
	ret->returns = x->view.lives[reducer] / 2 - (loss->began_empty && !loss->empty);
	since_ms = report_links(x, reducer, ret);
	if (!exchange_lives(x, reducer)) {
		ret->reach = loss->empty ? REPORT_EMPTY : REPORT_LOST;
		since_ms = loss->at_ms;
		ret->narrow = loss->cause.narrow;
		snprintf(ret->why, sizeof ret->why, "%s", loss->why);
	} else if (ret->lanes_up == ret->lanes) {
		ret->reach = REPORT_CONNECTED;
	} else {
		since_ms = x->opened_ms;
	}
	ret->for_ms = now_ms > since_ms ? now_ms - since_ms : 0;
}

void exchange_report(const struct exchange *x, uint64_t now_ms, struct exchange_report *ret)
{
	ret->filled = true;
	ret->state = x->state;
	snprintf(ret->transport, sizeof ret->transport, "%s", x->params->transport);
	ret->age_ms = now_ms - x->opened_ms;
	ret->running_ms = x->running_ms ? now_ms - x->running_ms + 1 : 0;
	ret->operations = exchange_ops_done(x);
	ret->pending = 0;
	for (const struct exchange_op *op = x->first; op; op = op->next)
		ret->pending++;
	ret->retained_bytes = retain_bytes(&x->retain, x->params->priorities);
	ret->share_changes = x->view.epoch;
	ret->balance[0] = '\0';
	if (x->load.said_ms && now_ms - x->load.said_ms < LOAD_SAID_MS)
		snprintf(ret->balance, sizeof ret->balance, "%s", x->load.sentence);
	ret->waiting[0] = '\0';
	if (x->state == EXCHANGE_JOINING)
		waiting_text(x, now_ms, ret->waiting, sizeof ret->waiting);
	ret->alive = ret->empty = 0;
	ret->degraded_ms = 0;
	for (unsigned r = 0; r < ret->reducers_n; r++) {
		struct report_reducer *to = &ret->reducers[r];

		report_reducer(x, r, now_ms, to);
		ret->alive += to->reach != REPORT_LOST && to->reach != REPORT_EMPTY;
		ret->empty += to->reach == REPORT_EMPTY;
		if (to->reach == REPORT_LOST && to->for_ms > ret->degraded_ms)
			ret->degraded_ms = to->for_ms;
	}
	if (x->params->min_reducers && ret->alive >= x->params->min_reducers)
		ret->degraded_ms = 0; /* it has as many as it needs */
	for (unsigned s = 0; s < ret->shards_n; s++) {
		ret->owner[s] = x->owner[s];
		ret->home[s] = x->params->home[s];
		ret->reducers[ret->owner[s]].shards++;
		ret->reducers[ret->home[s]].home_shards++;
	}
}

unsigned exchange_report_holders(const struct exchange_report *r, unsigned lost, bool has[RS_REDUCERS_MAX])
{
	unsigned n = 0;

	memset(has, 0, RS_REDUCERS_MAX * sizeof has[0]);
	for (unsigned s = 0; s < r->shards_n; s++)
		if (r->home[s] == lost && r->owner[s] != lost && !has[r->owner[s]]) {
			has[r->owner[s]] = true;
			n++;
		}
	return n;
}
