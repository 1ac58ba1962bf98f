/* SPDX-License-Identifier: Apache-2.0 */
/* From the machines to the best shares, and from shares to whole shards. */
#include "deploy/ctl/plan/plan.h"

#include "config/groups.h"
#include "config/shardmap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SHARDS_LEAST = 64 };

/* Limit for the extra time of an all-reduce that whole shards cost. */
static const double rounding_max = 1.02;

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

	for (unsigned limit = 2 * SHARDS_LEAST; limit <= PLAN_SHARDS_MAX; limit *= 2) {
		for (; blocks * r->block <= limit; blocks++) {
			double time = round_to(r, blocks), uneven = unevenness(r);

			if (time > best_time * (1 + 1e-6) ||
			    (time > best_time * (1 - 1e-6) && uneven > best_uneven * (1 - 1e-6)))
				continue;
			best_time = time;
			best_uneven = uneven;
			best = blocks;
		}
		if (best_time <= optimum * rounding_max)
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
	r->least = (SHARDS_LEAST + r->block - 1) / r->block;
	if (r->least < used)
		r->least = used;
}

/* Chooses the shards, and fills count, share, owner and times of the plan from the best
 * shares. */
static int make_whole(struct plan *p, const double *best, const struct rs_config *cfg, struct rs_err *e)
{
	struct rounding r = {.plan = p, .best = best, .count = p->count, .share = p->share};
	double optimum = plan_time(&p->net, best);
	unsigned blocks;

	r.machine = calloc(p->net.machines_n, sizeof *r.machine);
	if (!r.machine)
		return rs_oom(e, p->net.machines_n * sizeof *r.machine, "the plan");
	choose_block(&r, cfg);
	blocks = choose_blocks(&r, optimum);
	if (r.block > 1 && round_to(&r, blocks) > optimum * rounding_max) {
		r.least *= r.block;
		r.block = 1;
		blocks = choose_blocks(&r, optimum);
	}
	p->time = round_to(&r, blocks) * p->sent;
	p->shards = blocks * r.block;
	for (unsigned i = 0; i < p->reducers_n; i++)
		p->count[i] *= r.block;
	free(r.machine);
	p->owner = calloc(p->shards, sizeof *p->owner);
	if (!p->owner)
		return rs_oom(e, p->shards * sizeof *p->owner, "the shard map");
	return shardmap_interleave(p->owner, p->shards, p->count, p->reducers_n, e);
}

/* Computes the least time if other machines reduced: all of the workers too, or only
 * those without workers; 0 if there are none. share is scratch. */
static int time_with(const struct plan_net *net, bool mixed, double *share, double *ret_time, struct rs_err *e)
{
	struct plan_net other = *net;
	unsigned reducing = 0;

	other.machine = calloc(net->machines_n, sizeof *other.machine);
	if (!other.machine)
		return rs_oom(e, net->machines_n * sizeof *other.machine, "the plan");
	memcpy(other.machine, net->machine, net->machines_n * sizeof *other.machine);
	for (unsigned m = 0; m < net->machines_n; m++) {
		if (other.machine[m].workers)
			other.machine[m].reducers = mixed;
		reducing += other.machine[m].reducers;
	}
	*ret_time = 0;
	if (reducing) {
		plan_best(&other, share);
		*ret_time = plan_time(&other, share);
	}
	free(other.machine);
	return RS_OK;
}

/* Computes all times but that of the map; best becomes the best shares. */
static int compare(struct plan *p, double *best, struct rs_err *e)
{
	int rc = time_with(&p->net, true, best, &p->mixed, e);

	if (rc == RS_OK)
		rc = time_with(&p->net, false, best, &p->dedicated, e);
	if (rc)
		return rc;
	plan_best(&p->net, best);
	p->mixed *= p->sent;
	p->dedicated *= p->sent;
	p->optimum = plan_time(&p->net, best) * p->sent;
	p->ring = plan_ring(&p->net, 1) * p->elements;
	p->ring_ranks = plan_ring(&p->net, p->ranks) * p->elements;
	p->least = plan_least(&p->net) * p->sent;
	for (unsigned m = 0; m < p->net.machines_n; m++)
		p->dedicated_n += p->net.machine[m].workers == 0;
	return RS_OK;
}

/* Takes how gradients are sent. In the end the wider one of both directions counts. A
 * ring has no 8 or 4 bits: what encoded gradients are compared with is a ring of 16
 * bits. */
static void take_wire(struct plan *p, const struct rs_config *cfg)
{
	int wire = cfg->plan.wire;
	bool half = wire == RS_PLAN_BF16 || wire == RS_PLAN_FP16;
	unsigned both = wire == RS_PLAN_FP8 ? RS_WIRE_FP8 : wire == RS_PLAN_INT8 ? RS_WIRE_INT8 : RS_WIRE_INT4;
	unsigned up = wire >= RS_PLAN_FP8 ? both : cfg->job.wire_up, dtype = half ? RS_BFLOAT16 : RS_FLOAT32;
	unsigned down = wire >= RS_PLAN_FP8 ? both : cfg->job.wire_down, size = half ? 2 : 4;
	double elements = (double)p->bytes / 4, bytes;

	p->up = rs_wire_fits(up, dtype, RS_SUM) ? up : RS_WIRE_SAME;
	p->down = rs_wire_fits(down, dtype, RS_SUM) ? down : RS_WIRE_SAME;
	bytes = (double)rs_wire_bytes(p->up, cfg->job.exact_partials && p->ranks > 1 ? 4 : size, RS_WIRE_BLOCK);
	bytes = fmax(bytes, (double)rs_wire_bytes(p->down, size, RS_WIRE_BLOCK)) / RS_WIRE_BLOCK;
	p->sent = elements * bytes;
	p->elements = elements * (bytes < size ? 2 : size);
	p->ring_name = bytes < size ? "a 16-bit ring" : "a ring";
}

/* Takes what the configuration says about the training. */
static int take_training(struct plan *p, const struct rs_config *cfg, struct rs_err *e)
{
	p->bytes = cfg->plan.bytes;
	p->ranks = cfg->plan.ranks_per_node;
	take_wire(p, cfg);
	p->step = cfg->plan.step_ms / 1e3;
	p->price_worker = cfg->plan.price_worker;
	p->price_reducer = cfg->plan.price_reducer;
	if (p->price_reducer > 0 && p->price_worker == 0)
		return rs_fail(e, RS_ECONFIG,
			       "plan.price_worker: found no price beside plan.price_reducer, expected one there or "
			       "from --price-worker");
	return RS_OK;
}

/* Makes everything of a plan whose network and first fields are set. */
static int make_rest(struct plan *p, const struct rs_config *cfg, struct rs_err *e)
{
	double *best = calloc(p->net.machines_n, sizeof *best);
	int rc;

	p->share = calloc(p->net.machines_n, sizeof *p->share);
	if (p->share && best)
		rc = compare(p, best, e);
	else
		rc = rs_oom(e, p->net.machines_n * sizeof *p->share, "the plan");
	if (rc == RS_OK)
		rc = make_whole(p, best, cfg, e);
	free(best);
	if (rc == RS_OK)
		rc = plan_count_needed(p, e);
	if (rc)
		return rc;
	plan_far(p, cfg);
	plan_estimate(p, cfg);
	plan_verdict(p);
	return RS_OK;
}

int plan_make(struct plan *ret, const struct rs_config *cfg, struct rs_err *e)
{
	struct plan p = {.reducers_n = cfg->reducers_n};
	int rc;

	p.on = calloc(cfg->reducers_n, sizeof *p.on);
	p.count = calloc(cfg->reducers_n, sizeof *p.count);
	if (p.on && p.count)
		rc = take_training(&p, cfg, e);
	else
		rc = rs_oom(e, 0, "the plan");
	if (rc == RS_OK)
		rc = plan_net_init(&p.net, p.on, cfg, e);
	if (rc == RS_OK)
		rc = make_rest(&p, cfg, e);
	if (rc)
		plan_close(&p);
	else
		*ret = p;
	return rc;
}

void plan_close(struct plan *p)
{
	plan_net_close(&p->net);
	free(p->on);
	free(p->count);
	free(p->share);
	free(p->owner);
}

int plan_apply(const struct plan *p, struct rs_config *cfg, struct rs_err *e)
{
	uint16_t *owner = calloc(p->shards, sizeof *owner);

	if (!owner)
		return rs_oom(e, p->shards * sizeof *owner, "the shard map");
	memcpy(owner, p->owner, p->shards * sizeof *owner);
	if (groups_set_map(cfg, owner, p->shards, e)) {
		free(owner);
		return RS_ENOMEM;
	}
	return RS_OK;
}
