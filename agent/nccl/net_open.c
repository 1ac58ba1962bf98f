/* SPDX-License-Identifier: Apache-2.0 */
/* Making connections. The happy path: the handle of the listener has its address and a
 * cookie; the peer opens its TCP connections and sends a greeting with the cookie on
 * each; the listener groups those with one number of a connection. Failure modes: the
 * address cannot be reached, or not within timeouts.connect; someone without the cookie
 * connects, then the listener closes that connection and goes on. */
#include "agent/nccl/net_state.h"
#include "common/address.h"
#include "common/auth.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
	NET_MAGIC = 0x54454e52,  /* "RNET" */
	NET_PENDING = 64,        /* accepted sockets that do not belong to a complete connection */
	NET_GREETING_MS = 10000, /* after which one of them must have sent its greeting */
};

struct net_opening;

/* What listen puts into a handle, and where connect keeps its state between calls. */
struct net_handle {
	uint32_t magic;
	uint8_t cookie[NET_COOKIE];
	union device_address address;
	struct net_opening *opening; /* of this process; NULL: connect has not been called */
};

_Static_assert(sizeof(struct net_handle) <= NCCL_HANDLE_BYTES, "a handle has room for it");

/* The first bytes on each socket. All members are bytes, so it is the same on all
 * machines. */
struct net_greeting {
	uint8_t cookie[NET_COOKIE];
	uint8_t connection[8]; /* random; the sockets of one connection have the same */
	uint8_t socket, sockets;
};

/* A connection that is being made. */
struct net_opening {
	struct net *net;
	struct net_greeting greeting;
	uint64_t since_ms;
	size_t sent[PLUGIN_SOCKETS_MAX]; /* bytes of the greeting on each socket */
};

/* An accepted socket. */
struct net_pending {
	int fd; /* -1: the place is free */
	uint64_t since_ms;
	struct net_greeting greeting;
	size_t received; /* bytes of the greeting; all: it has the cookie */
};

/* A listener. */
struct net_listen {
	struct plugin *plugin;
	int fd;
	uint8_t cookie[NET_COOKIE];
	struct net_pending pending[NET_PENDING];
};

static uint64_t net_now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

struct net *net_new(struct plugin *p, bool sends, unsigned sockets)
{
	struct net *n = calloc(1, sizeof *n);

	if (!n)
		return NULL;
	n->plugin = p;
	n->sends = sends;
	n->sockets = sockets;
	for (unsigned k = 0; k < PLUGIN_SOCKETS_MAX; k++)
		n->fd[k] = -1;
	return n;
}

static void net_print_peer(struct net *n, const struct sockaddr *a)
{
	struct rs_endpoint end;
	char text[RS_ENDPOINT_TEXT] = "?";

	if (rs_endpoint_of_sockaddr(&end, a))
		rs_endpoint_print(&end, text);
	memcpy(n->peer, text, strnlen(text, sizeof n->peer - 1));
}

static void net_set_options(int fd)
{
	int on = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

int net_listen(struct plugin *p, void *handle, struct net_listen **ret)
{
	struct net_handle h = {.magic = NET_MAGIC, .address = p->device.address};
	socklen_t len = sizeof h.address;
	struct net_listen *l;
	struct rs_err e;

	*ret = NULL;
	if (plugin_refuses(p))
		return NCCL_SYSTEM_ERROR;
	l = calloc(1, sizeof *l);
	if (!l) {
		rs_oom(&e, 0, "a listener");
		return plugin_fail(p, &e);
	}
	l->plugin = p;
	for (unsigned i = 0; i < NET_PENDING; i++)
		l->pending[i].fd = -1;
	l->fd = socket(h.address.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (l->fd < 0 || bind(l->fd, &h.address.any, device_address_len(&h.address)) || listen(l->fd, NET_PENDING) ||
	    getsockname(l->fd, &h.address.any, &len)) {
		rs_fail_sys(&e, RS_EIO, errno, "interface %s cannot be listened on", p->device.interface);
		goto close_listen;
	}
	if (auth_random(l->cookie, sizeof l->cookie, &e))
		goto close_listen;
	memcpy(h.cookie, l->cookie, sizeof h.cookie);
	memset(handle, 0, NCCL_HANDLE_BYTES);
	memcpy(handle, &h, sizeof h);
	*ret = l;
	return NCCL_SUCCESS;

close_listen:
	net_close_listen(l);
	return plugin_fail(p, &e);
}

void net_close_listen(struct net_listen *l)
{
	for (unsigned i = 0; i < NET_PENDING; i++)
		if (l->pending[i].fd >= 0)
			close(l->pending[i].fd);
	if (l->fd >= 0)
		close(l->fd);
	free(l);
}

/* Begins to connect all sockets. */
static int net_open(struct plugin *p, const struct net_handle *h, struct net_opening **ret, struct rs_err *e)
{
	struct net_opening *o = calloc(1, sizeof *o);
	int rc;

	if (o)
		o->net = net_new(p, true, p->sockets);
	if (!o || !o->net) {
		free(o);
		return rs_oom(e, 0, "a connection");
	}
	net_print_peer(o->net, &h->address.any);
	o->since_ms = net_now_ms();
	memcpy(o->greeting.cookie, h->cookie, sizeof h->cookie);
	o->greeting.sockets = (uint8_t)p->sockets;
	rc = auth_random(o->greeting.connection, sizeof o->greeting.connection, e);
	for (unsigned k = 0; k < p->sockets && !rc; k++) {
		int fd = socket(h->address.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

		o->net->fd[k] = fd;
		if (fd >= 0)
			net_set_options(fd);
		if (fd < 0 || (connect(fd, &h->address.any, device_address_len(&h->address)) && errno != EINPROGRESS))
			rc = rs_fail_sys(e, RS_EIO, errno, "cannot connect to %s", o->net->peer);
	}
	if (rc) {
		net_close(o->net);
		free(o);
		return rc;
	}
	*ret = o;
	return RS_OK;
}

/* Sends the rest of the greeting on socket k, if it is connected. Returns whether all is
 * sent. */
static bool net_greet(struct net_opening *o, unsigned k, struct rs_err *e)
{
	struct pollfd p = {.fd = o->net->fd[k], .events = POLLOUT};
	const uint8_t *from = (const uint8_t *)&o->greeting + o->sent[k];
	size_t rest = sizeof o->greeting - o->sent[k];
	socklen_t len = sizeof(int);
	int error = 0;
	ssize_t sent;

	if (!rest)
		return true;
	if (poll(&p, 1, 0) <= 0)
		return false;
	if (getsockopt(p.fd, SOL_SOCKET, SO_ERROR, &error, &len) || error) {
		rs_fail_sys(e, RS_EPEER, error, "cannot connect to %s", o->net->peer);
		return false;
	}
	o->greeting.socket = (uint8_t)k;
	sent = send(p.fd, from, rest, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (sent < 0 && errno != EAGAIN && errno != EINTR)
		rs_fail_sys(e, RS_EPEER, errno, "cannot connect to %s", o->net->peer);
	o->sent[k] += sent > 0 ? (size_t)sent : 0;
	return o->sent[k] == sizeof o->greeting;
}

/* Goes on with a connection. Returns whether it is established, or *e is set. */
static bool net_go_on(struct net_opening *o, struct rs_err *e)
{
	uint32_t connect_ms = o->net->plugin->cfg.timeouts.connect_ms;
	unsigned greeted = 0;

	for (unsigned k = 0; k < o->net->sockets && !e->code; k++)
		greeted += net_greet(o, k, e);
	if (!e->code && greeted < o->net->sockets && net_now_ms() - o->since_ms > connect_ms)
		rs_fail(e, RS_ETIMEOUT, "cannot connect to %s within timeouts.connect, %u ms", o->net->peer,
			connect_ms);
	return !e->code && greeted == o->net->sockets;
}

int net_connect(struct plugin *p, void *handle, struct net **ret)
{
	struct rs_err e = {.code = RS_OK};
	struct net_handle h;
	bool done;

	*ret = NULL;
	if (plugin_refuses(p))
		return NCCL_SYSTEM_ERROR;
	memcpy(&h, handle, sizeof h);
	if (h.magic != NET_MAGIC) {
		rs_fail(&e, RS_EMISMATCH, "the other rank uses another network plugin");
		return plugin_fail(p, &e);
	}
	if (!h.opening && net_open(p, &h, &h.opening, &e))
		return plugin_fail(p, &e);
	done = net_go_on(h.opening, &e);
	if (done)
		*ret = h.opening->net;
	else if (e.code)
		net_close(h.opening->net);
	if (done || e.code) {
		free(h.opening);
		h.opening = NULL;
	}
	memcpy(handle, &h, sizeof h);
	return e.code ? plugin_fail(p, &e) : NCCL_SUCCESS;
}

static void net_drop(struct net_pending *w)
{
	close(w->fd);
	*w = (struct net_pending){.fd = -1};
}

/* Returns a free place for an accepted socket. If there is none, the oldest socket
 * without a greeting gives its own. */
static struct net_pending *net_place(struct net_listen *l)
{
	struct net_pending *oldest = NULL;

	for (unsigned i = 0; i < NET_PENDING; i++) {
		struct net_pending *w = &l->pending[i];

		if (w->fd < 0)
			return w;
		if (w->received < sizeof w->greeting && (!oldest || w->since_ms < oldest->since_ms))
			oldest = w;
	}
	if (oldest)
		net_drop(oldest);
	return oldest;
}

/* Reads the greeting of a socket; closes one that sends something else, or nothing for
 * long. */
static void net_read_greeting(struct net_listen *l, struct net_pending *w, uint64_t now_ms)
{
	ssize_t n;

	if (w->fd < 0 || w->received == sizeof w->greeting)
		return;
	n = recv(w->fd, (uint8_t *)&w->greeting + w->received, sizeof w->greeting - w->received, MSG_DONTWAIT);
	w->received += n > 0 ? (size_t)n : 0;
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR) ||
	    (w->received < sizeof w->greeting && now_ms - w->since_ms > NET_GREETING_MS)) {
		net_drop(w);
		return;
	}
	if (w->received == sizeof w->greeting &&
	    (CRYPTO_memcmp(w->greeting.cookie, l->cookie, sizeof l->cookie) || w->greeting.sockets < 1 ||
	     w->greeting.sockets > PLUGIN_SOCKETS_MAX || w->greeting.socket >= w->greeting.sockets))
		net_drop(w);
}

/* After a failed accept: returns whether a peer waits that this process cannot take, for
 * want of descriptors or memory. accept says so also if no peer waits. */
static bool net_has_no_room(const struct net_listen *l, int error)
{
	struct pollfd p = {.fd = l->fd, .events = POLLIN};

	return (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM) && poll(&p, 1, 0) > 0;
}

/* Accepts what has come, after it has read what older sockets have sent: so those that
 * make place are silent. */
static int net_accept_all(struct net_listen *l, uint64_t now_ms, struct rs_err *e)
{
	for (unsigned i = 0; i < NET_PENDING; i++)
		net_read_greeting(l, &l->pending[i], now_ms);
	for (unsigned i = 0; i < NET_PENDING; i++) {
		int fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		struct net_pending *w;

		if (fd < 0) {
			int error = errno;

			return net_has_no_room(l, error) ? rs_fail_sys(e, RS_EIO, error, "cannot accept a connection")
							 : RS_OK;
		}
		w = net_place(l);
		if (!w) {
			close(fd);
			return RS_OK;
		}
		net_set_options(fd);
		*w = (struct net_pending){.fd = fd, .since_ms = now_ms};
		net_read_greeting(l, w, now_ms);
	}
	return RS_OK;
}

/* Finds the sockets of the connection that `like` belongs to. Returns how many. */
static unsigned net_group(struct net_listen *l, const struct net_greeting *like,
			  struct net_pending *ret[PLUGIN_SOCKETS_MAX])
{
	unsigned found = 0;

	memset(ret, 0, PLUGIN_SOCKETS_MAX * sizeof *ret);
	for (unsigned i = 0; i < NET_PENDING; i++) {
		struct net_pending *w = &l->pending[i];
		const struct net_greeting *g = &w->greeting;

		if (w->fd < 0 || w->received < sizeof *g || g->sockets != like->sockets || ret[g->socket] ||
		    memcmp(g->connection, like->connection, sizeof g->connection) != 0)
			continue;
		ret[g->socket] = w;
		found++;
	}
	return found;
}

int net_accept(struct net_listen *l, struct net **ret)
{
	struct net_pending *group[PLUGIN_SOCKETS_MAX];
	uint64_t now_ms = net_now_ms();
	union device_address peer;
	socklen_t len = sizeof peer;
	struct rs_err e;
	struct net *n = NULL;

	*ret = NULL;
	if (plugin_refuses(l->plugin))
		return NCCL_SYSTEM_ERROR;
	if (net_accept_all(l, now_ms, &e))
		return plugin_fail(l->plugin, &e);
	for (unsigned i = 0; i < NET_PENDING && !n; i++) {
		struct net_pending *w = &l->pending[i];

		if (w->fd < 0 || w->received < sizeof w->greeting ||
		    net_group(l, &w->greeting, group) < w->greeting.sockets)
			continue;
		n = net_new(l->plugin, false, w->greeting.sockets);
		if (!n) {
			rs_oom(&e, 0, "a connection");
			return plugin_fail(l->plugin, &e);
		}
		for (unsigned k = 0; k < n->sockets; k++) {
			n->fd[k] = group[k]->fd;
			*group[k] = (struct net_pending){.fd = -1};
		}
		if (getpeername(n->fd[0], &peer.any, &len) == 0)
			net_print_peer(n, &peer.any);
	}
	*ret = n;
	return NCCL_SUCCESS;
}
