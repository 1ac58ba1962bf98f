/* SPDX-License-Identifier: Apache-2.0 */
/* What is wrong with the jobs of a status, and what to do. Rules only: no I/O. */
#ifndef RS_DEPLOY_CTL_DOCTOR_H
#define RS_DEPLOY_CTL_DOCTOR_H

#include "proto/reduction.pb-c.h"

#include <stdbool.h>
#include <stddef.h>

enum {
	/* A rank is late if the others waited for it in at least a tenth of the last
	 * second, and three times as long as for the mean of the other ranks. One rank is
	 * the last with every chunk, also when all are equally fast. */
	LATE_PERMIL = 100,
	LATE_TIMES = 3,
	MISSING_MS = 1000, /* or if a chunk has waited for it this long */

	BUSY_PERMIL = 900,      /* of a lane whose core is exhausted */
	STARVED_PERMIL = 200,   /* of a lane that waits for a core, which others have */
	RETRANSMITS_PERMIL = 1, /* of the segments, above which the network loses packets */
	RETRANSMITS_MIN = 20,
	SMALL_BYTES = 4096,          /* mean contribution below which operations are small */
	SMALL_PER_S = 2000,          /* contributions a second, below which that does not matter */
	SLOTS_PERMIL = 950,          /* of the slots in use */
	SENDING_US = 5000,           /* mean time of sending above which the way to the ranks is slow */
	WINDOW_ROUND_TRIP_US = 2000, /* below it the window is not what limits */
	SLOW_US = 2000,              /* mean time of a chunk in a reducer below which it is not slow */
	SLOW_PERCENT = 150,          /* of the mean time of the job's other reducers, above which it is */
	RETURNS_MANY = 3,            /* losses of a reducer in one job after which it is not the process alone */
	RETURNS_MS = 10 * 60000,     /* since the last return, after which that is over */
	FINDINGS_MAX = 64,
	PACES_MAX = 256,
};

/* One thing that is wrong. Findings with a higher score come first. */
struct finding {
	const char *id; /* for programs: "rank-late" */
	unsigned score; /* 1 to 1000: about the share of time that it costs, in thousandths */
	char job[256];  /* "": of the process */
	char what[256], evidence[256];
	const char *action;
};

/* Mean time of a chunk of a job in a reducer, from its first byte to the last result. */
struct pace {
	char job[256], name[64];
	uint64_t us;
};

/* The list of findings, and what doctor_compare needs. Invariant: n <= FINDINGS_MAX, the
 * highest score first. */
struct findings {
	struct finding at[FINDINGS_MAX];
	unsigned n;
	struct pace paces[PACES_MAX];
	unsigned paces_n;
};

/* Adds what is wrong according to the status of one reducer or agent; `name` is its
 * name. */
void doctor_look(struct findings *all, const Reduction__V1__StatusReply *m, const char *name);

/* Adds what shows only when the reducers of a job are compared. To be called after
 * doctor_look for all of them. */
void doctor_compare(struct findings *all);

/* True if the rank is late, see LATE_PERMIL. */
bool doctor_is_late(const Reduction__V1__JobStatus *job, const Reduction__V1__RankStatus *rank);

#endif
