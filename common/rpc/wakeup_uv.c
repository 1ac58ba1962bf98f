/* SPDX-License-Identifier: Apache-2.0 */
#include "common/rpc/wakeup.h"

/* With the mutex. */
static void unlink_one(struct wakeup *w)
{
	struct wakeups *all = w->all;

	*w->at = w->next;
	if (w->next)
		w->next->at = w->at;
	else
		all->last = w->at;
	w->at = NULL;
}

static struct wakeup *take_first(struct wakeups *all)
{
	struct wakeup *w;

	uv_mutex_lock(&all->mutex);
	w = all->first;
	if (w)
		unlink_one(w);
	uv_mutex_unlock(&all->mutex);
	return w;
}

static unsigned count(struct wakeups *all)
{
	unsigned n = 0;

	uv_mutex_lock(&all->mutex);
	for (const struct wakeup *w = all->first; w; w = w->next)
		n++;
	uv_mutex_unlock(&all->mutex);
	return n;
}

static void on_async(uv_async_t *async)
{
	struct wakeups *all = async->data;
	struct wakeup *w;

	/* those that wake themselves or others meanwhile have their turn when the loop has looked at all else */
	for (unsigned n = count(all); n && (w = take_first(all)); n--)
		w->woken(w);
}

int wakeups_init(struct wakeups *all, uv_loop_t *loop, struct rs_err *e)
{
	int rc = uv_mutex_init(&all->mutex);

	if (rc)
		return rs_fail(e, RS_ENOMEM, "a mutex cannot be made: %s", uv_strerror(rc));
	rc = uv_async_init(loop, &all->async, on_async);
	if (rc) {
		uv_mutex_destroy(&all->mutex);
		return rs_fail(e, RS_EIO, "an event cannot be made: %s", uv_strerror(rc));
	}
	all->async.data = all;
	all->first = NULL;
	all->last = &all->first;
	return RS_OK;
}

void wakeups_close(struct wakeups *all)
{
	uv_close((uv_handle_t *)&all->async, NULL);
}

void wakeups_destroy(struct wakeups *all)
{
	uv_mutex_destroy(&all->mutex);
}

static void wake(void *user)
{
	struct wakeup *w = user;
	struct wakeups *all = w->all;

	uv_mutex_lock(&all->mutex);
	if (!w->at) {
		w->next = NULL;
		w->at = all->last;
		*all->last = w;
		all->last = &w->next;
		/* inside the lock: who closes the object waits for it */
		uv_async_send(&all->async);
	}
	uv_mutex_unlock(&all->mutex);
}

void wakeup_init(struct wakeup *w, struct wakeups *all, void (*woken)(struct wakeup *w))
{
	*w = (struct wakeup){.all = all, .woken = woken};
}

struct rpc_waker wakeup_waker(struct wakeup *w)
{
	return (struct rpc_waker){.wake = wake, .user = w};
}

void wakeup_again(struct wakeup *w)
{
	wake(w);
}

void wakeup_close(struct wakeup *w)
{
	if (!w->all)
		return;
	uv_mutex_lock(&w->all->mutex);
	if (w->at)
		unlink_one(w);
	uv_mutex_unlock(&w->all->mutex);
}
