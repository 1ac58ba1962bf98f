/* SPDX-License-Identifier: Apache-2.0 */
/* Relays in racks: which part of the shards each machine is the home of, and which part
 * it relays for the workers of its rack.
 *
 * There are n workers, m(g) of them in rack g. The reducer that owns a shard is its home.
 * The workers of the home's own rack send to the home. Every other rack has a relay for
 * the shard, or its workers send straight to the home too. Machine i in rack q, with w(i)
 * workers, is the home of the part h(i) of the shards, relays the part z(i), and gets the
 * part f(g, i) <= h(i) straight from rack g. It receives, and sends, this many times S:
 *
 *     w + h (m(q) - 2w) + z (m(q) - 2w + 1) + sum over the other racks g of (h + (m(g) - 1) f(g))
 *
 * The uplink of rack q carries each way the shards with homes elsewhere, once if they are
 * relayed and m(q) times if not, and the same of every other rack for the shards with
 * homes in q:
 *
 *     1 - H(q) + (m(q) - 1) F(q) + sum over i in q, g other than q of (h(i) + (m(g) - 1) f(g, i))
 *
 * where H(q) is the sum of h in q, and F(q) that of f(q, i) over all i elsewhere. So
 * with R racks alike, homes in the racks and all shards relayed an uplink carries 2(R -
 * 1) / R S, and S if the homes are at the spine. The relays of a rack take all that is
 * not straight: the sum of z in q is 1 - H(q) - F(q). The best parts are those with
 * which the busiest link is finished soonest: a linear program. f = h everywhere is a
 * plan without relays. */
#ifndef RS_DEPLOY_CTL_PLAN_RELAYS_H
#define RS_DEPLOY_CTL_PLAN_RELAYS_H

#include "deploy/ctl/plan/plan.h"

/* Parts of all shards: how homes and relays share the work. */
struct plan_split {
	unsigned machines_n;
	double *home;  /* owned; of each machine; the sum is 1 */
	double *relay; /* owned; of each machine, for the workers of its rack */
	double *flat;  /* owned; [racks_n * machines_n]: what rack g sends straight to machine m, at
			  g * machines_n + m; of a machine in rack g: its home */
};

/* Makes a split with all parts 0. Release it with plan_split_close(). Errors:
 * RS_ENOMEM. */
int plan_split_init(struct plan_split *ret, const struct plan_net *net, struct rs_err *e);
void plan_split_close(struct plan_split *s);

/* Computes what each machine's link and each place's uplink carry each way, as a multiple
 * of S: load[machines_n], uplink[places_n]. For the spine it is what the racks send
 * there. */
void plan_split_loads(const struct plan_split *s, const struct plan_net *net, double *load, double *uplink);

/* Return the time of a network with these loads, and the parts that its machines' links
 * and its racks' uplinks (0 if there is one rack) need of it. */
double plan_loads_time(const struct plan_net *net, const double *load, const double *uplink);
double plan_loads_links(const struct plan_net *net, const double *load);
double plan_loads_uplinks(const struct plan_net *net, const double *uplink);

/* Computes the best split of a network with racks_n >= 2, and its time. No shards go
 * straight home from other racks unless that is faster by plan_gain_min. Of equally fast
 * ones it takes the one with the least traffic between racks, then the one with the
 * fewest relays. The time is infinite if no split is found. Errors: RS_ENOMEM. */
int plan_split_best(struct plan_split *ret, double *ret_time, const struct plan_net *net, struct rs_err *e);

/* Fills shards, count, relayed, owner, relay, share, load, uplink, work and time of a
 * plan with whole shards that come close to a split. Errors: RS_ENOMEM. */
int plan_relay_map(struct plan *p, const struct plan_split *best, const struct rs_config *cfg, struct rs_err *e);

#endif
