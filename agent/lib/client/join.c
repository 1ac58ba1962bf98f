/* SPDX-License-Identifier: Apache-2.0 */
/* Joining the job through the agent. The happy path: connect -> HELLO -> WELCOME ->
 * READY. Failure modes: no agent listens yet, or it refuses for a reason that may pass
 * (tried again until the connect timeout); it refuses for good; the job ends before it
 * starts (ABORT, which names the missing ranks); the agent exits or does not answer. */
#include "agent/lib/client/client.h"
#include "agent/lib/client/open.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
	RETRY_MS = 50,
	SEND_ROOM = 1 << 20, /* bytes of a socket's buffer, if the default is full; the system may allow less */
	GRACE_MS = 3000,     /* the agent's own timeout comes first: its sentence names the missing ranks */
};

static uint64_t join_now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void join_pause(unsigned ms)
{
	struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

	nanosleep(&t, NULL);
}

int client_send(int fd, const union local_message *m)
{
	ssize_t n;

	do
		n = send(fd, m, m->head.bytes, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n < 0 ? errno : 0;
}

void client_send_now(int fd, const union local_message *m)
{
	const int flags = MSG_NOSIGNAL | MSG_DONTWAIT, room = SEND_ROOM;

	if (send(fd, m, m->head.bytes, flags) >= 0 || errno != EAGAIN)
		return;
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
	send(fd, m, m->head.bytes, flags);
}

int client_failure(struct rs_err *e, int code, const char *message)
{
	return rs_fail(e, code < 0 ? code : RS_EPROTO, "%s", message);
}

static int join_take_descriptor(struct msghdr *msg)
{
	int fd = -1;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c))
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof fd))
			memcpy(&fd, CMSG_DATA(c), sizeof fd);
	return fd;
}

/* Returns the bytes of a received message; 0: none now; -1 and e: none any more. */
static ssize_t join_receive(int fd, const char *path, struct msghdr *msg, struct rs_err *e)
{
	socklen_t space = msg->msg_controllen;

	for (;;) {
		ssize_t n = recvmsg(fd, msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);

		if (n > 0)
			return n;
		msg->msg_controllen = space;
		if (n < 0 && errno == EAGAIN)
			return 0;
		/* a reset is reported once; then the last messages follow */
		if (n == 0 || (errno != EINTR && errno != ECONNRESET)) {
			rs_fail(e, RS_EPEER, "the agent at %s was lost", path);
			return -1;
		}
	}
}

static int join_receive_message(int fd, const char *path, union local_message *ret, int *ret_fd, struct rs_err *e)
{
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec iov = {.iov_base = ret, .iov_len = sizeof *ret};
	struct msghdr msg = {
	    .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control.space};
	ssize_t n = join_receive(fd, path, &msg, e);
	int passed;

	if (n <= 0)
		return n ? e->code : CLIENT_NOTHING;
	passed = join_take_descriptor(&msg);
	if (local_check(ret, (size_t)n, false, e)) {
		if (passed >= 0)
			close(passed);
		return rs_wrap(e, "the agent at %s broke the local protocol", path);
	}
	*ret_fd = passed;
	return RS_OK;
}

/* Replies to a PING. Does not wait: if the socket is full of this side's messages, those
 * show as well that it is alive. */
static void join_answer_ping(int fd, const union local_message *m, int *passed)
{
	union local_message pong;

	if (m->head.type != LOCAL_PING)
		return;
	if (*passed >= 0)
		close(*passed);
	*passed = -1;
	local_init(&pong, LOCAL_PONG);
	send(fd, &pong, pong.head.bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
}

int client_take(int fd, const char *path, union local_message *ret, int *ret_fd, struct rs_err *e)
{
	int rc = join_receive_message(fd, path, ret, ret_fd, e);

	if (!rc)
		join_answer_ping(fd, ret, ret_fd);
	return rc;
}

/* Returns whether an abstract socket belongs to another user: any process may take an
 * abstract name, so only root and the own user are trusted. */
static bool join_is_other_user(int fd, const char *path)
{
	struct ucred cred;
	socklen_t len = sizeof cred;

	if (!local_is_abstract(path))
		return false;
	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) || (cred.uid != 0 && cred.uid != geteuid());
}

bool client_agent_listens(const char *path)
{
	struct sockaddr_un a;
	socklen_t len = local_address(&a, path);
	bool listens;
	int fd;

	if (!len)
		return false;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return false;
	listens = connect(fd, (struct sockaddr *)&a, len) == 0 || errno == EAGAIN;
	close(fd);
	return listens;
}

/* Tries to connect once. Returns RS_OK, 1 if another attempt may succeed, or an error; e
 * is set unless RS_OK. */
static int join_connect(const char *path, int *ret, struct rs_err *e)
{
	struct sockaddr_un addr;
	socklen_t len = local_address(&addr, path);
	int fd, rc;

	if (!len)
		return rs_fail(e, RS_ECONFIG, "the agent's socket path '%s' has %zu bytes, expected at most %zu", path,
			       strlen(path), sizeof addr.sun_path - 1);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return rs_fail_sys(e, RS_EIO, errno, "cannot make a socket");
	rc = connect(fd, (struct sockaddr *)&addr, len) ? errno : 0;
	if (!rc && fcntl(fd, F_SETFL, 0))
		rc = errno;
	if (!rc && join_is_other_user(fd, path)) {
		close(fd);
		return rs_fail(e, RS_EREFUSED, "another user's process listens on %s", path);
	}
	if (!rc) {
		*ret = fd;
		return RS_OK;
	}
	close(fd);
	if (rc == ENOENT || rc == ECONNREFUSED || rc == EAGAIN || rc == EINTR) {
		rs_fail_sys(e, RS_ETIMEOUT, rc, "no agent is listening on %s", path);
		return 1;
	}
	if (rc == EPROTOTYPE)
		return rs_fail(e, RS_EPROTO, "%s is not the socket of a reduction-agent", path);
	return rs_fail_sys(e, RS_EIO, rc, "cannot connect to the agent at %s", path);
}

/* Waits until there is something to read. */
static int join_await_readable(int fd, const char *path, uint64_t until, struct rs_err *e)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	uint64_t now = join_now_ms();
	int n;

	for (;; now = join_now_ms()) {
		n = poll(&p, 1, until > now ? (int)(until - now < INT32_MAX ? until - now : INT32_MAX) : 0);
		if (n > 0)
			return RS_OK;
		if (n < 0 && errno != EINTR)
			return rs_fail_sys(e, RS_EIO, errno, "cannot wait for the agent at %s", path);
		if (n == 0 && now >= until)
			return rs_fail(e, RS_ETIMEOUT, "the agent at %s does not answer", path);
	}
}

static int join_await(int fd, const char *path, uint64_t until, union local_message *ret, struct rs_err *e)
{
	int passed, rc;

	do {
		rc = join_await_readable(fd, path, until, e);
		if (!rc)
			rc = client_take(fd, path, ret, &passed, e);
	} while (rc == CLIENT_NOTHING || (!rc && ret->head.type == LOCAL_PING));
	if (rc)
		return rc;
	if (passed >= 0)
		close(passed);
	return RS_OK;
}

static void join_hello(union local_message *m, const struct backend_options *opt, uint64_t left_ms)
{
	local_init(m, LOCAL_HELLO);
	snprintf(m->hello.job, sizeof m->hello.job, "%s", opt->job);
	snprintf(m->hello.run, sizeof m->hello.run, "%s", opt->run);
	snprintf(m->hello.evidence, sizeof m->hello.evidence, "%s", opt->evidence);
	m->hello.rank = opt->rank;
	m->hello.world_size = opt->world_size;
	m->hello.local_rank = opt->local_rank;
	m->hello.local_world_size = opt->local_world_size;
	m->hello.node_rank = opt->node_rank;
	m->hello.nodes = opt->nodes;
	m->hello.generation = opt->generation;
	m->hello.pid = (uint32_t)getpid();
	m->hello.connect_ms = (uint32_t)left_ms;
	m->hello.detect_ms = opt->cfg->timeouts.detect_ms;
}

/* From HELLO to READY on a connection. Returns as join_connect. */
static int join_handshake(int fd, const struct backend_options *opt, uint64_t until, struct client_grants *ret,
			  struct rs_err *e)
{
	uint64_t now = join_now_ms();
	struct local_welcome welcome = {.ops = 0};
	union local_message m;
	int rc;

	join_hello(&m, opt, until > now ? until - now : 1);
	client_send(fd, &m); /* if it fails, the agent has closed after sending its reason */
	for (;;) {
		rc = join_await(fd, opt->agent_path, until + GRACE_MS, &m, e);
		if (rc)
			return rc;
		switch (m.head.type) {
		case LOCAL_WELCOME:
			welcome = m.welcome;
			break;
		case LOCAL_REFUSED:
			rc = client_failure(e, m.failure.code, m.failure.message);
			return m.failure.retry ? 1 : rc;
		case LOCAL_ABORT:
			return client_failure(e, m.failure.code, m.failure.message);
		case LOCAL_READY:
			if (welcome.ops > 0 && welcome.chunk_bytes > 0) {
				*ret = (struct client_grants){.welcome = welcome, .can_shard = m.ready.can_shard};
				return RS_OK;
			}
			/* fallthrough */
		default:
			return rs_fail(e, RS_EPROTO, "the agent at %s sent %s while this rank was joining",
				       opt->agent_path, local_type_name(m.head.type));
		}
	}
}

int client_join(const struct backend_options *opt, int *ret_fd, struct client_grants *ret, struct rs_err *e)
{
	uint64_t until = join_now_ms() + opt->connect_ms;
	int fd = -1, rc;

	for (;;) {
		rc = join_connect(opt->agent_path, &fd, e);
		if (!rc) {
			rc = join_handshake(fd, opt, until, ret, e);
			if (!rc)
				break;
			close(fd);
		}
		if (rc < 0)
			return rc;
		if (join_now_ms() >= until)
			return rs_wrap(e, "gave up after %u ms", opt->connect_ms);
		join_pause(RETRY_MS);
	}
	*ret_fd = fd;
	return RS_OK;
}
