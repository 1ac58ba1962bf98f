/* SPDX-License-Identifier: Apache-2.0 */
/* One TCP connection of the engine. The happy path is: resolve, connect, then read into and send from where the
 * exchange says, until it wants the connection shut down. Failure modes are: the name or the connect fails (told to the
 * exchange, which comes back with CONNECT after a while), or a read or a write fails. After a failed write what the
 * peer said last is read first: most likely an ABORT that explains it. Reads go on until the socket is empty, but not
 * for ever: poll is level-triggered and comes back. */
#include "agent/engine_lookup.h"
#include "agent/engine_tcp.h"
#include "agent/engine_uv.h"

#include <ctype.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void on_poll(uv_poll_t *h, int status, int events);

/* "[v6]:port" or "host:port" */
int conn_init(struct conn *c, struct engine *en, unsigned link, struct rs_err *e)
{
	const char *address = exchange_address(en->x, link);
	const char *colon = strrchr(address, ':');
	const char *host = address;
	size_t len = colon ? (size_t)(colon - address) : 0;
	char *end;
	long port;

	c->en = en;
	c->link = link;
	c->fd = -1;
	if (len > 2 && host[0] == '[' && host[len - 1] == ']') {
		host++;
		len -= 2;
	}
	if (len == 0 || len >= sizeof c->host)
		return rs_fail(e, RS_ECONFIG, "\"%s\" is not an address; host:port was expected", address);
	errno = 0;
	port = strtol(colon + 1, &end, 10);
	if (*end || end == colon + 1 || port < 1 || port > 65535)
		return rs_fail(e, RS_ECONFIG,
			       "\"%s\" is not an address; host:port with a port of 1 to 65535 was expected", address);
	memcpy(c->host, host, len);
	c->host[len] = '\0';
	snprintf(c->port, sizeof c->port, "%ld", port);
	return RS_OK;
}

bool conn_closed(const struct conn *c)
{
	return c->state == CONN_IDLE && !c->lookup;
}

/* The two places where bytes pass between the socket and the exchange. -1 with errno. */
static ssize_t io_recv(struct conn *c, struct iovec *iov, unsigned n)
{
	struct msghdr m = {.msg_iov = iov, .msg_iovlen = n};

	return recvmsg(c->fd, &m, 0);
}

static ssize_t io_send(struct conn *c, struct iovec *iov, unsigned n)
{
	struct msghdr m = {.msg_iov = iov, .msg_iovlen = n};

	return sendmsg(c->fd, &m, MSG_NOSIGNAL);
}

/* strerror as the end of a sentence */
static const char *reason_text(int error, char *buf, size_t size)
{
	errno = error;
	if (error == 0)
		snprintf(buf, size, "it closed the connection");
	else
		snprintf(buf, size, "%m"); /* strerror is not thread-safe */
	if (isupper((unsigned char)buf[0]) && islower((unsigned char)buf[1]))
		buf[0] = (char)tolower((unsigned char)buf[0]);
	return buf;
}

static void log_conn(struct conn *c, const char *event, const char *reason)
{
	rs_log(c->en->opt.log, RS_LOG_DEBUG, event, rs_kv_s("address", exchange_address(c->en->x, c->link)),
	       rs_kv_u("connection", c->link), rs_kv_s("reason", reason));
}

static void on_closed(uv_handle_t *h)
{
	struct conn *c = h->data;

	close(c->fd);
	c->fd = -1;
	c->state = CONN_IDLE;
	engine_settle(c->en);
}

static void shut_down(struct conn *c)
{
	if (c->state == CONN_CONNECTING || c->state == CONN_UP) {
		c->state = CONN_CLOSING;
		uv_close((uv_handle_t *)&c->poll, on_closed);
	} else if (c->state == CONN_RESOLVING) {
		c->state = CONN_IDLE; /* conn_looked_up sees that we went on */
	}
}

/* The connection failed, or the peer closed it (error 0). */
static void lose(struct conn *c, int error)
{
	char buf[128];

	reason_text(error, buf, sizeof buf);
	log_conn(c, c->state == CONN_UP ? "reducer-disconnected" : "reducer-unreachable", buf);
	shut_down(c);
	exchange_disconnected(c->en->x, c->link, buf, uv_now(&c->en->loop));
}

static void count(_Atomic uint64_t *counter, size_t n)
{
	/* one thread writes: no locked instruction is needed */
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n, memory_order_relaxed);
}

/* Reads once. Returns the bytes that were asked for and not there (> 0: the socket is empty), 0 when there may be
 * more, -1 at the end with *error set. */
static ssize_t read_once(struct conn *c, size_t *total, int *error)
{
	struct iovec iov[2];
	unsigned n = exchange_recv_target(c->en->x, c->link, iov);
	size_t asked = 0;
	ssize_t got;

	for (unsigned i = 0; i < n; i++)
		asked += iov[i].iov_len;
	if (asked == 0)
		return 1; /* the exchange wants the connection closed */
	do
		got = io_recv(c, iov, n);
	while (got < 0 && errno == EINTR);
	if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		return (ssize_t)asked;
	*error = got < 0 ? errno : 0;
	if (got <= 0)
		return -1;
	*total += (size_t)got;
	count(&c->en->rx_bytes, (size_t)got);
	exchange_received(c->en->x, c->link, (size_t)got, uv_now(&c->en->loop));
	return (ssize_t)asked - got;
}

/* The write side failed: what stands unread may say why. */
static void lose_after_write(struct conn *c, int error)
{
	size_t total = 0;
	int ignored;

	while (total < CONN_READ_AHEAD * 4 && read_once(c, &total, &ignored) == 0)
		continue;
	lose(c, error);
}

static void poll_for(struct conn *c, int events)
{
	if (events == c->events)
		return;
	c->events = events;
	uv_poll_start(&c->poll, events, on_poll);
}

static void take_signal(struct conn *c)
{
	struct window_signal signal = {.local = c->local};

	if (exchange_wants_signal(c->en->x, c->link) && (c->local || tcp_signal(c->fd, &signal)))
		exchange_signal(c->en->x, c->link, &signal, uv_now(&c->en->loop));
}

/* Sends until the socket is full or nothing is left. Afterwards the connection may be gone. */
static void conn_write(struct conn *c)
{
	struct iovec iov[CONN_IOVECS];
	bool full = false;
	unsigned n;

	take_signal(c);
	while (!full && (n = exchange_send_target(c->en->x, c->link, iov, CONN_IOVECS)) > 0) {
		size_t left = 0;
		ssize_t sent;

		for (unsigned i = 0; i < n; i++)
			left += iov[i].iov_len;
		sent = io_send(c, iov, n);
		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
			lose_after_write(c, errno);
			return;
		}
		full = sent < (ssize_t)left;
		if (sent > 0) {
			count(&c->en->tx_bytes, (size_t)sent);
			exchange_sent(c->en->x, c->link, (size_t)sent, uv_now(&c->en->loop));
		}
	}
	poll_for(c, UV_READABLE | (full ? UV_WRITABLE : 0));
}

static void conn_read(struct conn *c)
{
	size_t total = 0;
	int error;

	for (unsigned i = 0; i < CONN_READS; i++) {
		ssize_t rc = read_once(c, &total, &error);

		if (rc < 0) {
			lose(c, error);
			return;
		}
		if (rc > 0)
			break;
		if (total >= CONN_READ_AHEAD) {
			total = 0;
			conn_write(c);
			if (c->state != CONN_UP)
				return;
		}
	}
	conn_write(c);
}

static void finish_connect(struct conn *c)
{
	int error = 0;
	socklen_t len = sizeof error;

	if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
		error = errno;
	/* a port of this machine that nobody listens on may answer from the very socket that connects */
	if (!error && tcp_peer(c->fd) == TCP_PEER_SELF)
		error = ECONNREFUSED;
	if (error) {
		lose(c, error);
		return;
	}
	c->state = CONN_UP;
	c->shut = false;
	c->local = tcp_peer(c->fd) == TCP_PEER_LOCAL;
	log_conn(c, "reducer-connected", "");
	exchange_connected(c->en->x, c->link, uv_now(&c->en->loop));
	conn_service(c);
}

static void on_poll(uv_poll_t *h, int status, int events)
{
	struct conn *c = h->data;

	if (status < 0)
		c->events = 0; /* libuv has stopped the handle */
	if (c->state == CONN_CONNECTING)
		finish_connect(c);
	else if (c->state == CONN_UP && (status < 0 || (events & UV_READABLE)))
		conn_read(c);
	else if (c->state == CONN_UP)
		conn_write(c);
	engine_settle(c->en);
}

static int open_socket(struct conn *c, const struct addrinfo *a)
{
	unsigned timeout_ms = c->en->opt.cfg->timeouts.detect_ms;
	int one = 1;
	int fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	/* no TCP_NOTSENT_LOWAT: urgent chunks wait behind what the socket holds, but the window keeps that short */
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
	if (connect(fd, a->ai_addr, a->ai_addrlen) < 0 && errno != EINPROGRESS) {
		int error = errno;

		close(fd);
		errno = error;
		return -1;
	}
	return fd;
}

/* Each try takes the next of the name's addresses. */
static void connect_to(struct conn *c, const struct addrinfo *list)
{
	const struct addrinfo *a;
	unsigned n = 0;

	for (a = list; a; a = a->ai_next)
		n++;
	a = list;
	for (unsigned skip = c->tries++ % n; skip > 0; skip--)
		a = a->ai_next;
	c->fd = open_socket(c, a);
	if (c->fd < 0) {
		int error = errno;

		c->state = CONN_IDLE;
		lose(c, error);
		return;
	}
	if (uv_poll_init(&c->en->loop, &c->poll, c->fd) < 0) {
		close(c->fd);
		c->fd = -1;
		c->state = CONN_IDLE;
		lose(c, EIO);
		return;
	}
	c->poll.data = c;
	c->state = CONN_CONNECTING;
	c->events = 0;
	poll_for(c, UV_WRITABLE);
}

void conn_looked_up(struct conn *c)
{
	struct addrinfo *list;
	char buf[CONN_HOST_MAX + 96];
	int rc;

	if (!c->lookup || !lookup_take(c->lookup, &rc, &list))
		return;
	c->lookup = NULL;
	if (c->state == CONN_RESOLVING && rc == 0) {
		connect_to(c, list);
	} else if (c->state == CONN_RESOLVING) {
		snprintf(buf, sizeof buf, "its name cannot be resolved: %s", gai_strerror(rc));
		c->state = CONN_IDLE;
		log_conn(c, "reducer-unreachable", buf);
		exchange_disconnected(c->en->x, c->link, buf, uv_now(&c->en->loop));
	}
	if (list)
		freeaddrinfo(list);
}

void conn_forget(struct conn *c)
{
	if (c->lookup)
		lookup_abandon(c->lookup);
	c->lookup = NULL;
}

/* Numeric addresses need no lookup, which would use another thread. */
static void begin_connect(struct conn *c)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
	struct addrinfo *list;

	exchange_connecting(c->en->x, c->link, uv_now(&c->en->loop));
	if (getaddrinfo(c->host, c->port, &hints, &list) == 0) {
		connect_to(c, list);
		freeaddrinfo(list);
		return;
	}
	c->lookup = lookup_start(c->host, c->port, &c->en->wake, &c->en->looked_up);
	if (!c->lookup) {
		lose(c, ENOMEM);
		return;
	}
	c->state = CONN_RESOLVING;
}

void conn_service(struct conn *c)
{
	struct exchange *x = c->en->x;

	switch (exchange_want(x, c->link, uv_now(&c->en->loop))) {
	case EXCHANGE_CONNECT:
		if (conn_closed(c))
			begin_connect(c);
		break;
	case EXCHANGE_SHUTDOWN:
		if (c->state == CONN_UP && !c->shut) {
			c->shut = true;
			shutdown(c->fd, SHUT_WR);
			poll_for(c, UV_READABLE);
		}
		break;
	case EXCHANGE_CLOSE:
		shut_down(c);
		exchange_disconnected(x, c->link, "", uv_now(&c->en->loop));
		break;
	case EXCHANGE_NOTHING:
		if (c->state == CONN_UP)
			conn_write(c);
		break;
	}
}
