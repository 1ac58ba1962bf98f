/* SPDX-License-Identifier: Apache-2.0 */
#include "server/run/mailbox.h"

#include <stddef.h>
#include <stdlib.h>

static struct mail *mailbox_take_all(struct mailbox *m)
{
	struct mail *list;

	uv_mutex_lock(&m->mutex);
	list = m->head;
	m->head = NULL;
	m->tail = &m->head;
	uv_mutex_unlock(&m->mutex);
	return list;
}

static void mailbox_on_woken(struct wakeup *w)
{
	struct mailbox *m = (struct mailbox *)((char *)w - offsetof(struct mailbox, wakeup));
	struct mail *mail = mailbox_take_all(m);

	while (mail) {
		struct mail *next = mail->next;

		m->take(m, mail);
		mail = next;
	}
}

int mailbox_init(struct mailbox *m, struct wakeups *wakeups, void (*take)(struct mailbox *m, struct mail *mail),
		 void *user, struct rs_err *e)
{
	int rc = uv_mutex_init(&m->mutex);

	if (rc)
		return rs_fail(e, RS_ENOMEM, "cannot create a mutex: %s", uv_strerror(rc));
	wakeup_init(&m->wakeup, wakeups, mailbox_on_woken);
	m->head = NULL;
	m->tail = &m->head;
	m->take = take;
	m->user = user;
	return RS_OK;
}

void mailbox_post(struct mailbox *m, struct mail *mail)
{
	mail->next = NULL;
	uv_mutex_lock(&m->mutex);
	*m->tail = mail;
	m->tail = &mail->next;
	/* inside the lock, so that mailbox_close does not come between */
	wakeup_send(&m->wakeup);
	uv_mutex_unlock(&m->mutex);
}

void mailbox_close(struct mailbox *m)
{
	wakeup_close(&m->wakeup);
}

void mailbox_destroy(struct mailbox *m)
{
	struct mail *mail = mailbox_take_all(m);

	while (mail) {
		struct mail *next = mail->next;

		free(mail);
		mail = next;
	}
	uv_mutex_destroy(&m->mutex);
}
