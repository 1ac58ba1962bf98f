/* SPDX-License-Identifier: Apache-2.0 */
/* From other threads to a loop: objects that were woken wait in a list, each at most once, for the loop's next turn.
 *
 * A loop whose connections are the module's streams may sleep in a queue of the module instead of in libuv
 * (wakeups_serve): then what its streams bring is dealt with on the thread that has read it. Everything else that
 * wakes such a loop has to be a wakeup too, or a timer: it does not look at descriptors while it sleeps. */
#ifndef RS_PROTO_RPC_WAKEUP_H
#define RS_PROTO_RPC_WAKEUP_H

#include "proto/rpc/rpc.h"

#include <pthread.h>
#include <uv.h>

struct wakeups;

/* Part of an object that can be woken; zero before wakeup_init. */
struct wakeup {
	struct wakeups *all;
	struct wakeup *next, **at; /* at is NULL: it is not in the list */
	void (*woken)(struct wakeup *w);
};

struct wakeups {
	uv_loop_t *loop;
	uv_async_t async;
	uv_mutex_t mutex; /* what follows */
	struct wakeup *first, **last;
	const struct rpc_api *rpc; /* not NULL: the loop sleeps in `queue`, which it has taken, */
	struct rpc_queue *queue;
	pthread_t server; /* on this thread */
	bool asleep;      /* and does so now: it will not look at the list by itself */
};

/* Errors: RS_ENOMEM, RS_EIO. These and what follows are for the loop's thread, except where it says any thread. */
int wakeups_init(struct wakeups *all, uv_loop_t *loop, struct rs_err *e);
/* As uv_run(loop, UV_RUN_DEFAULT): until no handle is left. Needed only for wakeups_serve. */
void wakeups_run(struct wakeups *all);
/* From now on the loop sleeps in this queue (rpc is NULL: in libuv again); does nothing where that is so already. It is
 * in libuv before the queue's owner ends, and when the loop does. */
void wakeups_serve(struct wakeups *all, const struct rpc_api *rpc, struct rpc_queue *queue);
/* Nothing is called any more. The handle closes with the loop; then wakeups_destroy. */
void wakeups_close(struct wakeups *all);
void wakeups_destroy(struct wakeups *all);

/* woken() is called on the loop's thread, some time after wakeup_send or its waker was, by any thread. */
void wakeup_init(struct wakeup *w, struct wakeups *all, void (*woken)(struct wakeup *w));
struct rpc_waker wakeup_waker(struct wakeup *w);
/* Those that wait already have their turn first. Any thread, until wakeup_close or wakeups_close. */
void wakeup_send(struct wakeup *w);
/* Takes it out of the list. Nobody sends it any more: its stream, if it has one, was closed or has another waker. */
void wakeup_close(struct wakeup *w);

#endif
