/* SPDX-License-Identifier: Apache-2.0 */
/* The status of a reducer's jobs, ranks and lanes at one moment, for the control service: the registry's part, to which
 * each lane's report is added. One thread at a time; nothing in it is shared. */
#ifndef RS_SERVER_JOBS_STATUS_H
#define RS_SERVER_JOBS_STATUS_H

#include "common/error.h"
#include "config/config.h"
#include "proto/control.h"
#include "server/core/report.h"

#include <stdbool.h>
#include <stdint.h>

enum {
	STATUS_PEER = 64,      /* bytes of an address, terminator included; longer ones are cut */
	STATUS_TRANSPORT = 16, /* bytes of "tcp", "grpc", "tcp+tls", ... */
};

enum status_state {
	STATUS_GATHERING, /* ranks are missing */
	STATUS_RUNNING,
	STATUS_DRAINING, /* it runs, and was asked to go on without this reducer */
	STATUS_ENDED,    /* its last ranks are still connected */
	STATUS_STATES,
};

/* Reasons for which workers are refused. */
enum status_refusal {
	STATUS_REFUSED_POLICY,   /* a limit, the lack of a right, or the reducer drains */
	STATUS_REFUSED_MISMATCH, /* it does not fit to the other ranks of its job */
	STATUS_REFUSED_PROTOCOL, /* it broke the protocol, or did not identify itself in time */
	STATUS_REFUSED_OTHER,    /* such as no memory */
	STATUS_REFUSALS,
};

/* One rank of a job. */
struct status_rank {
	char label[CONTROL_LABEL]; /* the name that the worker gave itself */
	char peer[STATUS_PEER];    /* address of its newest connection */
	char transport[STATUS_TRANSPORT];
	unsigned lanes; /* attached lanes */
	uint32_t processes;
	struct lane_count total, second; /* sum of all lanes; waited_ms: of the lane with the most */
	unsigned outstanding;
	uint32_t silent_ms;  /* of the lane with the latest byte; UINT32_MAX: no lane has it yet */
	uint32_t missing_ms; /* of the lane with the most */
	uint32_t rtt_us;     /* of the lane with the most; 0: not known */
};

/* A reducer that is lost in a job: of the lane that has known it for the longest time. */
struct status_loss {
	bool lost;
	uint64_t for_ms;
	char id[CONTROL_JOB], why[CONTROL_WHY]; /* "": not known */
};

/* One generation of a job. */
struct status_job {
	uint64_t id;
	char name[CONTROL_JOB];
	char run[CONTROL_RUN];
	uint32_t generation;
	enum status_state state;
	struct rs_err why;   /* ENDED */
	uint64_t age_ms;     /* since its first rank came */
	uint64_t running_ms; /* since all ranks came; 0: not yet */
	uint64_t memory;     /* most bytes that it can occupy */
	uint64_t processes;  /* training processes of the ranks that joined */
	uint32_t chunk_bytes, window, priorities, lanes;
	bool deterministic, checksum, retain;
	uint64_t operations, chunks; /* as in struct lane_report_stripe: the highest of all lanes, the sum of them */
	struct chunk_times times;
	unsigned slots, slots_used;
	struct lane_count total, second; /* of all ranks; waited_ms: of the rank with the most */
	struct status_rank *ranks;       /* [world_size]; owned */
	uint32_t world_size, joined;     /* joined: ranks with all lanes attached */
	char reducer[CONTROL_JOB];       /* the id that the ranks give this reducer */
	struct status_loss *losses;      /* [reducers]; owned; NULL: none is lost, or no memory */
	unsigned reducers;               /* of the job; 0: not known */
};

/* One lane of the reducer. */
struct status_lane {
	unsigned connections;
	uint32_t busy_permil, starved_permil;
	struct lane_count total, second;
};

/* The process; the driver fills it. */
struct status_server {
	char software[64], address[RS_ADDRESS_MAX], grpc[RS_ADDRESS_MAX], http[RS_ADDRESS_MAX], cpu[16];
	int64_t unix_ms; /* the time of day */
	uint64_t up_ms;
	bool draining;
	uint32_t drain_left_ms; /* until running jobs are ended */
	unsigned connections, connections_max, jobs_max;
	uint64_t memory, memory_max; /* bounds of all jobs, and their limit */
	int64_t certificate_unix_s;  /* when the certificate expires; 0: there is none */
	uint64_t refused[STATUS_REFUSALS];
};

/* The whole status. status_free() frees it. */
struct status {
	struct status_server server;
	struct status_job *jobs; /* owned, the oldest first */
	unsigned jobs_n;
	struct status_lane *lanes; /* owned */
	unsigned lanes_n;
	uint32_t second_ms; /* interval in which rates were counted; the longest of all lanes */
};

/* Creates a status with empty entries for so many jobs and lanes. NULL: no memory. */
struct status *status_new(unsigned jobs, unsigned lanes);
/* Allocates the entries for world_size ranks of a job. Returns false without memory. */
bool status_job_ranks(struct status_job *job);
/* Adds the report of a lane. Leaves out jobs and ranks that are not in the status, because they came or went since. */
void status_add(struct status *st, const struct lane_report *report);
void status_free(struct status *st);

/* Returns the reason for an error with which a worker was refused. */
enum status_refusal status_refusal_of(int code);
/* Returns "policy", "mismatch", ... */
const char *status_refusal_name(enum status_refusal reason);
/* Returns "gathering", "running", ... */
const char *status_state_name(enum status_state state);

#endif
