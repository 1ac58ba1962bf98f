/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that write the master's address in two ways, such as node0 and node0.example.com,
 * have different runs. Without a job.name they wait in two jobs, each for the other's
 * ranks. */
#include "server/jobs/registry_priv.h"

#include <stdio.h>
#include <string.h>

/* Returns whether two runs differ in the master's address alone: "master:ADDRESS:PORT",
 * "torchrun:ID@ADDRESS:PORT". */
static bool spelling_differs(const char *a, const char *b)
{
	const char *port_a = strrchr(a, ':'), *port_b = strrchr(b, ':'), *at_a = strchr(a, '@'), *at_b = strchr(b, '@');
	size_t id = 0;

	if (strcmp(a, b) == 0 || !port_a || !port_b || strcmp(port_a, port_b) != 0)
		return false;
	if (strncmp(a, "master:", 7) == 0 && strncmp(b, "master:", 7) == 0)
		return true;
	if (at_a && at_b && strncmp(a, "torchrun:", 9) == 0)
		id = (size_t)(at_a - a);
	return id > 0 && id == (size_t)(at_b - b) && strncmp(a, b, id) == 0;
}

/* Returns whether no rank is in both jobs, and both have some. */
static bool spelling_completes(const struct job *a, const struct job *b)
{
	bool in_a = false, in_b = false;

	for (unsigned i = 0; i < a->first.world_size; i++) {
		if (a->members[i].lanes && b->members[i].lanes)
			return false;
		in_a |= a->members[i].lanes > 0;
		in_b |= b->members[i].lanes > 0;
	}
	return in_a && in_b;
}

bool registry_find_spelling(const struct registry *r, const struct job *j, char *buf, size_t size)
{
	const struct control_hello *mine = &j->first, *other;
	unsigned there = 0;

	for (const struct job *o = r->jobs; o; o = o->next) {
		other = &o->first;
		if (o == j || o->running || o->ended || other->world_size != mine->world_size ||
		    other->generation != mine->generation || other->has_nonce != mine->has_nonce ||
		    !spelling_differs(mine->run, other->run) || !spelling_completes(j, o))
			continue;
		while (!o->members[there].lanes)
			there++;
		snprintf(
		    buf, size,
		    "rank %u%s%.60s%s waits in job %s with run %s, and here the run is %s. If it is one training, "
		    "write MASTER_ADDR in one way on all nodes, or set REDUCTION_RUN to the same text on all ranks",
		    there, o->members[there].label[0] ? " (" : "", o->members[there].label,
		    o->members[there].label[0] ? ")" : "", other->job, other->run, mine->run);
		return true;
	}
	return false;
}
