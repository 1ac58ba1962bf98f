/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/worker/engine/address.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int engine_address_init(struct engine_address *a, const char *text, struct rs_err *e)
{
	*a = (struct engine_address){.lookup = NULL};
	return engine_address_set(a, text, e);
}

int engine_address_set(struct engine_address *a, const char *text, struct rs_err *e)
{
	if (a->text[0] && strcmp(a->text, text) == 0)
		return RS_OK;
	a->unknown_since_ms = 0;
	a->tries = 0;
	snprintf(a->text, sizeof a->text, "%s", text);
	return text[0] ? rs_host_port_split(&a->to, text, false, e) : RS_OK;
}

void engine_address_close(struct engine_address *a)
{
	if (a->lookup)
		lookup_abandon(a->lookup);
	a->lookup = NULL;
}

bool engine_address_busy(const struct engine_address *a)
{
	return a->lookup != NULL;
}

/* Checks that the address says on which network card it is, if it is one that each card
 * has. */
static enum engine_address_step engine_address_check_card(const struct engine_address *a, struct rs_err *e)
{
	const struct sockaddr_in6 *at = (const struct sockaddr_in6 *)&a->at;

	if (at->sin6_family != AF_INET6 || !IN6_IS_ADDR_LINKLOCAL(&at->sin6_addr) || at->sin6_scope_id)
		return ENGINE_ADDRESS_FOUND;
	rs_fail(e, RS_EREFUSED, "its address %s is link-local: add the network card of this machine, as in %s%%eth0",
		a->to.host, a->to.host);
	return ENGINE_ADDRESS_FAILED;
}

/* Chooses one address of the list, and frees the list. */
static enum engine_address_step engine_address_choose(struct engine_address *a, struct addrinfo *list, struct rs_err *e)
{
	const struct addrinfo *chosen = list;
	unsigned n = 0;

	for (const struct addrinfo *i = list; i; i = i->ai_next)
		n++;
	for (unsigned skip = a->tries++ % n; skip > 0; skip--)
		chosen = chosen->ai_next;
	memcpy(&a->at, chosen->ai_addr, chosen->ai_addrlen);
	a->at_len = chosen->ai_addrlen;
	freeaddrinfo(list);
	return engine_address_check_card(a, e);
}

enum engine_address_step engine_address_begin(struct engine_address *a, struct wakeup *wake, _Atomic bool *ended,
					      struct rs_err *e)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
	struct addrinfo *list;

	if (!a->text[0]) {
		rs_fail(e, RS_EIO, "its slot is empty: the configuration gives no address");
		return ENGINE_ADDRESS_FAILED;
	}
	if (getaddrinfo(a->to.host, a->to.port, &hints, &list) == 0)
		return engine_address_choose(a, list, e);
	if (strchr(a->to.host, ':')) {
		rs_fail(e, RS_EREFUSED, "its address %s cannot be used here%s", a->to.host,
			strchr(a->to.host, '%') ? ": this machine has no network card of that name" : "");
		return ENGINE_ADDRESS_FAILED;
	}
	a->lookup = lookup_start(a->to.host, a->to.port, wake, ended);
	if (a->lookup)
		return ENGINE_ADDRESS_WAIT;
	rs_fail(e, RS_ENOMEM, "out of memory or threads for the lookup of its name");
	return ENGINE_ADDRESS_FAILED;
}

/* Fills *e after a lookup that failed with rc. */
static void engine_address_fail(struct engine_address *a, int rc, uint32_t patience_ms, uint64_t now_ms,
				struct rs_err *e)
{
	if (rc != EAI_NONAME && rc != EAI_NODATA) { /* a name server that does not answer says nothing about the name */
		a->unknown_since_ms = 0;
		rs_fail(e, RS_EIO, "its name cannot be resolved: %s", gai_strerror(rc));
		return;
	}
	if (!a->unknown_since_ms)
		a->unknown_since_ms = now_ms;
	if (now_ms - a->unknown_since_ms < patience_ms)
		rs_fail(e, RS_EIO, "its name does not exist: %s", gai_strerror(rc));
	else
		rs_fail(e, RS_EREFUSED, "its name does not exist, for %.0f s (timeouts.resolve): %s",
			(double)(now_ms - a->unknown_since_ms) / 1e3, gai_strerror(rc));
}

enum engine_address_step engine_address_take(struct engine_address *a, uint32_t patience_ms, uint64_t now_ms,
					     struct rs_err *e)
{
	struct addrinfo *list;
	int rc;

	if (!a->lookup || !lookup_take(a->lookup, &rc, &list))
		return ENGINE_ADDRESS_WAIT;
	a->lookup = NULL;
	if (rc == 0) {
		a->unknown_since_ms = 0;
		return engine_address_choose(a, list, e);
	}
	engine_address_fail(a, rc, patience_ms, now_ms, e);
	return ENGINE_ADDRESS_FAILED;
}
