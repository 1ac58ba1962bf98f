/* SPDX-License-Identifier: Apache-2.0 */
/* State of an engine for job.transport: grpc. */
#ifndef RS_AGENT_WORKER_ENGINE_GRPC_H
#define RS_AGENT_WORKER_ENGINE_GRPC_H

#include "agent/worker/core/window.h"
#include "common/tls.h"
#include "config/config.h"
#include "proto/rpc/wakeup.h"

#include <sys/socket.h>

/* The gRPC client of an engine. All zero: another transport is in use. Belongs to the
 * engine's thread once it runs. */
struct engine_grpc {
	const struct rpc_api *rpc; /* NULL: not in use */
	struct rpc_client *client;
	const struct rs_config *cfg;
	struct tls_texts texts; /* of security.tls, as last read; empty if it is off */
	uint64_t read_ms;
};

/* Loads the gRPC module and reads the certificates. cfg must stay valid. Errors:
 * RS_EUNSUPPORTED, RS_ENOMEM, RS_EIO, RS_ECONFIG. */
int engine_grpc_init(struct engine_grpc *g, const struct rs_config *cfg, struct rs_err *e);
/* Returns the TLS settings for opening a stream, valid until the next call; NULL: TLS is
 * off. Reads the files again if they were not read within the last second; if they cannot
 * be read, the previous contents stay in use. */
const struct rpc_tls *engine_grpc_tls(struct engine_grpc *g, struct rpc_tls *buf, uint64_t now_ms);
/* Makes the loop sleep where streams report, until it ends. */
void engine_grpc_serve(struct engine_grpc *g, struct wakeups *wakeups);
/* Frees the client after the loop has ended and all connections are closed; waits for
 * gRPC's threads. */
void engine_grpc_close(struct engine_grpc *g);

/* A socket of this process that gRPC has opened, for the kernel's signals. gRPC does not
 * expose it: it is found among the process's descriptors and identified by its cookie,
 * since the descriptor may be closed and reused. */
struct grpc_socket {
	int fd;          /* borrowed; -1: none */
	uint64_t cookie; /* the kernel's number of the socket */
};

/* Finds a TCP socket that is connected to this address and is not one of `taken`. Returns
 * false if there is none. */
bool grpc_socket_find(struct grpc_socket *ret, const struct sockaddr *peer, bool (*taken)(void *user, uint64_t cookie),
		      void *user);
/* As tcp_signal; also false if the socket is closed. */
bool grpc_socket_signal(const struct grpc_socket *s, struct window_signal *ret);

#endif
