/* SPDX-License-Identifier: Apache-2.0 */
/* The addresses of an engine's reducers, which may change while a job runs: a slot is
 * taken by another machine. The file of the configuration is read again before an attempt
 * to connect if it has changed. A connection that works stays where it is. All functions
 * belong to the thread that runs the engine. */
#ifndef RS_AGENT_WORKER_ENGINE_ADDRESSES_H
#define RS_AGENT_WORKER_ENGINE_ADDRESSES_H

#include "agent/worker/engine/lookup.h"
#include "agent/worker/engine/name_slots.h"
#include "common/address.h"
#include "config/config.h"

enum {
	ADDRESSES_CHECK_MS = 500,   /* least time between two looks at the file */
	ADDRESSES_LOOKUP_MS = 1000, /* and between two lookups of a name that slots share */
};

/* A name that slots share. Invariant: at most one lookup runs. */
struct engine_name {
	char text[RS_ADDRESS_MAX];
	struct rs_host_port to;
	struct name_slots slots;
	struct lookup *lookup; /* NULL: none runs */
	uint64_t looked_ms;    /* when the last one began; 0: none so far */
	char why[128];         /* why the last one found nothing; "": it did, or none has ended */
};

struct engine_addresses {
	struct rs_reducer *reducers; /* owned; as in the configuration, with the addresses of now */
	unsigned reducers_n;
	bool slots; /* the job may start without some of them */
	struct rs_config_source source;
	uint64_t checked_ms;       /* last look at the file; 0: none so far */
	struct engine_name *names; /* owned; [names_n], those that slots share */
	unsigned names_n;
	unsigned *name_of; /* owned; [reducers_n]: index in names, if the reducer's address is shared */
	unsigned *slot_of; /* owned; [reducers_n]: index in the slots of the name */
};

/* A slot with a shared name has no address at first. Errors: RS_ENOMEM. */
int engine_addresses_init(struct engine_addresses *a, const struct rs_config *cfg, struct rs_err *e);
void engine_addresses_close(struct engine_addresses *a);

/* names.c: the same for the names alone. */
int engine_names_init(struct engine_addresses *a, bool grpc, struct rs_err *e);
void engine_names_close(struct engine_addresses *a);
/* Abandons the lookups, before their wakeup is closed. */
void engine_names_abandon(struct engine_addresses *a);

#endif
