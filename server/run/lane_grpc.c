/* SPDX-License-Identifier: Apache-2.0 */
/* The happy path: woken: received bytes are copied straight into accumulators -> the lane
 * calls flush, which fills messages -> after the last frame the stream is finished, and
 * the peer finishes it. Failure modes: the stream breaks, or the peer finishes early:
 * session_lost() informs the core, which decides what it means for the job. */
#include "server/run/lane_grpc.h"

#include <stdlib.h>

enum { GRPC_BYTES_PER_WAKE = 256 << 10 /* for the reason of BYTES_PER_WAKE in lane_tcp.c */ };

/* A lane's connection over gRPC. */
struct grpc {
	struct lane_conn conn;
	struct wakeup wakeup;
	const struct rpc_api *rpc;
	struct rpc_stream *stream;
	bool shut;
	bool send_failed; /* nothing more can be sent; a read will return the reason */
};
_Static_assert(sizeof(struct grpc) <= LANE_CONN_BYTES, "LANE_CONN_BYTES is too small");

static void grpc_lost(struct grpc *c, ssize_t rc)
{
	struct rs_err e;

	c->rpc->stream_error(c->stream, &e);
	session_lost(c->conn.session, rc == 0 ? "it closed the connection" : e.msg);
}

/* Reads until the stream is empty, or up to the limit. Returns true if there may be more
 * bytes. */
static bool grpc_read(struct grpc *c)
{
	uint64_t limit_ns = lane_conn_read_begin(&c->conn);

	for (ssize_t total = 0; total < GRPC_BYTES_PER_WAKE && lane_conn_may_read(&c->conn, limit_ns);) {
		struct iovec iov[2];
		unsigned n = session_recv_target(c->conn.session, iov);
		ssize_t got = n ? c->rpc->stream_recv(c->stream, iov, n) : RPC_AGAIN;

		if (got == RPC_AGAIN)
			return false;
		if (got <= 0) {
			grpc_lost(c, got);
			return false;
		}
		total += got;
		lane_conn_received(&c->conn, (size_t)got);
	}
	return true;
}

static void grpc_flush(struct lane_conn *conn)
{
	struct grpc *c = (struct grpc *)conn;
	struct iovec iov[SESSION_IOV];
	unsigned n = 0;

	while (!c->send_failed && (n = session_send_target(c->conn.session, iov, SESSION_IOV))) {
		ssize_t sent = c->rpc->stream_send(c->stream, iov, n);

		c->conn.write_wait = sent == RPC_AGAIN;
		if (sent == RPC_AGAIN)
			break;
		c->send_failed = sent < 0;
		if (!c->send_failed)
			lane_conn_sent(&c->conn, (size_t)sent);
	}
	if (!n || c->send_failed)
		c->conn.write_wait = false;
	if (!c->shut && session_shut(c->conn.session)) {
		c->shut = true;
		c->rpc->stream_finish(c->stream);
	}
}

static void grpc_on_woken(struct wakeup *w)
{
	struct grpc *c = (struct grpc *)((char *)w - offsetof(struct grpc, wakeup));

	if (c->conn.write_wait) {
		c->conn.write_wait = false;
		lane_conn_flush(&c->conn);
	}
	if (grpc_read(c))
		wakeup_send(w);
	lane_conn_read_end(&c->conn);
	lane_conns_turn(c->conn.all);
}

static void grpc_close(struct lane_conn *conn)
{
	struct grpc *c = (struct grpc *)conn;

	c->rpc->stream_close(c->stream, RPC_CODE_OK, NULL);
	wakeup_close(&c->wakeup);
	free(c);
}

struct lane_conn *lane_grpc_new(struct lane_conns *all, struct rpc_stream *stream)
{
	static const struct lane_conn_ops ops = {.flush = grpc_flush, .close = grpc_close};
	struct grpc *c = calloc(1, sizeof *c);

	if (!c) {
		all->rpc->stream_close(stream, RPC_CODE_RESOURCE_EXHAUSTED,
				       "out of memory for a connection in this reducer");
		return NULL;
	}
	c->conn = (struct lane_conn){.all = all, .ops = &ops, .is_stream = true};
	c->rpc = all->rpc;
	c->stream = stream;
	wakeup_init(&c->wakeup, all->wakeups, grpc_on_woken);
	return &c->conn;
}

void lane_grpc_start(struct lane_conn *conn)
{
	struct grpc *c = (struct grpc *)conn;

	c->rpc->stream_waker(c->stream, wakeup_waker(&c->wakeup));
	wakeup_send(&c->wakeup); /* reads the bytes that came before */
}
