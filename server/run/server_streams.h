/* SPDX-License-Identifier: Apache-2.0 */
/* Workers over gRPC. */
#ifndef RS_SERVER_RUN_SERVER_STREAMS_H
#define RS_SERVER_RUN_SERVER_STREAMS_H

#include "server/run/server_state.h"

/* Creates s->streams. Errors: RS_ENOMEM, RS_EIO. */
int server_streams_init(struct server *s, struct rs_err *e);
/* Limits unauthenticated connections of the port, which is open. Errors: those of unauth_new. */
int server_streams_guard(struct server *s, struct rs_err *e);
/* Removes the limit of the connection from this address. */
void server_streams_trust(struct server *s, const char *peer);

#endif
