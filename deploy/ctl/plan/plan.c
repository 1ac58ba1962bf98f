/* SPDX-License-Identifier: Apache-2.0 */
/* What a plan is made for, and the order in which it is made. */
#include "deploy/ctl/plan/plan.h"

#include "deploy/ctl/plan/places.h"
#include "deploy/ctl/plan/relays.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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

/* Returns why reducers cannot relay although there are racks; NULL if they can. */
static const char *relays_lack(const struct rs_config *cfg)
{
	if (cfg->reducers_n < 2)
		return "there is one reducer";
	if (!cfg->job.retain)
		return "job.failover is fail";
	if (cfg->sharding.rebalance == RS_REBALANCE_ON)
		return "sharding.rebalance is on";
	if (rs_config_has_slots(cfg))
		return "the racks of slots are not known";
	return plan_racks(cfg) > RS_GROUPS_MAX ? "there are more than 64 racks" : NULL;
}

/* Decides whether the plan may have relays. */
static void take_relays(struct plan *p, const struct rs_config *cfg)
{
	if ((plan_racks(cfg) == 1 && !cfg->groups_n) || cfg->plan.relays == RS_PLAN_RELAYS_OFF)
		return;
	p->no_relays = plan_racks(cfg) == 1 ? "the groups of the file need --uplink" : relays_lack(cfg);
	p->may_relay = !p->no_relays;
}

/* Takes what the configuration says about the training. */
static int take_training(struct plan *p, const struct rs_config *cfg, struct rs_err *e)
{
	p->bytes = cfg->plan.bytes;
	p->ranks = cfg->plan.ranks_per_node;
	take_wire(p, cfg);
	take_relays(p, cfg);
	p->step = cfg->plan.step_ms / 1e3;
	p->price_worker = cfg->plan.price_worker;
	p->price_reducer = cfg->plan.price_reducer;
	p->price_uplink = cfg->plan.price_uplink;
	if (p->price_reducer > 0 && p->price_worker == 0)
		return rs_fail(e, RS_ECONFIG,
			       "plan.price_worker: found no price beside plan.price_reducer, expected one there or "
			       "from --price-worker");
	return RS_OK;
}

static int make_arrays(struct plan *p, struct rs_err *e)
{
	size_t machines = p->net.machines_n;

	p->relayed = calloc(p->reducers_n, sizeof *p->relayed);
	p->work = calloc(p->reducers_n, sizeof *p->work);
	p->share = calloc(machines, sizeof *p->share);
	p->load = calloc(machines, sizeof *p->load);
	p->uplink = calloc(p->net.places_n, sizeof *p->uplink);
	if (!p->relayed || !p->work || !p->share || !p->load || !p->uplink)
		return rs_oom(e, machines * sizeof *p->share, "the plan");
	return RS_OK;
}

/* Makes the map of a plan with relays. If whole shards make it too slow, there is none:
 * owner remains NULL. */
static int make_relays(struct plan *p, const struct rs_config *cfg, struct rs_err *e)
{
	struct plan_split split;
	double time;
	int rc = plan_split_best(&split, &time, &p->net, e);

	if (rc)
		return rc;
	rc = plan_relay_map(p, &split, cfg, e);
	plan_split_close(&split);
	if (rc || p->time * plan_gain_min <= p->flat)
		return rc;
	free(p->owner);
	free(p->relay);
	p->owner = p->relay = NULL;
	memset(p->relayed, 0, p->reducers_n * sizeof *p->relayed);
	p->optimum = p->flat;
	return RS_OK;
}

/* Makes the times and the map. */
static int make_map(struct plan *p, const struct rs_config *cfg, struct rs_err *e)
{
	double *best = calloc(p->net.machines_n, sizeof *best);
	bool relays = false;
	int rc;

	if (!best)
		return rs_oom(e, p->net.machines_n * sizeof *best, "the plan");
	rc = plan_times(p, best, &relays, e);
	if (rc == RS_OK && relays)
		rc = make_relays(p, cfg, e);
	if (rc == RS_OK && !p->owner)
		rc = plan_whole(p, best, cfg, e);
	free(best);
	return rc;
}

/* Makes everything of a plan whose network and first fields are set. */
static int make_rest(struct plan *p, const struct rs_config *cfg, struct rs_err *e)
{
	int rc = make_arrays(p, e);

	if (rc == RS_OK)
		rc = make_map(p, cfg, e);
	if (rc == RS_OK)
		rc = plan_count_needed(p, e);
	if (rc == RS_OK)
		rc = plan_ways(p, e);
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
	free(p->relayed);
	free(p->relay);
	free(p->load);
	free(p->uplink);
	free(p->work);
}
