/* SPDX-License-Identifier: Apache-2.0 */
/* The connections of a lane, and which of them sends next. The transports (lane_tcp.c,
 * lane_grpc.c) move the bytes. Only the lane's thread uses them. */
#ifndef RS_SERVER_RUN_LANE_CONN_H
#define RS_SERVER_RUN_LANE_CONN_H

#include "proto/rpc/wakeup.h"
#include "server/core/lane.h"
#include "server/core/share.h"

#include <sys/queue.h>
#include <uv.h>

struct lane_conn;
struct lane_mail;
struct lane_parted;

/* The operations of a transport. */
struct lane_conn_ops {
	/* Sends as much of the session's output as the transport takes, and ends the
	 * sending side after the last frame. If the transport takes no more, write_wait
	 * is set, and the transport calls this function again later. */
	void (*flush)(struct lane_conn *c);
	/* Calls session_network. NULL: the transport does not know it. */
	void (*sample)(struct lane_conn *c);
	/* Calls session_acknowledged. NULL: acknowledgements prove nothing. */
	void (*look)(struct lane_conn *c);
	/* Moves the connection to *to, after which nothing of it may be used here but
	 * close. NULL: it cannot outlive its session. */
	void (*part)(struct lane_conn *c, struct lane_parted *to);
	/* Closes, now or later, and frees the connection, whose session is freed. */
	void (*close)(struct lane_conn *c);
};

/* First member of a transport's connection. Invariant: session is NULL exactly if the
 * connection is closing. */
struct lane_conn {
	LIST_ENTRY(lane_conn) link; /* in all->list */
	struct lane_conns *all;
	const struct lane_conn_ops *ops;
	struct session *session;
	struct lane_mail *closed; /* its LANE_CLOSED, allocated with it; NULL while it closes */
	uint64_t job;
	struct share share;
	bool sampled;    /* since all were sampled */
	bool write_wait; /* the transport took less than the session had */
	bool is_stream;  /* over gRPC */
};

/* All connections of a lane. Everything that is not a connection is borrowed. */
struct lane_conns {
	uv_loop_t *loop;
	struct wakeups *wakeups; /* of the loop */
	struct lane *core;
	LIST_HEAD(, lane_conn) list;
	struct shares shares;
	uint64_t began_ns, now_ns; /* when reading of a connection began; time after its last bytes */
	uint64_t moved;            /* bytes of the connection that is being served */
	unsigned reads;            /* events with received bytes since a session was served between them */
	unsigned tcp_n, streams_n; /* number of connections over TCP, and over gRPC */
	const struct rpc_api *rpc; /* of the streams */
	struct rpc_queue *queue;   /* of the streams; the loop sleeps in it if there are only streams */
	struct lane_mail *closed;  /* LANE_CLOSED of the session that is being freed, else NULL */
};

/* Begins to read a connection. Returns the time limit, for lane_conn_may_read; 0: it must
 * not be read in this pass of the loop. */
uint64_t lane_conn_read_begin(struct lane_conn *c);
static inline bool lane_conn_may_read(const struct lane_conn *c, uint64_t limit_ns)
{
	return c->all->now_ns - c->all->began_ns < limit_ns;
}
/* Charges the time since lane_conn_read_begin to the connection. */
void lane_conn_read_end(struct lane_conn *c);
/* Calls ops->flush, and charges its time. A session that has ended may be freed. */
void lane_conn_flush(struct lane_conn *c);

/* Pass received or sent bytes to the session, with the time. */
void lane_conn_received(struct lane_conn *c, size_t n);
void lane_conn_sent(struct lane_conn *c, size_t n);
/* Reads what the kernel knows of a few connections, for reports; in each tick of other
 * ones. */
void lane_conns_sample(struct lane_conns *all);
/* Reads whether the machines of quiet workers acknowledge, before each tick. */
void lane_conns_look(struct lane_conns *all);

/* Adds a connection, before its session is attached. */
void lane_conns_add(struct lane_conns *all, struct lane_conn *c);
/* Frees the session of a connection, with `closed` set, and closes the connection. */
void lane_conns_close(struct lane_conns *all, struct lane_conn *c);
/* Serves one ready session after every few calls. A transport calls this function at the
 * end of each event in which it moved bytes of a session. */
void lane_conns_turn(struct lane_conns *all);
/* Serves a few ready sessions. To be called when the loop has read all pending input.
 * Returns false if no session is ready any more. */
bool lane_conns_flush(struct lane_conns *all);

/* Most bytes of a connection here, without those that gRPC allocates. */
enum { LANE_CONN_BYTES = 512 };

#endif
