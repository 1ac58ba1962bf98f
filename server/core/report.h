/* SPDX-License-Identifier: Apache-2.0 */
/* What a lane has counted, copied out for whoever asks: the lane's thread makes it, any other thread may read it. */
#ifndef RS_SERVER_CORE_REPORT_H
#define RS_SERVER_CORE_REPORT_H

#include <stdbool.h>
#include <stdint.h>

struct lane;

/* What one connection, or all of a lane, have moved. Totals only grow; the difference of two is what was between. */
struct lane_count {
	uint64_t bytes_in, bytes_out; /* frames with their headers */
	uint64_t chunks;              /* contributions that are complete */
	uint64_t late_ms;   /* sum over them: from when the first rank began the chunk until this one was done */
	uint64_t waited_ms; /* for how long chunks that others had begun waited for this rank alone or with
			       others; of chunks at the same time the time counts once */
};

struct lane_report_session {
	unsigned rank;
	struct lane_count total, second;
	unsigned outstanding; /* chunks of it whose result has not gone to it completely */
	uint32_t silent_ms;   /* since something came from it */
	uint32_t missing_ms;  /* for how long the oldest chunk has waited for it; 0: it does not */
};

/* One lane of one job; its sessions are `sessions_n` in a row from `sessions` on. */
struct lane_report_stripe {
	uint64_t job;
	unsigned lane; /* of the job */
	unsigned sessions, sessions_n;
	uint64_t chunks;     /* complete: all ranks' parts of it have come */
	uint64_t operations; /* 1 + the highest number of an operation with such a chunk */
};

struct lane_report {
	unsigned thread;      /* which of the reducer's lanes; set by the driver */
	uint32_t busy_permil; /* processor time of its thread in the last second; set by the driver */
	uint32_t second_ms;   /* how long the `second` of all counts was; 0: there was none yet */
	struct lane_count total, second;
	struct lane_report_stripe *stripes;
	struct lane_report_session *sessions;
	unsigned stripes_n, sessions_n;
};

/* NULL: no memory. Released with free(). */
struct lane_report *lane_report_new(const struct lane *l, uint64_t now_ms);

static inline void lane_count_add(struct lane_count *to, const struct lane_count *c)
{
	to->bytes_in += c->bytes_in;
	to->bytes_out += c->bytes_out;
	to->chunks += c->chunks;
	to->late_ms += c->late_ms;
	to->waited_ms += c->waited_ms;
}

#endif
