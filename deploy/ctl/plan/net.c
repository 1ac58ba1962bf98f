/* SPDX-License-Identifier: Apache-2.0 */
/* The machines and racks of a job, and the load that a share of the work puts on their
 * links. */
#include "deploy/ctl/plan/places.h"
#include "deploy/ctl/plan/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The entry that gave the rate of a machine, for messages: "workers" or "reducers", and
 * the index. */
struct source {
	const char *section;
	unsigned index;
};

/* The network under construction. */
struct making {
	struct plan_net *net;
	struct source *source;     /* by machine; section NULL: the rate is not known yet */
	struct plan_places places; /* owned */
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

/* Stores the rate that an entry of the file gives its machine. Several entries may give
 * it, but must give the same one.
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

/* Returns the name of a worker's machine: of the list of workers, of the groups' nodes if
 * they are as many as the workers, or else by number. */
static const char *worker_host(const struct making *k, unsigned i, char buf[static RS_HOST_MAX])
{
	if (i < k->cfg->workers_n)
		return k->cfg->workers[i].host;
	if (k->cfg->workers_n == 0 && k->places.nodes_n == k->net->workers)
		return plan_places_node(&k->places, i);
	snprintf(buf, RS_HOST_MAX, "worker-%u", i);
	return buf;
}

static int add_workers(struct making *k)
{
	const struct rs_config *cfg = k->cfg;
	unsigned placed = 0, group;
	char buf[RS_HOST_MAX];

	for (unsigned i = 0; i < k->net->workers; i++) {
		const char *host = worker_host(k, i, buf);
		unsigned m = find_or_add(k->net, host);
		int rc;

		k->net->machine[m].workers++;
		rc = take_rate(k, m, i < cfg->workers_n ? cfg->workers[i].bandwidth : 0, (struct source){"workers", i});
		if (rc)
			return rc;
		group = plan_places_of_host(&k->places, host);
		if ((group == PLACES_NONE && placed) || (group != PLACES_NONE && placed < i))
			return rs_fail(k->e, RS_ECONFIG,
				       "groups: found some workers' machines in their nodes and addresses, but not %s, "
				       "expected all of them or none",
				       group == PLACES_NONE ? host : k->net->machine[0].host);
		if (group == PLACES_NONE)
			continue;
		placed++;
		k->net->machine[m].in = group + 1;
	}
	return RS_OK;
}

static int add_reducers(struct making *k, unsigned *on)
{
	const struct rs_config *cfg = k->cfg;

	for (unsigned i = 0; i < cfg->reducers_n; i++) {
		unsigned group = plan_places_of_reducer(&k->places, i);
		int rc;

		on[i] = find_or_add(k->net, cfg->reducers[i].host);
		k->net->machine[on[i]].reducers++;
		if (group != PLACES_NONE && !k->net->machine[on[i]].workers)
			k->net->machine[on[i]].in = group + 1;
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

/* Returns the place of a machine that no group has: the i-th of n with workers, or the
 * i-th of n that only reduce. */
static unsigned place_of(const struct plan_net *net, bool has_workers, unsigned i, unsigned n)
{
	if (has_workers)
		return (unsigned)((uint64_t)i * net->racks_n / n);
	return i + net->spine < n ? i % net->racks_n : net->racks_n;
}

/* Sets `first` of all places, and fills order. place[m] is that of machine m. */
static void fill_order(struct plan_net *net, const unsigned *place)
{
	for (unsigned r = 1; r < net->places_n; r++)
		net->rack[r].first = net->rack[r - 1].first + net->rack[r - 1].machines_n;
	for (unsigned r = 0; r < net->places_n; r++)
		net->rack[r].machines_n = 0;
	for (unsigned m = 0; m < net->machines_n; m++) {
		struct plan_rack *of = &net->rack[place[m]];

		net->order[of->first + of->machines_n++] = m;
	}
}

int plan_net_spread(struct plan_net *net, struct rs_err *e)
{
	unsigned n[2] = {0, 0}, of_kind[2] = {0, 0}, *place = calloc(net->machines_n, sizeof *place);

	net->places_n = net->racks_n + (net->spine > 0);
	net->rack = calloc(net->places_n, sizeof *net->rack);
	net->order = calloc(net->machines_n, sizeof *net->order);
	if (!place || !net->rack || !net->order) {
		free(place);
		return rs_oom(e, 0, "the racks of %u machines", net->machines_n);
	}
	for (unsigned m = 0; m < net->machines_n; m++)
		n[net->machine[m].workers > 0] += !net->machine[m].in;
	for (unsigned m = 0; m < net->machines_n; m++) {
		bool has_workers = net->machine[m].workers > 0;

		if (net->machine[m].in)
			place[m] = net->machine[m].in - 1;
		else
			place[m] = place_of(net, has_workers, of_kind[has_workers]++, n[has_workers]);
		net->rack[place[m]].workers += net->machine[m].workers;
		net->rack[place[m]].machines_n++;
	}
	fill_order(net, place);
	free(place);
	return RS_OK;
}

/* Checks the numbers of racks and of machines at the spine against the machines. */
static int check_racks(const struct plan_net *net, const struct rs_config *cfg, struct rs_err *e)
{
	unsigned working = 0, others = 0;

	for (unsigned m = 0; m < net->machines_n; m++) {
		working += net->machine[m].workers > 0;
		others += net->machine[m].workers == 0 && !net->machine[m].in;
	}
	if (net->racks_n > working)
		return rs_fail(e, RS_ECONFIG,
			       "plan.racks: found %u, expected at most %u, the number of workers' machines",
			       net->racks_n, working);
	if (net->racks_n > 1 && cfg->plan.uplink == 0)
		return rs_fail(e, RS_ECONFIG,
			       "plan.uplink: found no bandwidth of the %u racks, expected one there or from --uplink",
			       net->racks_n);
	if (net->racks_n == 1 && cfg->plan.uplink)
		return rs_fail(e, RS_ECONFIG,
			       "plan.uplink: found a bandwidth but one rack, expected several in plan.racks or from "
			       "--racks");
	if (cfg->plan.spine && net->racks_n == 1)
		return rs_fail(e, RS_ECONFIG,
			       "plan.spine: found %u machines but one rack, expected several in plan.racks or from "
			       "--racks",
			       cfg->plan.spine);
	if (cfg->plan.spine > others)
		return rs_fail(e, RS_ECONFIG,
			       "plan.spine: found %u, expected at most %u, the number of machines that only reduce and "
			       "are in no group",
			       cfg->plan.spine, others);
	return RS_OK;
}

/* Checks that all racks have workers. */
static int check_groups(const struct plan_net *net, const struct rs_config *cfg, struct rs_err *e)
{
	for (unsigned r = 0; r < net->racks_n; r++)
		if (net->rack[r].workers == 0)
			return rs_fail(e, RS_ECONFIG, "groups[%u]: found no machine of a worker in %s, expected some",
				       r, cfg->groups[r].name);
	return RS_OK;
}

/* Makes the machines and racks. */
static int make_net(struct making *k, unsigned *on)
{
	int rc = add_workers(k);

	if (rc == RS_OK)
		rc = add_reducers(k, on);
	if (rc == RS_OK)
		rc = fill_rates(k);
	if (rc == RS_OK)
		rc = check_racks(k->net, k->cfg, k->e);
	if (rc == RS_OK)
		rc = plan_net_spread(k->net, k->e);
	return rc ? rc : check_groups(k->net, k->cfg, k->e);
}

int plan_net_init(struct plan_net *ret, unsigned *on, const struct rs_config *cfg, struct rs_err *e)
{
	unsigned workers = cfg->plan.workers ? cfg->plan.workers : cfg->workers_n;
	struct plan_net net = {.racks_n = plan_racks(cfg), .spine = cfg->plan.spine};
	struct making k = {.net = &net, .cfg = cfg, .e = e};
	int rc = plan_places_init(&k.places, cfg, e);

	if (rc)
		return rc;
	net.workers = workers = workers ? workers : k.places.nodes_n;
	if (workers < 2) {
		rc = rs_fail(
		    e, RS_ECONFIG,
		    "plan.workers: found %s, expected at least 2, there, in the list workers, or from --workers",
		    workers ? "1 worker" : "no workers");
		goto close_places;
	}
	net.uplink = (double)cfg->plan.uplink / 8;
	net.machine = calloc(workers + cfg->reducers_n, sizeof *net.machine);
	k.source = calloc(workers + cfg->reducers_n, sizeof *k.source);
	if (net.machine && k.source)
		rc = make_net(&k, on);
	else
		rc = rs_oom(e, 0, "the machines of %u workers", workers);
	free(k.source);
	if (rc)
		plan_net_close(&net);
	else
		*ret = net;
close_places:
	plan_places_close(&k.places);
	return rc;
}

void plan_net_close(struct plan_net *net)
{
	free(net->machine);
	free(net->rack);
	free(net->order);
	*net = (struct plan_net){.machines_n = 0};
}

double plan_load(const struct plan_net *net, unsigned workers, double share)
{
	return workers + (net->workers - 2.0 * workers) * share;
}

double plan_rack_share(const struct plan_net *net, unsigned rack, const double *share)
{
	double sum = 0;

	for (unsigned i = 0; i < net->rack[rack].machines_n; i++)
		sum += share[net->order[net->rack[rack].first + i]];
	return sum;
}

double plan_links_time(const struct plan_net *net, const double *share)
{
	double longest = 0;

	for (unsigned m = 0; m < net->machines_n; m++)
		longest = fmax(longest, plan_load(net, net->machine[m].workers, share[m]) / net->machine[m].rate);
	return longest;
}

double plan_uplinks_time(const struct plan_net *net, const double *share)
{
	double longest = 0;

	for (unsigned r = 0; net->racks_n > 1 && r < net->racks_n; r++)
		longest =
		    fmax(longest, plan_load(net, net->rack[r].workers, plan_rack_share(net, r, share)) / net->uplink);
	return longest;
}

double plan_time(const struct plan_net *net, const double *share)
{
	return fmax(plan_links_time(net, share), plan_uplinks_time(net, share));
}

double plan_least(const struct plan_net *net)
{
	double longest = net->racks_n > 1 ? 1 / net->uplink : 0;
	unsigned machines = 0;

	for (unsigned m = 0; m < net->machines_n; m++) {
		if (net->machine[m].workers == 0)
			continue;
		longest = fmax(longest, 1 / net->machine[m].rate);
		machines++;
	}
	return machines > 1 ? longest : 0;
}

/* Neighbours in the ring that share a machine or a rack need no link or uplink, so each
 * carries the traffic of one worker. */
double plan_ring(const struct plan_net *net, unsigned ranks)
{
	double members = (double)net->workers * ranks;

	return 2 * (members - 1) / members * plan_least(net);
}

/* Let t be the time. A machine that only reduces can take the share t / n, and a worker's
 * machine (t - 1) / (n - 2). The shares suffice when their sum is 1. t >= 1, since each
 * worker sends and receives S. */
double plan_equal_time(unsigned n, unsigned k, unsigned g)
{
	double workers = n;

	if (g == 0)
		return fmax(1, workers / k);
	return fmax(1, workers * (workers - 2 + g) / (k * (workers - 2) + g * workers));
}
