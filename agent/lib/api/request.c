/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/lib/api/request.h"
#include "common/assert.h"
#include "proto/operation.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Recycled requests of one communicator. Invariant: it is freed when users becomes 0. */
struct request_pool {
	pid_t pid;
	pthread_mutex_t lock;
	struct reduction_request *idle;
	size_t users;            /* requests in use, threads in the backend, and the communicator */
	struct backend *backend; /* backend that waiting threads may run; NULL: none */
	size_t running;          /* threads in its wait */
	pthread_cond_t none;     /* signalled when running becomes 0 */
};

struct request_pool *request_pool_new(void)
{
	struct request_pool *p = calloc(1, sizeof *p);

	if (!p)
		return NULL;
	p->pid = getpid();
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->none, NULL);
	p->users = 1;
	return p;
}

pid_t request_pool_pid(const struct request_pool *pool)
{
	return pool->pid;
}

/* Drops one user. Called with lock held, which it releases. */
static void request_pool_release(struct request_pool *p)
{
	struct reduction_request *idle = NULL;
	bool last;

	rs_assert(p->users > 0);
	last = --p->users == 0;
	if (last)
		idle = p->idle;
	pthread_mutex_unlock(&p->lock);
	while (idle) {
		struct reduction_request *next = idle->next;

		free(idle);
		idle = next;
	}
	if (last) {
		pthread_cond_destroy(&p->none);
		pthread_mutex_destroy(&p->lock);
		free(p);
	}
}

void request_pool_open(struct request_pool *pool, struct backend *backend)
{
	pthread_mutex_lock(&pool->lock);
	pool->backend = backend->v->wait ? backend : NULL;
	pthread_mutex_unlock(&pool->lock);
}

void request_pool_close(struct request_pool *pool)
{
	pthread_mutex_lock(&pool->lock);
	pool->backend = NULL;
	while (pool->running > 0)
		pthread_cond_wait(&pool->none, &pool->lock);
	pthread_mutex_unlock(&pool->lock);
}

void request_pool_drop(struct request_pool *pool)
{
	pthread_mutex_lock(&pool->lock);
	request_pool_release(pool);
}

struct reduction_request *request_get(struct request_pool *pool, const struct backend_request *base)
{
	struct reduction_request *req;

	pthread_mutex_lock(&pool->lock);
	req = pool->idle;
	if (req)
		pool->idle = req->next;
	pool->users++;
	pthread_mutex_unlock(&pool->lock);
	if (!req)
		req = malloc(sizeof *req);
	if (!req) {
		request_pool_drop(pool);
		return NULL;
	}
	req->base = *base;
	req->pool = pool;
	req->follows = NULL;
	return req;
}

void request_put(struct reduction_request *req)
{
	struct request_pool *pool = req->pool;

	pthread_mutex_lock(&pool->lock);
	req->next = pool->idle;
	pool->idle = req;
	request_pool_release(pool);
}

void request_init(struct reduction_request *req, struct reduction_comm *c)
{
	req->comm = c;
	req->started = false;
	req->copied = req->base.device != 0;
	atomic_init(&req->state, REQUEST_PENDING);
}

static long request_futex(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *until)
{
	return syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, value, until, NULL, FUTEX_BITSET_MATCH_ANY);
}

void request_complete(struct reduction_request *req, const struct rs_err *err)
{
	req->err.code = RS_OK;
	if (err)
		req->err = *err;
	/* after this exchange the waiter may free req; waking an address on which no
	 * thread sleeps is harmless */
	if (atomic_exchange(&req->state, REQUEST_DONE) == REQUEST_WAITED)
		request_futex(&req->state, FUTEX_WAKE, 1, NULL);
}

void request_complete_all(struct reduction_request *last, const struct rs_err *err)
{
	for (struct reduction_request *req = last, *next; req; req = next) {
		next = req->next; /* its waiter may free req */
		request_complete(req, err);
	}
}

static bool request_done(const void *of)
{
	return atomic_load(&((const struct reduction_request *)of)->state) == REQUEST_DONE;
}

bool request_is_done(struct reduction_request *req)
{
	return request_done(req);
}

/* Runs the backend until the request is done. Returns false if that is not possible or
 * takes too long. */
static bool request_run_backend(struct request_pool *pool, const struct reduction_request *req,
				const struct timespec *until)
{
	struct backend *b;
	bool done, soon;

	pthread_mutex_lock(&pool->lock);
	b = pool->backend;
	if (b) {
		pool->users++;
		pool->running++;
	}
	pthread_mutex_unlock(&pool->lock);
	if (!b)
		return false;
	soon = operation_is_small(&req->base.of);
	done = b->v->wait(b, request_done, req, soon, until);
	pthread_mutex_lock(&pool->lock);
	rs_assert(pool->running > 0);
	if (--pool->running == 0)
		pthread_cond_signal(&pool->none);
	request_pool_release(pool);
	return done;
}

bool request_wait(struct request_pool *pool, struct reduction_request *req, const struct timespec *until)
{
	if (request_done(req) || (!req->copied && request_run_backend(pool, req, until)))
		return true;
	for (;;) {
		uint32_t state = atomic_load(&req->state);

		if (state == REQUEST_DONE)
			return true;
		if (state == REQUEST_PENDING && !atomic_compare_exchange_strong(&req->state, &state, REQUEST_WAITED))
			continue;
		if (request_futex(&req->state, FUTEX_WAIT_BITSET, REQUEST_WAITED, until) < 0 && errno == ETIMEDOUT)
			return request_is_done(req);
	}
}
