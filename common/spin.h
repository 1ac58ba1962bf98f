/* SPDX-License-Identifier: Apache-2.0 */
/* Looking again and again, for a short while, before going to sleep. To sleep and be woken takes 5 to 25 us, most of it
 * when the processor had nothing else to do, and a small all-reduce takes 50. Between looks the thread gives up the
 * processor to whoever else is there. Where it was in vain the next waits sleep at once, more of them each time, so
 * that a thread whose waits are long wastes nothing to speak of.
 *
 *     bool look = rs_spin_begin(&spin, now());
 *     while (!(came = poll(0)) && look)
 *             look = rs_spin_more(&spin, now());
 *     if (came) rs_spin_came(&spin); else sleep();
 *
 * or in a loop, which sleeps only when rs_spin_awake says so:
 *
 *     stay = rs_spin_awake(&spin, looked_and_found_some, now());
 */
#ifndef RS_COMMON_SPIN_H
#define RS_COMMON_SPIN_H

#include <stdbool.h>
#include <stdint.h>

enum {
	RS_SPIN_NS = 100000,  /* of one wait */
	RS_SPIN_PAUSE = 1024, /* waits that sleep at once between two that do not, at the most */
};

/* One thread's. Starts as zeroes. */
struct rs_spin {
	uint64_t from_ns;
	uint32_t pause; /* so many waits slept at once after the last one in vain */
	uint32_t left;  /* and so many are still to */
	bool awake;     /* rs_spin_awake's last answer */
};

/* A wait begins. False: it had better sleep at once. */
bool rs_spin_begin(struct rs_spin *s, uint64_t now_ns);
/* Nothing has come yet. False: it is time to sleep; else others have had the processor meanwhile. */
bool rs_spin_more(struct rs_spin *s, uint64_t now_ns);
/* What was waited for has come, before the sleep. */
void rs_spin_came(struct rs_spin *s);

/* A loop has come round. `came`: something after which more may follow soon; another wait begins. Returns whether the
 * loop had better not sleep yet. */
bool rs_spin_awake(struct rs_spin *s, bool came, uint64_t now_ns);

#endif
