/* SPDX-License-Identifier: Apache-2.0 */
#include "config/cluster_spec.h"
#include "config/schema.h"
#include "config/value.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define BLANKS " \t\r\n"

/* Takes the entry of len bytes at `at` as the address of the next reducer. */
static int list_take(struct cluster_spec *s, const char *variable, const char *at, size_t len, struct rs_err *e)
{
	const struct schema_key *key = schema_find("reducers", "address");
	struct rs_reducer reducer;
	char text[RS_ADDRESS_MAX];

	snprintf(text, sizeof text, "%.*s", (int)(len < sizeof text ? len : sizeof text - 1), at);
	if (len >= sizeof text || !value_parse(key, text, &reducer))
		return rs_fail(
		    e, RS_ECONFIG,
		    "environment variable %s: entry %u: found \"%.60s\", expected host, host:port, [IPv6] or "
		    "[IPv6]:port, with a port from 1 to 65535",
		    variable, s->reducers + 1, text);
	for (unsigned i = 0; i < s->reducers; i++)
		if (strcasecmp(s->address[i], reducer.address) == 0)
			return rs_fail(e, RS_ECONFIG,
				       "environment variable %s: entry %u: found %s, which entry %u is too, expected "
				       "different ones",
				       variable, s->reducers + 1, reducer.address, i + 1);
	memcpy(s->address[s->reducers++], reducer.address, sizeof reducer.address);
	return RS_OK;
}

int cluster_list_read(struct cluster_spec *ret, const char *variable, const char *text, struct rs_err *e)
{
	struct cluster_spec spec = {.role = RS_CLUSTER_WORKER};
	unsigned n = 1;
	int rc = RS_OK;

	for (const char *c = text; *c; c++)
		n += *c == ',';
	if (n > RS_REDUCERS_MAX)
		return rs_fail(e, RS_ECONFIG, "environment variable %s: found %u entries, expected at most %d",
			       variable, n, RS_REDUCERS_MAX);
	spec.address = calloc(n, sizeof *spec.address);
	if (!spec.address)
		return rs_oom(e, n * sizeof *spec.address, "%u reducers", n);
	for (unsigned i = 0; !rc && i < n; i++) {
		const char *end = text + strcspn(text, ","), *last = end;

		text += strspn(text, BLANKS);
		while (last > text && strchr(BLANKS, last[-1]))
			last--;
		rc = list_take(&spec, variable, text, last > text ? (size_t)(last - text) : 0, e);
		text = end + 1;
	}
	if (rc)
		cluster_spec_close(&spec);
	else
		*ret = spec;
	return rc;
}
