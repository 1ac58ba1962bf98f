/* SPDX-License-Identifier: Apache-2.0 */
/* What the reducer tells the service manager. */
#ifndef RS_SERVER_RUN_SERVER_NOTIFY_H
#define RS_SERVER_RUN_SERVER_NOTIFY_H

#include "server/run/server_state.h"

/* The server serves. */
void server_notify_ready(struct server *s);
/* Call it every RS_NOTIFY_TICK_MS: sends the status, and a sign of life if the loop of each lane has turned since the
 * last one. */
void server_notify_tick(struct server *s);

#endif
