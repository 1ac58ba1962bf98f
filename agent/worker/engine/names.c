/* SPDX-License-Identifier: Apache-2.0 */
/* Names that slots share: their lookups, and the address of each slot. The happy path: an
 * attempt to connect to such a slot finds the addresses of the last lookup, begins
 * another one if that was long ago, and takes the address that name_slots.c chooses.
 * Failure modes: the name has no address, or no free one: the attempt fails and is made
 * again later. */
#include "agent/worker/engine/engine_uv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns the text that workers connect to. */
static char *names_text(struct rs_reducer *r, bool grpc)
{
	return grpc ? r->grpc : r->address;
}

/* Adds the name of reducers[first], with all slots that share it. */
static int names_add(struct engine_addresses *a, unsigned first, bool grpc, struct rs_err *e)
{
	struct engine_name *name = &a->names[a->names_n];
	unsigned slots[RS_REDUCERS_MAX], n = 0;
	int rc;

	memcpy(name->text, names_text(&a->reducers[first], grpc), sizeof name->text);
	for (unsigned i = first; i < a->reducers_n; i++) {
		if (!a->reducers[i].shared || strcasecmp(names_text(&a->reducers[i], grpc), name->text) != 0)
			continue;
		a->name_of[i] = a->names_n;
		a->slot_of[i] = n;
		slots[n++] = i;
	}
	rc = rs_host_port_split(&name->to, name->text, false, e);
	if (!rc)
		rc = name_slots_init(&name->slots, slots, n, e);
	a->names_n += !rc;
	return rc;
}

int engine_names_init(struct engine_addresses *a, bool grpc, struct rs_err *e)
{
	int rc = RS_OK;

	a->names = calloc(a->reducers_n, sizeof *a->names);
	a->name_of = calloc(a->reducers_n, sizeof *a->name_of);
	a->slot_of = calloc(a->reducers_n, sizeof *a->slot_of);
	if (!a->names || !a->name_of || !a->slot_of)
		return rs_oom(e, a->reducers_n * sizeof *a->names, "the names of the reducers");
	for (unsigned i = 0; i < a->reducers_n; i++)
		a->name_of[i] = UINT32_MAX;
	for (unsigned i = 0; i < a->reducers_n && !rc; i++)
		if (a->reducers[i].shared && a->name_of[i] == UINT32_MAX)
			rc = names_add(a, i, grpc, e);
	for (unsigned i = 0; i < a->reducers_n && !rc; i++) {
		struct rs_reducer *r = &a->reducers[i];

		if (!r->shared)
			continue;
		rs_config_tls_name(r, r->tls_name); /* certificates are for the name */
		names_text(r, grpc)[0] = '\0';
	}
	return rc;
}

void engine_names_abandon(struct engine_addresses *a)
{
	for (unsigned i = 0; i < a->names_n; i++) {
		if (a->names[i].lookup)
			lookup_abandon(a->names[i].lookup);
		a->names[i].lookup = NULL;
	}
}

void engine_names_close(struct engine_addresses *a)
{
	engine_names_abandon(a);
	for (unsigned i = 0; i < a->names_n; i++)
		name_slots_close(&a->names[i].slots);
	free(a->names);
	free(a->name_of);
	free(a->slot_of);
}

/* Writes a socket address with its port as text. Returns whether it could. */
static bool names_print(const struct addrinfo *at, const char *port, char ret[RS_ADDRESS_MAX])
{
	char host[128];

	if (getnameinfo(at->ai_addr, at->ai_addrlen, host, sizeof host, NULL, 0, NI_NUMERICHOST))
		return false;
	snprintf(ret, RS_ADDRESS_MAX, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
	return true;
}

/* Takes the result of a lookup. Without an answer of name servers, what was known
 * stays. */
static void names_take(struct engine_name *name, int rc, struct addrinfo *list)
{
	char(*found)[RS_ADDRESS_MAX];
	unsigned n = 0, most = 0;
	struct rs_err e;

	name->why[0] = '\0';
	if (rc)
		snprintf(name->why, sizeof name->why, "its name %.64s: %s", name->text, gai_strerror(rc));
	if (rc && rc != EAI_NONAME && rc != EAI_NODATA)
		return;
	for (const struct addrinfo *i = list; i; i = i->ai_next)
		most++;
	found = malloc((most + 1) * sizeof *found);
	for (const struct addrinfo *i = list; found && i; i = i->ai_next)
		n += names_print(i, name->to.port, found[n]);
	if (!found || name_slots_found(&name->slots, (const char(*)[RS_ADDRESS_MAX])found, n, &e))
		snprintf(name->why, sizeof name->why, "out of memory for the addresses of %.64s", name->text);
	free(found);
}

/* Takes a lookup that has ended, and begins another one if the last one was long ago. */
static void names_look_up(struct engine *en, struct engine_name *name)
{
	uint64_t now = uv_now(&en->loop);
	struct addrinfo *list = NULL;
	int rc;

	if (name->lookup && lookup_take(name->lookup, &rc, &list)) {
		name->lookup = NULL;
		names_take(name, rc, list);
		if (list)
			freeaddrinfo(list);
	}
	if (name->lookup || (name->looked_ms && now - name->looked_ms < ADDRESSES_LOOKUP_MS))
		return;
	name->looked_ms = now ? now : 1;
	name->lookup = lookup_start(name->to.host, name->to.port, &en->wake, &en->lookup_ended);
}

/* Returns whether a connection of the reducer is open, or is being made. */
static bool names_is_open(const struct engine *en, unsigned reducer)
{
	for (unsigned i = 0; i < en->conns_n; i++)
		if (exchange_reducer(en->x, i) == reducer && !en->conns[i]->ops->idle(en->conns[i]))
			return true;
	return false;
}

static void names_log(struct engine *en, unsigned reducer, const char *from, const char *to, const char *name)
{
	rs_log(en->opt.log, en->opt.rank ? RS_LOG_DEBUG : RS_LOG_INFO, "reducer-address",
	       rs_kv_s("reducer", en->addresses.reducers[reducer].id), rs_kv_s("from", from), rs_kv_s("to", to),
	       rs_kv_s("job", en->opt.job), rs_kv_u("rank", en->opt.rank), rs_kv_s("name", name));
}

/* Gives the reducer this address; "": none. */
static void names_assign(struct engine *en, unsigned reducer, const char *to, const char *name)
{
	char *text = names_text(&en->addresses.reducers[reducer], en->opt.cfg->job.grpc);

	if (strcmp(text, to) == 0)
		return;
	names_log(en, reducer, text, to, name);
	snprintf(text, RS_ADDRESS_MAX, "%s", to);
	engine_tls_rename(&en->tls, reducer);
}

const char *engine_choose_address(struct engine *en, unsigned reducer)
{
	struct engine_addresses *a = &en->addresses;
	struct engine_name *name;
	bool open[RS_REDUCERS_MAX];
	const char *to;

	if (!a->reducers[reducer].shared)
		return NULL;
	name = &a->names[a->name_of[reducer]];
	names_look_up(en, name);
	for (unsigned i = 0; i < name->slots.slots_n; i++)
		open[i] = names_is_open(en, name->slots.slots[i].reducer);
	if (open[a->slot_of[reducer]])
		return NULL; /* its other connections stay where the first one is */
	to = name_slots_choose(&name->slots, a->slot_of[reducer], open, en->opt.rank == 0);
	names_assign(en, reducer, to ? to : "", name->text);
	if (to)
		return NULL;
	if (!name->slots.machines_n)
		return name->why[0] ? name->why : "its name is being looked up";
	return "its slot is empty: other slots have all addresses of its name";
}

void engine_on_is_reducer(void *user, unsigned reducer, const char *id)
{
	struct engine *en = user;
	const struct engine_addresses *a = &en->addresses;
	struct engine_name *name;
	int fills = -1;

	if (!a->reducers[reducer].shared)
		return;
	name = &a->names[a->name_of[reducer]];
	for (unsigned i = 0; i < name->slots.slots_n; i++)
		if (strcmp(a->reducers[name->slots.slots[i].reducer].id, id) == 0)
			fills = (int)i;
	if (fills == (int)a->slot_of[reducer])
		name_slots_joined(&name->slots, a->slot_of[reducer]);
	else
		name_slots_told(&name->slots, a->slot_of[reducer], fills);
}
