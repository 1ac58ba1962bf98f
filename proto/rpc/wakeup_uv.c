/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/rpc/wakeup.h"

/* With the mutex. */
static void wakeup_unlink_one(struct wakeup *w)
{
	TAILQ_REMOVE(&w->all->list, w, link);
	w->listed = false;
}

static struct wakeup *wakeup_take_first(struct wakeups *all)
{
	struct wakeup *w;

	uv_mutex_lock(&all->mutex);
	w = TAILQ_FIRST(&all->list);
	if (w)
		wakeup_unlink_one(w);
	uv_mutex_unlock(&all->mutex);
	return w;
}

static unsigned wakeup_count(struct wakeups *all)
{
	unsigned n = 0;

	uv_mutex_lock(&all->mutex);
	for (const struct wakeup *w = TAILQ_FIRST(&all->list); w; w = TAILQ_NEXT(w, link))
		n++;
	uv_mutex_unlock(&all->mutex);
	return n;
}

static void wakeup_run_list(struct wakeups *all)
{
	struct wakeup *w;

	/* objects that are woken meanwhile have their turn after the loop has handled
	 * everything else */
	for (unsigned n = wakeup_count(all); n && (w = wakeup_take_first(all)); n--)
		w->woken(w);
}

static void wakeup_on_async(uv_async_t *async)
{
	wakeup_run_list(async->data);
}

int wakeups_init(struct wakeups *all, uv_loop_t *loop, struct rs_err *e)
{
	int rc = uv_mutex_init(&all->mutex);

	if (rc)
		return rs_fail(e, RS_ENOMEM, "a mutex cannot be made: %s", uv_strerror(rc));
	rc = uv_async_init(loop, &all->async, wakeup_on_async);
	if (rc) {
		uv_mutex_destroy(&all->mutex);
		return rs_fail(e, RS_EIO, "an event cannot be made: %s", uv_strerror(rc));
	}
	all->async.data = all;
	all->loop = loop;
	TAILQ_INIT(&all->list);
	all->rpc = NULL;
	all->asleep = false;
	return RS_OK;
}

/* Sleeps in the queue until something arrives, or a timer of the loop is due. */
static void wakeup_sleep_in_queue(struct wakeups *all)
{
	int wait_ms;

	uv_mutex_lock(&all->mutex);
	wait_ms = TAILQ_EMPTY(&all->list) ? uv_backend_timeout(all->loop) : 0;
	all->asleep = true;
	uv_mutex_unlock(&all->mutex);
	all->rpc->queue_serve(all->queue, wait_ms);
	uv_mutex_lock(&all->mutex);
	all->asleep = false;
	uv_mutex_unlock(&all->mutex);
}

void wakeups_run(struct wakeups *all)
{
	while (uv_run(all->loop, all->rpc ? UV_RUN_NOWAIT : UV_RUN_ONCE)) {
		if (!all->rpc)
			continue;
		wakeup_sleep_in_queue(all);
		uv_update_time(all->loop);
		wakeup_run_list(all);
	}
}

void wakeups_serve(struct wakeups *all, const struct rpc_api *rpc, struct rpc_queue *queue)
{
	const struct rpc_api *before = all->rpc;

	if (!before == !rpc)
		return;
	if (rpc)
		rpc->queue_take(queue);
	uv_mutex_lock(&all->mutex);
	all->rpc = rpc;
	if (rpc) {
		all->queue = queue;
		all->server = pthread_self();
	} else if (!TAILQ_EMPTY(&all->list)) {
		uv_async_send(&all->async);
	}
	uv_mutex_unlock(&all->mutex);
	if (before)
		before->queue_leave(all->queue);
}

void wakeups_close(struct wakeups *all)
{
	uv_close((uv_handle_t *)&all->async, NULL);
}

void wakeups_destroy(struct wakeups *all)
{
	uv_mutex_destroy(&all->mutex);
}

/* Called when the list is not empty any more. With the mutex. */
static void wakeup_tell(struct wakeups *all)
{
	if (!all->rpc)
		uv_async_send(&all->async);
	else if (all->asleep && !pthread_equal(all->server, pthread_self()))
		all->rpc->queue_kick(all->queue);
}

void wakeup_send(struct wakeup *w)
{
	struct wakeups *all = w->all;

	uv_mutex_lock(&all->mutex);
	if (!w->listed) {
		w->listed = true;
		TAILQ_INSERT_TAIL(&all->list, w, link);
		/* inside the lock: a thread that closes the object waits for it */
		wakeup_tell(all);
	}
	uv_mutex_unlock(&all->mutex);
}

static void wakeup_wake(void *user)
{
	wakeup_send(user);
}

void wakeup_init(struct wakeup *w, struct wakeups *all, void (*woken)(struct wakeup *w))
{
	*w = (struct wakeup){.all = all, .woken = woken};
}

struct rpc_waker wakeup_waker(struct wakeup *w)
{
	return (struct rpc_waker){.wake = wakeup_wake, .user = w};
}

void wakeup_close(struct wakeup *w)
{
	if (!w->all)
		return;
	uv_mutex_lock(&w->all->mutex);
	if (w->listed)
		wakeup_unlink_one(w);
	uv_mutex_unlock(&w->all->mutex);
}
