/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a CollNet communicator: opened by coll_open.c, used by coll.c, closed by
 * coll_close.c. */
#ifndef RS_AGENT_NCCL_COLL_STATE_H
#define RS_AGENT_NCCL_COLL_STATE_H

#include "agent/nccl/coll.h"
#include "agent/worker/engine/engine.h"
#include "proto/control.h"

#include <time.h>

/* Of a request. NCCL's thread changes IDLE to PENDING and ended requests to IDLE, the
 * engine PENDING to ended. */
enum coll_request_state { COLL_IDLE, COLL_PENDING, COLL_DONE, COLL_FAILED };

/* Memory of NCCL that a request uses. */
struct coll_buffers {
	const void *send;
	void *recv;
	size_t send_bytes, recv_bytes;
};

/* One collective: an all-reduce, or a slice of an all-gather or a reduce-scatter, which
 * is several operations. Invariant while it is pending: `left` of them have not ended,
 * and left > 0. */
struct coll_request {
	struct exchange_op op[SLICE_RUNS];
	struct coll *coll;
	struct coll_buffers buffers;
	size_t bytes; /* for test */
	_Atomic unsigned left;
	_Atomic bool failed; /* one of them has */
	_Atomic int state;   /* enum coll_request_state */
};

/* Registered memory. */
struct coll_memory {
	const char *data;
	size_t bytes;
	struct coll_memory *next;
};

enum coll_phase { COLL_JOINING, COLL_READY, COLL_BROKEN };

/* A communicator. Invariants: in_flight is the number of operations, the vote included,
 * that the engine has; COLL_BROKEN stays, and err says why. */
struct coll {
	struct plugin *plugin;
	struct engine *engine;
	char job[RS_NAME_MAX];
	char run[64];
	char label[CONTROL_LABEL]; /* "pid 77 on HOST" */
	unsigned rank, ranks;
	struct coll_request requests[COLL_REQUESTS];
	unsigned next;              /* the request to try first; NCCL's thread */
	uint64_t started, bytes;    /* all-reduces and their bytes so far; NCCL's thread */
	uint64_t slices, moved;     /* slices of other collectives and their bytes so far; NCCL's thread */
	bool told;                  /* NCCL knows the error; NCCL's thread */
	struct timespec told_until; /* when requests end, once `told`; NCCL's thread */

	pthread_mutex_t lock; /* protects everything below */
	pthread_cond_t changed;
	enum coll_phase phase;
	struct rs_err err;
	unsigned in_flight;
	struct coll_memory *memory; /* registered and not deregistered */
};

/* coll_open.c */

/* The engine has got, or has ended, an operation. */
void coll_began(struct coll *c);
void coll_ended(struct coll *c, const struct rs_err *err);
/* Returns whether the communicator is broken, and why. */
bool coll_is_broken(struct coll *c, struct rs_err *ret);
/* Ends the job on all ranks because this one leaves operations behind, and waits until
 * the engine has none. */
void coll_abandon(struct coll *c, const char *what);
/* Returns the time in `ms` milliseconds, for conditions of coll_init_condition. */
struct timespec coll_deadline(uint32_t ms);
void coll_init_condition(pthread_cond_t *ret);
/* Frees a communicator whose engine is stopped. */
void coll_free(struct coll *c);

#endif
