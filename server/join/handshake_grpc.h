/* SPDX-License-Identifier: Apache-2.0 */
/* As greeting_tcp.h, of streams over gRPC: calls of reduction.v1.Reducer/Exchange that have not said, or not proven,
 * who they are. The connections beneath are gRPC's; what holds of them is in rpc/grpc_server.c and strangers.h. */
#ifndef RS_SERVER_JOIN_HANDSHAKE_GRPC_H
#define RS_SERVER_JOIN_HANDSHAKE_GRPC_H

#include "proto/rpc/wakeup.h"
#include "server/join/handshake.h"

struct grpc_handshakes;

enum { GRPC_HANDSHAKE_NAMES = 512 };

struct grpc_handshakes_options {
	uv_loop_t *loop;
	const struct rpc_api *rpc;
	uint32_t timeout_ms; /* from the call to a complete HELLO, and PROOF where one is asked for */
	struct handshake_policy policy;
	/* The names in a certificate in PEM, in at most GRPC_HANDSHAKE_NAMES bytes. */
	void (*names)(const char *pem, char *names);
	/* May there be one more? Else *refused says why not; asked for each that comes. */
	int (*room)(void *ctx, struct control_refused *refused);
	/* Who it is is known. RS_OK: the stream now belongs to the callee; else *refused is sent and the stream closed.
	 */
	int (*hello)(void *ctx, struct rpc_stream *stream, const struct handshake_result *who,
		     struct control_refused *refused);
	/* The stream is turned away or gave up; for the log. */
	void (*turned_away)(void *ctx, struct rpc_stream *stream, const struct rs_err *why);
	void *ctx;
};

/* Errors: RS_ENOMEM, RS_EIO. All but the method's handler is for the loop's thread. */
int grpc_handshakes_new(struct grpc_handshakes **ret, const struct grpc_handshakes_options *opt, struct rs_err *e);
/* What the module's server has to be started with. */
struct rpc_method grpc_handshakes_method(struct grpc_handshakes *g);
unsigned grpc_handshakes_count(const struct grpc_handshakes *g);
/* Gives up a stream: one that is refused already, else the one that has waited longest, which reads `why`. False when
 * there is none. */
bool grpc_handshakes_make_room(struct grpc_handshakes *g, const char *why);
/* Closes all streams, and those that come from now on at once. */
void grpc_handshakes_stop(struct grpc_handshakes *g);
/* After the module's server was stopped: handles close with the loop, then grpc_handshakes_free. */
void grpc_handshakes_close(struct grpc_handshakes *g);
void grpc_handshakes_free(struct grpc_handshakes *g);

#endif
