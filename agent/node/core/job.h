/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs: which clients belong to them, and their life. hub.h describes the states. */
#ifndef RS_AGENT_NODE_CORE_JOB_H
#define RS_AGENT_NODE_CORE_JOB_H

#include "agent/node/core/client.h"
#include "agent/node/core/job_state.h"

/* Handles HELLO: the client joins a job, or is refused. */
void local_job_hello(struct local_client *c, const struct local_hello *hello, uint64_t now_ms);
/* Handles GOODBYE. */
void local_job_goodbye(struct local_client *c);
/* The client leaves its job without GOODBYE; how: as in local_client_lost. */
void local_job_lost(struct local_client *c, const char *how);

/* Handles ABORT: the client leaves its job and ends it for all ranks, with this
 * sentence. */
void local_job_abort(struct local_client *c, const char *sentence);

#endif
