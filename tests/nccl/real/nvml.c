/* SPDX-License-Identifier: Apache-2.0 */
/* libnvidia-ml.so.1 of a machine with one GPU without NVLink: the functions that NCCL
 * cannot do without. */
#include <stdlib.h>
#include <string.h>

/* Most functions have no use for their arguments. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

enum { NVML_UNSUPPORTED = 3 };

#define NVML(name, ...) __attribute__((visibility("default"))) int name(__VA_ARGS__)
#define SUCCEEDS(name)                                                                                                 \
	NVML(name, void);                                                                                              \
	NVML(name, void)                                                                                               \
	{                                                                                                              \
		return 0;                                                                                              \
	}
#define FAILS(name)                                                                                                    \
	NVML(name, void);                                                                                              \
	NVML(name, void)                                                                                               \
	{                                                                                                              \
		return NVML_UNSUPPORTED;                                                                               \
	}
/* A number that is stored at the argument with that index. */
#define ANSWERS(name, value, ...)                                                                                      \
	NVML(name, __VA_ARGS__, unsigned *ret);                                                                        \
	NVML(name, __VA_ARGS__, unsigned *ret)                                                                         \
	{                                                                                                              \
		*ret = (value);                                                                                        \
		return 0;                                                                                              \
	}

SUCCEEDS(nvmlInit)
SUCCEEDS(nvmlInit_v2)
SUCCEEDS(nvmlShutdown)
FAILS(nvmlDeviceGetFieldValues)
FAILS(nvmlDeviceGetGpuFabricInfoV)
FAILS(nvmlDeviceGetNvLinkCapability)
FAILS(nvmlDeviceGetNvLinkRemotePciInfo)
FAILS(nvmlDeviceGetNvLinkRemotePciInfo_v2)
FAILS(nvmlDeviceGetNvLinkState)
FAILS(nvmlDeviceGetPciInfoExt)
FAILS(nvmlDeviceGetPlatformInfo)
FAILS(nvmlGpuFabricInfoV)
FAILS(nvmlSystemGetConfComputeSettings)
FAILS(nvmlSystemGetConfComputeState)
ANSWERS(nvmlDeviceGetCurrPcieLinkGeneration, 4, void *device)
ANSWERS(nvmlDeviceGetCurrPcieLinkWidth, 16, void *device)
ANSWERS(nvmlDeviceGetIndex, 0, void *device)
ANSWERS(nvmlDeviceGetMaxPcieLinkGeneration, 4, void *device)
ANSWERS(nvmlDeviceGetMaxPcieLinkWidth, 16, void *device)
ANSWERS(nvmlDeviceGetMinorNumber, 0, void *device)
ANSWERS(nvmlDeviceGetP2PStatus, 1, void *device, void *other, int what)
ANSWERS(nvmlDeviceGetPcieLinkMaxSpeed, 16000, void *device)

#define COUNTS(name)                                                                                                   \
	NVML(name, unsigned *ret);                                                                                     \
	NVML(name, unsigned *ret)                                                                                      \
	{                                                                                                              \
		*ret = 1;                                                                                              \
		return 0;                                                                                              \
	}
static char the_device;
/* The handle of the only device, however it is asked for. */
#define HANDLES(name, how)                                                                                             \
	NVML(name, how key, void **ret);                                                                               \
	NVML(name, how key, void **ret)                                                                                \
	{                                                                                                              \
		(void)key;                                                                                             \
		*ret = &the_device;                                                                                    \
		return 0;                                                                                              \
	}

COUNTS(nvmlDeviceGetCount)
COUNTS(nvmlDeviceGetCount_v2)
HANDLES(nvmlDeviceGetHandleByIndex, unsigned)
HANDLES(nvmlDeviceGetHandleByIndex_v2, unsigned)
HANDLES(nvmlDeviceGetHandleByPciBusId, const char *)
HANDLES(nvmlDeviceGetHandleByPciBusId_v2, const char *)

NVML(nvmlDeviceGetCudaComputeCapability, void *device, int *major, int *minor);
NVML(nvmlDeviceGetCudaComputeCapability, void *device, int *major, int *minor)
{
	const char *capability = getenv("FAKE_CAPABILITY");

	(void)device;
	*major = capability ? atoi(capability) : 8;
	*minor = 0;
	return 0;
}

/* What is known of the device's place: 68 bytes, all zero. */
NVML(nvmlDeviceGetPciInfo_v3, void *device, void *ret);
NVML(nvmlDeviceGetPciInfo_v3, void *device, void *ret)
{
	memset(ret, 0, 68);
	return 0;
}

__attribute__((visibility("default"))) const char *nvmlErrorString(int code);
const char *nvmlErrorString(int code)
{
	return code ? "not supported" : "success";
}
