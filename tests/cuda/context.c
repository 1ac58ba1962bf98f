/* SPDX-License-Identifier: Apache-2.0 */
/* A libcuda.so.1 without a GPU, for tests. Addresses of its devices cannot be read by the
 * processor. Copies to or from host memory that is not pinned are errors. This file has
 * the devices and their contexts. */
#include "tests/cuda/fake.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { STACK = 16, CUDA_VERSION = 13000 };

struct fake fake = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static _Thread_local CUcontext stack[STACK];
static _Thread_local unsigned depth;

uint64_t setting(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 10) : otherwise;
}

CUresult begin(const char *function)
{
	const char *text = getenv("FAKE_CUDA_FAIL");
	size_t n = strlen(function);

	if (fake.broken)
		return fake.broken;
	if (text && strncmp(text, function, n) == 0 && text[n] == ':') {
		char *code;
		unsigned at = (unsigned)strtoul(text + n + 1, &code, 10);

		if (++fake.calls == at)
			return (CUresult)strtoul(code + 1, NULL, 10);
	}
	return OK;
}

CUcontext current(void)
{
	return depth ? stack[depth - 1] : NULL;
}

static void say_report(void)
{
	FILE *f = fopen(fake.report, "a");

	if (!f)
		return;
	fprintf(f, "pinned=%llu copies=%llu bytes=%llu\n", (unsigned long long)fake.pinned_most,
		(unsigned long long)fake.copies, (unsigned long long)fake.copied);
	fclose(f);
}

/* Returns the times of the copy engines: of this process, or those of the file that
 * processes share. */
static _Atomic uint64_t *map_engines(void)
{
	const char *path = getenv("FAKE_CUDA_SHARED");
	size_t bytes = 2 * DEVICES * sizeof(_Atomic uint64_t);
	int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
	void *map;

	if (path && (fd < 0 || ftruncate(fd, (off_t)bytes)))
		abort();
	map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, path ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, fd, 0);
	if (map == MAP_FAILED)
		abort();
	if (fd >= 0)
		close(fd);
	return map;
}

EXPORT CUresult cuInit(unsigned int flags)
{
	CUresult r;

	(void)flags;
	pthread_mutex_lock(&fake.lock);
	r = begin("cuInit");
	if (!fake.started && !r) {
		_Atomic uint64_t *engines = map_engines();

		fake.devices_n = (int)setting("FAKE_CUDA_DEVICES", 2);
		fake.rate = setting("FAKE_CUDA_RATE", 0);
		fake.jitter_us = setting("FAKE_CUDA_JITTER_US", 0);
		fake.report = getenv("FAKE_CUDA_REPORT");
		for (int i = 0; i < DEVICES; i++) {
			fake.ctx[i].device = i;
			fake.ctx[i].free_ns = &engines[2 * i];
			add_stream(&fake.ctx[i].stream, &fake.ctx[i]);
		}
		if (fake.report)
			atexit(say_report);
		fake.started = pthread_create(&fake.thread, NULL, fake_main, NULL) == 0;
	}
	if (!r && fake.devices_n == 0)
		r = NO_DEVICE;
	pthread_mutex_unlock(&fake.lock);
	return r;
}

EXPORT CUresult cuDriverGetVersion(int *version)
{
	*version = CUDA_VERSION;
	return OK;
}

EXPORT CUresult cuGetErrorName(CUresult error, const char **text)
{
	*text = error == 700         ? "CUDA_ERROR_ILLEGAL_ADDRESS"
		: error == NO_DEVICE ? "CUDA_ERROR_NO_DEVICE"
				     : "CUDA_ERROR";
	return OK;
}

EXPORT CUresult cuDeviceGetCount(int *count)
{
	*count = fake.devices_n;
	return OK;
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	*device = ordinal;
	return ordinal >= 0 && ordinal < fake.devices_n ? OK : BAD_DEVICE;
}

EXPORT CUresult cuDeviceGetName(char *name, int room, CUdevice device)
{
	snprintf(name, (size_t)room, "fake GPU %d", device);
	return OK;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice device)
{
	CUresult r;

	pthread_mutex_lock(&fake.lock);
	r = begin("cuDevicePrimaryCtxRetain");
	pthread_mutex_unlock(&fake.lock);
	if (!r)
		*ctx = &fake.ctx[device];
	return r;
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	(void)device;
	return OK;
}

EXPORT CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
	if (depth == STACK)
		return INVALID;
	stack[depth++] = ctx;
	return OK;
}

EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *ctx)
{
	if (depth == 0)
		return BAD_CONTEXT;
	*ctx = stack[--depth];
	return OK;
}

EXPORT CUresult cuCtxSetCurrent(CUcontext ctx)
{
	depth = 1;
	stack[0] = ctx;
	return OK;
}
