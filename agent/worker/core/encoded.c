/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/worker/core/encoded.h"

#include "agent/worker/core/features.h"
#include "common/assert.h"
#include "common/dtype.h"
#include "proto/features.h"

#include <stdlib.h>

/* 16-bit elements pass through float32 in pieces of this many elements, whole blocks. */
enum { ENCODED_PIECE = 8 * RS_WIRE_BLOCK };

/* Returns the bytes of the largest encoded chunk. */
static size_t encoded_stride(const struct exchange_params *p)
{
	return (rs_wire_chunk_most(p->chunk_bytes, p->decoded_bytes) + 63) & ~(size_t)63;
}

/* Returns the places of a link: those of its streams, and the landing. */
static size_t encoded_places(const struct exchange *x)
{
	return (size_t)x->params->priorities * ENCODED_STAGE + 1;
}

int encoded_check(const struct exchange *x, struct rs_err *e)
{
	if (features_known(x) & FEATURE_ENCODINGS)
		return RS_OK;
	if (!(x->opt.features & FEATURE_ENCODINGS))
		return rs_fail(e, RS_EREFUSED, "job.features: baseline allows no encodings: set job.wire: same");
	return rs_fail(e, RS_EREFUSED,
		       "a rank or a reducer of job %s runs a release that knows no encodings: start a newer one "
		       "everywhere, or set job.wire: same",
		       x->job);
}

int encoded_check_reducer(const struct link *l, const char *software, struct rs_err *e)
{
	const struct exchange_params *p = l->x->params;

	if ((!p->wire_up && !p->wire_down) || l->x->opt.single_worker || l->offers & FEATURE_ENCODINGS)
		return RS_OK;
	return rs_fail(e, RS_EREFUSED,
		       "it runs %s, which knows no encodings: start a newer release there, or set job.wire: same",
		       software[0] ? software : "an unknown release");
}

int encoded_prepare(struct exchange *x, struct rs_err *e)
{
	void *stage = NULL;

	if (encoded_check(x, e))
		return e->code;
	if (x->stage)
		return RS_OK;
	if (posix_memalign(&stage, 4096, x->links_n * encoded_places(x) * encoded_stride(x->params)))
		return rs_oom(e, 0, "encoded chunks");
	x->stage = stage;
	return RS_OK;
}

void encoded_choose(const struct exchange *x, struct exchange_op *op)
{
	struct operation of = op->of;

	of.up = RS_WIRE_FP16;
	if (op->partials && !op->of.up && !x->opt.single_worker && x->features & FEATURE_ENCODINGS &&
	    operation_chunk_elems(&of, x->params->chunk_bytes, x->params->decoded_bytes) == op->chunk_elems)
		op->of.up = RS_WIRE_FP16;
}

int encoded_begin(struct exchange *x, struct rs_err *e)
{
	bool any = x->stage;

	for (struct exchange_op *op = x->first; op; op = op->next) {
		encoded_choose(x, op);
		any |= operation_is_encoded(&op->of);
	}
	return any ? encoded_prepare(x, e) : RS_OK;
}

static uint8_t *encoded_place(const struct link *l, size_t place)
{
	const struct exchange *x = l->x;

	rs_assert(x->stage && place < encoded_places(x));
	return x->stage + ((size_t)(l - x->links) * encoded_places(x) + place) * encoded_stride(x->params);
}

uint8_t *encoded_landing(const struct link *l)
{
	return encoded_place(l, encoded_places(l->x) - 1);
}

/* Returns what makes the random bits of this rank's contributions to an operation
 * different from those of others. */
static uint64_t encoded_key(const struct exchange *x, const struct exchange_op *op)
{
	return op->of.seq * UINT64_C(0x9e3779b97f4a7c15) + x->opt.rank;
}

static void encoded_floats(const struct exchange *x, const struct exchange_op *op, uint8_t *to, const void *from,
			   uint64_t first, size_t n)
{
	const struct rs_kernels *k = x->opt.kernels;

	if (x->params->wire_random && !op->partials)
		k->encode_random[op->of.up](to, from, n, encoded_key(x, op), first);
	else
		k->encode[op->of.up](to, from, n);
}

static unsigned encoded_dtype(const struct exchange_op *op)
{
	return op->wide ? RS_FLOAT32 : op->of.dtype;
}

void encoded_repeat(const struct exchange *x, const struct exchange_op *op, const struct encoded_part *part,
		    uint8_t *to)
{
	unsigned dtype = encoded_dtype(op);
	float piece[ENCODED_PIECE];

	if (op->residual || dtype == RS_FLOAT32) {
		encoded_floats(x, op, to, op->residual ? op->residual->values + part->first : part->at, part->first,
			       part->n);
		return;
	}
	for (uint32_t did = 0, n; did < part->n; did += n) {
		n = part->n - did < ENCODED_PIECE ? part->n - did : ENCODED_PIECE;
		x->opt.kernels->load[dtype](piece, (const char *)part->at + (size_t)did * op->of.size, n);
		encoded_floats(x, op, to, piece, part->first + did, n);
		to += operation_up_bytes(&op->of, n);
	}
}

const uint8_t *encoded_contribution(struct link *l, const struct stream *s, const struct exchange_op *op,
				    const struct encoded_part *part)
{
	uint8_t *place = encoded_place(l, (size_t)(s - l->streams) * ENCODED_STAGE + s->tail % ENCODED_STAGE);

	if (op->residual && part->first_time)
		feedback_correct(op->residual, l->x->opt.kernels, encoded_dtype(op), part->at, part->first, part->n);
	encoded_repeat(l->x, op, part, place);
	return place;
}

void encoded_settle(const struct exchange *x, const struct exchange_op *op, uint64_t first, uint32_t n)
{
	const struct rs_kernels *k = x->opt.kernels;
	uint8_t code[ENCODED_PIECE / RS_WIRE_BLOCK * RS_WIRE_BLOCK_BYTES];
	float left[ENCODED_PIECE];

	for (uint32_t did = 0, part; did < n; did += part) {
		part = n - did < ENCODED_PIECE ? n - did : ENCODED_PIECE;
		encoded_floats(x, op, code, op->residual->values + first + did, first + did, part);
		k->decode[op->of.up](left, code, part);
		feedback_settle(op->residual, left, first + did, part);
	}
}

void encoded_result(const struct exchange *x, const struct exchange_op *op, void *to, const uint8_t *from, uint32_t n)
{
	const struct rs_kernels *k = x->opt.kernels;
	float piece[ENCODED_PIECE];

	if (op->of.dtype == RS_FLOAT32) {
		k->decode[op->of.down](to, from, n);
		return;
	}
	for (uint32_t did = 0, part; did < n; did += part) {
		part = n - did < ENCODED_PIECE ? n - did : ENCODED_PIECE;
		k->decode[op->of.down](piece, from, part);
		k->store[op->of.dtype]((char *)to + (size_t)did * op->of.size, piece, part);
		from += operation_down_bytes(&op->of, part);
	}
}
