/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/worker/engine/name_slots.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int name_slots_init(struct name_slots *s, const unsigned *reducers, unsigned n, struct rs_err *e)
{
	*s = (struct name_slots){.slots = calloc(n, sizeof *s->slots), .slots_n = n};
	if (!s->slots)
		return rs_oom(e, n * sizeof *s->slots, "the slots of a name");
	for (unsigned i = 0; i < n; i++)
		s->slots[i].reducer = reducers[i];
	return RS_OK;
}

void name_slots_close(struct name_slots *s)
{
	free(s->slots);
	free(s->machines);
	*s = (struct name_slots){.slots = NULL};
}

static int compare_machines(const void *a, const void *b)
{
	return strcmp(((const struct name_machine *)a)->address, ((const struct name_machine *)b)->address);
}

/* Returns the machine at an address; NULL: the name does not have it. */
static struct name_machine *machine_at(const struct name_slots *s, const char *address)
{
	struct name_machine key;

	if (!s->machines_n)
		return NULL;
	snprintf(key.address, sizeof key.address, "%s", address);
	return bsearch(&key, s->machines, s->machines_n, sizeof key, compare_machines);
}

int name_slots_found(struct name_slots *s, const char (*addresses)[RS_ADDRESS_MAX], unsigned n, struct rs_err *e)
{
	struct name_machine *fresh;
	unsigned kept = 0;

	n = n < NAME_MACHINES_MAX ? n : NAME_MACHINES_MAX;
	fresh = calloc(n ? n : 1, sizeof *fresh);
	if (!fresh)
		return rs_oom(e, n * sizeof *fresh, "%u addresses of a name", n);
	for (unsigned i = 0; i < n; i++) {
		const struct name_machine *known = machine_at(s, addresses[i]);

		snprintf(fresh[i].address, sizeof fresh[i].address, "%s", addresses[i]);
		fresh[i].slot = known ? known->slot : -1;
	}
	qsort(fresh, n, sizeof *fresh, compare_machines);
	for (unsigned i = 0; i < n; i++)
		if (!kept || compare_machines(&fresh[i], &fresh[kept - 1]) != 0)
			fresh[kept++] = fresh[i];
	free(s->machines);
	s->machines = fresh;
	s->machines_n = kept;
	return RS_OK;
}

void name_slots_told(struct name_slots *s, unsigned slot, int fills)
{
	struct name_machine *told = machine_at(s, s->slots[slot].at);

	for (unsigned i = 0; fills >= 0 && i < s->machines_n; i++)
		if (s->machines[i].slot == fills)
			s->machines[i].slot = -1;
	if (told)
		told->slot = fills;
}

void name_slots_joined(struct name_slots *s, unsigned slot)
{
	s->slots[slot].tries = 0;
	name_slots_told(s, slot, (int)slot);
}

/* Returns whether a machine is of no other slot. leads: nor has another slot been given
 * it. */
static bool is_free(const struct name_slots *s, const struct name_machine *m, unsigned slot, const bool *open,
		    bool leads)
{
	if (m->slot >= 0 && m->slot != (int)slot)
		return false;
	for (unsigned i = 0; i < s->slots_n; i++)
		if (i != slot && (leads || open[i]) && strcmp(s->slots[i].at, m->address) == 0)
			return false;
	return true;
}

/* Returns the first free machine from the one at index `from` on, in a circle; NULL:
 * none is free. */
static struct name_machine *next_free(const struct name_slots *s, unsigned from, unsigned slot, const bool *open,
				      bool leads)
{
	for (unsigned i = 0; i < s->machines_n; i++) {
		struct name_machine *m = &s->machines[(from + i) % s->machines_n];

		if (is_free(s, m, slot, open, leads))
			return m;
	}
	return NULL;
}

/* Returns the machine that has said that it fills the slot. */
static struct name_machine *machine_of(const struct name_slots *s, unsigned slot)
{
	for (unsigned i = 0; i < s->machines_n; i++)
		if (s->machines[i].slot == (int)slot)
			return &s->machines[i];
	return NULL;
}

/* Rank 0 keeps the machine as long as the name has it, and it has not said that it fills
 * another slot. One that fails again and again gives way to one that is free. */
static const struct name_machine *choose_leading(const struct name_slots *s, unsigned slot, const bool *open)
{
	const struct name_machine *now = machine_at(s, s->slots[slot].at), *other;
	bool keeps = now && (now->slot < 0 || now->slot == (int)slot);

	if (keeps && s->slots[slot].tries < NAME_TRIES)
		return now;
	other = next_free(s, keeps ? (unsigned)(now - s->machines) + 1 : 0, slot, open, true);
	return other ? other : keeps ? now : NULL;
}

/* Another rank tries the machine that has said that it fills the slot, once, and
 * otherwise one after another. At first all slots begin with different ones, as those of
 * rank 0 do. */
static const struct name_machine *choose_following(const struct name_slots *s, unsigned slot, const bool *open)
{
	const struct name_machine *now = machine_at(s, s->slots[slot].at);
	struct name_machine *said = machine_of(s, slot);

	if (said && !(said == now && s->slots[slot].tries))
		return said;
	if (said)
		said->slot = -1; /* it does not answer, or has left the job */
	if (now && !s->slots[slot].tries && is_free(s, now, slot, open, false))
		return now;
	return next_free(s, now ? (unsigned)(now - s->machines) + 1 : slot, slot, open, false);
}

const char *name_slots_choose(struct name_slots *s, unsigned slot, const bool *open, bool leads)
{
	struct name_slot *own = &s->slots[slot];
	const struct name_machine *said = machine_of(s, slot), *m;

	if (leads && said && !own->tries)
		m = said;
	else
		m = leads ? choose_leading(s, slot, open) : choose_following(s, slot, open);
	if (!m) {
		own->at[0] = '\0';
		own->tries = 0;
		return NULL;
	}
	if (strcmp(own->at, m->address) != 0) {
		memcpy(own->at, m->address, sizeof own->at);
		own->tries = 0;
	}
	own->tries++;
	return own->at;
}
