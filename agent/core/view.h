/* SPDX-License-Identifier: Apache-2.0 */
/* The view of a worker: which reducers live, and which link owns each shard. events.h declares what links report. */
#ifndef RS_AGENT_CORE_VIEW_H
#define RS_AGENT_CORE_VIEW_H

#include "agent/core/exchange_state.h"

/* Gives every link its part of the shards in the current view. */
void view_assign_shards(struct exchange *x);
/* Continues without the reducers that could not be reached, if at least one was. */
void view_drop_unreached(struct exchange *x, uint64_t now_ms);

#endif
