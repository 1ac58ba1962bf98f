/* SPDX-License-Identifier: Apache-2.0 */
#include "server/core/slot.h"
#include "common/assert.h"
#include "common/dtype.h"

#include <string.h>

size_t slot_acc_size(const struct slot *s)
{
	return s->header.of.op == FRAME_OP_BROADCAST ? s->header.of.size : rs_acc_size(s->header.of.dtype);
}

struct slot_input slot_input_of(const struct slot *s, bool wide)
{
	const struct operation *o = &s->header.of;
	size_t size = wide ? sizeof(float) : operation_up_bytes(o, 1);

	if (rs_wire_has_blocks(o->up))
		return (struct slot_input){.size = operation_up_bytes(o, RS_WIRE_BLOCK), .elems = RS_WIRE_BLOCK};
	return (struct slot_input){.size = size, .elems = 1, .direct = size == slot_acc_size(s)};
}

void slot_add(struct slot *s, const struct rs_kernels *k, uint32_t pos, const void *src, uint32_t n, bool wide)
{
	const struct operation *o = &s->header.of;
	unsigned dtype = wide ? RS_FLOAT32 : o->dtype;
	size_t acc_size = slot_acc_size(s);
	uint32_t overlap = s->filled - pos < n ? s->filled - pos : n;

	rs_assert(pos <= s->filled && s->filled <= s->elems);
	rs_assert(n <= s->elems - pos);
	/* a broadcast never overlaps, since only the root sends bytes */
	if (overlap)
		(o->up ? k->add[o->up] : k->reduce[o->op][dtype])(s->acc + pos * acc_size, src, overlap);
	if (overlap == n)
		return;
	src = (const uint8_t *)src + (wide ? overlap * sizeof(float) : operation_up_bytes(o, overlap));
	if (o->op == FRAME_OP_BROADCAST)
		memcpy(s->acc + s->filled * acc_size, src, (n - overlap) * acc_size);
	else
		(o->up ? k->decode[o->up] : k->load[dtype])(s->acc + s->filled * acc_size, src, n - overlap);
	s->filled = pos + n;
}

void slot_combine(struct slot *s, const struct rs_kernels *k, size_t stride, unsigned world)
{
	rs_assert(s->combined <= world);
	while (s->combined < world && slot_bit(s->complete, s->combined)) {
		unsigned r = s->combined++;

		if (r > 0)
			slot_add(s, k, 0, s->stash + (r - 1) * stride, s->elems, slot_bit(s->wide, r));
	}
}

void slot_encode_fetch(struct slot *s, uint64_t stable)
{
	struct frame f = s->header;

	f.type = FRAME_FETCH;
	f.flags = 0;
	f.ack = stable;
	f.payload_len = 0;
	f.payload_sum = 0;
	frame_encode(&f, s->head);
}

void slot_encode_result(struct slot *s, uint64_t stable, bool checksum)
{
	struct frame f = s->header;

	rs_assert(s->filled <= s->elems);
	s->result_len = operation_down_bytes(&f.of, s->elems);
	f.type = FRAME_RESULT;
	f.flags = 0;
	f.ack = stable;
	f.payload_len = 0;
	f.payload_sum = 0;
	frame_encode(&f, s->head_root);
	f.payload_len = s->result_len;
	if (checksum) {
		f.flags = FRAME_CHECKED;
		f.payload_sum = frame_checksum(s->acc, s->result_len);
	}
	frame_encode(&f, s->head);
}

void slot_finish_partial(struct slot *s, const struct rs_kernels *k, bool wide, bool checksum)
{
	const struct operation *o = &s->header.of;
	struct frame f = s->header;

	if (o->up && s->elems)
		k->encode[o->up](s->acc, s->acc, s->elems);
	else if (!wide && rs_dtype_is_half(o->dtype) && s->elems)
		k->store[o->dtype](s->acc, s->acc, s->elems);
	s->result_len = wide ? s->elems * (uint32_t)sizeof(float) : operation_up_bytes(o, s->elems);
	f.type = FRAME_DATA;
	f.flags = wide ? FRAME_WIDE : 0;
	f.ack = 0;
	f.payload_len = s->result_len;
	f.payload_sum = 0;
	if (checksum && s->result_len) {
		f.flags |= FRAME_CHECKED;
		f.payload_sum = frame_checksum(s->acc, s->result_len);
	}
	frame_encode(&f, s->head);
}

void slot_finish(struct slot *s, const struct rs_kernels *k, uint64_t processes, uint64_t stable, bool checksum)
{
	const struct operation *o = &s->header.of;

	if (o->op == RS_AVG && s->elems)
		k->divide[rs_dtype_is_half(o->dtype) ? RS_FLOAT32 : o->dtype](s->acc, processes, s->elems);
	if (o->down && s->elems)
		k->encode[o->down](s->acc, s->acc, s->elems);
	else if (o->op != FRAME_OP_BROADCAST && rs_dtype_is_half(o->dtype) && s->elems)
		k->store[o->dtype](s->acc, s->acc, s->elems);
	slot_encode_result(s, stable, checksum);
}
