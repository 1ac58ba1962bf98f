/* SPDX-License-Identifier: Apache-2.0 */
/* The happy path: accepted -> TLS, where it is asked for -> what handshake.h says -> hello() takes the connection away.
 * Failure modes: garbage, another version, no TLS or TLS where there is none, a refusal: REFUSED is sent, our sending
 * side is shut, and what still arrives is thrown away until the peer has read it and closed, since closing with unread
 * bytes would make the kernel reset the connection and lose the reason. Whoever is too slow for any of it is closed at
 * the deadline.
 *
 * Floods are what this has to be cheap for. A connection is read before it is watched: one that was closed again, or
 * whose HELLO is there already, costs no event. */
#include "server/join/handshake_tcp.h"

#include "common/tls.h"
#include "server/join/deadlines.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TCP_HANDSHAKE_DISCARD = 64 << 10 /* bytes at once */ };

/* Apart from its greeting, which may go before libuv has closed it. */
struct watcher {
	uv_poll_t poll;
	struct greeting *greeting;
};

/* What TLS knows of the two ends. */
struct channel {
	char names[TLS_NAMES_MAX]; /* in the peer's certificate */
	uint8_t binding[TLS_BINDING];
};

/* One that leaves waits for the peer to close. */
struct greeting {
	struct deadline deadline;
	struct tcp_handshakes *all;
	struct watcher *watcher; /* NULL: nothing watches fd */
	struct tcp_conn tcp;
	uint8_t first[TLS_FIRST];
	uint8_t first_n;
	bool sorted;             /* it is known whether it speaks TLS; tcp.ssl: it does */
	struct channel *channel; /* NULL: it is plain */
	struct handshake shake;
};
_Static_assert(sizeof(struct greeting) + sizeof(struct watcher) <= TCP_HANDSHAKE_BYTES - HANDSHAKE_PAYLOAD_MAX,
	       "TCP_HANDSHAKE_BYTES is too small");

struct tcp_handshakes {
	struct tcp_handshakes_options opt;
	uv_timer_t tick;
	struct deadlines deadlines;
};

static void on_closed(uv_handle_t *h)
{
	free(h->data);
}

/* Lets go of the descriptor. */
static void greeting_unwatch(struct greeting *g)
{
	if (g->watcher)
		uv_close((uv_handle_t *)&g->watcher->poll, on_closed);
	g->watcher = NULL;
}

/* Forgets a greeting, whose connection has another owner. */
static void greeting_free(struct greeting *g)
{
	deadlines_remove(&g->all->deadlines, &g->deadline);
	handshake_close(&g->shake);
	free(g->channel);
	free(g);
}

static void greeting_close(struct greeting *g)
{
	greeting_unwatch(g);
	tcp_conn_close(&g->tcp);
	greeting_free(g);
}

/* What the peer has yet to do, for sentences. */
static const char *lacks(const struct greeting *g)
{
	return g->sorted && g->tcp.up ? handshake_missing(&g->shake) : "TLS handshake";
}

/* Once for each, before it leaves or goes. */
static void report(const struct greeting *g, const struct control_refused *refused)
{
	struct rs_err why;

	rs_fail(&why, refused->code, "%s", refused->message);
	g->all->opt.turned_away(g->all->opt.ctx, g->tcp.fd, &why);
}

/* False when the peer cannot be told. Before TLS has begun a worker with TLS understands a plain one too; in the middle
 * of it there is no way to say anything. */
static bool send_refused(struct greeting *g, const struct control_refused *refused)
{
	uint8_t frame[HANDSHAKE_FRAME_MAX];
	struct iovec iov = {frame, handshake_pack_refused(frame, refused)};

	/* the first bytes on this connection, but for a CHALLENGE: they always fit the socket's buffer */
	return g->tcp.up && tcp_conn_send(&g->tcp, &iov, 1) >= 0;
}

/* This and what follows return whether the greeting is still there. */
static bool greeting_leave(struct greeting *g)
{
	tcp_conn_shutdown(&g->tcp);
	deadlines_leave(&g->all->deadlines, &g->deadline, uv_now(g->all->opt.loop));
	return true;
}

static bool greeting_refuse(struct greeting *g, const struct control_refused *refused)
{
	report(g, refused);
	if (send_refused(g, refused))
		return greeting_leave(g);
	greeting_close(g);
	return false;
}

static bool greeting_admit(struct greeting *g, const struct handshake_result *who)
{
	struct control_refused refused = {0};

	greeting_unwatch(g); /* as soon as it is its lane's, the descriptor may be watched there, or closed */
	if (g->all->opt.hello(g->all->opt.ctx, &g->tcp, who, &refused) == RS_OK) {
		greeting_free(g);
		return false;
	}
	return greeting_refuse(g, &refused);
}

/* Throws away what comes, without copying it. False when the peer has closed. */
static bool discard(int fd)
{
	ssize_t got = recv(fd, NULL, TCP_HANDSHAKE_DISCARD, MSG_DONTWAIT | MSG_TRUNC);

	return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

/* Waits for the peer to close. */
static bool greeting_linger(struct greeting *g)
{
	if (tcp_conn_flush(&g->tcp) && discard(g->tcp.fd))
		return true;
	greeting_close(g);
	return false;
}

/* The peer has closed, or the connection broke. */
static bool greeting_lost(struct greeting *g)
{
	struct control_refused lost = handshake_refusal_closed(lacks(g));

	report(g, &lost);
	greeting_close(g);
	return false;
}

/* A connection that does not speak TLS where it should, or the other way round. */
static bool greeting_mismatched(struct greeting *g, enum tls_beginning found)
{
	static const char *const sentence[] = {
	    [TLS_BEGINS] = "the connection began with a TLS ClientHello, and this reducer does not speak TLS (its "
			   "security.tls is off)",
	    [TLS_BEGINS_LONG] = "the connection began with a TLS ClientHello that is too long",
	    [TLS_BEGINS_NOT] = "this reducer speaks TLS only (security.tls), and the connection began without",
	};
	struct rs_err why;
	struct control_refused refused;

	rs_fail(&why, RS_EREFUSED, "%s", sentence[found]);
	refused = handshake_refusal(&why);
	return greeting_refuse(g, &refused);
}

/* Reads the beginning of a connection that should speak TLS. *ret: whether the greeting is still there, where it does
 * not go on. */
static bool greeting_sort(struct greeting *g, bool *ret)
{
	enum tls_beginning found = TLS_MAY_BEGIN;
	struct rs_err e;

	while (found == TLS_MAY_BEGIN) {
		ssize_t got = recv(g->tcp.fd, g->first + g->first_n, TLS_FIRST - g->first_n, MSG_DONTWAIT);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0) {
			*ret = (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) || greeting_lost(g);
			return false;
		}
		g->first_n += (uint8_t)got;
		found = tls_beginning(g->first, g->first_n);
	}
	g->sorted = true;
	if (found != TLS_BEGINS) {
		*ret = greeting_mismatched(g, found);
		return false;
	}
	if (tcp_conn_accept(&g->tcp, g->tcp.fd, g->all->opt.tls, g->first, g->first_n, &e)) {
		struct control_refused refused = handshake_refusal(&e);

		*ret = greeting_refuse(g, &refused);
		return false;
	}
	return true;
}

/* What TLS has found out goes to the handshake. */
static int greeting_bind(struct greeting *g, struct rs_err *e)
{
	struct handshake_channel to = {.binding_len = TLS_BINDING};

	g->channel = malloc(sizeof *g->channel);
	if (!g->channel)
		return rs_fail(e, RS_ENOMEM, "this reducer has no memory for TLS");
	tls_peer_names(g->tcp.ssl, g->channel->names);
	to.peer = SSL_get0_peer_certificate(g->tcp.ssl) ? g->channel->names : NULL;
	to.binding = g->channel->binding;
	handshake_set_channel(&g->shake, &to);
	return tls_binding(g->tcp.ssl, g->channel->binding, e);
}

/* Goes on with TLS; as greeting_sort. */
static bool greeting_secure(struct greeting *g, bool *ret)
{
	struct control_refused refused;
	struct rs_err e;

	switch (tcp_conn_handshake(&g->tcp, &e)) {
	case TCP_CONN_UP:
		if (greeting_bind(g, &e) == RS_OK)
			return true;
		refused = handshake_refusal(&e);
		*ret = greeting_refuse(g, &refused);
		break;
	case TCP_CONN_WAIT:
		*ret = true;
		break;
	case TCP_CONN_FAILED:
		if (g->tcp.eof || g->tcp.error) {
			*ret = greeting_lost(g);
		} else { /* TLS itself has told the peer */
			refused = handshake_refusal(&e);
			report(g, &refused);
			*ret = greeting_leave(g);
		}
		break;
	}
	return false;
}

/* Takes what has come. */
static bool greeting_read(struct greeting *g)
{
	struct handshake_result res;
	bool there = false;

	if (g->deadline.leaves)
		return greeting_linger(g);
	if ((!g->sorted && !greeting_sort(g, &there)) || (!g->tcp.up && !greeting_secure(g, &there)))
		return there;
	for (;;) {
		uint8_t *at;
		struct iovec iov = {.iov_len = handshake_target(&g->shake, &at)};
		ssize_t got;

		iov.iov_base = at;
		got = tcp_conn_recv(&g->tcp, &iov, 1);
		if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return true;
		if (got <= 0)
			return greeting_lost(g);
		switch (handshake_received(&g->shake, (size_t)got, &res)) {
		case HANDSHAKE_MORE:
			break;
		case HANDSHAKE_SEND:
			/* as in send_refused: it fits */
			iov = (struct iovec){res.frame, res.frame_len};
			if (tcp_conn_send(&g->tcp, &iov, 1) != (ssize_t)res.frame_len)
				return greeting_lost(g);
			break;
		case HANDSHAKE_ADMIT:
			return greeting_admit(g, &res);
		case HANDSHAKE_REFUSED:
			if (!g->tcp.ssl && tls_beginning(g->shake.head, FRAME_HEADER) == TLS_BEGINS)
				return greeting_mismatched(g, TLS_BEGINS);
			return greeting_refuse(g, &res.refused);
		}
	}
}

static void on_poll(uv_poll_t *poll, int status, int events);

/* What TLS has to say may not fit the socket. */
static int greeting_events(const struct greeting *g)
{
	return UV_READABLE | (tcp_conn_unsent(&g->tcp) ? UV_WRITABLE : 0);
}

static void greeting_watch(struct greeting *g)
{
	struct watcher *w = malloc(sizeof *w);

	if (!w || uv_poll_init_socket(g->all->opt.loop, &w->poll, g->tcp.fd)) {
		free(w);
		greeting_close(g);
		return;
	}
	w->poll.data = w;
	w->greeting = g;
	g->watcher = w;
	uv_poll_start(&w->poll, greeting_events(g), on_poll);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
	struct greeting *g = ((struct watcher *)poll->data)->greeting;

	(void)status;
	(void)events;
	if (!greeting_read(g))
		return;
	if (!g->watcher) /* a HELLO that was refused: its peer has yet to close */
		greeting_watch(g);
	else if (g->tcp.ssl)
		uv_poll_start(poll, greeting_events(g), on_poll);
}

static void give_up(struct greeting *g)
{
	struct control_refused refused = handshake_refusal_timeout(lacks(g), g->all->opt.timeout_ms);

	greeting_refuse(g, &refused);
}

static void on_tick(uv_timer_t *timer)
{
	struct tcp_handshakes *all = timer->data;
	struct deadline *d;

	while ((d = deadlines_due(&all->deadlines, uv_now(all->opt.loop)))) {
		if (d->leaves)
			greeting_close((struct greeting *)d);
		else
			give_up((struct greeting *)d);
	}
}

int tcp_handshakes_new(struct tcp_handshakes **ret, const struct tcp_handshakes_options *opt, struct rs_err *e)
{
	struct tcp_handshakes *all = calloc(1, sizeof *all);

	if (!all)
		return rs_fail(e, RS_ENOMEM, "no memory for handshakes");
	all->opt = *opt;
	deadlines_init(&all->deadlines, opt->timeout_ms);
	uv_timer_init(opt->loop, &all->tick);
	all->tick.data = all;
	uv_timer_start(&all->tick, on_tick, DEADLINES_TICK_MS, DEADLINES_TICK_MS);
	*ret = all;
	return RS_OK;
}

void tcp_handshakes_set_tls(struct tcp_handshakes *all, SSL_CTX *tls)
{
	all->opt.tls = tls;
}

static struct greeting *greeting_new(struct tcp_handshakes *all, int fd)
{
	struct greeting *g = calloc(1, sizeof *g);

	if (!g) {
		close(fd);
		return NULL;
	}
	g->all = all;
	tcp_conn_plain(&g->tcp, fd);
	g->sorted = !all->opt.tls;
	handshake_init(&g->shake, &all->opt.policy);
	deadlines_add(&all->deadlines, &g->deadline, uv_now(all->opt.loop));
	return g;
}

void tcp_handshakes_add(struct tcp_handshakes *all, int fd)
{
	struct greeting *g = greeting_new(all, fd);

	if (g && greeting_read(g))
		greeting_watch(g);
}

void tcp_handshakes_refuse(struct tcp_handshakes *all, int fd, const struct control_refused *refused)
{
	struct greeting *g = greeting_new(all, fd);

	if (g && greeting_refuse(g, refused))
		greeting_watch(g);
}

void tcp_handshakes_refuse_now(struct tcp_handshakes *all, int fd, const struct control_refused *refused)
{
	struct greeting g = {.all = all};

	tcp_conn_plain(&g.tcp, fd);
	report(&g, refused);
	send_refused(&g, refused);
	discard(fd); /* a HELLO that nobody has read would turn the end into a reset, and the reason would be lost */
	close(fd);
}

unsigned tcp_handshakes_count(const struct tcp_handshakes *all)
{
	return deadlines_count(&all->deadlines);
}

bool tcp_handshakes_make_room(struct tcp_handshakes *all, const char *why)
{
	struct greeting *g = (struct greeting *)deadlines_oldest(&all->deadlines);
	struct control_refused refused;

	if (!g)
		return false;
	if (!g->deadline.leaves) {
		refused = handshake_refusal_displaced(lacks(g), why);
		report(g, &refused);
		send_refused(g, &refused);
	}
	greeting_close(g);
	return true;
}

void tcp_handshakes_close(struct tcp_handshakes *all)
{
	struct deadline *d;

	while ((d = deadlines_oldest(&all->deadlines)))
		greeting_close((struct greeting *)d);
	uv_close((uv_handle_t *)&all->tick, NULL);
}

void tcp_handshakes_free(struct tcp_handshakes *all)
{
	free(all);
}
