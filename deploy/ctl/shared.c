/* SPDX-License-Identifier: Apache-2.0 */
/* Names that slots share: which address stands for which of them. Running jobs decide
 * that themselves; here the i-th of the sorted addresses is that of the i-th slot, so
 * that each machine is asked once. */
#include "common/address.h"
#include "deploy/ctl/ctl.h"

#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { SHARED_MOST = 1024 /* addresses of a name */ };

/* Returns the text that names the reducer. */
static const char *text_of(const struct rs_reducer *r, bool grpc)
{
	return grpc ? r->grpc : r->address;
}

/* Returns the index of the reducer among those that share its name. */
static unsigned index_of(const struct rs_config *cfg, unsigned reducer, bool grpc)
{
	const char *name = text_of(&cfg->reducers[reducer], grpc);
	unsigned n = 0;

	for (unsigned i = 0; i < reducer; i++)
		n += cfg->reducers[i].shared && strcasecmp(text_of(&cfg->reducers[i], grpc), name) == 0;
	return n;
}

static int compare(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* Writes the addresses of a list, sorted and without duplicates; returns how many there
 * are. */
static unsigned print_sorted(char (*to)[RS_ADDRESS_MAX], const struct addrinfo *list, const char *port)
{
	unsigned n = 0, kept = 0;
	char host[128];

	for (const struct addrinfo *i = list; i && n < SHARED_MOST; i = i->ai_next)
		if (getnameinfo(i->ai_addr, i->ai_addrlen, host, sizeof host, NULL, 0, NI_NUMERICHOST) == 0)
			snprintf(to[n++], RS_ADDRESS_MAX, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
	qsort(to, n, sizeof *to, compare);
	for (unsigned i = 0; i < n; i++)
		if (!kept || strcmp(to[i], to[kept - 1]) != 0)
			memmove(to[kept++], to[i], sizeof *to);
	return kept;
}

int shared_address(const struct rs_config *cfg, unsigned reducer, bool grpc, char ret[RS_ADDRESS_MAX], struct rs_err *e)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *list = NULL;
	const char *name = text_of(&cfg->reducers[reducer], grpc);
	unsigned index = index_of(cfg, reducer, grpc), n;
	char(*sorted)[RS_ADDRESS_MAX];
	struct rs_host_port to;
	int rc = rs_host_port_split(&to, name, false, e);

	if (rc)
		return rc;
	sorted = calloc(SHARED_MOST, sizeof *sorted);
	if (!sorted)
		return rs_oom(e, SHARED_MOST * sizeof *sorted, "the addresses of %s", name);
	rc = getaddrinfo(to.host, to.port, &hints, &list);
	n = rc ? 0 : print_sorted(sorted, list, to.port);
	if (rc)
		rs_fail(e, RS_EIO, "its name cannot be resolved: %s", gai_strerror(rc));
	else if (index >= n)
		rc = rs_fail(e, RS_EIO, "its slot is empty: its name has %u address%s, for other slots", n,
			     n == 1 ? "" : "es");
	else
		memcpy(ret, sorted[index], RS_ADDRESS_MAX);
	if (list)
		freeaddrinfo(list);
	free(sorted);
	return rc ? e->code : RS_OK;
}
