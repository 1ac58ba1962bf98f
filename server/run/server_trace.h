/* SPDX-License-Identifier: Apache-2.0 */
/* Traces for the control service: one at a time, by all lanes. */
#ifndef RS_SERVER_RUN_SERVER_TRACE_H
#define RS_SERVER_RUN_SERVER_TRACE_H

#include "server/run/server_state.h"

/* Sets the callbacks of the control service that are about traces. */
void server_trace_options(struct service_options *so);
/* Takes the trace of a lane, which has ended. */
void server_trace_ended(struct server *s, struct lane_thread *lane);
/* Frees the traces that have come, after the loop has ended. */
void server_trace_free(struct server *s);

#endif
