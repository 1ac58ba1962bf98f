/* SPDX-License-Identifier: Apache-2.0 */
/* A trace of the operations of a lane, at most one at a time. Times are those of
 * lane_set_us. */
#ifndef RS_SERVER_CORE_LANE_TRACE_H
#define RS_SERVER_CORE_LANE_TRACE_H

#include "proto/trace.h"

struct lane;

/* Begins to record the operations of its ranges, whose `id` is that of stripe_params.job.
 * The lane borrows the trace until lane_trace_end. Operations that have begun already are
 * recorded in part, and `missed` is set. */
void lane_trace_begin(struct lane *l, struct trace *t);
/* Returns true if nothing more is to be recorded, and sets trace.done. Only while there
 * is a trace. */
bool lane_trace_done(struct lane *l);
/* Ends the trace and returns it. */
struct trace *lane_trace_end(struct lane *l);

#endif
