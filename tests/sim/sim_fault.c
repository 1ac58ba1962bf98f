/* SPDX-License-Identifier: Apache-2.0 */
/* Faults: their kinds and times, and the words with which an error may name them. No
 * operation may fail before a fault has happened. */
#include "tests/sim/sim.h"

#include <string.h>

#define OTHER_RUN "two trainings use the job name" /* in sentences about a rank of another run */

enum {
	DRAIN_MS = 3000,
	HANG_NAMED_MS = 2500, /* with a timeouts.op this long reducers have reported the rank that hangs */
};

static const char *const names[FAULT_NR] = {
    [FAULT_NONE] = "none",
    [FAULT_PAUSE] = "pause",
    [FAULT_KILL] = "kill",
    [FAULT_POWEROFF] = "power-off",
    [FAULT_STALL] = "stall",
    [FAULT_CUT] = "cut",
    [FAULT_PARTITION] = "partition",
    [FAULT_NARROW] = "narrow",
    [FAULT_CORRUPT] = "corrupt",
    [FAULT_REDUCER_KILL] = "reducer-kill",
    [FAULT_REDUCER_POWEROFF] = "reducer-power-off",
    [FAULT_DRAIN] = "drain",
    [FAULT_MISMATCH] = "mismatch",
    [FAULT_FEWER] = "fewer",
    [FAULT_HANG] = "hang",
    [FAULT_ABORT] = "abort",
    [FAULT_GOODBYE] = "goodbye",
    [FAULT_ABSENT] = "absent",
    [FAULT_MISCONFIGURED] = "misconfigured",
    [FAULT_STRANGER] = "stranger",
    [FAULT_REPLACED] = "replaced",
    [FAULT_SECRET] = "secret",
    [FAULT_IMPOSTOR] = "impostor",
    [FAULT_STORM] = "storm",
};

const char *fault_name(enum fault_kind kind)
{
	return names[kind];
}

static uint32_t detect_ms(const struct team *t)
{
	uint32_t most = t->cfg.timeouts.detect_ms;

	for (unsigned i = 0; i < t->sim->reducers_n; i++)
		if (t->sim->reducers[i].detect_ms > most)
			most = t->sim->reducers[i].detect_ms;
	return most;
}

/* Not all ranks run: the connect timeout then finds the missing ones. */
static bool joining(const struct team *t)
{
	for (unsigned r = 0; r < t->world; r++)
		if (t->ranks[r].state == RANK_UNBORN ||
		    (t->ranks[r].state == RANK_ALIVE && exchange_state(t->ranks[r].x) == EXCHANGE_JOINING))
			return true;
	return false;
}

static void add_blame(struct team *t, struct blame b)
{
	t->blame_kinds |= UINT32_C(1) << b.kind;
	for (unsigned i = 0; i < t->blame_n; i++)
		if (t->blame[i].victim == b.victim && t->blame[i].kind == b.kind && !strcmp(t->blame[i].words, b.words))
			return;
	if (t->blame_n < SIM_BLAME)
		t->blame[t->blame_n++] = b;
	else
		t->blame[SIM_BLAME - 1].words[0] = '\0';
}

void fault_blame(struct team *t, enum fault_kind kind, int victim, const char *words)
{
	static const char *const early[] = {"not joined job", "has not started job", "while the job was starting"};
	/* detected, reported, ABORT; once more for a peer that cannot be reached and must
	 * notice by itself */
	struct blame b = {
	    .kind = kind, .at_us = t->sim->now_us, .within_ms = 2 * detect_ms(t) + 2500, .victim = victim};

	if (joining(t))
		b.within_ms += t->connect_ms + 2000;
	if (kind == FAULT_STALL)
		b.within_ms += 3 * detect_ms(t) + t->sim->stopped_ms;
	if (kind == FAULT_DRAIN || kind == FAULT_STORM)
		b.within_ms += DRAIN_MS;
	if (kind == FAULT_HANG)
		b.within_ms += 10000;
	if (kind == FAULT_MISMATCH)
		b.within_ms += 30000; /* the operations before it come first, on links that may be slow */
	snprintf(b.words, sizeof b.words, "%s", words);
	add_blame(t, b);
	b.victim = -1;
	for (unsigned i = 0; joining(t) && i < sizeof early / sizeof early[0]; i++) {
		snprintf(b.words, sizeof b.words, "%s", early[i]);
		add_blame(t, b);
	}
}

static void blame_rank(struct team *t, const struct fault *f, bool victim)
{
	char words[32];

	snprintf(words, sizeof words, "rank %u", f->rank);
	fault_blame(t, f->kind, victim ? (int)f->rank : -1, words);
}

static void blame_reducer(struct team *t, enum fault_kind kind, unsigned reducer)
{
	char words[32];

	snprintf(words, sizeof words, "reducer r%u", reducer);
	fault_blame(t, kind, -1, words);
}

/* A fault of a reducer, or between it and a rank. No operation may notice it as long as
 * there is another reducer. */
static bool must_survive(struct team *t, enum fault_kind kind, unsigned reducer)
{
	unsigned all = (1u << t->cfg.reducers_n) - 1;

	t->hit |= 1u << reducer;
	/* reducers with too small a limit of jobs may refuse some */
	if (!t->cfg.job.retain || t->hit == all || t->sim->jobs_most < t->sim->teams_n)
		return false;
	/* without an operation to wait for, ranks may leave before the last one has
	 * joined */
	if (t->ops_n == 0)
		return false;
	t->survived++;
	/* a rank of the generation before finds no reducer that tells it of this one, and
	 * comes only when it has given up */
	if (t->before && t->before->ended < t->before->world && (t->hit | t->before->hit) == all)
		fault_blame(t, kind, -1, "has not started job");
	/* a rank that fails to join for another reason reports everything that is
	 * missing */
	if (t->blame_n && joining(t))
		blame_reducer(t, kind, reducer);
	return true;
}

/* An impostor replaces a reducer from now on, for this job only. */
static void impose(struct team *t, unsigned reducer)
{
	t->impostors |= 1u << reducer;
	t->hit |= 1u << reducer;
	if (joining(t))
		fault_blame(t, FAULT_IMPOSTOR, -1,
			    t->sim->guarded ? "has not proven that it has the secret of job" : IMPOSSIBLE_WINDOW);
}

static void strike_reducer(struct sim *s, const struct fault *f)
{
	struct reducer *r = &s->reducers[f->reducer];
	bool again = sim_chance(s, 50) || f->kind == FAULT_STORM, silent;

	for (unsigned i = 0; i < s->teams_n; i++) {
		struct team *t = &s->teams[i];

		t->hit |= 1u << f->reducer;
		if (t->ended == t->world || (!t->born && again))
			continue;
		if (must_survive(t, f->kind, f->reducer)) {
			/* and a returned one is another process */
			if (again && s->guarded && !joining(t) && sim_chance(s, 25))
				impose(t, f->reducer);
			continue;
		}
		if (t->cfg.job.retain)
			fault_blame(t, f->kind, -1, "");
		blame_reducer(t, f->kind, f->reducer);
		if (f->kind == FAULT_DRAIN || f->kind == FAULT_STORM)
			fault_blame(t, f->kind, -1, "the reducer was stopped");
		/* remains of the last run of the same generation may block this one
		 * now */
		if (t->before && t->before->generation == t->generation)
			fault_blame(t, f->kind, -1, "");
	}
	if (f->kind == FAULT_DRAIN || (f->kind == FAULT_STORM && sim_chance(s, 30))) {
		reducer_drain(r, sim_below(s, DRAIN_MS), again);
		return;
	}
	silent = f->kind == FAULT_REDUCER_POWEROFF || (f->kind == FAULT_STORM && sim_chance(s, 30));
	trace(s, "r%u %s", r->index, silent ? "loses power" : "is killed");
	reducer_off(r, silent);
	if (again)
		sim_in(s, 1000 + sim_below(s, 500000), EV_REDUCER_ON, r->index, 0);
}

static void strike_connection(struct team *t, struct fault *f, struct conn *c)
{
	struct sim *s = t->sim;
	/* a relay without an uplink leaves the job */
	unsigned reducer = c->relay ? c->relay->reducer->index : c->reducer->index;

	if (must_survive(t, f->kind, reducer)) {
		t->cut |= c->rank ? 1u << c->rank->index : 0;
	} else {
		blame_rank(t, f, false);
		blame_reducer(t, f->kind, reducer);
		if (t->cfg.job.retain)
			fault_blame(t, f->kind, -1, "");
	}
	if (f->kind == FAULT_PARTITION) {
		unsigned which = sim_below(s, 3);

		trace(s, "connection %u goes dark (%u)", c->id, which);
		c->dark[WORKER] |= which != 0;
		c->dark[REDUCER] |= which != 1;
	} else if (f->kind == FAULT_CORRUPT && t->cfg.job.checksum) {
		t->damaged = true;
		c->corrupt_side = sim_below(s, 2);
		c->corrupt_at = c->to[c->corrupt_side].total + 1 + sim_below(s, 1500);
		/* the damaged byte may be part of an error message */
		if (!t->cfg.job.retain || joining(t))
			fault_blame(t, f->kind, -1, "");
	} else {
		net_cut(c);
	}
}

/* From now on the path of a rank to a reducer drops large messages. */
static void strike_path(struct rank *k, const struct fault *f)
{
	unsigned which = sim_below(k->sim, 3);
	uint32_t most = sim_between(k->sim, 600, 1400);

	trace(k->sim, "%s rank %u: the path to r%u drops more than %u bytes (%u)", k->team->job, k->index, f->reducer,
	      most, which);
	k->narrow_us[f->reducer] = k->sim->now_us;
	k->narrow[f->reducer][WORKER] = which != 0 ? most : 0;
	k->narrow[f->reducer][REDUCER] = which != 1 ? most : 0;
}

void fault_narrowed(struct conn *c)
{
	struct team *t = c->rank->team;
	unsigned reducer = c->reducer->index;

	for (unsigned i = 0; i < t->faults_n; i++) {
		struct fault *f = &t->faults[i];

		if (f->kind != FAULT_NARROW || f->rank != c->rank->index)
			continue;
		f->struck = true;
		if (must_survive(t, f->kind, reducer)) {
			t->cut |= 1u << c->rank->index;
			continue;
		}
		blame_rank(t, f, false);
		blame_reducer(t, f->kind, reducer);
		if (t->cfg.job.retain)
			fault_blame(t, f->kind, -1, "");
	}
	/* the path is bad until the end */
	for (unsigned i = 0; i < t->blame_n; i++)
		if (t->blame[i].kind == FAULT_NARROW)
			t->blame[i].at_us = t->sim->now_us;
}

static struct team *after(struct team *t)
{
	struct team *next = t + 1;

	return t->index + 1 < t->sim->teams_n && next->before == t ? next : NULL;
}

static void strike_generation(struct team *t)
{
	struct team *next = after(t);

	if (!next || next->generation == t->generation)
		return;
	fault_blame(t, FAULT_REPLACED, -1, "replaced generation");
	fault_blame(t, FAULT_REPLACED, -1, "is at generation");
	for (unsigned r = 0; r < next->world; r++)
		if (next->ranks[r].state == RANK_UNBORN)
			sim_in(t->sim, sim_below(t->sim, 5000), EV_RANK_BIRTH, next->ranks[r].process, 0);
}

/* One step of the storm: a fault of a reducer that is not spared, or of a connection to
 * it. */
static void strike_storm(struct team *t, unsigned which)
{
	struct fault *f = &t->faults[which];
	struct fault gust = *f;
	struct sim *s = t->sim;
	struct rank *k = &t->ranks[sim_below(s, t->world)];
	unsigned link = sim_below(s, SIM_LINKS);

	do
		gust.reducer = sim_below(s, t->cfg.reducers_n);
	while (gust.reducer == f->reducer);
	if (sim_chance(s, 50) && k->state == RANK_ALIVE && k->conn[link] && k->conn[link]->up &&
	    k->conn[link]->reducer->index != f->reducer) {
		gust.kind = sim_chance(s, 70) ? FAULT_CUT : FAULT_PARTITION;
		strike_connection(t, &gust, k->conn[link]);
	} else if (s->reducers[gust.reducer].state == REDUCER_UP) {
		strike_reducer(s, &gust);
	}
	if (f->again-- > 0)
		sim_in(s, sim_below(s, sim_chance(s, 50) ? 3000 : 300000), EV_FAULT, t->index, which);
	else
		f->again = 0;
}

/* A rank that is stopped while it joins may give up all reducers that have not answered
 * by then. */
static void unmet(struct team *t, const struct rank *k)
{
	if (exchange_state(k->x) == EXCHANGE_JOINING)
		t->hit = (1u << t->cfg.reducers_n) - 1;
}

/* Returns whether another process wants, or will want, the place of this rank. */
static bool is_wanted(const struct rank *k)
{
	const struct sim *s = k->sim;

	for (unsigned i = 0; i < s->reducers_n; i++)
		if (s->reducers[i].intruder.rank == k)
			return true;
	for (unsigned i = 0; i < s->teams_n; i++)
		if (&s->teams[i] != k->team && strcmp(s->teams[i].job, k->team->job) == 0)
			return true;
	return false;
}

/* Stops a rank for longer than the detection time. If its kernel counts, nobody notices
 * unless that is longer than stopped_ms, with an earlier stop, or another process wants
 * the rank's place: a stopped process does not answer whether it lives. */
static void stall(struct team *t, const struct fault *f)
{
	struct rank *k = &t->ranks[f->rank];
	bool late = t->sim->stopped_ms > 0 && sim_chance(t->sim, 75);
	uint32_t for_ms = late                 ? detect_ms(t) + 500
			  : t->sim->stopped_ms ? t->sim->stopped_ms + 500
					       : 2 * detect_ms(t) + 500;

	if (!late || k->stalled || joining(t) || is_wanted(k))
		blame_rank(t, f, true);
	unmet(t, k);
	k->stalled = true;
	rank_stop(k, for_ms * 1000);
}

static void strike_rank(struct team *t, struct fault *f)
{
	struct rank *k = &t->ranks[f->rank];
	struct sim *s = t->sim;
	char words[80];

	switch (f->kind) {
	case FAULT_PAUSE:
		rank_stop(k, sim_below(s, 300000));
		break;
	case FAULT_STALL:
		stall(t, f);
		break;
	case FAULT_ABORT:
		snprintf(words, sizeof words, "process %u of amber failed its checkpoint", sim_below(s, 1000));
		fault_blame(t, f->kind, -1, words);
		rank_abort(k, RS_EPEER, words);
		break;
	case FAULT_GOODBYE:
		blame_rank(t, f, true);
		rank_goodbye(k);
		break;
	default:
		blame_rank(t, f, true);
		rank_kill(k, f->kind == FAULT_POWEROFF);
	}
}

void fault_strike(struct team *t, unsigned which)
{
	struct fault *f = &t->faults[which];
	struct rank *k = &t->ranks[f->rank];
	struct conn *c;

	if (f->kind == FAULT_STORM) {
		f->struck = true;
		strike_storm(t, which);
		return;
	}
	if (f->struck || k->state != RANK_ALIVE || rank_stopped(k))
		return;
	switch (f->kind) {
	case FAULT_CUT:
	case FAULT_PARTITION:
	case FAULT_CORRUPT:
		c = t->cfg.groups_n && f->again % 2 ? uplink_any(t->sim, t) : NULL;
		c = c ? c : k->conn[f->link];
		f->struck = c && c->up;
		if (f->struck)
			strike_connection(t, f, c);
		break;
	case FAULT_NARROW:
		strike_path(k, f);
		break;
	case FAULT_REDUCER_KILL:
	case FAULT_REDUCER_POWEROFF:
	case FAULT_DRAIN:
		f->struck = t->sim->reducers[f->reducer].state == REDUCER_UP;
		if (f->struck)
			strike_reducer(t->sim, f);
		break;
	case FAULT_REPLACED:
		f->struck = true;
		strike_generation(t);
		break;
	case FAULT_PAUSE:
	case FAULT_STALL:
	case FAULT_ABORT:
	case FAULT_GOODBYE:
	case FAULT_KILL:
	case FAULT_POWEROFF:
		f->struck = !k->sent_goodbye || f->kind != FAULT_GOODBYE;
		if (f->struck)
			strike_rank(t, f);
		break;
	default:
		break;
	}
}

/* Reducers report the ranks they wait for, at the latest after a second and one or two
 * ticks; see stripe_late.c. */
static void blame_hanging(const struct rank *k, const struct fault *f)
{
	char words[80] = "was not done within";
	/* with relays a home may not have heard from them for whom they wait */
	bool slow = k->team->cfg.groups_n > 0;

	/* a chunk that waits for others before it on slow links has not been late for
	 * long enough at the time limit; a rank whose stage is full has not sent its part
	 * either */
	for (unsigned i = 0; i < k->team->ops_n; i++)
		slow |= k->team->ops[i].sharded && k->team->ops[i].staged;
	for (unsigned i = 0; i < k->sim->reducers_n; i++)
		slow |= k->sim->delay_us + k->sim->jitter_us + k->sim->reducers[i].far_us > 2000;
	if (k->team->cfg.timeouts.op_ms >= HANG_NAMED_MS && !slow)
		snprintf(words, sizeof words, "rank %u (simulated) has not sent its part", k->index);
	fault_blame(k->team, f->kind, -1, words);
}

/* Other reducers have waited for a shorter time, and may not have reported a rank at the
 * time limit. */
void fault_view_changed(struct team *t)
{
	for (unsigned i = 0; i < t->faults_n; i++)
		if (t->faults[i].kind == FAULT_HANG && t->faults[i].struck)
			fault_blame(t, FAULT_HANG, -1, "was not done within");
}

void fault_contested(struct sim *s, const char *job, unsigned rank)
{
	for (unsigned i = 0; i < s->teams_n; i++) {
		struct team *t = &s->teams[i];
		char words[32];

		if (strcmp(t->job, job) != 0 || rank >= t->world || !rank_stopped(&t->ranks[rank]))
			continue;
		snprintf(words, sizeof words, "rank %u", rank);
		fault_blame(t, FAULT_STALL, (int)rank, words);
	}
}

/* Some faults are actions of a rank. */
static void begin_misbehaving(struct rank *k, struct fault *f)
{
	struct team *t = k->team;

	switch (f->kind) {
	case FAULT_FEWER:
		k->todo = f->op;
		break;
	case FAULT_HANG:
		k->todo = f->op;
		k->hangs = f->struck = true;
		blame_hanging(k, f);
		break;
	case FAULT_MISCONFIGURED:
		f->struck = true;
		fault_blame(t, f->kind, -1, "configured differently");
		break;
	case FAULT_STRANGER:
		f->struck = true;
		fault_blame(t, f->kind, -1, OTHER_RUN);
		/* the ranks that wait for it may give up for another reason */
		fault_blame(t, f->kind, -1, "gave up after");
		if (t->before) /* whose ranks may still join */
			fault_blame(t->before, f->kind, -1, OTHER_RUN);
		break;
	case FAULT_SECRET:
		f->struck = true;
		fault_blame(t, f->kind, -1, guard_blames(k));
		break;
	default:
		break;
	}
}

/* Two trainings of one name: neither is summed into the other, and the ranks of either
 * may be refused. */
static void blame_namesakes(struct team *t)
{
	for (unsigned i = 0; i < t->sim->teams_n; i++)
		if (strcmp(t->sim->teams[i].job, t->job) == 0 && t->sim->teams[i].run != t->run) {
			fault_blame(t, FAULT_STRANGER, -1, OTHER_RUN);
			/* the end of a sentence about several reducers may be cut */
			fault_blame(t, FAULT_STRANGER, -1, "its workers have not all left yet");
			fault_blame(t, FAULT_STRANGER, -1, "gave up after");
			break;
		}
	/* a stranger of the generation before may still wait for its ranks */
	for (unsigned i = 0; t->before && i < t->before->faults_n; i++)
		if (t->before->faults[i].kind == FAULT_STRANGER) {
			fault_blame(t, FAULT_STRANGER, -1, OTHER_RUN);
			fault_blame(t, FAULT_STRANGER, -1, "gave up after");
		}
}

void fault_after_birth(struct rank *k)
{
	struct team *t = k->team;

	blame_namesakes(t);
	if (t->sim->jobs_most < t->sim->teams_n)
		fault_blame(t, FAULT_NONE, -1, "as many as its server.max_jobs allows");
	/* a rank that starts late detects it late */
	for (unsigned i = 0; i < t->blame_n; i++)
		t->blame[i].at_us = t->sim->now_us;
	for (unsigned i = 0; i < t->faults_n; i++) {
		struct fault *f = &t->faults[i];

		if (f->kind == FAULT_ABSENT && !f->struck) {
			f->struck = true;
			blame_rank(t, f, false);
			/* such a job gives up early, maybe for another reason */
			fault_blame(t, f->kind, -1, "gave up after");
		}
		if (f->kind == FAULT_IMPOSTOR && !f->struck) {
			f->struck = true;
			impose(t, f->reducer);
		}
		if (f->rank != k->index)
			continue;
		begin_misbehaving(k, f);
		if (f->after_op == UINT32_MAX)
			sim_in(t->sim, f->in_us, EV_FAULT, t->index, i);
	}
}

void fault_after_op(struct rank *k, unsigned op)
{
	struct team *t = k->team;

	for (unsigned i = 0; i < t->faults_n; i++) {
		struct fault *f = &t->faults[i];

		if (f->rank != k->index)
			continue;
		if (f->kind == FAULT_MISMATCH && op == f->op) {
			f->struck = true;
			fault_blame(t, f->kind, -1, "disagree about operation");
			fault_blame(t, f->kind, -1, "no rank says that it is the root");
		}
		if (op == f->after_op)
			sim_in(t->sim, f->in_us, EV_FAULT, t->index, i);
	}
}

void fault_after_goodbye(struct rank *k)
{
	struct team *t = k->team;

	for (unsigned i = 0; i < t->faults_n; i++) {
		struct fault *f = &t->faults[i];

		if (f->kind != FAULT_FEWER || f->rank != k->index)
			continue;
		f->struck = true;
		blame_rank(t, f, false);
		t->blame[t->blame_n - 1].within_ms += 10000; /* others may miss a rank much later */
	}
}

static bool fault_is(const struct rank *k, enum fault_kind kind)
{
	const struct team *t = k->team;

	for (unsigned i = 0; i < t->faults_n; i++)
		if (t->faults[i].kind == kind && t->faults[i].rank == k->index)
			return true;
	return false;
}

bool fault_absent(const struct rank *k)
{
	return fault_is(k, FAULT_ABSENT);
}

bool fault_stranger(const struct rank *k)
{
	return fault_is(k, FAULT_STRANGER);
}

/* ---- other processes ---- */

void unauth_connect(struct sim *s, struct reducer *r)
{
	uint8_t bytes[200];
	struct iovec iov = {bytes, 1 + sim_below(s, sizeof bytes)};
	struct conn *c;

	if (r->state != REDUCER_UP)
		return;
	s->stats->unauth++;
	c = net_connect(s, NULL, 0, r);
	c->up = c->end[REDUCER].open = true;
	if (s->guarded && sim_chance(s, 80)) {
		sim_in(s, 10, EV_ACCEPT, c->id, r->life);
		sim_in(s, sim_below(s, 4000000), EV_UNAUTH_END, c->id, 0);
		guard_replay_connect(s, c);
		return;
	}
	for (unsigned i = 0; i < sizeof bytes; i++)
		bytes[i] = (uint8_t)sim_random(s);
	if (sim_chance(s, 50))
		memcpy(bytes, "RS\1\1", 4);
	sim_in(s, 10, EV_ACCEPT, c->id, r->life);
	net_write(c, WORKER, &iov, 1);
	sim_in(s, sim_below(s, 4000000), EV_UNAUTH_END, c->id, 0);
}

void unauth_readable(struct conn *c)
{
	uint8_t waste[64];
	struct iovec iov = {waste, sizeof waste};
	ssize_t got;

	while ((got = net_read(c, WORKER, &iov, 1)) > 0)
		guard_replay_readable(c);
	if (got != NET_AGAIN)
		net_close(c, WORKER);
}
