/* SPDX-License-Identifier: Apache-2.0 */
/* Wakeups from other threads to a loop. Objects that were woken wait in a list, each at
 * most once, for the loop's next turn.
 *
 * A loop whose connections are streams of the module may sleep in a queue of the module
 * instead of in libuv (wakeups_serve). Then the data of its streams is processed on the
 * thread that has read it. Such a loop does not look at descriptors while it sleeps, so
 * only wakeups and timers wake it. */
#ifndef RS_PROTO_RPC_WAKEUP_H
#define RS_PROTO_RPC_WAKEUP_H

#include "proto/rpc/rpc.h"

#include <pthread.h>
#include <stdbool.h>
#include <sys/queue.h>
#include <uv.h>

struct wakeups;

/* An object's entry in the list; part of the object. Zero before wakeup_init. */
struct wakeup {
	struct wakeups *all;
	TAILQ_ENTRY(wakeup) link;
	bool listed; /* link is in all->list */
	void (*woken)(struct wakeup *w);
};

/* The wakeups of one loop. */
struct wakeups {
	uv_loop_t *loop;
	uv_async_t async;
	uv_mutex_t mutex;          /* protects the following fields */
	TAILQ_HEAD(, wakeup) list; /* the oldest first */
	const struct rpc_api *rpc; /* not NULL: the loop sleeps in `queue`, which it has taken, */
	struct rpc_queue *queue;
	pthread_t server; /* on this thread */
	bool asleep;      /* the loop sleeps in the queue, and will not read the list without a kick */
};

/* Errors: RS_ENOMEM, RS_EIO. All functions are called on the loop's thread, except those
 * that say "any thread". */
int wakeups_init(struct wakeups *all, uv_loop_t *loop, struct rs_err *e);
/* Does the same as uv_run(loop, UV_RUN_DEFAULT): runs until no handle is left. Needed
 * only with wakeups_serve. */
void wakeups_run(struct wakeups *all);
/* Makes the loop sleep in this queue from now on (rpc NULL: in libuv again). Does nothing
 * if that is already so. The loop must sleep in libuv before the queue's owner ends, and
 * when the loop ends. */
void wakeups_serve(struct wakeups *all, const struct rpc_api *rpc, struct rpc_queue *queue);
/* Stops all calls. The handle closes with the loop; then call wakeups_destroy. */
void wakeups_close(struct wakeups *all);
void wakeups_destroy(struct wakeups *all);

/* Initializes an object: woken() is called on the loop's thread, some time after any
 * thread called wakeup_send or its waker. */
void wakeup_init(struct wakeup *w, struct wakeups *all, void (*woken)(struct wakeup *w));
struct rpc_waker wakeup_waker(struct wakeup *w);
/* Wakes an object; objects that already wait come first. Any thread, until wakeup_close
 * or wakeups_close. */
void wakeup_send(struct wakeup *w);
/* Removes an object from the list. Nothing may wake it any more: its stream, if it has
 * one, was closed or has another waker. */
void wakeup_close(struct wakeup *w);

#endif
