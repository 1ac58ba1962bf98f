/* SPDX-License-Identifier: Apache-2.0 */
/* The best times of a network: of its reducers, and if other machines reduced. */
#include "deploy/ctl/plan/plan.h"

#include "deploy/ctl/plan/relays.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Numbers of machines at the spine that are tried. */
static const unsigned spines[] = {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32, 48, 64};

int plan_fastest(const struct plan_net *net, bool may_relay, double *share, double *ret_time, bool *ret_relays,
		 struct rs_err *e)
{
	struct plan_split split;
	double flat, relayed;
	int rc;

	plan_best(net, share);
	flat = plan_time(net, share);
	*ret_time = flat;
	*ret_relays = false;
	if (!may_relay || net->racks_n == 1)
		return RS_OK;
	rc = plan_split_best(&split, &relayed, net, e);
	if (rc)
		return rc;
	plan_split_close(&split);
	*ret_relays = relayed * plan_gain_min <= flat * (1 + plan_slack);
	if (*ret_relays)
		*ret_time = relayed;
	return RS_OK;
}

/* Computes the least time if other machines reduced: all of the workers too, or only
 * those without workers; 0 if there are none. */
static int time_with(const struct plan *p, bool mixed, double *share, double *ret_time, struct rs_err *e)
{
	struct plan_net other = p->net;
	unsigned reducing = 0;
	bool relays;
	int rc = RS_OK;

	other.machine = calloc(other.machines_n, sizeof *other.machine);
	if (!other.machine)
		return rs_oom(e, other.machines_n * sizeof *other.machine, "the plan");
	memcpy(other.machine, p->net.machine, other.machines_n * sizeof *other.machine);
	for (unsigned m = 0; m < other.machines_n; m++) {
		if (other.machine[m].workers)
			other.machine[m].reducers = mixed;
		reducing += other.machine[m].reducers;
	}
	*ret_time = 0;
	if (reducing)
		rc = plan_fastest(&other, p->may_relay, share, ret_time, &relays, e);
	free(other.machine);
	return rc;
}

/* Computes the least time with that many machines at the spine. */
static int time_at_spine(const struct plan *p, unsigned spine, double *share, double *ret_time, struct rs_err *e)
{
	struct plan_net other = p->net;
	bool relays;
	int rc;

	other.spine = spine;
	rc = plan_net_spread(&other, e);
	if (rc == RS_OK)
		rc = plan_fastest(&other, true, share, ret_time, &relays, e);
	free(other.rack);
	free(other.order);
	return rc;
}

/* Finds how many machines at the spine would be fastest; with two racks none are, since
 * homes there save their uplinks nothing. */
static int try_spine(struct plan *p, double *share, struct rs_err *e)
{
	double best = p->optimum, time;
	unsigned others = 0;

	for (unsigned m = 0; m < p->net.machines_n; m++)
		others += p->net.machine[m].workers == 0 && !p->net.machine[m].in;
	if (!p->may_relay || p->net.racks_n < 3 || p->net.spine)
		return RS_OK;
	for (unsigned i = 0; i < sizeof spines / sizeof spines[0] && spines[i] < others; i++) {
		int rc = time_at_spine(p, spines[i], share, &time, e);

		if (rc)
			return rc;
		time *= p->sent;
		if (time * plan_gain_min > best)
			continue;
		best = p->at_spine = time;
		p->spine_n = spines[i];
	}
	return RS_OK;
}

int plan_times(struct plan *p, double *best, bool *ret_relays, struct rs_err *e)
{
	bool relays;
	int rc;

	for (unsigned m = 0; m < p->net.machines_n; m++)
		p->dedicated_n += p->net.machine[m].workers == 0;
	rc = time_with(p, true, best, &p->mixed, e);
	if (rc == RS_OK)
		rc = time_with(p, false, best, &p->dedicated, e);
	if (rc == RS_OK)
		rc = plan_fastest(&p->net, p->may_relay, best, &p->optimum, &relays, e);
	if (rc)
		return rc;
	p->mixed *= p->sent;
	p->dedicated *= p->sent;
	p->optimum *= p->sent;
	rc = try_spine(p, best, e);
	if (rc)
		return rc;
	plan_best(&p->net, best);
	p->flat = plan_time(&p->net, best) * p->sent;
	p->ring = plan_ring(&p->net, 1) * p->elements;
	p->ring_ranks = plan_ring(&p->net, p->ranks) * p->elements;
	p->least = plan_least(&p->net) * p->sent;
	*ret_relays = relays;
	return RS_OK;
}
