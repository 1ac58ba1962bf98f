/* SPDX-License-Identifier: Apache-2.0 */
/* From the module's threads to a loop: objects whose wakers were called wait in a list, each at most once, for the
 * loop's next turn. */
#ifndef RS_RPC_WAKEUP_H
#define RS_RPC_WAKEUP_H

#include "common/rpc/rpc.h"

#include <uv.h>

struct wakeups;

/* Part of an object that can be woken; zero before wakeup_init. */
struct wakeup {
	struct wakeups *all;
	struct wakeup *next, **at; /* at is NULL: it is not in the list */
	void (*woken)(struct wakeup *w);
};

struct wakeups {
	uv_mutex_t mutex; /* the list */
	uv_async_t async;
	struct wakeup *first, **last;
};

/* Errors: RS_ENOMEM, RS_EIO. These and what follows are for the loop's thread. */
int wakeups_init(struct wakeups *all, uv_loop_t *loop, struct rs_err *e);
/* Nothing is called any more. The handle closes with the loop; then wakeups_destroy. */
void wakeups_close(struct wakeups *all);
void wakeups_destroy(struct wakeups *all);

/* woken() is called on the loop's thread, some time after the waker was. */
void wakeup_init(struct wakeup *w, struct wakeups *all, void (*woken)(struct wakeup *w));
struct rpc_waker wakeup_waker(struct wakeup *w);
/* As if its waker had been called: it has its turn after all others that wait. */
void wakeup_again(struct wakeup *w);
/* Takes it out of the list. Its stream must have been closed, or have another waker. */
void wakeup_close(struct wakeup *w);

#endif
