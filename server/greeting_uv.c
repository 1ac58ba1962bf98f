/* SPDX-License-Identifier: Apache-2.0 */
/* The happy path: accepted -> header -> payload -> hello() takes the descriptor away. Failure modes: garbage, another
 * version, a refusal: REFUSED is sent, our sending side is shut, and what still arrives is thrown away until the peer
 * has read it and closed, since closing with unread bytes would make the kernel reset the connection and lose the
 * reason. Whoever is too slow for any of it is closed at the deadline. */
#include "server/greeting.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	GREETING_TICK_MS = 100,
	GREETING_LINGER_MS = 1000,
	GREETING_DISCARD = 64 << 10, /* bytes at once */
};

struct greeting {
	struct greeting *next, **at;
	struct greetings *all;
	uv_poll_t poll;
	int fd; /* -1: given away */
	uint64_t deadline_ms;
	bool refused; /* waiting for the peer to close */
	bool said;    /* why it ends is in the log already */
	unsigned have;
	uint8_t head[FRAME_HEADER];
	uint8_t *payload; /* of HELLO, once its header says how long it is; owned */
};
_Static_assert(sizeof(struct greeting) <= GREETING_BYTES - FRAME_CONTROL_MAX, "GREETING_BYTES is too small");

struct greetings {
	struct greetings_options opt;
	uv_timer_t tick;
	struct greeting *list;
	unsigned n;
};

static void on_closed(uv_handle_t *h)
{
	struct greeting *g = h->data;

	close(g->fd);
	free(g->payload);
	free(g);
}

/* Stops watching, and closes the descriptor. */
static void greeting_close(struct greeting *g)
{
	*g->at = g->next;
	if (g->next)
		g->next->at = g->at;
	g->all->n--;
	uv_close((uv_handle_t *)&g->poll, on_closed);
}

static void peer_name(int fd, char *buf, size_t size)
{
	struct sockaddr_storage sa;
	socklen_t len = sizeof sa;
	char host[NI_MAXHOST], port[NI_MAXSERV];

	if (getpeername(fd, (struct sockaddr *)&sa, &len) ||
	    getnameinfo((struct sockaddr *)&sa, len, host, sizeof host, port, sizeof port,
			NI_NUMERICHOST | NI_NUMERICSERV))
		snprintf(buf, size, "unknown");
	else
		snprintf(buf, size, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
}

static void report(struct greeting *g, const struct rs_err *why)
{
	char peer[NI_MAXHOST + NI_MAXSERV + 4];

	if (g->said)
		return;
	g->said = true;
	peer_name(g->fd, peer, sizeof peer);
	g->all->opt.turned_away(g->all->opt.ctx, peer, why);
}

static void greeting_refuse(struct greeting *g, const struct control_refused *refused)
{
	uint8_t payload[FRAME_CONTROL_MAX], frame[FRAME_HEADER + FRAME_CONTROL_MAX];
	uint32_t len = control_frame(frame, FRAME_REFUSED, 0, 0, payload, control_pack_refused(payload, refused));
	struct rs_err why;

	rs_fail(&why, refused->code, "%s", refused->message);
	report(g, &why);
	/* the first bytes on this connection: they always fit the socket's buffer */
	if (send(g->fd, frame, len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
		greeting_close(g);
		return;
	}
	shutdown(g->fd, SHUT_WR);
	g->refused = true;
	g->deadline_ms = uv_now(g->all->opt.loop) + GREETING_LINGER_MS;
}

static void give_up(struct greeting *g, const struct rs_err *why)
{
	struct control_refused refused = {.code = why->code};

	snprintf(refused.message, sizeof refused.message, "%s", why->msg);
	greeting_refuse(g, &refused);
}

/* How many bytes the next read may take: exactly what is known to belong to HELLO. 0: it is complete. */
static size_t greeting_wants(struct greeting *g, struct frame *f, struct rs_err *e)
{
	if (g->have < FRAME_HEADER)
		return FRAME_HEADER - g->have;
	if (frame_decode(g->head, f, e))
		return 0;
	if (f->type != FRAME_HELLO) {
		rs_fail(e, RS_EPROTO, "the first frame is %s instead of HELLO", frame_type_name(f->type));
		return 0;
	}
	/* one more, so that an empty HELLO has an address too */
	if (!g->payload)
		g->payload = malloc((size_t)f->payload_len + 1);
	if (!g->payload) {
		rs_fail(e, RS_ENOMEM, "this reducer has no memory for a HELLO");
		return 0;
	}
	return FRAME_HEADER + f->payload_len - g->have;
}

/* Where the next byte goes. */
static uint8_t *greeting_at(struct greeting *g)
{
	return g->have < FRAME_HEADER ? g->head + g->have : g->payload + (g->have - FRAME_HEADER);
}

static void greeting_hello(struct greeting *g, const struct frame *f)
{
	struct control_hello h;
	struct control_refused refused = {0};
	struct rs_err e;
	int fd;

	if (control_unpack_hello(g->payload, f->payload_len, &h, &e)) {
		give_up(g, &e);
		return;
	}
	uv_poll_stop(&g->poll);
	/* the lane's thread gets a descriptor of its own: closing the poll handle still touches this one */
	fd = fcntl(g->fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0) {
		rs_fail_sys(&e, RS_EIO, errno, "a connection cannot be handed to its lane");
		give_up(g, &e);
		return;
	}
	if (g->all->opt.hello(g->all->opt.ctx, fd, &h, &refused) == RS_OK) {
		greeting_close(g);
		return;
	}
	close(fd);
	greeting_refuse(g, &refused);
}

static void on_poll(uv_poll_t *poll, int status, int events);

static void greeting_read(struct greeting *g)
{
	struct rs_err e = {0};
	struct frame f = {0};
	size_t want;
	ssize_t got;

	if (g->refused) {
		/* thrown away without being copied */
		got = recv(g->fd, NULL, GREETING_DISCARD, MSG_DONTWAIT | MSG_TRUNC);
		if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
			greeting_close(g);
		return;
	}
	while ((want = greeting_wants(g, &f, &e))) {
		got = recv(g->fd, greeting_at(g), want, MSG_DONTWAIT);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return;
		if (got <= 0) {
			rs_fail(&e, RS_EPROTO, "it closed the connection before a complete HELLO");
			report(g, &e);
			greeting_close(g);
			return;
		}
		g->have += (unsigned)got;
	}
	if (e.code) {
		give_up(g, &e);
		return;
	}
	greeting_hello(g, &f);
	/* hello stopped the events; a refused connection still waits for its peer to close */
	if (g->refused && !uv_is_closing((uv_handle_t *)&g->poll))
		uv_poll_start(&g->poll, UV_READABLE, on_poll);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
	(void)status;
	(void)events;
	greeting_read(poll->data);
}

static void on_tick(uv_timer_t *timer)
{
	struct greetings *all = timer->data;
	uint64_t now = uv_now(all->opt.loop);

	for (struct greeting *g = all->list, *next; g; g = next) {
		struct rs_err why;

		next = g->next;
		if (now < g->deadline_ms)
			continue;
		if (g->refused) {
			greeting_close(g);
			continue;
		}
		rs_fail(&why, RS_ETIMEOUT, "no complete HELLO came within %.1f s", (double)all->opt.timeout_ms / 1000);
		give_up(g, &why);
	}
}

int greetings_init(struct greetings **ret, const struct greetings_options *opt, struct rs_err *e)
{
	struct greetings *all = calloc(1, sizeof *all);

	if (!all)
		return rs_fail(e, RS_ENOMEM, "no memory for handshakes");
	all->opt = *opt;
	uv_timer_init(opt->loop, &all->tick);
	all->tick.data = all;
	uv_timer_start(&all->tick, on_tick, GREETING_TICK_MS, GREETING_TICK_MS);
	*ret = all;
	return RS_OK;
}

static struct greeting *greeting_new(struct greetings *all, int fd)
{
	struct greeting *g = calloc(1, sizeof *g);

	if (!g || uv_poll_init_socket(all->opt.loop, &g->poll, fd)) {
		free(g);
		close(fd);
		return NULL;
	}
	g->all = all;
	g->fd = fd;
	g->poll.data = g;
	g->deadline_ms = uv_now(all->opt.loop) + all->opt.timeout_ms;
	g->next = all->list;
	g->at = &all->list;
	if (g->next)
		g->next->at = &g->next;
	all->list = g;
	all->n++;
	return g;
}

void greetings_add(struct greetings *all, int fd)
{
	struct greeting *g = greeting_new(all, fd);

	if (g)
		uv_poll_start(&g->poll, UV_READABLE, on_poll);
}

void greetings_refuse(struct greetings *all, int fd, const struct control_refused *refused)
{
	struct greeting *g = greeting_new(all, fd);

	if (!g)
		return;
	uv_poll_start(&g->poll, UV_READABLE, on_poll);
	greeting_refuse(g, refused);
}

unsigned greetings_count(const struct greetings *all)
{
	return all->n;
}

void greetings_close(struct greetings *all)
{
	while (all->list)
		greeting_close(all->list);
	uv_close((uv_handle_t *)&all->tick, NULL);
}

void greetings_free(struct greetings *all)
{
	free(all);
}
