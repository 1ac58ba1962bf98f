/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of the driver that tests call. */
#ifndef RS_TESTS_CUDA_DRIVER_H
#define RS_TESTS_CUDA_DRIVER_H

#include "agent/gpu/cuda/abi.h"

#define DRIVER_DECLARE(name, arguments) CUresult name arguments;
CUDA_FUNCTIONS(DRIVER_DECLARE)
CUresult cuDriverGetVersion(int *version);
CUresult cuDeviceGetName(char *name, int room, CUdevice device);
CUresult cuStreamQuery(CUstream stream);
CUresult cuCtxSetCurrent(CUcontext ctx);
CUresult cuStreamCreate(CUstream *stream, unsigned int flags);
CUresult cuMemAlloc_v2(CUdeviceptr *ret, size_t bytes);
CUresult cuMemFree_v2(CUdeviceptr p);
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes);
CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes);
CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr p);
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned int value, size_t n, CUstream stream);

#endif
