/* SPDX-License-Identifier: Apache-2.0 */
/* Connections of a lane over gRPC: each is a stream. */
#ifndef RS_SERVER_RUN_LANE_GRPC_H
#define RS_SERVER_RUN_LANE_GRPC_H

#include "server/run/lane_conn.h"

/* Creates a connection, which owns the stream of all->rpc. NULL: no memory; the stream is
 * closed then. */
struct lane_conn *lane_grpc_new(struct lane_conns *all, struct rpc_stream *stream);
/* Starts to read, after the session was attached. */
void lane_grpc_start(struct lane_conn *c);

#endif
