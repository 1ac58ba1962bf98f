/* SPDX-License-Identifier: Apache-2.0 */
/* What the daemon tells the service manager. */
#include "agent/node/daemon/agentd.h"

static void notify_status(struct agentd *a)
{
	unsigned jobs = local_hub_jobs(a->hub), ranks = local_hub_clients(a->hub);
	uint64_t now = uv_now(&a->loop), left_ms = a->drain_by_ms > now ? a->drain_by_ms - now : 0;
	const char *plural = jobs == 1 ? "" : "s", *ranks_plural = ranks == 1 ? "" : "s";

	if (a->stopping) {
		rs_notify_stopping(a->notify, left_ms);
		rs_notify_status(a->notify, "draining: %u job%s, %u local rank%s, at most %u s more", jobs, plural,
				 ranks, ranks_plural, (unsigned)((left_ms + 999) / 1000));
	} else {
		rs_notify_status(a->notify, "serving %u job%s, %u local rank%s", jobs, plural, ranks, ranks_plural);
	}
}

void agentd_notify_tick(struct agentd *a)
{
	if (!a->notify)
		return;
	notify_status(a);
	if (rs_notify_due(a->notify, uv_now(&a->loop)) && agentd_engines_answer(a))
		rs_notify_alive(a->notify, uv_now(&a->loop));
}

static void notify_on_tick(uv_timer_t *timer)
{
	agentd_notify_tick(timer->data);
}

void agentd_notify_start(struct agentd *a)
{
	if (!a->notify)
		return;
	uv_timer_init(&a->loop, &a->notify_tick);
	a->notify_tick.data = a;
	uv_timer_start(&a->notify_tick, notify_on_tick, RS_NOTIFY_TICK_MS, RS_NOTIFY_TICK_MS);
	notify_status(a);
	rs_notify_ready(a->notify);
}

void agentd_notify_close(struct agentd *a)
{
	if (a->notify)
		uv_close((uv_handle_t *)&a->notify_tick, NULL);
}
