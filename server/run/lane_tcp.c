/* SPDX-License-Identifier: Apache-2.0 */
/* A TCP connection is a non-blocking socket under uv_poll.
 *
 * The happy path: readable: bytes are received straight into accumulators -> the lane
 * calls flush -> after the last frame shutdown, then end of file. Failure modes: a system
 * call fails, or the peer closes early: session_lost() informs the core, which decides
 * what it means for the job. */
#include "server/run/lane_tcp.h"
#include "server/run/lane_mail.h"
#include "server/run/tcp_path.h"

#include "common/loop_uv.h"
#include "config/limits.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

enum {
	/* Bytes that a connection may receive before the lane reads others. The limit is
	 * in bytes, because one read can bring two thousand PINGs: with a limit of 32
	 * reads, four connections that sent only PINGs left a job of the same lane 2% of
	 * its throughput. The limit is a little more than a rank has in flight, so it has
	 * no effect in normal operation. */
	BYTES_PER_WAKE = 256 << 10,
	READS_AT_END = 4096, /* more than the socket of a broken connection can still contain */
};

/* A lane's connection over TCP. */
struct tcp {
	struct lane_conn conn;
	uv_poll_t poll;
	struct tcp_conn tcp;
	int events; /* events that the poll handle waits for */
	bool shut;
};
_Static_assert(sizeof(struct tcp) <= LANE_CONN_BYTES, "LANE_CONN_BYTES is too small");

static void tcp_on_poll(uv_poll_t *poll, int status, int events);

static void tcp_watch(struct tcp *c)
{
	int events = UV_READABLE | (c->conn.write_wait || tcp_conn_unsent(&c->tcp) ? UV_WRITABLE : 0);

	if (events == c->events)
		return;
	c->events = events;
	uv_poll_start(&c->poll, events, tcp_on_poll);
}

/* Reads once, from the bytes that TLS holds (`inside`) or from the socket. Returns the
 * number of bytes, negated if there was room for more; 0: none. */
static ssize_t tcp_receive(struct tcp *c, bool inside)
{
	char reason[TCP_CONN_REASON];
	struct iovec iov[2];
	unsigned n = session_recv_target(c->conn.session, iov);
	size_t room = 0;
	ssize_t got;

	if (!n)
		return 0;
	for (unsigned k = 0; k < n; k++)
		room += iov[k].iov_len;
	got = inside ? tcp_conn_recv_inside(&c->tcp, iov, n) : tcp_conn_recv(&c->tcp, iov, n);
	if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		return 0;
	if (got <= 0) {
		session_lost(c->conn.session, got ? tcp_conn_reason(&c->tcp, reason) : "it closed the connection");
		return 0;
	}
	lane_conn_received(&c->conn, (size_t)got);
	return (size_t)got == room ? got : -got;
}

static void tcp_read(struct tcp *c)
{
	uint64_t limit_ns = lane_conn_read_begin(&c->conn);
	ssize_t got, total = 0;

	if (!limit_ns)
		return; /* the poll reports it again */
	while (total < BYTES_PER_WAKE && lane_conn_may_read(&c->conn, limit_ns) && (got = tcp_receive(c, false)) > 0)
		total += got;
	while (tcp_conn_pending(&c->tcp) && tcp_receive(c, true))
		;
	lane_conn_read_end(&c->conn);
}

/* Ends a broken connection. Reads first, because the peer may have sent the reason, which
 * all ranks should get. */
static void tcp_broken(struct tcp *c, const char *why)
{
	for (int i = 0; i < READS_AT_END && tcp_receive(c, false); i++)
		;
	session_lost(c->conn.session, why);
}

static void tcp_flush(struct lane_conn *conn)
{
	struct tcp *c = (struct tcp *)conn;
	char reason[TCP_CONN_REASON];
	struct iovec iov[SESSION_IOV];
	bool good = tcp_conn_flush(&c->tcp);
	unsigned n;

	c->conn.write_wait = false;
	while (good && !c->conn.write_wait && (n = session_send_target(c->conn.session, iov, SESSION_IOV))) {
		ssize_t sent = tcp_conn_send(&c->tcp, iov, n);

		if (sent >= 0)
			lane_conn_sent(&c->conn, (size_t)sent);
		else if (errno == EAGAIN || errno == EWOULDBLOCK)
			c->conn.write_wait = true;
		else
			good = false;
	}
	if (!good) {
		tcp_broken(c, tcp_conn_reason(&c->tcp, reason));
		return;
	}
	if (!c->shut && session_shut(c->conn.session) && !session_parts(c->conn.session)) {
		c->shut = true;
		tcp_conn_shutdown(&c->tcp);
	}
	tcp_watch(c);
}

static void tcp_sample(struct lane_conn *conn)
{
	struct tcp *c = (struct tcp *)conn;
	struct tcp_path path;

	if (tcp_path(c->tcp.fd, &path))
		session_network(conn->session, path.rtt_us, path.min_rtt_us, path.retransmits, path.busy_us);
}

/* A kernel whose process is stopped acknowledges until its receive buffer is full. From
 * then on this kernel probes the closed window, less and less often, and an answered
 * probe leaves tcpi_probes at 0. */
static void tcp_look(struct lane_conn *conn)
{
	struct tcp *c = (struct tcp *)conn;
	uint64_t now_ms = uv_now(conn->all->loop);
	struct tcp_info info;
	socklen_t len = sizeof info;
	int unsent = 0;

	if (getsockopt(c->tcp.fd, IPPROTO_TCP, TCP_INFO, &info, &len) || ioctl(c->tcp.fd, SIOCOUTQ, &unsent))
		return;
	if (unsent > 0 && !info.tcpi_unacked && !info.tcpi_probes)
		session_acknowledged(conn->session, now_ms);
	else if (info.tcpi_last_ack_recv <= now_ms)
		session_acknowledged(conn->session, now_ms - info.tcpi_last_ack_recv);
}

static void tcp_on_poll(uv_poll_t *poll, int status, int events)
{
	struct tcp *c = poll->data;

	/* libuv reports every error as EBADF; the next read returns the real one */
	if (status < 0)
		tcp_broken(c, uv_strerror(status));
	if (events & UV_WRITABLE) {
		c->conn.write_wait = false;
		lane_conn_flush(&c->conn);
	}
	if (events & UV_READABLE && c->conn.session)
		tcp_read(c);
	lane_conns_turn(c->conn.all);
}

static void tcp_on_closed(uv_handle_t *h)
{
	struct tcp *c = h->data;

	if (c->tcp.fd >= 0) /* else it has parted */
		tcp_conn_close(&c->tcp);
	free(c);
}

static void tcp_part(struct lane_conn *conn, struct lane_parted *to)
{
	struct tcp *c = (struct tcp *)conn;

	/* another thread will watch the socket, and may close it, as soon as it has it:
	 * this loop must have let it go */
	uv_close((uv_handle_t *)&c->poll, tcp_on_closed);
	tcp_conn_move(&to->tcp, &c->tcp);
}

static void tcp_close(struct lane_conn *conn)
{
	struct tcp *c = (struct tcp *)conn;

	if (c->tcp.fd >= 0)
		uv_close((uv_handle_t *)&c->poll, tcp_on_closed);
}

struct lane_conn *lane_tcp_new(struct lane_conns *all, struct tcp_conn *tcp, uint32_t silence_ms)
{
	static const struct lane_conn_ops ops = {
	    .flush = tcp_flush, .sample = tcp_sample, .look = tcp_look, .part = tcp_part, .close = tcp_close};
	struct tcp *c = calloc(1, sizeof *c);
	struct tcp_path path;

	if (!c || rs_poll_init(all->loop, &c->poll, tcp->fd, NULL)) {
		free(c);
		tcp_conn_close(tcp);
		return NULL;
	}
	c->conn = (struct lane_conn){.all = all, .ops = &ops};
	c->poll.data = c;
	tcp_conn_move(&c->tcp, tcp);
	tcp_conn_tune(c->tcp.fd, silence_ms);
	if (tcp_path(c->tcp.fd, &path) && path.min_rtt_us >= RS_LONG_US)
		tcp_conn_pace(c->tcp.fd, 0);
	return &c->conn;
}

void lane_tcp_start(struct lane_conn *conn)
{
	struct tcp *c = (struct tcp *)conn;

	tcp_watch(c);
	if (tcp_conn_pending(&c->tcp))
		tcp_read(c);
}
