/* SPDX-License-Identifier: Apache-2.0 */
#include "config/job.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

const struct rs_access *rs_config_may_join(const struct rs_access *rules, unsigned n, const char *names,
					   const char *job)
{
	char name[RS_GLOB_MAX], base[RS_NAME_MAX];

	rs_job_base(base, job);
	while (*names) {
		size_t len = strcspn(names, ",");

		if (len < sizeof name) {
			memcpy(name, names, len);
			name[len] = '\0';
			for (unsigned i = 0; i < n; i++)
				if (fnmatch(rules[i].certificate, name, FNM_NOESCAPE | FNM_CASEFOLD) == 0 &&
				    fnmatch(rules[i].jobs, base, FNM_NOESCAPE) == 0)
					return &rules[i];
		}
		names += len + (names[len] == ',');
	}
	return NULL;
}

void rs_config_tls_name(const struct rs_reducer *r, char ret[RS_HOST_MAX])
{
	const char *host = r->address;
	size_t n = host[0] ? (size_t)(strrchr(host, ':') - host) : 0;

	if (r->tls_name[0]) {
		snprintf(ret, RS_HOST_MAX, "%s", r->tls_name);
		return;
	}
	if (host[0] == '[') { /* an IPv6 address, perhaps with a zone, which a certificate does not contain */
		host++;
		n = strcspn(host, "%]");
	}
	snprintf(ret, RS_HOST_MAX, "%.*s", (int)n, host);
}
