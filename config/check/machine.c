/* SPDX-License-Identifier: Apache-2.0 */
#include "config/check/check.h"

#include "common/address.h"
#include "config/value.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Lowers *most to the limit of the control group at a path below /sys/fs/cgroup, if it has a lower one. */
static void lower_to_group(uint64_t *most, const char *group)
{
	char path[PATH_MAX];
	uint64_t limit;
	FILE *f;

	if (snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.max", group) >= (int)sizeof path)
		return;
	f = fopen(path, "re");
	if (!f)
		return;
	if (fscanf(f, "%" SCNu64, &limit) == 1 && limit < *most)
		*most = limit; /* without a limit the file has the word max */
	fclose(f);
}

/* Returns the memory of this machine, or of the control groups that this process is in, if one of them allows less. */
static uint64_t machine_memory(void)
{
	long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
	uint64_t most = pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : UINT64_MAX;
	char group[PATH_MAX] = "";
	FILE *f = fopen("/proc/self/cgroup", "re");

	if (f) {
		if (fscanf(f, "0::%4095s", group) != 1)
			group[0] = '\0';
		fclose(f);
	}
	for (char *slash; (slash = strrchr(group, '/')); *slash = '\0')
		lower_to_group(&most, group);
	lower_to_group(&most, "");
	return most;
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
			    "the name %s cannot be resolved here: %s; a worker waits %.1f s for it (timeouts.resolve)",
			    at.host, gai_strerror(rc), rs_config_resolve_ms(c->cfg) / 1000.0);
	}
	if (rc)
		check_add(c, CHECK_ERROR, "reducers", (int)i, key, &e);
}

void check_names(struct check *c)
{
	const struct rs_config *cfg = c->cfg;

	for (unsigned i = 0; i < cfg->reducers_n; i++)
		check_name(c, i, cfg->job.grpc ? "grpc" : "address", rs_config_address(cfg, &cfg->reducers[i]));
}
