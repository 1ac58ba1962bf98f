/* SPDX-License-Identifier: Apache-2.0 */
/* The server as a daemon of common/host, and the status that it reports. */
#ifndef RS_SERVER_RUN_SERVER_CONTROL_H
#define RS_SERVER_RUN_SERVER_CONTROL_H

#include "server/run/server_state.h"

/* Makes s->host. */
void server_control_init(struct server *s, const struct server_options *opt);

#endif
