/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the registry: the structs that registry.c and registry_status.c share. */
#ifndef RS_SERVER_JOBS_REGISTRY_PRIV_H
#define RS_SERVER_JOBS_REGISTRY_PRIV_H

#include "server/jobs/registry.h"

/* One rank of a job. lanes has a bit for each lane that is attached; 0: the rank is absent. */
struct member {
	uint64_t incarnation;
	uint64_t lanes;
	uint32_t processes;
	char label[CONTROL_LABEL];
	char peer[STATUS_PEER];
	char transport[STATUS_TRANSPORT];
};

/* One generation of a job. Invariant: sessions = number of set bits over all members + those of an ended job that
 * are not gone yet. */
struct job {
	struct job *next;
	uint64_t id;
	struct control_hello first; /* the first rank's HELLO: all others must agree with it */
	struct member *members;     /* [first.world_size] */
	unsigned sessions;          /* attached connections */
	unsigned complete;          /* members with all lanes */
	unsigned base;              /* thread of lane 0 */
	bool running, ended;
	uint64_t opened_ms, started_ms;
	struct rs_err why; /* ended */
	uint8_t *memory;
	uint64_t memory_len;
	uint64_t bound; /* bytes of the job altogether, with memory_len */
};

struct registry {
	struct registry_options opt;
	struct job *jobs;
	unsigned jobs_n;
	uint64_t memory; /* bounds of all jobs */
	uint64_t next_id;
	uint64_t now_ms; /* as the driver last said */
	bool draining;
};

/* Training processes behind the ranks that have come. */
uint64_t registry_processes(const struct job *j);

#endif
