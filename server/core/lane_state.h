/* SPDX-License-Identifier: Apache-2.0 */
/* The struct of a lane, for the files of the core. */
#ifndef RS_SERVER_CORE_LANE_STATE_H
#define RS_SERVER_CORE_LANE_STATE_H

#include "server/core/count.h"
#include "server/core/lane_types.h"

struct session;
struct stripe;
struct uplink;
struct trace;

/* One lane of the reducer. Invariant: the list of ready sessions contains each session
 * with `ready` set once, and no other session. */
struct lane {
	struct lane_options opt;
	struct stripe *stripes;
	struct session *ready_head, *ready_tail; /* sessions that the driver should serve */
	struct uplink *uplinks_ready;            /* the same of uplinks */
	uint8_t *scratch;           /* LANE_SCRATCH bytes, for contributions that are added; owned, with `ahead` */
	uint8_t *ahead;             /* LANE_AHEAD bytes behind it, for the frames that follow the current payload */
	uint64_t now_ms;            /* time of the driver's last call that gave one */
	uint64_t now_us;            /* time of the driver's last call of lane_set_us; 0: it never called */
	uint64_t ticked_ms;         /* time of the last tick */
	uint64_t rolled_ms;         /* time at which the sessions' `second` was last counted */
	uint32_t second_ms;         /* length of that second */
	enum lane_arrivals arrived; /* since the last call of lane_arrivals */
	uint32_t processor;         /* as in lane_set_processor */
	struct lane_count closed;   /* counts of sessions that are freed */
	struct trace *trace;        /* borrowed; NULL: none, see lane_trace.h */
};

#endif
