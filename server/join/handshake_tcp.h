/* SPDX-License-Identifier: Apache-2.0 */
/* TCP connections during the handshake, plain or with TLS; see handshake_conn.h. */
#ifndef RS_SERVER_JOIN_HANDSHAKE_TCP_H
#define RS_SERVER_JOIN_HANDSHAKE_TCP_H

#include "common/error.h"
#include "common/tcp_conn.h"
#include "server/join/handshake.h"

#include <stdbool.h>
#include <uv.h>

struct tcp_handshakes;

/* Most bytes that one connection allocates, apart from TLS. A connection that sends
 * nothing needs less than a sixth. */
enum { TCP_HANDSHAKE_BYTES = HANDSHAKE_PAYLOAD_MAX + 768 };

/* The requirements and callbacks of handshakes over TCP. */
struct tcp_handshakes_options {
	uv_loop_t *loop;
	uint32_t timeout_ms; /* from accept to a complete HELLO, and PROOF where it is required */
	SSL_CTX *tls;        /* borrowed; NULL: connections are plain; see tcp_handshakes_set_tls */
	struct handshake_policy policy;
	/* Admits an identified worker. RS_OK: *tcp was moved away; else *refused is sent
	 * and the connection closed. */
	int (*admit)(void *ctx, struct tcp_conn *tcp, const struct handshake_result *who,
		     struct control_refused *refused);
	/* Logs that the connection fd is refused, or was lost. job "": not known. */
	void (*turned_away)(void *ctx, int fd, const char *job, const struct rs_err *why);
	void *ctx;
};

/* Errors: RS_ENOMEM. */
int tcp_handshakes_new(struct tcp_handshakes **ret, const struct tcp_handshakes_options *opt, struct rs_err *e);
/* Replaces the TLS context for new connections, after which the old one may be freed.
 * There must have been one. */
void tcp_handshakes_set_tls(struct tcp_handshakes *all, SSL_CTX *tls);
/* Starts the handshake of a connection. Takes over fd. */
void tcp_handshakes_add(struct tcp_handshakes *all, int fd);
/* Waits for the next HELLO on a connection that was part of a job, and moves *tcp away.
 * rest: what has come since. */
void tcp_handshakes_return(struct tcp_handshakes *all, struct tcp_conn *tcp, const struct frame_rest *rest);
/* Refuses a connection without a handshake. Takes over fd. */
void tcp_handshakes_refuse(struct tcp_handshakes *all, int fd, const struct control_refused *refused);
/* Refuses a connection and closes fd at once, without waiting until the peer has read the
 * reason. */
void tcp_handshakes_refuse_now(struct tcp_handshakes *all, int fd, const struct control_refused *refused);
unsigned tcp_handshakes_count(const struct tcp_handshakes *all);
/* Closes one connection and so releases its descriptor; see handshake_conns_make_room.
 * Returns false if there is none.
 */
bool tcp_handshakes_make_room(struct tcp_handshakes *all, const char *why);
/* Closes all connections. The handles close with the loop; then call
 * tcp_handshakes_free. */
void tcp_handshakes_close(struct tcp_handshakes *all);
void tcp_handshakes_free(struct tcp_handshakes *all);

#endif
