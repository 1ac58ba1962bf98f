/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a communicator, for the files of api/. */
#ifndef RS_AGENT_LIB_API_COMM_H
#define RS_AGENT_LIB_API_COMM_H

#include "agent/gpu/copier/copier.h"
#include "agent/lib/api/group_stage.h"
#include "agent/lib/api/request.h"
#include "agent/lib/backend/backend.h"
#include "agent/node/daemon/node_agent.h"

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

/* An open communicator. Invariant: once broken is set, err says why and does not
 * change. */
struct reduction_comm {
	struct backend *backend;
	struct node_agent *node;   /* the node agent that this process runs; NULL: none */
	unsigned rank, world_size; /* these three change only in reduction_reconfigure() */
	uint32_t generation;
	struct reduction_comm *claims_next; /* claim.c */
	uint64_t claim;                     /* hash of the place in a job that it claims; 0: none */
	uint64_t claim_job;                 /* hash of the job alone */
	pid_t pid; /* of the process that has opened it; a child that it forks must not use it */
	struct request_pool *requests;
	pthread_mutex_t
	    order; /* held while an operation is submitted: the order of submissions must be the same on all ranks */
	struct group_stages stages;
	pthread_mutex_t copier_lock; /* held while the copier is made */
	struct copier *copier;       /* NULL: no tensor of a GPU has come yet */
	char *gpu_trace;             /* file for its trace; NULL: none */
	pthread_mutex_t lock;        /* protects everything below */
	bool aborted;                /* by this process */
	bool broken;
	struct rs_err err;
};

/* comm.c. Any thread may call these functions. */

/* Creates a communicator without a backend; NULL: out of memory. */
struct reduction_comm *comm_new(struct rs_err *e);
/* Frees a communicator whose backend is closed or was never opened. */
void comm_delete(struct reduction_comm *c);

/* Breaks the communicator: every further operation fails with err. Has no effect if it is
 * broken already. */
void comm_break(struct reduction_comm *c, const struct rs_err *err);

/* Ends the job on all ranks: breaks the communicator and aborts the backend, once.
 * reason: "" is none. */
void comm_abort(struct reduction_comm *c, const char *reason);
/* The job has another generation, in which nothing is broken. */
void comm_mend(struct reduction_comm *c);
/* Returns whether comm_abort was called. */
bool comm_aborted(struct reduction_comm *c);

/* Returns RS_OK, or the error that broke the communicator. */
int comm_check(struct reduction_comm *c, struct rs_err *e);

/* Checks the memory of a request that is on a GPU; makes the copier at the first one.
 * Errors: RS_EINVAL, RS_EUNSUPPORTED, RS_EIO, RS_ENOMEM; none of them breaks the
 * communicator. */
int comm_check_device(struct reduction_comm *c, const struct backend_request *req, struct rs_err *e);
/* Chooses the encodings of an operation, whose count is that of the caller. */
void comm_choose_wire(const struct reduction_comm *c, struct operation *of, reduction_wire wire);
/* Describes a request's memory for the copier. */
struct copier_tensor comm_tensor(const struct backend_request *req);
/* Submits an operation on tensors some of which are on GPUs, as comm_submit. */
int comm_submit_tensors(struct reduction_comm *c, struct backend_request *req, const struct copier_tensor *tensors,
			unsigned n, struct rs_err *e);
/* Ends all copies, between the backend's stop and its close. */
void comm_stop_copies(struct reduction_comm *c);

/* Submits an operation to the backend unless the communicator is broken. With `order`
 * held. After an error the operation is not started, and unless the error is RS_EINVAL
 * the communicator is broken. */
int comm_submit(struct reduction_comm *c, struct backend_request *req, struct rs_err *e);

/* Converts a backend's error for the waiter of a failed operation, and breaks the
 * communicator. RS_ETIMEOUT becomes RS_EPEER, since it would mean "not done" to the
 * waiter. */
void comm_failed(struct reduction_comm *c, const struct rs_err *err, struct rs_err *ret);

/* RS_EINVAL if this is not the process that has opened the communicator, but a child of a
 * fork(): its threads and connections belong to the parent. */
int comm_check_process(pid_t opened_by, struct rs_err *e);

/* claim.c: which places in jobs this process has, so that opening one twice fails at
 * once. Any thread. */

/* Claims rank and job for the communicator. RS_EREFUSED: another communicator of this
 * process has them and works. */
int comm_claim(struct reduction_comm *c, const struct backend_options *opt, struct rs_err *e);
/* Replaces the claim by that of the communicator's new place. The same error. */
int comm_claim_again(struct reduction_comm *c, struct rs_err *e);
/* Gives the claim up, if there is one. */
void comm_unclaim(struct reduction_comm *c);

/* RS_EINVAL: an argument of this name is NULL. */
int comm_null(const char *argument, struct rs_err *e);

/* Checks struct_size of a caller's struct, whose header may be older than the library: at
 * least `least` bytes, that of the first version, and at most `most`. init: the macro
 * that sets it. */
int comm_check_size(size_t size, size_t least, size_t most, const char *init, struct rs_err *e);

/* Stores the error for the caller (code 0: success) and returns its code. err may be
 * NULL. */
int comm_result(reduction_error *err, const struct rs_err *e);

#endif
