/* SPDX-License-Identifier: Apache-2.0 */
/* The status of an agent at one moment, for the control service: the hub's part, to which the driver adds the process
 * and the reports of the engines. One thread at a time; nothing in it is shared. */
#ifndef RS_AGENT_NODE_CORE_STATUS_H
#define RS_AGENT_NODE_CORE_STATUS_H

#include "agent/node/core/hub.h"
#include "agent/worker/core/report.h"
#include "config/run.h"

enum local_status_state {
	LOCAL_STATUS_GATHERING, /* local ranks are missing */
	LOCAL_STATUS_STARTING,  /* the other nodes or reducers are missing */
	LOCAL_STATUS_RUNNING,
	LOCAL_STATUS_ENDING, /* all local ranks have left; the connections to the reducers are being closed */
	LOCAL_STATUS_FAILED, /* local ranks are still connected */
	LOCAL_STATUS_STATES,
};

/* One local rank. */
struct local_status_rank {
	unsigned rank, local_rank;
	uint32_t pid;         /* 0: unknown */
	bool attached;        /* its process is connected; otherwise the other fields are those of its last process */
	bool known;           /* a process of this local rank has come */
	uint64_t attached_ms; /* time since it came */
	unsigned in_flight;   /* operations that it has started and that are not complete */
};

/* One job of this node. */
struct local_status_job {
	void *engine;                /* identifies the engine whose report is wanted; NULL: none */
	const struct rs_config *cfg; /* its configuration; valid only until the hub's next call */
	char name[RS_NAME_MAX], run[RS_RUN_MAX];
	uint32_t generation;
	enum local_status_state state;
	char why[REPORT_WHY];                  /* FAILED */
	char waiting[REPORT_TEXT];             /* GATHERING: which local ranks are missing */
	unsigned world_size, nodes, node_rank; /* 0 nodes: no local rank is known */
	unsigned joined;                       /* local ranks that are attached */
	uint64_t age_ms;                       /* since its first local rank came */
	bool single_worker;                    /* summed by this node alone */
	uint64_t tx_bytes, rx_bytes;           /* to and from reducers */
	struct local_status_rank *ranks;       /* [ranks_n]; owned */
	unsigned ranks_n;                      /* local world size */
	struct exchange_report *report;        /* owned; NULL: not known */
};

/* The process; the driver fills it. */
struct local_status_agent {
	char software[64], host[64], socket[RS_PATH_LEN], grpc[RS_ADDRESS_MAX], http[RS_ADDRESS_MAX];
	uint32_t pid;
	int64_t unix_ms; /* the time of day */
	uint64_t up_ms;
	uint32_t drain_left_ms;
};

/* The whole status. local_status_free() frees it. */
struct local_status {
	struct local_status_agent agent;
	bool draining;
	unsigned clients, clients_max, jobs_max;
	uint64_t shm_bytes, shm_max_bytes;
	struct local_status_job *jobs; /* owned, the oldest first */
	unsigned jobs_n;
};

/* Makes the hub's part. NULL: no memory. */
struct local_status *local_hub_status(const struct local_hub *h, uint64_t now_ms);
void local_status_free(struct local_status *st);

#endif
