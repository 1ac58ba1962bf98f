/* SPDX-License-Identifier: Apache-2.0 */
/* Names of processes in messages. */
#ifndef RS_AGENT_NODE_CORE_TEXT_H
#define RS_AGENT_NODE_CORE_TEXT_H

#include "agent/node/core/job_state.h"

enum { LOCAL_RANK_TEXT = 160, LOCAL_MISSING_TEXT = 256, LOCAL_WAITING_TEXT = 400 }; /* bytes */

/* "rank 3 (pid 77 on HOST)" */
const char *local_job_rank_text(const struct local_job *j, unsigned local_rank, char buf[LOCAL_RANK_TEXT]);
/* "processes 2-3 on HOST" */
const char *local_job_ranks_text(const struct local_job *j, char buf[LOCAL_RANK_TEXT]);

/* Lists the local ranks that have not joined: "1, 3". Returns how many there are. */
unsigned local_job_missing(const struct local_job *j, char list[LOCAL_MISSING_TEXT]);
/* "1 of 2 local ranks have not connected: local rank 1; waiting for 10 s" */
void local_job_waiting_text(const struct local_job *j, uint64_t now_ms, char *buf, size_t size);

#endif
