/* SPDX-License-Identifier: Apache-2.0 */
/* LOAD. It comes while chunks do, and threads that move chunks allocate nothing: so it is
 * decoded into memory on the stack. */
#include "proto/control.h"
#include "proto/reduction.pb-c.h"

#include <stddef.h>

/* Invariant: used <= sizeof bytes. */
struct small_memory {
	_Alignas(max_align_t) uint8_t bytes[512];
	size_t used;
};

uint32_t control_pack_load(uint8_t *out, const struct control_load *l)
{
	Reduction__V1__Load m = REDUCTION__V1__LOAD__INIT;

	m.up = l->up;
	m.down = l->down;
	m.processor = l->processor;
	m.ranks = l->ranks;
	m.up_most = l->up_most;
	m.up_most_rank = l->up_most_rank;
	m.down_most = l->down_most;
	m.down_most_rank = l->down_most_rank;
	m.answer = l->answer;
	return (uint32_t)reduction__v1__load__pack(&m, out);
}

static void *small_alloc(void *memory, size_t size)
{
	struct small_memory *m = memory;
	void *p = m->bytes + m->used;

	size = (size + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
	if (size > sizeof m->bytes - m->used)
		return NULL;
	m->used += size;
	return p;
}

static void small_free(void *memory, void *p)
{
	(void)memory;
	(void)p;
}

int control_unpack_load(const uint8_t *in, uint32_t len, struct control_load *ret, struct rs_err *e)
{
	struct small_memory memory = {.used = 0};
	ProtobufCAllocator small = {.alloc = small_alloc, .free = small_free, .allocator_data = &memory};
	const Reduction__V1__Load *m = reduction__v1__load__unpack(&small, len, in);

	if (!m)
		return rs_fail(e, RS_EPROTO, "the LOAD message cannot be decoded");
	*ret = (struct control_load){.up = m->up,
				     .down = m->down,
				     .processor = m->processor,
				     .ranks = m->ranks,
				     .up_most = m->up_most,
				     .up_most_rank = m->up_most_rank,
				     .down_most = m->down_most,
				     .down_most_rank = m->down_most_rank,
				     .answer = m->answer};
	if (ret->up > 1000 || ret->down > 1000 || ret->processor > 1000 || ret->up_most > 1000 || ret->down_most > 1000)
		return rs_fail(e, RS_EPROTO, "a LOAD message has a time above 1000");
	return RS_OK;
}
