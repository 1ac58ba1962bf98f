/* SPDX-License-Identifier: Apache-2.0 */
/* The C API over a backend: checks arguments, owns requests, waits. The happy path: an
 * operation is submitted, the backend calls api_request_done on its thread, the waiter
 * finds REQUEST_DONE and frees the request. Failure modes: invalid arguments (nothing
 * starts); an error of the backend, which breaks the communicator. */
#include "agent/lib/api/calls.h"
#include "agent/lib/api/group.h"
#include "common/dtype.h"
#include "common/version.h"
#include "proto/frame.h"

#include <string.h>
#include <sys/mman.h>
#include <time.h>

_Static_assert(sizeof(reduction_error) == sizeof(struct rs_err), "the public error is the internal one");
_Static_assert((int)REDUCTION_EINVAL == (int)RS_EINVAL && (int)REDUCTION_EINTERNAL == (int)RS_EINTERNAL,
	       "the codes are the same");
_Static_assert((int)REDUCTION_BFLOAT16 == (int)RS_BFLOAT16 && (int)REDUCTION_FLOAT32 == (int)RS_FLOAT32,
	       "the dtypes are the same");
_Static_assert((int)REDUCTION_WIRE_SAME == RS_WIRE_SAME + 1 && (int)REDUCTION_WIRE_INT4 == RS_WIRE_INT4 + 1,
	       "the encodings are the same, behind that of the job");
_Static_assert((int)REDUCTION_SUM == (int)RS_SUM && (int)REDUCTION_AVG == (int)RS_AVG, "the operations are the same");

enum {
	/* After reduction_abort the node agent ends when it has passed the reason on:
	 * longest time that this may take.
	 */
	ABORT_DRAIN_MS = 2000,
};

/* Sizes of the structs of version 0.1, the first one. */
enum {
	TENSOR_SIZE_0_1 = offsetof(reduction_tensor, priority) + sizeof(int),
	TENSOR_SIZE_DEVICE = offsetof(reduction_tensor, stream) + sizeof(void *), /* with device and stream */
	TENSOR_SIZE_WIRE = offsetof(reduction_tensor, wire) + sizeof(reduction_wire),
	STATS_SIZE_0_1 = offsetof(reduction_stats, ops_done) + sizeof(uint64_t),
};

static int api_success(reduction_error *err)
{
	if (err) {
		err->code = REDUCTION_OK;
		err->message[0] = '\0';
	}
	return REDUCTION_OK;
}

static int api_null(const char *argument, reduction_error *err)
{
	struct rs_err e;

	comm_null(argument, &e);
	return comm_result(err, &e);
}

const char *reduction_version(void)
{
	return RS_VERSION;
}

const char *reduction_status_text(int status)
{
	return rs_code_text(status);
}

static void api_request_done(struct backend_request *base, const struct rs_err *err)
{
	struct reduction_request *req = (struct reduction_request *)base;
	struct rs_err e;

	if (err)
		comm_failed(req->comm, err, &e);
	request_complete(req, err ? &e : NULL);
}

static int api_request_start(struct reduction_request *req, struct reduction_comm *c, struct rs_err *e)
{
	int rc;

	request_init(req, c);
	req->base.done = api_request_done;
	comm_choose_wire(c, &req->base.of, req->base.wire);
	pthread_mutex_lock(&c->order);
	rc = comm_submit(c, &req->base, e);
	pthread_mutex_unlock(&c->order);
	return rc;
}

static struct timespec api_deadline(int timeout_ms)
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

static int api_request_end(struct reduction_request *req, reduction_error *err)
{
	int rc = req->err.code ? comm_result(err, &req->err) : api_success(err);

	request_put(req);
	return rc;
}

int reduction_wait(reduction_request *req, int timeout_ms, reduction_error *err)
{
	struct timespec until;
	struct rs_err e;

	if (!req)
		return api_null("req", err);
	if (comm_check_process(request_pool_pid(req->pool), &e))
		return comm_result(err, &e);
	if (timeout_ms >= 0)
		until = api_deadline(timeout_ms);
	if (request_wait(req->pool, req, timeout_ms >= 0 ? &until : NULL))
		return api_request_end(req, err);
	rs_fail(&e, RS_ETIMEOUT, "the operation was not done within %d ms; it goes on", timeout_ms);
	return comm_result(err, &e);
}

int reduction_test(reduction_request *req, int *done, reduction_error *err)
{
	struct rs_err e;

	if (!req || !done)
		return api_null(req ? "done" : "req", err);
	if (comm_check_process(request_pool_pid(req->pool), &e))
		return comm_result(err, &e);
	*done = request_is_done(req);
	return *done ? api_request_end(req, err) : api_success(err);
}

/* The largest numbers that struct operation has room for. */
enum { API_DTYPE_MAX = 15, API_OP_MAX = 31 };

struct operation api_operation(size_t count, unsigned dtype, unsigned op, int priority, const char *name)
{
	return (struct operation){
	    .count = count,
	    .name_hash = frame_name_hash(name),
	    .dtype = dtype < API_DTYPE_MAX ? dtype & API_DTYPE_MAX : API_DTYPE_MAX,
	    .op = op < API_OP_MAX ? op & API_OP_MAX : API_OP_MAX,
	    .size = rs_dtype_size(dtype) & OPERATION_SIZE,
	    .priority = (uint8_t)(priority < 0                ? OPERATION_AUTO
				  : priority < OPERATION_AUTO ? priority
							      : OPERATION_AUTO - 1),
	};
}

int api_check_elements(const struct operation *of, struct rs_err *e)
{
	if (of->size == 0)
		return rs_fail(e, RS_EINVAL, "dtype %u is unknown, 0 (int8) to %u (bfloat16) were expected", of->dtype,
			       RS_BFLOAT16);
	if (of->count > PTRDIFF_MAX / of->size)
		return rs_fail(e, RS_EINVAL, "%zu elements of %s do not fit the address space", (size_t)of->count,
			       rs_dtype_name(of->dtype));
	return RS_OK;
}

int api_check_op(const struct operation *of, struct rs_err *e)
{
	if (of->op < RS_OP_NR)
		return RS_OK;
	return rs_fail(e, RS_EINVAL, "operation %u is unknown, 0 (sum) to %u (avg) were expected", of->op,
		       RS_OP_NR - 1);
}

static int api_check_all_reduce(struct backend_request *r, const struct reduction_comm *c, struct rs_err *e)
{
	uintptr_t send = (uintptr_t)r->send, recv = (uintptr_t)r->recv;
	size_t bytes = operation_bytes(&r->of);

	if (!c)
		return comm_null("comm", e);
	if (api_check_elements(&r->of, e))
		return e->code;
	if (api_check_op(&r->of, e))
		return e->code;
	if (bytes > 0 && (!r->send || !r->recv))
		return comm_null(r->send ? "recv" : "send", e);
	if (send != recv && send < recv + bytes && recv < send + bytes)
		return rs_fail(e, RS_EINVAL,
			       "the send and receive buffers overlap: they must be the same or apart from each other");
	return RS_OK;
}

/* buffer: the argument's name. */
static int api_check_broadcast(struct backend_request *r, const struct reduction_comm *c, int root, const char *buffer,
			       struct rs_err *e)
{
	size_t bytes = operation_bytes(&r->of);

	if (!c)
		return comm_null("comm", e);
	if (api_check_elements(&r->of, e))
		return e->code;
	if (root < 0 || (unsigned)root >= c->world_size)
		return rs_fail(e, RS_EINVAL, "root %d is not a rank of this job, 0 to %u were expected", root,
			       c->world_size - 1);
	if (bytes > 0 && !r->recv)
		return comm_null(buffer, e);
	r->send = r->recv;
	r->of.op = FRAME_OP_BROADCAST;
	r->of.root = (unsigned)root;
	return RS_OK;
}

int api_start(struct reduction_comm *c, const struct backend_request *r, int rc, struct rs_err *e,
	      reduction_request **ret, reduction_error *err)
{
	struct reduction_request *req = NULL;

	if (!rc && !ret)
		rc = comm_null("ret", e);
	if (!rc)
		rc = comm_check_process(c->pid, e);
	if (!rc) {
		req = request_get(c->requests, r);
		if (!req)
			rc = rs_oom(e, 0, "a request");
	}
	if (!rc)
		rc = api_request_start(req, c, e);
	if (rc) {
		if (req)
			request_put(req);
		return comm_result(err, e);
	}
	*ret = req;
	return api_success(err);
}

int api_run(struct reduction_comm *c, const struct backend_request *r, int rc, struct rs_err *e, reduction_error *err)
{
	struct reduction_request req;

	if (!rc)
		rc = comm_check_process(c->pid, e);
	if (!rc) {
		req.base = *r;
		rc = api_request_start(&req, c, e);
	}
	if (rc)
		return comm_result(err, e);
	request_wait(c->requests, &req, NULL);
	return req.err.code ? comm_result(err, &req.err) : api_success(err);
}

int api_request(struct backend_request *ret, const reduction_tensor *t, struct rs_err *e)
{
	bool knows = t->struct_size >= TENSOR_SIZE_DEVICE;
	int wire = t->struct_size >= TENSOR_SIZE_WIRE ? (int)t->wire : REDUCTION_WIRE_JOB;

	if (wire < REDUCTION_WIRE_JOB || wire > REDUCTION_WIRE_INT4)
		return rs_fail(e, RS_EINVAL, "wire is %d, %d to %d were expected", wire, REDUCTION_WIRE_JOB,
			       REDUCTION_WIRE_INT4);
	if (knows && t->device < REDUCTION_HOST)
		return rs_fail(e, RS_EINVAL, "device is %d, the number of a GPU or REDUCTION_HOST was expected",
			       t->device);
	*ret = (struct backend_request){.send = t->send,
					.recv = t->recv,
					.of = api_operation(t->count, t->dtype, t->op, t->priority, t->name),
					.wire = (reduction_wire)wire,
					.name = t->name,
					.device = knows ? (unsigned)(t->device + 1) : 0,
					.stream = knows ? t->stream : NULL,
					.done = api_request_done};
	return RS_OK;
}

/* Converts the i-th tensor to a request. The size of the struct depends on the header of
 * the caller. */
static int api_read_tensor(struct backend_request *r, struct reduction_comm *c, const reduction_tensor *tensors,
			   size_t i, struct rs_err *e)
{
	size_t size = tensors->struct_size;
	const reduction_tensor *t = (const reduction_tensor *)((const char *)tensors + i * size);

	if (t->struct_size != size)
		return rs_fail(e, RS_EINVAL, "struct_size is %zu, %zu as in the first tensor was expected",
			       t->struct_size, size);
	if (api_request(r, t, e) || api_check_all_reduce(r, c, e) || comm_check_device(c, r, e))
		return e->code;
	return RS_OK;
}

int api_check_tensors(const struct reduction_comm *c, const reduction_tensor *tensors, size_t n, const char *argument,
		      struct rs_err *e)
{
	if (!c)
		return comm_null("comm", e);
	if (n == 0)
		return RS_OK;
	if (!tensors)
		return comm_null(argument, e);
	return comm_check_size(tensors->struct_size, TENSOR_SIZE_0_1, sizeof *tensors, "REDUCTION_TENSOR_INIT", e);
}

static int api_all_reduce_tensor(struct backend_request *r, struct reduction_comm *c, const reduction_tensor *tensor,
				 struct rs_err *e)
{
	int rc = api_check_tensors(c, tensor, 1, "tensor", e);

	return rc ? rc : api_read_tensor(r, c, tensor, 0, e);
}

static int api_broadcast_tensor(struct backend_request *r, struct reduction_comm *c, const reduction_tensor *tensor,
				int root, struct rs_err *e)
{
	int rc = api_check_tensors(c, tensor, 1, "tensor", e);

	if (rc)
		return rc;
	if (tensor->send && tensor->send != tensor->recv)
		return rs_fail(e, RS_EINVAL,
			       "send is another buffer than recv: a broadcast has one buffer, recv; leave send NULL");
	if (api_request(r, tensor, e) || api_check_broadcast(r, c, root, "recv", e) || comm_check_device(c, r, e))
		return e->code;
	return RS_OK;
}

/* Makes a request for each tensor, chained by `follows`. After an error there are
 * none. */
static int api_make_group(struct reduction_comm *c, const reduction_tensor *tensors, size_t n,
			  struct reduction_request **ret, struct rs_err *e)
{
	struct reduction_request *first = NULL, **end = &first, *req;
	struct backend_request r;
	int rc = comm_check_process(c->pid, e);

	for (size_t i = 0; i < n && !rc; i++) {
		rc = api_read_tensor(&r, c, tensors, i, e);
		if (rc) {
			rs_wrap(e, "tensor %zu of a group of %zu", i, n);
			break;
		}
		req = request_get(c->requests, &r);
		if (!req) {
			rc = rs_oom(e, 0, "the requests of %zu tensors", n);
			break;
		}
		request_init(req, c);
		*end = req;
		end = &req->follows;
	}
	if (!rc)
		rc = comm_check(c, e);
	if (!rc) {
		*ret = first;
		return RS_OK;
	}
	while ((req = first)) {
		first = req->follows;
		request_put(req);
	}
	return rc;
}

int reduction_all_reduce_group_async(reduction_comm *comm, const reduction_tensor *tensors, size_t n,
				     reduction_request **ret, reduction_error *err)
{
	struct reduction_request *first;
	struct rs_err e;
	int rc = api_check_tensors(comm, tensors, n, "tensors", &e);

	if (!rc && n > 0 && !ret)
		rc = comm_null("ret", &e);
	if (!rc)
		rc = api_make_group(comm, tensors, n, &first, &e);
	if (rc)
		return comm_result(err, &e);
	group_start(comm, first);
	for (size_t i = 0; i < n; i++, first = first->follows)
		ret[i] = first;
	return api_success(err);
}

int reduction_all_reduce_group(reduction_comm *comm, const reduction_tensor *tensors, size_t n, reduction_error *err)
{
	struct reduction_request *req, *first;
	struct rs_err e = {.code = RS_OK};
	int rc = api_check_tensors(comm, tensors, n, "tensors", &e);

	if (!rc)
		rc = api_make_group(comm, tensors, n, &first, &e);
	if (rc)
		return comm_result(err, &e);
	group_start(comm, first);
	while ((req = first)) {
		first = req->follows;
		request_wait(comm->requests, req, NULL);
		if (req->err.code && !e.code)
			e = req->err;
		request_put(req);
	}
	return e.code ? comm_result(err, &e) : api_success(err);
}

int reduction_all_reduce_async(reduction_comm *comm, const void *send, void *recv, size_t count, reduction_dtype dtype,
			       reduction_op op, const char *name, reduction_request **ret, reduction_error *err)
{
	struct backend_request r = {.send = send,
				    .recv = recv,
				    .of = api_operation(count, dtype, op, REDUCTION_PRIORITY_AUTO, name),
				    .name = name};
	struct rs_err e;

	return api_start(comm, &r, api_check_all_reduce(&r, comm, &e), &e, ret, err);
}

int reduction_all_reduce(reduction_comm *comm, const void *send, void *recv, size_t count, reduction_dtype dtype,
			 reduction_op op, reduction_error *err)
{
	struct backend_request r = {
	    .send = send, .recv = recv, .of = api_operation(count, dtype, op, REDUCTION_PRIORITY_AUTO, NULL)};
	struct rs_err e;

	return api_run(comm, &r, api_check_all_reduce(&r, comm, &e), &e, err);
}

int reduction_all_reduce_tensor_async(reduction_comm *comm, const reduction_tensor *tensor, reduction_request **ret,
				      reduction_error *err)
{
	struct backend_request r;
	struct rs_err e;

	return api_start(comm, &r, api_all_reduce_tensor(&r, comm, tensor, &e), &e, ret, err);
}

int reduction_all_reduce_tensor(reduction_comm *comm, const reduction_tensor *tensor, reduction_error *err)
{
	struct backend_request r;
	struct rs_err e;

	return api_run(comm, &r, api_all_reduce_tensor(&r, comm, tensor, &e), &e, err);
}

int reduction_broadcast_async(reduction_comm *comm, void *buf, size_t count, reduction_dtype dtype, int root,
			      const char *name, reduction_request **ret, reduction_error *err)
{
	struct backend_request r = {
	    .recv = buf, .of = api_operation(count, dtype, 0, REDUCTION_PRIORITY_AUTO, name), .name = name};
	struct rs_err e;

	return api_start(comm, &r, api_check_broadcast(&r, comm, root, "buf", &e), &e, ret, err);
}

int reduction_broadcast(reduction_comm *comm, void *buf, size_t count, reduction_dtype dtype, int root,
			reduction_error *err)
{
	struct backend_request r = {.recv = buf, .of = api_operation(count, dtype, 0, REDUCTION_PRIORITY_AUTO, NULL)};
	struct rs_err e;

	return api_run(comm, &r, api_check_broadcast(&r, comm, root, "buf", &e), &e, err);
}

int reduction_broadcast_tensor_async(reduction_comm *comm, const reduction_tensor *tensor, int root,
				     reduction_request **ret, reduction_error *err)
{
	struct backend_request r;
	struct rs_err e;

	return api_start(comm, &r, api_broadcast_tensor(&r, comm, tensor, root, &e), &e, ret, err);
}

int reduction_broadcast_tensor(reduction_comm *comm, const reduction_tensor *tensor, int root, reduction_error *err)
{
	struct backend_request r;
	struct rs_err e;

	return api_run(comm, &r, api_broadcast_tensor(&r, comm, tensor, root, &e), &e, err);
}

int reduction_barrier(reduction_comm *comm, reduction_error *err)
{
	struct backend_request r = {.of = api_operation(0, RS_UINT8, RS_SUM, REDUCTION_PRIORITY_AUTO, "barrier"),
				    .name = "barrier"};
	struct rs_err e;

	return api_run(comm, &r, api_check_all_reduce(&r, comm, &e), &e, err);
}

int reduction_close(reduction_comm *comm, reduction_error *err)
{
	struct rs_err e;

	if (!comm)
		return api_null("comm", err);
	if (comm_check_process(comm->pid, &e))
		return comm_result(err, &e);
	comm_unclaim(comm);
	comm->backend->v->stop(comm->backend);
	request_pool_close(comm->requests);
	comm_stop_copies(comm);
	group_stages_free(&comm->stages, comm->backend);
	comm->backend->v->close(comm->backend);
	if (comm->node)
		node_agent_stop(comm->node, comm_aborted(comm) ? ABORT_DRAIN_MS : node_agent_drain_ms(comm->node));
	comm_delete(comm);
	return api_success(err);
}

int reduction_abort(reduction_comm *comm, const char *reason, reduction_error *err)
{
	struct rs_err e;

	if (!comm)
		return api_null("comm", err);
	if (comm_check_process(comm->pid, &e))
		return comm_result(err, &e);
	comm_abort(comm, reason ? reason : "");
	return api_success(err);
}

int reduction_rank(const reduction_comm *comm)
{
	return comm ? (int)comm->rank : -1;
}

int reduction_world_size(const reduction_comm *comm)
{
	return comm ? (int)comm->world_size : -1;
}

int reduction_priorities(const reduction_comm *comm)
{
	return comm ? (int)comm->backend->priorities : -1;
}

int reduction_buffer_alloc(reduction_comm *comm, size_t bytes, void **ret, reduction_error *err)
{
	struct rs_err e;

	if (!comm || !ret)
		return api_null(comm ? "ret" : "comm", err);
	if (comm_check_process(comm->pid, &e))
		return comm_result(err, &e);
	return comm->backend->v->alloc(comm->backend, bytes, ret, &e) ? comm_result(err, &e) : api_success(err);
}

void reduction_buffer_free(reduction_comm *comm, void *buf)
{
	struct rs_err e;

	if (comm && buf && !comm_check_process(comm->pid, &e))
		comm->backend->v->free(comm->backend, buf);
}

void reduction_buffer_unmap(void *buf, size_t bytes)
{
	if (buf)
		munmap(buf, bytes ? bytes : 1);
}

int reduction_get_stats(reduction_comm *comm, reduction_stats *ret, reduction_error *err)
{
	reduction_stats now = REDUCTION_STATS_INIT;
	struct rs_err e;
	size_t size;

	if (!comm || !ret)
		return api_null(comm ? "ret" : "comm", err);
	size = ret->struct_size;
	if (comm_check_size(size, STATS_SIZE_0_1, sizeof *ret, "REDUCTION_STATS_INIT", &e) ||
	    comm_check_process(comm->pid, &e) || comm->backend->v->stats(comm->backend, &now, &e))
		return comm_result(err, &e);
	now.struct_size = size;
	memcpy(ret, &now, size);
	return api_success(err);
}
