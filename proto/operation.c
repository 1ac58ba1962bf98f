/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/operation.h"

#include "common/dtype.h"
#include "proto/frame.h"

#include <inttypes.h>
#include <stdio.h>

enum {
	SHARDED_BURST = 128 << 10,    /* bytes of one chunk of all ranks, .. */
	SHARDED_CHUNK_MIN = 16 << 10, /* .. but chunks are not smaller: they would cost too much */
	SHARDED_CHUNK_STEP = 4 << 10, /* chunks are whole multiples of it */
};

static void operation_describe_sharded(char *buf, size_t size, const struct operation *o)
{
	if (operation_is_gather(o))
		snprintf(buf, size, "an all-gather of %" PRIu64 " %s in %" PRIu32 " parts", o->count,
			 rs_dtype_name(o->dtype), o->parts);
	else
		snprintf(buf, size, "a reduce-scatter %s of %" PRIu64 " %s in %" PRIu32 " parts", rs_op_name(o->op),
			 o->count, rs_dtype_name(o->dtype), o->parts);
}

void operation_describe(char *buf, size_t size, const struct operation *o)
{
	char root[32] = "";

	if (o->sharded) {
		operation_describe_sharded(buf, size, o);
		return;
	}
	if (o->root != OPERATION_ANY_ROOT)
		snprintf(root, sizeof root, " from rank %" PRIu32, o->root);
	if (o->op == FRAME_OP_BROADCAST)
		snprintf(buf, size, "a broadcast of %" PRIu64 " %s%s", o->count, rs_dtype_name(o->dtype), root);
	else if (o->tensors)
		snprintf(buf, size, "an all-reduce %s of %" PRIu64 " %s (group of %u tensors)", rs_op_name(o->op),
			 o->count, rs_dtype_name(o->dtype), o->tensors);
	else
		snprintf(buf, size, "an all-reduce %s of %" PRIu64 " %s", rs_op_name(o->op), o->count,
			 rs_dtype_name(o->dtype));
}

void operation_choose_wire(struct operation *o, unsigned up, unsigned down)
{
	o->up = rs_wire_fits(up, o->dtype, o->op) ? up & 15 : RS_WIRE_SAME;
	o->down = rs_wire_fits(down, o->dtype, o->op) ? down & 7 : RS_WIRE_SAME;
}

uint32_t operation_chunk_limit(const struct operation *o, uint32_t chunk_bytes)
{
	uint32_t limit = SHARDED_CHUNK_MIN;

	if (!o->sharded || o->parts == 0)
		return chunk_bytes;
	if (SHARDED_BURST / o->parts > limit)
		limit = SHARDED_BURST / o->parts & ~(uint32_t)(SHARDED_CHUNK_STEP - 1);
	return chunk_bytes < limit ? chunk_bytes : limit;
}

uint32_t operation_chunk_elems(const struct operation *o, uint32_t chunk_bytes, uint32_t decoded_bytes)
{
	uint32_t up = rs_wire_half_bytes(o->up, o->size), down = rs_wire_half_bytes(o->down, o->size);
	uint32_t n = 2 * operation_chunk_limit(o, chunk_bytes) / (up > down ? up : down);
	uint32_t most = decoded_bytes / (uint32_t)sizeof(float);

	if (!operation_is_encoded(o))
		return n;
	return (n < most ? n : most) & ~(uint32_t)(RS_WIRE_BLOCK - 1);
}

uint64_t operation_chunks(const struct operation *o, uint32_t chunk_elems)
{
	return o->sharded ? o->parts * frame_chunks(o->count / o->parts, chunk_elems)
			  : frame_chunks(o->count, chunk_elems);
}

struct operation_place operation_place(const struct operation *o, uint32_t chunk_elems, uint32_t chunk)
{
	struct operation_place p = {.first = (uint64_t)chunk * chunk_elems};
	uint64_t part = o->count;

	p.staged = (uint64_t)chunk * operation_stride(o, chunk_elems);
	if (o->sharded) {
		part = o->count / o->parts;
		p.offset = (uint64_t)(chunk / o->parts) * chunk_elems;
		p.part = (chunk % o->parts + chunk / o->parts) % o->parts;
		p.first = p.part * part + p.offset;
	}
	p.elems = frame_chunk_len(part, chunk_elems, o->sharded ? chunk / o->parts : chunk);
	return p;
}

uint32_t operation_chunk_at(const struct operation *o, uint32_t chunk_elems, uint64_t first)
{
	uint64_t part, round;

	if (chunk_elems == 0)
		return 0;
	if (!o->sharded)
		return (uint32_t)(first / chunk_elems);
	part = o->count / o->parts;
	if (part == 0)
		return 0;
	round = first % part / chunk_elems;
	return (uint32_t)(round * o->parts + (first / part + o->parts - round % o->parts) % o->parts);
}

int operation_check_same(const struct operation_call *call_a, const struct operation_call *call_b, struct rs_err *e)
{
	const struct operation *a = call_a->of, *b = call_b->of;
	char text_a[OPERATION_TEXT], text_b[OPERATION_TEXT];

	if (a->dtype != b->dtype || a->op != b->op || a->sharded != b->sharded || a->count != b->count ||
	    a->tensors != b->tensors ||
	    (a->root != b->root && a->root != OPERATION_ANY_ROOT && b->root != OPERATION_ANY_ROOT)) {
		operation_describe(text_a, sizeof text_a, a);
		operation_describe(text_b, sizeof text_b, b);
		return rs_fail(e, RS_EMISMATCH, "ranks disagree about operation %" PRIu64 ": %s called %s, %s %s",
			       a->seq, call_a->rank, text_a, call_b->rank, text_b);
	}
	if (a->priority != b->priority)
		return rs_fail(e, RS_EMISMATCH,
			       "ranks disagree about operation %" PRIu64 ": %s gave it priority %u, %s priority %u",
			       a->seq, call_a->rank, a->priority, call_b->rank, b->priority);
	if (a->up != b->up || a->down != b->down)
		return rs_fail(e, RS_EMISMATCH,
			       "ranks disagree about operation %" PRIu64
			       ": %s sends it as %s and wants the result as %s, %s as %s and %s (%s)",
			       a->seq, call_a->rank, rs_wire_name(a->up), rs_wire_name(a->down), call_b->rank,
			       rs_wire_name(b->up), rs_wire_name(b->down),
			       a->dtype == RS_FLOAT16 && (a->up == RS_WIRE_FP16 || b->up == RS_WIRE_FP16)
				   ? "job.partials"
				   : "job.wire");
	if (a->name_hash == b->name_hash)
		return RS_OK;
	if (a->tensors)
		return rs_fail(e, RS_EMISMATCH,
			       "ranks disagree about operation %" PRIu64
			       ": %s gave its group of %u tensors other counts or names than %s",
			       a->seq, call_a->rank, a->tensors, call_b->rank);
	if (call_a->name && call_b->name)
		return rs_fail(e, RS_EMISMATCH, "ranks disagree about operation %" PRIu64 ": %s calls it '%s', %s '%s'",
			       a->seq, call_a->rank, call_a->name, call_b->rank, call_b->name);
	return rs_fail(e, RS_EMISMATCH, "ranks disagree about operation %" PRIu64 ": %s gave it another name than %s",
		       a->seq, call_a->rank, call_b->rank);
}
