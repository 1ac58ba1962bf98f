/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of ranks, and the connections of reducers that relay for them, in place of
 * lane_uplink.c. */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

/* Draws without the run's numbers, so that everything else stays as it was without
 * groups. */
static uint32_t draw(uint64_t *state, uint32_t n)
{
	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(*state >> 33) % n;
}

/* The group of a reducer, for which alone it relays. */
static unsigned group_of_reducer(const struct team *t, unsigned reducer)
{
	return (reducer + t->index) % t->cfg.groups_n;
}

void groups_draw(struct sim *s, struct team *t)
{
	uint64_t state = s->seed * UINT64_C(0x9e3779b97f4a7c15) + t->index;
	unsigned shards = t->cfg.sharding.shards;

	t->groups = calloc(SIM_GROUPS, sizeof *t->groups);
	t->relays = calloc((size_t)SIM_GROUPS * SIM_SHARDS, sizeof *t->relays);
	if (!t->groups || !t->relays)
		abort();
	if (!t->cfg.job.retain || s->reducers_n < 2 || draw(&state, 100) >= s->grouped)
		return;
	t->cfg.groups = t->groups;
	t->cfg.relays = t->relays;
	t->cfg.groups_n = 2 + draw(&state, SIM_GROUPS - 1);
	for (unsigned g = 0; g < t->cfg.groups_n; g++)
		snprintf(t->groups[g].name, sizeof t->groups[g].name, "rack%u", g);
	for (unsigned r = 0; r < SIM_WORLD; r++)
		t->group_of[r] = draw(&state, t->cfg.groups_n);
	for (unsigned g = 0; g < t->cfg.groups_n; g++)
		for (unsigned i = 0; i < shards; i++) {
			unsigned reducer = draw(&state, s->reducers_n);
			bool relays = group_of_reducer(t, reducer) == g && draw(&state, 100) < 80;

			t->relays[g * shards + i] = relays ? (uint16_t)reducer : RS_NO_RELAY;
		}
	/* what it sums in groups may be rounded at their borders, or not after a loss;
	 * only a deterministic job has the same bits then */
	t->exact = !t->cfg.job.deterministic;
	t->relay_above = draw(&state, 100) < 80 ? 0 : 2000;
}

/* Returns the team of an uplink. */
static struct team *team_of(struct sim *s, const struct control_hello *h)
{
	for (unsigned i = 0; i < s->teams_n; i++)
		if (strcmp(s->teams[i].job, h->job) == 0 && s->teams[i].generation == h->generation)
			return &s->teams[i];
	return NULL;
}

static void begin_connect(struct lane_thread_sim *t, struct uplink *u)
{
	struct sim *s = t->reducer->sim;
	struct conn *c = net_connect(s, NULL, 0, &s->reducers[uplink_reducer(u)]);

	c->relay = t;
	c->uplink = u;
	c->relayed = team_of(s, uplink_hello_of(u));
	uplink_set_user(u, c);
	sim_in(s, 1 + sim_below(s, 2 * c->delay_us), EV_CONNECT, c->id, 0);
}

static void forget(struct conn *c)
{
	struct uplink *u = c->uplink;

	net_close(c, WORKER);
	c->uplink = NULL;
	c->relay = NULL;
	uplink_closed(u);
}

static void lose(struct conn *c, const char *why)
{
	trace(c->sim, "r%u loses uplink %u: %s", c->relay->reducer->index, c->id, why);
	uplink_lost(c->uplink, why, sim_ms(c->sim));
	forget(c);
}

static void write_all(struct conn *c)
{
	struct iovec iov[2];
	unsigned n;

	while ((n = uplink_send_target(c->uplink, iov))) {
		ssize_t sent = net_write(c, WORKER, iov, n);

		if (sent == NET_AGAIN)
			return;
		if (sent == NET_BROKEN) {
			lose(c, "broken pipe");
			return;
		}
		c->sim->stats->relayed += (uint64_t)sent;
		uplink_sent(c->uplink, (size_t)sent, sim_ms(c->sim));
	}
}

/* Reads once; returns false if there is no more for now, or the uplink is lost. */
static bool read_once(struct conn *c)
{
	struct iovec iov[2];
	unsigned n = uplink_recv_target(c->uplink, iov);
	ssize_t got = n ? net_read(c, WORKER, iov, n) : NET_AGAIN;

	if (got == NET_AGAIN)
		return false;
	if (got <= 0) {
		lose(c, got ? "connection reset by peer" : "it closed the connection");
		return false;
	}
	uplink_received(c->uplink, (size_t)got, sim_ms(c->sim));
	return true;
}

void uplinks_serve(struct lane_thread_sim *t)
{
	struct uplink *u;

	while ((u = lane_next_uplink(t->core))) {
		enum uplink_want want = uplink_want(u);
		struct conn *c = uplink_user(u);

		if (want == UPLINK_CONNECT)
			begin_connect(t, u);
		else if (want == UPLINK_CLOSE && c)
			forget(c);
		else if (c && c->up)
			write_all(c);
	}
}

void uplink_connect(struct conn *c)
{
	struct lane_thread_sim *t = c->relay;

	if (!c->uplink || (c->reducer->state == REDUCER_GONE && c->reducer->silent))
		return;
	if (c->reducer->state != REDUCER_UP) {
		lose(c, "connection refused");
	} else {
		c->up = c->end[REDUCER].open = true;
		sim_in(c->sim, sim_below(c->sim, 2 * c->delay_us), EV_ACCEPT, c->id, c->reducer->life);
		uplink_connected(c->uplink, NULL, 0, sim_ms(c->sim));
		write_all(c);
	}
	reducer_flush(t);
}

void uplink_readable(struct conn *c)
{
	struct lane_thread_sim *t = c->relay;

	for (unsigned i = 1 + sim_below(c->sim, 4); c->uplink && i > 0 && read_once(c); i--)
		continue;
	reducer_flush(t);
}

void uplink_writable(struct conn *c)
{
	struct lane_thread_sim *t = c->relay;

	if (c->up)
		write_all(c);
	reducer_flush(t);
}

void uplinks_off(struct reducer *r, bool silent)
{
	for (unsigned i = 0; i < r->sim->conns_n; i++) {
		struct conn *c = r->sim->conns[i];

		if (!c->relay || c->relay->reducer != r)
			continue;
		if (silent)
			c->dark[WORKER] = c->dark[REDUCER] = true;
		forget(c);
	}
}

struct conn *uplink_any(struct sim *s, const struct team *t)
{
	unsigned first = sim_below(s, s->conns_n + 1);

	for (unsigned i = 0; i < s->conns_n; i++) {
		struct conn *c = s->conns[(first + i) % s->conns_n];

		if (c->relayed == t && c->relay && c->up)
			return c;
	}
	return NULL;
}
