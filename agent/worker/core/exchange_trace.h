/* SPDX-License-Identifier: Apache-2.0 */
/* A trace of an exchange, at most one at a time. */
#ifndef RS_AGENT_WORKER_CORE_EXCHANGE_TRACE_H
#define RS_AGENT_WORKER_CORE_EXCHANGE_TRACE_H

#include "proto/trace.h"

struct exchange;

/* Begins to record the operations of the trace's only range. The exchange borrows the
 * trace until exchange_trace_end. Operations that were submitted already are recorded in
 * part, and `missed` is set. */
void exchange_trace_begin(struct exchange *x, struct trace *t);
/* Sets the times of the driver's next call of exchange_received or exchange_sent: before
 * the bytes were moved, and after. Only needed while there is a trace. */
void exchange_set_us(struct exchange *x, uint64_t from_us, uint64_t now_us);
/* Returns true if nothing more is to be recorded, and sets trace.done. Only while there
 * is a trace. */
bool exchange_trace_done(struct exchange *x);
/* Ends the trace. */
void exchange_trace_end(struct exchange *x);

#endif
