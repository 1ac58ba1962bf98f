/* SPDX-License-Identifier: Apache-2.0 */
/* The status of an agent at one moment, for the control service: the hub's part, to which
 * the driver adds the process and the reports of the engines. One thread at a time;
 * nothing in it is shared. */
#ifndef RS_AGENT_NODE_CORE_STATUS_H
#define RS_AGENT_NODE_CORE_STATUS_H

#include "agent/node/core/hub.h"
#include "agent/worker/core/report.h"
#include "common/host/service/status_reply.h"

/* The engine of a job. */
struct local_status_engine {
	void *engine;                   /* identifies the engine whose report is wanted; NULL: none */
	const struct rs_config *cfg;    /* of the job; valid only until the hub's next call */
	struct exchange_report *report; /* owned; NULL: not known */
};

/* The whole status. Invariant: reply.m.agent is set. Until local_status_finish() it lacks
 * what the reports say. */
struct local_status {
	struct status_reply reply;
	struct local_status_engine *engines; /* of reply.m.agent->jobs */
};

/* Makes the hub's part. NULL: no memory. local_status_free() frees it. */
struct local_status *local_hub_status(const struct local_hub *h, uint64_t now_ms);
/* Adds the reports, after they have been filled. Returns the reply, which uses them. */
struct status_reply *local_status_finish(struct local_status *st);
void local_status_free(struct local_status *st);

#endif
