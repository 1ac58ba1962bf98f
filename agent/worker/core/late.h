/* SPDX-License-Identifier: Apache-2.0 */
/* When a worker warns that an operation is late.
 *
 * A reducer counts the time in which its oldest chunk lacks the part of a rank. A long
 * operation is not late by that, since its chunks change. But ranks that compute for
 * minutes between operations do not end at the same time. So a worker measures its own
 * pauses: the time without an operation, which does not contain the wait for others. The
 * estimate follows a longer pause at once and a shorter one by a quarter of the
 * difference, since several operations may come together after one pause. An operation is
 * late after LATE_WARN_MS, or after half of that pause if it is longer. */
#ifndef RS_AGENT_WORKER_CORE_LATE_H
#define RS_AGENT_WORKER_CORE_LATE_H

#include <stdbool.h>
#include <stdint.h>

enum { LATE_WARN_MS = 10000 /* least wait before a warning, and between two warnings */ };

/* All zeros at first. */
struct late_watch {
	uint64_t idle_ms;  /* since when no operation is pending; 0: one is, or the job has not started */
	uint64_t pause_ms; /* estimate of the time between operations */
	uint64_t next_ms;  /* no warning before this time */
	uint64_t next_seq; /* nor of operations below this seq */
};

/* Another generation of the job begins: pauses are as before. */
void late_begin(struct late_watch *w);
/* No operation is pending from now on. */
void late_idle(struct late_watch *w, uint64_t now_ms);
/* An operation was submitted. */
void late_busy(struct late_watch *w, uint64_t now_ms);
/* A reducer says that operation `seq` has waited so long for other ranks. Returns whether
 * to warn, which is then remembered. */
bool late_warns(struct late_watch *w, uint64_t seq, uint64_t waited_ms, uint64_t now_ms);

#endif
