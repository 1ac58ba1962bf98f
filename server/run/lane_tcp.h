/* SPDX-License-Identifier: Apache-2.0 */
/* Connections of a lane over TCP, plain or with TLS. */
#ifndef RS_SERVER_RUN_LANE_TCP_H
#define RS_SERVER_RUN_LANE_TCP_H

#include "common/tcp_conn.h"
#include "server/run/lane_conn.h"

/* Creates a connection and moves *tcp into it. The connection breaks if the peer takes no
 * byte for silence_ms. NULL: no memory, or the socket cannot be watched; *tcp is closed
 * then. */
struct lane_conn *lane_tcp_new(struct lane_conns *all, struct tcp_conn *tcp, uint32_t silence_ms);
/* Starts to read, after the session was attached. */
void lane_tcp_start(struct lane_conn *c);

#endif
