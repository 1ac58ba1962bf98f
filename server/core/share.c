/* SPDX-License-Identifier: Apache-2.0 */
#include "server/core/share.h"

enum {
	/* The time of the heaviest connection. A rank in normal operation has less in
	 * flight than what is read in this time, so equal weights cost nothing. */
	SHARE_ROUND_NS = 100000,
	SHARE_BYTE_NS = 8, /* more than a byte takes, however it is encrypted and added */
};

uint64_t share_begin(struct share *s, struct shares *all)
{
	int64_t most_ns;
	uint64_t rounds = all->round - s->round;

	if (all->heaviest == 0) {
		s->round = all->round;
		s->credit_ns = 0;
		return UINT64_MAX;
	}
	most_ns = (int64_t)(SHARE_ROUND_NS * s->weight / all->heaviest) + 1;
	s->round = all->round;
	if (rounds > (uint64_t)((most_ns - s->credit_ns) / most_ns))
		s->credit_ns = most_ns;
	else
		s->credit_ns += (int64_t)rounds * most_ns;
	if (s->credit_ns > 0) {
		all->read = true;
		return (uint64_t)s->credit_ns;
	}
	rounds = (uint64_t)(-s->credit_ns / most_ns) + 1;
	all->until = all->until && all->until < rounds ? all->until : rounds;
	return 0;
}

uint64_t share_charge(struct share *s, uint64_t ns, uint64_t bytes)
{
	uint64_t most = SHARE_ROUND_NS + SHARE_BYTE_NS * bytes;

	ns = ns < most ? ns : most;
	s->credit_ns -= (int64_t)ns;
	return ns;
}

void shares_next_round(struct shares *all)
{
	all->round += all->read || !all->until ? 1 : all->until;
	all->read = false;
	all->until = 0;
}
