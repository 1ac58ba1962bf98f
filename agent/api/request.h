/* SPDX-License-Identifier: Apache-2.0 */
/* Requests: what a caller waits for. A pool keeps those that were waited for, so that a program that has as many in
 * flight as before allocates nothing. It lives as long as its communicator or any of its requests, for a request may be
 * waited for after its communicator was closed. */
#ifndef RS_AGENT_API_REQUEST_H
#define RS_AGENT_API_REQUEST_H

#include "agent/api/backend.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum request_state {
	REQUEST_PENDING, /* nobody waits */
	REQUEST_WAITED,  /* a thread sleeps, or is about to, until this changes */
	REQUEST_DONE,    /* err is valid and nobody else touches the request any more */
};

struct request_pool;

struct reduction_request {
	struct backend_request base;
	struct reduction_comm *comm; /* until the request is done */
	_Atomic uint32_t state;      /* enum request_state; a futex */
	bool started;                /* of a group: it is part of an operation already */
	struct rs_err err;           /* code 0: success */

	struct request_pool *pool;         /* NULL: not of a pool */
	struct reduction_request *next;    /* idle in the pool, or of the same shared operation */
	struct reduction_request *follows; /* the next one of the same group, in the caller's order */
};

struct request_pool *request_pool_new(void);
/* Who waits may run this backend meanwhile. Once, before the first wait. */
void request_pool_open(struct request_pool *pool, struct backend *backend);
/* After the backend's stop and before its close: returns when no thread runs it any more, and none will. */
void request_pool_close(struct request_pool *pool);
/* By its communicator, once. */
void request_pool_drop(struct request_pool *pool);

/* A request that describes *base and is not pending yet; NULL without memory. Any thread. */
struct reduction_request *request_get(struct request_pool *pool, const struct backend_request *base);
/* Not pending, or done and waited for. Any thread. */
void request_put(struct reduction_request *req);

/* Before it is submitted. */
void request_init(struct reduction_request *req, struct reduction_comm *c);

/* Ends it: with success when err is NULL. The waiter may have put it when this returns. Any thread. */
void request_complete(struct reduction_request *req, const struct rs_err *err);

bool request_is_done(struct reduction_request *req);
/* Waits until the request is done; false when `until` (CLOCK_MONOTONIC, NULL: never) came first. pool is that of the
 * request's communicator. One thread. */
bool request_wait(struct request_pool *pool, struct reduction_request *req, const struct timespec *until);

#endif
