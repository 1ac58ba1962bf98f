/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a running server: its ticks, reloads, drain and end. */
#ifndef RS_SERVER_RUN_SERVER_LIFECYCLE_H
#define RS_SERVER_RUN_SERVER_LIFECYCLE_H

#include "server/run/server_state.h"

/* As host_daemon.drain: refuses new jobs. */
void server_on_drain(void *ctx, uint64_t deadline_ms);
/* As host_daemon.tick: that of the registry. Stops the server if it drains and there is
 * no job, or the deadline has passed and the ranks had time to read why their jobs
 * ended. */
void server_on_tick(void *ctx);
/* As host_daemon.reload: takes over certificates, access rules and limits. */
int server_on_reload(void *ctx, struct rs_config *fresh, struct rs_err *e);
/* As host_daemon.renew: new connections get the certificates that the files have now. */
int server_on_renew(void *ctx, const struct rs_config *cfg, struct rs_err *e);
/* Closes every handle, so that the loop ends. */
void server_stop(struct server *s);

#endif
