/* SPDX-License-Identifier: Apache-2.0 */
/* Requests: the caller's handles of operations that were started. A pool keeps requests
 * after they were waited for, so that a program with a constant number in flight
 * allocates nothing. The pool lives as long as its communicator or any of its requests,
 * since a request may be waited for after its communicator was closed. */
#ifndef RS_AGENT_LIB_API_REQUEST_H
#define RS_AGENT_LIB_API_REQUEST_H

#include "agent/gpu/copier/copier.h"
#include "agent/lib/backend/backend.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum request_state {
	REQUEST_PENDING, /* no thread waits */
	REQUEST_WAITED,  /* a thread sleeps until this changes, or is about to */
	REQUEST_DONE,    /* err is valid, and no other thread uses the request */
};

struct request_pool;

/* One operation, or one tensor of a group. Invariant: between submit and REQUEST_DONE the
 * backend owns base. */
struct reduction_request {
	struct backend_request base;
	struct reduction_comm *comm; /* valid until the request is done */
	_Atomic uint32_t state;      /* enum request_state; a futex */
	bool started;                /* of a group: it is part of an operation already */
	bool copied;                 /* the copier, and not the backend, ends it */
	struct rs_err err;           /* code 0: success */

	struct request_pool *pool;         /* NULL: it belongs to no pool */
	struct reduction_request *next;    /* idle in the pool, or of the same shared operation */
	struct reduction_request *follows; /* the next request of the same group, in the caller's order */
};

struct request_pool *request_pool_new(void);
/* Returns the process that has created the pool. */
pid_t request_pool_pid(const struct request_pool *pool);
/* Allows waiting threads to run this backend. Call it once, before the first wait. */
void request_pool_open(struct request_pool *pool, struct backend *backend);
/* Ends that, after the backend's stop and before its close. Returns when no thread runs
 * the backend any more. */
void request_pool_close(struct request_pool *pool);
/* Drops the communicator's reference, once. */
void request_pool_drop(struct request_pool *pool);

/* Takes a request that describes *base and is not pending yet; NULL: out of memory. Any
 * thread. */
struct reduction_request *request_get(struct request_pool *pool, const struct backend_request *base);
/* Returns a request that is not pending, or is done and was waited for. Any thread. */
void request_put(struct reduction_request *req);

/* Initializes a request before it is submitted. */
void request_init(struct reduction_request *req, struct reduction_comm *c);

/* Ends the request, with success if err is NULL. The waiter may have freed it when this
 * returns. Any thread. */
void request_complete(struct reduction_request *req, const struct rs_err *err);
/* The same for all tensors of an operation, which are chained by next, the last one
 * first. The first one is completed last, so that a thread that waits for all of them in
 * order sleeps once. */
void request_complete_all(struct reduction_request *last, const struct rs_err *err);

bool request_is_done(struct reduction_request *req);
/* Waits until the request is done. Returns false if `until` (CLOCK_MONOTONIC, NULL: no
 * limit) came first. pool is that of the request's communicator. One thread. */
bool request_wait(struct request_pool *pool, struct reduction_request *req, const struct timespec *until);

#endif
