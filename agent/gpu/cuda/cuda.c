/* SPDX-License-Identifier: Apache-2.0 */
/* The driver, its devices, and memory. The library stays loaded: the program may use it
 * too. */
#include "agent/gpu/cuda/state.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char cuda_library[] = "libcuda.so.1";

/* Finds the allocation that contains p. */
static int cuda_find_range(struct cuda *c, int device, CUdeviceptr p, CUdeviceptr *ret_end, struct rs_err *e)
{
	CUpointer_attribute which[] = {CUDA_ATTRIBUTE_MEMORY_TYPE, CUDA_ATTRIBUTE_DEVICE_ORDINAL,
				       CUDA_ATTRIBUTE_RANGE_START, CUDA_ATTRIBUTE_RANGE_SIZE};
	unsigned int type = 0;
	int ordinal = -1;
	CUdeviceptr start = 0;
	size_t size = 0;
	void *data[] = {&type, &ordinal, &start, &size};
	CUresult r = c->api.cuPointerGetAttributes(4, which, data, p);

	if (r)
		return cuda_fail(c, e, RS_EINVAL, "the buffer's address cannot be looked up", device, r);
	if (type != CUDA_MEMORY_DEVICE)
		return rs_fail(e, RS_EINVAL, "the buffer at %#llx is not memory of a GPU, but its device is %d", p,
			       device);
	if (ordinal != device)
		return rs_fail(e, RS_EINVAL, "the buffer at %#llx is memory of GPU %d, but its device is %d", p,
			       ordinal, device);
	if (start + size <= p)
		return rs_fail(e, RS_EINVAL, "the driver does not say how large the buffer at %#llx is", p);
	*ret_end = start + size;
	return RS_OK;
}

int cuda_check(struct cuda *c, int device, const void *p, size_t bytes, struct rs_err *e)
{
	CUdeviceptr at = (CUdeviceptr)(uintptr_t)p, end = at + bytes, known = at;
	int rc;

	if (device < 0 || device >= c->devices_n)
		return rs_fail(e, RS_EINVAL, "device is %d, 0 to %d were expected", device, c->devices_n - 1);
	rc = cuda_enter(c, device, e);
	if (rc)
		return rc;
	/* memory that was mapped in parts has several ranges */
	while (!rc && known < end) {
		rc = cuda_find_range(c, device, known, &known, e);
		if (rc && known > at)
			rs_fail(e, RS_EINVAL, "the buffer has %zu bytes, but GPU %d has only %llu bytes at %#llx",
				bytes, device, known - at, at);
	}
	cuda_leave(c);
	return rc;
}

int cuda_pin(struct cuda *c, int device, void *p, size_t bytes, struct rs_err *e)
{
	CUresult r;

	if (cuda_enter(c, device, e))
		return e->code;
	r = c->api.cuMemHostRegister_v2(p, bytes, CUDA_REGISTER_PORTABLE);
	cuda_leave(c);
	return r ? cuda_fail(c, e, RS_ENOMEM, "cannot pin host memory", device, r) : RS_OK;
}

void cuda_unpin(struct cuda *c, int device, void *p)
{
	struct rs_err e;

	if (cuda_enter(c, device, &e))
		return;
	c->api.cuMemHostUnregister(p);
	cuda_leave(c);
}

void cuda_close(struct cuda *c)
{
	struct rs_err e;

	for (int i = 0; i < c->devices_n; i++) {
		struct cuda_device *d = &c->device[i];

		if (!d->ctx || cuda_enter(c, i, &e))
			continue;
		while (d->idle) {
			struct cuda_queue *q = d->idle;

			d->idle = q->next;
			cuda_queue_free(c, q);
		}
		cuda_leave(c);
		c->api.cuDevicePrimaryCtxRelease_v2(d->device);
	}
	pthread_mutex_destroy(&c->lock);
	free(c);
}

/* Looks up all functions in the library. */
static int cuda_load(struct cuda *c, struct rs_err *e)
{
#define CUDA_ENTRY(name, arguments) {#name, offsetof(struct cuda_api, name)},
	static const struct {
		const char *name;
		size_t offset;
	} functions[] = {CUDA_FUNCTIONS(CUDA_ENTRY)};

	c->library = dlopen(cuda_library, RTLD_NOW | RTLD_LOCAL);
	if (!c->library)
		return rs_fail(e, RS_EUNSUPPORTED, "a buffer of a GPU needs NVIDIA's driver library: %s", dlerror());
	for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
		void *found = dlsym(c->library, functions[i].name);

		if (!found)
			return rs_fail(e, RS_EUNSUPPORTED, "%s has no %s: this needs a driver for CUDA 12 or later",
				       cuda_library, functions[i].name);
		memcpy((char *)&c->api + functions[i].offset, &found, sizeof found);
	}
	return RS_OK;
}

static int cuda_init(struct cuda *c, struct rs_err *e)
{
	CUresult r = c->api.cuInit(0);
	const char *name;

	if (!r)
		r = c->api.cuDeviceGetCount(&c->devices_n);
	if (!r && c->devices_n > 0) {
		c->devices_n = c->devices_n < CUDA_DEVICES ? c->devices_n : CUDA_DEVICES;
		return RS_OK;
	}
	if (!r || c->api.cuGetErrorName(r, &name) != CUDA_RESULT_OK)
		name = r ? "unknown" : "no device";
	return rs_fail(e, RS_EUNSUPPORTED, "no GPU can be used: %s (%d)", name, (int)r);
}

int cuda_open(struct cuda **ret, void (*notify)(void *user), void *user, struct rs_err *e)
{
	struct cuda *c = calloc(1, sizeof *c);
	int rc;

	if (!c)
		return rs_oom(e, 0, "GPUs");
	rc = cuda_load(c, e);
	if (!rc)
		rc = cuda_init(c, e);
	if (rc) {
		free(c);
		return rc;
	}
	c->notify = notify;
	c->user = user;
	pthread_mutex_init(&c->lock, NULL);
	*ret = c;
	return RS_OK;
}
