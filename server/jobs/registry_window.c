/* SPDX-License-Identifier: Apache-2.0 */
/* Larger windows for long links. HELLO says which window the connection's round trip
 * would use, and the largest one that the worker has memory for. When all ranks are
 * there, the job gets the largest one that a rank would use, or less if a worker or
 * server.memory has no room for it, and other memory for its slots; START says so. The
 * memory for the window of HELLO was allocated with the job, so without room it starts,
 * too. */
#include "server/jobs/registry_priv.h"

#include "config/limits.h"

enum { JOB_SLACK = 64 << 10 }; /* bytes in pages that allocations of the job share with others */

struct stripe_params registry_stripe(const struct job *j, unsigned lane)
{
	const struct control_hello *f = &j->first;
	struct stripe_params p = {
	    .job = j->id,
	    .generation = f->generation,
	    .lane = lane,
	    .world_size = f->world_size,
	    .chunk_bytes = f->chunk_bytes,
	    .decoded_bytes = f->decoded_bytes,
	    .window = j->window,
	    .priorities = f->priorities,
	    .deterministic = f->deterministic,
	    .checksum = f->checksum,
	    .retain = f->retain,
	    .groups = f->groups,
	    .uplinks = f->groups ? f->uplinks : 0,
	};

	if (j->memory)
		p.memory = j->memory + lane * stripe_memory(&p);
	return p;
}

uint64_t registry_bound(const struct registry *r, const struct job *j, uint64_t *ret_slots)
{
	struct stripe_params p = registry_stripe(j, 0);
	uint64_t world = j->first.world_size, lanes = j->first.lanes, bytes;

	if (__builtin_mul_overflow(stripe_memory(&p), lanes, ret_slots))
		*ret_slots = UINT64_MAX;
	/* cannot overflow, because world size, lanes and tables are limited */
	bytes = sizeof *j + world * sizeof *j->members + JOB_SLACK +
		lanes * (stripe_overhead(&p) + (world + p.uplinks) * r->opt.connection_bytes);
	return __builtin_add_overflow(bytes, *ret_slots, &bytes) ? UINT64_MAX : bytes;
}

/* Returns the largest window that a rank would use, or less if a rank takes no such one;
 * that of HELLO if a rank cannot read another one in START. */
static uint32_t wanted_window(const struct registry *r, const struct job *j)
{
	uint64_t features = r->opt.features & FEATURE_START ? r->opt.features : 0;
	uint32_t wanted = j->first.window, most = RS_WINDOW_MAX;

	for (unsigned i = 0; i < j->first.world_size; i++) {
		const struct member *m = &j->members[i];

		features &= m->features;
		wanted = m->window > wanted ? m->window : wanted;
		most = m->most < most ? m->most : most;
	}
	wanted = wanted < most ? wanted : most;
	return features & FEATURE_START && features & FEATURE_WINDOWS ? wanted : j->first.window;
}

/* Returns the largest window up to `most`, in halves, whose memory is free; *ret_bound
 * and *ret_slots: as registry_bound(). The memory of the job as it is counts as free. */
static uint32_t fitting_window(const struct registry *r, const struct job *j, uint32_t most, uint64_t *ret_bound,
			       uint64_t *ret_slots)
{
	uint64_t others = r->memory - j->bound, room = r->opt.limits.memory_bytes;

	room = room > others ? room - others : 0;
	for (; most > j->first.window; most = most / 2) {
		struct job wider = *j;

		wider.window = most;
		*ret_bound = registry_bound(r, &wider, ret_slots);
		if (*ret_bound <= room)
			return most;
	}
	return j->first.window;
}

bool registry_widen(struct registry *r, struct job *j)
{
	uint64_t bound, slots;
	uint32_t window = fitting_window(r, j, wanted_window(r, j), &bound, &slots);
	uint8_t *memory;

	if (window <= j->first.window)
		return false;
	memory = r->opt.alloc(r->opt.ctx, slots);
	if (!memory)
		return false;
	/* lanes use it from START on only */
	r->opt.free(r->opt.ctx, j->memory, j->memory_len);
	r->memory += bound - j->bound;
	j->memory = memory;
	j->memory_len = slots;
	j->bound = bound;
	j->window = window;
	return true;
}
