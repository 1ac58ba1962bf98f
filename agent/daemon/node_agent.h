/* SPDX-License-Identifier: Apache-2.0 */
/* An agent without a daemon: a thread of local rank 0's process serves one job's local ranks, itself among them, who
 * reach it as they would the daemon, at an abstract socket whose name follows from the job. */
#ifndef RS_AGENT_DAEMON_NODE_AGENT_H
#define RS_AGENT_DAEMON_NODE_AGENT_H

#include "agent/api/backend.h"

struct node_agent;

enum { NODE_AGENT_NAME = 100 }; /* bytes of the name, terminator included */

/* "@reduction/local-rank-0/resnet/0123456789abcdef": the same for all local ranks of one generation of a job, who have
 * the same reducers and user, and for nobody else on the machine. */
void node_agent_name(char ret[static NODE_AGENT_NAME], const struct backend_options *opt);

/* Begins to serve; tries for opt->connect_ms while the name is taken, as by the job's run before. On success `cfg`, on
 * the heap, belongs to it. Errors: RS_ECONFIG, RS_EIO, RS_ENOMEM, RS_EREFUSED (it still is). */
int node_agent_start(struct node_agent **ret, struct rs_config *cfg, const struct backend_options *opt,
		     struct rs_err *e);

/* Ends it when all local ranks have left, at most after drain_ms: then they hear that it was stopped. */
void node_agent_stop(struct node_agent *n, uint32_t drain_ms);

/* How long a job that is in good order may go on after the own rank has left. */
uint32_t node_agent_drain_ms(const struct node_agent *n);

#endif
