/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/nccl/tuner.h"

/* More than any collective takes, in microseconds. A negative number would select the
 * algorithm in NCCL 2.31. */
static const float TUNER_DEAR = 1e9f;

/* A difference of times on the link that is not measured: with two nodes a ring takes as
 * long as the reducers. */
static const double TUNER_TIE = 0.05;

static double larger(double a, double b)
{
	return a > b ? a : b;
}

/* Returns the time that the busiest reducer takes to receive its share of n
 * contributions, with the time of one contribution on a link of that many bits a second
 * as 1. */
static double busiest(const struct rs_config *cfg, double link, double n)
{
	double most = 0;

	for (unsigned i = 0; i < cfg->reducers_n; i++) {
		uint64_t own = cfg->reducers[i].bandwidth ? cfg->reducers[i].bandwidth : cfg->plan.bandwidth;
		unsigned shards = 0;

		for (unsigned s = 0; s < cfg->sharding.shards; s++)
			shards += cfg->sharding.owner[s] == i;
		most = larger(most, n * shards / cfg->sharding.shards * link / (own ? (double)own : link));
	}
	return most;
}

void tuner_init(struct tuner *t, const struct rs_config *cfg, double link, size_t nodes, bool always)
{
	double n = (double)nodes, gain;

	if (cfg->plan.bandwidth)
		link = (double)cfg->plan.bandwidth;
	*t = (struct tuner){
	    .ring = 2 * (n - 1) / n,
	    .reducers = larger(1, busiest(cfg, link, n)),
	    .us_per_byte = 8e6 / link,
	    .from = SIZE_MAX,
	    .shards = !cfg->job.baseline,
	};
	gain = t->ring - t->reducers;
	if (always)
		t->from = 0;
	else if (gain > -TUNER_TIE)
		t->from = (size_t)(TUNER_LATENCY_US / (t->us_per_byte * larger(gain, TUNER_TIE)));
}

bool tuner_is_slower(const struct tuner *t, size_t bytes)
{
	return (double)bytes * t->us_per_byte * (t->reducers - t->ring) > TUNER_LATENCY_US;
}

static float *cost_of(float *costs, int algorithms, int protocols, int algorithm)
{
	return algorithm < algorithms && NCCL_SIMPLE < protocols ? &costs[algorithm * protocols + NCCL_SIMPLE] : NULL;
}

void tuner_choose(const struct tuner *t, int collective, size_t bytes, float *costs, int algorithms, int protocols)
{
	float *direct = cost_of(costs, algorithms, protocols, NCCL_COLLNET_DIRECT);
	float *chain = cost_of(costs, algorithms, protocols, NCCL_COLLNET_CHAIN);
	double on_link = (double)bytes * t->us_per_byte;
	float more = (float)(on_link * (t->reducers - 1));

	if (!direct || !chain)
		return;
	if ((collective == NCCL_ALL_GATHER || collective == NCCL_REDUCE_SCATTER) && *direct >= 0)
		*direct = t->shards ? *direct + (float)(on_link * t->reducers) : TUNER_DEAR;
	if (collective != NCCL_ALL_REDUCE)
		return;
	if (bytes < t->from) {
		*chain += *chain >= 0 ? more : 0;
		*direct += *direct >= 0 ? more : 0;
	} else if (*chain >= 0 && (*direct < 0 || *chain <= *direct)) {
		*chain = 0;
	} else if (*direct >= 0) {
		*direct = 0;
	}
}
