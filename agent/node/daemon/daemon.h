/* SPDX-License-Identifier: Apache-2.0 */
/* The agent as a daemon: an agentd with a host (common/host/host.h). */
#ifndef RS_AGENT_NODE_DAEMON_DAEMON_H
#define RS_AGENT_NODE_DAEMON_DAEMON_H

#include "agent/node/daemon/agentd.h"
#include "common/host/host.h"
#include "common/host/process.h"

/* The daemon. Invariant: while host.tracing, the first traces_n entries of `traces` are
 * those that record. */
struct agent_daemon {
	struct agentd a;
	struct host host;
	struct agentd_socket grpc; /* of agent.grpc, if that is a UNIX socket */
	struct {
		const void *engine; /* NULL: it was freed */
		struct trace *trace;
	} traces[TRACE_RANGES];
	unsigned traces_n;
};

/* Makes the host of an agent that agentd_open has opened, and opens its ports. d and p
 * must stay where they are until agentd_serve has returned, which must be called also
 * after errors. Errors: those of host_open_ports; RS_ECONFIG and those of
 * agentd_socket_claim for a UNIX socket. */
int agent_daemon_start(struct agent_daemon *d, struct host_process *p, struct rs_err *e);

#endif
