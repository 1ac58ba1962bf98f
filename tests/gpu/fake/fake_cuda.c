/* SPDX-License-Identifier: Apache-2.0 */
/* A libcuda.so.1 with one GPU whose memory is the host's, to test the part nccl without a
 * GPU. */
#include "tests/gpu/fake/fake.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

enum { OUT_OF_MEMORY = 2, NOT_READY = 600 };

EXPORT int cuInit(unsigned flags);
EXPORT int cuDriverGetVersion(int *ret);
EXPORT int cuDeviceGetCount(int *ret);
EXPORT int cuDeviceGetName(char *to, int room, int device);
EXPORT int cuDevicePrimaryCtxRetain(void **context, int device);
EXPORT int cuCtxSetCurrent(void *context);
EXPORT int cuMemAlloc_v2(uint64_t *ret, size_t bytes);
EXPORT int cuMemFree_v2(uint64_t data);
EXPORT int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes);
EXPORT int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes);
EXPORT int cuStreamCreate(void **ret, unsigned flags);
EXPORT int cuStreamQuery(void *stream);
EXPORT int cuStreamSynchronize(void *stream);
EXPORT int cuMemsetD32Async(uint64_t to, unsigned value, size_t n, void *stream);

int cuInit(unsigned flags)
{
	return (int)flags;
}

int cuDriverGetVersion(int *ret)
{
	*ret = 13000;
	return 0;
}

int cuDeviceGetCount(int *ret)
{
	*ret = 1;
	return 0;
}

int cuDeviceGetName(char *to, int room, int device)
{
	snprintf(to, (size_t)room, "fake %d", device);
	return 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
	*context = (void *)(intptr_t)(device + 1);
	return 0;
}

int cuCtxSetCurrent(void *context)
{
	return context ? 0 : 1;
}

int cuMemAlloc_v2(uint64_t *ret, size_t bytes)
{
	void *data = malloc(bytes);

	*ret = (uint64_t)(uintptr_t)data;
	return data ? 0 : OUT_OF_MEMORY;
}

int cuMemFree_v2(uint64_t data)
{
	free((void *)(uintptr_t)data);
	return 0;
}

int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes)
{
	memcpy((void *)(uintptr_t)to, from, bytes);
	return 0;
}

int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes)
{
	memcpy(to, (const void *)(uintptr_t)from, bytes);
	return 0;
}

int cuStreamCreate(void **ret, unsigned flags)
{
	(void)flags;
	*ret = calloc(1, sizeof(struct fake_stream));
	return *ret ? 0 : OUT_OF_MEMORY;
}

int cuStreamSynchronize(void *stream)
{
	(void)stream; /* only the default one is waited for: copies here have ended when they return */
	return 0;
}

int cuStreamQuery(void *stream)
{
	return atomic_load(&((struct fake_stream *)stream)->pending) ? NOT_READY : 0;
}

int cuMemsetD32Async(uint64_t to, unsigned value, size_t n, void *stream)
{
	(void)stream;
	for (size_t i = 0; i < n; i++)
		memcpy((void *)(uintptr_t)(to + i * sizeof value), &value, sizeof value);
	return 0;
}
