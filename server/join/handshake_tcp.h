/* SPDX-License-Identifier: Apache-2.0 */
/* Connections that have not said, or not proven, who they are: does what handshake.h says, reading no byte more, within
 * a time limit. Where there is no room for another one, the one that has waited longest goes: workers say what they
 * have to at once, so connections that say nothing cannot keep them out, however many they are. */
#ifndef RS_SERVER_JOIN_HANDSHAKE_TCP_H
#define RS_SERVER_JOIN_HANDSHAKE_TCP_H

#include "common/error.h"
#include "common/tcp_conn.h"
#include "server/join/handshake.h"

#include <stdbool.h>
#include <uv.h>

struct tcp_handshakes;

/* Most bytes that one of them allocates, apart from TLS; of those that say nothing, less than a sixth. */
enum { TCP_HANDSHAKE_BYTES = HANDSHAKE_PAYLOAD_MAX + 768 };

struct tcp_handshakes_options {
	uv_loop_t *loop;
	uint32_t timeout_ms; /* from accept to a complete HELLO, and PROOF where one is asked for */
	SSL_CTX *tls;        /* borrowed; NULL: connections are plain; see tcp_handshakes_set_tls */
	struct handshake_policy policy;
	/* Who it is is known. RS_OK: the connection was moved away; else *refused is sent and the connection closed. */
	int (*hello)(void *ctx, struct tcp_conn *tcp, const struct handshake_result *who,
		     struct control_refused *refused);
	/* The connection fd is turned away or gave up; for the log. */
	void (*turned_away)(void *ctx, int fd, const struct rs_err *why);
	void *ctx;
};

int tcp_handshakes_new(struct tcp_handshakes **ret, const struct tcp_handshakes_options *opt, struct rs_err *e);
/* For connections that come from now on; the one before may be freed. Only where there was one. */
void tcp_handshakes_set_tls(struct tcp_handshakes *g, SSL_CTX *tls);
/* fd belongs to the greetings now. */
void tcp_handshakes_add(struct tcp_handshakes *g, int fd);
/* Answers with *refused at once. fd belongs to the greetings now. */
void tcp_handshakes_refuse(struct tcp_handshakes *g, int fd, const struct control_refused *refused);
/* As tcp_handshakes_refuse, but does not keep the descriptor for as long as it takes to be sure that the peer reads it.
 */
void tcp_handshakes_refuse_now(struct tcp_handshakes *g, int fd, const struct control_refused *refused);
unsigned tcp_handshakes_count(const struct tcp_handshakes *g);
/* Gives up a connection, and with it its descriptor: one that is refused already, else the one that has waited longest,
 * which reads `why`. False when there is none. */
bool tcp_handshakes_make_room(struct tcp_handshakes *g, const char *why);
/* Closes all connections; handles close with the loop, then tcp_handshakes_free. */
void tcp_handshakes_close(struct tcp_handshakes *g);
void tcp_handshakes_free(struct tcp_handshakes *g);

#endif
