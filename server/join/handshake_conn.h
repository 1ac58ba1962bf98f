/* SPDX-License-Identifier: Apache-2.0 */
/* Connections during the handshake, over any transport: one driver of handshake.h for TCP
 * (handshake_tcp.c) and gRPC (handshake_grpc.c). It reads no byte beyond the handshake
 * and closes connections at their deadline.
 *
 * The happy path of a connection: added -> the transport is ready (TLS) -> frames are
 * received and answered as handshake.h says -> admit() moves the connection to its lane.
 * Failure modes: the peer is refused: it gets REFUSED with the reason, and the connection
 * closes when the peer has closed, or soon. The peer closes or the transport breaks: the
 * connection closes. The peer is too slow: it is refused at the deadline. No room for a
 * connection: the oldest one in the handshake gives up its place; workers send HELLO at
 * once, so silent connections cannot keep them out. A connection that was part of a job
 * returns here if it outlives the job, and waits for the next HELLO; nobody is refused if
 * that does not come. One thread, that of the loop; streams of gRPC wait in a list under
 * a mutex until the loop takes them. */
#ifndef RS_SERVER_JOIN_HANDSHAKE_CONN_H
#define RS_SERVER_JOIN_HANDSHAKE_CONN_H

#include "server/join/deadlines.h"
#include "server/join/handshake.h"

#include <sys/types.h>
#include <uv.h>

struct handshake_conn;

enum { HANDSHAKE_AGAIN = -1000 }; /* of recv: no bytes are there yet */

/* The state of the transport before the first frame. */
enum handshake_transport_state {
	TRANSPORT_READY,
	TRANSPORT_WAIT,
	TRANSPORT_LOST,
	TRANSPORT_REFUSE, /* *refused is to be sent */
	TRANSPORT_FAILED, /* *refused is the reason, and the transport itself has told the peer */
};

enum handshake_close {
	CLOSE_DONE,      /* the peer has closed, or had enough time to read REFUSED */
	CLOSE_LOST,      /* the peer closed early, or the transport broke */
	CLOSE_DISPLACED, /* another connection gets its place; the peer is told why if that does not block */
};

/* The operations of a transport. */
struct handshake_transport {
	/* Prepares the transport, for instance TLS. NULL: it is always ready. */
	enum handshake_transport_state (*prepare)(struct handshake_conn *c, struct control_refused *refused);
	/* Reads at most len bytes. Returns their number, 0 at the end, HANDSHAKE_AGAIN,
	 * or another negative number. */
	ssize_t (*recv)(struct handshake_conn *c, void *at, size_t len);
	/* Sends one frame. The frames of a handshake always fit the transport's buffers.
	 * Returns false if it failed. */
	bool (*send)(struct handshake_conn *c, const void *frame, size_t len);
	/* Ends the sending side. */
	void (*finish)(struct handshake_conn *c);
	/* Discards received bytes of a refused connection. Returns false when the peer
	 * has closed. */
	bool (*discard)(struct handshake_conn *c);
	/* Gives the connection to its lane. RS_OK: it is moved away and nothing of it may
	 * be used here any more. Else *refused is sent. */
	int (*admit)(struct handshake_conn *c, const struct handshake_result *who, struct control_refused *refused);
	/* Logs that the connection is turned away. */
	void (*log_refused)(struct handshake_conn *c, const struct rs_err *why);
	/* Returns what the peer has not sent yet, for sentences, while the transport is
	 * not ready. */
	const char *(*missing)(const struct handshake_conn *c);
	/* Returns whether the peer has sent nothing. NULL: that is not known. */
	bool (*silent)(const struct handshake_conn *c);
	/* Replaces the reason of a refusal or loss if the transport knows a better one.
	 * rc is that of recv, or 1. NULL: it never does. */
	void (*explain)(struct handshake_conn *c, ssize_t rc, struct control_refused *refused);
	/* Closes the connection and frees nothing else. */
	void (*close)(struct handshake_conn *c, enum handshake_close how, const struct control_refused *why);
	/* Frees the connection, whose transport is closed or moved away. */
	void (*free)(struct handshake_conn *c);
};

/* All connections of one transport that are in the handshake. */
struct handshake_conns {
	uv_loop_t *loop;
	uint32_t timeout_ms; /* from the first moment to a complete HELLO, and PROOF where it is required */
	const struct handshake_transport *transport;
	struct handshake_policy policy;
	uv_timer_t tick;
	struct deadlines deadlines;
};

/* First member of a transport's connection. Invariant: it is in one queue of
 * all->deadlines; there `leaves` means that it is refused and waits for the peer to
 * close. */
struct handshake_conn {
	struct deadline deadline;
	struct handshake_conns *all;
	struct handshake handshake;
	char job[CONTROL_JOB]; /* of its HELLO; "": that has not come */
};

/* Starts the timer of the deadlines. */
void handshake_conns_init(struct handshake_conns *all, uv_loop_t *loop, uint32_t timeout_ms,
			  const struct handshake_transport *transport, const struct handshake_policy *policy);
unsigned handshake_conns_count(const struct handshake_conns *all);
/* Closes one connection to make room: the oldest refused one, or else the one that has
 * waited longest. Workers send what is needed at once, so any number of silent
 * connections cannot keep them out. Returns false if there is none. */
bool handshake_conns_make_room(struct handshake_conns *all, const char *why);
/* Closes all connections. */
void handshake_conns_clear(struct handshake_conns *all);
/* Stops the timer, whose handle closes with the loop. */
void handshake_conns_close(struct handshake_conns *all);

/* Adds a connection, whose time begins now. */
void handshake_conn_init(struct handshake_conn *c, struct handshake_conns *all);
/* Adds a connection that was part of a job, and processes what has come since. Returns
 * false if the connection is freed. */
bool handshake_conn_return(struct handshake_conn *c, struct handshake_conns *all, const struct frame_rest *rest);
/* Processes received bytes. Returns false if the connection is freed. */
bool handshake_conn_read(struct handshake_conn *c);
/* Sends *refused and waits for the peer to close. Returns false if the connection is
 * freed. */
bool handshake_conn_refuse(struct handshake_conn *c, const struct control_refused *refused);
/* Closes and frees the connection. */
void handshake_conn_close(struct handshake_conn *c, enum handshake_close how, const struct control_refused *why);
/* Logs that the connection is turned away; once for each connection. */
void handshake_conn_log(struct handshake_conn *c, const struct control_refused *refused);

#endif
