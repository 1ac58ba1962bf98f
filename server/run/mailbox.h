/* SPDX-License-Identifier: Apache-2.0 */
/* A queue of messages from other threads into a libuv loop. Messages of one thread arrive
 * in the order in which it posted them.
 *
 * Wake-ups coalesce, so the receiver drains the queue and never counts wake-ups. */
#ifndef RS_SERVER_RUN_MAILBOX_H
#define RS_SERVER_RUN_MAILBOX_H

#include "common/error.h"
#include "proto/rpc/wakeup.h"

#include <stdbool.h>
#include <uv.h>

/* First member of every message. Messages are allocated with malloc; the receiver frees
 * them. */
struct mail {
	struct mail *next;
};

/* Invariant: the mutex protects the list from head to *tail. */
struct mailbox {
	struct wakeup wakeup;
	uv_mutex_t mutex;
	struct mail *head, **tail;
	void (*take)(struct mailbox *m, struct mail *mail); /* on the loop's thread; takes over mail */
	void *user;
};

/* Initializes a mailbox of the loop that owns `wakeups`. Errors: RS_ENOMEM. */
int mailbox_init(struct mailbox *m, struct wakeups *wakeups, void (*take)(struct mailbox *m, struct mail *mail),
		 void *user, struct rs_err *e);
/* Posts a message, from any thread, until mailbox_close. */
void mailbox_post(struct mailbox *m, struct mail *mail);
/* Stops taking messages. To be called on the loop's thread, when no other thread posts
 * any more. */
void mailbox_close(struct mailbox *m);
/* Frees the remaining messages, after the loop has run for the last time. */
void mailbox_destroy(struct mailbox *m);

#endif
