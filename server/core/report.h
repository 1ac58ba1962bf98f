/* SPDX-License-Identifier: Apache-2.0 */
/* A copy of a lane's counters. The lane's thread creates it; any other thread may read
 * it. */
#ifndef RS_SERVER_CORE_REPORT_H
#define RS_SERVER_CORE_REPORT_H

#include "proto/control.h"
#include "server/core/count.h"

#include <stdbool.h>

struct lane;

/* The counters of one session. */
struct lane_report_session {
	unsigned rank;
	double weight; /* access.weight */
	struct lane_count total, second;
	unsigned outstanding; /* its chunks whose result is not completely sent */
	uint32_t silent_ms;   /* time since the last byte from it */
	uint32_t rtt_us;      /* 0: not known */
	uint32_t min_rtt_us;  /* the same */
	uint32_t missing_ms;  /* time that the oldest chunk has waited for it; 0: it does not wait */
};

/* A connection of a reducer that relays. */
struct lane_report_relay {
	unsigned reducer; /* in the configuration of the job's ranks */
	char id[CONTROL_JOB];
	uint64_t waited_ms, second_waited_ms; /* as in struct lane_count */
	uint32_t min_rtt_us;                  /* 0: not known */
};

/* A reducer that is lost in a job. */
struct lane_report_loss {
	unsigned index;  /* in the configuration of the job's ranks */
	unsigned losses; /* how often it was lost so far */
	uint64_t for_ms;
	char id[CONTROL_JOB], why[CONTROL_WHY]; /* "": not known */
	bool narrow;                            /* only small messages came through */
	bool empty;                             /* its slot is empty */
};

/* One lane of one job. Its sessions are `sessions_n` entries of the report's `sessions`,
 * the first of which has the index `sessions`. */
struct lane_report_stripe {
	uint64_t job;
	unsigned lane; /* of the job */
	unsigned sessions, sessions_n;
	unsigned relays, relays_n; /* the same of the report's `relays` */
	uint64_t chunks;           /* chunks to which all ranks have contributed */
	uint64_t encoded;          /* those of them that were encoded */
	uint8_t up, down;          /* how the last of these was, enum rs_wire */
	uint64_t operations;       /* 1 + the highest number of an operation with such a chunk */
	struct chunk_times times;
	unsigned slots, slots_used;
	unsigned reducers;         /* of the job; 0: not known, none was lost so far */
	unsigned losses, losses_n; /* entries of the report's `losses`: the reducers that are lost */
	uint32_t epoch;            /* how often rank 0 has set shares; 0: never */
	unsigned shares;           /* with an epoch: the first of `reducers` entries of the report's `shares` */
};

/* One allocation contains the report and its arrays. */
struct lane_report {
	unsigned thread;         /* number of the reducer's lane; the driver sets it */
	uint32_t busy_permil;    /* processor time of its thread in the last second; the driver sets it */
	uint32_t starved_permil; /* time in which its thread waited for a core; the driver sets it */
	uint32_t second_ms;      /* length of the `second` of all counts; 0: no second has passed yet */
	struct lane_count total, second;
	struct lane_report_stripe *stripes;
	struct lane_report_session *sessions;
	struct lane_report_relay *relays;
	struct lane_report_loss *losses;
	uint32_t *shares;
	unsigned stripes_n, sessions_n, relays_n, losses_n, shares_n;
};

/* Returns a report that the caller releases with free(); NULL: no memory. */
struct lane_report *lane_report_new(const struct lane *l, uint64_t now_ms);

/* Ends a second: the `second` of each session becomes what it has counted since the last
 * call. */
void lane_count_second(struct lane *l, uint64_t now_ms);

#endif
