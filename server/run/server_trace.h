/* SPDX-License-Identifier: Apache-2.0 */
/* Traces by all lanes, as callbacks of the host. */
#ifndef RS_SERVER_RUN_SERVER_TRACE_H
#define RS_SERVER_RUN_SERVER_TRACE_H

#include "server/run/server_state.h"

/* As host_daemon.trace. */
int server_on_trace(void *ctx, const struct trace_request *request, struct trace **ret, struct rs_err *e);
/* As host_daemon.trace_end. */
void server_on_trace_end(void *ctx);

#endif
