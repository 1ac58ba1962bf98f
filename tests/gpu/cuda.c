/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

bool cuda_open(struct cuda *ret, char *why, size_t room)
{
	static const struct {
		const char *name;
		size_t at;
	} wanted[] = {
	    {"cuInit", offsetof(struct cuda, Init)},
	    {"cuDriverGetVersion", offsetof(struct cuda, DriverGetVersion)},
	    {"cuDeviceGetCount", offsetof(struct cuda, DeviceGetCount)},
	    {"cuDeviceGetName", offsetof(struct cuda, DeviceGetName)},
	    {"cuDevicePrimaryCtxRetain", offsetof(struct cuda, DevicePrimaryCtxRetain)},
	    {"cuCtxSetCurrent", offsetof(struct cuda, CtxSetCurrent)},
	    {"cuMemAlloc_v2", offsetof(struct cuda, MemAlloc)},
	    {"cuMemFree_v2", offsetof(struct cuda, MemFree)},
	    {"cuMemcpyHtoD_v2", offsetof(struct cuda, MemcpyHtoD)},
	    {"cuMemcpyDtoH_v2", offsetof(struct cuda, MemcpyDtoH)},
	    {"cuStreamCreate", offsetof(struct cuda, StreamCreate)},
	    {"cuStreamQuery", offsetof(struct cuda, StreamQuery)},
	    {"cuStreamSynchronize", offsetof(struct cuda, StreamSynchronize)},
	    {"cuMemsetD32Async", offsetof(struct cuda, MemsetD32Async)},
	};
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	int rc;

	if (!library) {
		snprintf(why, room, "%s", dlerror());
		return false;
	}
	for (unsigned i = 0; i < sizeof wanted / sizeof *wanted; i++) {
		void *found = dlsym(library, wanted[i].name);

		if (!found) {
			snprintf(why, room, "libcuda.so.1 has no %s", wanted[i].name);
			return false;
		}
		memcpy((char *)ret + wanted[i].at, &found, sizeof found);
	}
	rc = ret->Init(0);
	if (rc)
		snprintf(why, room, "cuInit failed with %d", rc);
	return rc == 0;
}

int cuda_put(const struct cuda *c, uint64_t to, const void *from, size_t bytes)
{
	int rc = c->MemcpyHtoD(to, from, bytes);

	return rc ? rc : c->StreamSynchronize(NULL);
}
