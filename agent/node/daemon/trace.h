/* SPDX-License-Identifier: Apache-2.0 */
/* Traces of the agent's jobs, for the control service: one at a time, by the engines of all jobs that are asked for.
 * Everything is called on the loop's thread. */
#ifndef RS_AGENT_NODE_DAEMON_TRACE_H
#define RS_AGENT_NODE_DAEMON_TRACE_H

#include "agent/node/daemon/agentd.h"
#include "proto/trace.h"

#include <stdatomic.h>

/* The trace that runs. Invariant: while `running`, `due` of the entries of `traces` have not ended or are not counted
 * yet. */
struct agentd_trace {
	struct agentd *a;
	uv_async_t *wake; /* is sent when agentd_trace_take may succeed */
	uv_timer_t timer; /* ends it at its time limit */
	bool running;
	unsigned n, due;
	struct {
		void *engine;        /* NULL: it was freed */
		struct trace *trace; /* owned */
	} traces[TRACE_RANGES];
	_Atomic unsigned ended; /* traces that have ended and are not counted yet; any thread */
};

void agentd_trace_init(struct agentd_trace *tr, struct agentd *a, uv_async_t *wake);
/* Begins a trace. Errors: RS_ENOMEM. */
int agentd_trace_begin(struct agentd_trace *tr, const struct trace_request *r, struct rs_err *e);
/* Ends it early. */
void agentd_trace_end(struct agentd_trace *tr);
/* An engine was freed, and records nothing more. */
void agentd_trace_engine_freed(struct agentd_trace *tr, const void *engine);
/* Returns true once when all traces have ended, and sets *ret to their list, which the caller frees. */
bool agentd_trace_take(struct agentd_trace *tr, struct trace **ret);
/* Closes the handle; agentd_trace_free follows after the loop has ended. */
void agentd_trace_close(struct agentd_trace *tr);
void agentd_trace_free(struct agentd_trace *tr);

#endif
