/* SPDX-License-Identifier: Apache-2.0 */
/* The C API over a backend: checks arguments, owns requests, waits. The happy path is: an operation is submitted, the
 * backend calls request_done on its thread, the waiter finds the state DONE and frees the request. Failure modes are:
 * wrong arguments (nothing starts) and an error from the backend, which breaks the communicator. */
#include "agent/comm.h"
#include "common/dtype.h"
#include "common/version.h"
#include "proto/frame.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(reduction_error) == sizeof(struct rs_err), "the public error is the internal one");
_Static_assert((int)REDUCTION_EINVAL == (int)RS_EINVAL && (int)REDUCTION_EINTERNAL == (int)RS_EINTERNAL,
	       "the codes are the same");
_Static_assert((int)REDUCTION_BFLOAT16 == (int)RS_BFLOAT16 && (int)REDUCTION_FLOAT32 == (int)RS_FLOAT32,
	       "the dtypes are the same");
_Static_assert((int)REDUCTION_SUM == (int)RS_SUM && (int)REDUCTION_AVG == (int)RS_AVG, "the operations are the same");

enum request_state {
	REQUEST_PENDING, /* nobody waits */
	REQUEST_WAITED,  /* a thread sleeps, or is about to, until this changes */
	REQUEST_DONE,    /* err is valid and the backend does not touch the request any more */
};

struct reduction_request {
	struct backend_request base;
	struct reduction_comm *comm; /* until the request is done */
	_Atomic uint32_t state;      /* enum request_state; a futex */
	struct rs_err err;           /* code 0: success */
};

int comm_result(reduction_error *err, const struct rs_err *e)
{
	if (err) {
		err->code = e->code;
		memcpy(err->message, e->msg, sizeof err->message);
	}
	return e->code;
}

static int success(reduction_error *err)
{
	if (err) {
		err->code = REDUCTION_OK;
		err->message[0] = '\0';
	}
	return REDUCTION_OK;
}

const char *reduction_version(void)
{
	return RS_VERSION;
}

const char *reduction_status_text(int status)
{
	return rs_code_text(status);
}

static void comm_break(struct reduction_comm *c, const struct rs_err *err)
{
	pthread_mutex_lock(&c->lock);
	if (!c->broken) {
		c->broken = true;
		c->err = *err;
	}
	pthread_mutex_unlock(&c->lock);
}

static int comm_check(struct reduction_comm *c, struct rs_err *e)
{
	int rc = RS_OK;

	pthread_mutex_lock(&c->lock);
	if (c->broken) {
		*e = c->err;
		rc = e->code;
	}
	pthread_mutex_unlock(&c->lock);
	return rc;
}

static long futex(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *until)
{
	return syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, value, until, NULL, FUTEX_BITSET_MATCH_ANY);
}

static void request_done(struct backend_request *base, const struct rs_err *err)
{
	struct reduction_request *req = (struct reduction_request *)base;

	req->err.code = RS_OK;
	if (err) {
		req->err = *err;
		/* of a wait this code means "not done": the caller would use the freed request again */
		if (err->code == RS_ETIMEOUT)
			req->err.code = RS_EPEER;
		comm_break(req->comm, &req->err);
	}
	/* from this exchange on the waiter may free req; waking an address that nobody sleeps on does no harm */
	if (atomic_exchange(&req->state, REQUEST_DONE) == REQUEST_WAITED)
		futex(&req->state, FUTEX_WAKE, 1, NULL);
}

static int request_start(struct reduction_request *req, struct reduction_comm *c, struct rs_err *e)
{
	int rc = comm_check(c, e);

	if (rc)
		return rc;
	req->comm = c;
	req->base.done = request_done;
	atomic_init(&req->state, REQUEST_PENDING);
	pthread_mutex_lock(&c->order);
	rc = c->backend->v->submit(c->backend, &req->base, e);
	pthread_mutex_unlock(&c->order);
	if (rc && rc != RS_EINVAL)
		comm_break(c, e);
	return rc;
}

/* Sleeps until the request is done; false when `until` (CLOCK_MONOTONIC, NULL: never) came first. */
static bool request_wait(struct reduction_request *req, const struct timespec *until)
{
	for (;;) {
		uint32_t state = atomic_load(&req->state);

		if (state == REQUEST_DONE)
			return true;
		if (state == REQUEST_PENDING && !atomic_compare_exchange_strong(&req->state, &state, REQUEST_WAITED))
			continue;
		if (futex(&req->state, FUTEX_WAIT_BITSET, REQUEST_WAITED, until) < 0 && errno == ETIMEDOUT)
			return atomic_load(&req->state) == REQUEST_DONE;
	}
}

static struct timespec deadline(int timeout_ms)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += timeout_ms / 1000;
	t.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
	if (t.tv_nsec >= 1000000000) {
		t.tv_sec++;
		t.tv_nsec -= 1000000000;
	}
	return t;
}

static int request_end(struct reduction_request *req, reduction_error *err)
{
	int rc = req->err.code ? comm_result(err, &req->err) : success(err);

	free(req);
	return rc;
}

int reduction_wait(reduction_request *req, int timeout_ms, reduction_error *err)
{
	struct timespec until;
	struct rs_err e;

	if (!req) {
		rs_fail(&e, RS_EINVAL, "there is no request to wait for: it is NULL");
		return comm_result(err, &e);
	}
	if (timeout_ms >= 0)
		until = deadline(timeout_ms);
	if (request_wait(req, timeout_ms >= 0 ? &until : NULL))
		return request_end(req, err);
	rs_fail(&e, RS_ETIMEOUT, "the operation was not done within %d ms; it goes on", timeout_ms);
	return comm_result(err, &e);
}

int reduction_test(reduction_request *req, int *done, reduction_error *err)
{
	struct rs_err e;

	if (!req || !done) {
		rs_fail(&e, RS_EINVAL, "%s is NULL", req ? "done" : "the request");
		return comm_result(err, &e);
	}
	*done = atomic_load(&req->state) == REQUEST_DONE;
	return *done ? request_end(req, err) : success(err);
}

static int check_elements(const struct reduction_comm *c, size_t count, unsigned dtype, size_t *ret_bytes,
			  struct rs_err *e)
{
	size_t size = rs_dtype_size(dtype);

	if (!c)
		return rs_fail(e, RS_EINVAL, "the communicator is NULL");
	if (size == 0)
		return rs_fail(e, RS_EINVAL, "dtype %u is unknown, 0 (int8) to %u (bfloat16) were expected", dtype,
			       RS_BFLOAT16);
	if (count > PTRDIFF_MAX / size)
		return rs_fail(e, RS_EINVAL, "%zu elements of %s do not fit the address space", count,
			       rs_dtype_name(dtype));
	*ret_bytes = count * size;
	return RS_OK;
}

static int check_all_reduce(struct backend_request *r, const struct reduction_comm *c, struct rs_err *e)
{
	size_t bytes;
	int rc = check_elements(c, r->count, r->dtype, &bytes, e);
	uintptr_t send = (uintptr_t)r->send, recv = (uintptr_t)r->recv;

	if (rc)
		return rc;
	if (r->op >= RS_OP_NR)
		return rs_fail(e, RS_EINVAL, "operation %u is unknown, 0 (sum) to %u (avg) were expected", r->op,
			       RS_OP_NR - 1);
	if (bytes > 0 && (!r->send || !r->recv))
		return rs_fail(e, RS_EINVAL, "the %s buffer is NULL", r->send ? "receive" : "send");
	if (send != recv && send < recv + bytes && recv < send + bytes)
		return rs_fail(e, RS_EINVAL,
			       "the send and receive buffers overlap: they must be the same or apart from each other");
	return RS_OK;
}

static int check_broadcast(struct backend_request *r, const struct reduction_comm *c, int root, struct rs_err *e)
{
	size_t bytes;
	int rc = check_elements(c, r->count, r->dtype, &bytes, e);

	if (rc)
		return rc;
	if (root < 0 || (unsigned)root >= c->world_size)
		return rs_fail(e, RS_EINVAL, "root %d is no rank of this job, 0 to %u were expected", root,
			       c->world_size - 1);
	if (bytes > 0 && !r->recv)
		return rs_fail(e, RS_EINVAL, "the buffer is NULL");
	r->root = (unsigned)root;
	return RS_OK;
}

/* A request on the heap for what r describes and rc, e say about it. */
static int start_async(struct reduction_comm *c, const struct backend_request *r, int rc, struct rs_err *e,
		       reduction_request **ret, reduction_error *err)
{
	struct reduction_request *req = NULL;

	if (!rc && !ret)
		rc = rs_fail(e, RS_EINVAL, "there is no place for the request: ret is NULL");
	if (!rc) {
		req = malloc(sizeof *req);
		if (!req)
			rc = rs_fail(e, RS_ENOMEM, "there is no memory for a request");
	}
	if (!rc) {
		req->base = *r;
		rc = request_start(req, c, e);
	}
	if (rc) {
		free(req);
		return comm_result(err, e);
	}
	*ret = req;
	return success(err);
}

static int run(struct reduction_comm *c, const struct backend_request *r, int rc, struct rs_err *e,
	       reduction_error *err)
{
	struct reduction_request req;

	if (!rc) {
		req.base = *r;
		rc = request_start(&req, c, e);
	}
	if (rc)
		return comm_result(err, e);
	request_wait(&req, NULL);
	return req.err.code ? comm_result(err, &req.err) : success(err);
}

int reduction_all_reduce_async(reduction_comm *comm, const void *send, void *recv, size_t count, reduction_dtype dtype,
			       reduction_op op, const char *name, reduction_request **ret, reduction_error *err)
{
	struct backend_request r = {.send = send, .recv = recv, .count = count, .dtype = dtype, .op = op, .name = name};
	struct rs_err e;

	return start_async(comm, &r, check_all_reduce(&r, comm, &e), &e, ret, err);
}

int reduction_broadcast_async(reduction_comm *comm, void *buf, size_t count, reduction_dtype dtype, int root,
			      const char *name, reduction_request **ret, reduction_error *err)
{
	struct backend_request r = {
	    .send = buf, .recv = buf, .count = count, .dtype = dtype, .op = FRAME_OP_BROADCAST, .name = name};
	struct rs_err e;

	return start_async(comm, &r, check_broadcast(&r, comm, root, &e), &e, ret, err);
}

int reduction_all_reduce(reduction_comm *comm, const void *send, void *recv, size_t count, reduction_dtype dtype,
			 reduction_op op, reduction_error *err)
{
	struct backend_request r = {.send = send, .recv = recv, .count = count, .dtype = dtype, .op = op};
	struct rs_err e;

	return run(comm, &r, check_all_reduce(&r, comm, &e), &e, err);
}

int reduction_broadcast(reduction_comm *comm, void *buf, size_t count, reduction_dtype dtype, int root,
			reduction_error *err)
{
	struct backend_request r = {.send = buf, .recv = buf, .count = count, .dtype = dtype, .op = FRAME_OP_BROADCAST};
	struct rs_err e;

	return run(comm, &r, check_broadcast(&r, comm, root, &e), &e, err);
}

int reduction_barrier(reduction_comm *comm, reduction_error *err)
{
	struct backend_request r = {.dtype = RS_UINT8, .op = RS_SUM, .name = "barrier"};
	struct rs_err e;

	return run(comm, &r, check_all_reduce(&r, comm, &e), &e, err);
}

int reduction_close(reduction_comm *comm, reduction_error *err)
{
	if (comm) {
		comm->backend->v->close(comm->backend);
		pthread_mutex_destroy(&comm->lock);
		pthread_mutex_destroy(&comm->order);
		free(comm);
	}
	return success(err);
}

int reduction_rank(const reduction_comm *comm)
{
	return (int)comm->rank;
}

int reduction_world_size(const reduction_comm *comm)
{
	return (int)comm->world_size;
}

int reduction_buffer_alloc(reduction_comm *comm, size_t bytes, void **ret, reduction_error *err)
{
	struct rs_err e;

	if (!comm || !ret)
		rs_fail(&e, RS_EINVAL, "%s is NULL", comm ? "ret" : "the communicator");
	else if (!comm->backend->v->alloc(comm->backend, bytes, ret, &e))
		return success(err);
	return comm_result(err, &e);
}

void reduction_buffer_free(reduction_comm *comm, void *buf)
{
	if (comm && buf)
		comm->backend->v->free(comm->backend, buf);
}

int reduction_get_stats(reduction_comm *comm, reduction_stats *ret, reduction_error *err)
{
	struct rs_err e;

	if (!comm || !ret)
		rs_fail(&e, RS_EINVAL, "%s is NULL", comm ? "ret" : "the communicator");
	else if (!comm->backend->v->stats(comm->backend, ret, &e))
		return success(err);
	return comm_result(err, &e);
}
