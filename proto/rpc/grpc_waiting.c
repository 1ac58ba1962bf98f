/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/rpc/grpc_priv.h"

void waiting_init(struct waiting *all)
{
	pthread_mutex_init(&all->lock, NULL);
	all->first = NULL;
	all->last = &all->first;
}

void waiting_destroy(struct waiting *all)
{
	pthread_mutex_destroy(&all->lock);
}

/* With the lock, as what follows. */
static void unlink_one(struct waiter *w)
{
	if (!w->at)
		return;
	*w->at = w->next;
	if (w->next)
		w->next->at = w->at;
	else
		w->all->last = w->at;
	w->at = NULL;
}

static void end_one(struct waiter *w, grpc_status_code code, const char *why)
{
	unlink_one(w);
	grpc_call_cancel_with_status(w->call, code, why, NULL);
}

void waiting_add(struct waiter *w, struct waiting *all, grpc_call *call, const char *why)
{
	pthread_mutex_lock(&all->lock);
	*w = (struct waiter){.all = all, .at = all->last, .call = call, .why = why};
	*all->last = w;
	all->last = &w->next;
	pthread_mutex_unlock(&all->lock);
}

void waiting_remove(struct waiter *w)
{
	if (!w->all)
		return;
	pthread_mutex_lock(&w->all->lock);
	unlink_one(w);
	pthread_mutex_unlock(&w->all->lock);
}

void waiting_tick(struct waiting *all, unsigned ticks)
{
	struct waiter *next;

	pthread_mutex_lock(&all->lock);
	for (struct waiter *w = all->first; w; w = next) {
		next = w->next;
		if (++w->ticks >= ticks)
			end_one(w, GRPC_STATUS_DEADLINE_EXCEEDED, w->why);
	}
	pthread_mutex_unlock(&all->lock);
}

bool waiting_end_oldest(struct waiting *all)
{
	bool found;

	pthread_mutex_lock(&all->lock);
	found = all->first;
	if (found)
		end_one(all->first, GRPC_STATUS_RESOURCE_EXHAUSTED, "its place goes to a newer call");
	pthread_mutex_unlock(&all->lock);
	return found;
}
