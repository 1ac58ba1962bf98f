/* SPDX-License-Identifier: Apache-2.0 */
/* From a plan to the configuration: the shard map, the groups and their relays. */
#include "deploy/ctl/plan/plan.h"

#include "config/groups.h"
#include "config/network.h"

#include <stdlib.h>
#include <string.h>

/* Adds the machine of a worker to its group: to the addresses if its name is one, else to
 * the list of nodes. */
static void add_node(struct rs_group *group, const char *host, FILE *nodes, bool *ret_named)
{
	struct rs_network network;
	bool exact;

	if (group->addresses_n < RS_NETWORKS_MAX && network_parse(&network, &exact, host)) {
		group->addresses[group->addresses_n++] = network;
		return;
	}
	fprintf(nodes, "%s%s", *ret_named ? "," : "", host);
	*ret_named = true;
}

/* Fills the group of a rack, whose addresses_n is 0. */
static int fill_group(struct rs_group *group, const struct plan_net *net, unsigned rack, struct rs_err *e)
{
	const struct plan_rack *own = &net->rack[rack];
	bool named = false;
	FILE *nodes;
	size_t len;

	snprintf(group->name, sizeof group->name, "rack-%u", rack);
	group->addresses = calloc(RS_NETWORKS_MAX, sizeof *group->addresses);
	nodes = group->addresses ? open_memstream(&group->nodes, &len) : NULL;
	if (!nodes)
		return rs_oom(e, 0, "the group %s", group->name);
	for (unsigned i = 0; i < own->machines_n; i++) {
		const struct plan_machine *machine = &net->machine[net->order[own->first + i]];

		if (machine->workers)
			add_node(group, machine->host, nodes, &named);
	}
	if (fclose(nodes))
		return rs_oom(e, 0, "the group %s", group->name);
	if (!named) {
		free(group->nodes);
		group->nodes = NULL;
	}
	return RS_OK;
}

/* Makes a group of each rack, unless the file has groups. */
static int make_groups(const struct plan *p, struct rs_config *cfg, struct rs_err *e)
{
	int rc = RS_OK;

	if (cfg->groups_n)
		return RS_OK;
	cfg->groups = calloc(p->net.racks_n, sizeof *cfg->groups);
	if (!cfg->groups)
		return rs_oom(e, p->net.racks_n * sizeof *cfg->groups, "the groups");
	for (; rc == RS_OK && cfg->groups_n < p->net.racks_n; cfg->groups_n++)
		rc = fill_group(&cfg->groups[cfg->groups_n], &p->net, cfg->groups_n, e);
	return rc;
}

/* Gives cfg the relays of the plan; without relays its groups have none. */
static int apply_relays(const struct plan *p, struct rs_config *cfg, struct rs_err *e)
{
	size_t n = (size_t)cfg->groups_n * p->shards;
	uint16_t *relays = calloc(n, sizeof *relays);

	if (!relays)
		return rs_oom(e, n * sizeof *relays, "the relays");
	for (size_t i = 0; i < n; i++)
		relays[i] = p->relay ? p->relay[i] : RS_NO_RELAY;
	free(cfg->relays);
	cfg->relays = relays;
	return RS_OK;
}

int plan_apply(const struct plan *p, struct rs_config *cfg, struct rs_err *e)
{
	uint16_t *owner = calloc(p->shards, sizeof *owner);
	int rc;

	if (!owner)
		return rs_oom(e, p->shards * sizeof *owner, "the shard map");
	memcpy(owner, p->owner, p->shards * sizeof *owner);
	rc = groups_set_map(cfg, owner, p->shards, e);
	if (rc) {
		free(owner);
		return rc;
	}
	if (p->relay)
		rc = make_groups(p, cfg, e);
	if (rc == RS_OK && cfg->groups_n == p->net.racks_n)
		rc = apply_relays(p, cfg, e);
	if (rc == RS_OK)
		rs_config_choose(cfg); /* chunks are smaller with relays */
	return rc;
}
