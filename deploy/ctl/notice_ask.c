/* SPDX-License-Identifier: Apache-2.0 */
/* One connection for each question: a metadata service is on this machine's host. */
#include "deploy/ctl/notice.h"

#include "common/address.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static int64_t ask_now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* Waits for a socket until a time. */
static int ask_wait(int fd, short events, int64_t until_ms, struct rs_err *e)
{
	struct pollfd p = {.fd = fd, .events = events};
	int64_t left = until_ms - ask_now_ms();
	int n = poll(&p, 1, left < 0 ? 0 : (int)left);

	if (n < 0 && errno != EINTR)
		return rs_fail_sys(e, RS_EIO, errno, "poll");
	return n == 0 ? rs_fail(e, RS_ETIMEOUT, "it does not answer in time") : RS_OK;
}

/* Connects. Returns the socket or an error; *ret_error is the system's error of the
 * connection, or 0. */
static int ask_connect(const char *address, int64_t until_ms, int *ret_error, struct rs_err *e)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
	struct rs_host_port to;
	socklen_t len = sizeof(int);
	int fd, rc = rs_host_port_split(&to, address, false, e), error = 0;

	*ret_error = 0;
	if (rc)
		return rc;
	rc = getaddrinfo(to.host, to.port, &hints, &found);
	if (rc)
		return rs_fail(e, RS_EIO, "%s", gai_strerror(rc));
	fd = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) && errno != EINPROGRESS)
		error = errno;
	freeaddrinfo(found);
	if (fd < 0)
		return rs_fail_sys(e, RS_EIO, errno, "socket");
	rc = error ? RS_OK : ask_wait(fd, POLLOUT, until_ms, e);
	if (!rc && !error)
		getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len);
	*ret_error = error;
	if (error)
		rc = rs_fail_sys(e, RS_EIO, error, "cannot connect");
	if (rc)
		close(fd);
	return rc ? rc : fd;
}

bool notice_is_free(const char *address)
{
	struct rs_err e;
	int error, fd = ask_connect(address, ask_now_ms() + 1000, &error, &e);

	if (fd >= 0)
		close(fd);
	return error == ECONNREFUSED;
}

static int ask_send(int fd, const char *address, const struct notice_request *q, int64_t until_ms, struct rs_err *e)
{
	char text[1536];
	size_t len = (size_t)snprintf(text, sizeof text,
				      "%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: reductionctl\r\nAccept: */*\r\n"
				      "Connection: close\r\nContent-Length: %zu\r\n%s\r\n%s",
				      q->method, q->path, address, strlen(q->body), q->headers, q->body);

	for (size_t sent = 0; sent < len;) {
		ssize_t n = send(fd, text + sent, len - sent, MSG_NOSIGNAL);

		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return rs_fail_sys(e, RS_EIO, errno, "cannot send");
		if (n < 0 && ask_wait(fd, POLLOUT, until_ms, e))
			return e->code;
		sent += n > 0 ? (size_t)n : 0;
	}
	return RS_OK;
}

static int ask_receive(int fd, char *text, int64_t until_ms, struct notice_answer *ret, struct rs_err *e)
{
	size_t len = 0;

	for (;;) {
		ssize_t n = recv(fd, text + len, NOTICE_BODY - len, 0);
		int rc = 0;

		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return rs_fail_sys(e, RS_EIO, errno, "cannot receive");
		if (n < 0) {
			rc = ask_wait(fd, POLLIN, until_ms, e);
			if (rc)
				return rc;
			continue;
		}
		len += (size_t)n;
		rc = notice_http_read(text, len, n == 0, ret, e);
		if (rc)
			return rc < 0 ? rc : RS_OK;
		if (len == NOTICE_BODY)
			return rs_fail(e, RS_EPROTO, "its answer has more than %d bytes", NOTICE_BODY);
	}
}

int notice_ask(const char *address, const struct notice_request *q, char *text, struct notice_answer *ret,
	       struct rs_err *e)
{
	int64_t until_ms = ask_now_ms() + q->timeout_ms;
	int rc, error, fd = ask_connect(address, until_ms, &error, e);

	if (fd < 0)
		return fd;
	rc = ask_send(fd, address, q, until_ms, e);
	if (!rc)
		rc = ask_receive(fd, text, until_ms, ret, e);
	close(fd);
	return rc;
}
