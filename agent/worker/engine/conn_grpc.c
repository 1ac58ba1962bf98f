/* SPDX-License-Identifier: Apache-2.0 */
/* One link of the engine over gRPC: a stream with a connection of its own. The happy
 * path: resolve, open, wait until the peer answers, then read into and send from where
 * the exchange says, until it wants the stream finished. Failure modes: the name or the
 * connection fails, or the peer is not a reducer (reported to the exchange, which asks
 * for CONNECT again later); the stream breaks. Data that arrived before is read first: it
 * is most likely an ABORT that explains the failure. */
#include "agent/worker/core/exchange_trace.h"
#include "agent/worker/engine/address.h"
#include "agent/worker/engine/engine_uv.h"
#include "agent/worker/engine/tcp.h"
#include "common/tcp_conn.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	GRPC_IOVECS = 64,            /* as many chunks as fit one message */
	GRPC_READ_AHEAD = 256 << 10, /* bytes read before the room that they made is used for sending */
	GRPC_TURN = 1 << 20,         /* bytes read before other links are served */
};

enum grpc_state {
	GRPC_IDLE,      /* nothing is open */
	GRPC_RESOLVING, /* waits for the host's addresses */
	GRPC_OPENING,   /* waits for the peer's answer */
	GRPC_UP,
};

/* The gRPC stream of one link. Invariant: stream is not NULL in GRPC_OPENING and
 * GRPC_UP. */
struct grpc {
	struct conn conn;
	struct wakeup wakeup;
	struct engine_address address;
	char name[RS_HOST_MAX]; /* host name that the reducer's certificate must match */
	enum grpc_state state;
	struct rpc_stream *stream;
	struct grpc_socket socket; /* of the stream's connection */
	bool local;                /* both ends are on this machine */
	bool finished;             /* the sending side is finished */
	bool send_failed;          /* sending has failed: reading will say why */
};

static const struct rpc_api *conn_grpc_rpc(const struct grpc *c)
{
	return c->conn.en->grpc.rpc;
}

static uint64_t conn_grpc_now(const struct grpc *c)
{
	return uv_now(&c->conn.en->loop);
}

static void conn_grpc_log(struct grpc *c, const char *event, const char *reason)
{
	rs_log(c->conn.en->opt.log, RS_LOG_DEBUG, event,
	       rs_kv_s("address", exchange_address(c->conn.en->x, c->conn.link)), rs_kv_u("connection", c->conn.link),
	       rs_kv_s("transport", "grpc"), rs_kv_s("reason", reason));
}

static void conn_grpc_close(struct grpc *c)
{
	if (c->stream) {
		conn_grpc_rpc(c)->stream_close(c->stream, RPC_CODE_CANCELLED, "closed");
		wakeup_close(&c->wakeup);
	}
	c->stream = NULL;
	c->socket.fd = -1;
	c->state = GRPC_IDLE; /* conn_grpc_looked_up ignores the result of a lookup */
}

static void conn_grpc_lose_how(struct grpc *c, const char *reason, enum rs_loss how)
{
	conn_grpc_log(c, c->state == GRPC_UP ? "reducer-disconnected" : "reducer-unreachable", reason);
	conn_grpc_close(c);
	exchange_disconnected(c->conn.en->x, c->conn.link, reason, how, conn_grpc_now(c));
}

static void conn_grpc_lose(struct grpc *c, const char *reason)
{
	conn_grpc_lose_how(c, reason, RS_LOSS_OTHER);
}

/* As conn_grpc_lose, for a reason that another attempt does not change. */
static void conn_grpc_reject(struct grpc *c, const char *reason)
{
	conn_grpc_log(c, "reducer-unreachable", reason);
	conn_grpc_close(c);
	exchange_rejected(c->conn.en->x, c->conn.link, reason, conn_grpc_now(c));
}

/* The stream has ended, with or without an error: reports it. */
static void conn_grpc_lose_stream(struct grpc *c, ssize_t rc)
{
	struct rs_err e;
	enum rs_loss how = conn_grpc_rpc(c)->stream_error(c->stream, &e);

	if (rc < 0 && e.code == RS_EREFUSED && c->state == GRPC_OPENING)
		conn_grpc_reject(c, e.msg);
	else
		conn_grpc_lose_how(c, rc == 0 ? "it closed the connection" : e.msg, how);
}

static bool conn_grpc_socket_taken(void *user, uint64_t cookie)
{
	const struct grpc *self = user;
	const struct engine *en = self->conn.en;

	for (unsigned i = 0; i < en->conns_n; i++) {
		const struct grpc *c = (const struct grpc *)en->conns[i];

		if (c != self && c->socket.fd >= 0 && c->socket.cookie == cookie)
			return true;
	}
	return false;
}

static void conn_grpc_take_signal(struct grpc *c)
{
	/* HTTP/2's own window starts at less than two chunks with their frames, so a
	 * second chunk waits until it is moved: 4 workers and 2 reducers at 1 Gbit/s, 4
	 * MiB: 44 MB/s instead of 58; two chunks of 31 KiB, which fit, reach 58 */
	struct window_signal signal = {.local_bytes = c->local ? WINDOW_LOCAL_GRPC_BYTES : 0, .single_chunk = true};

	if (!exchange_wants_signal(c->conn.en->x, c->conn.link))
		return;
	/* without the kernel's signals the window grows to the configured size */
	if (!c->local)
		grpc_socket_signal(&c->socket, &signal);
	exchange_signal(c->conn.en->x, c->conn.link, &signal, conn_grpc_now(c));
}

static void conn_grpc_write(struct grpc *c)
{
	struct iovec iov[GRPC_IOVECS];
	unsigned n;

	conn_grpc_take_signal(c);
	while (!c->finished && !c->send_failed &&
	       (n = exchange_send_target(c->conn.en->x, c->conn.link, iov, GRPC_IOVECS)) > 0) {
		uint64_t from_us = engine_trace_us(c->conn.en);
		ssize_t sent = conn_grpc_rpc(c)->stream_send(c->stream, iov, n);

		if (sent == RPC_AGAIN)
			return;
		c->send_failed = sent < 0;
		if (sent < 0)
			return;
		engine_count(&c->conn.en->tx_bytes, (size_t)sent);
		if (c->conn.en->trace.to)
			exchange_set_us(c->conn.en->x, from_us, engine_trace_us(c->conn.en));
		exchange_sent(c->conn.en->x, c->conn.link, (size_t)sent, conn_grpc_now(c));
	}
}

/* Reads up to `most` bytes. Returns false if the stream is lost or the exchange wants no
 * more of it. */
static bool conn_grpc_read(struct grpc *c, size_t most, size_t *ret)
{
	for (*ret = 0; *ret < most;) {
		struct iovec iov[2];
		unsigned n = exchange_recv_target(c->conn.en->x, c->conn.link, iov);
		ssize_t got = n ? conn_grpc_rpc(c)->stream_recv(c->stream, iov, n) : RPC_AGAIN;

		if (got == RPC_AGAIN)
			return n > 0;
		if (got <= 0) {
			conn_grpc_lose_stream(c, got);
			return false;
		}
		*ret += (size_t)got;
		engine_count(&c->conn.en->rx_bytes, (size_t)got);
		if (c->conn.en->trace.to)
			exchange_set_us(c->conn.en->x, 0, engine_trace_us(c->conn.en));
		exchange_received(c->conn.en->x, c->conn.link, (size_t)got, conn_grpc_now(c));
	}
	return true;
}

/* Reads, and sends what the new room allows. */
static void conn_grpc_run(struct grpc *c)
{
	size_t total = 0, got = GRPC_READ_AHEAD;

	while (got >= GRPC_READ_AHEAD && total < GRPC_TURN) {
		if (!conn_grpc_read(c, GRPC_READ_AHEAD, &got))
			break;
		total += got;
		conn_grpc_write(c);
	}
	if (c->state == GRPC_UP && total >= GRPC_TURN)
		wakeup_send(&c->wakeup);
	else if (c->state == GRPC_UP)
		conn_grpc_write(c);
}

/* The peer has answered. */
static void conn_grpc_up(struct grpc *c)
{
	struct window_signal signal;

	c->state = GRPC_UP;
	c->finished = c->send_failed = false;
	if (!c->local && !grpc_socket_find(&c->socket, (struct sockaddr *)&c->address.at, conn_grpc_socket_taken, c))
		conn_grpc_log(c, "socket-not-found", "the window has no signals, and the connection no keepalives");
	if (c->socket.fd >= 0)
		tcp_conn_keep_alive(c->socket.fd);
	conn_grpc_log(c, "reducer-connected", "");
	if (grpc_socket_signal(&c->socket, &signal))
		exchange_set_path(c->conn.en->x, c->conn.link, &signal);
	exchange_connected(c->conn.en->x, c->conn.link, conn_grpc_now(c));
}

static void conn_grpc_on_woken(struct wakeup *w)
{
	struct grpc *c = (struct grpc *)((char *)w - offsetof(struct grpc, wakeup));
	struct engine *en = c->conn.en;
	ssize_t rc;

	if (c->state == GRPC_OPENING) {
		if (conn_grpc_rpc(c)->stream_up(c->stream)) {
			conn_grpc_up(c);
		} else {
			/* received data stays there until the stream is up */
			rc = conn_grpc_rpc(c)->stream_recv(c->stream, NULL, 0);
			if (rc != RPC_AGAIN)
				conn_grpc_lose_stream(c, rc);
		}
	}
	if (c->state == GRPC_UP)
		conn_grpc_run(c);
	engine_process(en);
}

/* Opens a stream to the address that was found. */
static void conn_grpc_open_stream(struct grpc *c)
{
	struct rpc_open_options opt = {
	    .authority = c->name, .path = "/reduction.v1.Reducer/Exchange", .waker = wakeup_waker(&c->wakeup)};
	const struct sockaddr *at = (const struct sockaddr *)&c->address.at;
	char host[INET6_ADDRSTRLEN + 32], address[sizeof host + 16];
	struct rpc_tls tls;
	struct rs_err e;

	c->state = GRPC_IDLE;
	if (getnameinfo(at, c->address.at_len, host, sizeof host, NULL, 0, NI_NUMERICHOST)) {
		conn_grpc_lose(c, "its address cannot be converted to text");
		return;
	}
	snprintf(address, sizeof address, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, c->address.to.port);
	c->local = tcp_reaches_itself(at, c->address.at_len);
	opt.address = address;
	opt.tls = engine_grpc_tls(&c->conn.en->grpc, &tls, conn_grpc_now(c));
	if (conn_grpc_rpc(c)->stream_open(&c->stream, c->conn.en->grpc.client, &opt, &e)) {
		c->stream = NULL;
		conn_grpc_lose(c, e.msg);
		return;
	}
	c->state = GRPC_OPENING;
}

/* Continues with the result of the address lookup. */
static void conn_grpc_resolve(struct grpc *c, enum engine_address_step step, const struct rs_err *why)
{
	switch (step) {
	case ENGINE_ADDRESS_FOUND:
		conn_grpc_open_stream(c);
		break;
	case ENGINE_ADDRESS_WAIT:
		c->state = GRPC_RESOLVING;
		break;
	case ENGINE_ADDRESS_FAILED:
		if (why->code == RS_EREFUSED)
			conn_grpc_reject(c, why->msg);
		else
			conn_grpc_lose(c, why->msg);
		break;
	}
}

static void conn_grpc_looked_up(struct conn *conn)
{
	struct grpc *c = (struct grpc *)conn;
	struct rs_err e;
	enum engine_address_step step =
	    engine_address_take(&c->address, engine_patience_ms(c->conn.en), conn_grpc_now(c), &e);

	if (c->state == GRPC_RESOLVING)
		conn_grpc_resolve(c, step, &e);
}

static void conn_grpc_begin(struct grpc *c)
{
	unsigned reducer = exchange_reducer(c->conn.en->x, c->conn.link);
	struct engine *en = c->conn.en;
	const char *none;
	struct rs_err e;

	engine_refresh_addresses(en);
	none = engine_choose_address(en, reducer);
	rs_config_tls_name(&en->addresses.reducers[reducer], c->name);
	exchange_connecting(en->x, c->conn.link, conn_grpc_now(c));
	if (none)
		conn_grpc_lose(c, none);
	else if (engine_address_set(&c->address, exchange_address(en->x, c->conn.link), &e))
		conn_grpc_lose(c, e.msg);
	else
		conn_grpc_resolve(c, engine_address_begin(&c->address, &en->wake, &en->lookup_ended, &e), &e);
}

static bool conn_grpc_service(struct conn *conn)
{
	struct grpc *c = (struct grpc *)conn;
	struct exchange *x = conn->en->x;

	switch (exchange_want(x, conn->link, conn_grpc_now(c))) {
	case EXCHANGE_CONNECT:
		if (c->state == GRPC_IDLE && !engine_address_busy(&c->address))
			conn_grpc_begin(c);
		break;
	case EXCHANGE_SHUTDOWN:
		if (c->state == GRPC_UP && !c->finished) {
			c->finished = true;
			conn_grpc_rpc(c)->stream_finish(c->stream);
		}
		break;
	case EXCHANGE_CLOSE:
		conn_grpc_close(c);
		exchange_disconnected(x, conn->link, "", RS_LOSS_OTHER, conn_grpc_now(c));
		break;
	case EXCHANGE_NOTHING:
		if (c->state == GRPC_UP)
			conn_grpc_write(c);
		break;
	}
	return false;
}

static bool conn_grpc_idle(const struct conn *conn)
{
	return ((const struct grpc *)conn)->state == GRPC_IDLE;
}

static void conn_grpc_free(struct conn *conn)
{
	struct grpc *c = (struct grpc *)conn;

	conn_grpc_close(c);
	engine_address_close(&c->address);
	free(c);
}

int conn_grpc_new(struct conn **ret, struct engine *en, unsigned link, struct rs_err *e)
{
	static const struct conn_ops ops = {.service = conn_grpc_service,
					    .idle = conn_grpc_idle,
					    .lookup_ended = conn_grpc_looked_up,
					    .free = conn_grpc_free};
	struct grpc *c = calloc(1, sizeof *c);
	int rc;

	if (!c)
		return rs_oom(e, 0, "a connection");
	c->conn = (struct conn){.ops = &ops, .en = en, .link = link};
	c->socket.fd = -1;
	wakeup_init(&c->wakeup, &en->wakeups, conn_grpc_on_woken);
	rc = engine_address_init(&c->address, exchange_address(en->x, link), e);
	if (rc) {
		free(c);
		return rc;
	}
	*ret = &c->conn;
	return RS_OK;
}
