/* SPDX-License-Identifier: Apache-2.0 */
/* A queue of messages into a libuv loop from other threads. Messages from one thread arrive in its order.
 *
 * Wake-ups coalesce, so the receiver drains the queue and never counts them. */
#ifndef RS_SERVER_RUN_MAILBOX_H
#define RS_SERVER_RUN_MAILBOX_H

#include "common/error.h"
#include "proto/rpc/wakeup.h"

#include <stdbool.h>
#include <uv.h>

/* First member of every message; messages are allocated with malloc and freed by the receiver. */
struct mail {
	struct mail *next;
};

struct mailbox {
	struct wakeup wakeup;
	uv_mutex_t mutex;
	struct mail *head, **tail;
	void (*take)(struct mailbox *m, struct mail *mail); /* on the loop's thread; owns mail */
	void *user;
};

/* `wakeups` are its loop's. Errors: RS_ENOMEM. */
int mailbox_init(struct mailbox *m, struct wakeups *wakeups, void (*take)(struct mailbox *m, struct mail *mail),
		 void *user, struct rs_err *e);
/* Any thread, until mailbox_close. */
void mailbox_post(struct mailbox *m, struct mail *mail);
/* On the loop's thread, when no other thread posts any more: nothing is taken from now on. */
void mailbox_close(struct mailbox *m);
/* After the loop has run for the last time; frees what is left. */
void mailbox_destroy(struct mailbox *m);

#endif
