/* SPDX-License-Identifier: Apache-2.0 */
/* What a linear program needs of the machines and racks. Machines of a rack with as many
 * workers each are a pool: what the pool does can be divided among them in proportion to
 * what their links have left. Racks with the same pools are of one kind: they have equal
 * parts in some best solution. */
#ifndef RS_DEPLOY_CTL_PLAN_KINDS_H
#define RS_DEPLOY_CTL_PLAN_KINDS_H

#include "deploy/ctl/plan/plan.h"

/* Machines with reducers of one rack that have as many workers each. */
struct plan_pool {
	unsigned kind;        /* of the rack */
	unsigned machines_n;  /* >= 1 */
	unsigned workers;     /* on each machine */
	double rate, slowest; /* of all links together, and of the slowest one */
};

/* Racks, or the spine, with as many workers and pools that are alike. */
struct plan_kind {
	unsigned first; /* one of these places */
	unsigned n;     /* how many there are */
	unsigned workers;
	unsigned pool, pools_n; /* its pools */
};

struct plan_kinds {
	struct plan_kind *kind; /* owned; at most places_n */
	struct plan_pool *pool; /* owned; at most machines_n */
	unsigned kinds_n, pools_n;
	unsigned *kind_of; /* owned; of each place */
};

/* Finds the kinds of a network. Release them with plan_kinds_close(). Errors:
 * RS_ENOMEM. */
int plan_kinds_init(struct plan_kinds *ret, const struct plan_net *net, struct rs_err *e);
void plan_kinds_close(struct plan_kinds *k);

/* Returns the pool of a machine with a reducer in this place. */
unsigned plan_kinds_pool(const struct plan_kinds *k, unsigned place, const struct plan_machine *machine);

/* Returns how many places of this kind there are besides one of kind `beside`. */
unsigned plan_kinds_others(const struct plan_kinds *k, unsigned kind, unsigned beside);

#endif
