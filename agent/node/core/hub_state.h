/* SPDX-License-Identifier: Apache-2.0 */
/* The state of the hub, for the files of this folder. */
#ifndef RS_AGENT_NODE_CORE_HUB_STATE_H
#define RS_AGENT_NODE_CORE_HUB_STATE_H

#include "agent/node/core/hub.h"

#include <sys/queue.h>

/* Events whose log lines are limited, since clients can cause them at any rate. */
enum local_limited { LOCAL_LIMITED_REFUSED, LOCAL_LIMITED_DROPPED, LOCAL_LIMITED_JOBS, LOCAL_LIMITED_NR };

enum { LOCAL_CONTRADICTION_MS = 3000 }; /* a corrected training, started by hand, comes later */

/* A job that ended because its local ranks contradicted each other. It counts until
 * until_ms. */
struct local_contradiction {
	char job[RS_NAME_MAX];
	char run[RS_RUN_MAX];
	uint32_t generation;
	uint64_t until_ms;
	struct rs_err err;
};

/* All clients and jobs of an agent. Invariants: `unjoined` holds the clients in state
 * CLIENT_NEW, oldest first, and `clients` all others; clients_n counts both; shm_used is
 * the sum of the bytes of all buffers. */
struct local_hub {
	const struct rs_config *cfg;
	const struct rs_kernels *kernels;
	const struct rs_log *log;
	struct local_ports ports;
	void *ctx;
	char host[64];
	unsigned ops; /* operations a client may have in flight */
	struct local_client *clients;
	struct local_client *unjoined, **unjoined_end;
	LIST_HEAD(, local_job) jobs; /* the newest first */
	unsigned clients_n, jobs_n;
	uint64_t shm_used;
	struct local_contradiction contradiction; /* the last one */
	uint64_t now_ms;                          /* of the last event with a time */
	bool draining;
	uint64_t drain_ms; /* deadline */
	struct rs_log_limit limits[LOCAL_LIMITED_NR];
};

#endif
