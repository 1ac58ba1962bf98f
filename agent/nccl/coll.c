/* SPDX-License-Identifier: Apache-2.0 */
/* All-reduces of a communicator. The happy path: NCCL's thread takes a request and
 * submits it to the engine, whose thread ends it; NCCL's thread finds that in test.
 * Nothing here waits but coll_deregister. Failure modes: the engine fails, then NCCL gets
 * its error once, and requests end COLL_TOLD_MS later with NaN for a result; NCCL
 * deregisters memory of pending requests (ncclCommAbort), then the job ends. */
#include "agent/nccl/coll_state.h"
#include "common/dtype.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* NCCL 2.20 to 2.25 repeat a call that has returned an error, without end. So the error
 * is returned once, and this many milliseconds later requests end: enough for a program
 * to read the error before a kernel hands it a result. The progress thread of 2.23 to
 * 2.25 does not look at the abort flag: ncclCommAbort waits for ever for what the aborted
 * kernel has not sent. There requests end at once, so that kernels are done before a
 * program has seen the error and aborts. */
enum { COLL_TOLD_MS = 3000 };

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
		rs_oom(&e, 0, "a registration");
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

/* The communicator has ended: the first time, warns and returns the nccl_result of the
 * error, else NCCL_SUCCESS. */
static int coll_tell(struct coll *c, const struct rs_err *err)
{
	struct rs_err e;

	if (c->told)
		return NCCL_SUCCESS;
	c->told = true;
	c->told_until = coll_deadline(c->plugin->ends_at_once ? 0 : COLL_TOLD_MS);
	rs_fail(&e, err->code, "job %s: %s", c->job, err->msg);
	return plugin_fail(c->plugin, &e);
}

/* Returns whether the error was told long enough ago. */
static bool coll_told_long_ago(const struct coll *c)
{
	const struct timespec now = coll_deadline(0);

	return now.tv_sec > c->told_until.tv_sec ||
	       (now.tv_sec == c->told_until.tv_sec && now.tv_nsec >= c->told_until.tv_nsec);
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
	bool broken;
	int rc = NCCL_SUCCESS;

	*request = NULL;
	broken = coll_is_broken(c, &e);
	if (broken)
		rc = coll_tell(c, &e);
	if (rc)
		return rc;
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
	    .of.count = count,
	    .of.dtype = (uint8_t)dtype,
	    .of.op = (uint8_t)op,
	    .of.size = rs_dtype_size((unsigned)dtype) & OPERATION_SIZE,
	    .done = coll_on_done,
	    .user = r,
	};
	operation_choose_job_wire(&r->op.of, c->plugin->cfg.job.wire_up, c->plugin->cfg.job.wire_down);
	*request = r;
	if (broken || !count) {
		atomic_store_explicit(&r->state, broken ? COLL_FAILED : COLL_DONE, memory_order_relaxed);
		return NCCL_SUCCESS;
	}

	atomic_store_explicit(&r->state, COLL_PENDING, memory_order_relaxed);
	coll_began(c);
	if (engine_submit(c->engine, &r->op, &e)) {
		coll_ended(c, &e);
		atomic_store_explicit(&r->state, COLL_FAILED, memory_order_relaxed);
		return NCCL_SUCCESS; /* test tells the error */
	}

	c->started++;
	c->bytes += r->bytes;
	return NCCL_SUCCESS;
}

/* Tests a request of a communicator that has ended, see COLL_TOLD_MS. A result of bytes
 * 0xff is NaN in each floating-point type: nobody takes it for a sum. */
static int coll_test_failed(struct coll_request *r, int *done)
{
	struct coll *c = r->coll;
	struct rs_err e;
	int rc = coll_is_broken(c, &e) ? coll_tell(c, &e) : NCCL_SUCCESS;

	*done = !rc && coll_told_long_ago(c);
	if (*done)
		memset(r->op.recv, 0xff, r->bytes);
	return rc;
}

int coll_test(void *request, int *done, int *bytes)
{
	struct coll_request *r = request;
	int state = atomic_load_explicit(&r->state, memory_order_acquire), rc = NCCL_SUCCESS;

	*done = state != COLL_PENDING;
	if (state == COLL_FAILED)
		rc = coll_test_failed(r, done);
	if (!*done)
		return rc;
	atomic_store_explicit(&r->state, COLL_IDLE, memory_order_relaxed);
	if (bytes)
		*bytes = r->bytes > INT_MAX ? INT_MAX : (int)r->bytes;
	return NCCL_SUCCESS;
}
