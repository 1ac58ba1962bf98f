/* SPDX-License-Identifier: Apache-2.0 */
/* The machines of a job, and the load that a share of the work puts on their links. */
#include "config/plan/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The entry that gave the rate of a machine, for messages: "workers" or "reducers", and the index. */
struct source {
	const char *section;
	unsigned index;
};

/* The network under construction. */
struct making {
	struct plan_net *net;
	struct source *source; /* by machine; section NULL: the rate is not known yet */
	const struct rs_config *cfg;
	struct rs_err *e;
};

static unsigned find_or_add(struct plan_net *net, const char *host)
{
	unsigned m = 0;

	while (m < net->machines_n && strcasecmp(net->machine[m].host, host) != 0)
		m++;
	if (m == net->machines_n) {
		snprintf(net->machine[m].host, sizeof net->machine[m].host, "%s", host);
		net->machines_n++;
	}
	return m;
}

/* Stores the rate that an entry of the file gives its machine. Several entries may give it, but must give the same one.
 */
static int take_rate(struct making *k, unsigned m, uint64_t bandwidth, struct source from)
{
	struct plan_machine *machine = &k->net->machine[m];
	struct source *source = &k->source[m];

	if (bandwidth == 0)
		return RS_OK;
	if (source->section && machine->rate * 8 != (double)bandwidth)
		return rs_fail(k->e, RS_ECONFIG,
			       "%s[%u].bandwidth: found another rate for the link of %s than in %s[%u], expected the "
			       "same in both or only one of them",
			       from.section, from.index, machine->host, source->section, source->index);
	machine->rate = (double)bandwidth / 8;
	*source = from;
	return RS_OK;
}

static int add_workers(struct making *k)
{
	const struct rs_config *cfg = k->cfg;
	char name[32];

	for (unsigned i = 0; i < k->net->workers; i++) {
		bool listed = i < cfg->workers_n;
		unsigned m;
		int rc;

		snprintf(name, sizeof name, "worker-%u", i);
		m = find_or_add(k->net, listed ? cfg->workers[i].host : name);
		k->net->machine[m].workers++;
		rc = take_rate(k, m, listed ? cfg->workers[i].bandwidth : 0, (struct source){"workers", i});
		if (rc)
			return rc;
	}
	return RS_OK;
}

static int add_reducers(struct making *k, unsigned *on)
{
	const struct rs_config *cfg = k->cfg;

	for (unsigned i = 0; i < cfg->reducers_n; i++) {
		int rc;

		on[i] = find_or_add(k->net, cfg->reducers[i].host);
		k->net->machine[on[i]].reducers++;
		rc = take_rate(k, on[i], cfg->reducers[i].bandwidth, (struct source){"reducers", i});
		if (rc)
			return rc;
	}
	return RS_OK;
}

static int fill_rates(struct making *k)
{
	for (unsigned m = 0; m < k->net->machines_n; m++) {
		struct plan_machine *machine = &k->net->machine[m];

		if (k->source[m].section)
			continue;
		if (k->cfg->plan.bandwidth == 0)
			return rs_fail(
			    k->e, RS_ECONFIG,
			    "plan.bandwidth: found no bandwidth for the link of %s, expected one there, at its "
			    "worker or reducer, or from --bandwidth",
			    machine->host);
		machine->rate = (double)k->cfg->plan.bandwidth / 8;
	}
	return RS_OK;
}

int plan_net_init(struct plan_net *ret, unsigned *on, const struct rs_config *cfg, struct rs_err *e)
{
	unsigned workers = cfg->plan.workers ? cfg->plan.workers : cfg->workers_n;
	struct plan_net net = {.workers = workers};
	struct making k = {.net = &net, .cfg = cfg, .e = e};
	int rc;

	if (workers < 2)
		return rs_fail(
		    e, RS_ECONFIG,
		    "plan.workers: found %s, expected at least 2, there, in the list workers, or from --workers",
		    workers ? "1 worker" : "no workers");
	net.machine = calloc(workers + cfg->reducers_n, sizeof *net.machine);
	k.source = calloc(workers + cfg->reducers_n, sizeof *k.source);
	if (net.machine && k.source)
		rc = add_workers(&k);
	else
		rc = rs_fail(e, RS_ENOMEM, "out of memory for the machines of %u workers", workers);
	if (rc == RS_OK)
		rc = add_reducers(&k, on);
	if (rc == RS_OK)
		rc = fill_rates(&k);
	free(k.source);
	if (rc)
		plan_net_close(&net);
	else
		*ret = net;
	return rc;
}

void plan_net_close(struct plan_net *net)
{
	free(net->machine);
	net->machine = NULL;
	net->machines_n = 0;
}

double plan_load(const struct plan_net *net, unsigned machine, double share)
{
	double workers = net->machine[machine].workers;

	return workers + (net->workers - 2 * workers) * share;
}

double plan_time(const struct plan_net *net, const double *share)
{
	double longest = 0;

	for (unsigned m = 0; m < net->machines_n; m++)
		longest = fmax(longest, plan_load(net, m, share[m]) / net->machine[m].rate);
	return longest;
}

double plan_least(const struct plan_net *net)
{
	double longest = 0;
	unsigned machines = 0;

	for (unsigned m = 0; m < net->machines_n; m++) {
		if (net->machine[m].workers == 0)
			continue;
		longest = fmax(longest, 1 / net->machine[m].rate);
		machines++;
	}
	return machines > 1 ? longest : 0;
}

/* Neighbours in the ring that share a machine need no link, so each link carries the traffic of one worker. */
double plan_ring(const struct plan_net *net)
{
	return 2.0 * (net->workers - 1) / net->workers * plan_least(net);
}

/* Let t be the time. A machine that only reduces can take the share t / n, and a worker's machine (t - 1) / (n - 2).
 * The shares suffice when their sum is 1. t >= 1, since each worker sends and receives S. */
double plan_equal_time(unsigned n, unsigned k, unsigned g)
{
	double workers = n;

	if (g == 0)
		return fmax(1, workers / k);
	return fmax(1, workers * (workers - 2 + g) / (k * (workers - 2) + g * workers));
}
