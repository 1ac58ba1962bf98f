/* SPDX-License-Identifier: Apache-2.0 */
#include "config/slots.h"

#include "common/address.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Returns the index of the first reducer with the same address. */
static unsigned find_same_address(const struct rs_config *cfg, unsigned index)
{
	unsigned i = 0;

	while (i < index && strcasecmp(cfg->reducers[i].address, cfg->reducers[index].address) != 0)
		i++;
	return i;
}

/* Checks an address that an earlier reducer has too: a name may have several machines, of
 * which each fills one of the slots of a job that may start without them. */
static int check_shared(struct rs_config *cfg, const struct ydoc *doc, const struct ydoc_node *item, unsigned index,
			struct rs_err *e)
{
	unsigned other = find_same_address(cfg, index);
	struct rs_endpoint numeric;
	char path[32];

	cfg->reducers[index].shared = cfg->reducers[other].shared = true;
	if (rs_config_has_slots(cfg) && !rs_endpoint_of_text(&numeric, cfg->reducers[index].address))
		return RS_OK;
	snprintf(path, sizeof path, "reducers[%u]", index);
	return ydoc_fail(doc, ydoc_value(item, "address"), path, e,
			 "found address %s, which reducers[%u] has too, expected different ones, or a name of "
			 "several machines and job.min_reducers below the number of reducers",
			 cfg->reducers[index].address, other);
}

/* Only slots of a job that may start without them need no address, or share one. */
int slots_check(struct rs_config *cfg, const struct ydoc *doc, struct rs_err *e)
{
	const struct ydoc_node *list = ydoc_value(doc->root, "reducers"), *item = list ? list->child : NULL;
	char path[32];

	for (unsigned i = 0; item && i < cfg->reducers_n; i++, item = item->next) {
		if (cfg->reducers[i].address[0]) {
			if (find_same_address(cfg, i) < i && check_shared(cfg, doc, item, i, e))
				return RS_ECONFIG;
			continue;
		}
		if (rs_config_has_slots(cfg))
			continue;
		snprintf(path, sizeof path, "reducers[%u]", i);
		return ydoc_fail(doc, item, path, e, "found no address, expected one");
	}
	return RS_OK;
}

bool rs_config_has_slots(const struct rs_config *cfg)
{
	return cfg->job.retain && cfg->job.min_reducers && cfg->job.min_reducers < cfg->reducers_n;
}

const char *rs_config_lasting_name(const struct rs_config *cfg, const struct rs_reducer *reducer)
{
	return rs_config_has_slots(cfg) ? reducer->id : reducer->address;
}

bool rs_config_take_addresses(struct rs_reducer *reducer, const struct rs_config *fresh)
{
	for (unsigned i = 0; i < fresh->reducers_n; i++) {
		const struct rs_reducer *f = &fresh->reducers[i];

		if (strcmp(f->id, reducer->id) != 0)
			continue;
		if (f->shared)
			return false;
		if (!strcmp(f->address, reducer->address) && !strcmp(f->grpc, reducer->grpc) &&
		    !strcmp(f->tls_name, reducer->tls_name))
			return false;
		memcpy(reducer->address, f->address, sizeof reducer->address);
		memcpy(reducer->grpc, f->grpc, sizeof reducer->grpc);
		memcpy(reducer->tls_name, f->tls_name, sizeof reducer->tls_name);
		return true;
	}
	return false;
}
