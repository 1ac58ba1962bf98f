/* SPDX-License-Identifier: Apache-2.0 */
/* The status of a reducer's jobs, ranks and lanes at one moment, for the control service:
 * the registry's part, to which each lane's report is added. One thread at a time;
 * nothing in it is shared. */
#ifndef RS_SERVER_JOBS_STATUS_H
#define RS_SERVER_JOBS_STATUS_H

#include "common/host/service/status_reply.h"
#include "server/core/report.h"

#include <stdint.h>

/* Reasons for which workers are refused. */
enum status_refusal {
	STATUS_REFUSED_POLICY,   /* a limit, the lack of a right, or the reducer drains */
	STATUS_REFUSED_MISMATCH, /* it does not fit to the other ranks of its job */
	STATUS_REFUSED_PROTOCOL, /* it broke the protocol, or did not identify itself in time */
	STATUS_REFUSED_OTHER,    /* such as no memory */
	STATUS_REFUSALS,
};

/* How jobs of a reducer end. */
enum status_end {
	STATUS_ENDED_FINISHED,   /* all ranks have closed their communicators */
	STATUS_ENDED_INCOMPLETE, /* its ranks have left before all of them had met */
	STATUS_ENDED_LOST,       /* a rank was lost */
	STATUS_ENDED_MISMATCH,   /* its ranks disagreed */
	STATUS_ENDED_ABORTED,    /* a rank aborted it */
	STATUS_ENDED_NONFINITE,  /* a rank ended it because of NaN or infinity */
	STATUS_ENDED_LEFT,       /* it goes on without this reducer, which drains or cannot serve it */
	STATUS_ENDED_OTHER,
	STATUS_ENDS,
};

/* The whole status. Invariant: until status_finish(), rates and shares of the last second
 * are the counts of this second, silent_ms is UINT32_MAX for a rank that no lane has, and
 * lost[reducers] has NULL for each reducer that is not lost. */
struct status {
	struct status_reply reply;
	uint64_t *ids; /* of reply.m.jobs, in the registry */
};

/* Creates a status with so many lanes, and with room for so many jobs. The caller sets
 * the fields of the process. NULL: no memory. */
struct status *status_new(unsigned jobs, unsigned lanes);
/* Makes entry i of the jobs: a job without counts. NULL: no memory. */
Reduction__V1__JobStatus *status_job(struct status *st, unsigned i, uint64_t id, uint32_t world_size);
/* Adds the report of a lane. Leaves out jobs that are not in the status, because they
 * came or went since. */
void status_add(struct status *st, const struct lane_report *report);
/* Makes rates and shares of the counts, after all reports. Returns the reply. */
struct status_reply *status_finish(struct status *st);
void status_free(struct status *st);

/* Returns how a job has ended, from the reason. */
enum status_end status_end_of(const struct rs_cause *cause);
/* Returns its name in metrics and events. */
const char *status_end_name(enum status_end how);
/* Returns the reason for an error with which a worker was refused. */
enum status_refusal status_refusal_of(int code);

#endif
