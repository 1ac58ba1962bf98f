/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/fake_memory.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

/* Allocations until the next failure. */
static atomic_int left;
static atomic_bool limited, always, failed;

void memory_fail_at(unsigned n, bool for_good)
{
	failed = false;
	always = for_good;
	left = (int)n;
	limited = true;
}

void memory_unlimited(void)
{
	limited = false;
}

bool memory_failed(void)
{
	return failed;
}

bool memory_runs_out(void)
{
	int n = limited ? atomic_fetch_sub(&left, 1) : 2;

	if (n > 1 || (n < 1 && !always))
		return false;
	failed = true;
	return true;
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
int __real_posix_memalign(void **ret, size_t align, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
int __wrap_posix_memalign(void **ret, size_t align, size_t n);

void *__wrap_malloc(size_t n)
{
	return memory_runs_out() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return memory_runs_out() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
	return memory_runs_out() ? NULL : __real_realloc(p, n);
}

int __wrap_posix_memalign(void **ret, size_t align, size_t n)
{
	return memory_runs_out() ? ENOMEM : __real_posix_memalign(ret, align, n);
}
