/* SPDX-License-Identifier: Apache-2.0 */
/* Fair shares of the time of a lane's thread: deficit round robin (Shreedhar and
 * Varghese, 1995), in time instead of bytes, because many small frames cost as much as
 * large ones. A round is one pass of the lane's loop over its connections. In each one a
 * connection may be read for a time in proportion to its weight; what it takes beyond
 * that is taken from its next rounds. If only such connections have something to read,
 * the next rounds pass at once, until one of them may be read. No I/O and no clock. */
#ifndef RS_SERVER_CORE_SHARE_H
#define RS_SERVER_CORE_SHARE_H

#include <stdbool.h>
#include <stdint.h>

/* What the connections of a lane have in common. */
struct shares {
	uint64_t round;
	bool read;       /* in this round a connection could be read */
	uint64_t until;  /* rounds until the first of those that could not may be read; 0: there are none */
	double heaviest; /* the largest weight; 0: all connections are of one job, which has the lane for itself */
};

/* One connection. credit_ns <= the time of a round. */
struct share {
	double weight;  /* > 0 */
	uint64_t round; /* the last one in which it was read */
	int64_t credit_ns;
};

/* Returns for how many nanoseconds the connection may be read in this round; 0: not at
 * all; UINT64_MAX: there is no limit. */
uint64_t share_begin(struct share *s, struct shares *all);
/* The connection has taken this time, in which this many bytes were moved. Returns the
 * time that it is charged for: without what the bytes cannot have taken, since the thread
 * had no processor then. */
uint64_t share_charge(struct share *s, uint64_t ns, uint64_t bytes);
/* The loop has passed over all connections: the next round begins. */
void shares_next_round(struct shares *all);

#endif
