/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is freed is unmapped: work that still uses it ends the process. */
#include "tests/torch_cuda/fake.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { PAGE = 4096 };

static const size_t TOTAL = (size_t)8 << 30;

/* Returns the index of the range that begins at `at`, or ranges_n. */
static size_t beginning(const void *at)
{
	size_t i = 0;
	while (i < fake.ranges_n && fake.ranges[i].at != at)
		i++;
	return i;
}

static bool add(struct range r)
{
	if (fake.ranges_n == fake.ranges_room) {
		size_t room = fake.ranges_room ? 2 * fake.ranges_room : 64;
		struct range *more = realloc(fake.ranges, room * sizeof *more);
		if (!more)
			return false;
		fake.ranges = more, fake.ranges_room = room;
	}
	fake.ranges[fake.ranges_n++] = r;
	return true;
}

void *memory_new(size_t bytes, int device)
{
	struct range r = {.bytes = bytes ? (bytes + PAGE - 1) / PAGE * PAGE : PAGE, .device = device, .mapped = true};
	bool full = device >= 0 && fake.used[device] + r.bytes > TOTAL;
	r.at = full ? MAP_FAILED : mmap(NULL, r.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (r.at == MAP_FAILED)
		return NULL;
	pthread_mutex_lock(&fake.lock);
	bool added = add(r);
	if (added && device >= 0)
		fake.used[device] += r.bytes;
	pthread_mutex_unlock(&fake.lock);
	if (!added)
		munmap(r.at, r.bytes);
	return added ? r.at : NULL;
}

static int take_away(void *at, bool mapped, int otherwise)
{
	pthread_mutex_lock(&fake.lock);
	size_t i = beginning(at);
	bool found = i < fake.ranges_n && fake.ranges[i].mapped == mapped;
	if (found) {
		struct range r = fake.ranges[i];
		fake.ranges[i] = fake.ranges[--fake.ranges_n];
		if (r.device >= 0)
			fake.used[r.device] -= r.bytes;
		if (mapped)
			munmap(r.at, r.bytes);
	}
	pthread_mutex_unlock(&fake.lock);
	return found ? OK : otherwise;
}

int memory_free(void *at)
{
	if (!at)
		return OK;
	stream_drain_all();
	return take_away(at, true, INVALID);
}

int memory_pin(void *at, size_t bytes)
{
	pthread_mutex_lock(&fake.lock);
	int error = beginning(at) < fake.ranges_n                                  ? PINNED_ALREADY
		    : !add((struct range){.at = at, .bytes = bytes, .device = -1}) ? NO_MEMORY
										   : OK;
	pthread_mutex_unlock(&fake.lock);
	return error;
}

int memory_unpin(void *at)
{
	return take_away(at, false, NOT_PINNED);
}

bool memory_find(const void *p, struct range *found)
{
	bool is = false;
	pthread_mutex_lock(&fake.lock);
	for (size_t i = 0; i < fake.ranges_n && !is; i++) {
		const struct range *r = &fake.ranges[i];
		is = (uintptr_t)p >= (uintptr_t)r->at && (uintptr_t)p - (uintptr_t)r->at < r->bytes;
		if (is)
			*found = *r;
	}
	pthread_mutex_unlock(&fake.lock);
	return is;
}
