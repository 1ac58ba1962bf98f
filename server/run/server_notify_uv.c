/* SPDX-License-Identifier: Apache-2.0 */
#include "server/run/server_notify.h"

static void notify_status(struct server *s)
{
	unsigned jobs = registry_jobs(s->registry), ranks = registry_ranks(s->registry);
	uint64_t now = uv_now(&s->loop), left_ms = s->deadline_ms > now ? s->deadline_ms - now : 0;
	const char *plural = jobs == 1 ? "" : "s", *ranks_plural = ranks == 1 ? "" : "s";

	if (s->draining) {
		rs_notify_stopping(s->notify, left_ms);
		rs_notify_status(s->notify, "draining: %u job%s, %u rank%s, at most %u s more", jobs, plural, ranks,
				 ranks_plural, (unsigned)((left_ms + 999) / 1000));
	} else {
		rs_notify_status(s->notify, "serving %u job%s, %u rank%s", jobs, plural, ranks, ranks_plural);
	}
}

void server_notify_ready(struct server *s)
{
	if (!rs_notify_on(s->notify))
		return;
	notify_status(s);
	rs_notify_ready(s->notify);
}

void server_notify_tick(struct server *s)
{
	bool turned = true;

	if (!rs_notify_on(s->notify))
		return;
	notify_status(s);
	if (!rs_notify_due(s->notify, uv_now(&s->loop)))
		return;
	for (unsigned i = 0; i < s->lanes_n; i++)
		turned &= lane_thread_turned(s->lanes[i]);
	if (turned)
		rs_notify_alive(s->notify, uv_now(&s->loop));
}
