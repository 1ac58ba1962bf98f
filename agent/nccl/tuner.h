/* SPDX-License-Identifier: Apache-2.0 */
/* Which algorithm NCCL takes for a collective: it asks the tuner, which changes NCCL's
 * table of costs.
 *
 * The model is that of `reductionctl plan`. With the time of the payload on one link as
 * 1, an all-reduce of n nodes takes 2 (n - 1) / n in a ring. Through the reducers it
 * takes 1, or as long as the busiest reducer needs for its share of all n contributions.
 * NCCL's own costs suppose that a collective network always takes 1. What the path
 * through the reducers takes longer than a tree or a ring before the first byte is
 * TUNER_LATENCY_US. So the reducers are faster from the size on whose time on the link,
 * times the difference of the two, is more than that.
 *
 * An all-gather or a reduce-scatter takes (n - 1) / n in a ring, and through the reducers
 * as long as an all-reduce. So there the reducers gain nothing but the latency of the
 * n - 1 steps of a ring, which is in NCCL's costs: they are faster for small ones. */
#ifndef RS_AGENT_NCCL_TUNER_H
#define RS_AGENT_NCCL_TUNER_H

#include "agent/nccl/abi.h"
#include "config/config.h"

#include <stdbool.h>
#include <stddef.h>

enum {
	/* In NCCL's tables for Ethernet, 2.20 to 2.32, an all-reduce of 4 bytes takes
	 * that much longer in the chain than in a tree. */
	TUNER_LATENCY_US = 17,
};

/* What is known of a communicator. */
struct tuner {
	double ring, reducers; /* times, with that of the payload on one link as 1 */
	double us_per_byte;    /* of that link */
	size_t from;           /* bytes of an all-reduce from which the reducers are faster; SIZE_MAX: never */
	bool shards;           /* the job may have all-gathers and reduce-scatters */
};

/* `link`: bits a second of this node's network device, unless the configuration has
 * plan.bandwidth. `always`: all-reduces of any size go through the reducers, although
 * that is slower. */
void tuner_init(struct tuner *t, const struct rs_config *cfg, double link, size_t nodes, bool always);

/* Returns whether a ring is certainly faster for an all-reduce of that many bytes: for
 * NCCL 2.21, which tells the tuner no costs. */
bool tuner_is_slower(const struct tuner *t, size_t bytes);

/* Changes costs[algorithms][protocols], in microseconds, negative where NCCL cannot.
 * All-reduces of t->from bytes or more get the cheapest algorithm that goes through the
 * reducers, if there is one; for smaller ones the reducers' time is added. To all-gathers
 * and reduce-scatters through CollNet Direct the reducers' whole time is added, since the
 * costs of some releases have their bytes at the speed within a node: so NCCL takes that
 * only where its shorter latency surely outweighs it. Any thread. */
void tuner_choose(const struct tuner *t, int collective, size_t bytes, float *costs, int algorithms, int protocols);

#endif
