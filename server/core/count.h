/* SPDX-License-Identifier: Apache-2.0 */
/* Counters of one connection, or of all connections of a lane. */
#ifndef RS_SERVER_CORE_COUNT_H
#define RS_SERVER_CORE_COUNT_H

#include <stdint.h>

/* Totals never decrease. The difference of two copies is what happened between them. */
struct lane_count {
	uint64_t bytes_in, bytes_out; /* frames with their headers */
	uint64_t chunks;              /* complete contributions */
	uint64_t
	    late_ms; /* sum over the chunks: from the first rank's first byte to the end of this rank's contribution */
	uint64_t waited_ms; /* time in which chunks that other ranks had started waited for this rank, alone or with
			     * other ranks; time in which several chunks wait counts once */
};

static inline void lane_count_add(struct lane_count *to, const struct lane_count *c)
{
	to->bytes_in += c->bytes_in;
	to->bytes_out += c->bytes_out;
	to->chunks += c->chunks;
	to->late_ms += c->late_ms;
	to->waited_ms += c->waited_ms;
}

#endif
