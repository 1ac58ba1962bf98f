/* SPDX-License-Identifier: Apache-2.0 */
#include "common/pool.h"

#include <signal.h>

enum { STACK = 512 << 10 };

static struct rs_task *tasks_take_first(struct rs_tasks *l)
{
	struct rs_task *t = STAILQ_FIRST(l);

	if (t)
		STAILQ_REMOVE_HEAD(l, link);
	return t;
}

static void *pool_main(void *arg)
{
	struct rs_pool *p = arg;
	struct rs_task *t;

	pthread_mutex_lock(&p->lock);
	for (;;) {
		while (!(t = tasks_take_first(&p->waiting)) && !p->stopping)
			pthread_cond_wait(&p->some, &p->lock);
		if (!t)
			break;
		pthread_mutex_unlock(&p->lock);
		t->run(t);
		pthread_mutex_lock(&p->lock);
		STAILQ_INSERT_TAIL(&p->ended, t, link);
		p->wake(p->ctx);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

static void pool_join(struct rs_pool *p)
{
	pthread_mutex_lock(&p->lock);
	p->stopping = true;
	pthread_cond_broadcast(&p->some);
	pthread_mutex_unlock(&p->lock);
	while (p->threads_n > 0)
		pthread_join(p->threads[--p->threads_n], NULL);
}

static void pool_close(struct rs_pool *p)
{
	pthread_cond_destroy(&p->some);
	pthread_mutex_destroy(&p->lock);
}

int rs_pool_start(struct rs_pool *p, void (*wake)(void *ctx), void *ctx, struct rs_err *e)
{
	pthread_attr_t attr;
	sigset_t all, before;
	int rc = 0;

	*p = (struct rs_pool){.wake = wake, .ctx = ctx};
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->some, NULL);
	STAILQ_INIT(&p->waiting);
	STAILQ_INIT(&p->ended);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (p->threads_n < RS_POOL_THREADS && !rc) {
		rc = pthread_create(&p->threads[p->threads_n], &attr, pool_main, p);
		p->threads_n += !rc;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	if (!rc)
		return RS_OK;
	pool_join(p);
	pool_close(p);
	p->wake = NULL;
	return rs_fail_sys(e, RS_ENOMEM, rc,
			   "cannot start a thread (limits: ulimit -u, ulimit -v, TasksMax of systemd)");
}

void rs_pool_add(struct rs_pool *p, struct rs_task *t)
{
	pthread_mutex_lock(&p->lock);
	STAILQ_INSERT_TAIL(&p->waiting, t, link);
	pthread_cond_signal(&p->some);
	pthread_mutex_unlock(&p->lock);
}

void rs_pool_finish(struct rs_pool *p)
{
	struct rs_task *t;

	do {
		pthread_mutex_lock(&p->lock);
		t = tasks_take_first(&p->ended);
		pthread_mutex_unlock(&p->lock);
		if (t)
			t->done(t);
	} while (t);
}

void rs_pool_stop(struct rs_pool *p)
{
	if (!p->wake)
		return;
	pool_join(p);
	rs_pool_finish(p);
	pool_close(p);
	p->wake = NULL;
}
