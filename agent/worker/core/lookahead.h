/* SPDX-License-Identifier: Apache-2.0 */
/* How many chunks of a link may be without a result in a job with relays. A chunk is on
 * four hops there: to the relay, to the home, and back. Contributions that run ahead take
 * the ports of reducers from sums of groups, for which others wait: 16 MiB in two racks
 * at 4:1, MB/s: 21.9 with 4 chunks on each link, 18.9 with 24. So one on each hop is
 * enough while hops are short. Where the home is far, in another zone, as many are needed
 * as fit into the time of these hops.
 *
 * As the window (window.h), this follows the delay, but that of chunks: TCP knows nothing
 * of what is behind the relay. It grows while the quickest result of a round, which has
 * as many results as the limit, is about as quick as any result was, and shrinks when it
 * takes half as long again (TCP Vegas: Brakmo, Peterson 1995). The wait for a slow rank
 * looks like a full queue; then the slow rank decides, and there is nothing to gain. */
#ifndef RS_AGENT_WORKER_CORE_LOOKAHEAD_H
#define RS_AGENT_WORKER_CORE_LOOKAHEAD_H

#include <stdbool.h>
#include <stdint.h>

enum {
	LOOKAHEAD_HOPS = 4,    /* the least limit */
	LOOKAHEAD_ROOM_MS = 1, /* a delay so much above the smallest one, or a quarter of that, is no queue */
	LOOKAHEAD_FULL_MS = 4, /* so much above it, or half of it, is one */
};

/* Invariant: limit >= LOOKAHEAD_HOPS; results < limit. */
struct lookahead {
	uint32_t limit;    /* most chunks without a result */
	uint32_t results;  /* in this round */
	uint32_t round_ms; /* smallest delay in this round */
	uint32_t least_ms; /* smallest delay ever */
	bool held;         /* the limit held a chunk back in this round */
	bool starting;     /* no queue was seen yet: the limit doubles */
};

/* For a new connection, and after each change of the view, with which chunks may take
 * other ways. */
void lookahead_init(struct lookahead *a);
/* The result of a chunk has come, delay_ms after the chunk was sent. The limit does not
 * become larger than `most`, or than it is. */
void lookahead_result(struct lookahead *a, uint32_t delay_ms, uint32_t most);

#endif
