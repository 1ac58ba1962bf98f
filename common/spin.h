/* SPDX-License-Identifier: Apache-2.0 */
/* Polling for a short while before sleeping. To sleep and be woken takes 5 to 25 us, most
 * of it when the processor was idle; a small all-reduce takes 50 us. Between polls the
 * thread yields the processor. After a wait in which polling found nothing, the next
 * waits sleep at once, and more of them each time, so that a thread with long waits
 * spends almost no time on polling.
 *
 *     bool look = rs_spin_begin(&spin, now());
 *     while (!(found = poll(0)) && look)
 *             look = rs_spin_more(&spin, now());
 *     if (found) rs_spin_found(&spin); else sleep();
 *
 * A loop that sleeps only when rs_spin_stay_awake returns false:
 *
 *     stay = rs_spin_stay_awake(&spin, found, now()); */
#ifndef RS_COMMON_SPIN_H
#define RS_COMMON_SPIN_H

#include <stdbool.h>
#include <stdint.h>

enum {
	RS_SPIN_NS = 100000,  /* nanoseconds of polling in one wait */
	RS_SPIN_PAUSE = 1024, /* most waits that sleep at once between two that poll */
};

/* The state of one thread's waits. Starts as zeroes. Invariant: left <= pause <=
 * RS_SPIN_PAUSE. */
struct rs_spin {
	uint64_t from_ns;
	uint32_t pause; /* waits that sleep at once after the last wait in which polling found nothing */
	uint32_t left;  /* how many of them remain */
	bool awake;     /* what rs_spin_stay_awake returned last */
};

/* Begins a wait. False: the caller should sleep at once. */
bool rs_spin_begin(struct rs_spin *s, uint64_t now_ns);
/* Called after a poll that found nothing. Yields the processor and returns true, or
 * returns false: time to sleep. */
bool rs_spin_more(struct rs_spin *s, uint64_t now_ns);
/* Called when polling found something before the sleep. */
void rs_spin_found(struct rs_spin *s);

/* Called at each turn of a loop. `found`: something arrived after which more may follow
 * soon; another wait begins. Returns whether the loop should go on without sleeping. */
bool rs_spin_stay_awake(struct rs_spin *s, bool found, uint64_t now_ns);

#endif
