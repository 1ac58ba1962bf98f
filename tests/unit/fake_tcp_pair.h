/* SPDX-License-Identifier: Apache-2.0 */
/* Both ends of a connection in one thread, over a socket pair. */
#ifndef RS_TESTS_UNIT_FAKE_TCP_PAIR_H
#define RS_TESTS_UNIT_FAKE_TCP_PAIR_H

#include "common/tcp_conn.h"
#include "tests/unit/fake_certs.h"

#define must(condition) ((condition) ? (void)0 : ck_abort_msg("this does not hold: %s", #condition))

struct tcp_pair {
	struct tcp_conn worker, reducer;
	SSL_SESSION *session;
};

/* Certificates of a worker, a reducer and others. The fixture makes and removes them. */
extern struct certs tcp_pair_certs;
void tcp_pair_setup(void);
void tcp_pair_teardown(void);

/* Makes two connected sockets. buffer: of each, in bytes; 0: the system's. */
void tcp_pair_sockets(int fds[2], int buffer);
/* Begins a connection with TLS. */
void tcp_pair_begin(struct tcp_pair *p, SSL_CTX *worker, SSL_CTX *reducer, const char *name, int buffer);
/* Runs both sides of the handshake until neither makes progress. */
void tcp_pair_shake(struct tcp_pair *p, enum tcp_conn_progress *w, enum tcp_conn_progress *r, struct rs_err *we,
		    struct rs_err *re);
/* Makes a connection with mutual TLS, and one without TLS. */
void tcp_pair_up(struct tcp_pair *p, int buffer);
void tcp_pair_plain(struct tcp_pair *p, int buffer);
void tcp_pair_close(struct tcp_pair *p);

#endif
