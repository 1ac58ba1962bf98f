/* SPDX-License-Identifier: Apache-2.0 */
/* Which algorithm NCCL takes for a collective: it asks the tuner, which changes NCCL's table of costs. */
#ifndef RS_AGENT_NCCL_TUNER_H
#define RS_AGENT_NCCL_TUNER_H

#include "agent/nccl/abi.h"

#include <stddef.h>

enum {
	TUNER_SMALL = 16 << 10, /* bytes of an all-reduce below which NCCL's own choice stays */
};

/* Changes costs[algorithms][protocols], in microseconds, negative where NCCL cannot: an all-reduce of TUNER_SMALL bytes
 * or more gets the cheapest algorithm that goes through the reducers, if there is one; all-gather and reduce-scatter do
 * not get CollNet Direct, which would need functions that the plugin does not have. Any thread. */
void tuner_choose(int collective, size_t bytes, float *costs, int algorithms, int protocols);

#endif
