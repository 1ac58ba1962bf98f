/* SPDX-License-Identifier: Apache-2.0 */
/* reductionctl map: which reducer and lane each shard belongs to, and which reducers
 * relay it for which group. */
#include "config/group.h"
#include "deploy/ctl/ctl.h"

#include <stdio.h>

/* Writes one line for each reducer: number of shards, share of all shards, lanes. */
static void print_shares(const struct rs_config *cfg)
{
	printf("%-20s %-24s %6s %7s %6s\n", "reducer", "address", "shards", "share", "lanes");
	for (unsigned i = 0; i < cfg->reducers_n; i++) {
		unsigned shards = 0;

		for (unsigned s = 0; s < cfg->sharding.shards; s++)
			shards += cfg->sharding.owner[s] == i;
		printf("%-20s %-24s %6u %6.2f%% %6u\n", cfg->reducers[i].id, cfg->reducers[i].address, shards,
		       100.0 * shards / cfg->sharding.shards, cfg->reducers[i].lanes);
	}
}

/* Writes one line for each relay of a group: its shards, and their share of all; for a
 * group without relays one line. */
static void print_relays(const struct rs_config *cfg, unsigned group)
{
	const uint16_t *relays = cfg->relays + (size_t)group * cfg->sharding.shards;
	unsigned n = 0;

	for (unsigned i = 0; i < cfg->reducers_n; i++) {
		unsigned shards = 0;

		for (unsigned s = 0; s < cfg->sharding.shards; s++)
			shards += relays[s] == i;
		n += shards > 0;
		if (shards)
			printf("%-20s %-20s %6u %6.2f%%\n", cfg->groups[group].name, cfg->reducers[i].id, shards,
			       100.0 * shards / cfg->sharding.shards);
	}
	if (!n)
		printf("%-20s %-20s %6u %6.2f%%\n", cfg->groups[group].name, "-", 0, 0.0);
}

/* Writes the relays of all groups, and the group of this machine. */
static void print_groups(const struct rs_config *cfg)
{
	struct rs_err e;
	unsigned own;

	if (!cfg->groups_n)
		return;
	printf("\n%-20s %-20s %6s %7s\n", "group", "relay", "shards", "share");
	for (unsigned g = 0; g < cfg->groups_n; g++)
		print_relays(cfg, g);
	if (rs_group_detect(&own, cfg, NULL, NULL, &e))
		printf("\n%s\n", e.msg);
	else
		printf("\nthis machine is in group %s\n", cfg->groups[own].name);
}

static void print_shard(const struct rs_config *cfg, unsigned shard)
{
	const char *between = "  ";

	printf("%5u  %-20s %4u", shard, cfg->reducers[cfg->sharding.owner[shard]].id, rs_config_lane(cfg, shard));
	for (unsigned g = 0; g < cfg->groups_n; g++) {
		unsigned relay = cfg->relays[(size_t)g * cfg->sharding.shards + shard];

		if (relay == RS_NO_RELAY)
			continue;
		printf("%s%s: %s", between, cfg->groups[g].name, cfg->reducers[relay].id);
		between = ", ";
	}
	putchar('\n');
}

int map_run(const struct call *call, struct rs_err *e)
{
	struct rs_config cfg;
	int rc = load_config(&cfg, call, e);

	if (rc)
		return rc;
	print_shares(&cfg);
	print_groups(&cfg);
	printf("\n%5s  %-20s %4s%s\n", "shard", "reducer", "lane", cfg.groups_n ? "  relays" : "");
	for (unsigned s = 0; s < cfg.sharding.shards; s++)
		print_shard(&cfg, s);
	rs_config_close(&cfg);
	return RS_OK;
}
