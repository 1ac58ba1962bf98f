/* SPDX-License-Identifier: Apache-2.0 */
/* Samples of a process's status over the last hour, in fixed memory: a new one replaces
 * the oldest. One thread owns it. */
#ifndef RS_COMMON_HOST_SERVICE_HISTORY_H
#define RS_COMMON_HOST_SERVICE_HISTORY_H

#include "proto/reduction.pb-c.h"

enum {
	HISTORY_KEPT = 360,
	HISTORY_MS = 10000, /* from one sample to the next */
};

/* A ring. Invariant: the sample with the number n is at kept[n % HISTORY_KEPT]. */
struct history {
	uint64_t next;           /* number of the next sample */
	uint64_t received, sent; /* by the process when the last sample was taken */
	uint64_t up_ms;          /* how old it was */
	Reduction__V1__Sample kept[HISTORY_KEPT];
	Reduction__V1__Sample *order[HISTORY_KEPT]; /* for history_put */
};

/* Adds a sample of a complete status of a reducer or an agent. */
void history_add(struct history *h, const Reduction__V1__StatusReply *m);
/* Lets m->samples be all samples, the oldest first. They are borrowed until the next
 * history_add. */
void history_put(struct history *h, Reduction__V1__StatusReply *m);

#endif
