/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/gpu/core/shards.h"
#include "common/assert.h"

struct shards_copy shards_in_order(const struct operation *of, bool own_only, uint32_t own, uint64_t at, uint64_t bytes)
{
	uint64_t part = operation_bytes(of) / of->parts, first = own_only ? own * part : 0;
	uint64_t from = at > first ? at : first, until = at + bytes;

	if (own_only && until > first + part)
		until = first + part;
	if (until <= from)
		return (struct shards_copy){.bytes = 0};
	return (struct shards_copy){.at = from - first, .place = from - at, .bytes = until - from};
}

void shards_begin(struct shards *s, uint64_t at, uint64_t bytes)
{
	uint64_t stride = (uint64_t)operation_stride(s->of, s->chunk_elems) * s->of->size;

	rs_assert(s->of->sharded && stride > 0 && at % stride == 0 && bytes % stride == 0);
	s->first = s->next = at / stride;
	s->end = s->first + bytes / stride;
	rs_assert(s->end <= operation_chunks(s->of, s->chunk_elems));
}

bool shards_next(struct shards *s, struct shards_copy *ret)
{
	uint64_t size = s->of->size, start = s->first * operation_stride(s->of, s->chunk_elems);
	struct shards_copy copy = {.bytes = 0};

	for (; s->next < s->end; s->next++) {
		const struct operation_place p = operation_place(s->of, s->chunk_elems, (uint32_t)s->next);
		uint64_t at = (s->own_only ? p.offset : p.first) * size, place = (p.staged - start) * size;

		if (s->own_only && p.part != s->own) {
			if (copy.bytes)
				break;
			continue;
		}
		if (!copy.bytes)
			copy = (struct shards_copy){.at = at, .place = place};
		else if (at != copy.at + copy.bytes || place != copy.place + copy.bytes)
			break;
		copy.bytes += p.elems * size;
	}
	*ret = copy;
	return copy.bytes > 0;
}
