/* SPDX-License-Identifier: Apache-2.0 */
/* Connections that have not become anybody's, in the order of their deadlines: they wait until their peer has said who
 * it is, and those that were refused leave, which takes until their peer has read why. Without I/O or a clock; one
 * thread owns it. */
#ifndef RS_SERVER_JOIN_DEADLINES_H
#define RS_SERVER_JOIN_DEADLINES_H

#include <stdbool.h>
#include <stdint.h>

enum {
	DEADLINES_TICK_MS = 100,   /* how often a driver looks for those whose time is over */
	DEADLINES_LEAVE_MS = 1000, /* that those who leave have for it */
};

/* First member of a driver's connection, which is in one of the two queues from deadlines_add to deadlines_remove. */
struct deadline {
	struct deadline *next, *prev;
	uint64_t at_ms;
	bool leaves; /* it was refused; else it waits */
};

struct deadline_queue {
	struct deadline *first, *last;
	unsigned n;
};

/* Invariant: at_ms never decreases along a queue, since all of one queue get the same time and the clock does not go
 * back. */
struct deadlines {
	uint32_t wait_ms; /* that those who wait have */
	struct deadline_queue waiting, leaving;
};

void deadlines_init(struct deadlines *all, uint32_t wait_ms);
/* It waits from now on. */
void deadlines_add(struct deadlines *all, struct deadline *d, uint64_t now_ms);
/* One that waits leaves from now on. */
void deadlines_leave(struct deadlines *all, struct deadline *d, uint64_t now_ms);
void deadlines_remove(struct deadlines *all, struct deadline *d);

/* One whose time is over; NULL: there is none. To be called until then, each being removed or told to leave. */
struct deadline *deadlines_due(const struct deadlines *all, uint64_t now_ms);
/* Whose place another one may have first: of those that leave the one that has done so for longest, else of those that
 * wait. NULL: there is none at all. */
struct deadline *deadlines_oldest(const struct deadlines *all);
/* Of both. */
unsigned deadlines_count(const struct deadlines *all);

#endif
