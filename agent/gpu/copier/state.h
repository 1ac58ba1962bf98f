/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a copier, for the files of copier/. */
#ifndef RS_AGENT_GPU_COPIER_STATE_H
#define RS_AGENT_GPU_COPIER_STATE_H

#include "agent/gpu/copier/copier.h"
#include "agent/gpu/copier/trace.h"
#include "agent/gpu/core/pipeline.h"
#include "agent/gpu/cuda/cuda.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
	COPIER_PIECE = 1 << 19,     /* bytes of a piece at least: a copy of fewer costs more in calls than in time */
	COPIER_STAGE_MIN = 1 << 14, /* bytes of the smallest stage */
	COPIER_LOOK_MS = 100,       /* time after which devices are asked for errors while copies run */
};

#define COPIER_MARK UINT64_MAX

/* Pinned memory of the backend. It stays pinned until the copier is freed or other stages
 * need its room. */
struct copier_stage {
	struct copier_stage *next; /* idle */
	char *memory;              /* BACKEND_RING_HEAD bytes, then the ring */
	uint64_t bytes;            /* of the ring */
	int device;                /* that has pinned it, for all */
};

/* The copies of one operation on one device. piece[dir][i % CUDA_FENCES] is that behind
 * fence i; COPIER_MARK: the work of the caller's stream. Invariant: seen <= added <= seen
 * + CUDA_FENCES. */
struct copier_queue {
	struct cuda_queue *q; /* NULL: it was not taken */
	int device;
	uint64_t piece[2][CUDA_FENCES];
	uint64_t added[2], seen[2];
};

/* One operation. The copier's thread owns all but what is named below. Invariant:
 * waiting[dir][i % PIPELINE_PLACES] is the number of fences that piece i waits for. */
struct copier_op {
	struct backend_request ring; /* what the backend runs; first */
	struct copier *copier;
	struct copier_op *next;
	struct backend_request *req;
	unsigned urgency, rank;
	uint32_t chunk_elems;
	struct pipeline pipe;
	struct copier_stage *stage;
	uint8_t waiting[2][PIPELINE_PLACES];
	struct piece *pieces; /* where its pieces are recorded; NULL: they are not */
	uint64_t announced;   /* pieces, while they are recorded */
	bool marked;          /* while they are recorded: fences behind the caller's streams were added */
	struct rs_err err;    /* of a copy; code 0: none */

	_Atomic uint64_t landed;   /* bytes; written by the backend */
	_Atomic bool backend_done; /* set by the backend, after backend_err */
	struct rs_err backend_err; /* code 0: success */

	unsigned tensors_n, queues_n;
	struct copier_queue *queues;    /* behind the tensors */
	struct copier_tensor tensors[]; /* in the order of their bytes */
};

/* The copier. Invariant: stage_bytes is the sum of all stages, idle or in use. */
struct copier {
	struct backend *backend;
	struct cuda *cuda;
	void (*failed)(void *user, const struct rs_err *why);
	void *user;
	pthread_t thread;
	struct copier_op *ops; /* of the thread: the most urgent first, and the oldest of those */
	struct copier_trace trace;

	pthread_mutex_t lock;   /* protects everything below */
	pthread_cond_t changed; /* signalled: the thread has something to do */
	pthread_cond_t freed;   /* signalled: a stage is idle */
	bool signalled, stopping;
	struct copier_op *submitted; /* the newest first */
	struct copier_stage *idle;
	uint64_t stage_bytes;
	unsigned stages_busy;
};

/* Wakes the copier's thread. Any thread. */
static inline void copier_wake(struct copier *c)
{
	pthread_mutex_lock(&c->lock);
	c->signalled = true;
	pthread_cond_signal(&c->changed);
	pthread_mutex_unlock(&c->lock);
}

/* stage.c */
/* Takes a stage whose ring has at least `bytes` bytes; waits until operations end if
 * there is no room. most >= bytes: that an operation of this kind may need. */
int copier_stage_take(struct copier *c, uint64_t bytes, uint64_t most, int device, struct copier_stage **ret,
		      struct rs_err *e);
void copier_stage_give(struct copier *c, struct copier_stage *stage);
/* Frees all idle stages. */
void copier_stages_free(struct copier *c);

/* op.c. Any thread calls copier_op_new and copier_op_free; only the copier's thread
 * copier_op_run. */
int copier_op_new(struct copier *c, unsigned rank, struct backend_request *req, const struct copier_tensor *tensors,
		  unsigned n, struct copier_op **ret, struct rs_err *e);
/* Gives queues and stage back. */
void copier_op_free(struct copier_op *op);
/* Does what can be done now. Returns whether the operation has ended; its request is then
 * done, and it is freed. */
bool copier_op_run(struct copier_op *op);

#endif
