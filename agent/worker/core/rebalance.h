/* SPDX-License-Identifier: Apache-2.0 */
/* What follows from how busy the links are (load.h, balance.h). */
#ifndef RS_AGENT_WORKER_CORE_REBALANCE_H
#define RS_AGENT_WORKER_CORE_REBALANCE_H

#include "agent/worker/core/exchange_state.h"

/* If it is time, reads how busy the links were, and on rank 0 sets other shares or says
 * what they would be. Returns when it is time again. */
uint64_t rebalance_tick(struct exchange *x, uint64_t now_ms);

#endif
