/* SPDX-License-Identifier: Apache-2.0 */
/* Connections in the handshake, in place of handshake_conn_uv.c. The happy path is: HELLO
 * arrives, in pieces of any size -> the registry admits the worker -> its lane takes the
 * connection. Failure modes: invalid bytes, silence, a refusal: REFUSED is sent, and
 * received bytes are discarded until the peer has closed. */
#include "tests/sim/sim.h"

#include <string.h>

enum {
	REFUSED_LINGER_MS = 1000,
	HANDSHAKE_MS = 2000,
	KEEP_MS = 5000, /* shorter than a reducer's, so that it ends within a run */
	INTRUDER_TRIES = 40,
};

static void turn_away(struct conn *c)
{
	c->phase = PHASE_NONE;
	net_close(c, REDUCER);
	handshake_close(&c->shake);
}

static void refuse(struct conn *c, const struct control_refused *refused)
{
	uint8_t frame[HANDSHAKE_FRAME_MAX];
	uint32_t len = handshake_pack_refused(frame, refused);

	trace(c->sim, "r%u refuses connection %u: %s", c->reducer->index, c->id, refused->message);
	c->sim->stats->refused++;
	if (!guard_send(c, REDUCER, frame, len)) {
		turn_away(c);
		return;
	}
	net_shutdown(c, REDUCER);
	c->phase = PHASE_REFUSED;
	c->deadline_ms = sim_ms(c->sim) + REFUSED_LINGER_MS;
}

static void intruder_in(struct reducer *r, uint32_t us)
{
	r->intruder.at_us = r->sim->now_us + us;
	sim_in(r->sim, us, EV_INTRUDER, r->index, r->life << 8);
}

/* Lets another process come with the HELLO of a rank that has joined. */
static void draw_intruder(struct conn *c, const struct control_hello *hello)
{
	struct reducer *r = c->reducer;
	struct sim *s = c->sim;

	if (r->intruder.rank || !c->rank || !sim_chance(s, 5) || c->rank->stalled)
		return;
	r->intruder = (struct intruder){.hello = *hello, .rank = c->rank};
	r->intruder.hello.incarnation = sim_random(s);
	s->stats->intruders++;
	intruder_in(r, sim_below(s, sim_chance(s, 50) ? 100000 : 5000000));
}

/* A rank has left or died: the process that wants its place comes at once, before the
 * reducer can know. */
void accept_rank_ended(const struct rank *k)
{
	struct sim *s = k->sim;

	for (unsigned i = 0; i < s->reducers_n; i++) {
		struct reducer *r = &s->reducers[i];

		if (r->state == REDUCER_UP && r->intruder.rank == k && !r->intruder.tries)
			intruder_in(r, sim_below(s, 1000));
	}
}

/* Returns whether another job of this name has begun: it may have another world size, and
 * end because of the intruder.
 */
static bool harms_others(const struct intruder *in)
{
	const struct team *own = in->rank->team;

	for (unsigned i = 0; i < own->sim->teams_n; i++) {
		const struct team *t = &own->sim->teams[i];

		if (t != own && t->born && strcmp(t->job, own->job) == 0)
			return true;
	}
	return false;
}

/* An intruder is refused for good only if the rank lived when it came, and then it must
 * be. If there is no job with a rank in its place any more, it may join: it leaves at
 * once. */
void accept_intruder(struct reducer *r)
{
	struct intruder *in = &r->intruder;
	struct control_refused no = {0};
	struct registry_admit admit;
	struct sim *s = r->sim;
	bool taken;

	if (!in->rank || s->now_us != in->at_us)
		return;
	if (harms_others(in)) {
		in->rank = NULL;
		return;
	}
	if (!in->tries)
		in->late = in->rank->state != RANK_ALIVE;
	if (!registry_hello(r->registry, &in->hello, &admit, &no)) {
		registry_session_closed(r->registry, admit.stripe.job, in->hello.rank, in->hello.lane, false);
		in->rank = NULL;
		return;
	}
	taken = strcasestr(no.message, "is already taken by") != NULL;
	trace(s, "r%u refuses an intruder%s: %s", r->index, no.retry ? "" : " for good", no.message);
	if (taken && !no.retry && in->late)
		sim_fail(s, "r%u refuses a process for good in the place of a rank that has gone: %s", r->index,
			 no.message);
	s->stats->intruders_refused += taken && !no.retry;
	if (no.retry && ++in->tries < INTRUDER_TRIES) {
		intruder_in(r, in->late ? sim_below(s, 5000) : 100000);
		return;
	}
	if (taken && no.retry && !in->rank->team->faults_n && in->rank->state == RANK_ALIVE)
		sim_fail(s, "r%u lets a process retry in the place of a rank that lives: %s", r->index, no.message);
	in->rank = NULL;
}

static void greet(struct conn *c, const struct handshake_result *who)
{
	struct control_refused refused = {0};
	struct registry_admit admit;

	if (c->replays)
		sim_fail(c->sim, "who says again what was recorded is taken for rank %u of job %s", who->hello.rank,
			 who->hello.job);
	if (c->sim->guarded && c->rank && guard_blames(c->rank))
		sim_fail(c->sim, "%s rank %u is taken in, but it %s", c->rank->team->job, c->rank->index,
			 guard_blames(c->rank));
	if (guard_is_impostor(c)) {
		guard_impose_window(c, &who->hello);
		accept_readable(c);
		return;
	}
	if (registry_hello(c->reducer->registry, &who->hello, &admit, &refused)) {
		if (refused.retry)
			c->sim->stats->retried++;
		refuse(c, &refused);
	} else {
		handshake_close(&c->shake);
		c->sim->stats->kept += c->kept;
		draw_intruder(c, &who->hello);
		reducer_hand_over(c, &admit, &who->welcome);
		registry_admitted(c->reducer->registry, admit.stripe.job);
	}
}

/* Processes n bytes at the target. Returns false if no more may be received. */
static bool take(struct conn *c, size_t n)
{
	struct handshake_result res;

	switch (handshake_received(&c->shake, n, &res)) {
	case HANDSHAKE_MORE:
		return true;
	case HANDSHAKE_SEND:
		if (guard_is_impostor(c)) {
			guard_impose(c);
			accept_readable(c);
			return false;
		}
		if (guard_send(c, REDUCER, res.frame, res.frame_len))
			return true;
		turn_away(c);
		break;
	case HANDSHAKE_ADMIT:
		greet(c, &res);
		break;
	case HANDSHAKE_PROBED: /* the simulated workers do not ask */
		turn_away(c);
		break;
	case HANDSHAKE_REFUSED:
		refuse(c, &res.refused);
		break;
	}
	return false;
}

static void read_frames(struct conn *c)
{
	ssize_t got;

	do {
		uint8_t *at;
		struct iovec iov = {.iov_len = handshake_target(&c->shake, &at)};

		iov.iov_base = at;
		got = net_read(c, REDUCER, &iov, 1);
	} while (got > 0 && take(c, (size_t)got));
	if (got <= 0 && got != NET_AGAIN)
		turn_away(c);
}

void accept_return(struct conn *c, const struct frame_rest *rest)
{
	struct rs_err e;

	if (!c->end[REDUCER].open)
		return;
	c->phase = PHASE_HANDSHAKE;
	c->kept = true;
	c->deadline_ms = sim_ms(c->sim) + KEEP_MS;
	if (handshake_init_again(&c->shake, &c->reducer->policy, rest->skip, &e)) {
		sim_fail(c->sim, "handshake_init_again: %s", e.msg);
		return;
	}
	for (uint32_t off = 0; off < rest->have;) {
		uint8_t *at;
		size_t len = handshake_target(&c->shake, &at);

		len = len < rest->have - off ? len : rest->have - off;
		memcpy(at, rest->bytes + off, len);
		off += (uint32_t)len;
		if (!take(c, len))
			return;
	}
	net_look_again(c, REDUCER);
}

void accept_conn(struct conn *c)
{
	if (c->reducer->state != REDUCER_UP || !c->end[REDUCER].open)
		return;
	c->phase = PHASE_HANDSHAKE;
	c->deadline_ms = sim_ms(c->sim) + HANDSHAKE_MS;
	handshake_init(&c->shake, &c->reducer->policy);
	net_look_again(c, REDUCER);
}

void accept_readable(struct conn *c)
{
	uint8_t waste[256];
	struct iovec iov = {waste, sizeof waste};
	ssize_t got;

	if (c->phase == PHASE_HANDSHAKE) {
		read_frames(c);
	} else if (c->phase == PHASE_IMPOSTOR) {
		if (!guard_impostor_reads(c))
			turn_away(c);
	} else if (c->phase == PHASE_REFUSED) {
		while ((got = net_read(c, REDUCER, &iov, 1)) > 0)
			continue;
		if (got != NET_AGAIN)
			turn_away(c);
	}
}

void accept_tick(struct reducer *r)
{
	struct control_refused refused;

	for (unsigned i = 0; i < r->sim->conns_n; i++) {
		struct conn *c = r->sim->conns[i];

		if (c->reducer != r || sim_ms(r->sim) < c->deadline_ms)
			continue;
		if (c->phase == PHASE_REFUSED || (c->phase == PHASE_HANDSHAKE && c->kept)) {
			turn_away(c);
		} else if (c->phase == PHASE_HANDSHAKE) {
			refused = handshake_refusal_timeout(handshake_missing(&c->shake), HANDSHAKE_MS);
			refuse(c, &refused);
		}
	}
}
