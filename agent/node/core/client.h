/* SPDX-License-Identifier: Apache-2.0 */
/* A client: one connected training process. */
#ifndef RS_AGENT_NODE_CORE_CLIENT_H
#define RS_AGENT_NODE_CORE_CLIENT_H

#include "agent/node/core/hub_state.h"

/* Invariants: job is not NULL exactly in state CLIENT_JOINED; awaits is NULL or in state
 * JOB_FAILING, and the client is in state CLIENT_LEAVING then. */
struct local_client {
	struct local_hub *hub;
	struct local_client *next, **at; /* in state CLIENT_NEW in hub->unjoined, else in hub->clients */
	void *user;
	uint32_t pid;
	enum {
		CLIENT_NEW,     /* must send HELLO until deadline_ms */
		CLIENT_JOINED,  /* belongs to job, as its local_rank */
		CLIENT_LEAVING, /* said GOODBYE, was refused or dropped: its messages are ignored */
	} state;
	uint64_t deadline_ms;
	uint64_t next_ping_ms;     /* CLIENT_JOINED: when its next PING is due */
	uint32_t ping_interval_ms; /* time between two PINGs */
	unsigned unanswered;       /* PINGs since its last message */
	struct local_job *job;
	unsigned local_rank;
	/* the job that it has left, whose engine may still use its memory: then the
	 * connection stays open, since its end tells the client that its memory is its
	 * own again */
	struct local_job *awaits;
	struct rs_err dismissed; /* while it awaits: what ABORT will say; code 0: nothing is sent */
	bool allocating;         /* one buffer is being made */
	struct local_buffer **buffers;
	uint32_t buffers_n; /* entries of buffers; NULL: no buffer has this id */
};

/* Leaves CLIENT_NEW, or changes from another state, to `state`. */
void local_client_set_state(struct local_client *c, int state);
/* Sends REFUSED or ABORT. */
void local_client_send_failure(struct local_client *c, enum local_type type, const struct rs_err *err, bool retry);
/* Starts to send PINGs. detect_ms: the client's detection time; 0: it has none. */
void local_client_start_pings(struct local_client *c, uint32_t detect_ms, uint64_t now_ms);
/* The client has left its job, if it had one: closes its connection as soon as no engine
 * uses its memory. why: what it is told then by REFUSED or, in a job, ABORT; NULL:
 * nothing. */
void local_client_leave(struct local_client *c, enum local_type type, const struct rs_err *why, bool retry);
/* No engine uses the memory of clients that await the job any more. */
void local_clients_release(struct local_hub *h, const struct local_job *j);
/* Removes the client from its list. */
void local_client_unlink(struct local_client *c);
/* Returns whether this event may be logged now. */
bool local_may_log(struct local_hub *h, enum local_limited which);

#endif
