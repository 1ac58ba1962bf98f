/* SPDX-License-Identifier: Apache-2.0 */
#include "config/groups.h"

#include "config/network.h"
#include "config/nodelist.h"
#include "config/shardmap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_MAX_LEN = 64, NO_GROUP = RS_GROUPS_MAX };

/* The section while it is read. */
struct reading {
	struct rs_config *cfg;
	const struct ydoc *doc;
	struct rs_err *e;
	struct nodelist nodes[RS_GROUPS_MAX]; /* owned; empty for groups without nodes, and not read yet */
	unsigned nodes_n;                     /* of all groups so far */
	unsigned relays_for[RS_REDUCERS_MAX]; /* the group for which a reducer relays; NO_GROUP: none */
};

/* Writes the path of a key for messages: "groups[2].relays". Returns buf. */
static const char *group_path(unsigned group, const char *key, char buf[static PATH_MAX_LEN])
{
	snprintf(buf, PATH_MAX_LEN, "groups[%u].%s", group, key);
	return buf;
}

/* Checks what the section needs from others. */
static int check_others(const struct reading *r, const struct ydoc_node *list)
{
	const struct rs_config *cfg = r->cfg;
	const struct ydoc_node *root = r->doc->root;

	if (cfg->reducers_n < 2)
		return ydoc_fail(
		    r->doc, list, "groups", r->e,
		    "found groups and one reducer, expected several reducers: those that relay, and others");
	if (!cfg->job.retain)
		return ydoc_fail(r->doc, ydoc_value(ydoc_value(root, "job"), "failover"), "job.failover", r->e,
				 "found fail, expected retain with groups: jobs survive the loss of a relay");
	if (cfg->sharding.rebalance == RS_REBALANCE_ON)
		return ydoc_fail(
		    r->doc, ydoc_value(ydoc_value(root, "sharding"), "rebalance"), "sharding.rebalance", r->e,
		    "found on, expected off or log with groups: relays are chosen for the shares of the file");
	return RS_OK;
}

static int check_name(const struct reading *r, unsigned group, const struct ydoc_node *name)
{
	char path[PATH_MAX_LEN];

	for (unsigned i = 0; i < group; i++)
		if (strcmp(r->cfg->groups[i].name, r->cfg->groups[group].name) == 0)
			return ydoc_fail(r->doc, name, group_path(group, "name", path), r->e,
					 "found %s, which groups[%u] has too, expected different ones",
					 r->cfg->groups[i].name, i);
	return RS_OK;
}

/* Checks that no node is in an earlier group too. */
static int check_nodes(const struct reading *r, unsigned group, const struct ydoc_node *text, const char *path)
{
	const struct nodelist *own = &r->nodes[group];

	if (r->nodes_n > RS_WORLD_MAX)
		return ydoc_fail(r->doc, text, path, r->e,
				 "found %u nodes, %u with those of the groups before, expected at most %d", own->n,
				 r->nodes_n, RS_WORLD_MAX);
	for (unsigned i = 0; i < own->n; i++)
		for (unsigned g = 0; g < group; g++)
			if (nodelist_find(&r->nodes[g], own->name[i]) >= 0)
				return ydoc_fail(r->doc, text, path, r->e,
						 "found node %s, which groups[%u] has too, expected each node in one "
						 "group",
						 own->name[i], g);
	return RS_OK;
}

static int read_nodes(struct reading *r, unsigned group, const struct ydoc_node *text)
{
	char path[PATH_MAX_LEN];
	struct rs_err e;
	int rc;

	if (!text)
		return RS_OK;
	group_path(group, "nodes", path);
	rc = nodelist_read(&r->nodes[group], NULL, text->text, &e);
	if (rc == RS_ECONFIG)
		return ydoc_fail(r->doc, text, path, r->e, "%s", e.msg);
	if (!rc)
		r->cfg->groups[group].nodes = strdup(text->text);
	if (rc || !r->cfg->groups[group].nodes)
		return rs_oom(r->e, 0, "%s", path);
	r->nodes_n += r->nodes[group].n;
	return check_nodes(r, group, text, path);
}

static int read_network(const struct reading *r, unsigned group, const struct ydoc_node *item, const char *path,
			struct rs_network *ret)
{
	char found[80], text[NETWORK_TEXT], other[NETWORK_TEXT];
	bool exact;

	ydoc_describe(item, found, sizeof found);
	if (item->kind != YDOC_TEXT || item->nothing || !network_parse(ret, &exact, item->text))
		return ydoc_fail(r->doc, item, path, r->e, "found %s, expected a network as 10.1.0.0/16 or fd00:1::/32",
				 found);
	network_format(ret, text);
	if (!exact)
		return ydoc_fail(r->doc, item, path, r->e, "found %s, expected %s, the network of these first bits",
				 found, text);
	for (unsigned g = 0; g < group; g++)
		for (unsigned i = 0; i < r->cfg->groups[g].addresses_n; i++)
			if (network_overlaps(ret, &r->cfg->groups[g].addresses[i])) {
				network_format(&r->cfg->groups[g].addresses[i], other);
				return ydoc_fail(r->doc, item, path, r->e,
						 "found %s, which has addresses of %s of groups[%u] too, expected each "
						 "address in one group",
						 text, other, g);
			}
	return RS_OK;
}

static int read_addresses(struct reading *r, unsigned group, const struct ydoc_node *list)
{
	struct rs_group *own = &r->cfg->groups[group];
	char path[PATH_MAX_LEN];
	unsigned n = 0;

	if (!list)
		return RS_OK;
	group_path(group, "addresses", path);
	for (const struct ydoc_node *item = list->child; item; item = item->next)
		n++;
	if (n == 0 || n > RS_NETWORKS_MAX)
		return ydoc_fail(r->doc, list, path, r->e, "found a list of %u, expected a list of 1 to %d networks", n,
				 RS_NETWORKS_MAX);
	own->addresses = calloc(n, sizeof *own->addresses);
	if (!own->addresses)
		return rs_oom(r->e, n * sizeof *own->addresses, "%s", path);
	for (const struct ydoc_node *item = list->child; item; item = item->next) {
		int rc = read_network(r, group, item, path, &own->addresses[own->addresses_n]);

		if (rc)
			return rc;
		own->addresses_n++;
	}
	return RS_OK;
}

/* Notes that a reducer relays for a group. */
static int take_relay(struct reading *r, unsigned group, uint16_t reducer, const struct ydoc_node *at, const char *path)
{
	if (r->relays_for[reducer] != NO_GROUP && r->relays_for[reducer] != group)
		return ydoc_fail(r->doc, at, path, r->e,
				 "found %s, which relays for groups[%u] too, expected a reducer that relays for one "
				 "group",
				 r->cfg->reducers[reducer].id, r->relays_for[reducer]);
	r->relays_for[reducer] = group;
	return RS_OK;
}

/* Chooses relays from n of the reducers: in the order of shards each in turn, except for
 * shards of one of them. */
static void deal_relays(const struct rs_config *cfg, const uint16_t *list, unsigned n, uint16_t *ret)
{
	bool own[RS_REDUCERS_MAX] = {false};
	unsigned next = 0;

	for (unsigned i = 0; i < n; i++)
		own[list[i]] = true;
	for (unsigned s = 0; s < cfg->sharding.shards; s++)
		ret[s] = own[cfg->sharding.owner[s]] ? RS_NO_RELAY : list[next++ % n];
}

static int read_relay_list(struct reading *r, unsigned group, const struct ydoc_node *list, const char *path,
			   uint16_t *ret)
{
	uint16_t relays[RS_REDUCERS_MAX];
	unsigned n = 0;

	for (const struct ydoc_node *item = list->child; item; item = item->next) {
		uint16_t reducer;
		int rc = shardmap_reducer(&reducer, r->cfg, r->doc, item, path, r->e);

		if (!rc && r->relays_for[reducer] == group)
			return ydoc_fail(r->doc, item, path, r->e, "found %s a second time, expected once", item->text);
		if (!rc)
			rc = take_relay(r, group, reducer, item, path);
		if (rc)
			return rc;
		relays[n++] = reducer;
	}
	if (n == 0)
		return ydoc_fail(r->doc, list, path, r->e, "found a list of 0, expected a list of reducers");
	deal_relays(r->cfg, relays, n, ret);
	return RS_OK;
}

static int read_relay_map(struct reading *r, unsigned group, const struct ydoc_node *map, const char *path,
			  uint16_t *ret)
{
	int rc = shardmap_read_relays(ret, r->cfg, r->doc, map, path, r->e);

	for (const struct ydoc_node *key = map->child; key && !rc; key = key->next->next) {
		uint16_t reducer;

		rc = shardmap_reducer(&reducer, r->cfg, r->doc, key->next, path, r->e);
		if (!rc)
			rc = take_relay(r, group, reducer, key->next, path);
	}
	for (unsigned s = 0; !rc && s < r->cfg->sharding.shards; s++)
		if (ret[s] == r->cfg->sharding.owner[s])
			ret[s] = RS_NO_RELAY;
	return rc;
}

static int read_relays(struct reading *r, unsigned group, const struct ydoc_node *relays)
{
	uint16_t *ret = r->cfg->relays + (size_t)group * r->cfg->sharding.shards;
	char path[PATH_MAX_LEN];

	group_path(group, "relays", path);
	if (relays && relays->kind == YDOC_LIST)
		return read_relay_list(r, group, relays, path, ret);
	if (relays)
		return read_relay_map(r, group, relays, path, ret);
	for (unsigned s = 0; s < r->cfg->sharding.shards; s++)
		ret[s] = RS_NO_RELAY;
	return RS_OK;
}

static int read_group(struct reading *r, unsigned group, const struct ydoc_node *item)
{
	int rc = check_name(r, group, ydoc_value(item, "name"));

	if (!rc)
		rc = read_nodes(r, group, ydoc_value(item, "nodes"));
	if (!rc)
		rc = read_addresses(r, group, ydoc_value(item, "addresses"));
	return rc ? rc : read_relays(r, group, ydoc_value(item, "relays"));
}

int groups_read(struct rs_config *cfg, const struct ydoc *doc, struct rs_err *e)
{
	const struct ydoc_node *list = ydoc_value(doc->root, "groups"), *item = list ? list->child : NULL;
	struct reading r = {.cfg = cfg, .doc = doc, .e = e};
	size_t n = (size_t)cfg->groups_n * cfg->sharding.shards;
	int rc;

	if (!cfg->groups_n)
		return RS_OK;
	rc = check_others(&r, list);
	if (rc)
		return rc;
	cfg->relays = malloc(n * sizeof *cfg->relays);
	if (!cfg->relays)
		return rs_oom(e, n * sizeof *cfg->relays, "the relays of %u groups", cfg->groups_n);
	for (unsigned i = 0; i < RS_REDUCERS_MAX; i++)
		r.relays_for[i] = NO_GROUP;
	for (unsigned i = 0; item && !rc; i++, item = item->next)
		rc = read_group(&r, i, item);
	for (unsigned i = 0; i < cfg->groups_n; i++)
		nodelist_close(&r.nodes[i]);
	return rc;
}

/* Fills in the reducers among the relays of so many shards, in the order of their first
 * shards. Returns their number. */
static unsigned list_relays(const uint16_t *relays, unsigned shards, uint16_t ret[static RS_REDUCERS_MAX])
{
	bool listed[RS_REDUCERS_MAX] = {false};
	unsigned n = 0;

	for (unsigned s = 0; s < shards; s++) {
		if (relays[s] == RS_NO_RELAY || listed[relays[s]])
			continue;
		listed[relays[s]] = true;
		ret[n++] = relays[s];
	}
	return n;
}

/* Deals the relays of a group over the reducers that were its relays. */
static void deal_again(const struct rs_config *cfg, const uint16_t *old, unsigned old_n, uint16_t *ret)
{
	uint16_t list[RS_REDUCERS_MAX];
	unsigned n = list_relays(old, old_n, list);

	if (n)
		deal_relays(cfg, list, n, ret);
	for (unsigned s = 0; !n && s < cfg->sharding.shards; s++)
		ret[s] = RS_NO_RELAY;
}

unsigned groups_relay_list(const struct rs_config *cfg, unsigned group, uint16_t ret[static RS_REDUCERS_MAX])
{
	const uint16_t *relays = cfg->relays + (size_t)group * cfg->sharding.shards;
	unsigned n = list_relays(relays, cfg->sharding.shards, ret);
	uint16_t dealt[RS_SHARDS_MAX];

	if (n)
		deal_relays(cfg, ret, n, dealt);
	return n && memcmp(dealt, relays, cfg->sharding.shards * sizeof *dealt) == 0 ? n : 0;
}

int groups_set_map(struct rs_config *cfg, uint16_t *owner, unsigned shards, struct rs_err *e)
{
	size_t n = (size_t)cfg->groups_n * shards;
	uint16_t *relays = n ? malloc(n * sizeof *relays) : NULL, *old = cfg->relays;
	unsigned old_n = cfg->sharding.shards;

	if (n && !relays)
		return rs_oom(e, n * sizeof *relays, "the relays of %u groups", cfg->groups_n);
	free(cfg->sharding.owner);
	cfg->sharding.owner = owner;
	cfg->sharding.shards = shards;
	for (unsigned g = 0; g < cfg->groups_n; g++)
		deal_again(cfg, old + (size_t)g * old_n, old_n, relays + (size_t)g * shards);
	cfg->relays = relays;
	free(old);
	return RS_OK;
}

void groups_close(struct rs_config *cfg)
{
	for (unsigned i = 0; i < cfg->groups_n; i++) {
		free(cfg->groups[i].nodes);
		free(cfg->groups[i].addresses);
	}
	free(cfg->groups);
	free(cfg->relays);
	cfg->groups = NULL;
	cfg->groups_n = 0;
	cfg->relays = NULL;
}
