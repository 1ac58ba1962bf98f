/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of libreduction's handles: reduction.c uses them, open.c makes communicators. */
#ifndef RS_AGENT_API_COMM_H
#define RS_AGENT_API_COMM_H

#include "agent/api/backend.h"
#include "agent/api/group.h"
#include "agent/api/request.h"
#include "agent/daemon/node_agent.h"

#include <pthread.h>
#include <stdbool.h>

/* Invariant: once broken is set, `err` says why and stays. */
struct reduction_comm {
	struct backend *backend;
	struct node_agent *node; /* that this process serves its node with; NULL: it does not */
	unsigned rank, world_size;
	struct request_pool *requests;
	pthread_mutex_t order; /* held while an operation is submitted: the order of submissions is that of the ranks */
	struct group_stages stages;
	pthread_mutex_t lock; /* for what follows */
	bool broken;
	struct rs_err err;
};

/* comm.c. All may be called on any thread. */

/* A communicator without a backend; NULL without memory. */
struct reduction_comm *comm_new(struct rs_err *e);
/* Frees one whose backend is closed, or was never opened. */
void comm_delete(struct reduction_comm *c);

/* Says why every further operation fails, unless something did before. */
void comm_break(struct reduction_comm *c, const struct rs_err *err);

/* RS_OK, or why the communicator is broken. */
int comm_check(struct reduction_comm *c, struct rs_err *e);

/* Hands an operation to the backend unless the communicator is broken. With `order` held. An error means not started
 * and, unless it is RS_EINVAL, breaks the communicator. */
int comm_submit(struct reduction_comm *c, struct backend_request *req, struct rs_err *e);

/* What a failed operation's waiter reads of the backend's error: the code RS_ETIMEOUT, which would mean "not done"
 * there, becomes RS_EPEER. Breaks the communicator. */
void comm_failed(struct reduction_comm *c, const struct rs_err *err, struct rs_err *ret);

/* Gives a caller the error, or success with code 0; returns the code. err may be NULL. */
int comm_result(reduction_error *err, const struct rs_err *e);

#endif
