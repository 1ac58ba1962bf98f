/* SPDX-License-Identifier: Apache-2.0 */
#include "common/spin.h"

#include <sched.h>

bool rs_spin_begin(struct rs_spin *s, uint64_t now_ns)
{
	if (s->left > 0) {
		s->left--;
		return false;
	}
	s->from_ns = now_ns;
	return true;
}

bool rs_spin_more(struct rs_spin *s, uint64_t now_ns)
{
	if (now_ns - s->from_ns < RS_SPIN_NS) {
		sched_yield();
		return true;
	}
	s->pause = s->pause == 0 ? 1 : s->pause < RS_SPIN_PAUSE ? 2 * s->pause : RS_SPIN_PAUSE;
	s->left = s->pause;
	return false;
}

void rs_spin_found(struct rs_spin *s)
{
	s->pause = 0;
}

bool rs_spin_stay_awake(struct rs_spin *s, bool found, uint64_t now_ns)
{
	if (found && s->awake)
		rs_spin_found(s);
	if (found)
		s->awake = rs_spin_begin(s, now_ns);
	else if (s->awake)
		s->awake = rs_spin_more(s, now_ns);
	return s->awake;
}
