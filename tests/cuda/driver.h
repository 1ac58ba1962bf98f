/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of the driver that tests call. */
#ifndef RS_TESTS_CUDA_DRIVER_H
#define RS_TESTS_CUDA_DRIVER_H

#include "agent/gpu/cuda/abi.h"

enum { CUDA_REGISTER_DEVICEMAP = 2, CUDA_WAIT_VALUE_GEQ = 0 };

#define DRIVER_DECLARE(name, arguments) CUresult name arguments;
CUDA_FUNCTIONS(DRIVER_DECLARE)
CUresult cuDriverGetVersion(int *version);
CUresult cuDeviceGetName(char *name, int room, CUdevice device);
CUresult cuStreamQuery(CUstream stream);
CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr at, unsigned int value, unsigned int flags);
CUresult cuCtxSetCurrent(CUcontext ctx);
CUresult cuStreamCreate(CUstream *stream, unsigned int flags);
CUresult cuMemAlloc_v2(CUdeviceptr *ret, size_t bytes);
CUresult cuMemFree_v2(CUdeviceptr p);
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *ret, void *p, unsigned int flags);
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes);
CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes);
CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr p);
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned int value, size_t n, CUstream stream);

#endif
