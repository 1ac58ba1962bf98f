/* SPDX-License-Identifier: Apache-2.0 */
/* Stages: the memory of operations that tensors of a group share. A communicator has a
 * few, which it uses again. */
#ifndef RS_AGENT_LIB_API_GROUP_STAGE_H
#define RS_AGENT_LIB_API_GROUP_STAGE_H

#include "agent/lib/backend/backend.h"

#include <pthread.h>

enum {
	/* Most bytes of a shared operation; also the same on all ranks. Large enough that
	 * the fixed cost of an operation is negligible, and small enough that the first
	 * bytes are sent while the next operation is being copied in. */
	GROUP_OP_MAX = 1 << 20,
	GROUP_STAGES = 4, /* shared operations in flight; the next one waits until the first is done */
};

struct reduction_request;

/* The memory of one shared operation, and the operation in it. Invariant: it is idle, or
 * `last` is not NULL until done. */
struct group_stage {
	struct backend_request base;
	struct group_stage *next;       /* of idle stages */
	char *memory;                   /* GROUP_OP_MAX bytes of the backend, kept until the communicator is closed */
	struct reduction_request *last; /* its tensors, the last one first */
};

/* The stages of a communicator. Invariant: all[0 .. made) have memory. */
struct group_stages {
	pthread_mutex_t lock;
	pthread_cond_t freed;
	struct group_stage all[GROUP_STAGES];
	struct group_stage *idle;
	unsigned made, limit; /* limit: GROUP_STAGES, or as many as there was memory for */
};

void group_stages_init(struct group_stages *s);
/* Returns the memory of the stages to the backend, between its stop and its close. */
void group_stages_free(struct group_stages *s, struct backend *b);
/* Destroys what group_stages_init has made. */
void group_stages_close(struct group_stages *s);

/* Takes an idle stage or a new one, or waits for the next one that becomes idle. One
 * thread at a time. Errors: those of the backend, if there is no memory for the first
 * stage. */
int group_stages_take(struct group_stages *s, struct backend *b, struct group_stage **ret, struct rs_err *e);
/* Gives a stage back. Any thread. */
void group_stages_give(struct group_stages *s, struct group_stage *stage);

#endif
