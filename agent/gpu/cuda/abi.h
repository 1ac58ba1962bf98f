/* SPDX-License-Identifier: Apache-2.0 */
/* The part of CUDA's driver API that is used here, so that nothing of CUDA is needed to
 * build. The names are those that libcuda.so.1 exports. With RS_CUDA_H defined, cuda.h
 * has declared the types (tests/e2e/gpu/test_device_python.py compares). */
#ifndef RS_AGENT_GPU_CUDA_ABI_H
#define RS_AGENT_GPU_CUDA_ABI_H

#include <stddef.h>

#ifndef RS_CUDA_H
typedef unsigned int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef unsigned int CUpointer_attribute;
typedef unsigned int CUstreamCaptureStatus;
typedef void (*CUhostFn)(void *user);
#endif

enum {
	CUDA_RESULT_OK = 0,
	CUDA_RESULT_NOT_READY = 600,
	CUDA_STREAM_NON_BLOCKING = 1,
	CUDA_EVENT_DISABLE_TIMING = 2,
	CUDA_REGISTER_PORTABLE = 1,
	CUDA_ATTRIBUTE_MEMORY_TYPE = 2,
	CUDA_ATTRIBUTE_DEVICE_ORDINAL = 9,
	CUDA_ATTRIBUTE_RANGE_START = 11,
	CUDA_ATTRIBUTE_RANGE_SIZE = 12,
	CUDA_MEMORY_DEVICE = 2,
};

/* X(name, arguments); all return CUresult */
#define CUDA_FUNCTIONS(X)                                                                                              \
	X(cuInit, (unsigned int flags))                                                                                \
	X(cuGetErrorName, (CUresult error, const char **text))                                                         \
	X(cuDeviceGetCount, (int *count))                                                                              \
	X(cuDeviceGet, (CUdevice * device, int ordinal))                                                               \
	X(cuDevicePrimaryCtxRetain, (CUcontext * ctx, CUdevice device))                                                \
	X(cuDevicePrimaryCtxRelease_v2, (CUdevice device))                                                             \
	X(cuCtxPushCurrent_v2, (CUcontext ctx))                                                                        \
	X(cuCtxPopCurrent_v2, (CUcontext * ctx))                                                                       \
	X(cuCtxGetStreamPriorityRange, (int *least, int *greatest))                                                    \
	X(cuStreamCreateWithPriority, (CUstream * stream, unsigned int flags, int priority))                           \
	X(cuStreamDestroy_v2, (CUstream stream))                                                                       \
	X(cuStreamSynchronize, (CUstream stream))                                                                      \
	X(cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus * status))                                      \
	X(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned int flags))                                     \
	X(cuEventCreate, (CUevent * event, unsigned int flags))                                                        \
	X(cuEventDestroy_v2, (CUevent event))                                                                          \
	X(cuEventRecord, (CUevent event, CUstream stream))                                                             \
	X(cuEventQuery, (CUevent event))                                                                               \
	X(cuLaunchHostFunc, (CUstream stream, CUhostFn fn, void *user))                                                \
	X(cuMemHostRegister_v2, (void *p, size_t bytes, unsigned int flags))                                           \
	X(cuMemHostUnregister, (void *p))                                                                              \
	X(cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t bytes, CUstream stream))                           \
	X(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream))                     \
	X(cuPointerGetAttributes, (unsigned int n, CUpointer_attribute *attributes, void **data, CUdeviceptr p))

#endif
