/* SPDX-License-Identifier: Apache-2.0 */
/* Workers over gRPC. */
#ifndef RS_SERVER_RUN_SERVER_STREAMS_H
#define RS_SERVER_RUN_SERVER_STREAMS_H

#include "server/run/server_state.h"

/* As host_ports.method: creates s->streams. Errors: RS_ENOMEM, RS_EIO. */
int server_streams_method(void *ctx, struct rpc_method *ret, struct rs_err *e);
/* As host_ports.refused. */
void server_streams_refused(void *ctx, const char *peer, const struct rs_err *why);

#endif
