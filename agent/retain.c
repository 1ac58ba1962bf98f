/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/retain.h"

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
	for (uint64_t i = 0; i < n; i++)
		r->kept[i].data = r->data + i * stride;
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

uint8_t *retain_place(struct retain *r, unsigned priority, uint64_t position)
{
	struct kept *k = &r->kept[index_of(r, priority, position)];

	k->place = 0;
	if (r->seen[priority] <= position)
		r->seen[priority] = position + 1;
	return k->data;
}

void retain_keep(struct retain *r, unsigned priority, uint64_t position, const struct frame *of, uint32_t bytes)
{
	struct kept *k = &r->kept[index_of(r, priority, position)];

	k->place = position + 1;
	k->of = *of;
	k->of.payload_len = bytes;
}

const struct kept *retain_find(const struct retain *r, unsigned priority, uint64_t position)
{
	const struct kept *k;

	if (!r->size)
		return NULL;
	k = &r->kept[index_of(r, priority, position)];
	return k->place == position + 1 ? k : NULL;
}

uint64_t retain_start(const struct retain *r, unsigned priority)
{
	uint64_t seen = r->seen[priority];

	/* seen - 1 is the position q of a result, and size - 1 the spread */
	return seen > r->size ? seen - r->size : 0;
}
