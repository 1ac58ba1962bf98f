/* SPDX-License-Identifier: Apache-2.0 */
/* Streams over gRPC during the handshake: calls of reduction.v1.Reducer/Exchange; see
 * handshake_conn.h. gRPC owns the connections beneath; proto/rpc/grpc_server.c and
 * unauthenticated.h say what limits them. */
#ifndef RS_SERVER_JOIN_HANDSHAKE_GRPC_H
#define RS_SERVER_JOIN_HANDSHAKE_GRPC_H

#include "proto/rpc/wakeup.h"
#include "server/join/handshake.h"

struct grpc_handshakes;

enum { GRPC_HANDSHAKE_NAMES = 512 };

/* The requirements and callbacks of handshakes over gRPC. */
struct grpc_handshakes_options {
	uv_loop_t *loop;
	const struct rpc_api *rpc;
	uint32_t timeout_ms; /* from the call to a complete HELLO, and PROOF where it is required */
	struct handshake_policy policy;
	/* Writes the names in a PEM certificate into at most GRPC_HANDSHAKE_NAMES
	 * bytes. */
	void (*names)(const char *pem, char *names);
	/* Checks, for each new stream, that there is room for it. Else *refused says why
	 * not. */
	int (*room)(void *ctx, struct control_refused *refused);
	/* Admits an identified worker. RS_OK: the callee owns the stream; else *refused
	 * is sent and the stream closed.
	 */
	int (*admit)(void *ctx, struct rpc_stream *stream, const struct handshake_result *who,
		     struct control_refused *refused);
	/* Logs that the stream is refused, or was lost. job "": not known. */
	void (*turned_away)(void *ctx, struct rpc_stream *stream, const char *job, const struct rs_err *why);
	void *ctx;
};

/* Errors: RS_ENOMEM, RS_EIO. The loop's thread calls everything here; only the method's
 * handler runs on others. */
int grpc_handshakes_new(struct grpc_handshakes **ret, const struct grpc_handshakes_options *opt, struct rs_err *e);
/* Returns the method with which the gRPC server has to be started. */
struct rpc_method grpc_handshakes_method(struct grpc_handshakes *all);
unsigned grpc_handshakes_count(const struct grpc_handshakes *all);
/* Closes one stream; see handshake_conns_make_room. Returns false if there is none. */
bool grpc_handshakes_make_room(struct grpc_handshakes *all, const char *why);
/* Closes all streams, and from now on each new one at once. */
void grpc_handshakes_stop(struct grpc_handshakes *all);
/* Closes the handles, after the gRPC server was stopped. They close with the loop; then
 * call grpc_handshakes_free. */
void grpc_handshakes_close(struct grpc_handshakes *all);
void grpc_handshakes_free(struct grpc_handshakes *all); /* NULL: does nothing */

#endif
