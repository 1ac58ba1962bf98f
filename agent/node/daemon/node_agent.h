/* SPDX-License-Identifier: Apache-2.0 */
/* An agent without a daemon: a thread of local rank 0's process serves the local ranks of
 * one job, including itself. They connect to it as to the daemon, at an abstract socket
 * whose name follows from the job. */
#ifndef RS_AGENT_NODE_DAEMON_NODE_AGENT_H
#define RS_AGENT_NODE_DAEMON_NODE_AGENT_H

#include "config/config.h"

struct node_agent;

enum { NODE_AGENT_NAME = 100 }; /* bytes of the name, terminator included */

/* The job that is served, and where. */
struct node_agent_place {
	const char *job;
	uint32_t generation;
	unsigned node_rank; /* the agent's place among agents */
};

/* Makes the name "@reduction/local-rank-0/resnet/0123456789abcdef". It is the same for
 * all local ranks of one generation of a job with the same reducers and user, whatever
 * world size they say, and different for all other processes of the machine. */
void node_agent_name(char ret[static NODE_AGENT_NAME], const struct rs_config *cfg,
		     const struct node_agent_place *place);

/* Starts serving. Tries for connect_ms while the name is in use, for example by the job's
 * previous run. On success `cfg`, which must be on the heap, belongs to the node agent.
 * Errors: RS_ECONFIG, RS_EIO, RS_ENOMEM, RS_EREFUSED (the name is still in use). */
int node_agent_start(struct node_agent **ret, struct rs_config *cfg, const struct node_agent_place *place,
		     uint32_t connect_ms, struct rs_err *e);

/* Stops and frees it when all local ranks have left, after drain_ms at the latest; then
 * they read that the agent was stopped. */
void node_agent_stop(struct node_agent *n, uint32_t drain_ms);

/* Returns for how many milliseconds a job may continue after this process has left. */
uint32_t node_agent_drain_ms(const struct node_agent *n);

#endif
