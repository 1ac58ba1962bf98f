/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/gpu/core/pipeline.h"
#include "common/assert.h"

#include <string.h>

void pipeline_init(struct pipeline *p, uint64_t bytes, uint64_t piece, uint64_t ring, bool sends, bool receives)
{
	memset(p, 0, sizeof *p);
	rs_assert(piece > 0 && (ring >= piece || ring >= bytes));
	p->bytes = bytes;
	p->piece = piece;
	p->pieces = (bytes + piece - 1) / piece;
	p->places = ring < bytes ? ring / piece : p->pieces;
	p->sends = sends;
	p->receives = receives;
}

/* Returns the bytes of the first n pieces. */
static uint64_t pipeline_bytes(const struct pipeline *p, uint64_t n)
{
	return n < p->pieces ? n * p->piece : p->bytes;
}

uint64_t pipeline_pieces(const struct pipeline *p, uint64_t bytes)
{
	return bytes == p->bytes ? p->pieces : bytes / p->piece;
}

/* Returns the number of pieces whose results are in the ring as a whole. */
static uint64_t pipeline_landed_pieces(const struct pipeline *p)
{
	return pipeline_pieces(p, p->landed);
}

/* Returns the number of pieces whose places have been freed. */
static uint64_t pipeline_freed(const struct pipeline *p)
{
	return p->receives ? p->in.complete : pipeline_landed_pieces(p);
}

/* Returns the number of pieces, from the first on, that have a place so far. */
static uint64_t pipeline_placed(const struct pipeline *p)
{
	uint64_t n = pipeline_freed(p) + p->places;

	return n < p->pieces ? n : p->pieces;
}

static struct pipeline_step pipeline_start(struct pipeline *p, struct pipeline_side *side, enum pipeline_kind kind)
{
	uint64_t i = side->started++;

	rs_assert(i < p->pieces && side->complete <= i);
	side->running++;
	side->early[i % PIPELINE_PLACES] = false;
	return (struct pipeline_step){
	    .kind = kind,
	    .piece = i,
	    .at = i * p->piece,
	    .bytes = pipeline_bytes(p, i + 1) - i * p->piece,
	    .offset = i % p->places * p->piece,
	};
}

static bool pipeline_may_start(const struct pipeline_side *side, uint64_t end)
{
	return side->started < end && side->running < PIPELINE_DEPTH &&
	       side->started < side->complete + PIPELINE_PLACES;
}

struct pipeline_step pipeline_next(struct pipeline *p)
{
	uint64_t ready = pipeline_bytes(p, p->sends ? p->out.complete : pipeline_placed(p));
	bool idle = p->out.running == 0 && p->in.running == 0;

	if (p->failed || (p->ended && !p->landed_all))
		return (struct pipeline_step){.kind = p->ended && idle ? PIPELINE_END : PIPELINE_WAIT};
	if (p->receives && pipeline_may_start(&p->in, pipeline_landed_pieces(p)))
		return pipeline_start(p, &p->in, PIPELINE_COPY_IN);
	if (ready > p->announced) {
		p->announced = ready;
		return (struct pipeline_step){.kind = PIPELINE_ANNOUNCE, .bytes = ready};
	}
	if (p->sends && pipeline_may_start(&p->out, pipeline_placed(p)))
		return pipeline_start(p, &p->out, PIPELINE_COPY_OUT);
	if (p->ended && idle && pipeline_freed(p) == p->pieces)
		return (struct pipeline_step){.kind = PIPELINE_END};
	return (struct pipeline_step){.kind = PIPELINE_WAIT};
}

void pipeline_copied(struct pipeline *p, enum pipeline_direction direction, uint64_t piece)
{
	struct pipeline_side *side = direction == PIPELINE_OUT ? &p->out : &p->in;

	rs_assert(side->running > 0 && piece < side->started && piece >= side->complete);
	rs_assert(!side->early[piece % PIPELINE_PLACES]);
	side->running--;
	side->early[piece % PIPELINE_PLACES] = true;
	while (side->complete < side->started && side->early[side->complete % PIPELINE_PLACES]) {
		side->early[side->complete % PIPELINE_PLACES] = false;
		side->complete++;
	}
}

void pipeline_landed(struct pipeline *p, uint64_t bytes)
{
	rs_assert(bytes <= p->bytes);
	if (bytes > p->landed)
		p->landed = bytes;
}

void pipeline_fail(struct pipeline *p)
{
	p->failed = true;
}

void pipeline_end(struct pipeline *p, bool ok)
{
	p->ended = true;
	p->landed_all = ok;
	if (ok)
		p->landed = p->bytes;
}
