/* SPDX-License-Identifier: Apache-2.0 */
/* Workers that join, over any transport: what TCP and gRPC have in common. */
#ifndef RS_SERVER_RUN_SERVER_WORKER_H
#define RS_SERVER_RUN_SERVER_WORKER_H

#include "server/run/server_state.h"

enum { REFUSED_MAX = 64 }; /* most connections beyond the limit that wait until their peers have read the reason */

/* Returns the number of connections in the handshake. */
unsigned server_handshakes_count(const struct server *s);
/* Admits a worker with the address `peer`. RS_OK: it counts as a session; the caller
 * attaches it to the lane of *ret and then calls registry_admitted, or server_unadmit if
 * the lane cannot take it. Else *refused has the reason. */
int server_admit(struct server *s, const struct handshake_result *who, const char *peer, const char *transport,
		 struct registry_admit *ret, struct control_refused *refused);
/* Undoes server_admit, because the lane has no memory for the connection. Fills *refused
 * and returns its code. */
int server_unadmit(struct server *s, const struct registry_admit *admit, const struct rs_err *why,
		   struct control_refused *refused);
/* Returns true if this event may be logged now. */
bool server_may_log(struct server *s, enum limited which);
/* Logs that a connection from `peer` to a job was refused; job "": it is not known. */
void server_log_refused(struct server *s, const char *peer, const char *transport, const char *job,
			const struct rs_err *why);

#endif
