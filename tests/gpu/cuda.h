/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of libcuda.so.1 that the checks use, found at run time. All return 0 on
 * success. */
#ifndef RS_TESTS_GPU_CUDA_H
#define RS_TESTS_GPU_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The functions; their names in the library begin with "cu". */
struct cuda {
	int (*Init)(unsigned flags);
	int (*DriverGetVersion)(int *ret);
	int (*DeviceGetCount)(int *ret);
	int (*DeviceGetName)(char *to, int room, int device);
	int (*DevicePrimaryCtxRetain)(void **context, int device);
	int (*CtxSetCurrent)(void *context);
	int (*MemAlloc)(uint64_t *ret, size_t bytes);
	int (*MemFree)(uint64_t data);
	int (*MemcpyHtoD)(uint64_t to, const void *from, size_t bytes);
	int (*MemcpyDtoH)(void *to, uint64_t from, size_t bytes);
	int (*StreamCreate)(void **ret, unsigned flags);
	int (*StreamQuery)(void *stream);
	int (*StreamSynchronize)(void *stream);
	int (*MemsetD32Async)(uint64_t to, unsigned value, size_t n, void *stream);
};

enum { CUDA_NOT_READY = 600 };

/* Opens the library and initializes it. False: `why` says what is missing. The library
 * stays open. */
bool cuda_open(struct cuda *ret, char *why, size_t room);

/* Copies to a device, and returns when the bytes are there. cuMemcpyHtoD alone returns
 * earlier if `from` is pageable memory, and a stream that does not wait for the default
 * stream may read what was there before. Returns 0, or the driver's error. */
int cuda_put(const struct cuda *c, uint64_t to, const void *from, size_t bytes);

#endif
