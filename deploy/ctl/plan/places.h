/* SPDX-License-Identifier: Apache-2.0 */
/* The groups of a file as racks: which machines they have. */
#ifndef RS_DEPLOY_CTL_PLAN_PLACES_H
#define RS_DEPLOY_CTL_PLAN_PLACES_H

#include "config/config.h"
#include "config/nodelist.h"

/* In place of a group. */
enum { PLACES_NONE = RS_GROUPS_MAX };

/* The groups, if they are racks. */
struct plan_places {
	const struct rs_config *cfg;
	unsigned groups_n;                    /* 0: they are not, or there are none */
	struct nodelist nodes[RS_GROUPS_MAX]; /* owned; empty for a group without nodes */
	unsigned nodes_n;                     /* of all groups; 0 if one of them has none */
};

/* Returns the number of racks of a plan: of the groups if there are some and
 * plan.uplink is given, else plan.racks. */
unsigned plan_racks(const struct rs_config *cfg);

/* Takes the groups. Release them with plan_places_close(). Errors: RS_ECONFIG if
 * plan.racks is another number, RS_ENOMEM. */
int plan_places_init(struct plan_places *ret, const struct rs_config *cfg, struct rs_err *e);
void plan_places_close(struct plan_places *p);

/* Returns the i-th node of nodes_n, group by group. */
const char *plan_places_node(const struct plan_places *p, unsigned i);

/* Returns the group whose nodes have this host name, whole or up to its first dot, or
 * whose addresses have it if it is one. */
unsigned plan_places_of_host(const struct plan_places *p, const char *host);

/* Returns the group for which a reducer relays, else the group of its host. */
unsigned plan_places_of_reducer(const struct plan_places *p, unsigned reducer);

#endif
