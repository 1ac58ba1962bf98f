/* SPDX-License-Identifier: Apache-2.0 */
/* How views are merged: every order of news gives the same view. */
#include "proto/control.h"

#include <string.h>

bool control_view_merge(struct control_view *to, const struct control_view *from)
{
	bool changed = false;

	for (unsigned i = 0; i < to->n && i < from->n; i++) {
		if (from->lives[i] <= to->lives[i])
			continue;
		to->lives[i] = from->lives[i];
		to->empty[i] = from->empty[i];
		changed = true;
	}
	if (changed && from->lost) {
		to->lost = from->lost;
		to->reported = from->reported;
		to->cause = from->cause;
		memcpy(to->why, from->why, sizeof to->why);
		memcpy(to->lost_id, from->lost_id, sizeof to->lost_id);
	}
	if (from->epoch > to->epoch) {
		to->epoch = from->epoch;
		memcpy(to->shares, from->shares, to->n * sizeof *to->shares);
		changed = true;
	}
	return changed;
}

bool control_view_conflicts(const struct control_view *a, const struct control_view *b)
{
	return a->epoch && a->epoch == b->epoch && memcmp(a->shares, b->shares, a->n * sizeof *a->shares) != 0;
}

uint64_t control_view_number(const struct control_view *v)
{
	uint64_t sum = v->epoch;

	for (unsigned i = 0; i < v->n; i++)
		sum += v->lives[i];
	return sum;
}
