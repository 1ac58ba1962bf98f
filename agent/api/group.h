/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: many small tensors share operations on the wire.
 *
 * Which tensors of a group share an operation depends only on what is equal on all ranks: their order, dtypes, ops and
 * counts. Tensors above GROUP_SMALL_MAX are operations of their own. The others of one dtype and op are laid end to
 * end, in the caller's order, in operations of at most GROUP_OP_MAX bytes; an operation's place in the sequence is that
 * of its first tensor. One that would have a single tensor is that tensor's own, without a copy.
 *
 * The happy path of a shared operation is: a stage is free -> its tensors are copied in -> the backend runs it in place
 * -> they are copied out on the backend's thread, the stage is free again, the tensors' requests are done. Failure
 * modes are: no memory for the first stage, and the backend's errors: the tensors' requests end with them. */
#ifndef RS_AGENT_API_GROUP_H
#define RS_AGENT_API_GROUP_H

#include "agent/api/backend.h"

#include <pthread.h>

enum {
	/* A tensor of a default chunk (config/schema.c) or more fills frames of its own, and copying it in and out
	 * costs as much as the operation that it would save. Part of what ranks agree on, and therefore not
	 * configurable. */
	GROUP_SMALL_MAX = 32 << 10,
	/* Most bytes of a shared operation, likewise agreed on: enough that the cost of an operation does not show, and
	 * little enough that the first bytes are on the wire while the next operation is still being copied in. */
	GROUP_OP_MAX = 1 << 20,
	GROUP_STAGES = 4, /* shared operations in flight; one more waits for the first to be done */
};

struct reduction_comm;
struct reduction_request;

/* The memory of one shared operation, and the operation in it. */
struct group_stage {
	struct backend_request base;
	struct reduction_comm *comm;
	struct group_stage *next;       /* of idle ones */
	char *memory;                   /* GROUP_OP_MAX bytes of the backend's, kept until the communicator is closed */
	struct reduction_request *last; /* its tensors, the last one first */
};

/* The communicator's stages. Invariant: all[0 .. made) have memory. */
struct group_stages {
	pthread_mutex_t lock;
	pthread_cond_t freed;
	struct group_stage all[GROUP_STAGES];
	struct group_stage *idle;
	unsigned made, limit; /* limit: GROUP_STAGES, or as many as there was memory for */
};

void group_init(struct group_stages *s);
/* Gives the stages' memory back. Between the backend's stop and its close. */
void group_free_memory(struct group_stages *s, struct backend *b);
void group_close(struct group_stages *s);

/* Starts the requests of a group, chained by `follows`. What cannot be started ends its requests with the reason. May
 * wait while as many operations are in flight as may be. Any thread. */
void group_start(struct reduction_comm *c, struct reduction_request *first);

#endif
