/* SPDX-License-Identifier: Apache-2.0 */
/* What a lane's thread (lane_uv.c) and the connections of one transport (lane_tcp.c, lane_grpc.c) know of each other.
 * Everything here is for the lane's thread. */
#ifndef RS_SERVER_RUN_LANE_CONN_H
#define RS_SERVER_RUN_LANE_CONN_H

#include "common/tcp_conn.h"
#include "proto/rpc/wakeup.h"
#include "server/core/lane.h"

#include <uv.h>

struct lane_conn;
struct lane_mail;
struct lane_thread;

struct lane_conn_ops {
	/* Sends what the session has, as far as the transport takes it, and ends the sending side after the last
	 * frame. Where it takes no more, write_wait is set, and this is called again by the transport itself. */
	void (*flush)(struct lane_conn *c);
	/* The session is gone: closes, now or later, and frees. */
	void (*close)(struct lane_conn *c);
};

/* First member of a transport's connection. Invariant: session is NULL exactly when the connection is closing. */
struct lane_conn {
	struct lane_conn *next, **at;
	struct lane_thread *lane;
	const struct lane_conn_ops *ops;
	struct session *session;
	struct lane_mail *gone; /* for LANE_GONE; NULL while it closes */
	uint64_t job;
	bool write_wait; /* the transport took less than there was */
	bool is_stream;  /* over gRPC */
};

uv_loop_t *lane_thread_loop(struct lane_thread *t);
/* To be called at the end of every event in which a transport gave bytes to a session or took some: now and then looks
 * after a session that became ready. */
void lane_thread_turn(struct lane_thread *t);

/* Makes a connection of *tcp, which is moved there; `detect_ms`: unsent bytes that the peer does not take for so
 * long break it. NULL: no memory, or it cannot be watched; *tcp is closed then. */
struct lane_conn *lane_tcp_new(struct lane_thread *t, struct tcp_conn *tcp, uint32_t detect_ms);
/* The session is there: begins to read. */
void lane_tcp_start(struct lane_conn *c);

/* The same of a stream of the module, which is woken through `wakeups` of the lane's loop. */
struct lane_conn *lane_grpc_new(struct lane_thread *t, const struct rpc_api *rpc, struct rpc_stream *stream,
				struct wakeups *wakeups);
void lane_grpc_start(struct lane_conn *c);

/* Most bytes of a connection here, but for what gRPC has of it. */
enum { LANE_CONN_BYTES = 512 };

#endif
