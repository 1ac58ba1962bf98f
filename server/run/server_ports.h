/* SPDX-License-Identifier: Apache-2.0 */
/* The gRPC and HTTP ports of the server, and the end of its host. */
#ifndef RS_SERVER_RUN_SERVER_PORTS_H
#define RS_SERVER_RUN_SERVER_PORTS_H

#include "server/run/server_state.h"

/* Opens the ports that are configured. Errors: those of host_open_ports; the functions
 * below clean up after them. */
int server_ports_open(struct server *s, struct rs_err *e);
/* Ends all calls of the control service, before the lanes stop. */
void server_ports_stop(struct server *s);
/* Closes the ports and the host, after all other threads have stopped. */
void server_ports_close(struct server *s);
/* Frees everything, after the loop has ended. */
void server_ports_free(struct server *s);

#endif
