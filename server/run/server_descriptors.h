/* SPDX-License-Identifier: Apache-2.0 */
/* The number of file descriptors of the process. */
#ifndef RS_SERVER_RUN_SERVER_DESCRIPTORS_H
#define RS_SERVER_RUN_SERVER_DESCRIPTORS_H

#include "server/run/server_state.h"

/* Logs a warning if the process may open fewer descriptors than server.max_connections
 * needs. Later the last worker of a job could not connect. */
void server_check_descriptors(struct server *s);
/* Limits the descriptors of the process. gRPC accepts every connection, so this limits
 * how many its port can have. It leaves as many for gRPC as for workers over TCP. Without
 * a gRPC port it does nothing. */
void server_bound_descriptors(struct server *s);

#endif
