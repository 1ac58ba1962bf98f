/* SPDX-License-Identifier: Apache-2.0 */
/* Connections of clients. The happy path: accepted and allowed -> messages are received
 * and sent -> GOODBYE, or the client closes its end of the socket. Failure modes: not
 * allowed or too many (REFUSED, closed); the client does not read its messages (dropped
 * when its queue is full); it breaks the protocol (the hub drops it). A connection is
 * never closed within a call of the hub: it gets a close_reason there, and is closed when
 * the loop continues. */
#include "agent/node/daemon/agentd.h"
#include "common/loop_uv.h"
#include "common/peer_process.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void conn_drop_first(struct agentd_conn *c)
{
	struct agentd_out *o = c->out;

	c->out = o->next;
	if (!c->out)
		c->out_end = &c->out;
	c->out_n--;
	if (o->fd >= 0)
		close(o->fd);
	free(o);
}

/* Sends one message with its descriptor. Returns 0 or an errno. */
static int conn_send_one(int fd, const union local_message *m, int passed)
{
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec iov = {.iov_base = (void *)m, .iov_len = m->head.bytes};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	if (passed >= 0) {
		msg.msg_control = &control;
		msg.msg_controllen = sizeof control.space;
		control.head = (struct cmsghdr){
		    .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
		memcpy(CMSG_DATA(&control.head), &passed, sizeof passed);
	}
	return sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? errno : 0;
}

static void conn_on_poll(uv_poll_t *p, int status, int events);

static void conn_watch(struct agentd_conn *c)
{
	uv_poll_start(&c->poll, UV_READABLE | (c->out ? UV_WRITABLE : 0), conn_on_poll);
}

static void conn_schedule_close(struct agentd_conn *c, const char *why)
{
	if (c->close_reason)
		return;
	c->close_reason = why;
	uv_poll_stop(&c->poll);
	uv_async_send(&c->a->wake);
}

static void conn_flush(struct agentd_conn *c)
{
	int rc;

	while (c->out) {
		rc = c->peer_closed ? 0 : conn_send_one(c->fd, &c->out->m, c->out->fd);
		if (rc == EAGAIN || rc == EINTR)
			return;
		if (rc)
			c->peer_closed = true;
		conn_drop_first(c);
	}
}

/* Queues a message until the socket is writable; fd belongs to the queue. Returns false
 * if the client is dropped instead. */
static bool conn_queue(struct agentd_conn *c, const union local_message *m, int fd)
{
	struct agentd_out *o;

	if (c->out_n >= c->a->ops + AGENTD_OUT_SPARE) {
		conn_schedule_close(c, "does not read the agent's messages");
		return false;
	}
	o = malloc(sizeof *o);
	if (!o) {
		conn_schedule_close(c, "was dropped: out of memory for a message in the agent");
		return false;
	}
	o->next = NULL;
	o->fd = fd;
	memcpy(&o->m, m, m->head.bytes);
	*c->out_end = o;
	c->out_end = &o->next;
	if (c->out_n++ == 0)
		conn_watch(c);
	return true;
}

void agentd_send(void *ctx, struct local_client *client, const union local_message *m, int fd)
{
	struct agentd_conn *c = local_client_user(client);
	int rc = EAGAIN;

	(void)ctx;
	if (!c->close_reason && !c->peer_closed && !c->out) {
		rc = conn_send_one(c->fd, m, fd);
		c->peer_closed = rc && rc != EAGAIN && rc != EINTR;
	}
	/* a LANDED may be left out: a busy client must not get more than it can take */
	if (rc && !c->close_reason && !c->peer_closed && m->head.type != LOCAL_LANDED && conn_queue(c, m, fd))
		return;
	if (fd >= 0)
		close(fd);
}

void agentd_drop(void *ctx, struct local_client *client)
{
	(void)ctx; /* what was queued has been sent, or the client does not read it */
	conn_schedule_close(local_client_user(client), "left");
}

bool agentd_runs(void *ctx, struct local_client *client)
{
	const struct agentd_conn *c = local_client_user(client);

	(void)ctx;
	return rs_peer_process_runs(c->fd);
}

/* Frees the connection. The descriptor is closed only now: closing the handle still uses
 * it, and another thread could get the same number. */
static void conn_on_closed(uv_handle_t *h)
{
	struct agentd_conn *c = h->data;

	close(c->fd);
	free(c);
}

static void conn_close(struct agentd_conn *c, const char *why)
{
	LIST_REMOVE(c, link);
	local_client_lost(c->client, why);
	while (c->out)
		conn_drop_first(c);
	uv_close((uv_handle_t *)&c->poll, conn_on_closed);
}

/* Closes the connection when no engine uses the client's memory any more; the client may
 * wait for its end. */
static void conn_end(struct agentd_conn *c, const char *why, bool exited)
{
	if (local_client_ended(c->client, why, exited)) {
		conn_close(c, why);
		return;
	}
	c->peer_closed = true;
	c->close_reason = NULL;
	uv_poll_stop(&c->poll);
}

void agentd_close_scheduled(struct agentd *a)
{
	struct agentd_conn *c = LIST_FIRST(&a->conns);

	while (c) {
		if (c->close_reason) {
			conn_end(c, c->close_reason, false);
			c = LIST_FIRST(&a->conns); /* losing one may close others */
		} else {
			c = LIST_NEXT(c, link);
		}
	}
}

void agentd_close_all(struct agentd *a)
{
	while (!LIST_EMPTY(&a->conns))
		conn_close(LIST_FIRST(&a->conns), "was cut off: the agent stops");
}

/* Reads at most max messages. Returns why the connection has ended; NULL: it has not. */
static const char *conn_read_messages(struct agentd_conn *c, int max)
{
	union local_message m;
	ssize_t n;

	for (int i = 0; i < max && !c->close_reason; i++) {
		n = recv(c->fd, &m, sizeof m, MSG_DONTWAIT | MSG_TRUNC);
		if (n < 0 && errno == ECONNRESET)
			continue; /* the client closed with unread messages; what it sent before follows */
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return NULL;
		if (n <= 0)
			return "exited";
		local_client_message(c->client, &m, (size_t)n, uv_now(&c->a->loop));
	}
	return NULL;
}

static void conn_on_poll(uv_poll_t *p, int status, int events)
{
	struct agentd_conn *c = p->data;
	struct agentd *a = c->a;
	const char *gone = NULL;

	if (events & UV_WRITABLE) {
		conn_flush(c);
		if (!c->out && !c->close_reason)
			conn_watch(c);
	}
	if (events & UV_READABLE)
		gone = conn_read_messages(c, AGENTD_READ_BATCH);
	if (status < 0) { /* libuv does not poll it any more: read the rest */
		conn_read_messages(c, INT_MAX);
		gone = "exited";
	}
	if (gone && !c->close_reason)
		conn_end(c, gone, true);
	agentd_arm(a);
	agentd_check_end_soon(a);
}

static int conn_new(struct agentd *a, int fd, uint32_t pid, struct rs_err *e)
{
	struct agentd_conn *c = calloc(1, sizeof *c);
	int rc;

	if (!c)
		return rs_oom(e, 0, "a connection in the agent on %s", a->host);
	c->a = a;
	c->fd = fd;
	c->out_end = &c->out;
	c->poll.data = c;
	rc = local_client_new(&c->client, a->hub, pid, c, uv_now(&a->loop), e);
	if (rc) {
		free(c);
		return rc;
	}
	rc = rs_poll_init(&a->loop, &c->poll, fd, e);
	if (rc) {
		rs_wrap(e, "the agent on %s", a->host);
		local_client_lost(c->client, "was refused");
		free(c);
		return rc;
	}
	LIST_INSERT_HEAD(&a->conns, c, link);
	conn_watch(c);
	return RS_OK;
}

/* Refuses a connection. retry: the reason may pass. */
static void conn_refuse(struct agentd *a, int fd, const struct rs_err *why, bool retry)
{
	union local_message m;

	if (rs_log_limit_pass(&a->refused, uv_now(&a->loop)))
		rs_log(a->log, RS_LOG_WARN, "client-refused", rs_kv_s("reason", why->msg));
	local_init(&m, LOCAL_REFUSED);
	m.failure.code = why->code;
	m.failure.retry = retry;
	local_put_text(m.failure.message, why->msg);
	conn_send_one(fd, &m, -1);
	close(fd);
}

void agentd_accept(struct agentd *a)
{
	struct rs_err e;
	uint32_t pid;
	int fd = accept4(a->socket.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
		if (local_hub_make_room(a->hub, "the agent has no file descriptors left")) {
			agentd_close_scheduled(a); /* the listener reports again at once */
			agentd_arm(a);
			return;
		}
		close(a->spare_fd);
		fd = accept4(a->socket.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd >= 0) {
			rs_fail(&e, RS_EREFUSED, "the agent on %s has no file descriptors left", a->host);
			conn_refuse(a, fd, &e, true);
		}
		a->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
		return;
	}
	if (fd < 0)
		return;
	if (agentd_socket_check_peer(&a->socket, fd, &pid, &e))
		conn_refuse(a, fd, &e, false);
	else if (conn_new(a, fd, pid, &e))
		conn_refuse(a, fd, &e, true);
	agentd_arm(a);
}
