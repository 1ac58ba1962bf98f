/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of libcuda.so.1 that libreduction and PyTorch call, and a few of NVML. A
 * copy outside of a device's memory is an error. */
#include "tests/torch_cuda/fake.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define DRIVER(name, ...)                                                                                              \
	int name(__VA_ARGS__);                                                                                         \
	int name(__VA_ARGS__)

typedef unsigned long long address;
struct context {
	int device;
};
static struct context contexts[DEVICES];

enum { DEEP = 64, NO_CONTEXT = 201, MEMORY_TYPE = 2, ORDINAL = 9, RANGE_START = 11, RANGE_SIZE = 12 };
static _Thread_local struct {
	int n, before[DEEP]; /* the devices to return to */
} stack;

DRIVER(cuInit, void)
{
	for (int i = 0; i < DEVICES; i++)
		contexts[i].device = i;
	return OK;
}

DRIVER(cuDriverGetVersion, int *version)
{
	*version = 13000;
	return OK;
}

DRIVER(cuDeviceGetCount, int *n)
{
	*n = devices();
	return OK;
}

DRIVER(cuDeviceGet, int *device, int ordinal)
{
	*device = ordinal;
	return ordinal >= 0 && ordinal < devices() ? OK : NO_DEVICE;
}

DRIVER(cuDeviceGetName, char *text, int room, int device)
{
	snprintf(text, (size_t)room, "no GPU: fake %d", device);
	return OK;
}

int cudaDeviceGetAttribute(int *value, int attribute, int device);
DRIVER(cuDeviceGetAttribute, int *value, int attribute, int device)
{
	return cudaDeviceGetAttribute(value, attribute, device);
}

const char *cudaGetErrorString(int error);
DRIVER(cuGetErrorName, int error, const char **text)
{
	*text = cudaGetErrorString(error);
	return OK;
}

DRIVER(cuGetErrorString, int error, const char **text)
{
	return cuGetErrorName(error, text);
}

/* --- contexts: that of a device is there from the start */

DRIVER(cuDevicePrimaryCtxRetain, struct context **c, int device)
{
	*c = &contexts[device];
	return OK;
}

DRIVER(cuDevicePrimaryCtxRelease_v2, void)
{
	return OK;
}

DRIVER(cuDevicePrimaryCtxGetState, int device, unsigned *flags, int *active)
{
	(void)device;
	*flags = 0, *active = 1;
	return OK;
}

DRIVER(cuCtxPushCurrent_v2, const struct context *c)
{
	if (stack.n == DEEP)
		return NO_CONTEXT;
	stack.before[stack.n++] = device_now;
	device_now = c->device;
	return OK;
}

DRIVER(cuCtxPopCurrent_v2, struct context **c)
{
	if (stack.n == 0)
		return NO_CONTEXT;
	if (c)
		*c = &contexts[device_now];
	device_now = stack.before[--stack.n];
	return OK;
}

DRIVER(cuCtxGetCurrent, struct context **c)
{
	*c = &contexts[device_now];
	return OK;
}

DRIVER(cuCtxSetCurrent, const struct context *c)
{
	if (c)
		device_now = c->device;
	return OK;
}

DRIVER(cuCtxGetDevice, int *device)
{
	*device = device_now;
	return OK;
}

DRIVER(cuCtxGetStreamPriorityRange, int *least, int *greatest)
{
	*least = 0, *greatest = -5;
	return OK;
}

/* --- streams and events */

DRIVER(cuStreamCreateWithPriority, struct stream **stream, unsigned flags, int priority)
{
	*stream = stream_new(device_now, flags, priority);
	return OK;
}

DRIVER(cuStreamDestroy_v2, void *stream)
{
	return stream_destroy(stream);
}

DRIVER(cuStreamSynchronize, void *stream)
{
	stream_drain(stream);
	return OK;
}

DRIVER(cuStreamQuery, void *stream)
{
	return stream_query(stream);
}

DRIVER(cuStreamIsCapturing, void *stream, int *status)
{
	*status = stream_of(stream)->capturing;
	return OK;
}

DRIVER(cuStreamWaitEvent, void *stream, struct event *event)
{
	int code;
	if (answered(__func__, &code))
		return code;
	stream_wait_event(event, stream);
	return OK;
}

DRIVER(cuEventCreate, struct event **event)
{
	*event = event_new();
	return OK;
}

DRIVER(cuEventDestroy_v2, void)
{
	return OK;
}

DRIVER(cuEventRecord, struct event *event, void *stream)
{
	stream_record(event, stream);
	return OK;
}

DRIVER(cuEventQuery, struct event *event)
{
	return event_query(event);
}

DRIVER(cuLaunchHostFunc, void *stream, void (*fn)(void *user), void *user)
{
	stream_call(fn, user, stream);
	return OK;
}

/* --- memory */

DRIVER(cuMemHostRegister_v2, void *at, size_t bytes)
{
	int code;
	return answered(__func__, &code) ? code : memory_pin(at, bytes);
}

DRIVER(cuMemHostUnregister, void *at)
{
	return memory_unpin(at);
}

/* Returns whether all these bytes belong to one device. */
static bool on_device(address at, size_t bytes)
{
	struct range r;
	bool found = memory_find((const void *)(uintptr_t)at, &r);
	return found && r.device >= 0 && at - (uintptr_t)r.at + bytes <= r.bytes;
}

DRIVER(cuMemcpyDtoHAsync_v2, void *to, address from, size_t bytes, void *stream)
{
	return on_device(from, bytes) ? stream_copy(to, (const void *)(uintptr_t)from, bytes, stream) : INVALID;
}

DRIVER(cuMemcpyHtoDAsync_v2, address to, const void *from, size_t bytes, void *stream)
{
	return on_device(to, bytes) ? stream_copy((void *)(uintptr_t)to, from, bytes, stream) : INVALID;
}

DRIVER(cuPointerGetAttribute, void *out, unsigned attribute, address p)
{
	struct range r = {.device = -2};
	bool found = memory_find((const void *)(uintptr_t)p, &r);
	if (attribute == MEMORY_TYPE)
		*(unsigned *)out = !found ? 0 : r.device < 0 ? 1 : 2;
	else if (attribute == ORDINAL)
		*(int *)out = found && r.device < 0 ? 0 : r.device;
	else if (attribute == RANGE_START)
		*(address *)out = (uintptr_t)r.at;
	else if (attribute == RANGE_SIZE)
		*(size_t *)out = r.bytes;
	else
		return UNSUPPORTED;
	return found ? OK : INVALID;
}

DRIVER(cuPointerGetAttributes, unsigned n, const unsigned *attributes, void **out, address p)
{
	for (unsigned i = 0; i < n; i++)
		if (cuPointerGetAttribute(out[i], attributes[i], p) == UNSUPPORTED)
			return UNSUPPORTED;
	return OK;
}

DRIVER(cuMemGetAddressRange_v2, address *start, size_t *bytes, address p)
{
	struct range r;
	if (!memory_find((const void *)(uintptr_t)p, &r))
		return INVALID;
	if (start)
		*start = (uintptr_t)r.at;
	if (bytes)
		*bytes = r.bytes;
	return OK;
}

/* --- how others find these functions */

static int nothing(void)
{
	return UNSUPPORTED;
}

/* Returns a function of the driver, or one that returns UNSUPPORTED. */
static void *find(const char *name)
{
	static const char *const versions[] = {"", "_v2", "_v3"};
	Dl_info self;
	void *library = dladdr(&fake, &self) ? dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD) : NULL;
	for (size_t i = 0; library && i < sizeof versions / sizeof *versions; i++) {
		char full[128];
		snprintf(full, sizeof full, "%s%s", name, versions[i]);
		void *found = dlsym(library, full);
		if (found)
			return found;
	}
	int (*none)(void) = nothing;
	return *(void **)&none;
}

DRIVER(cuGetProcAddress_v2, const char *name, void **found, int version, uint64_t flags, int *status)
{
	(void)version, (void)flags;
	if (status)
		*status = 0;
	*found = find(name);
	return OK;
}

DRIVER(cuGetProcAddress, const char *name, void **found)
{
	return cuGetProcAddress_v2(name, found, 0, 0, NULL);
}

DRIVER(cudaGetDriverEntryPointByVersion, const char *name, void **found, unsigned version, uint64_t flags, int *status)
{
	(void)version;
	return cuGetProcAddress_v2(name, found, 0, flags, status);
}

/* --- NVML */

DRIVER(nvmlInit_v2, void)
{
	return cuInit();
}

DRIVER(nvmlInit, void)
{
	return cuInit();
}

DRIVER(nvmlShutdown, void)
{
	return OK;
}

DRIVER(nvmlDeviceGetCount_v2, unsigned *n)
{
	*n = (unsigned)devices();
	return OK;
}

DRIVER(nvmlDeviceGetHandleByIndex_v2, unsigned i, void **handle)
{
	*handle = &contexts[i];
	return OK;
}

DRIVER(nvmlDeviceGetHandleByPciBusId_v2, const char *bus, void **handle)
{
	(void)bus;
	*handle = contexts;
	return OK;
}
