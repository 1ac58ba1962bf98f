/* SPDX-License-Identifier: Apache-2.0 */
/* What a reducer knows of its jobs, ranks and lanes at one moment: the registry's part, to which each lane's report is
 * added. For the control service, and whoever else shows it. One thread at a time; nothing in it is shared. */
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
	STATUS_TRANSPORT = 16, /* bytes of "tcp", "grpc", "tcp+tls", .. */
};

enum status_state {
	STATUS_GATHERING, /* ranks are missing */
	STATUS_RUNNING,
	STATUS_DRAINING, /* it runs, and has been asked to go on without this reducer */
	STATUS_ENDED,    /* its last ranks have yet to leave */
	STATUS_STATES,
};

struct status_rank {
	char label[CONTROL_LABEL]; /* who it says it is */
	char peer[STATUS_PEER];    /* where its newest connection came from */
	char transport[STATUS_TRANSPORT];
	unsigned lanes; /* that it has joined */
	uint32_t processes;
	struct lane_count total, second; /* of all lanes; waited_ms: of the lane where it is most */
	unsigned outstanding;
	uint32_t silent_ms;  /* of the lane that heard from it last; UINT32_MAX: none has it yet */
	uint32_t missing_ms; /* of the lane where it is most */
};

struct status_job {
	uint64_t id;
	char name[CONTROL_JOB];
	uint32_t generation;
	enum status_state state;
	struct rs_err why;   /* ENDED */
	uint64_t age_ms;     /* since its first rank came */
	uint64_t running_ms; /* since all had come; 0: not yet */
	uint64_t memory;     /* most bytes that it can take */
	uint64_t processes;  /* behind the ranks that are there */
	uint32_t chunk_bytes, window, priorities, lanes;
	bool deterministic, checksum, retain;
	uint64_t operations, chunks; /* as in struct lane_report_stripe: the highest of all lanes, the sum of them */
	struct lane_count total, second; /* of all ranks; waited_ms is not summed */
	struct status_rank *ranks;       /* [world_size]; owned */
	uint32_t world_size, joined;     /* joined: with all lanes */
};

struct status_lane {
	unsigned connections;
	uint32_t busy_permil;
	struct lane_count total, second;
};

/* What the driver knows of the process. */
struct status_server {
	char software[64], address[RS_ADDRESS_MAX], grpc[RS_ADDRESS_MAX], cpu[16];
	int64_t unix_ms; /* the time of day */
	uint64_t up_ms;
	bool draining;
	uint32_t drain_left_ms; /* until jobs that still run are ended */
	unsigned connections, connections_max, jobs_max;
	uint64_t memory, memory_max; /* bounds of all jobs, and their limit */
};

struct status {
	struct status_server server;
	struct status_job *jobs; /* owned, in the order in which they opened */
	unsigned jobs_n;
	struct status_lane *lanes; /* owned */
	unsigned lanes_n;
	uint32_t second_ms; /* over how long the rates were counted: of the lane with the longest */
};

/* Room for so many jobs, all empty, and lanes. NULL: no memory. */
struct status *status_new(unsigned jobs, unsigned lanes);
/* Room for the ranks of a job that has world_size set. False: no memory. */
bool status_job_ranks(struct status_job *job);
/* Adds what a lane has counted. Jobs and ranks that the status does not know have gone or come since: they are left
 * out. */
void status_add(struct status *st, const struct lane_report *report);
void status_free(struct status *st);

/* "gathering", "running", .. */
const char *status_state_name(enum status_state state);

#endif
