/* SPDX-License-Identifier: Apache-2.0 */
/* Slots that share a name, each of whose addresses is a machine. Which machine fills
 * which slot must be the same on all ranks, although their lookups may differ: rank 0
 * decides, by what it connects to. A machine that takes part in the job says which slot
 * it fills, if another rank asks it for another one, and refuses other ranks before rank
 * 0 has come.
 *
 * The happy path: found() takes the addresses of a lookup; choose() gives the address for
 * an attempt to connect to a slot to which no connection is open; told() takes what a
 * machine has said instead of joining. All ranks begin with the same choice, the i-th
 * free address for the i-th free slot, in the order of texts. Failure modes: rank 0 keeps
 * a machine that fails while the name has its address, unless another machine is free;
 * other ranks try the next address after each failure, until they have found the machine
 * that rank 0 has chosen.
 *
 * No I/O. All functions of one struct belong to one thread. */
#ifndef RS_AGENT_WORKER_ENGINE_NAME_SLOTS_H
#define RS_AGENT_WORKER_ENGINE_NAME_SLOTS_H

#include "common/error.h"
#include "config/limits.h"

#include <stdbool.h>

enum {
	NAME_MACHINES_MAX = 1024,
	NAME_TRIES = 8, /* of rank 0, before another machine gets the slot: about 4 s */
};

/* One slot of the name. */
struct name_slot {
	unsigned reducer;        /* its index in the configuration */
	char at[RS_ADDRESS_MAX]; /* its machine as far as this rank knows; "": none */
	unsigned tries;          /* of this machine, since a connection worked last */
};

/* One address of the name. */
struct name_machine {
	char address[RS_ADDRESS_MAX];
	int slot; /* index of the slot that it has said it fills; -1: unknown */
};

/* Invariant: machines are sorted by address, without duplicates; no two have said the
 * same slot. */
struct name_slots {
	struct name_slot *slots; /* [slots_n], owned */
	unsigned slots_n;
	struct name_machine *machines; /* [machines_n], owned */
	unsigned machines_n;
};

/* Begins with the slots of these reducers, n of them, in their order. Release it with
 * name_slots_close. Errors: RS_ENOMEM. */
int name_slots_init(struct name_slots *s, const unsigned *reducers, unsigned n, struct rs_err *e);
void name_slots_close(struct name_slots *s);

/* The name has these n addresses now, in any order; what is known of those that stay is
 * kept. Those beyond NAME_MACHINES_MAX are ignored. Errors: RS_ENOMEM, and nothing has
 * changed. */
int name_slots_found(struct name_slots *s, const char (*addresses)[RS_ADDRESS_MAX], unsigned n, struct rs_err *e);

/* The machine at the address of slot `slot` has refused it: it fills slot `fills`; -1: it
 * does not know which. */
void name_slots_told(struct name_slots *s, unsigned slot, int fills);

/* A connection of the slot has joined the job at its machine. */
void name_slots_joined(struct name_slots *s, unsigned slot);

/* Chooses the machine for an attempt to connect to a slot without an open connection;
 * open[i]: slot i has one. leads: this is rank 0. Returns its address, or NULL: no
 * address of the name is free for this slot. */
const char *name_slots_choose(struct name_slots *s, unsigned slot, const bool *open, bool leads);

#endif
