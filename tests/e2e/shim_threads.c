/* SPDX-License-Identifier: Apache-2.0 */
/* A library to preload into a process: it can start only so many more threads, as under a
 * limit of the system. The number comes from REDUCTION_THREADS, or from a call of
 * shim_threads_limit(); -1: no limit. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

static _Atomic int left = -1;

__attribute__((constructor)) static void read_limit(void)
{
	const char *text = getenv("REDUCTION_THREADS");

	if (text)
		atomic_store(&left, atoi(text));
}

#pragma GCC visibility push(default)

void shim_threads_limit(int n);
void shim_threads_limit(int n)
{
	atomic_store(&left, n);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
	int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
	int n = atomic_load(&left);

	if (n == 0)
		return EAGAIN;
	if (n > 0)
		atomic_store(&left, n - 1);
	*(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
	return real(thread, attr, run, arg);
}
