/* SPDX-License-Identifier: Apache-2.0 */
#include "common/loop_uv.h"

#include "common/descriptors.h"

#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The memory for the next growth of a table. It is a global, because libuv has one
 * allocator, without a context. Only the thread that holds the lock uses it. */
static struct {
	pthread_mutex_t lock;
	bool own;               /* table_realloc() is in use */
	_Atomic uintptr_t user; /* the thread that holds the lock and may use `at`; 0: none */
	void *at;               /* NULL: it has been used */
	size_t size;
} spare = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Of all that libuv calls here, only the tables of loops are reallocated. */
static void *table_realloc(void *p, size_t size)
{
	size_t has = p ? malloc_usable_size(p) : 0;
	void *grown;

	if (has >= size)
		return p;
	if (atomic_load(&spare.user) != (uintptr_t)pthread_self() || !spare.at || spare.size < size)
		return realloc(p, size);
	grown = spare.at;
	if (has)
		memcpy(grown, p, has);
	free(p);
	spare.at = NULL;
	return grown;
}

void rs_loop_own_libuv(void)
{
	spare.own = uv_replace_allocator(malloc, table_realloc, calloc, free) == 0;
}

/* Takes the lock, and memory for a table with all descriptors up to fd: libuv has two
 * entries more than descriptors, and rounds up to a power of two. Without the lock this
 * is only a check: the memory is freed at once. In a forked process nobody may be left
 * who releases the lock, so the wait for it has a limit. */
static int spare_take(int fd, struct rs_err *e)
{
	size_t size = 2 * ((size_t)fd + 3) * sizeof(void *);
	void *at = malloc(size);
	struct timespec until;

	if (!at)
		return rs_oom(e, size, "an event loop that watches %d descriptors", fd + 1);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec++;
	if (!spare.own || pthread_mutex_timedlock(&spare.lock, &until)) {
		free(at);
		return RS_OK;
	}
	spare.at = at;
	spare.size = size;
	atomic_store(&spare.user, (uintptr_t)pthread_self());
	return RS_OK;
}

static void spare_return(void)
{
	if (atomic_load(&spare.user) != (uintptr_t)pthread_self())
		return;
	free(spare.at);
	spare.at = NULL;
	atomic_store(&spare.user, 0);
	pthread_mutex_unlock(&spare.lock);
}

int rs_loop_init(uv_loop_t *loop, unsigned descriptors, struct rs_err *e)
{
	int highest, rc = rs_descriptors_check(descriptors, &highest, e);

	if (rc)
		return rc;
	/* twice: other threads may take lower numbers meanwhile, and libuv lets the table
	 * grow twice */
	rc = spare_take(2 * highest, e);
	if (rc)
		return rc;
	rc = uv_loop_init(loop);
	spare_return();
	return rc ? rs_fail(e, rc == UV_ENOMEM ? RS_ENOMEM : RS_EIO, "an event loop cannot be made: %s",
			    uv_strerror(rc))
		  : RS_OK;
}

static void on_nothing(uv_poll_t *poll, int status, int events)
{
	(void)poll;
	(void)status;
	(void)events;
}

int rs_poll_init(uv_loop_t *loop, uv_poll_t *poll, int fd, struct rs_err *e)
{
	int rc = spare_take(fd, e);

	if (rc)
		return rc;
	rc = uv_poll_init(loop, poll, fd);
	if (!rc) {
		uv_poll_start(poll, UV_READABLE, on_nothing); /* the table grows now */
		uv_poll_stop(poll);
	}
	spare_return();
	return rc ? rs_fail(e, RS_EIO, "descriptor %d cannot be watched: %s", fd, uv_strerror(rc)) : RS_OK;
}
