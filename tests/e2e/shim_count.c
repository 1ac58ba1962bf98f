/* SPDX-License-Identifier: Apache-2.0 */
/* A library to preload into a process: counts, for each thread, calls that a steady state
 * must not need. REDUCTION_COUNT names a folder. The process makes a file there that is
 * named after its process id: COUNT_THREADS records of struct record, which another
 * process may read at any time, as test_steady_state.py does. A thread gets its record at
 * its first call. Calls within the C library (its own locks, malloc's own memory) are not
 * seen. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { COUNT_THREADS = 256 };

enum kind { ALLOCATION, RELEASE, LOCK, MAPPING, KINDS };

/* The counts of one thread; tid 0: unused. */
struct record {
	_Atomic uint64_t tid;
	_Atomic uint64_t calls[KINDS];
};

static struct record *records; /* NULL: nothing is counted */
static atomic_uint records_used;
static __thread struct record *mine __attribute__((tls_model("initial-exec")));

/* Exported by the C library for replacements such as this one: dlsym() would allocate. */
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

static long own_tid(void)
{
	return (long)gettid();
}

static void count(enum kind kind)
{
	unsigned n;

	if (!records)
		return;
	if (!mine) {
		n = atomic_fetch_add(&records_used, 1);
		if (n >= COUNT_THREADS)
			abort(); /* too small a count would let a test pass */
		mine = &records[n];
		atomic_store(&mine->tid, (uint64_t)own_tid());
	}
	atomic_fetch_add_explicit(&mine->calls[kind], 1, memory_order_relaxed);
}

__attribute__((constructor)) static void open_records(void)
{
	const char *folder = getenv("REDUCTION_COUNT");
	char path[4096];
	void *map;
	int fd;

	if (!folder)
		return;
	snprintf(path, sizeof path, "%s/%ld", folder, (long)getpid());
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, COUNT_THREADS * sizeof(struct record)))
		abort();
	map =
	    mmap(NULL, COUNT_THREADS * sizeof(struct record), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	close(fd);
	if (map == MAP_FAILED)
		abort();
	records = map;
}

/* Returns the function that this library replaces. */
static void *real(const char *name)
{
	void *f = dlsym(RTLD_NEXT, name);

	if (!f)
		abort();
	return f;
}

#pragma GCC visibility push(default) /* from here on: replacements of the C library's functions */

void *malloc(size_t size)
{
	count(ALLOCATION);
	return __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
	count(ALLOCATION);
	return __libc_calloc(n, size);
}

void *realloc(void *p, size_t size)
{
	count(ALLOCATION);
	return __libc_realloc(p, size);
}

void *memalign(size_t align, size_t size)
{
	count(ALLOCATION);
	return __libc_memalign(align, size);
}

void *aligned_alloc(size_t align, size_t size)
{
	count(ALLOCATION);
	return __libc_memalign(align, size);
}

int posix_memalign(void **ret, size_t align, size_t size)
{
	void *p;

	count(ALLOCATION);
	p = __libc_memalign(align, size);
	if (!p)
		return ENOMEM;
	*ret = p;
	return 0;
}

void free(void *p)
{
	if (p)
		count(RELEASE);
	__libc_free(p);
}

int pthread_mutex_lock(pthread_mutex_t *m)
{
	static int (*next)(pthread_mutex_t *);

	if (!next)
		next = (int (*)(pthread_mutex_t *))real("pthread_mutex_lock");
	count(LOCK);
	return next(m);
}

int pthread_mutex_trylock(pthread_mutex_t *m)
{
	static int (*next)(pthread_mutex_t *);

	if (!next)
		next = (int (*)(pthread_mutex_t *))real("pthread_mutex_trylock");
	count(LOCK);
	return next(m);
}

int pthread_rwlock_rdlock(pthread_rwlock_t *l)
{
	static int (*next)(pthread_rwlock_t *);

	if (!next)
		next = (int (*)(pthread_rwlock_t *))real("pthread_rwlock_rdlock");
	count(LOCK);
	return next(l);
}

int pthread_rwlock_wrlock(pthread_rwlock_t *l)
{
	static int (*next)(pthread_rwlock_t *);

	if (!next)
		next = (int (*)(pthread_rwlock_t *))real("pthread_rwlock_wrlock");
	count(LOCK);
	return next(l);
}

int pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m)
{
	static int (*next)(pthread_cond_t *, pthread_mutex_t *);

	if (!next)
		next = (int (*)(pthread_cond_t *, pthread_mutex_t *))real("pthread_cond_wait");
	count(LOCK);
	return next(c, m);
}

int pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *until)
{
	static int (*next)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);

	if (!next)
		next = (int (*)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *))real(
		    "pthread_cond_timedwait");
	count(LOCK);
	return next(c, m, until);
}

int sem_wait(sem_t *s)
{
	static int (*next)(sem_t *);

	if (!next)
		next = (int (*)(sem_t *))real("sem_wait");
	count(LOCK);
	return next(s);
}

void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
	count(MAPPING);
	return (void *)syscall(SYS_mmap, at, size, protection, flags, fd, offset);
}

int munmap(void *at, size_t size)
{
	count(MAPPING);
	return (int)syscall(SYS_munmap, at, size);
}

int madvise(void *at, size_t size, int advice)
{
	count(MAPPING);
	return (int)syscall(SYS_madvise, at, size, advice);
}
