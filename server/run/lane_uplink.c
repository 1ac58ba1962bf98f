/* SPDX-License-Identifier: Apache-2.0 */
/* The happy path of a connection: the name is looked up -> the socket is connected -> TLS
 * -> bytes move where the core says. Failure modes: each step may fail, which the core
 * hears with the reason; it says when to try again. */
#include "server/run/lane_uplink.h"

#include "common/address.h"
#include "common/auth.h"
#include "common/loop_uv.h"
#include "common/tcp_conn.h"
#include "common/tls.h"
#include "config/tls_texts.h"
#include "server/core/lane.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { UPLINK_READS = 32 }; /* system calls for one connection before others are served */

enum lane_uplink_state { LOOKING_UP, CONNECTING, SECURING, UP };

/* One connection. Invariant: from CONNECTING on tcp.fd >= 0 and `poll` watches it. With
 * core NULL it is closed and waits for libuv. */
struct lane_uplink {
	LIST_ENTRY(lane_uplink) link;
	struct lane_uplinks *all;
	struct uplink *core;
	enum lane_uplink_state state;
	uv_getaddrinfo_t lookup;
	uv_poll_t poll;
	int events;
	bool blocked; /* the socket takes no more bytes now */
	struct tcp_conn tcp;
	SSL_SESSION *session;
};

static void uplink_conn_watch(struct lane_uplink *c);

static void uplink_conn_free(uv_handle_t *h)
{
	struct lane_uplink *c = h->data;

	tcp_conn_close(&c->tcp);
	SSL_SESSION_free(c->session);
	free(c);
}

/* Closes the connection and tells the core. */
static void uplink_conn_close(struct lane_uplink *c)
{
	struct uplink *u = c->core;

	c->core = NULL;
	LIST_REMOVE(c, link);
	if (c->state == LOOKING_UP)
		uv_cancel((uv_req_t *)&c->lookup); /* uplink_conn_looked_up frees it */
	else
		uv_close((uv_handle_t *)&c->poll, uplink_conn_free);
	uplink_closed(u);
}

static void uplink_conn_fail(struct lane_uplink *c, const char *why)
{
	uplink_lost(c->core, why, uv_now(c->all->loop));
	uplink_conn_close(c);
}

static void uplink_conn_fail_for(struct lane_uplink *c, int error)
{
	struct tcp_conn w = {.error = error};
	char reason[TCP_CONN_REASON];

	uplink_conn_fail(c, tcp_conn_reason(error ? &w : &c->tcp, reason));
}

static void uplink_conn_up(struct lane_uplink *c)
{
	uint8_t binding[TLS_BINDING];
	struct rs_err e;

	if (c->tcp.ssl && tls_binding(c->tcp.ssl, binding, &e)) {
		uplink_conn_fail(c, e.msg);
		return;
	}
	c->state = UP;
	uplink_connected(c->core, binding, c->tcp.ssl ? sizeof binding : 0, uv_now(c->all->loop));
}

static void uplink_conn_secure(struct lane_uplink *c)
{
	struct rs_err e;

	switch (tcp_conn_handshake(&c->tcp, &e)) {
	case TCP_CONN_UP:
		uplink_conn_up(c);
		break;
	case TCP_CONN_FAILED:
		uplink_conn_fail(c, e.msg);
		break;
	case TCP_CONN_WAIT:
		break;
	}
}

/* The socket is connected: begins with TLS, if the configuration has it. */
static void uplink_conn_begin(struct lane_uplink *c)
{
	const struct rs_reducer *r = &c->all->homes[uplink_reducer(c->core)].at;
	char name[RS_HOST_MAX];
	SSL_CTX *ctx = NULL;
	int fd = c->tcp.fd, error = 0, rc = RS_OK;
	socklen_t len = sizeof error;
	struct rs_err e;

	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) || error) {
		uplink_conn_fail_for(c, error ? error : errno);
		return;
	}
	/* read for each connection, so that renewed certificates count */
	if (c->all->cfg->security.tls != TLS_OFF)
		rc = rs_config_tls_context(&ctx, RS_TLS_WORKER, c->all->cfg, &e);
	rs_config_tls_name(r, name);
	if (!rc && ctx)
		rc = tcp_conn_connect(&c->tcp, fd, ctx, name, &c->session, &e);
	else
		tcp_conn_plain(&c->tcp, fd);
	SSL_CTX_free(ctx);
	if (rc) {
		uplink_conn_fail(c, e.msg);
		return;
	}
	tcp_conn_tune(fd, c->all->cfg->timeouts.detect_ms);
	c->state = SECURING;
	if (c->tcp.ssl)
		uplink_conn_secure(c);
	else
		uplink_conn_up(c);
}

/* Reads once, from the bytes that TLS holds (`inside`) or from the socket. Returns
 * whether there may be more. */
static bool uplink_conn_receive(struct lane_uplink *c, bool inside)
{
	struct iovec iov[2];
	unsigned n = uplink_recv_target(c->core, iov);
	size_t room = 0;
	ssize_t got;

	if (!n)
		return false;
	for (unsigned k = 0; k < n; k++)
		room += iov[k].iov_len;
	got = inside ? tcp_conn_recv_inside(&c->tcp, iov, n) : tcp_conn_recv(&c->tcp, iov, n);
	if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		return false;
	if (got == 0)
		uplink_conn_fail(c, "it closed the connection");
	else if (got < 0)
		uplink_conn_fail_for(c, 0);
	if (got <= 0)
		return false;
	uplink_received(c->core, (size_t)got, uv_now(c->all->loop));
	return (size_t)got == room || tcp_conn_pending(&c->tcp);
}

static void uplink_conn_read(struct lane_uplink *c)
{
	for (int i = 0; i < UPLINK_READS && uplink_conn_receive(c, false); i++)
		;
	while (c->core && tcp_conn_pending(&c->tcp) && uplink_conn_receive(c, true))
		; /* no poll reports these */
}

static void uplink_conn_write(struct lane_uplink *c)
{
	struct iovec iov[2];
	unsigned n;

	if (!tcp_conn_flush(&c->tcp)) {
		uplink_conn_fail_for(c, 0);
		return;
	}
	while (!c->blocked && (n = uplink_send_target(c->core, iov)) > 0) {
		ssize_t sent = tcp_conn_send(&c->tcp, iov, n);

		if (sent >= 0) {
			uplink_sent(c->core, (size_t)sent, uv_now(c->all->loop));
		} else if (errno == EAGAIN || errno == EWOULDBLOCK) {
			c->blocked = true;
		} else {
			uplink_conn_read(c); /* the home may have said why */
			if (c->core)
				uplink_conn_fail_for(c, 0);
			return;
		}
	}
}

static void uplink_conn_on_poll(uv_poll_t *poll, int status, int events)
{
	struct lane_uplink *c = poll->data;
	struct lane_uplinks *all = c->all;

	(void)status; /* the next system call returns the real error */
	if (c->core && c->state == CONNECTING && events & UV_WRITABLE)
		uplink_conn_begin(c);
	else if (c->core && c->state == SECURING)
		uplink_conn_secure(c);
	if (events & UV_WRITABLE)
		c->blocked = false;
	if (c->core && c->state == UP && events & UV_READABLE)
		uplink_conn_read(c);
	if (c->core && c->state == UP)
		uplink_conn_write(c);
	if (c->core)
		uplink_conn_watch(c);
	lane_uplinks_serve(all);
}

static void uplink_conn_watch(struct lane_uplink *c)
{
	bool write = c->state == CONNECTING || c->blocked || tcp_conn_unsent(&c->tcp);
	int events = UV_READABLE | (write ? UV_WRITABLE : 0);

	if (events != c->events)
		uv_poll_start(&c->poll, events, uplink_conn_on_poll);
	c->events = events;
}

/* Begins to connect. Returns the error number. */
static int uplink_conn_dial_one(struct lane_uplink *c, const struct addrinfo *to)
{
	int fd = socket(to->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), error = ENOMEM;

	if (fd < 0)
		return errno;
	if (connect(fd, to->ai_addr, to->ai_addrlen) && errno != EINPROGRESS) {
		error = errno;
	} else if (!rs_poll_init(c->all->loop, &c->poll, fd, NULL)) {
		c->poll.data = c;
		c->tcp.fd = fd;
		return 0;
	}
	close(fd);
	return error;
}

/* Begins to connect to the address whose turn it is, or to the next one for which that
 * can begin. Returns the error number. */
static int uplink_conn_dial(struct lane_uplink *c, const struct addrinfo *list)
{
	unsigned n = 0, *tries = &c->all->homes[uplink_reducer(c->core)].tries;
	const struct addrinfo *to = list;
	int error = EADDRNOTAVAIL;

	for (const struct addrinfo *a = list; a; a = a->ai_next)
		n++;
	for (unsigned skip = n ? *tries % n : 0; skip > 0; skip--)
		to = to->ai_next;
	for (unsigned i = 0; i < n && error; i++) {
		error = uplink_conn_dial_one(c, to);
		to = to->ai_next ? to->ai_next : list;
		++*tries;
	}
	return error;
}

static void uplink_conn_looked_up(uv_getaddrinfo_t *req, int status, struct addrinfo *list)
{
	struct lane_uplink *c = req->data;
	int error = 0;

	if (c->core && !status)
		error = uplink_conn_dial(c, list);
	uv_freeaddrinfo(list);
	if (!c->core) {
		free(c);
		return;
	}
	if (status || error) {
		uplink_lost(c->core, status ? uv_strerror(status) : strerror(error), uv_now(c->all->loop));
		LIST_REMOVE(c, link);
		uplink_closed(c->core);
		free(c);
		return;
	}
	c->state = CONNECTING;
	uplink_conn_watch(c);
}

/* Reducers may change their addresses: reads the file again if it has changed. */
static void uplinks_refresh(struct lane_uplinks *all)
{
	struct rs_config_source found;
	struct rs_config fresh;
	struct rs_err e;

	if (!all->source.file[0])
		return;
	rs_config_source(&found, all->source.file); /* before it is read: a later change is seen the next time */
	if (!found.file[0] || memcmp(&found.stamp, &all->source.stamp, sizeof found.stamp) == 0)
		return; /* while it is replaced, it may be missing */
	all->source.stamp = found.stamp;
	if (rs_config_load(&fresh, all->source.file, &e))
		return; /* the ranks, which read it too, log what is wrong with it */
	for (unsigned i = 0; i < all->cfg->reducers_n; i++)
		rs_config_take_addresses(&all->homes[i].at, &fresh);
	rs_config_close(&fresh);
}

int lane_uplink_random(void *ctx, void *buf, size_t n, struct rs_err *e)
{
	(void)ctx;
	return auth_random(buf, n, e);
}

int lane_uplinks_init(struct lane_uplinks *all, uv_loop_t *loop, struct lane *core, const struct rs_config *cfg,
		      struct rs_err *e)
{
	size_t bytes = cfg->reducers_n * sizeof *all->homes;

	*all = (struct lane_uplinks){.loop = loop, .core = core, .cfg = cfg, .source = cfg->source};
	all->homes = calloc(1, bytes + 1);
	if (!all->homes)
		return rs_oom(e, bytes, "the addresses of the reducers");
	for (unsigned i = 0; i < cfg->reducers_n; i++)
		all->homes[i].at = cfg->reducers[i];
	return RS_OK;
}

void lane_uplinks_free(struct lane_uplinks *all)
{
	free(all->homes);
}

static void uplink_conn_new(struct lane_uplinks *all, struct uplink *u)
{
	const struct rs_reducer *r = &all->homes[uplink_reducer(u)].at;
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
	struct lane_uplink *c = calloc(1, sizeof *c);
	struct rs_host_port to;
	struct rs_err e;

	uplinks_refresh(all);
	if (!c || rs_host_port_split(&to, r->address, false, &e)) {
		free(c);
		uplink_lost(u, "out of memory", uv_now(all->loop));
		uplink_closed(u);
		return;
	}
	c->all = all;
	c->core = u;
	c->tcp.fd = -1;
	c->lookup.data = c;
	LIST_INSERT_HEAD(&all->list, c, link);
	uplink_set_user(u, c);
	if (uv_getaddrinfo(all->loop, &c->lookup, uplink_conn_looked_up, to.host, to.port, &hints)) {
		LIST_REMOVE(c, link);
		free(c);
		uplink_lost(u, "out of memory", uv_now(all->loop));
		uplink_closed(u);
	}
}

void lane_uplinks_serve(struct lane_uplinks *all)
{
	struct uplink *u;

	while ((u = lane_next_uplink(all->core))) {
		enum uplink_want want = uplink_want(u);
		struct lane_uplink *c = uplink_user(u);

		if (want == UPLINK_CONNECT) {
			uplink_conn_new(all, u);
		} else if (want == UPLINK_CLOSE && c) {
			uplink_conn_close(c);
		} else if (c && c->state == UP) {
			uplink_conn_write(c);
			if (c->core)
				uplink_conn_watch(c);
		}
	}
}

void lane_uplinks_close(struct lane_uplinks *all)
{
	struct lane_uplink *c;

	while ((c = LIST_FIRST(&all->list)))
		uplink_conn_close(c);
}
