/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: many small tensors share operations.
 *
 * Which tensors of a group share an operation depends only on what is equal on all ranks: their order, dtypes, ops and
 * counts. Tensors larger than GROUP_SMALL_MAX are operations of their own. The others of one dtype and op are placed
 * end to end, in the caller's order, in operations of at most GROUP_OP_MAX bytes. The place of such an operation in the
 * sequence is that of its first tensor. If an operation would have a single tensor, that tensor is used directly,
 * without a copy.
 *
 * The happy path of a shared operation: a stage is free -> its tensors are copied in -> the backend runs it in place ->
 * they are copied out on the backend's thread, the stage is free again, the tensors' requests are done. Failure modes:
 * no memory for the first stage; errors of the backend, with which the tensors' requests end. */
#ifndef RS_AGENT_API_GROUP_H
#define RS_AGENT_API_GROUP_H

#include "agent/backend/backend.h"

#include <pthread.h>

enum {
	/* Largest tensor, in bytes, that shares an operation. A tensor of a default chunk (config/schema.c) or more
	 * fills frames of its own, and copying it in and out costs as much as the operation that it would save. All
	 * ranks must use the same value, so it is not configurable. */
	GROUP_SMALL_MAX = 32 << 10,
	/* Most bytes of a shared operation; also the same on all ranks. Large enough that the fixed cost of an
	 * operation is negligible, and small enough that the first bytes are sent while the next operation is being
	 * copied in. */
	GROUP_OP_MAX = 1 << 20,
	GROUP_STAGES = 4, /* shared operations in flight; the next one waits until the first is done */
};

struct reduction_comm;
struct reduction_request;

/* The memory of one shared operation, and the operation in it. Invariant: it is idle, or `last` is not NULL until
 * done. */
struct group_stage {
	struct backend_request base;
	struct reduction_comm *comm;
	struct group_stage *next;       /* of idle stages */
	char *memory;                   /* GROUP_OP_MAX bytes of the backend, kept until the communicator is closed */
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
/* Returns the stages' memory to the backend, between its stop and its close. */
void group_free_memory(struct group_stages *s, struct backend *b);
void group_close(struct group_stages *s);

/* Starts the requests of a group, which are chained by `follows`. A request that cannot be started ends with the
 * reason. May wait while the limits of operations in flight are reached. Any thread. */
void group_start(struct reduction_comm *c, struct reduction_request *first);

#endif
