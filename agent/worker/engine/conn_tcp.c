/* SPDX-License-Identifier: Apache-2.0 */
/* One TCP connection of the engine. The happy path: resolve, connect, TLS handshake if
 * wanted, then read into and send from where the exchange says, until it wants the
 * connection shut down. Failure modes: the name, the connect or TLS fails (reported to
 * the exchange, which asks for CONNECT again later); a read or a write fails. After a
 * failed write, pending input is read first: it is most likely an ABORT that explains the
 * failure. Reads continue until the socket is empty, but with a limit: epoll is
 * level-triggered and reports the socket again. */
#include "agent/worker/core/exchange_trace.h"
#include "agent/worker/engine/address.h"
#include "agent/worker/engine/engine_uv.h"
#include "agent/worker/engine/tcp.h"
#include "common/tcp_conn.h"
#include "proto/control.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	CONN_IOVECS = 32,            /* a header and a payload each: up to 16 chunks in one system call */
	CONN_TURN = 3,               /* if links take turns: one chunk */
	CONN_READS = 32,             /* system calls for one connection before the others are served */
	CONN_READ_AHEAD = 256 << 10, /* bytes read before the room that they made is used for sending */
};

enum conn_state {
	CONN_IDLE,       /* nothing is open */
	CONN_RESOLVING,  /* waits for the host's addresses */
	CONN_CONNECTING, /* waits until the socket is writable */
	CONN_SECURING,   /* waits for the TLS handshake */
	CONN_UP,
};

/* The TCP connection of one link. Invariant: from CONN_CONNECTING on tcp.fd >= 0 and the
 * socket is polled. */
struct tcp {
	struct conn conn;
	struct engine_address address;
	enum conn_state state;
	bool shut;       /* the sending side is shut down */
	bool local;      /* both ends are on this machine */
	uint32_t serial; /* of the socket: reports of an earlier socket are ignored */
	uint32_t events; /* polled events */
	uint64_t pace;   /* bytes a second at which the socket may send; 0: any */
	struct tcp_conn tcp;
};

static uint64_t conn_tcp_now(const struct tcp *c)
{
	return uv_now(&c->conn.en->loop);
}

static unsigned conn_tcp_reducer(const struct tcp *c)
{
	return exchange_reducer(c->conn.en->x, c->conn.link);
}

/* This connection is no longer the TLS leader: connections that waited for it may be
 * made. */
static void conn_tcp_release(struct tcp *c)
{
	if (engine_tls_release(&c->conn.en->tls, conn_tcp_reducer(c), c))
		exchange_poke(c->conn.en->x);
}

static void conn_tcp_log(struct tcp *c, const char *event, const char *reason)
{
	rs_log(c->conn.en->opt.log, RS_LOG_DEBUG, event,
	       rs_kv_s("address", exchange_address(c->conn.en->x, c->conn.link)), rs_kv_u("connection", c->conn.link),
	       rs_kv_s("reason", reason));
}

static void conn_tcp_close(struct tcp *c)
{
	conn_tcp_release(c);
	if (c->state >= CONN_CONNECTING) {
		engine_poll_remove(&c->conn.en->poll, c->tcp.fd);
		tcp_conn_close(&c->tcp);
		c->serial++;
	}
	c->state = CONN_IDLE; /* if it was CONN_RESOLVING, conn_tcp_looked_up ignores the result */
}

/* Another attempt does not change the reason. */
static void conn_tcp_reject(struct tcp *c, const char *why)
{
	conn_tcp_close(c);
	exchange_rejected(c->conn.en->x, c->conn.link, why, conn_tcp_now(c));
}

/* The connection failed or could not be made: reports it. */
static void conn_tcp_lose_how(struct tcp *c, const char *why, enum rs_loss how)
{
	conn_tcp_log(c, c->state == CONN_UP ? "reducer-disconnected" : "reducer-unreachable", why);
	if (c->state == CONN_SECURING)
		engine_tls_failed(&c->conn.en->tls, conn_tcp_reducer(c), why, conn_tcp_now(c));
	if (c->state >= CONN_SECURING && tcp_conn_rejected(&c->tcp)) {
		conn_tcp_reject(c, why);
		return;
	}
	conn_tcp_close(c);
	exchange_disconnected(c->conn.en->x, c->conn.link, why, how, conn_tcp_now(c));
}

static void conn_tcp_lose(struct tcp *c, const char *why)
{
	conn_tcp_lose_how(c, why, RS_LOSS_OTHER);
}

static enum rs_loss conn_tcp_how(int error)
{
	return error == ETIMEDOUT ? RS_LOSS_SILENT : error == ECONNRESET ? RS_LOSS_RESET : RS_LOSS_OTHER;
}

/* The same for a system error, or for the error of the connection itself if 0. */
static void conn_tcp_lose_for(struct tcp *c, int error)
{
	struct tcp_conn w = {.error = error};
	char buf[TCP_CONN_REASON];

	conn_tcp_lose_how(c, tcp_conn_reason(error ? &w : &c->tcp, buf), conn_tcp_how(error ? error : c->tcp.error));
}

/* Reads once: from the socket, or (inside) from TLS's buffer. Returns the bytes that were
 * asked for and not available (> 0: nothing more is available now), 0 if more may be
 * available, -1 at the end. */
static ssize_t conn_tcp_read_once(struct tcp *c, size_t *total, bool inside)
{
	struct iovec iov[2];
	unsigned n = exchange_recv_target(c->conn.en->x, c->conn.link, iov);
	size_t asked = 0;
	ssize_t got;

	for (unsigned i = 0; i < n; i++)
		asked += iov[i].iov_len;
	if (asked == 0)
		return 1; /* the exchange wants the connection closed */
	got = inside ? tcp_conn_recv_inside(&c->tcp, iov, n) : tcp_conn_recv(&c->tcp, iov, n);
	if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		return (ssize_t)asked;
	if (got <= 0)
		return -1;
	conn_tcp_release(c); /* the TLS ticket arrives before everything else */
	*total += (size_t)got;
	engine_count(&c->conn.en->rx_bytes, (size_t)got);
	if (c->conn.en->trace.to)
		exchange_set_us(c->conn.en->x, 0, engine_trace_us(c->conn.en));
	exchange_received(c->conn.en->x, c->conn.link, (size_t)got, conn_tcp_now(c));
	return (ssize_t)asked - got;
}

/* A write failed: unread input may say why. */
static void conn_tcp_lose_after_write(struct tcp *c)
{
	char buf[TCP_CONN_REASON];
	size_t total = 0;

	tcp_conn_reason(&c->tcp, buf);
	while (total < CONN_READ_AHEAD * 4 && conn_tcp_read_once(c, &total, false) == 0)
		continue;
	conn_tcp_lose(c, buf);
}

static uint64_t conn_tcp_key(const struct tcp *c)
{
	return engine_key(c->conn.link, c->serial);
}

static void conn_tcp_poll_for(struct tcp *c, uint32_t events)
{
	if (events == c->events)
		return;
	c->events = events;
	engine_poll_change(&c->conn.en->poll, c->tcp.fd, events, conn_tcp_key(c));
}

static void conn_tcp_take_signal(struct tcp *c)
{
	struct window_signal signal = {.local_bytes = c->local ? WINDOW_LOCAL_BYTES : 0};
	uint64_t busy_us, pace;

	if (exchange_wants_signal(c->conn.en->x, c->conn.link) && (c->local || tcp_signal(c->tcp.fd, &signal))) {
		exchange_signal(c->conn.en->x, c->conn.link, &signal, conn_tcp_now(c));
		pace = exchange_pacing(c->conn.en->x, c->conn.link);
		if (pace != c->pace)
			tcp_conn_pace(c->tcp.fd, pace);
		c->pace = pace;
	}
	if (exchange_wants_load(c->conn.en->x, c->conn.link) && tcp_busy(c->tcp.fd, &busy_us))
		exchange_load(c->conn.en->x, c->conn.link, busy_us, conn_tcp_now(c));
}

/* Sends until the socket is full or nothing is left; in_turn: at most a frame or two. The
 * connection may be lost afterwards. Returns true if in_turn and there may be more. */
static bool conn_tcp_send(struct tcp *c, bool in_turn)
{
	struct iovec iov[CONN_IOVECS];
	bool full = false, sent_any = false;
	unsigned n;

	if (!tcp_conn_flush(&c->tcp)) {
		conn_tcp_lose_after_write(c);
		return false;
	}
	conn_tcp_take_signal(c);
	while (!full && !(in_turn && sent_any) &&
	       (n = exchange_send_target(c->conn.en->x, c->conn.link, iov, in_turn ? CONN_TURN : CONN_IOVECS)) > 0) {
		uint64_t from_us = engine_trace_us(c->conn.en);
		size_t left = 0;
		ssize_t sent;

		for (unsigned i = 0; i < n; i++)
			left += iov[i].iov_len;
		sent = tcp_conn_send(&c->tcp, iov, n);
		if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
			conn_tcp_lose_after_write(c);
			return false;
		}
		full = sent < (ssize_t)left;
		sent_any = true;
		if (sent > 0) {
			engine_count(&c->conn.en->tx_bytes, (size_t)sent);
			if (c->conn.en->trace.to)
				exchange_set_us(c->conn.en->x, from_us, engine_trace_us(c->conn.en));
			exchange_sent(c->conn.en->x, c->conn.link, (size_t)sent, conn_tcp_now(c));
		}
	}
	conn_tcp_poll_for(c, EPOLLIN | (full || tcp_conn_unsent(&c->tcp) ? EPOLLOUT : 0));
	return in_turn && sent_any && !full;
}

static void conn_tcp_write(struct tcp *c)
{
	conn_tcp_send(c, false);
}

static void conn_tcp_read(struct tcp *c)
{
	size_t total = 0;
	ssize_t rc = 0;

	for (unsigned i = 0; i < CONN_READS && rc == 0; i++) {
		rc = conn_tcp_read_once(c, &total, false);
		if (rc == 0 && total >= CONN_READ_AHEAD) {
			total = 0;
			conn_tcp_write(c);
			if (c->state != CONN_UP)
				return;
		}
	}
	while (rc >= 0 && tcp_conn_pending(&c->tcp)) {
		rc = conn_tcp_read_once(c, &total, true);
		if (rc > 0)
			break;
	}
	if (rc < 0)
		conn_tcp_lose_for(c, 0);
	else
		conn_tcp_write(c);
}

static bool conn_tcp_service(struct conn *conn);

/* Reports a reducer without TLS, which answered the TLS handshake with REFUSED. */
static void conn_tcp_lose_foreign(struct tcp *c)
{
	const uint8_t *in = c->tcp.in + c->tcp.in_at;
	struct control_refused refused;
	char text[sizeof refused.message + 64];
	struct frame f;
	struct rs_err e;

	if (c->tcp.in_n < FRAME_HEADER || frame_decode(in, &f, &e) || f.type != FRAME_REFUSED ||
	    c->tcp.in_n < FRAME_HEADER + (size_t)f.payload_len ||
	    control_unpack_refused(in + FRAME_HEADER, f.payload_len, &refused, &e)) {
		conn_tcp_lose_for(c, 0);
		return;
	}
	snprintf(text, sizeof text, "it answered without TLS: %s", refused.message);
	conn_tcp_lose(c, text);
}

static void conn_tcp_up(struct tcp *c)
{
	uint8_t binding[TLS_BINDING];
	char source[RS_ENDPOINT_TEXT];
	struct window_signal signal;
	struct rs_err e;

	if (c->tcp.ssl && tls_binding(c->tcp.ssl, binding, &e)) {
		conn_tcp_lose(c, e.msg);
		return;
	}
	if (c->tcp.ssl)
		exchange_bind(c->conn.en->x, c->conn.link, binding, sizeof binding);
	tcp_source(c->tcp.fd, source);
	exchange_set_source(c->conn.en->x, c->conn.link, source);
	c->pace = 0;
	if (tcp_signal(c->tcp.fd, &signal)) {
		exchange_set_path(c->conn.en->x, c->conn.link, &signal);
		if (signal.min_rtt_us >= RS_LONG_US)
			tcp_conn_pace(c->tcp.fd, 0);
	}
	c->state = CONN_UP;
	c->shut = false;
	c->local = tcp_peer(c->tcp.fd) == TCP_PEER_LOCAL;
	conn_tcp_log(c, "reducer-connected", c->tcp.ssl && SSL_session_reused(c->tcp.ssl) ? "TLS session resumed" : "");
	exchange_connected(c->conn.en->x, c->conn.link, conn_tcp_now(c));
	conn_tcp_service(&c->conn);
}

static void conn_tcp_continue_tls(struct tcp *c)
{
	struct rs_err e;

	switch (tcp_conn_handshake(&c->tcp, &e)) {
	case TCP_CONN_UP:
		conn_tcp_up(c);
		break;
	case TCP_CONN_WAIT:
		conn_tcp_poll_for(c, EPOLLIN | (tcp_conn_unsent(&c->tcp) ? EPOLLOUT : 0));
		break;
	case TCP_CONN_FAILED:
		if (c->tcp.not_tls)
			conn_tcp_lose_foreign(c);
		else
			conn_tcp_lose(c, e.msg);
		break;
	}
}

static void conn_tcp_finish_connect(struct tcp *c)
{
	struct engine_tls *tls = &c->conn.en->tls;
	struct engine_tls_peer *peer = tls->ctx ? &tls->peers[conn_tcp_reducer(c)] : NULL;
	int error = 0;
	socklen_t len = sizeof error;
	struct rs_err e;

	if (getsockopt(c->tcp.fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
		error = errno;
	/* a port of this machine on which no process listens may be answered by the
	 * connecting socket itself */
	if (!error && tcp_peer(c->tcp.fd) == TCP_PEER_SELF)
		error = ECONNREFUSED;
	if (error) {
		conn_tcp_lose_for(c, error);
	} else if (!peer) {
		conn_tcp_up(c);
	} else if (tcp_conn_connect(&c->tcp, c->tcp.fd, tls->ctx, peer->name, &peer->session, &e)) {
		conn_tcp_lose(c, e.msg);
	} else {
		c->state = CONN_SECURING;
		conn_tcp_continue_tls(c);
	}
}

static void conn_tcp_ready(struct conn *conn, uint32_t serial, uint32_t events)
{
	struct tcp *c = (struct tcp *)conn;

	if (serial != c->serial)
		return;
	if (c->state == CONN_CONNECTING)
		conn_tcp_finish_connect(c);
	else if (c->state == CONN_SECURING)
		conn_tcp_continue_tls(c);
	else if (c->state == CONN_UP && (events & (EPOLLIN | EPOLLERR | EPOLLHUP)))
		conn_tcp_read(c);
	else if (c->state == CONN_UP)
		conn_tcp_write(c);
}

static int conn_tcp_open_socket(const struct tcp *c)
{
	const struct sockaddr *at = (const struct sockaddr *)&c->address.at;
	int fd = socket(at->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	/* no TCP_NOTSENT_LOWAT: urgent chunks wait behind data in the socket, but the
	 * window keeps that short */
	tcp_conn_tune(fd, c->conn.en->opt.cfg->timeouts.detect_ms);
	if (connect(fd, at, c->address.at_len) < 0 && errno != EINPROGRESS) {
		int error = errno;

		close(fd);
		errno = error;
		return -1;
	}
	return fd;
}

/* Connects to the address that was found. */
static void conn_tcp_connect(struct tcp *c)
{
	tcp_conn_plain(&c->tcp, conn_tcp_open_socket(c));
	if (c->tcp.fd < 0) {
		int error = errno;

		c->state = CONN_IDLE;
		conn_tcp_lose_for(c, error);
		return;
	}
	c->events = EPOLLOUT;
	if (engine_poll_add(&c->conn.en->poll, c->tcp.fd, c->events, conn_tcp_key(c))) {
		int error = errno;

		tcp_conn_close(&c->tcp);
		c->state = CONN_IDLE;
		conn_tcp_lose_for(c, error);
		return;
	}
	c->state = CONN_CONNECTING;
}

/* Continues with the result of the address lookup. */
static void conn_tcp_resolve(struct tcp *c, enum engine_address_step step, const struct rs_err *why)
{
	switch (step) {
	case ENGINE_ADDRESS_FOUND:
		conn_tcp_connect(c);
		break;
	case ENGINE_ADDRESS_WAIT:
		c->state = CONN_RESOLVING;
		break;
	case ENGINE_ADDRESS_FAILED:
		c->state = CONN_IDLE;
		if (why->code == RS_EREFUSED)
			conn_tcp_reject(c, why->msg);
		else
			conn_tcp_lose(c, why->msg);
		break;
	}
}

static void conn_tcp_looked_up(struct conn *conn)
{
	struct tcp *c = (struct tcp *)conn;
	struct rs_err e;
	enum engine_address_step step =
	    engine_address_take(&c->address, engine_patience_ms(c->conn.en), conn_tcp_now(c), &e);

	if (c->state == CONN_RESOLVING)
		conn_tcp_resolve(c, step, &e);
}

static void conn_tcp_begin(struct tcp *c)
{
	struct engine *en = c->conn.en;
	const char *none;
	struct rs_err e;

	engine_tls_refresh(&en->tls);
	engine_refresh_addresses(en);
	none = engine_choose_address(en, conn_tcp_reducer(c));
	exchange_connecting(en->x, c->conn.link, conn_tcp_now(c));
	if (none)
		conn_tcp_lose(c, none);
	else if (engine_address_set(&c->address, exchange_address(en->x, c->conn.link), &e))
		conn_tcp_lose(c, e.msg);
	else
		conn_tcp_resolve(c, engine_address_begin(&c->address, &en->wake, &en->lookup_ended, &e), &e);
}

static bool conn_tcp_service(struct conn *conn)
{
	struct tcp *c = (struct tcp *)conn;
	struct exchange *x = c->conn.en->x;

	switch (exchange_want(x, c->conn.link, conn_tcp_now(c))) {
	case EXCHANGE_CONNECT:
		if (c->state == CONN_IDLE && !engine_address_busy(&c->address) &&
		    engine_tls_may_connect(&c->conn.en->tls, conn_tcp_reducer(c), c))
			conn_tcp_begin(c);
		break;
	case EXCHANGE_SHUTDOWN:
		if (c->state == CONN_UP && !c->shut) {
			c->shut = true;
			tcp_conn_shutdown(&c->tcp);
			conn_tcp_poll_for(c, EPOLLIN | (tcp_conn_unsent(&c->tcp) ? EPOLLOUT : 0));
		}
		break;
	case EXCHANGE_CLOSE:
		conn_tcp_close(c);
		exchange_disconnected(x, c->conn.link, "", RS_LOSS_OTHER, conn_tcp_now(c));
		break;
	case EXCHANGE_NOTHING:
		return c->state == CONN_UP && conn_tcp_send(c, !c->local);
	}
	return false;
}

static bool conn_tcp_idle(const struct conn *conn)
{
	return ((const struct tcp *)conn)->state == CONN_IDLE;
}

static bool conn_tcp_signal(const struct conn *conn, struct window_signal *ret)
{
	const struct tcp *c = (const struct tcp *)conn;

	return c->state == CONN_UP && tcp_signal(c->tcp.fd, ret);
}

static void conn_tcp_free(struct conn *conn)
{
	struct tcp *c = (struct tcp *)conn;

	engine_address_close(&c->address);
	free(c);
}

int conn_tcp_new(struct conn **ret, struct engine *en, unsigned link, struct rs_err *e)
{
	static const struct conn_ops ops = {
	    .service = conn_tcp_service,
	    .ready = conn_tcp_ready,
	    .idle = conn_tcp_idle,
	    .lookup_ended = conn_tcp_looked_up,
	    .free = conn_tcp_free,
	    .signal = conn_tcp_signal,
	};
	struct tcp *c = calloc(1, sizeof *c);
	int rc;

	if (!c)
		return rs_oom(e, 0, "a connection");
	c->conn = (struct conn){.ops = &ops, .en = en, .link = link};
	c->tcp.fd = -1;
	rc = engine_address_init(&c->address, exchange_address(en->x, link), e);
	if (rc) {
		free(c);
		return rc;
	}
	*ret = &c->conn;
	return RS_OK;
}
