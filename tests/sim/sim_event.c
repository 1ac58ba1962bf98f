/* SPDX-License-Identifier: Apache-2.0 */
/* Time, random numbers, and the heap of events. */
#include "tests/sim/sim.h"

#include <stdlib.h>

/* splitmix64 (Steele, Lea, Flood 2014) */
uint64_t sim_random(struct sim *s)
{
	uint64_t z = s->rng += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

uint32_t sim_below(struct sim *s, uint32_t n)
{
	return (uint32_t)(((sim_random(s) >> 32) * n) >> 32);
}

bool sim_chance(struct sim *s, unsigned percent)
{
	return sim_below(s, 100) < percent;
}

uint32_t sim_between(struct sim *s, uint32_t least, uint32_t most)
{
	return least + sim_below(s, most - least + 1);
}

static bool before(const struct sim_event *a, const struct sim_event *b)
{
	return a->at_us != b->at_us ? a->at_us < b->at_us : a->tie < b->tie;
}

void sim_at(struct sim *s, uint64_t at_us, enum event_type type, uint32_t a, uint32_t b)
{
	struct sim_event ev = {at_us, (uint32_t)sim_random(s), type, a, b};
	unsigned i = s->heap_n++;

	if (s->heap_n > s->heap_size) {
		s->heap_size = s->heap_size ? 2 * s->heap_size : 1024;
		s->heap = realloc(s->heap, s->heap_size * sizeof *s->heap);
		if (!s->heap)
			abort();
	}
	for (; i > 0 && before(&ev, &s->heap[(i - 1) / 2]); i = (i - 1) / 2)
		s->heap[i] = s->heap[(i - 1) / 2];
	s->heap[i] = ev;
}

void sim_in(struct sim *s, uint64_t in_us, enum event_type type, uint32_t a, uint32_t b)
{
	sim_at(s, s->now_us + in_us, type, a, b);
}

bool sim_next(struct sim *s, struct sim_event *ret)
{
	struct sim_event last;
	unsigned i = 0;

	if (s->heap_n == 0)
		return false;
	*ret = s->heap[0];
	last = s->heap[--s->heap_n];
	for (;;) {
		unsigned child = 2 * i + 1;

		if (child + 1 < s->heap_n && before(&s->heap[child + 1], &s->heap[child]))
			child++;
		if (child >= s->heap_n || !before(&s->heap[child], &last))
			break;
		s->heap[i] = s->heap[child];
		i = child;
	}
	s->heap[i] = last;
	return true;
}
