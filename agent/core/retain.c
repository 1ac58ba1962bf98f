/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/core/retain.h"

#include <stdlib.h>
#include <string.h>

int retain_init(struct retain *r, unsigned priorities, uint64_t spread, size_t bytes, struct rs_err *e)
{
	uint64_t n = (spread + 1) * priorities;
	size_t stride = (bytes + 63) & ~(size_t)63, all;
	void *data = NULL;

	*r = (struct retain){0};
	if (__builtin_mul_overflow(n, stride, &all) || posix_memalign(&data, 4096, all))
		data = NULL;
	r->data = data;
	r->kept = calloc(n, sizeof *r->kept);
	r->begun = calloc(n, sizeof *r->begun);
	if (!r->data || !r->kept || !r->begun) {
		retain_close(r);
		return rs_fail(e, RS_ENOMEM, "there is no memory to keep %llu results of %zu bytes: %s",
			       (unsigned long long)n, bytes,
			       "make sharding.shards or chunk_bytes smaller, or say `failover: fail`");
	}
	memset(r->data, 0, all);
	r->stride = stride;
	r->size = spread + 1;
	return RS_OK;
}

void retain_close(struct retain *r)
{
	free(r->begun);
	free(r->kept);
	free(r->data);
	*r = (struct retain){0};
}

static uint64_t index_of(const struct retain *r, unsigned priority, uint64_t position)
{
	return priority * r->size + position % r->size;
}

bool retain_begin(struct retain *r, unsigned priority, uint64_t position)
{
	uint64_t *begun;

	if (!r->size)
		return true;
	begun = &r->begun[index_of(r, priority, position)];
	if (*begun == position + 1)
		return false;
	*begun = position + 1;
	return true;
}

static uint8_t *own_memory(const struct retain *r, unsigned priority, uint64_t position)
{
	return r->data + index_of(r, priority, position) * r->stride;
}

uint8_t *retain_place(struct retain *r, unsigned priority, uint64_t position)
{
	r->kept[index_of(r, priority, position)].place = 0;
	if (r->seen[priority] <= position)
		r->seen[priority] = position + 1;
	return own_memory(r, priority, position);
}

void retain_keep(struct retain *r, unsigned priority, uint64_t position, const struct frame *of, uint32_t bytes,
		 const uint8_t *data)
{
	struct kept *k = &r->kept[index_of(r, priority, position)];

	k->place = position + 1;
	k->of = *of;
	k->of.payload_len = bytes;
	k->data = data;
}

bool retain_displaced(const struct retain *r, uint64_t position, uint64_t end)
{
	return end - position > r->size;
}

const struct kept *retain_find(const struct retain *r, unsigned priority, uint64_t position)
{
	const struct kept *k;

	if (!r->size)
		return NULL;
	k = &r->kept[index_of(r, priority, position)];
	return k->place == position + 1 ? k : NULL;
}

const struct kept *retain_own(struct retain *r, unsigned priority, uint64_t position)
{
	uint8_t *own = own_memory(r, priority, position);
	struct kept *k = &r->kept[index_of(r, priority, position)];

	if (k->place != position + 1)
		return NULL;
	if (k->data != own && k->of.payload_len > 0)
		memcpy(own, k->data, k->of.payload_len);
	k->data = own;
	return k;
}

uint64_t retain_start(const struct retain *r, unsigned priority)
{
	uint64_t seen = r->seen[priority];

	/* seen - 1 is the position q of a result, and size - 1 the spread */
	return seen > r->size ? seen - r->size : 0;
}
