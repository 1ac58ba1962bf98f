/* SPDX-License-Identifier: Apache-2.0 */
/* What other ways to all-reduce take between racks, and what traffic between racks costs.
 *
 * n workers are in R racks, m(q) in rack q. In each ring a worker sends 2 (n - 1) / n S,
 * to the next one. Rack by rack one worker of a rack sends to another rack. In random
 * order each of the m does with the probability (n - m) / (n - 1), so that the uplink
 * carries 2 m (n - m) / n S on average: 2 m (R - 1) / R S, as much as with reducers
 * without relays in racks that are alike. In a 2-D ring (BlueConnect, IBM J. Res. Dev.
 * 63-6, 2019) each worker has 1 / m of the gradients in a ring across the racks, so that
 * the uplink carries 2 (R - 1) / R S; pipelined, both rings run at the same time. */
#include "deploy/ctl/plan/relays.h"

#include <math.h>
#include <stdlib.h>

static const double GIGABYTE = 1e9, PRICED = 1000;

/* Finishes a way: uplinks[] are multiples of bytes that a place sends. */
static void take_way(struct plan *p, enum plan_way which, double links, const double *uplinks, double bytes)
{
	struct plan_cost *way = &p->way[which];
	double sum = 0;

	for (unsigned q = 0; q < p->net.places_n; q++) {
		if (q < p->net.racks_n)
			way->uplink = fmax(way->uplink, uplinks[q]);
		sum += uplinks[q];
	}
	way->time = fmax(links, way->uplink / p->net.uplink) * bytes;
	way->leave = sum * bytes;
	way->price = 2 * way->leave / GIGABYTE * p->price_uplink * PRICED;
}

/* Returns what leaves a machine or rack in a random ring. */
static double random_load(const struct plan_net *net, double workers)
{
	return 2 * workers * (net->workers - workers) / net->workers;
}

static void take_rings(struct plan *p, double *uplinks)
{
	const struct plan_net *net = &p->net;
	double n = net->workers, racks = net->racks_n, ordered = 0, random = 0;

	for (unsigned m = 0; m < net->machines_n; m++) {
		if (net->machine[m].workers)
			ordered = fmax(ordered, 2 * (n - 1) / n / net->machine[m].rate);
		random = fmax(random, random_load(net, net->machine[m].workers) / net->machine[m].rate);
	}
	for (unsigned q = 0; q < net->places_n; q++)
		uplinks[q] = q < net->racks_n ? 2 * (n - 1) / n : 0;
	take_way(p, PLAN_RING, ordered, uplinks, p->elements);
	for (unsigned q = 0; q < net->racks_n; q++)
		uplinks[q] = random_load(net, net->rack[q].workers);
	take_way(p, PLAN_RANDOM_RING, random, uplinks, p->elements);
	for (unsigned q = 0; q < net->racks_n; q++)
		uplinks[q] = 2 * (racks - 1) / racks;
	take_way(p, PLAN_2D_RING, ordered, uplinks, p->elements);
}

int plan_ways(struct plan *p, struct rs_err *e)
{
	const struct plan_net *net = &p->net;
	double *share, *uplinks;

	if (net->racks_n == 1)
		return RS_OK;
	share = calloc((size_t)net->machines_n + net->places_n, sizeof *share);
	if (!share)
		return rs_oom(e, net->machines_n * sizeof *share, "the racks");
	uplinks = share + net->machines_n;
	take_rings(p, uplinks);
	plan_best(net, share);
	for (unsigned q = 0; q < net->places_n; q++)
		uplinks[q] = plan_load(net, net->rack[q].workers, plan_rack_share(net, q, share));
	take_way(p, PLAN_FLAT, plan_links_time(net, share), uplinks, p->sent);
	if (p->relay)
		take_way(p, PLAN_RELAYS, plan_loads_links(net, p->load), p->uplink, p->sent);
	free(share);
	return RS_OK;
}
