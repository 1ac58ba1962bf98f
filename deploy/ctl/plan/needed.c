/* SPDX-License-Identifier: Apache-2.0 */
/* How many machines that only reduce suffice. */
#include "deploy/ctl/plan/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Most machines that are tried. */
enum { NEEDED_MAX = 4096 };

/* The workers of a plan and room for machines that only reduce. */
struct trial {
	struct plan_net net;
	double *share;    /* owned */
	unsigned working; /* machines with workers */
	unsigned spine;   /* machines at the spine, the first ones that are added */
	bool may_relay;
	double rate; /* of the others */
};

static int trial_init(struct trial *t, const struct plan *p, unsigned most, struct rs_err *e)
{
	size_t room = (size_t)p->net.machines_n + most;

	*t = (struct trial){.rate = p->needed_rate, .spine = p->net.spine, .may_relay = p->may_relay};
	t->net = (struct plan_net){.workers = p->net.workers, .racks_n = p->net.racks_n, .uplink = p->net.uplink};
	t->net.machine = calloc(room, sizeof *t->net.machine);
	t->share = calloc(room, sizeof *t->share);
	if (!t->net.machine || !t->share)
		return rs_oom(e, 0, "%zu machines", room);
	for (unsigned m = 0; m < p->net.machines_n; m++) {
		if (p->net.machine[m].workers == 0)
			continue;
		t->net.machine[t->working] = p->net.machine[m];
		t->net.machine[t->working++].reducers = 0;
	}
	return RS_OK;
}

static void trial_close(struct trial *t)
{
	plan_net_close(&t->net);
	free(t->share);
}

/* Computes the time of the network with k >= 1 machines that only reduce. */
static int trial_time(struct trial *t, unsigned k, double *ret, struct rs_err *e)
{
	bool relays;
	int rc;

	t->net.machines_n = t->working + k;
	t->net.spine = t->spine < k ? t->spine : k;
	for (unsigned m = t->working; m < t->net.machines_n; m++)
		t->net.machine[m] = (struct plan_machine){.rate = t->rate, .reducers = 1};
	free(t->net.rack);
	free(t->net.order);
	rc = plan_net_spread(&t->net, e);
	if (rc)
		return rc;
	return plan_fastest(&t->net, t->may_relay, t->share, ret, &relays, e);
}

/* Finds the smallest number of machines with which the network needs no longer than this,
 * up to `most`; 0 if there is none. More machines are never slower. */
static int trial_find(struct trial *t, unsigned most, double time, unsigned *ret, struct rs_err *e)
{
	unsigned low = 0, high = most + 1;

	while (low + 1 < high) {
		unsigned middle = (low + high) / 2;
		double found;
		int rc = trial_time(t, middle, &found, e);

		if (rc)
			return rc;
		if (found <= time * (1 + plan_slack))
			high = middle;
		else
			low = middle;
	}
	*ret = high > most ? 0 : high;
	return RS_OK;
}

/* Returns how many machines suffice for any time that can be reached at all. Sets
 * needed_rate. */
static unsigned most_of(struct plan *p)
{
	double rate = 0, slowest = INFINITY, longest = 0, most;

	for (unsigned m = 0; m < p->net.machines_n; m++) {
		const struct plan_machine *machine = &p->net.machine[m];

		if (machine->workers == 0) {
			rate = fmax(rate, machine->rate);
			continue;
		}
		slowest = fmin(slowest, machine->rate);
		longest = fmax(longest, machine->workers / machine->rate);
	}
	p->needed_rate = rate > 0 ? rate : slowest;
	/* homes and relays get n S, and partial sums and results once for each other
	 * rack */
	most = p->net.workers + (p->may_relay ? 2 * (p->net.racks_n - 1.0) : 0);
	most = ceil(most / (p->needed_rate * longest) * (1 - plan_slack));
	most = ceil(most / p->net.racks_n) * p->net.racks_n; /* as many in each rack */
	return (unsigned)fmin(most, NEEDED_MAX);
}

int plan_count_needed(struct plan *p, struct rs_err *e)
{
	unsigned most = most_of(p);
	struct trial t;
	double least;
	int rc;

	rc = trial_init(&t, p, most, e);
	if (rc == RS_OK)
		rc = trial_time(&t, most, &least, e);
	if (rc == RS_OK)
		rc = trial_find(&t, most, p->optimum / p->sent, &p->needed_same, e);
	if (rc == RS_OK && least * plan_gain_min <= p->ring / p->sent * (1 + plan_slack)) {
		rc = trial_find(&t, most, p->ring / p->sent / plan_gain_min, &p->needed_ring, e);
		if (rc == RS_OK)
			rc = trial_find(&t, most, least, &p->needed_least, e);
	}
	trial_close(&t);
	return rc;
}
