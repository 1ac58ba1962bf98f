/* SPDX-License-Identifier: Apache-2.0 */
/* What the other files ask of the loop: its timer, the events of engines' threads, and a
 * look at the end. */
#include "agent/node/daemon/agentd.h"

void agentd_check_end_soon(struct agentd *a)
{
	if (a->stopping && !a->closed)
		uv_async_send(&a->wake);
}

static void schedule_on_timer(uv_timer_t *t)
{
	struct agentd *a = t->data;

	local_hub_tick(a->hub, uv_now(&a->loop));
	rs_log_limit_report(&a->refused, a->log, RS_LOG_WARN, uv_now(&a->loop));
	agentd_arm(a);
	agentd_check_end_soon(a);
}

void agentd_arm(struct agentd *a)
{
	uint64_t next = local_hub_next(a->hub), now = uv_now(&a->loop);

	if (a->closed)
		return;
	if (rs_log_limit_next(&a->refused) < next)
		next = rs_log_limit_next(&a->refused);
	if (next == UINT64_MAX)
		uv_timer_stop(&a->timer);
	else
		uv_timer_start(&a->timer, schedule_on_timer, next > now ? next - now : 0, 0);
}

void agentd_post(void *ctx, struct local_event *n)
{
	struct agentd *a = ctx;

	n->next = NULL;
	pthread_mutex_lock(&a->lock);
	*a->events_end = n;
	a->events_end = &n->next;
	pthread_mutex_unlock(&a->lock);
	if (!pthread_equal(pthread_self(), a->thread) || !a->busy_polling)
		uv_async_send(&a->wake);
}

void agentd_take_events(struct agentd *a)
{
	struct local_event *n, *next;

	pthread_mutex_lock(&a->lock);
	n = a->events;
	a->events = NULL;
	a->events_end = &a->events;
	pthread_mutex_unlock(&a->lock);
	for (; n; n = next) {
		next = n->next; /* the hub may free n */
		local_hub_on_event(n);
	}
}
