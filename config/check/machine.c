/* SPDX-License-Identifier: Apache-2.0 */
#include "config/check/check.h"

#include "common/address.h"
#include "common/group_limits.h"
#include "config/group.h"
#include "config/value.h"

#include <stdint.h>
#include <unistd.h>

/* Returns the memory of this machine, or of the control groups that this process is in,
 * if one of them allows less. */
static uint64_t machine_memory(void)
{
	long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
	uint64_t most = pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : UINT64_MAX;
	struct rs_group_memory group;

	rs_group_memory_read(&group, "");
	return group.limit < most ? group.limit : most;
}

void check_memory(struct check *c, const char *section, const char *key, uint64_t bytes)
{
	uint64_t most = machine_memory();
	char want[32], have[32];
	struct rs_err e;

	/* the defaults are limits for machines of any size */
	if (c->elsewhere || bytes <= most || !check_has(c, section, key))
		return;
	value_format_bytes(bytes, want, sizeof want);
	value_format_bytes(most >> 20 << 20, have, sizeof have);
	rs_fail(&e, RS_ECONFIG, "found %s, expected at most the %s of memory that this machine or unit has", want,
		have);
	check_add(c, CHECK_WARNING, section, -1, key, &e);
}

void check_group(struct check *c)
{
	const struct rs_config *cfg = c->cfg;
	unsigned group;
	struct rs_err e;

	if (!cfg->groups_n)
		return;
	if (!rs_config_has_relays(cfg)) {
		rs_fail(&e, RS_ECONFIG, "no group has a relay: all chunks go straight to their reducers");
		check_add(c, CHECK_WARNING, "groups", -1, NULL, &e);
	}
	if (!rs_group_detect(&group, cfg, NULL, NULL, &e))
		check_fact(c, "groups: ok: this machine is in group %s", cfg->groups[group].name);
	else if (!c->elsewhere)
		check_add(c, CHECK_ERROR, "groups", -1, NULL, &e);
}

static void check_name(struct check *c, unsigned i, const char *key, const char *address)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *list;
	struct rs_host_port at;
	struct rs_err e;
	int rc = rs_host_port_split(&at, address, false, &e);

	if (!rc) {
		rc = getaddrinfo(at.host, at.port, &hints, &list);
		if (!rc)
			freeaddrinfo(list);
		else
			rs_fail(
			    &e, RS_EIO,
			    rs_config_has_slots(c->cfg)
				? "the name %s cannot be resolved here: %s; its slot may be empty (job.min_reducers)"
				: "the name %s cannot be resolved here: %s; a worker waits %.1f s for it "
				  "(timeouts.resolve)",
			    at.host, gai_strerror(rc), rs_config_resolve_ms(c->cfg) / 1000.0);
	}
	if (rc)
		check_add(c, rs_config_has_slots(c->cfg) ? CHECK_NOTE : CHECK_ERROR, "reducers", (int)i, key, &e);
}

void check_names(struct check *c)
{
	const struct rs_config *cfg = c->cfg;

	for (unsigned i = 0; i < cfg->reducers_n; i++)
		if (cfg->reducers[i].address[0])
			check_name(c, i, cfg->job.grpc ? "grpc" : "address", rs_config_address(cfg, &cfg->reducers[i]));
}
