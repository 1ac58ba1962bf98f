/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that go on in the next generation of their job, with the same exchange and on the
 * same connections: after an error, after their last operation, or in the middle of
 * everything. Others die, or come new. */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

/* Faults of ranks with another configuration, secret or run, which a process keeps. */
static bool is_lasting(const struct fault *f)
{
	return f->kind == FAULT_SECRET || f->kind == FAULT_MISCONFIGURED || f->kind == FAULT_STRANGER ||
	       f->kind == FAULT_ABSENT || f->kind == FAULT_HANG || f->kind == FAULT_IMPOSTOR;
}

void move_draw(struct sim *s, struct team *t)
{
	const struct team *before = t->before;
	uint16_t *owner = t->owner;
	struct rs_reducer *reducers = t->reducers;

	t->moves = before && sim_chance(s, 60);
	for (unsigned i = 0; t->moves && i < before->faults_n; i++)
		t->moves &= !is_lasting(&before->faults[i]) && before->faults[i].kind != FAULT_NARROW;
	if (!t->moves)
		return;
	t->cfg = before->cfg;
	memcpy(t->groups, before->groups, SIM_GROUPS * sizeof *t->groups);
	memcpy(t->relays, before->relays, (size_t)SIM_GROUPS * SIM_SHARDS * sizeof *t->relays);
	memcpy(t->group_of, before->group_of, sizeof t->group_of);
	t->relay_above = before->relay_above;
	t->exact = before->exact;
	if (t->cfg.groups_n) {
		t->cfg.groups = t->groups;
		t->cfg.relays = t->relays;
	}
	memcpy(owner, before->owner, SIM_SHARDS * sizeof *owner);
	t->lead_most = before->lead_most;
	memcpy(reducers, before->reducers, s->reducers_n * sizeof *reducers);
	t->cfg.sharding.owner = owner;
	t->cfg.reducers = reducers;
	t->adaptive = before->adaptive;
	t->encodes = before->encodes;
	t->shards_ops = before->shards_ops;
	memcpy(t->offered, before->offered, sizeof t->offered);
	t->processes_all = 0;
	for (unsigned r = 0; r < t->world; r++) {
		if (r < before->world)
			t->processes[r] = before->processes[r];
		t->processes_all += t->processes[r];
	}
}

void move_drop_faults(struct team *t)
{
	unsigned n = 0;

	for (unsigned i = 0; i < t->faults_n; i++)
		if (!is_lasting(&t->faults[i]))
			t->faults[n++] = t->faults[i];
	t->faults_n = n;
	t->connect_ms = 8000;
	t->cfg.timeouts.op_ms = 0;
	free(t->other_owner);
	t->other_owner = NULL;
	if (!n || t->faults[0].kind != FAULT_MISMATCH)
		t->odd_rank = SIM_WORLD;
}

static struct team *next_team(const struct team *t)
{
	struct team *next = (struct team *)t + 1;

	return t->index + 1 < t->sim->teams_n && next->before == t && next->moves ? next : NULL;
}

struct rank *move_next(const struct rank *k)
{
	struct team *next = next_team(k->team);

	if (!next || k->index >= next->world || next->ranks[k->index].state != RANK_UNBORN || k->stalled)
		return NULL;
	return &next->ranks[k->index];
}

bool move_birth(struct rank *k)
{
	struct team *t = k->team, *old = t->before;
	struct rank *from = t->moves && k->index < old->world ? &old->ranks[k->index] : NULL;
	struct exchange_place place = {.generation = t->generation,
				       .rank = k->index,
				       .world_size = t->world,
				       .incarnation = sim_random(k->sim),
				       .connect_ms = t->connect_ms};
	char words[16];

	if (!from || from->state != RANK_ALIVE || from->sent_goodbye || from->stalled || rank_stopped(from))
		return false;
	trace(k->sim, "%s rank %u goes on in generation %u", t->job, k->index, t->generation);
	k->sim->stats->moved++;
	fault_blame(old, FAULT_REPLACED, -1, "has left generation");
	fault_blame(old, FAULT_REPLACED, -1, "replaced generation");
	fault_blame(old, FAULT_REPLACED, -1, "is at generation");
	/* a fault may strike its connections before the reducers have read that it goes
	 * on, or ABORT is behind a chunk whose rest is not sent any more */
	snprintf(words, sizeof words, "rank %u", from->index);
	if (t->faults_n || old->blame_kinds >> FAULT_ABORT & 1)
		fault_blame(old, FAULT_REPLACED, -1, words);
	exchange_reconfigure(from->x, &place, sim_ms(k->sim));
	k->x = from->x;
	k->self = from->self;
	*k->self = k;
	from->x = NULL;
	from->self = NULL;
	for (unsigned i = 0; i < SIM_LINKS; i++) {
		k->conn[i] = from->conn[i];
		from->conn[i] = NULL;
		if (!k->conn[i])
			continue;
		k->conn[i]->rank = k;
		/* faults of the team before */
		k->conn[i]->corrupt_at = 0;
		if (k->conn[i]->dark[WORKER] || k->conn[i]->dark[REDUCER])
			net_cut(k->conn[i]);
	}
	memcpy(k->narrow, from->narrow, sizeof k->narrow);
	memcpy(k->narrow_us, from->narrow_us, sizeof k->narrow_us);
	k->state = RANK_ALIVE;
	k->armed_ms = UINT64_MAX;
	t->born = true;
	fault_after_birth(k);
	rank_end(from, RANK_ENDED);
	rank_settle(k);
	return true;
}
