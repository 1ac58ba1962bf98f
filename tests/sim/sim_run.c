/* SPDX-License-Identifier: Apache-2.0 */
/* One run: it is drawn, runs until all ranks have ended and the reducers are empty, and
 * is checked. */
#include "tests/sim/sim.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum {
	RUN_MOST_MS = 120000, /* virtual time; no run takes that long */
	RUN_GRACE_MS = 6000,  /* for reducers to notice that all ranks have left */
};

void sim_fail(struct sim *s, const char *fmt, ...)
{
	va_list ap;

	if (s->failed)
		return;
	s->failed = true;
	va_start(ap, fmt);
	vsnprintf(s->why, sizeof s->why, fmt, ap);
	va_end(ap);
	trace(s, "FAILED: %s", s->why);
}

void team_birth(struct rank *k)
{
	if (k->state != RANK_UNBORN)
		return;
	if (fault_absent(k))
		rank_end(k, RANK_DEAD);
	else if (!move_birth(k))
		rank_birth(k);
}

/* All reducers have had all ranks: a rank with the same generation is refused with retry
 * until the run is over. */
static bool all_ran(const struct team *t)
{
	for (unsigned r = 0; r < t->world; r++)
		if (!t->ranks[r].running_seen)
			return false;
	return true;
}

/* Starts ranks of the next generation when those before them have ended. */
void team_rank_ended(struct rank *k)
{
	struct sim *s = k->sim;
	struct team *t = k->team, *next = t + 1;
	bool all = t->ended == t->world;
	uint32_t after_us = 0;

	if (t->index + 1 >= s->teams_n || next->before != t || (next->together && !all))
		return;
	/* remains of a failed generation may block the next one for a while */
	if (t->failed && next->generation == t->generation && !next->again && !next->born)
		next->generation++;
	/* while ranks gather, one may end before the reducer notices */
	if (next->generation == t->generation && (t->hit || (next->again && !all_ran(t))))
		after_us = 100000;
	if (!all && next->generation > t->generation) {
		fault_blame(t, FAULT_REPLACED, -1, "replaced generation");
		fault_blame(t, FAULT_REPLACED, -1, "is at generation");
	}
	for (unsigned r = 0; r < next->world; r++)
		if (next->ranks[r].state == RANK_UNBORN && (all || r == k->index))
			sim_in(s, after_us + sim_below(s, 1000), EV_RANK_BIRTH, next->ranks[r].process, 0);
}

static void to_conn(struct sim *s, const struct sim_event *ev)
{
	struct conn *c = s->conns[ev->a];

	if (ev->type == EV_CONNECT && c->relay)
		uplink_connect(c);
	else if (ev->type == EV_CONNECT)
		rank_connect(c);
	else if (ev->type == EV_UNAUTH_END)
		net_close(c, WORKER);
	else if (ev->type == EV_ACCEPT && ev->b == c->reducer->life)
		accept_conn(c);
	else if (ev->type != EV_ACCEPT)
		net_event(c, ev);
}

static void dispatch(struct sim *s, const struct sim_event *ev)
{
	switch ((enum event_type)ev->type) {
	case EV_RANK_BIRTH:
		team_birth(&s->ranks[ev->a]);
		break;
	case EV_RANK_STEP:
		rank_step(&s->ranks[ev->a]);
		break;
	case EV_RANK_TICK:
		rank_tick(&s->ranks[ev->a]);
		break;
	case EV_RANK_RESUME:
		rank_resume(&s->ranks[ev->a]);
		break;
	case EV_RANK_READY:
		rank_ready(&s->ranks[ev->a], ev->b);
		break;
	case EV_CONNECT:
	case EV_ACCEPT:
	case EV_ARRIVE:
	case EV_FIN:
	case EV_RESET:
	case EV_TIMED_OUT:
	case EV_READ:
	case EV_WRITE:
	case EV_UNAUTH_END:
		to_conn(s, ev);
		break;
	case EV_REDUCER_ON:
		if (s->reducers[ev->a].state != REDUCER_UP)
			reducer_on(&s->reducers[ev->a]);
		break;
	case EV_DRAINED:
	case EV_REDUCER_OFF:
	case EV_MAIL:
	case EV_LANE_TICK:
	case EV_LANE_SERVE:
	case EV_REGISTRY_TICK:
	case EV_HANDSHAKE_TICK:
	case EV_INTRUDER:
		reducer_event(&s->reducers[ev->a], ev);
		break;
	case EV_FAULT:
		fault_strike(&s->teams[ev->a], ev->b);
		break;
	case EV_UNAUTH:
		unauth_connect(s, &s->reducers[ev->a]);
		break;
	}
}

static bool reducers_empty(const struct sim *s)
{
	for (unsigned i = 0; i < s->reducers_n; i++)
		if (s->reducers[i].state == REDUCER_UP &&
		    (registry_jobs(s->reducers[i].registry) || s->reducers[i].blocks))
			return false;
	return true;
}

static void name_the_hanging(struct sim *s)
{
	for (unsigned i = 0; i < s->ranks_n; i++) {
		const struct rank *k = &s->ranks[i];

		if (k->state != RANK_ALIVE && k->state != RANK_UNBORN)
			continue;
		sim_fail(s, "hangs: %s rank %u of generation %u has %u operations pending and is %s after %llu ms",
			 k->team->job, k->index, k->team->generation, k->submitted - k->done,
			 k->state == RANK_UNBORN ? "unborn" : "alive", (unsigned long long)sim_ms(s));
	}
}

static void run(struct sim *s)
{
	uint64_t until_us = (uint64_t)RUN_MOST_MS * 1000;
	struct sim_event ev;
	unsigned steps = 0;

	while (!s->failed && sim_next(s, &ev) && ev.at_us <= until_us && steps++ < SIM_STEPS) {
		s->now_us = ev.at_us;
		dispatch(s, &ev);
		if (s->ranks_ended < s->ranks_n)
			continue;
		if (until_us == (uint64_t)RUN_MOST_MS * 1000)
			until_us = s->now_us + RUN_GRACE_MS * 1000;
		if (reducers_empty(s))
			break;
	}
	s->stats->steps += steps;
	if (steps >= SIM_STEPS)
		sim_fail(s, "no end after %d events, at %llu ms", SIM_STEPS, (unsigned long long)sim_ms(s));
	if (s->ranks_ended < s->ranks_n)
		name_the_hanging(s);
}

static void release(struct sim *s)
{
	for (unsigned i = 0; i < s->ranks_n; i++)
		if (s->ranks[i].state == RANK_ALIVE)
			rank_drop(&s->ranks[i]);
	for (unsigned i = 0; i < s->reducers_n; i++)
		reducer_off(&s->reducers[i], false);
	net_free_all(s);
	plan_free(s);
	free(s->heap);
}

bool sim_run(uint64_t seed, const struct sim_setup *setup, struct sim_stats *stats, FILE *to, char *why, size_t size)
{
	struct sim *s = calloc(1, sizeof *s);
	bool ok;

	if (!s)
		abort();
	s->seed = s->rng = seed;
	sim_random(s);
	s->base = setup->base;
	s->kernels = setup->kernels;
	s->namesakes = setup->namesakes;
	s->grouped = setup->grouped ? 100 : 40;
	s->stats = stats;
	s->trace = to;
	/* a start time for the cores' clocks, which are never 0 */
	s->now_us = 1000000;
	plan_draw(s);
	run(s);
	if (!s->failed)
		check_end(s);
	release(s);
	stats->seeds++;
	ok = !s->failed;
	snprintf(why, size, "%s", s->why);
	free(s);
	return ok;
}
