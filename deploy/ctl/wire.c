/* SPDX-License-Identifier: Apache-2.0 */
#include "deploy/ctl/wire.h"

#include "common/address.h"
#include "proto/control.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

static uint64_t wire_now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static int fail_late(const struct wire *w, struct rs_err *e)
{
	return rs_fail(e, RS_ETIMEOUT, "it gave no answer within %.1f s", w->timeout_ms / 1000.0);
}

/* Waits for events of a descriptor until the deadline. */
static int wait_for(const struct wire *w, int fd, short events, struct rs_err *e)
{
	struct pollfd p = {.fd = fd, .events = events};
	uint64_t now = wire_now_ms();
	int rc;

	if (now >= w->until_ms)
		return fail_late(w, e);
	rc = poll(&p, 1, (int)(w->until_ms - now));
	if (rc < 0 && errno != EINTR)
		return rs_fail_sys(e, RS_EIO, errno, "waiting for it failed");
	return rc == 0 ? fail_late(w, e) : RS_OK;
}

static int fail_tcp(const struct wire *w, struct rs_err *e)
{
	char reason[TCP_CONN_REASON];

	return rs_fail(e, RS_EIO, "%s", tcp_conn_reason(&w->tcp, reason));
}

/* Waits until TCP can continue: until something arrives, or what waits inside can be
 * sent. */
static int wait_tcp(struct wire *w, short events, struct rs_err *e)
{
	int rc = wait_for(w, w->tcp.fd, (short)(events | (tcp_conn_unsent(&w->tcp) ? POLLOUT : 0)), e);

	return !rc && !tcp_conn_flush(&w->tcp) ? fail_tcp(w, e) : rc;
}

/* A reducer without TLS answers with REFUSED. */
static int fail_foreign(const struct wire *w, struct rs_err *e)
{
	const uint8_t *in = w->tcp.in + w->tcp.in_at;
	struct control_refused refused;
	struct frame f;

	if (w->tcp.in_n < FRAME_HEADER || frame_decode(in, &f, e) || f.type != FRAME_REFUSED ||
	    w->tcp.in_n < FRAME_HEADER + (size_t)f.payload_len ||
	    control_unpack_refused(in + FRAME_HEADER, f.payload_len, &refused, e))
		return fail_tcp(w, e);
	return rs_fail(e, RS_EREFUSED, "it answered without TLS: %s", refused.message);
}

static int start_tls(struct wire *w, SSL_CTX *ctx, const char *name, struct rs_err *e)
{
	int rc = tcp_conn_connect(&w->tcp, w->tcp.fd, ctx, name, &w->session, e);

	while (!rc) {
		switch (tcp_conn_handshake(&w->tcp, e)) {
		case TCP_CONN_UP:
			w->binding_len = TLS_BINDING;
			return tls_binding(w->tcp.ssl, w->binding, e);
		case TCP_CONN_WAIT:
			rc = wait_tcp(w, POLLIN, e);
			break;
		case TCP_CONN_FAILED:
			return w->tcp.not_tls ? fail_foreign(w, e) : e->code;
		}
	}
	return rc;
}

static int connect_tcp(struct wire *w, const struct addrinfo *to, struct rs_err *e)
{
	int fd = socket(to->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), error = 0, rc = RS_OK;
	socklen_t len = sizeof error;

	if (fd < 0)
		return rs_fail_sys(e, RS_EIO, errno, "a socket cannot be made");
	tcp_conn_plain(&w->tcp, fd);
	if (connect(fd, to->ai_addr, to->ai_addrlen) && errno != EINPROGRESS)
		error = errno;
	else
		rc = wait_for(w, fd, POLLOUT, e);
	if (!rc && !error && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len))
		error = errno;
	w->tcp.error = error;
	if (!rc && error)
		rc = fail_tcp(w, e);
	if (rc)
		tcp_conn_close(&w->tcp);
	return rc;
}

static int open_tcp(struct wire *w, const struct wire_options *opt, const struct addrinfo *list, const char *tls_name,
		    struct rs_err *e)
{
	int rc = RS_EIO;

	for (const struct addrinfo *to = list; to && rc; to = to->ai_next)
		rc = connect_tcp(w, to, e);
	if (rc || !opt->ctx)
		return rc;
	rc = start_tls(w, opt->ctx, tls_name, e);
	if (rc)
		wire_close(w);
	return rc;
}

static void on_wake(void *user)
{
	const struct wire *w = user;
	uint64_t one = 1;

	/* a full counter wakes as well */
	if (write(w->woken, &one, sizeof one) < 0)
		return;
}

/* Waits until the stream's waker was called. */
static int wait_stream(const struct wire *w, struct rs_err *e)
{
	uint64_t woken;
	int rc = wait_for(w, w->woken, POLLIN, e);

	if (!rc && read(w->woken, &woken, sizeof woken) < 0 && errno != EAGAIN)
		rc = rs_fail_sys(e, RS_EIO, errno, "waiting for it failed");
	return rc;
}

static int fail_stream(const struct wire *w, ssize_t got, struct rs_err *e)
{
	if (got == 0)
		return rs_fail(e, RS_EIO, "it closed the connection");
	w->rpc->stream_error(w->stream, e);
	return e->code;
}

static int connect_grpc(struct wire *w, const struct wire_options *opt, const struct addrinfo *to, const char *port,
			const char *tls_name, struct rs_err *e)
{
	char host[NI_MAXHOST], address[sizeof host + 16];
	struct rpc_open_options oo = {
	    .authority = tls_name, .tls = opt->tls, .path = "/reduction.v1.Reducer/Exchange", .waker = {on_wake, w}};
	int rc;

	if (getnameinfo(to->ai_addr, to->ai_addrlen, host, sizeof host, NULL, 0, NI_NUMERICHOST))
		return rs_fail(e, RS_EIO, "its address cannot be converted to text");
	snprintf(address, sizeof address, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
	oo.address = address;
	w->woken = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (w->woken < 0)
		return rs_fail_sys(e, RS_EIO, errno, "an event cannot be made");
	rc = opt->rpc->stream_open(&w->stream, opt->client, &oo, e);
	if (rc) {
		close(w->woken);
		return rc;
	}
	w->rpc = opt->rpc;
	while (!rc && !w->rpc->stream_up(w->stream)) {
		ssize_t got = w->rpc->stream_recv(w->stream, NULL, 0);

		rc = got == RPC_AGAIN ? wait_stream(w, e) : fail_stream(w, got, e);
	}
	if (rc)
		wire_close(w);
	return rc;
}

static int open_grpc(struct wire *w, const struct wire_options *opt, const struct addrinfo *list, const char *port,
		     const char *tls_name, struct rs_err *e)
{
	int rc = RS_EIO;

	for (const struct addrinfo *to = list; to && rc; to = to->ai_next)
		rc = connect_grpc(w, opt, to, port, tls_name, e);
	return rc;
}

int wire_open(struct wire *w, const struct wire_options *opt, const char *address, const char *tls_name,
	      uint32_t timeout_ms, struct rs_err *e)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *list;
	struct rs_host_port to;
	int rc = rs_host_port_split(&to, address, false, e);

	*w = (struct wire){.until_ms = wire_now_ms() + timeout_ms, .timeout_ms = timeout_ms};
	if (rc)
		return rc;
	rc = getaddrinfo(to.host, to.port, &hints, &list);
	if (rc)
		return rs_fail(e, RS_EIO, "its name cannot be resolved: %s", gai_strerror(rc));
	rc = opt->rpc ? open_grpc(w, opt, list, to.port, tls_name, e) : open_tcp(w, opt, list, tls_name, e);
	freeaddrinfo(list);
	return rc;
}

int wire_send(struct wire *w, const void *bytes, size_t n, struct rs_err *e)
{
	const uint8_t *at = bytes;
	int rc = RS_OK;

	while (!rc && n > 0) {
		struct iovec iov = {(void *)at, n};
		ssize_t sent = w->rpc ? w->rpc->stream_send(w->stream, &iov, 1) : tcp_conn_send(&w->tcp, &iov, 1);

		if (sent > 0) {
			at += sent;
			n -= (size_t)sent;
		} else if (w->rpc) {
			rc = sent == RPC_AGAIN ? wait_stream(w, e) : fail_stream(w, sent, e);
		} else {
			rc = errno == EAGAIN || errno == EWOULDBLOCK ? wait_tcp(w, POLLOUT, e) : fail_tcp(w, e);
		}
	}
	while (!rc && !w->rpc && tcp_conn_unsent(&w->tcp))
		rc = wait_tcp(w, POLLOUT, e);
	return rc;
}

int wire_recv(struct wire *w, void *to, size_t n, struct rs_err *e)
{
	uint8_t *at = to;
	int rc = RS_OK;

	while (!rc && n > 0) {
		struct iovec iov = {at, n};
		ssize_t got = w->rpc ? w->rpc->stream_recv(w->stream, &iov, 1) : tcp_conn_recv(&w->tcp, &iov, 1);

		if (got > 0) {
			at += got;
			n -= (size_t)got;
		} else if (w->rpc) {
			rc = got == RPC_AGAIN ? wait_stream(w, e) : fail_stream(w, got, e);
		} else if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
			rc = tcp_conn_pending(&w->tcp) ? RS_OK : wait_tcp(w, POLLIN, e);
		} else {
			rc = fail_tcp(w, e);
		}
	}
	return rc;
}

void wire_close(struct wire *w)
{
	if (w->rpc) {
		w->rpc->stream_close(w->stream, RPC_CODE_CANCELLED, "closed");
		close(w->woken);
	} else {
		tcp_conn_shutdown(&w->tcp);
		tcp_conn_close(&w->tcp);
	}
	SSL_SESSION_free(w->session);
}
