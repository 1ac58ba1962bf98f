/* SPDX-License-Identifier: Apache-2.0 */
/* Shared parts of the tests of GPU buffers: memory of the fake driver's devices. */
#ifndef RS_TESTS_E2E_GPU_DEVICE_H
#define RS_TESTS_E2E_GPU_DEVICE_H

#include "tests/cuda/driver.h"
#include "tests/e2e/ranks.h"

#include <stdint.h>
#include <stdlib.h>

enum { MEBI = 1 << 20, DTYPES = 10, OPS = 5 };

static const size_t dtype_size[DTYPES] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

#define CUDA(call) EXPECT((call) == CUDA_RESULT_OK)

/* Opens the devices of this rank and its communicator. */
static inline void open_gpu(struct rank *r)
{
	CUcontext ctx;

	CUDA(cuInit(0));
	CUDA(cuDevicePrimaryCtxRetain(&ctx, 0));
	CUDA(cuCtxSetCurrent(ctx));
	open_comm(r);
}

/* Returns the number of another GPU, or of the same one if there is only one. */
static inline int other_gpu(struct rank *r)
{
	int n;

	CUDA(cuDeviceGetCount(&n));
	return n > 1;
}

static inline void *device_new(struct rank *r, int device, const void *bytes, size_t n)
{
	CUcontext ctx;
	CUdeviceptr p;

	CUDA(cuDevicePrimaryCtxRetain(&ctx, device));
	CUDA(cuCtxPushCurrent_v2(ctx));
	CUDA(cuMemAlloc_v2(&p, n));
	if (bytes)
		CUDA(cuMemcpyHtoD_v2(p, bytes, n));
	CUDA(cuStreamSynchronize(NULL));
	CUDA(cuCtxPopCurrent_v2(&ctx));
	return (void *)(uintptr_t)p;
}

static inline void device_read(struct rank *r, void *to, const void *from, size_t n)
{
	CUDA(cuMemcpyDtoH_v2(to, (CUdeviceptr)(uintptr_t)from, n));
}

static inline void device_free(struct rank *r, void *p)
{
	CUDA(cuMemFree_v2((CUdeviceptr)(uintptr_t)p));
}

static inline float *floats(size_t n, float first)
{
	float *x = malloc(n * sizeof *x + 1);

	for (size_t i = 0; i < n; i++)
		x[i] = first + (float)(i % 251);
	return x;
}

/* Returns the sum of the ranks' numbers. */
static inline float of_ranks(const struct rank *r)
{
	int sum = 0;

	for (int i = 0; i < r->world; i++)
		sum += i;
	return (float)sum;
}

static inline reduction_tensor tensor(void *send, void *recv, size_t n, int device)
{
	reduction_tensor t = REDUCTION_TENSOR_INIT;

	t.send = send;
	t.recv = recv;
	t.count = n;
	t.device = device;
	return t;
}

#endif
