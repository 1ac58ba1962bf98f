/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of devices, and pinned memory of the host. */
#include "tests/cuda/fake.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct range *find(uint64_t at)
{
	for (struct range *r = fake.ranges; r; r = r->next)
		if (at >= r->at && at < r->at + r->bytes)
			return r;
	return NULL;
}

bool inside(uint64_t at, size_t bytes, bool host)
{
	const struct range *r = find(at);

	return r && (r->device < 0) == host && bytes <= r->at + r->bytes - at;
}

char *backing(uint64_t device)
{
	const struct range *r = find(device);

	return r->backing + (device - r->at);
}

/* With lock held. */
static bool add_range(uint64_t at, size_t bytes, char *memory, int device)
{
	struct range *r = malloc(sizeof *r);

	if (!r)
		return false;
	*r = (struct range){.next = fake.ranges, .at = at, .bytes = bytes, .backing = memory, .device = device};
	fake.ranges = r;
	return true;
}

/* With lock held. */
static struct range *remove_range(uint64_t at)
{
	for (struct range **p = &fake.ranges; *p; p = &(*p)->next) {
		struct range *r = *p;

		if (r->at != at)
			continue;
		*p = r->next;
		return r;
	}
	return NULL;
}

EXPORT CUresult cuMemHostRegister_v2(void *p, size_t bytes, unsigned int flags)
{
	CUresult r;

	(void)flags;
	pthread_mutex_lock(&fake.lock);
	r = begin("cuMemHostRegister_v2");
	if (!r && find((uintptr_t)p))
		r = PINNED_ALREADY;
	if (!r && !add_range((uintptr_t)p, bytes, NULL, -1))
		r = NO_MEMORY;
	if (!r) {
		fake.pinned += bytes;
		fake.pinned_most = fake.pinned > fake.pinned_most ? fake.pinned : fake.pinned_most;
	}
	pthread_mutex_unlock(&fake.lock);
	return r;
}

EXPORT CUresult cuMemHostUnregister(void *p)
{
	struct range *r;

	pthread_mutex_lock(&fake.lock);
	r = remove_range((uintptr_t)p);
	if (r)
		fake.pinned -= r->bytes;
	pthread_mutex_unlock(&fake.lock);
	free(r);
	return r ? OK : NOT_PINNED;
}

EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *ret, void *p, unsigned int flags)
{
	bool known;

	(void)flags;
	pthread_mutex_lock(&fake.lock);
	known = inside((uintptr_t)p, 1, true);
	pthread_mutex_unlock(&fake.lock);
	*ret = (uintptr_t)p;
	return known ? OK : NOT_PINNED;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *ret, size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *memory = calloc(1, bytes);
	bool added;

	if (at == MAP_FAILED || !memory)
		return NO_MEMORY;
	pthread_mutex_lock(&fake.lock);
	added = current() && add_range((uintptr_t)at, bytes, memory, current()->device);
	pthread_mutex_unlock(&fake.lock);
	*ret = (uintptr_t)at;
	return added ? OK : BAD_CONTEXT;
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr p)
{
	struct range *r;

	pthread_mutex_lock(&fake.lock);
	r = remove_range(p);
	pthread_mutex_unlock(&fake.lock);
	if (!r)
		return INVALID;
	munmap((void *)(uintptr_t)r->at, r->bytes);
	free(r->backing);
	free(r);
	return OK;
}

/* Waits for the default stream, and is for tests only. */
EXPORT CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
	bool known;

	cuStreamSynchronize(NULL);
	pthread_mutex_lock(&fake.lock);
	known = inside(from, bytes, false);
	if (known)
		memcpy(to, backing(from), bytes);
	pthread_mutex_unlock(&fake.lock);
	return known ? OK : INVALID;
}

EXPORT CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr p)
{
	return cuPointerGetAttributes(1, &attribute, &data, p);
}

EXPORT CUresult cuPointerGetAttributes(unsigned int n, CUpointer_attribute *attributes, void **data, CUdeviceptr p)
{
	const struct range *r;
	bool device;

	pthread_mutex_lock(&fake.lock);
	r = find(p);
	device = r && r->device >= 0;
	for (unsigned i = 0; i < n; i++) {
		if (attributes[i] == CUDA_ATTRIBUTE_MEMORY_TYPE)
			*(unsigned int *)data[i] = r ? (device ? CUDA_MEMORY_DEVICE : 1) : 0;
		else if (attributes[i] == CUDA_ATTRIBUTE_DEVICE_ORDINAL)
			*(int *)data[i] = device ? r->device : -2;
		else if (attributes[i] == CUDA_ATTRIBUTE_RANGE_START)
			*(CUdeviceptr *)data[i] = device ? r->at : 0;
		else if (attributes[i] == CUDA_ATTRIBUTE_RANGE_SIZE)
			*(size_t *)data[i] = device ? r->bytes : 0;
	}
	pthread_mutex_unlock(&fake.lock);
	return OK;
}
