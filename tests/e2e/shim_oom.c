/* SPDX-License-Identifier: Apache-2.0 */
/* A library to preload into a process: while the first byte of the file that
 * REDUCTION_OOM names is '1', this process gets no new memory from the C library. While
 * it is 'k', the allocations are counted down, and the one at which the count becomes 0
 * fails. test_memory.py writes the file, a struct limit. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct limit {
	volatile char mode;
	char unused[7];
	_Atomic int64_t left; /* 'k' */
};

static struct limit *limit; /* NULL: memory never runs out */

/* Exported by the C library for replacements such as this one: dlsym() would allocate. */
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

__attribute__((constructor)) static void open_limit(void)
{
	const char *path = getenv("REDUCTION_OOM");
	void *map;
	int fd;

	if (!path)
		return;
	fd = open(path, O_RDWR | O_CLOEXEC);
	map = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *limit, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		abort(); /* a test without a limit would pass */
	close(fd);
	limit = map;
}

static void *none(void)
{
	errno = ENOMEM;
	return NULL;
}

static int runs_out(void)
{
	if (!limit)
		return 0;
	return limit->mode == '1' || (limit->mode == 'k' && atomic_fetch_sub(&limit->left, 1) == 1);
}

#pragma GCC visibility push(                                                                                           \
    default) /* from here on: what programs call, and replacements of the C library's functions */

/* Lets the k-th allocation from now on fail; 0: none. Returns how many were left until
 * the failure, at most 0 after it.
 */
int64_t shim_oom_fail_at(int64_t k);
int64_t shim_oom_fail_at(int64_t k)
{
	int64_t left = atomic_exchange(&limit->left, k);

	limit->mode = k ? 'k' : '0';
	return left;
}

void *malloc(size_t size)
{
	return runs_out() ? none() : __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
	return runs_out() ? none() : __libc_calloc(n, size);
}

void *realloc(void *p, size_t size)
{
	return runs_out() ? none() : __libc_realloc(p, size);
}

void *aligned_alloc(size_t align, size_t size)
{
	return runs_out() ? none() : __libc_memalign(align, size);
}

int posix_memalign(void **ret, size_t align, size_t size)
{
	void *p = aligned_alloc(align, size);

	if (!p)
		return ENOMEM;
	*ret = p;
	return 0;
}
