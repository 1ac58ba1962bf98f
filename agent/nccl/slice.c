/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/nccl/slice.h"

static size_t smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

unsigned slice_split(const struct slice *w, struct slice_run runs[SLICE_RUNS])
{
	size_t end = w->offset + w->bytes, at = w->offset;
	unsigned n = 0;

	while (at < end) {
		size_t rank = at / w->part, within = at % w->part, whole = (end - at) / w->part;
		struct slice_run *r = &runs[n++];

		*r = (struct slice_run){.at = at - w->offset, .first = (unsigned)rank, .parts = 1};
		if (within || !whole) {
			r->part = smaller(w->part - within, end - at);
		} else {
			r->part = w->part;
			r->parts = (unsigned)whole;
		}
		at += r->part * r->parts;
	}
	return n;
}

size_t slice_own(const struct slice *w, unsigned rank)
{
	size_t begin = rank * w->part, end = begin + w->part, last = w->offset + w->bytes;

	begin = begin > w->offset ? begin : w->offset;
	end = smaller(end, last);
	return end > begin ? end - begin : 0;
}
