/* SPDX-License-Identifier: Apache-2.0 */
/* The collectives of a communicator. The happy path: NCCL's thread takes a request and
 * submits it to the engine, whose thread ends it; NCCL's thread finds that in test.
 * Nothing here waits but coll_deregister. Failure modes: the engine fails, then NCCL gets
 * its error once, and requests end COLL_TOLD_MS later with NaN for a result; NCCL
 * deregisters memory of pending requests (ncclCommAbort), then the job ends. */
#include "agent/nccl/coll_state.h"
#include "common/dtype.h"
#include "proto/operation.h"

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

struct plugin *coll_plugin(const struct coll *c)
{
	return c->plugin;
}

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
		    (coll_overlaps(m, r->buffers.send, r->buffers.send_bytes) ||
		     coll_overlaps(m, r->buffers.recv, r->buffers.recv_bytes)))
			return true;
	}
	return false;
}

int coll_deregister(struct coll *c, void *registered)
{
	struct coll_memory *m = registered, **at = &c->memory;

	if (coll_uses(c, m))
		coll_abandon(c, "deregistered the memory of pending collectives, as ncclCommAbort does");
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

/* One of the operations of a request has ended. */
static void coll_op_ended(struct coll_request *r, const struct rs_err *err)
{
	bool failed;

	coll_ended(r->coll, err); /* first, so that test finds the reason, and closing after test nothing in flight */
	if (err)
		atomic_store_explicit(&r->failed, true, memory_order_relaxed);
	if (atomic_fetch_sub_explicit(&r->left, 1, memory_order_acq_rel) > 1)
		return;
	failed = atomic_load_explicit(&r->failed, memory_order_relaxed);
	atomic_store_explicit(&r->state, failed ? COLL_FAILED : COLL_DONE, memory_order_release);
}

static void coll_on_done(struct exchange_op *op, const struct rs_err *err)
{
	coll_op_ended(op->user, err);
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

/* Takes a request for a collective of so many bytes. *request is what NCCL gets; *ret the
 * same, or NULL if there is nothing to submit. Returns an nccl_result. */
static int coll_begin(struct coll *c, const struct coll_buffers *buffers, size_t bytes, struct coll_request **ret,
		      void **request)
{
	struct coll_request *r;
	struct rs_err e;
	bool broken = coll_is_broken(c, &e);
	int rc = broken ? coll_tell(c, &e) : NCCL_SUCCESS;

	*request = *ret = NULL;
	r = rc ? NULL : coll_take(c);
	if (!r)
		return rc;
	r->coll = c;
	r->buffers = *buffers;
	r->bytes = bytes;
	atomic_store_explicit(&r->failed, false, memory_order_relaxed);
	*request = r;
	if (broken || !bytes)
		atomic_store_explicit(&r->state, broken ? COLL_FAILED : COLL_DONE, memory_order_relaxed);
	else
		*ret = r;
	return NCCL_SUCCESS;
}

/* Hands the first n operations of a request to the engine. If it does not take one, test
 * tells the error. */
static void coll_submit(struct coll_request *r, unsigned n)
{
	const struct rs_config *cfg = &r->coll->plugin->cfg;
	struct rs_err e;
	bool good = true;

	atomic_store_explicit(&r->left, n, memory_order_relaxed);
	atomic_store_explicit(&r->state, COLL_PENDING, memory_order_relaxed);
	for (unsigned i = 0; i < n; i++)
		coll_began(r->coll);
	for (unsigned i = 0; i < n; i++) {
		r->op[i].done = coll_on_done;
		r->op[i].user = r;
		operation_choose_job_wire(&r->op[i].of, cfg->job.wire_up, cfg->job.wire_down);
		good = good && engine_submit(r->coll->engine, &r->op[i], &e) == RS_OK;
		if (!good)
			coll_op_ended(r, &e);
	}
}

static struct operation coll_operation(size_t count, int dtype, int op)
{
	return (struct operation){.count = count,
				  .dtype = (uint8_t)dtype & 15,
				  .op = (uint8_t)op & 31,
				  .size = rs_dtype_size((unsigned)dtype) & OPERATION_SIZE};
}

/* Checks what NCCL asks for. Returns an nccl_result. */
static int coll_check(struct coll *c, const char *what, size_t bytes, int dtype, int op)
{
	struct rs_err e;

	if (coll_supports(dtype, op) && bytes <= PLUGIN_BYTES_MAX && bytes % rs_dtype_size((unsigned)dtype) == 0)
		return NCCL_SUCCESS;
	rs_fail(&e, RS_EINVAL, "NCCL asked for %s of %zu bytes, dtype %d, operation %d: not supported", what, bytes,
		dtype, op);
	return plugin_fail(c->plugin, &e);
}

int coll_all_reduce(struct coll *c, const void *send, void *recv, size_t count, int dtype, int op, void **request)
{
	size_t size = coll_supports(dtype, op) ? rs_dtype_size((unsigned)dtype) : 1, bytes;
	struct coll_request *r;
	int rc;

	*request = NULL;
	if (__builtin_mul_overflow(count, size, &bytes))
		bytes = SIZE_MAX;
	rc = coll_check(c, "an all-reduce", bytes, dtype, op);
	if (!rc)
		rc = coll_begin(c, &(struct coll_buffers){send, recv, bytes, bytes}, bytes, &r, request);
	if (rc || !r)
		return rc;
	r->op[0] = (struct exchange_op){.send = send, .recv = recv, .of = coll_operation(count, dtype, op)};
	c->started++;
	c->bytes += bytes;
	coll_submit(r, 1);
	return NCCL_SUCCESS;
}

/* Returns the number of operations of a slice, made in r->op; each is sharded, with the
 * parts of some ranks. */
static unsigned coll_make_slice(struct coll_request *r, const struct slice *w, int dtype, unsigned op)
{
	struct slice_run runs[SLICE_RUNS];
	unsigned n = slice_split(w, runs), size = rs_dtype_size((unsigned)dtype), rank = r->coll->rank;
	bool gather = op == FRAME_OP_BROADCAST;

	for (unsigned i = 0; i < n; i++) {
		bool owns = rank >= runs[i].first && rank - runs[i].first < runs[i].parts;
		struct exchange_op *o = &r->op[i];

		*o = (struct exchange_op){
		    .send = (const char *)r->buffers.send + (gather ? 0 : runs[i].at),
		    .recv = (char *)r->buffers.recv + (gather ? runs[i].at : 0),
		    .of = coll_operation(runs[i].parts * runs[i].part / size, dtype, (int)op),
		    .part = owns ? rank - runs[i].first : EXCHANGE_NO_PART,
		};
		o->of.sharded = 1;
		o->of.parts = runs[i].parts;
	}
	return n;
}

static int coll_slice(struct coll *c, const struct coll_buffers *buffers, const struct slice *w, int dtype, unsigned op,
		      void **request)
{
	struct coll_request *r;
	int rc;

	rc = coll_begin(c, buffers, w->bytes, &r, request);
	if (rc || !r)
		return rc;
	c->slices++;
	c->moved += w->bytes;
	coll_submit(r, coll_make_slice(r, w, dtype, op));
	return NCCL_SUCCESS;
}

/* Checks that a slice is one of this communicator. Returns an nccl_result. */
static int coll_check_slice(struct coll *c, const char *what, const struct slice *w, size_t size)
{
	size_t all;
	struct rs_err e;

	if (!__builtin_mul_overflow(w->part, c->ranks, &all) && w->offset <= all && w->bytes <= all - w->offset &&
	    w->part % size == 0 && w->offset % size == 0)
		return NCCL_SUCCESS;
	rs_fail(&e, RS_EINVAL,
		"NCCL asked for %s of bytes %zu to %zu of %u parts of %zu bytes, elements have %zu: not supported",
		what, w->offset, w->offset + w->bytes, c->ranks, w->part, size);
	return plugin_fail(c->plugin, &e);
}

int coll_all_gather(struct coll *c, const void *send, void *recv, const struct slice *w, void **request)
{
	const struct coll_buffers buffers = {send, recv, slice_own(w, c->rank), w->bytes};
	int rc = coll_check(c, "an all-gather", w->bytes, RS_UINT8, RS_SUM);

	*request = NULL;
	if (!rc)
		rc = coll_check_slice(c, "an all-gather", w, 1);
	return rc ? rc : coll_slice(c, &buffers, w, RS_UINT8, FRAME_OP_BROADCAST, request);
}

int coll_reduce_scatter(struct coll *c, const void *send, void *recv, const struct slice *w, int dtype, int op,
			void **request)
{
	const struct coll_buffers buffers = {send, recv, w->bytes, slice_own(w, c->rank)};
	int rc = coll_check(c, "a reduce-scatter", w->bytes, dtype, op);

	*request = NULL;
	if (!rc)
		rc = coll_check_slice(c, "a reduce-scatter", w, rs_dtype_size((unsigned)dtype));
	return rc ? rc : coll_slice(c, &buffers, w, dtype, (unsigned)op, request);
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
		memset(r->buffers.recv, 0xff, r->buffers.recv_bytes);
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
