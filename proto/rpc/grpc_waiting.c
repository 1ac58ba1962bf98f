/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/rpc/grpc_priv.h"

void waiting_init(struct waiting *all)
{
	pthread_mutex_init(&all->lock, NULL);
	TAILQ_INIT(&all->list);
}

void waiting_destroy(struct waiting *all)
{
	pthread_mutex_destroy(&all->lock);
}

/* With the lock, as what follows. */
static void waiting_unlink_one(struct waiter *w)
{
	if (w->listed)
		TAILQ_REMOVE(&w->all->list, w, link);
	w->listed = false;
}

static void waiting_end_one(struct waiter *w, grpc_status_code code, const char *why)
{
	waiting_unlink_one(w);
	grpc_call_cancel_with_status(w->call, code, why, NULL);
}

void waiting_add(struct waiter *w, struct waiting *all, grpc_call *call, const char *why)
{
	pthread_mutex_lock(&all->lock);
	*w = (struct waiter){.all = all, .listed = true, .call = call, .why = why};
	TAILQ_INSERT_TAIL(&all->list, w, link);
	pthread_mutex_unlock(&all->lock);
}

void waiting_remove(struct waiter *w)
{
	if (!w->all)
		return;
	pthread_mutex_lock(&w->all->lock);
	waiting_unlink_one(w);
	pthread_mutex_unlock(&w->all->lock);
}

void waiting_tick(struct waiting *all, unsigned ticks)
{
	struct waiter *next;

	pthread_mutex_lock(&all->lock);
	for (struct waiter *w = TAILQ_FIRST(&all->list); w; w = next) {
		next = TAILQ_NEXT(w, link);
		if (++w->ticks >= ticks)
			waiting_end_one(w, GRPC_STATUS_DEADLINE_EXCEEDED, w->why);
	}
	pthread_mutex_unlock(&all->lock);
}

bool waiting_end_oldest(struct waiting *all)
{
	struct waiter *oldest;

	pthread_mutex_lock(&all->lock);
	oldest = TAILQ_FIRST(&all->list);
	if (oldest)
		waiting_end_one(oldest, GRPC_STATUS_RESOURCE_EXHAUSTED, "its place goes to a newer call");
	pthread_mutex_unlock(&all->lock);
	return oldest != NULL;
}
