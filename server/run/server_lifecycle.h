/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a running server: drain, signals and reload. */
#ifndef RS_SERVER_RUN_SERVER_LIFECYCLE_H
#define RS_SERVER_RUN_SERVER_LIFECYCLE_H

#include "server/run/server_state.h"

/* Drains: refuses new jobs, stops the server when there are none, which the next tick checks, and ends jobs after
 * timeout_ms. A second call sets the time limit again. `by`: the origin, for the log. */
void server_drain(struct server *s, const char *by, uint32_t timeout_ms);
/* Handles SIGTERM and SIGINT: the first one drains, the second one exits. Returns true if there is no job, so that the
 * caller must stop the server at once. */
bool server_signalled(struct server *s, int signum);
/* Takes over the keys of the file that a running reducer can change. `result` and the log say which those are, and
 * whether other changes need a restart. Errors: there is no file, or it is invalid; then nothing changes. */
int server_reload(struct server *s, char *result, size_t size, struct rs_err *e);

#endif
