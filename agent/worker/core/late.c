/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/worker/core/late.h"

void late_begin(struct late_watch *w)
{
	*w = (struct late_watch){.pause_ms = w->pause_ms};
}

void late_idle(struct late_watch *w, uint64_t now_ms)
{
	w->idle_ms = now_ms ? now_ms : 1;
}

void late_busy(struct late_watch *w, uint64_t now_ms)
{
	uint64_t pause_ms = now_ms - w->idle_ms;

	if (!w->idle_ms)
		return;
	w->idle_ms = 0;
	if (pause_ms >= w->pause_ms)
		w->pause_ms = pause_ms;
	else
		w->pause_ms -= (w->pause_ms - pause_ms + 3) / 4;
}

bool late_warns(struct late_watch *w, uint64_t seq, uint64_t waited_ms, uint64_t now_ms)
{
	uint64_t late_ms = w->pause_ms / 2 > LATE_WARN_MS ? w->pause_ms / 2 : LATE_WARN_MS;

	if (waited_ms < late_ms || now_ms < w->next_ms || seq < w->next_seq)
		return false;
	w->next_ms = now_ms + LATE_WARN_MS;
	w->next_seq = seq + 1;
	return true;
}
