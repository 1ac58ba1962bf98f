/* SPDX-License-Identifier: Apache-2.0 */
#include "common/rpc/grpc_priv.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum { PRIME_BYTES = 8 << 20 };

static gpr_timespec next_tick(const struct queue *q)
{
	if (!q->tick)
		return gpr_inf_future(GPR_CLOCK_MONOTONIC);
	return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(QUEUE_TICK_MS, GPR_TIMESPAN));
}

static void *queue_main(void *arg)
{
	struct queue *q = arg;
	gpr_timespec tick = next_tick(q);

	pthread_setname_np(pthread_self(), q->name);
	for (;;) {
		grpc_event ev = grpc_completion_queue_next(q->cq, tick, NULL);
		struct op *op = ev.tag;

		if (ev.type == GRPC_QUEUE_SHUTDOWN)
			return NULL;
		if (ev.type == GRPC_OP_COMPLETE) {
			op_comes(op);
			op->done(op, ev.success);
		}
		if (q->tick && gpr_time_cmp(gpr_now(GPR_CLOCK_MONOTONIC), tick) >= 0) {
			q->tick(q);
			tick = next_tick(q);
		}
	}
}

int queue_start(struct queue *q, const char *name, void (*tick)(struct queue *q), struct rs_err *e)
{
	sigset_t all, before;
	int rc;

	snprintf(q->name, sizeof q->name, "%s", name);
	q->tick = tick;
	q->cq = grpc_completion_queue_create_for_next(NULL);
	/* signals belong to the program's own threads */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&q->thread, NULL, queue_main, q);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!rc)
		return RS_OK;
	grpc_completion_queue_shutdown(q->cq);
	while (grpc_completion_queue_next(q->cq, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL).type != GRPC_QUEUE_SHUTDOWN)
		;
	grpc_completion_queue_destroy(q->cq);
	return rs_fail_sys(e, RS_EIO, rc, "a thread for gRPC cannot be started");
}

void queue_stop(struct queue *q)
{
	grpc_completion_queue_shutdown(q->cq);
	pthread_join(q->thread, NULL);
	grpc_completion_queue_destroy(q->cq);
}

void live_init(struct live *l)
{
	pthread_mutex_init(&l->lock, NULL);
	pthread_cond_init(&l->changed, NULL);
	l->n = 0;
}

unsigned live_add(struct live *l)
{
	unsigned before;

	pthread_mutex_lock(&l->lock);
	before = l->n++;
	pthread_mutex_unlock(&l->lock);
	return before;
}

void live_remove(struct live *l)
{
	pthread_mutex_lock(&l->lock);
	if (--l->n == 0)
		pthread_cond_broadcast(&l->changed);
	pthread_mutex_unlock(&l->lock);
}

void live_close(struct live *l)
{
	pthread_mutex_lock(&l->lock);
	while (l->n)
		pthread_cond_wait(&l->changed, &l->lock);
	pthread_mutex_unlock(&l->lock);
	pthread_mutex_destroy(&l->lock);
	pthread_cond_destroy(&l->changed);
}

/* gRPC reads into 64 KiB that it allocates for each read, and what is sent is copied into as much as PIECE_BYTES. By
 * default glibc gives such memory back to the system as soon as it is free, and each message then costs a page fault
 * for every 4 KiB of it. It keeps more after a program has freed a large block once, as most have; this is one. */
static void prime_malloc(void)
{
	volatile char *block = malloc(PRIME_BYTES);

	if (block)
		block[0] = 0;
	free((void *)block);
}

void grpc_use(void)
{
	sigset_t all, before;

	prime_malloc();

	/* it starts threads of its own */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	grpc_init();
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void grpc_release(void)
{
	/* a process may end right after it: nothing of gRPC runs on, and leak checkers find nothing */
	grpc_shutdown_blocking();
}
