/* SPDX-License-Identifier: Apache-2.0 */
/* A few threads for tasks that take long: making memory, waiting for another thread.
 * libuv has such a pool, too, but it starts its threads at the first use and ends the
 * process if that fails. These threads start with the program, so that a lack of threads
 * or memory is an error there. */
#ifndef RS_COMMON_POOL_H
#define RS_COMMON_POOL_H

#include "common/error.h"

#include <pthread.h>
#include <stdbool.h>
#include <sys/queue.h>

enum { RS_POOL_THREADS = 4 };

/* One task, part of the object that it is about. */
struct rs_task {
	STAILQ_ENTRY(rs_task) link;
	void (*run)(struct rs_task *t);  /* on a thread of the pool */
	void (*done)(struct rs_task *t); /* afterwards, in rs_pool_finish */
};

STAILQ_HEAD(rs_tasks, rs_task);

/* The threads and their tasks. Invariant: a task is in `waiting`, is being run, or is in
 * `ended`. */
struct rs_pool {
	pthread_t threads[RS_POOL_THREADS];
	unsigned threads_n;
	void (*wake)(void *ctx); /* a task has ended: rs_pool_finish must be called. Called on a thread of the pool */
	void *ctx;
	pthread_mutex_t lock; /* protects everything below */
	pthread_cond_t some;
	struct rs_tasks waiting, ended;
	bool stopping;
};

/* Starts the threads, with all signals blocked. Errors: RS_ENOMEM, and nothing is
 * left. */
int rs_pool_start(struct rs_pool *p, void (*wake)(void *ctx), void *ctx, struct rs_err *e);
/* Adds a task; tasks start in this order. The thread that owns the pool, as for the
 * functions below. */
void rs_pool_add(struct rs_pool *p, struct rs_task *t);
/* Calls done() of the tasks that have ended. It may free its task and add others. */
void rs_pool_finish(struct rs_pool *p);
/* Runs the tasks that wait, ends the threads, and calls done() of all tasks, which must
 * add none. No effect if *p is zero or was not started. */
void rs_pool_stop(struct rs_pool *p);

#endif
