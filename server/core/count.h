/* SPDX-License-Identifier: Apache-2.0 */
/* Counters of one connection, or of all connections of a lane, and histograms of the
 * times of chunks. */
#ifndef RS_SERVER_CORE_COUNT_H
#define RS_SERVER_CORE_COUNT_H

#include <stdint.h>

/* Totals never decrease. The difference of two copies is what happened between them. */
struct lane_count {
	uint64_t bytes_in, bytes_out; /* frames with their headers */
	uint64_t chunks;              /* complete contributions */
	uint64_t
	    late_ms; /* sum over the chunks: from the first rank's first byte to the end of this rank's contribution */
	uint64_t waited_ms;   /* time in which chunks that other ranks had started waited for this rank, alone or with
			       * other ranks; time in which several chunks wait counts once */
	uint64_t last_chunks; /* complete chunks of which this rank's contribution was the last */
	uint64_t nan_operations, infinite_operations; /* as in struct control_nonfinite */
	uint64_t served_ns;                           /* time that the lane's thread has spent on it */
	uint64_t retransmits; /* TCP segments that were sent again to this rank; the driver reports them */
};

enum {
	TIMES_BUCKETS = 22, /* 16 us, 32 us, ... up to 16.8 s, each twice the one before; and everything above */
};

/* A histogram of times. Invariant: the sum of n is the number of times that were
 * added. */
struct lane_times {
	uint64_t n[TIMES_BUCKETS]; /* of bucket i: above the limit of bucket i - 1 and up to its own */
	uint64_t sum_us;
};

/* Returns the upper limit of a bucket in microseconds. The last bucket has none. */
static inline uint64_t lane_times_limit_us(unsigned bucket)
{
	return UINT64_C(16) << bucket;
}

static inline void lane_times_put(struct lane_times *t, uint64_t us)
{
	unsigned bits = us > 16 ? 64 - (unsigned)__builtin_clzll(us - 1) : 4; /* us <= 1 << bits */
	unsigned bucket = bits - 4;

	t->n[bucket < TIMES_BUCKETS ? bucket : TIMES_BUCKETS - 1]++;
	t->sum_us += us;
}

static inline void lane_times_add(struct lane_times *to, const struct lane_times *t)
{
	for (unsigned i = 0; i < TIMES_BUCKETS; i++)
		to->n[i] += t->n[i];
	to->sum_us += t->sum_us;
}

/* The times of the chunks of a job, from the first byte of the first contribution to the
 * last byte of the last result.
 */
struct chunk_times {
	struct lane_times waiting; /* until the contributions of all ranks are complete */
	struct lane_times summing; /* of this, time in which the lane worked on it: added contributions, made the result
				    */
	struct lane_times sending; /* from then on */
};

static inline void lane_count_add(struct lane_count *to, const struct lane_count *c)
{
	to->bytes_in += c->bytes_in;
	to->bytes_out += c->bytes_out;
	to->chunks += c->chunks;
	to->late_ms += c->late_ms;
	to->waited_ms += c->waited_ms;
	to->last_chunks += c->last_chunks;
	to->nan_operations += c->nan_operations;
	to->infinite_operations += c->infinite_operations;
	to->served_ns += c->served_ns;
	to->retransmits += c->retransmits;
}

#endif
