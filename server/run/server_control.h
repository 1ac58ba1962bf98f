/* SPDX-License-Identifier: Apache-2.0 */
/* The gRPC and HTTP ports with the actions of the control service. Without server.grpc and server.http these functions
 * have no effect. */
#ifndef RS_SERVER_RUN_SERVER_CONTROL_H
#define RS_SERVER_RUN_SERVER_CONTROL_H

#include "server/run/server_state.h"

/* Opens the ports. Errors: RS_EUNSUPPORTED (no module), RS_ECONFIG, RS_EIO, RS_ENOMEM; server_control_stop,
 * server_control_close and server_control_free clean up after them. */
int server_control_start(struct server *s, struct rs_err *e);
/* Takes the report of a lane. */
void server_control_reported(struct server *s, struct lane_thread *lane);
/* Ends all calls of the control service, before the lanes stop. */
void server_control_stop(struct server *s);
/* Closes the port, after the lanes have stopped. */
void server_control_close(struct server *s);
/* Frees everything of the port, after the loop has ended. */
void server_control_free(struct server *s);

#endif
