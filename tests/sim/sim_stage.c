/* SPDX-License-Identifier: Apache-2.0 */
/* The stage of a sharded operation, as the copier of a GPU's memory has one: a ring with
 * places for a few chunks, in the order of the chunks. Contributions are put into places
 * that are free, results are taken out when they land, and a place is free when all
 * before it have landed too. What nobody may need any more is overwritten. */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

enum { STAGE_PLACES = 12 };

static uint64_t stage_place_bytes(const struct sim_stage *s, const struct rank_op *o)
{
	return (uint64_t)operation_stride(&o->op.of, s->chunk_elems) * o->op.of.size;
}

static uint8_t *stage_place(const struct sim_stage *s, const struct rank_op *o, uint64_t chunk)
{
	return s->memory + chunk % s->places * stage_place_bytes(s, o);
}

static bool stage_is_own(const struct rank_op *o, const struct operation_place *at)
{
	return at->part == o->op.part;
}

void stage_open(struct rank_op *o, const struct exchange_params *p, uint64_t seed)
{
	struct sim_stage *s = &o->stage;
	uint64_t chunks, bytes;

	s->chunk_elems = operation_chunk_elems(&o->op.of, p->chunk_bytes, p->decoded_bytes);
	chunks = operation_chunks(&o->op.of, s->chunk_elems);
	s->places = 1 + seed % STAGE_PLACES;
	if (s->places > chunks)
		s->places = chunks;
	bytes = s->places * stage_place_bytes(s, o);
	s->memory = malloc(bytes);
	s->landed = calloc(chunks, 1);
	if (!s->memory || !s->landed)
		abort();
	memset(s->memory, 0xdb, bytes);
	o->op.send = o->op.recv = s->memory;
	if (s->places < chunks)
		o->op.send_ring = o->op.recv_ring = bytes;
	o->op.staged = true;
}

bool stage_fill(struct rank_op *o, uint64_t more)
{
	struct sim_stage *s = &o->stage;
	uint64_t chunks = operation_chunks(&o->op.of, s->chunk_elems);

	for (; more > 0 && s->filled < chunks && s->filled < s->first + s->places; more--, s->filled++) {
		const struct operation_place at = operation_place(&o->op.of, s->chunk_elems, (uint32_t)s->filled);
		uint8_t *to = stage_place(s, o, s->filled);

		memset(to, 0xdb, stage_place_bytes(s, o));
		if (operation_is_scatter(&o->op.of) || stage_is_own(o, &at))
			memcpy(to, o->send + at.first * o->op.of.size, (size_t)at.elems * o->op.of.size);
	}
	o->ready = s->filled * operation_stride(&o->op.of, s->chunk_elems);
	return s->filled < chunks;
}

void stage_landed(struct rank_op *o, uint64_t first)
{
	struct sim_stage *s = &o->stage;
	uint32_t chunk = operation_chunk_at(&o->op.of, s->chunk_elems, first);
	const struct operation_place at = operation_place(&o->op.of, s->chunk_elems, chunk);

	if (at.first != first || s->landed[chunk] || chunk >= s->filled)
		sim_fail(o->rank->sim, "%s rank %u: chunk %u of operation %u landed, which it cannot",
			 o->rank->team->job, o->rank->index, chunk, o->index);
	if (operation_is_gather(&o->op.of) || stage_is_own(o, &at))
		memcpy(o->recv + first * o->op.of.size, stage_place(s, o, chunk), (size_t)at.elems * o->op.of.size);
	s->landed[chunk] = true;
	while (s->first < s->filled && s->landed[s->first])
		memset(stage_place(s, o, s->first++), 0xdb, s->places < s->filled ? stage_place_bytes(s, o) : 0);
}

void stage_close(struct rank_op *o)
{
	free(o->stage.memory);
	free(o->stage.landed);
	o->stage = (struct sim_stage){0};
}
