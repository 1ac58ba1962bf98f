/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/rpc/grpc_priv.h"

#include "common/descriptors.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum {
	PRIME_BYTES = 8 << 20,
	THREADS = 8,      /* of gRPC 1.51 beside its pool: 4 from the start, others when there is work */
	DESCRIPTORS = 16, /* of gRPC, which aborts without them */
	POOL_MAX = 32,    /* its pool has one for each core, 2 to 32 */
	SERVE_EVENTS = 8, /* events that queue_serve processes before its caller has a turn */
};

static gpr_timespec queue_next_tick(const struct rpc_queue *q)
{
	if (!q->tick)
		return gpr_inf_future(GPR_CLOCK_MONOTONIC);
	return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(QUEUE_TICK_MS, GPR_TIMESPAN));
}

static void queue_happened(const grpc_event *ev)
{
	struct op *op = ev->tag;

	if (ev->type != GRPC_OP_COMPLETE)
		return;
	op_acquire(op);
	op->done(op, ev->success);
}

static void queue_tick_if_due(struct rpc_queue *q, gpr_timespec *tick)
{
	if (!q->tick || gpr_time_cmp(gpr_now(GPR_CLOCK_MONOTONIC), *tick) < 0)
		return;
	q->tick(q);
	*tick = queue_next_tick(q);
}

/* While the queue is taken, its thread only ticks. */
static void queue_rest_while_taken(struct rpc_queue *q, gpr_timespec *tick)
{
	struct timespec by;

	pthread_mutex_lock(&q->lock);
	while (q->taken) {
		q->resting = true;
		pthread_cond_broadcast(&q->changed);
		by = (struct timespec){.tv_sec = tick->tv_sec, .tv_nsec = tick->tv_nsec};
		if (!q->tick)
			pthread_cond_wait(&q->changed, &q->lock);
		else if (pthread_cond_timedwait(&q->changed, &q->lock, &by)) {
			pthread_mutex_unlock(&q->lock);
			queue_tick_if_due(q, tick);
			pthread_mutex_lock(&q->lock);
		}
	}
	q->resting = false;
	pthread_mutex_unlock(&q->lock);
}

static void *queue_main(void *arg)
{
	struct rpc_queue *q = arg;
	gpr_timespec tick = queue_next_tick(q);

	pthread_setname_np(pthread_self(), q->name);
	for (;;) {
		grpc_event ev = grpc_completion_queue_next(q->cq, tick, NULL);

		if (ev.type == GRPC_QUEUE_SHUTDOWN)
			return NULL;
		queue_happened(&ev);
		queue_tick_if_due(q, &tick);
		queue_rest_while_taken(q, &tick);
	}
}

static void queue_on_kick(struct op *op, bool ok)
{
	struct rpc_queue *q = (struct rpc_queue *)((char *)op - offsetof(struct rpc_queue, kick));

	(void)ok;
	atomic_store(&q->kicked, false);
}

void queue_kick(struct rpc_queue *q)
{
	if (atomic_exchange(&q->kicked, true))
		return; /* the previous kick has not been read yet */
	op_release(&q->kick);
	grpc_call_start_batch(q->idle, NULL, 0, &q->kick, NULL); /* an operation without effect, complete at once */
}

void queue_take(struct rpc_queue *q)
{
	pthread_mutex_lock(&q->lock);
	q->taken = true;
	pthread_mutex_unlock(&q->lock);
	queue_kick(q);
	pthread_mutex_lock(&q->lock);
	while (!q->resting)
		pthread_cond_wait(&q->changed, &q->lock);
	pthread_mutex_unlock(&q->lock);
}

void queue_leave(struct rpc_queue *q)
{
	pthread_mutex_lock(&q->lock);
	q->taken = false;
	pthread_cond_broadcast(&q->changed);
	pthread_mutex_unlock(&q->lock);
}

void queue_serve(struct rpc_queue *q, int wait_ms)
{
	gpr_timespec by = wait_ms < 0
			      ? gpr_inf_future(GPR_CLOCK_MONOTONIC)
			      : gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(wait_ms, GPR_TIMESPAN));

	for (unsigned n = 0; n < SERVE_EVENTS; n++) {
		grpc_event ev = grpc_completion_queue_next(q->cq, by, NULL);

		if (ev.type != GRPC_OP_COMPLETE)
			return;
		queue_happened(&ev);
		by = gpr_inf_past(GPR_CLOCK_MONOTONIC);
	}
}

/* Frees everything except the thread. */
static void queue_init(struct rpc_queue *q)
{
	grpc_slice path = grpc_slice_from_static_string("/");
	pthread_condattr_t attr;

	pthread_mutex_init(&q->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&q->changed, &attr);
	pthread_condattr_destroy(&attr);
	q->cq = grpc_completion_queue_create_for_next(NULL);
	q->nowhere = grpc_lame_client_channel_create("", GRPC_STATUS_UNAVAILABLE, "it goes nowhere");
	q->idle = grpc_channel_create_call(q->nowhere, NULL, GRPC_PROPAGATE_DEFAULTS, q->cq, path, NULL,
					   gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
}

/* No event follows once the serving thread has seen the end of the queue. */
static void queue_shut_down(struct rpc_queue *q)
{
	grpc_call_unref(q->idle);
	grpc_channel_destroy(q->nowhere);
	grpc_completion_queue_shutdown(q->cq);
}

static void queue_destroy(struct rpc_queue *q)
{
	grpc_completion_queue_destroy(q->cq);
	pthread_mutex_destroy(&q->lock);
	pthread_cond_destroy(&q->changed);
}

int queue_start(struct rpc_queue *q, const char *name, void (*tick)(struct rpc_queue *q), struct rs_err *e)
{
	sigset_t all, before;
	int rc;

	snprintf(q->name, sizeof q->name, "%s", name);
	q->tick = tick;
	q->kick.done = queue_on_kick;
	queue_init(q);
	/* signals belong to the program's own threads */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&q->thread, NULL, queue_main, q);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	/* gRPC lacks threads of its own too, then, and would hang if its objects were
	 * freed */
	return rc ? rs_fail_sys(e, RS_EIO, rc,
				"a thread for gRPC cannot be started (limits: ulimit -u, ulimit -v, TasksMax of "
				"systemd)")
		  : RS_OK;
}

void queue_stop(struct rpc_queue *q)
{
	queue_shut_down(q);
	pthread_join(q->thread, NULL);
	queue_destroy(q);
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

/* Sets a limit of glibc's malloc. gRPC reads into 64 KiB that it allocates for each read,
 * and copies what it sends into as much as PIECE_BYTES. By default glibc returns such
 * memory to the system as soon as it is free, and each message then costs a page fault
 * for every 4 KiB. After a program has once freed a large block, glibc keeps more; this
 * frees such a block. */
static void queue_prime_malloc(void)
{
	volatile char *block = malloc(PRIME_BYTES);

	if (block)
		block[0] = 0;
	free((void *)block);
}

static void *queue_wait_for_unlock(void *lock)
{
	free(malloc(1)); /* with the memory that glibc reserves for each thread that allocates */
	pthread_mutex_lock(lock);
	pthread_mutex_unlock(lock);
	return NULL;
}

/* Checks that gRPC can start its threads, by starting as many for a moment: if one of
 * gRPC's own cannot be started, grpc_init() hangs. */
static int queue_check_threads(struct rs_err *e)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned n = 0, most = THREADS + (unsigned)(cores < 2 ? 2 : cores > POOL_MAX ? POOL_MAX : cores);
	pthread_mutex_t hold = PTHREAD_MUTEX_INITIALIZER;
	pthread_t threads[THREADS + POOL_MAX];
	int rc = 0;

	pthread_mutex_lock(&hold);
	while (n < most && !rc) {
		rc = pthread_create(&threads[n], NULL, queue_wait_for_unlock, &hold);
		n += !rc;
	}
	pthread_mutex_unlock(&hold);
	for (unsigned i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	pthread_mutex_destroy(&hold);
	return rc ? rs_fail_sys(e, RS_EIO, rc,
				"gRPC needs %u threads, and only %u can be started (limits: ulimit -u, ulimit -v, "
				"TasksMax of systemd)",
				most, n)
		  : RS_OK;
}

int grpc_use(struct rs_err *e)
{
	sigset_t all, before;
	int rc;

	/* gRPC starts threads of its own */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = rs_descriptors_check(DESCRIPTORS, NULL, e);
	if (!rc)
		rc = queue_check_threads(e);
	if (!rc) {
		queue_prime_malloc();
		grpc_init();
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc;
}

void grpc_release(void)
{
	/* a process may end right after this: no thread of gRPC runs any more, and leak
	 * checkers find nothing */
	grpc_shutdown_blocking();
}
