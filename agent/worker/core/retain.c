/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/worker/core/retain.h"
#include "common/assert.h"

#include <stdlib.h>
#include <string.h>

int retain_init(struct retain *r, unsigned priorities, uint64_t max_lead, size_t bytes, struct rs_err *e)
{
	uint64_t n = (max_lead + 1) * priorities;
	size_t stride = (bytes + 63) & ~(size_t)63, all;
	void *data = NULL;

	*r = (struct retain){0};
	if (__builtin_mul_overflow(n, stride, &all) || posix_memalign(&data, 4096, all))
		data = NULL;
	r->data = data;
	r->entries = calloc(n, sizeof *r->entries);
	r->sent = calloc(n, sizeof *r->sent);
	if (!r->data || !r->entries || !r->sent) {
		retain_close(r);
		return rs_fail(e, RS_ENOMEM, "out of memory for %llu retained results of %zu bytes: %s",
			       (unsigned long long)n, bytes,
			       "set smaller sharding.shards or chunk_bytes, or `failover: fail`");
	}
	memset(r->data, 0, all);
	r->stride = stride;
	r->size = max_lead + 1;
	return RS_OK;
}

void retain_close(struct retain *r)
{
	free(r->sent);
	free(r->entries);
	free(r->data);
	*r = (struct retain){0};
}

uint64_t retain_bytes(const struct retain *r, unsigned priorities)
{
	return priorities * r->size * r->stride;
}

void retain_clear(struct retain *r, unsigned priorities)
{
	memset(r->seen, 0, sizeof r->seen);
	if (!r->size)
		return;
	memset(r->entries, 0, priorities * r->size * sizeof *r->entries);
	memset(r->sent, 0, priorities * r->size * sizeof *r->sent);
}

static uint64_t retain_index(const struct retain *r, unsigned priority, uint64_t position)
{
	rs_assert(r->size > 0 && priority < FRAME_PRIORITIES);
	return priority * r->size + position % r->size;
}

bool retain_mark_sent(struct retain *r, unsigned priority, uint64_t position)
{
	uint64_t *sent;

	if (!r->size)
		return true;
	sent = &r->sent[retain_index(r, priority, position)];
	if (*sent == position + 1)
		return false;
	*sent = position + 1;
	return true;
}

static uint8_t *retain_own_memory(const struct retain *r, unsigned priority, uint64_t position)
{
	return r->data + retain_index(r, priority, position) * r->stride;
}

uint8_t *retain_reserve(struct retain *r, unsigned priority, uint64_t position)
{
	r->entries[retain_index(r, priority, position)].tag = 0;
	if (r->seen[priority] <= position)
		r->seen[priority] = position + 1;
	return retain_own_memory(r, priority, position);
}

void retain_store(struct retain *r, unsigned priority, uint64_t position, const struct frame *of, uint32_t bytes,
		  const uint8_t *data)
{
	struct retained *k = &r->entries[retain_index(r, priority, position)];

	rs_assert(bytes <= r->stride && (data || bytes == 0));
	k->tag = position + 1;
	k->head = *of;
	k->head.payload_len = bytes;
	k->data = data;
}

bool retain_overwritten(const struct retain *r, uint64_t position, uint64_t end)
{
	return end - position > r->size;
}

const struct retained *retain_find(const struct retain *r, unsigned priority, uint64_t position)
{
	const struct retained *k;

	if (!r->size)
		return NULL;
	k = &r->entries[retain_index(r, priority, position)];
	return k->tag == position + 1 ? k : NULL;
}

const struct retained *retain_own(struct retain *r, unsigned priority, uint64_t position)
{
	uint8_t *own = retain_own_memory(r, priority, position);
	struct retained *k = &r->entries[retain_index(r, priority, position)];

	if (k->tag != position + 1)
		return NULL;
	rs_assert(k->head.payload_len <= r->stride);
	if (k->data != own && k->head.payload_len > 0)
		memcpy(own, k->data, k->head.payload_len);
	k->data = own;
	return k;
}

uint64_t retain_resume_position(const struct retain *r, unsigned priority)
{
	uint64_t seen = r->seen[priority];

	/* seen - 1 is the position q of a result, and size - 1 is max_lead */
	return seen > r->size ? seen - r->size : 0;
}
