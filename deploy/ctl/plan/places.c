/* SPDX-License-Identifier: Apache-2.0 */
#include "deploy/ctl/plan/places.h"

#include "config/network.h"

#include <string.h>

unsigned plan_racks(const struct rs_config *cfg)
{
	return cfg->groups_n && cfg->plan.uplink ? cfg->groups_n : cfg->plan.racks;
}

int plan_places_init(struct plan_places *ret, const struct rs_config *cfg, struct rs_err *e)
{
	bool all = true;

	*ret = (struct plan_places){.cfg = cfg};
	if (cfg->groups_n == 0 || cfg->plan.uplink == 0)
		return RS_OK;
	if (cfg->plan.racks != 1 && cfg->plan.racks != cfg->groups_n)
		return rs_fail(e, RS_ECONFIG, "plan.racks: found %u, expected %u, the number of groups",
			       cfg->plan.racks, cfg->groups_n);
	for (; ret->groups_n < cfg->groups_n; ret->groups_n++) {
		const char *nodes = cfg->groups[ret->groups_n].nodes;
		int rc;

		if (!nodes) {
			all = false;
			continue;
		}
		rc = nodelist_read(&ret->nodes[ret->groups_n], NULL, nodes, e);
		if (rc) {
			plan_places_close(ret);
			return rc;
		}
		ret->nodes_n += ret->nodes[ret->groups_n].n;
	}
	if (!all)
		ret->nodes_n = 0;
	return RS_OK;
}

void plan_places_close(struct plan_places *p)
{
	for (unsigned g = 0; g < p->groups_n; g++)
		nodelist_close(&p->nodes[g]);
	p->groups_n = p->nodes_n = 0;
}

const char *plan_places_node(const struct plan_places *p, unsigned i)
{
	unsigned g = 0;

	for (; i >= p->nodes[g].n; g++)
		i -= p->nodes[g].n;
	return p->nodes[g].name[i];
}

static bool has_address(const struct rs_group *group, const struct rs_network *address)
{
	for (unsigned i = 0; i < group->addresses_n; i++)
		if (network_contains(&group->addresses[i], address->ip))
			return true;
	return false;
}

unsigned plan_places_of_host(const struct plan_places *p, const char *host)
{
	char first[RS_HOST_MAX];
	struct rs_network address;
	bool exact, is_address = network_parse(&address, &exact, host);

	snprintf(first, sizeof first, "%.*s", (int)strcspn(host, "."), host);
	for (unsigned g = 0; g < p->groups_n; g++) {
		if (is_address ? has_address(&p->cfg->groups[g], &address)
			       : nodelist_find(&p->nodes[g], host) >= 0 || nodelist_find(&p->nodes[g], first) >= 0)
			return g;
	}
	return PLACES_NONE;
}

unsigned plan_places_of_reducer(const struct plan_places *p, unsigned reducer)
{
	unsigned shards = p->cfg->sharding.shards;

	for (unsigned g = 0; g < p->groups_n; g++)
		for (unsigned s = 0; s < shards; s++)
			if (p->cfg->relays[(size_t)g * shards + s] == reducer)
				return g;
	return plan_places_of_host(p, p->cfg->reducers[reducer].host);
}
