/* SPDX-License-Identifier: Apache-2.0 */
/* One connection to a reducer over TCP (with TLS) or gRPC, used with blocking calls up to
 * a deadline. */
#ifndef RS_DEPLOY_CTL_WIRE_H
#define RS_DEPLOY_CTL_WIRE_H

#include "common/tcp_conn.h"
#include "common/tls.h"
#include "config/config.h"
#include "proto/rpc/rpc.h"

/* What all connections of a command share; borrowed. */
struct wire_options {
	SSL_CTX *ctx;              /* for TCP; NULL: no TLS */
	const struct rpc_api *rpc; /* not NULL: use gRPC, with: */
	struct rpc_client *client;
	const struct rpc_tls *tls; /* NULL: none */
};

/* A connection. Invariant: it is over gRPC exactly if rpc is not NULL. One thread. */
struct wire {
	const struct rpc_api *rpc;
	struct rpc_stream *stream;
	int woken; /* event descriptor that the stream's waker sets */
	struct tcp_conn tcp;
	SSL_SESSION *session;
	uint64_t until_ms; /* wire_now_ms() of the deadline */
	uint32_t timeout_ms;
	uint8_t binding[TLS_BINDING];
	size_t binding_len; /* 0: the connection has no binding */
};

/* Connects to "host:port"; tls_name is the name that the certificate must be for. Errors:
 * RS_EIO, RS_ETIMEOUT, RS_EPROTO with the end of a sentence about the reducer; nothing is
 * left open. */
int wire_open(struct wire *w, const struct wire_options *opt, const char *address, const char *tls_name,
	      uint32_t timeout_ms, struct rs_err *e);
/* Sends all bytes, or receives exactly so many. Errors as above. */
int wire_send(struct wire *w, const void *bytes, size_t n, struct rs_err *e);
int wire_recv(struct wire *w, void *to, size_t n, struct rs_err *e);
void wire_close(struct wire *w);

#endif
