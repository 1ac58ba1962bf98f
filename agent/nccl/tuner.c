/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/nccl/tuner.h"

/* More than any collective takes, in microseconds. A negative number would select the algorithm in NCCL 2.31. */
static const float TUNER_DEAR = 1e9f;

static float *cost_of(float *costs, int algorithms, int protocols, int algorithm)
{
	return algorithm < algorithms && NCCL_SIMPLE < protocols ? &costs[algorithm * protocols + NCCL_SIMPLE] : NULL;
}

void tuner_choose(int collective, size_t bytes, float *costs, int algorithms, int protocols)
{
	float *direct = cost_of(costs, algorithms, protocols, NCCL_COLLNET_DIRECT);
	float *chain = cost_of(costs, algorithms, protocols, NCCL_COLLNET_CHAIN);

	if (!direct || !chain)
		return;
	if ((collective == NCCL_ALL_GATHER || collective == NCCL_REDUCE_SCATTER) && *direct >= 0)
		*direct = TUNER_DEAR;
	if (collective != NCCL_ALL_REDUCE || bytes < TUNER_SMALL)
		return;
	if (*chain >= 0 && (*direct < 0 || *chain <= *direct))
		*chain = 0;
	else if (*direct >= 0)
		*direct = 0;
}
