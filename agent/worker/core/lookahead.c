/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/worker/core/lookahead.h"
#include "common/assert.h"

void lookahead_init(struct lookahead *a)
{
	*a = (struct lookahead){
	    .limit = LOOKAHEAD_HOPS, .round_ms = UINT32_MAX, .least_ms = UINT32_MAX, .starting = true};
}

static uint32_t larger(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

static void lookahead_grow(struct lookahead *a, uint32_t most)
{
	uint32_t by = a->starting ? a->limit : 1;

	if (a->limit < most)
		a->limit = by < most - a->limit ? a->limit + by : most;
}

static void lookahead_shrink(struct lookahead *a)
{
	uint32_t to = a->limit - 1 - a->limit / 8;

	a->starting = false;
	a->limit = larger(to, LOOKAHEAD_HOPS);
}

void lookahead_result(struct lookahead *a, uint32_t delay_ms, uint32_t most)
{
	uint32_t above;

	rs_assert(a->limit >= LOOKAHEAD_HOPS && a->results < a->limit);
	a->round_ms = delay_ms < a->round_ms ? delay_ms : a->round_ms;
	a->least_ms = delay_ms < a->least_ms ? delay_ms : a->least_ms;
	if (++a->results < a->limit)
		return;
	above = a->round_ms - a->least_ms;
	if (above > larger(a->least_ms / 2, LOOKAHEAD_FULL_MS))
		lookahead_shrink(a);
	else if (a->held && above <= larger(a->least_ms / 4, LOOKAHEAD_ROOM_MS))
		lookahead_grow(a, most);
	a->results = 0;
	a->round_ms = UINT32_MAX;
	a->held = false;
}
