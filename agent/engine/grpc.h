/* SPDX-License-Identifier: Apache-2.0 */
/* What an engine's connections need for job.transport: grpc. */
#ifndef RS_AGENT_ENGINE_GRPC_H
#define RS_AGENT_ENGINE_GRPC_H

#include "agent/core/window.h"
#include "common/tls.h"
#include "config/config.h"
#include "proto/rpc/wakeup.h"

#include <sys/socket.h>

/* All zero: the transport is another one. On the engine's thread, once it runs. */
struct engine_grpc {
	const struct rpc_api *rpc; /* NULL: not in use */
	struct rpc_client *client;
	const struct rs_config *cfg;
	struct tls_texts texts; /* of security.tls, as they were last read; nothing where it is off */
	uint64_t read_ms;
};

/* Loads the module, and reads certificates. cfg must stay valid. Errors: RS_EUNSUPPORTED, RS_ENOMEM, RS_EIO,
 * RS_ECONFIG. */
int engine_grpc_init(struct engine_grpc *g, const struct rs_config *cfg, struct rs_err *e);
/* What a stream is opened with, valid until the next call; NULL: TLS is off. Reads the files again if they were not
 * read within the last second; where they cannot be read, what was read before stays in use. */
const struct rpc_tls *engine_grpc_tls(struct engine_grpc *g, struct rpc_tls *buf, uint64_t now_ms);
/* From now on, until it ends, the loop sleeps where streams arrive. */
void engine_grpc_serve(struct engine_grpc *g, struct wakeups *wakeups);
/* After the loop has ended, all connections are closed: waits for gRPC's threads. */
void engine_grpc_close(struct engine_grpc *g);

/* A socket of this process that gRPC has opened, to ask the kernel about. gRPC gives it to nobody, so it is found among
 * the process's descriptors, and known again by its cookie, since the descriptor may be closed and used anew. */
struct grpc_socket {
	int fd;          /* borrowed; -1: none */
	uint64_t cookie; /* the kernel's number of the socket */
};

/* A TCP socket that is connected to this address, other than those of `taken`. False when there is none. */
bool grpc_socket_find(struct grpc_socket *ret, const struct sockaddr *peer, bool (*taken)(void *user, uint64_t cookie),
		      void *user);
/* As tcp_signal. False too when the socket is gone. */
bool grpc_socket_signal(const struct grpc_socket *s, struct window_signal *ret);

#endif
