/* SPDX-License-Identifier: Apache-2.0 */
/* Names that slots share: which address stands for which of them. Running jobs decide
 * that themselves; here the i-th of the sorted addresses is that of the i-th slot, so
 * that each machine is asked once. */
#include "common/address.h"
#include "deploy/ctl/ctl.h"

#include <netdb.h>
#include <stdio.h>
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

/* Looks a name up. */
static int look_up(struct shared_name *to, const char *name, struct rs_err *e)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *list = NULL;
	struct rs_host_port at;
	int rc = rs_host_port_split(&at, name, false, e);

	if (rc)
		return rc;
	if (!to->sorted)
		to->sorted = calloc(SHARED_MOST, sizeof *to->sorted);
	if (!to->sorted)
		return rs_oom(e, SHARED_MOST * sizeof *to->sorted, "the addresses of %s", name);
	to->rc = getaddrinfo(at.host, at.port, &hints, &list);
	to->n = to->rc ? 0 : print_sorted(to->sorted, list, at.port);
	snprintf(to->name, sizeof to->name, "%s", name);
	if (list)
		freeaddrinfo(list);
	return RS_OK;
}

int shared_address(struct shared_name *last, const struct rs_config *cfg, unsigned reducer, bool grpc,
		   char ret[RS_ADDRESS_MAX], struct rs_err *e)
{
	const char *name = text_of(&cfg->reducers[reducer], grpc);
	unsigned index = index_of(cfg, reducer, grpc);
	int rc = strcasecmp(last->name, name) ? look_up(last, name, e) : RS_OK;

	if (rc)
		return rc;
	if (last->rc)
		return rs_fail(e, RS_EIO, "its name cannot be resolved: %s", gai_strerror(last->rc));
	if (index >= last->n)
		return rs_fail(e, RS_EIO, "its slot is empty: its name has %u address%s, for other slots", last->n,
			       last->n == 1 ? "" : "es");
	memcpy(ret, last->sorted[index], RS_ADDRESS_MAX);
	return RS_OK;
}

void shared_name_close(struct shared_name *last)
{
	free(last->sorted);
	*last = (struct shared_name){.n = 0};
}
