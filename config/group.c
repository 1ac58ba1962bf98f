/* SPDX-License-Identifier: Apache-2.0 */
#include "config/group.h"

#include "config/network.h"
#include "config/nodelist.h"

#include <errno.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	TEXT_MAX = 112, /* bytes of a list of names in a sentence, terminator included */
	WHY_MAX = 80,   /* the same of what is in a group */
};

/* A search. Invariant: `found` is groups_n while no group is found. */
struct finding {
	const struct rs_config *cfg;
	const struct rs_group_place *place;
	struct rs_err *e;
	unsigned found;
	char why[WHY_MAX]; /* what is in the found group */
};

/* Adds a name to a list, or "..." if it has no room. */
static void list_add(char text[static TEXT_MAX], const char *name)
{
	size_t len = strlen(text), more = strlen(name) + 2;

	if (len + more + sizeof ", ..." <= TEXT_MAX)
		snprintf(text + len, TEXT_MAX - len, "%s%s", len ? ", " : "", name);
	else if (len < 3 || strcmp(text + len - 3, "...") != 0)
		snprintf(text + len, TEXT_MAX - len, ", ...");
}

static void list_groups(const struct rs_config *cfg, char text[static TEXT_MAX])
{
	text[0] = '\0';
	for (unsigned g = 0; g < cfg->groups_n; g++)
		list_add(text, cfg->groups[g].name);
}

/* Writes an address without a port. */
static void address_text(const struct rs_endpoint *address, char ret[static NETWORK_TEXT])
{
	struct rs_network all = {.bits = 128};

	memcpy(all.ip, address->ip, sizeof all.ip);
	network_format(&all, ret);
	ret[strcspn(ret, "/")] = '\0';
}

/* Lists the addresses that other machines can have in their files: no loopback, no
 * link-local ones. */
static void list_addresses(const struct rs_group_place *place, char text[static TEXT_MAX])
{
	text[0] = '\0';
	for (unsigned i = 0; i < place->addresses_n; i++) {
		const struct rs_endpoint *a = &place->addresses[i];
		char address[NETWORK_TEXT];

		if (rs_endpoint_is_loopback(a) || (a->ip[0] == 0xfe && (a->ip[1] & 0xc0) == 0x80))
			continue;
		address_text(a, address);
		list_add(text, address);
	}
	if (!text[0])
		snprintf(text, TEXT_MAX, "none");
}

/* Takes a group of which something of this machine is a part. */
static int take(struct finding *f, unsigned group, const char *why)
{
	const struct rs_group *groups = f->cfg->groups;

	if (f->found != f->cfg->groups_n && f->found != group)
		return rs_fail(f->e, RS_ECONFIG,
			       "machine %.80s is in two groups, %s (%s) and %s (%s), expected one: set REDUCTION_GROUP "
			       "to the name of its group",
			       f->place->host, groups[f->found].name, f->why, groups[group].name, why);
	f->found = group;
	snprintf(f->why, sizeof f->why, "%s", why);
	return RS_OK;
}

static int find_variable(struct finding *f)
{
	const char *name = f->place->variable;
	char known[TEXT_MAX];

	if (!name)
		return RS_OK;
	for (unsigned g = 0; g < f->cfg->groups_n; g++)
		if (strcmp(f->cfg->groups[g].name, name) == 0)
			return take(f, g, "REDUCTION_GROUP");
	list_groups(f->cfg, known);
	return rs_fail(f->e, RS_ECONFIG, "REDUCTION_GROUP: found \"%.60s\", expected the name of a group, one of %s",
		       name, known);
}

static int find_nodes(struct finding *f)
{
	const char *host = f->place->host;
	char first[RS_HOST_MAX], why[WHY_MAX];

	snprintf(first, sizeof first, "%.*s", (int)strcspn(host, "."), host);
	for (unsigned g = 0; g < f->cfg->groups_n; g++) {
		const char *name;
		struct nodelist list;
		int rc;

		if (!f->cfg->groups[g].nodes)
			continue;
		rc = nodelist_read(&list, NULL, f->cfg->groups[g].nodes, f->e);
		if (rc)
			return rc;
		name = nodelist_find(&list, host) >= 0 ? host : nodelist_find(&list, first) >= 0 ? first : NULL;
		nodelist_close(&list);
		snprintf(why, sizeof why, "nodes has %.60s", name ? name : "");
		if (name && take(f, g, why))
			return RS_ECONFIG;
	}
	return RS_OK;
}

static int find_addresses(struct finding *f)
{
	for (unsigned a = 0; a < f->place->addresses_n; a++)
		for (unsigned g = 0; g < f->cfg->groups_n; g++) {
			const struct rs_group *group = &f->cfg->groups[g];
			char text[NETWORK_TEXT];
			unsigned n = 0;

			while (n < group->addresses_n &&
			       !network_contains(&group->addresses[n], f->place->addresses[a].ip))
				n++;
			if (n == group->addresses_n)
				continue;
			address_text(&f->place->addresses[a], text);
			if (take(f, g, text))
				return RS_ECONFIG;
		}
	return RS_OK;
}

/* "core.rack-a.gpu-a0": the nearest switch above the machine that has the name of a
 * group. */
static int find_topology(struct finding *f)
{
	const char *text = f->place->topology, *end = text ? strrchr(text, '.') : NULL, *from;

	for (; end; end = from > text ? from - 1 : NULL) {
		for (from = end; from > text && from[-1] != '.'; from--)
			;
		for (unsigned g = 0; g < f->cfg->groups_n; g++) {
			const char *name = f->cfg->groups[g].name;

			if (strlen(name) == (size_t)(end - from) && memcmp(name, from, (size_t)(end - from)) == 0)
				return take(f, g, "SLURM_TOPOLOGY_ADDR");
		}
	}
	return RS_OK;
}

/* Reports that no rule has found a group. */
static int fail_none(const struct finding *f)
{
	const char *topology = f->place->topology;
	char known[TEXT_MAX], addresses[TEXT_MAX];

	list_groups(f->cfg, known);
	list_addresses(f->place, addresses);
	return rs_fail(f->e, RS_ECONFIG,
		       "machine %.64s (addresses %s%s%.48s) is in no group, expected one of %s: add it to nodes or "
		       "addresses of its group, or set REDUCTION_GROUP",
		       f->place->host, addresses, topology ? "; SLURM_TOPOLOGY_ADDR " : "", topology ? topology : "",
		       known);
}

int rs_group_find(unsigned *ret, const struct rs_config *cfg, const struct rs_group_place *place, struct rs_err *e)
{
	static int (*const rules[])(struct finding * f) = {find_variable, find_nodes, find_addresses, find_topology};
	struct finding f = {.cfg = cfg, .place = place, .e = e, .found = cfg->groups_n};

	if (cfg->groups_n == 0) {
		*ret = 0;
		return RS_OK;
	}
	for (unsigned i = 0; i < sizeof rules / sizeof rules[0] && f.found == cfg->groups_n; i++) {
		int rc = rules[i](&f);

		if (rc)
			return rc;
	}
	if (f.found == cfg->groups_n)
		return fail_none(&f);
	*ret = f.found;
	return RS_OK;
}

int rs_group_detect(unsigned *ret, const struct rs_config *cfg, rs_getenv_fn get, void *ctx, struct rs_err *e)
{
	struct rs_group_place place = {.variable = rs_launch_look_up(get, ctx, "REDUCTION_GROUP"),
				       .topology = rs_launch_look_up(get, ctx, "SLURM_TOPOLOGY_ADDR")};
	struct rs_endpoint addresses[RS_GROUP_ADDRESSES_MAX];
	char host[RS_HOST_MAX] = "";
	struct ifaddrs *all;

	if (cfg->groups_n == 0) {
		*ret = 0;
		return RS_OK;
	}
	if (gethostname(host, sizeof host - 1))
		return rs_fail_sys(e, RS_EIO, errno, "cannot read the host name");
	if (getifaddrs(&all))
		return rs_fail_sys(e, RS_EIO, errno, "cannot list the addresses of this machine");
	for (const struct ifaddrs *a = all; a && place.addresses_n < RS_GROUP_ADDRESSES_MAX; a = a->ifa_next)
		if (a->ifa_addr)
			place.addresses_n += rs_endpoint_of_sockaddr(&addresses[place.addresses_n], a->ifa_addr);
	freeifaddrs(all);
	place.host = host;
	place.addresses = addresses;
	return rs_group_find(ret, cfg, &place, e);
}
