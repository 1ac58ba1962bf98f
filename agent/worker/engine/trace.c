/* SPDX-License-Identifier: Apache-2.0 */
/* A trace: another thread asks for it -> the exchange records -> all operations are done,
 * or that thread asks for the end -> done(). */
#include "agent/worker/core/exchange_trace.h"
#include "agent/worker/engine/engine_uv.h"

void engine_trace(struct engine *en, struct trace *trace, void (*done)(void *user), void *user)
{
	pthread_mutex_lock(&en->lock);
	if (trace)
		/* the end that may wait was meant for the trace before, which has ended
		 * by itself */
		en->trace_ask =
		    (struct engine_trace_ask){.begin = {.to = trace, .done = done, .user = user}, .end = false};
	else
		en->trace_ask.end = true;
	pthread_mutex_unlock(&en->lock);
	wakeup_send(&en->wake);
}

static void engine_trace_end(struct engine *en)
{
	struct engine_trace ended = en->trace;

	en->trace.to = NULL;
	exchange_trace_end(en->x);
	ended.to->ended = true;
	ended.done(ended.user);
}

void engine_trace_take(struct engine *en, const struct engine_trace_ask *ask)
{
	if (ask->begin.to) {
		en->trace = ask->begin;
		exchange_trace_begin(en->x, ask->begin.to);
	}
	if (ask->end && en->trace.to)
		engine_trace_end(en);
}

void engine_trace_check(struct engine *en)
{
	if (exchange_trace_done(en->x))
		engine_trace_end(en);
}
