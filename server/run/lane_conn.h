/* SPDX-License-Identifier: Apache-2.0 */
/* The interface between a lane's thread (lane_uv.c) and the connections of a transport (lane_tcp.c, lane_grpc.c). Only
 * the lane's thread uses it. */
#ifndef RS_SERVER_RUN_LANE_CONN_H
#define RS_SERVER_RUN_LANE_CONN_H

#include "common/tcp_conn.h"
#include "proto/rpc/wakeup.h"
#include "server/core/lane.h"

#include <uv.h>

struct lane_conn;
struct lane_mail;
struct lane_thread;

/* The operations of a transport. */
struct lane_conn_ops {
	/* Sends as much of the session's output as the transport takes, and ends the sending side after the last frame.
	 * If the transport takes no more, write_wait is set, and the transport calls this function again later. */
	void (*flush)(struct lane_conn *c);
	/* Closes, now or later, and frees the connection, whose session is freed. */
	void (*close)(struct lane_conn *c);
};

/* First member of a transport's connection. Invariant: session is NULL exactly if the connection is closing. */
struct lane_conn {
	struct lane_conn *next, **at;
	struct lane_thread *lane;
	const struct lane_conn_ops *ops;
	struct session *session;
	struct lane_mail *closed; /* its LANE_CLOSED, allocated with it; NULL while it closes */
	uint64_t job;
	bool write_wait; /* the transport took less than the session had */
	bool is_stream;  /* over gRPC */
};

uv_loop_t *lane_thread_loop(struct lane_thread *t);
/* Serves, now and then, one session that became ready. To be called at the end of every event in which a transport
 * moved bytes of a session. */
void lane_thread_turn(struct lane_thread *t);

/* Creates a connection and moves *tcp into it. The connection breaks if the peer takes no byte for detect_ms. NULL: no
 * memory, or the socket cannot be watched; *tcp is closed then. */
struct lane_conn *lane_tcp_new(struct lane_thread *t, struct tcp_conn *tcp, uint32_t detect_ms);
/* Starts to read, after the session was attached. */
void lane_tcp_start(struct lane_conn *c);

/* The same for a stream over gRPC, which is woken through `wakeups` of the lane's loop. */
struct lane_conn *lane_grpc_new(struct lane_thread *t, const struct rpc_api *rpc, struct rpc_stream *stream,
				struct wakeups *wakeups);
void lane_grpc_start(struct lane_conn *c);

/* Most bytes of a connection here, without those that gRPC allocates. */
enum { LANE_CONN_BYTES = 512 };

#endif
