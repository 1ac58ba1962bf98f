/* SPDX-License-Identifier: Apache-2.0 */
/* From shares to whole shards. */
#include "deploy/ctl/plan/plan.h"

#include "config/shardmap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Shares while they are rounded to whole shards. A block has as many shards as reducers
 * have lanes, if that is one number. */
struct rounding {
	struct plan *plan;
	const double *best;    /* share of each machine */
	unsigned *count;       /* blocks of each reducer */
	unsigned *machine;     /* blocks of each machine */
	double *share;         /* machine[] by all blocks */
	unsigned block, least; /* shards of a block; initial number of blocks */
};

static double best_of(const struct rounding *r, unsigned reducer)
{
	unsigned m = r->plan->on[reducer];

	return r->best[m] / r->plan->net.machine[m].reducers;
}

/* Returns the reducer whose machine is finished first with one more block; of equal ones
 * the one that is furthest behind. */
static unsigned next_reducer(const struct rounding *r, unsigned blocks)
{
	const struct plan_net *net = &r->plan->net;
	double soonest = INFINITY, behind = 0;
	unsigned best = 0;

	for (unsigned i = 0; i < r->plan->reducers_n; i++) {
		unsigned m = r->plan->on[i];
		double time =
		    plan_load(net, net->machine[m].workers, (r->machine[m] + 1.0) / blocks) / net->machine[m].rate;
		double lacks = best_of(r, i) * blocks - r->count[i];

		if (time > soonest * (1 + 1e-9) || (time > soonest * (1 - 1e-9) && lacks <= behind))
			continue;
		soonest = time;
		behind = lacks;
		best = i;
	}
	return best;
}

/* Assigns that many blocks, and returns the time of the network. */
static double round_to(struct rounding *r, unsigned blocks)
{
	struct plan *p = r->plan;
	unsigned given = 0;

	memset(r->machine, 0, p->net.machines_n * sizeof *r->machine);
	for (unsigned i = 0; i < p->reducers_n; i++) {
		r->count[i] = (unsigned)(best_of(r, i) * blocks * (1 + 1e-12));
		r->machine[p->on[i]] += r->count[i];
		given += r->count[i];
	}
	for (; given < blocks; given++) {
		unsigned next = next_reducer(r, blocks);

		r->count[next]++;
		r->machine[p->on[next]]++;
	}
	for (unsigned m = 0; m < p->net.machines_n; m++)
		r->share[m] = (double)r->machine[m] / blocks;
	return plan_time(&p->net, r->share);
}

/* Returns the largest factor by which a reducer of a machine is above its part. */
static double unevenness(const struct rounding *r)
{
	double most = 1;

	for (unsigned m = 0; m < r->plan->net.machines_n; m++)
		if (r->best[m] > 0)
			most = fmax(most, r->share[m] / r->best[m]);
	return most;
}

/* Chooses the number of blocks: few, so that short operations use all reducers too, but
 * enough for the shares. If several numbers are equally fast (for example because
 * reducers do not matter), it takes the one with the most even shares. */
static unsigned choose_blocks(struct rounding *r, double optimum)
{
	unsigned best = 0, blocks = r->least;
	double best_time = INFINITY, best_uneven = INFINITY;

	for (unsigned limit = 2 * PLAN_SHARDS_LEAST; limit <= PLAN_SHARDS_MAX; limit *= 2) {
		for (; blocks * r->block <= limit; blocks++) {
			double time = round_to(r, blocks), uneven = unevenness(r);

			if (time > best_time * (1 + 1e-6) ||
			    (time > best_time * (1 - 1e-6) && uneven > best_uneven * (1 - 1e-6)))
				continue;
			best_time = time;
			best_uneven = uneven;
			best = blocks;
		}
		if (best_time <= optimum * plan_rounding_max)
			break;
	}
	return best;
}

/* Chooses the shards of a block: 1, unless all reducers that get blocks have the same
 * number of lanes and the shards suffice. */
static void choose_block(struct rounding *r, const struct rs_config *cfg)
{
	unsigned used = 0, lanes = 0;
	bool same = true;

	for (unsigned i = 0; i < cfg->reducers_n; i++) {
		if (best_of(r, i) < 1.0 / PLAN_SHARDS_MAX)
			continue;
		same = same && (used == 0 || cfg->reducers[i].lanes == lanes);
		lanes = cfg->reducers[i].lanes;
		used++;
	}
	r->block = same && used * lanes <= PLAN_SHARDS_MAX ? lanes : 1;
	if (r->block == 0)
		r->block = 1;
	r->least = (PLAN_SHARDS_LEAST + r->block - 1) / r->block;
	if (r->least < used)
		r->least = used;
}

/* Fills load, uplink and work of a plan without relays. */
static void take_loads(struct plan *p)
{
	const struct plan_net *net = &p->net;

	for (unsigned m = 0; m < net->machines_n; m++)
		p->load[m] = plan_load(net, net->machine[m].workers, p->share[m]);
	for (unsigned q = 0; q < net->places_n; q++)
		p->uplink[q] = plan_load(net, net->rack[q].workers, plan_rack_share(net, q, p->share));
	for (unsigned i = 0; i < p->reducers_n; i++)
		p->work[i] = (double)net->workers * p->count[i] / p->shards;
}

int plan_whole(struct plan *p, const double *best, const struct rs_config *cfg, struct rs_err *e)
{
	struct rounding r = {.plan = p, .best = best, .count = p->count, .share = p->share};
	double optimum = plan_time(&p->net, best);
	unsigned blocks;

	r.machine = calloc(p->net.machines_n, sizeof *r.machine);
	if (!r.machine)
		return rs_oom(e, p->net.machines_n * sizeof *r.machine, "the plan");
	choose_block(&r, cfg);
	blocks = choose_blocks(&r, optimum);
	if (r.block > 1 && round_to(&r, blocks) > optimum * plan_rounding_max) {
		r.least *= r.block;
		r.block = 1;
		blocks = choose_blocks(&r, optimum);
	}
	p->time = round_to(&r, blocks) * p->sent;
	p->shards = blocks * r.block;
	for (unsigned i = 0; i < p->reducers_n; i++)
		p->count[i] *= r.block;
	free(r.machine);
	take_loads(p);
	p->owner = calloc(p->shards, sizeof *p->owner);
	if (!p->owner)
		return rs_oom(e, p->shards * sizeof *p->owner, "the shard map");
	return shardmap_interleave(p->owner, p->shards, p->count, p->reducers_n, e);
}
