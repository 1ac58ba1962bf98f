/* SPDX-License-Identifier: Apache-2.0 */
/* All-reduces of a communicator. The happy path: NCCL's thread takes a request and submits it to the engine, whose
 * thread ends it; NCCL's thread finds that in test. Nothing here waits but coll_deregister. Failure modes: the engine
 * fails, then every request and every later call gets its error; NCCL deregisters memory of pending requests
 * (ncclCommAbort), then the job ends. */
#include "agent/nccl/coll_state.h"
#include "common/dtype.h"

#include <limits.h>
#include <stdlib.h>

bool coll_supports(int dtype, int op)
{
	return dtype >= 0 && dtype < RS_DTYPE_NR && op >= RS_SUM && op <= RS_MIN;
}

int coll_register(struct coll *c, void *data, size_t bytes, int kind, void **ret)
{
	struct coll_memory *m;
	struct rs_err e;

	if (kind != NCCL_PTR_HOST) {
		rs_fail(&e, RS_EINTERNAL, "NCCL registered memory of kind %d, only host memory is supported", kind);
		return plugin_fail(c->plugin, &e);
	}
	m = malloc(sizeof *m);
	if (!m) {
		rs_fail(&e, RS_ENOMEM, "out of memory for a registration");
		return plugin_fail(c->plugin, &e);
	}
	pthread_mutex_lock(&c->lock);
	*m = (struct coll_memory){.data = data, .bytes = bytes, .next = c->memory};
	c->memory = m;
	pthread_mutex_unlock(&c->lock);
	*ret = m;
	return NCCL_SUCCESS;
}

/* Returns whether [data, data + bytes) and the memory share bytes. */
static bool coll_overlaps(const struct coll_memory *m, const void *data, size_t bytes)
{
	uintptr_t a = (uintptr_t)m->data, b = (uintptr_t)data;

	return a < b + bytes && b < a + m->bytes;
}

static bool coll_uses(const struct coll *c, const struct coll_memory *m)
{
	for (unsigned i = 0; i < COLL_REQUESTS; i++) {
		const struct coll_request *r = &c->requests[i];

		if (atomic_load_explicit(&r->state, memory_order_acquire) == COLL_PENDING &&
		    (coll_overlaps(m, r->op.send, r->bytes) || coll_overlaps(m, r->op.recv, r->bytes)))
			return true;
	}
	return false;
}

int coll_deregister(struct coll *c, void *registered)
{
	struct coll_memory *m = registered, **at = &c->memory;

	if (coll_uses(c, m))
		coll_abandon(c, "deregistered the memory of pending all-reduces, as ncclCommAbort does");
	pthread_mutex_lock(&c->lock);
	while (*at != m)
		at = &(*at)->next;
	*at = m->next;
	pthread_mutex_unlock(&c->lock);
	free(m);
	return NCCL_SUCCESS;
}

/* Warns about the end of the communicator, once, and returns the nccl_result. */
static int coll_tell(struct coll *c, const struct rs_err *err)
{
	struct rs_err e;

	if (atomic_exchange(&c->told, true))
		return plugin_result(err->code);
	rs_fail(&e, err->code, "job %s: %s", c->job, err->msg);
	return plugin_fail(c->plugin, &e);
}

static void coll_on_done(struct exchange_op *op, const struct rs_err *err)
{
	struct coll_request *r = op->user;
	struct coll *c = r->coll;

	coll_ended(c, err); /* first, so that test finds the reason, and closing after test finds nothing in flight */
	atomic_store_explicit(&r->state, err ? COLL_FAILED : COLL_DONE, memory_order_release);
}

/* Takes an idle request; NULL: all are in use. */
static struct coll_request *coll_take(struct coll *c)
{
	for (unsigned i = 0; i < COLL_REQUESTS; i++) {
		struct coll_request *r = &c->requests[(c->next + i) % COLL_REQUESTS];

		if (atomic_load_explicit(&r->state, memory_order_relaxed) == COLL_IDLE) {
			c->next = (c->next + i + 1) % COLL_REQUESTS;
			return r;
		}
	}
	return NULL;
}

int coll_all_reduce(struct coll *c, const void *send, void *recv, size_t count, int dtype, int op, void **request)
{
	struct coll_request *r;
	struct rs_err e;
	int rc = RS_OK;

	*request = NULL;
	if (coll_is_broken(c, &e))
		return coll_tell(c, &e);
	if (!coll_supports(dtype, op) || count > PLUGIN_BYTES_MAX / rs_dtype_size((unsigned)dtype)) {
		rs_fail(&e, RS_EINVAL,
			"NCCL asked for an all-reduce of %zu elements, dtype %d, operation %d: not supported", count,
			dtype, op);
		return plugin_fail(c->plugin, &e);
	}
	r = coll_take(c);
	if (!r)
		return NCCL_SUCCESS;
	r->coll = c;
	r->bytes = count * rs_dtype_size((unsigned)dtype);
	r->op = (struct exchange_op){
	    .send = send,
	    .recv = recv,
	    .count = count,
	    .dtype = (uint8_t)dtype,
	    .op = (uint8_t)op,
	    .done = coll_on_done,
	    .user = r,
	};
	atomic_store_explicit(&r->state, count ? COLL_PENDING : COLL_DONE, memory_order_relaxed);
	if (count) {
		coll_began(c);
		rc = engine_submit(c->engine, &r->op, &e);
	}
	if (rc) {
		atomic_store_explicit(&r->state, COLL_IDLE, memory_order_relaxed);
		coll_ended(c, &e);
		return coll_tell(c, &e);
	}
	c->started++;
	c->bytes += r->bytes;
	*request = r;
	return NCCL_SUCCESS;
}

int coll_test(void *request, int *done, int *bytes)
{
	struct coll_request *r = request;
	int state = atomic_load_explicit(&r->state, memory_order_acquire);
	struct rs_err e;

	*done = 0;
	if (state == COLL_PENDING)
		return NCCL_SUCCESS;
	atomic_store_explicit(&r->state, COLL_IDLE, memory_order_relaxed);
	if (state == COLL_FAILED && coll_is_broken(r->coll, &e))
		return coll_tell(r->coll, &e);
	*done = 1;
	if (bytes)
		*bytes = r->bytes > INT_MAX ? INT_MAX : (int)r->bytes;
	return NCCL_SUCCESS;
}
