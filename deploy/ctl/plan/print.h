/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of a plan's text share. */
#ifndef RS_DEPLOY_CTL_PLAN_PRINT_H
#define RS_DEPLOY_CTL_PLAN_PRINT_H

#include "deploy/ctl/plan/plan.h"

/* Where the lines of a plan go: each after a prefix, such as "# ". */
struct plan_page {
	const struct plan *p;
	const struct rs_config *cfg;
	const char *prefix;
	FILE *out;
};

/* A row of the table of links: machines, or racks, that are alike. */
struct plan_row {
	const char *first, *last;          /* names; the same if it is one */
	double rate, share, relayed, load; /* rate 0: not limited; relayed as share, of the shards that it relays */
	unsigned workers, reducers;
};

/* Write a row, and the head with the rows of the machines; those that are alike and
 * follow each other share one. */
void plan_print_row(const struct plan_page *g, const struct plan_row *row);
void plan_print_machines(const struct plan_page *g);

/* Write what is in which rack, the rows of the racks, and the other ways between racks;
 * nothing if there is one rack. */
void plan_print_places(const struct plan_page *g);
void plan_print_racks(const struct plan_page *g);
void plan_print_ways(const struct plan_page *g);

#endif
