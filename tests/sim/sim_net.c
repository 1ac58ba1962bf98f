/* SPDX-License-Identifier: Apache-2.0 */
/* Connections like TCP: bytes in order, in pieces of any size, sockets of any size,
 * half-close, resets. The happy path is: written -> (delay) arrived -> read. Failure
 * modes: an end closes with bytes unread, or is written to afterwards (the peer gets a
 * reset); the connection is cut (both get one) or goes dark (all bytes are lost); a
 * message is too large for the path (it is lost, and so are all bytes behind it). A
 * worker whose bytes are lost gets an error after its detection time
 * (TCP_USER_TIMEOUT). */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

struct conn *net_connect(struct sim *s, struct rank *rank, unsigned link, struct reducer *r)
{
	struct conn *c = calloc(1, sizeof *c);

	if (!c)
		abort();
	if (s->conns_n == s->conns_size) {
		s->conns_size = s->conns_size ? 2 * s->conns_size : 64;
		s->conns = realloc(s->conns, s->conns_size * sizeof(*s->conns));
		if (!s->conns)
			abort();
	}
	c->sim = s;
	c->id = s->conns_n;
	s->conns[s->conns_n++] = c;
	c->rank = rank;
	c->link = link;
	c->reducer = r;
	c->delay_us = 1 + r->far_us + sim_below(s, s->delay_us);
	c->jitter_us = sim_chance(s, 30) ? s->jitter_us : s->jitter_us / 16;
	c->piece = s->piece;
	c->born_us = s->now_us;
	c->end[WORKER].open = true;
	for (int side = 0; side < 2; side++) {
		c->to[side].cap = s->socket_bytes;
		c->to[side].buf = malloc(c->to[side].cap);
		if (!c->to[side].buf)
			abort();
	}
	return c;
}

/* Returns when bytes sent now to `side` arrive: later than all before them. */
static uint64_t arrival(struct conn *c, enum side side)
{
	struct stream *st = &c->to[side];
	uint64_t at = c->sim->now_us + c->delay_us + sim_below(c->sim, c->jitter_us + 1);

	st->last_at_us = at > st->last_at_us ? at : st->last_at_us + 1;
	return st->last_at_us;
}

static void send_reset(struct conn *c, enum side to)
{
	if (!c->dark[to])
		sim_at(c->sim, arrival(c, to), EV_RESET, c->id, to);
}

static bool readable(const struct conn *c, enum side side)
{
	const struct end *e = &c->end[side];
	const struct stream *st = &c->to[side];

	return e->open && (st->arrived || e->reset_in || (e->fin_in && !st->len));
}

/* Returns whether the process reads this end now. If not, it will read by itself when it
 * does again. */
static bool watched(const struct conn *c, enum side side)
{
	if (side == WORKER)
		return !c->rank || !rank_stopped(c->rank);
	return c->phase != PHASE_NONE && c->phase != PHASE_HANDED;
}

ssize_t net_read(struct conn *c, enum side side, const struct iovec *iov, unsigned n)
{
	struct stream *st = &c->to[side];
	struct end *writer = &c->end[!side];
	size_t got = 0, most;

	if (!st->arrived) {
		if (c->end[side].reset_in)
			return NET_BROKEN;
		return c->end[side].fin_in && !st->len ? 0 : NET_AGAIN;
	}
	most = sim_chance(c->sim, 50) ? st->arrived : 1 + sim_below(c->sim, st->arrived);
	for (unsigned i = 0; i < n; i++) {
		size_t off = 0;

		while (off < iov[i].iov_len && got < most) {
			size_t run = st->cap - st->head;

			run = run < most - got ? run : most - got;
			run = run < iov[i].iov_len - off ? run : iov[i].iov_len - off;
			memcpy((uint8_t *)iov[i].iov_base + off, st->buf + st->head, run);
			st->head = (uint32_t)((st->head + run) % st->cap);
			off += run;
			got += run;
		}
	}
	c->moved_us = c->sim->now_us;
	st->arrived -= (uint32_t)got;
	st->len -= (uint32_t)got;
	if (writer->open && writer->blocked && got) {
		writer->blocked = false;
		sim_in(c->sim, c->delay_us, EV_WRITE, c->id, !side);
	}
	return (ssize_t)got;
}

static void put(struct conn *c, enum side to, const uint8_t *bytes, size_t n)
{
	struct stream *st = &c->to[to];
	uint64_t damaged = c->corrupt_side == to ? c->corrupt_at : 0;

	c->moved_us = c->sim->now_us;
	trace_bytes(c, !to, bytes, n);
	if (to == REDUCER)
		guard_record(c, bytes, n);
	for (size_t i = 0; i < n;) {
		size_t at = (st->head + st->len) % st->cap, run = st->cap - at < n - i ? st->cap - at : n - i;

		memcpy(st->buf + at, bytes + i, run);
		st->len += (uint32_t)run;
		i += run;
	}
	if (damaged > st->total && damaged <= st->total + n) {
		trace(c->sim, "connection %u: a byte is damaged", c->id);
		st->buf[(st->head + st->len - (st->total + n - damaged) - 1) % st->cap] ^= 0x10;
	}
	st->total += n;
	c->sim->stats->bytes += n;
}

/* Returns the most bytes of a message that the path does not lose; 0: no limit. A larger
 * one is sent again and again, so nothing behind it arrives. */
static uint32_t path_limit(const struct conn *c, enum side to)
{
	return c->rank ? c->rank->narrow[c->reducer->index][to] : 0;
}

static bool is_probe(const struct iovec *iov)
{
	return iov->iov_len >= FRAME_HEADER && ((const uint8_t *)iov->iov_base)[3] == FRAME_PROBE;
}

void net_reserve(struct conn *c, enum side side, size_t bytes)
{
	struct stream *st = &c->to[!side];
	uint32_t cap = st->len + (uint32_t)bytes;
	uint8_t *buf;

	if (cap <= st->cap)
		return;
	buf = malloc(cap);
	if (!buf)
		abort();
	for (uint32_t i = 0; i < st->len; i++)
		buf[i] = st->buf[(st->head + i) % st->cap];
	free(st->buf);
	st->buf = buf;
	st->cap = cap;
	st->head = 0;
}

ssize_t net_write(struct conn *c, enum side side, const struct iovec *iov, unsigned n)
{
	enum side to = !side;
	struct stream *st = &c->to[to];
	size_t room = st->cap - st->len, sent = 0;

	if (c->end[side].reset_in)
		return NET_BROKEN;
	if (!room || sim_chance(c->sim, c->sim->balk)) {
		c->end[side].blocked = !room;
		if (room)
			sim_in(c->sim, sim_below(c->sim, 200), EV_WRITE, c->id, side);
		return NET_AGAIN;
	}
	/* what is sent at once is cut up only by a path that takes all sizes */
	if (!path_limit(c, to) && sim_chance(c->sim, 60)) {
		size_t piece = 1 + sim_below(c->sim, c->piece);

		room = room < piece ? room : piece;
	}
	for (unsigned i = 0; i < n && sent < room; i++) {
		size_t take = iov[i].iov_len < room - sent ? iov[i].iov_len : room - sent;

		put(c, to, iov[i].iov_base, take);
		sent += take;
	}
	if (!c->stuck[to] && path_limit(c, to) && sent > path_limit(c, to)) {
		trace(c->sim, "connection %u: %zu bytes are too large for the path", c->id, sent);
		c->sim->stats->probes += is_probe(iov);
		c->stuck[to] = true;
		fault_narrowed(c);
	}
	if (side == WORKER && c->rank && !c->unheard && (c->dark[to] || c->stuck[to])) {
		c->unheard = true;
		sim_in(c->sim, c->rank->team->cfg.timeouts.detect_ms * UINT64_C(1000), EV_TIMED_OUT, c->id, side);
	}
	if (c->stuck[to])
		return (ssize_t)sent;
	sim_at(c->sim, arrival(c, to), EV_ARRIVE, c->id, (uint32_t)sent << 1 | to);
	return (ssize_t)sent;
}

void net_shutdown(struct conn *c, enum side side)
{
	if (c->end[side].shut)
		return;
	c->end[side].shut = true;
	if (!c->dark[!side] && !c->stuck[!side])
		sim_at(c->sim, arrival(c, !side), EV_FIN, c->id, !side);
}

void net_close(struct conn *c, enum side side)
{
	struct end *e = &c->end[side];

	if (!e->open)
		return;
	if (c->to[side].arrived)
		send_reset(c, !side);
	else
		net_shutdown(c, side);
	e->open = false;
	c->to[side].len -= c->to[side].arrived;
	c->to[side].arrived = 0;
}

bool net_acknowledges(const struct conn *c)
{
	return c->end[WORKER].open && !c->dark[WORKER] && !c->dark[REDUCER] && !c->stuck[WORKER];
}

void net_cut(struct conn *c)
{
	trace(c->sim, "connection %u is cut", c->id);
	for (int side = 0; side < 2; side++) {
		struct stream *st = &c->to[side];

		if (!c->dark[side] && st->len > st->arrived && c->end[side].open)
			st->arrived += sim_below(c->sim, st->len - st->arrived + 1);
		st->len = st->arrived;
		st->last_at_us = c->sim->now_us;
		c->dark[side] = true;
		sim_in(c->sim, sim_below(c->sim, c->jitter_us + 1), EV_RESET, c->id, (uint32_t)side);
	}
}

void net_look_again(struct conn *c, enum side side)
{
	if (c->end[side].read_due || !readable(c, side) || !watched(c, side))
		return;
	c->end[side].read_due = true;
	sim_in(c->sim, 1 + sim_below(c->sim, 50), EV_READ, c->id, side);
}

static void look(struct conn *c, enum side side)
{
	if (!readable(c, side) || !watched(c, side))
		return;
	if (side == REDUCER)
		reducer_readable(c);
	else if (c->relay)
		uplink_readable(c);
	else if (c->rank)
		rank_readable(c);
	else if (!c->relayed)
		unauth_readable(c);
	net_look_again(c, side);
}

static void arrive(struct conn *c, enum side side, uint32_t n)
{
	struct stream *st = &c->to[side];

	if (c->dark[side])
		return;
	if (!c->end[side].open) {
		st->len -= n < st->len ? n : st->len;
		send_reset(c, !side);
		return;
	}
	st->arrived += n;
	if (sim_chance(c->sim, 75))
		look(c, side);
	else
		net_look_again(c, side);
}

void net_event(struct conn *c, const struct sim_event *ev)
{
	enum side side = ev->b & 1;
	struct end *e = &c->end[side];

	switch (ev->type) {
	case EV_ARRIVE:
		arrive(c, side, ev->b >> 1);
		break;
	case EV_FIN:
		if (c->dark[side])
			break;
		e->fin_in = true;
		look(c, side);
		break;
	case EV_RESET:
	case EV_TIMED_OUT:
		c->timed_out |= ev->type == EV_TIMED_OUT && !e->reset_in;
		e->reset_in = true;
		look(c, side);
		break;
	case EV_READ:
		e->read_due = false;
		look(c, side);
		break;
	case EV_WRITE:
		if (!e->open)
			break;
		if (side == REDUCER)
			reducer_writable(c);
		else if (c->relay)
			uplink_writable(c);
		else if (c->rank)
			rank_writable(c);
		break;
	default:
		break;
	}
}

void net_free_all(struct sim *s)
{
	for (unsigned i = 0; i < s->conns_n; i++) {
		free(s->conns[i]->to[WORKER].buf);
		free(s->conns[i]->to[REDUCER].buf);
		handshake_close(&s->conns[i]->shake);
		free(s->conns[i]->impostor_in);
		free(s->conns[i]);
	}
	free(s->conns);
}
