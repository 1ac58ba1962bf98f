/* SPDX-License-Identifier: Apache-2.0 */
/* Deadlines of connections in the handshake, in three queues. A connection waits until
 * its peer has identified itself. One that was part of a job before is kept: its worker
 * has more time. A refused connection leaves: it stays open until its peer has read the
 * reason. Without I/O and clock; one thread. */
#ifndef RS_SERVER_JOIN_DEADLINES_H
#define RS_SERVER_JOIN_DEADLINES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

enum {
	DEADLINES_TICK_MS = 100,   /* interval at which a driver looks for passed deadlines */
	DEADLINES_LEAVE_MS = 1000, /* time of a connection that leaves */
	DEADLINES_KEEP_MS = 60000, /* time of a connection that is kept */
};

/* First member of a driver's connection. It is in one of the queues from deadlines_add or
 * deadlines_keep to deadlines_remove. */
struct deadline {
	TAILQ_ENTRY(deadline) link;
	uint64_t at_ms;
	bool leaves; /* it was refused; else it waits */
	bool kept;   /* it waits, and was part of a job before */
};

/* A queue of n deadlines. */
struct deadline_queue {
	TAILQ_HEAD(deadline_list, deadline) list;
	unsigned n;
};

/* Invariant: at_ms never decreases along a queue. All entries of a queue get the same
 * time, and the clock does not go back. */
struct deadlines {
	uint32_t wait_ms; /* time of a connection that waits */
	struct deadline_queue waiting, kept, leaving;
};

void deadlines_init(struct deadlines *all, uint32_t wait_ms);
/* Adds a connection that waits from now on. */
void deadlines_add(struct deadlines *all, struct deadline *d, uint64_t now_ms);
/* Adds a connection that is kept from now on. */
void deadlines_keep(struct deadlines *all, struct deadline *d, uint64_t now_ms);
/* Moves a connection to the queue of those that leave. */
void deadlines_leave(struct deadlines *all, struct deadline *d, uint64_t now_ms);
void deadlines_remove(struct deadlines *all, struct deadline *d);

/* Returns an entry whose deadline has passed; NULL: none. The caller repeats until NULL,
 * and each time removes the entry or lets it leave. */
struct deadline *deadlines_due(const struct deadlines *all, uint64_t now_ms);
/* Returns the entry that gives up its place first: the oldest one that leaves, else the
 * oldest one that waits, else the oldest one that is kept. NULL: there is none. */
struct deadline *deadlines_oldest(const struct deadlines *all);
/* Returns the number of entries in all queues. */
unsigned deadlines_count(const struct deadlines *all);

#endif
