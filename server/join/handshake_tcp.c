/* SPDX-License-Identifier: Apache-2.0 */
/* The happy path: accepted -> the first bytes show whether the peer uses TLS -> TLS
 * handshake -> handshake_conn.h. Failure modes: no TLS where it is required, or TLS where
 * there is none: refused with a plain REFUSED frame, which a worker with TLS understands
 * before TLS has begun. TLS fails: TLS itself tells the peer.
 *
 * Floods must be cheap. A connection is read before it is watched: if it is closed again,
 * or its HELLO has arrived, it costs no event. */
#include "server/join/handshake_tcp.h"

#include "common/loop_uv.h"
#include "common/tls.h"
#include "server/join/handshake_conn.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TCP_HANDSHAKE_DISCARD = 64 << 10 /* bytes at once */ };

/* The poll handle of a connection. It is allocated apart, because the connection may be
 * freed before libuv has closed the handle. */
struct tcp_watcher {
	uv_poll_t poll;
	struct tcp_handshake *conn;
};

/* What TLS knows of the two ends. */
struct tcp_channel {
	char names[TLS_NAMES_MAX]; /* in the peer's certificate */
	uint8_t binding[TLS_BINDING];
};

/* One connection. */
struct tcp_handshake {
	struct handshake_conn conn;
	struct tcp_watcher *watcher; /* NULL: the socket is not watched */
	struct tcp_conn tcp;
	uint8_t first[TLS_FIRST]; /* the first first_n bytes, until it is known whether they are TLS */
	uint8_t first_n;
	bool returned;               /* it was part of a job: what TLS knows was asked for then, and is asked again */
	bool sorted;                 /* it is known whether the peer uses TLS */
	struct tcp_channel *channel; /* NULL: plain, or TLS is not up yet */
};
_Static_assert(sizeof(struct tcp_handshake) + sizeof(struct tcp_watcher) <= TCP_HANDSHAKE_BYTES - HANDSHAKE_PAYLOAD_MAX,
	       "TCP_HANDSHAKE_BYTES is too small");

/* All TCP connections in the handshake. */
struct tcp_handshakes {
	struct handshake_conns conns;
	struct tcp_handshakes_options opt;
};

static struct tcp_handshake *tcp_of(struct handshake_conn *c)
{
	return (struct tcp_handshake *)c;
}

static struct tcp_handshakes *tcp_all(const struct tcp_handshake *t)
{
	return (struct tcp_handshakes *)t->conn.all;
}

static void on_closed(uv_handle_t *h)
{
	free(h->data);
}

/* Stops watching the socket. */
static void tcp_unwatch(struct tcp_handshake *t)
{
	if (t->watcher)
		uv_close((uv_handle_t *)&t->watcher->poll, on_closed);
	t->watcher = NULL;
}

/* Sends a frame. On a new connection it is one of the first, so it fits the socket's
 * buffer. On a kept one it may not: the connection is lost then, and the worker connects
 * anew. Fails in the middle of a TLS handshake, when no frame can be sent. */
static bool tcp_send(struct handshake_conn *c, const void *frame, size_t len)
{
	struct tcp_handshake *t = tcp_of(c);
	struct iovec iov = {(void *)frame, len};

	return t->tcp.up && tcp_conn_send(&t->tcp, &iov, 1) == (ssize_t)len;
}

static ssize_t tcp_recv(struct handshake_conn *c, void *at, size_t len)
{
	struct iovec iov = {at, len};
	ssize_t got = tcp_conn_recv(&tcp_of(c)->tcp, &iov, 1);

	return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? HANDSHAKE_AGAIN : got;
}

static void tcp_finish(struct handshake_conn *c)
{
	tcp_conn_shutdown(&tcp_of(c)->tcp);
}

/* Discards received bytes without copying them. Returns false when the peer has
 * closed. */
static bool tcp_discard_fd(int fd)
{
	ssize_t got = recv(fd, NULL, TCP_HANDSHAKE_DISCARD, MSG_DONTWAIT | MSG_TRUNC);

	return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

static bool tcp_discard(struct handshake_conn *c)
{
	struct tcp_handshake *t = tcp_of(c);

	return tcp_conn_flush(&t->tcp) && tcp_discard_fd(t->tcp.fd);
}

static int tcp_admit(struct handshake_conn *c, const struct handshake_result *who, struct control_refused *refused)
{
	struct tcp_handshake *t = tcp_of(c);
	struct tcp_handshakes *all = tcp_all(t);

	tcp_unwatch(t); /* the lane may watch or close the socket as soon as it has it */
	return all->opt.admit(all->opt.ctx, &t->tcp, who, refused);
}

static void tcp_log_refused(struct handshake_conn *c, const struct rs_err *why)
{
	struct tcp_handshake *t = tcp_of(c);

	tcp_all(t)->opt.turned_away(tcp_all(t)->opt.ctx, t->tcp.fd, c->job, why);
}

static const char *tcp_missing(const struct handshake_conn *c)
{
	const struct tcp_handshake *t = (const struct tcp_handshake *)c;

	return t->sorted && t->tcp.up ? NULL : "TLS handshake";
}

static bool tcp_silent(const struct handshake_conn *c)
{
	const struct tcp_handshake *t = (const struct tcp_handshake *)c;

	return !t->first_n && !t->tcp.ssl && !c->handshake.have && !c->handshake.claim;
}

static void tcp_close(struct handshake_conn *c, enum handshake_close how, const struct control_refused *why)
{
	struct tcp_handshake *t = tcp_of(c);
	uint8_t frame[HANDSHAKE_FRAME_MAX];

	tcp_unwatch(t);
	if (how == CLOSE_DISPLACED && why->message[0])
		tcp_send(c, frame, handshake_pack_refused(frame, why));
	tcp_conn_close(&t->tcp);
}

static void tcp_free(struct handshake_conn *c)
{
	free(tcp_of(c)->channel);
	free(c);
}

/* Fills the refusal of a connection that does not use TLS where it is required, or the
 * other way round. */
static void tcp_refuse_tls(enum tls_beginning found, struct control_refused *refused)
{
	static const char *const sentence[] = {
	    [TLS_BEGINS] = "the connection began with a TLS ClientHello, and this reducer does not speak TLS (its "
			   "security.tls is off)",
	    [TLS_BEGINS_LONG] = "the connection began with a TLS ClientHello that is too long",
	    [TLS_BEGINS_NOT] = "this reducer speaks TLS only (security.tls), and the connection began without it",
	};
	struct rs_err why;

	rs_fail(&why, RS_EREFUSED, "%s", sentence[found]);
	*refused = handshake_refusal(&why);
}

static void tcp_explain(struct handshake_conn *c, ssize_t rc, struct control_refused *refused)
{
	if (rc > 0 && !tcp_of(c)->tcp.ssl && tls_beginning(c->handshake.head, FRAME_HEADER) == TLS_BEGINS)
		tcp_refuse_tls(TLS_BEGINS, refused);
}

/* Reads the first bytes of a connection that should use TLS, and starts TLS if they are a
 * ClientHello. */
static enum handshake_transport_state tcp_sort(struct tcp_handshake *t, struct control_refused *refused)
{
	enum tls_beginning found = TLS_MAY_BEGIN;
	struct rs_err e;

	while (found == TLS_MAY_BEGIN) {
		ssize_t got = recv(t->tcp.fd, t->first + t->first_n, TLS_FIRST - t->first_n, MSG_DONTWAIT);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return TRANSPORT_WAIT;
		if (got <= 0)
			return TRANSPORT_LOST;
		t->first_n += (uint8_t)got;
		found = tls_beginning(t->first, t->first_n);
	}
	t->sorted = true;
	if (found != TLS_BEGINS) {
		tcp_refuse_tls(found, refused);
		return TRANSPORT_REFUSE;
	}
	if (tcp_conn_accept(&t->tcp, t->tcp.fd, tcp_all(t)->opt.tls, t->first, t->first_n, &e)) {
		*refused = handshake_refusal(&e);
		return TRANSPORT_REFUSE;
	}
	return TRANSPORT_READY;
}

/* Gives the handshake what TLS knows of the peer. Errors: RS_ENOMEM, those of
 * tls_binding. */
static int tcp_bind_channel(struct tcp_handshake *t, struct rs_err *e)
{
	struct handshake_channel channel = {.binding_len = TLS_BINDING};

	t->channel = malloc(sizeof *t->channel);
	if (!t->channel)
		return rs_oom(e, 0, "TLS in this reducer");
	tls_peer_names(t->tcp.ssl, t->channel->names);
	channel.peer = SSL_get0_peer_certificate(t->tcp.ssl) ? t->channel->names : NULL;
	channel.binding = t->channel->binding;
	handshake_set_channel(&t->conn.handshake, &channel);
	return tls_binding(t->tcp.ssl, t->channel->binding, e);
}

/* Continues the TLS handshake. */
static enum handshake_transport_state tcp_secure(struct tcp_handshake *t, struct control_refused *refused)
{
	enum handshake_transport_state state = TRANSPORT_WAIT;
	struct rs_err e;

	switch (tcp_conn_handshake(&t->tcp, &e)) {
	case TCP_CONN_UP:
		if (tcp_bind_channel(t, &e) == RS_OK)
			return TRANSPORT_READY;
		state = TRANSPORT_REFUSE;
		break;
	case TCP_CONN_WAIT:
		return TRANSPORT_WAIT;
	case TCP_CONN_FAILED:
		if (t->tcp.eof || t->tcp.error)
			return TRANSPORT_LOST;
		state = TRANSPORT_FAILED;
		break;
	}
	*refused = handshake_refusal(&e);
	return state;
}

static enum handshake_transport_state tcp_prepare(struct handshake_conn *c, struct control_refused *refused)
{
	struct tcp_handshake *t = tcp_of(c);
	enum handshake_transport_state state = TRANSPORT_READY;

	if (!t->sorted)
		state = tcp_sort(t, refused);
	if (state == TRANSPORT_READY && (!t->tcp.up || t->returned))
		state = tcp_secure(t, refused);
	t->returned = false;
	return state;
}

static void on_poll(uv_poll_t *poll, int status, int events);

/* Returns the events to wait for. What TLS has to send may not fit the socket. */
static int tcp_events(const struct tcp_handshake *t)
{
	return UV_READABLE | (tcp_conn_unsent(&t->tcp) ? UV_WRITABLE : 0);
}

static void tcp_watch(struct tcp_handshake *t)
{
	struct tcp_watcher *w = malloc(sizeof *w);

	if (!w || rs_poll_init(t->conn.all->loop, &w->poll, t->tcp.fd, NULL)) {
		free(w);
		handshake_conn_close(&t->conn, CLOSE_DONE, NULL);
		return;
	}
	w->poll.data = w;
	w->conn = t;
	t->watcher = w;
	uv_poll_start(&w->poll, tcp_events(t), on_poll);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
	struct tcp_handshake *t = ((struct tcp_watcher *)poll->data)->conn;

	(void)status;
	(void)events;
	if (!handshake_conn_read(&t->conn))
		return;
	if (!t->watcher) /* admit() refused it, and the peer has not closed yet */
		tcp_watch(t);
	else if (t->tcp.ssl)
		uv_poll_start(poll, tcp_events(t), on_poll);
}

int tcp_handshakes_new(struct tcp_handshakes **ret, const struct tcp_handshakes_options *opt, struct rs_err *e)
{
	static const struct handshake_transport transport = {
	    .prepare = tcp_prepare,
	    .recv = tcp_recv,
	    .send = tcp_send,
	    .finish = tcp_finish,
	    .discard = tcp_discard,
	    .admit = tcp_admit,
	    .log_refused = tcp_log_refused,
	    .missing = tcp_missing,
	    .silent = tcp_silent,
	    .explain = tcp_explain,
	    .close = tcp_close,
	    .free = tcp_free,
	};
	struct tcp_handshakes *all = calloc(1, sizeof *all);

	if (!all)
		return rs_oom(e, 0, "handshakes");
	all->opt = *opt;
	handshake_conns_init(&all->conns, opt->loop, opt->timeout_ms, &transport, &opt->policy);
	*ret = all;
	return RS_OK;
}

void tcp_handshakes_set_tls(struct tcp_handshakes *all, SSL_CTX *tls)
{
	all->opt.tls = tls;
}

/* NULL: no memory; fd is closed. */
static struct tcp_handshake *tcp_new(struct tcp_handshakes *all, int fd)
{
	struct tcp_handshake *t = calloc(1, sizeof *t);

	if (!t) {
		close(fd);
		return NULL;
	}
	tcp_conn_plain(&t->tcp, fd);
	t->sorted = !all->opt.tls;
	handshake_conn_init(&t->conn, &all->conns);
	return t;
}

void tcp_handshakes_add(struct tcp_handshakes *all, int fd)
{
	struct tcp_handshake *t = tcp_new(all, fd);

	if (t && handshake_conn_read(&t->conn))
		tcp_watch(t);
}

void tcp_handshakes_return(struct tcp_handshakes *all, struct tcp_conn *tcp, const struct frame_rest *rest)
{
	struct tcp_handshake *t = calloc(1, sizeof *t);

	if (!t) {
		tcp_conn_close(tcp);
		return;
	}
	tcp_conn_move(&t->tcp, tcp);
	t->sorted = true;
	t->returned = t->tcp.ssl;
	if (handshake_conn_return(&t->conn, &all->conns, rest))
		tcp_watch(t);
}

void tcp_handshakes_refuse(struct tcp_handshakes *all, int fd, const struct control_refused *refused)
{
	struct tcp_handshake *t = tcp_new(all, fd);

	if (t && handshake_conn_refuse(&t->conn, refused))
		tcp_watch(t);
}

void tcp_handshakes_refuse_now(struct tcp_handshakes *all, int fd, const struct control_refused *refused)
{
	struct tcp_handshake t = {.conn.all = &all->conns};
	uint8_t frame[HANDSHAKE_FRAME_MAX];

	tcp_conn_plain(&t.tcp, fd);
	handshake_conn_log(&t.conn, refused);
	tcp_send(&t.conn, frame, handshake_pack_refused(frame, refused));
	tcp_discard_fd(fd); /* an unread HELLO would turn the end into a reset, and the peer would lose the reason */
	close(fd);
}

unsigned tcp_handshakes_count(const struct tcp_handshakes *all)
{
	return handshake_conns_count(&all->conns);
}

bool tcp_handshakes_make_room(struct tcp_handshakes *all, const char *why)
{
	return handshake_conns_make_room(&all->conns, why);
}

void tcp_handshakes_close(struct tcp_handshakes *all)
{
	handshake_conns_clear(&all->conns);
	handshake_conns_close(&all->conns);
}

void tcp_handshakes_free(struct tcp_handshakes *all)
{
	free(all);
}
