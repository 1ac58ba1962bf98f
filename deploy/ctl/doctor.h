/* SPDX-License-Identifier: Apache-2.0 */
/* What is wrong with the jobs of a few processes, and what to do. Counters say what has
 * happened since a job began, so the rules compare two looks at a process: what has
 * happened in that window. Between two looks something is always late; a verdict is what
 * holds in most of several windows. Rules only: no I/O, no clock. */
#ifndef RS_DEPLOY_CTL_DOCTOR_H
#define RS_DEPLOY_CTL_DOCTOR_H

#include "proto/reduction.pb-c.h"

#include <stdbool.h>
#include <stddef.h>

enum {
	/* A rank is late if the others waited for it in at least a tenth of the time, and
	 * three times as long as for the mean of the other ranks. One rank is the last
	 * with every chunk, also when all are equally fast. */
	LATE_PERMIL = 100,
	LATE_TIMES = 3,
	MISSING_MS = 1000, /* or if a chunk has waited for it this long */

	BUSY_PERMIL = 900,           /* of a lane whose core is exhausted */
	STARVED_PERMIL = 200,        /* of a lane that waits for a core, which others have */
	RETRANSMITS_PERMIL = 1,      /* of the segments, above which the network loses packets */
	RETRANSMITS_MIN = 4,         /* in a window */
	SMALL_BYTES = 4096,          /* mean contribution below which operations are small */
	SMALL_PER_S = 2000,          /* contributions a second, below which that does not matter */
	SLOTS_PERMIL = 950,          /* of the slots in use */
	SENDING_US = 5000,           /* mean time of sending above which the way to the ranks is slow */
	WINDOW_ROUND_TRIP_US = 2000, /* below it the window is not what limits */
	SLOW_US = 2000,              /* mean time of a chunk in a reducer below which it is not slow */
	SLOW_PERCENT = 150,          /* of the mean time of the job's other reducers, above which it is */
	SLOW_CHUNKS = 8,             /* in a window, below which a mean says nothing */
	RETURNS_MANY = 3,            /* losses of a reducer in one job after which it is not the process alone */
	RETURNS_MS = 10 * 60000,     /* since the last return, after which that is over */
	GATHERING_MS = 3000,         /* in which the ranks of a job meet */
	FINDINGS_MAX = 64,
	PACES_MAX = 256,
	WATCHED_MAX = 256,
	PAST_MS = 5 * 60000,  /* for which a refusal, or the end of a job, is a finding */
	REFUSED_MS = 60000,   /* for which a refusal is an urgent one */
	PAST_ENDS = 8,        /* the latest ends of jobs of a process */
	PAST_REFUSALS = 8,    /* the latest jobs whose workers were refused */
	FINDING_ACTION = 320, /* bytes of what to do */
};

/* One thing that is wrong. Findings with a higher score come first. Those of several
 * windows are the same if id, job, process and what are equal. */
struct finding {
	const char *id;   /* for programs: "rank-late" */
	unsigned score;   /* 1 to 1000: about the share of time that it costs, in thousandths */
	bool is_fact;     /* one look suffices; otherwise it must hold in most windows */
	unsigned rank;    /* 1 + the rank that it is about; 0: none */
	unsigned held;    /* of a verdict: number of windows in which it was so */
	char job[256];    /* "": of the process */
	char process[64]; /* that has shown it */
	char what[256];   /* names the subject, no measured value */
	char evidence[440];
	char action[FINDING_ACTION];
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

/* The findings of all windows so far. Invariant: of the same finding there is one entry,
 * the newest; last[i] is the number of its window, from 1 on. */
struct doctor_watch {
	struct finding at[WATCHED_MAX];
	unsigned last[WATCHED_MAX];
	unsigned n, windows;
};

/* Adds what is wrong with a reducer or an agent according to two looks; `name` is its
 * name. `before` NULL: there is one look, which shows only facts. */
void doctor_look(struct findings *all, const Reduction__V1__StatusReply *before,
		 const Reduction__V1__StatusReply *after, const char *name);

/* Adds what shows only when the reducers of a job are compared. To be called once for
 * each window, after doctor_look for all of them. */
void doctor_compare(struct findings *all);

/* Adds what is wrong with the settings of its machine if links of jobs are long. Nothing
 * in a network within one building. */
void doctor_look_far(struct findings *all, const Reduction__V1__StatusReply *m, const char *name);

/* Adds the relays that are slow, as the reducer `name` sees them, by two looks at a job,
 * `ms` apart. */
void doctor_look_relays(struct findings *all, const Reduction__V1__JobStatus *before,
			const Reduction__V1__JobStatus *job, const char *name, uint64_t ms);

/* Keeps of a slow relay, of late ranks of its group, and of reducers that wait for it,
 * what is the cause. To be called once for each window, after doctor_compare. */
void doctor_settle_relays(struct findings *all);

/* Returns whether the others waited for one of n in so much of the time that it is late;
 * `all` is the sum over all of them, in thousandths. */
bool doctor_stands_out(uint64_t permil, uint64_t all, size_t n);

/* Adds a process that has not answered; `why` is the sentence about it. */
void doctor_no_answer(struct findings *all, const char *name, const char *why);

/* A finding that needs one look; the fields are those of struct finding. */
struct fact {
	const char *id;
	unsigned score;
	const char *process, *job, *what, *evidence, *action;
};
void doctor_fact(struct findings *all, const struct fact *fact);

/* How a job has ended before its time. */
struct past_end {
	char job[256], generation[12], reason[320];
	int64_t unix_ms;
	bool narrow; /* because only small messages got through */
};

/* Connections to a job that were refused, the last one as it was. */
struct past_refusal {
	char job[256]; /* "": not known */
	unsigned n;
	int64_t unix_ms;
	char peer[80], why[320];
};

/* What the past events of a process say. The caller sets now_ms, by the clock of that
 * process, and nothing else. Invariant: `ends` has one entry for each generation of a
 * job, the oldest first; none of a job that has begun again since. `refusals` has one
 * entry for each job; none of a job that has started since. */
struct doctor_past {
	int64_t now_ms;
	struct past_end ends[PAST_ENDS];
	unsigned ends_n;
	struct past_end last; /* job that has ended; its reason: how; unix_ms 0: none */
	struct past_refusal refusals[PAST_REFUSALS];
	unsigned refusals_n;
};

/* Adds an event. To be called in their order. Records of ended jobs come first: a process
 * keeps them longer. */
void doctor_past_event(struct doctor_past *p, const Reduction__V1__Event *ev);

/* Adds what the events show; `job` NULL: of all jobs. */
void doctor_past_end(const struct doctor_past *p, struct findings *all, const char *name, const char *job);

/* Adds the findings of a window. */
void doctor_watch_add(struct doctor_watch *w, const struct findings *window);

/* Writes the verdicts: what held in at least three quarters of the windows, and the facts
 * of the last window. A finding that several processes have shown is there once. */
void doctor_watch_end(const struct doctor_watch *w, struct findings *ret);

/* True if the rank is late in the last second, see LATE_PERMIL. */
bool doctor_is_late(const Reduction__V1__JobStatus *job, const Reduction__V1__RankStatus *rank);

/* Adds a finding in its place, if there is room or it is worse than the last one. */
void findings_put(struct findings *all, const struct finding *f);

#endif
