/* SPDX-License-Identifier: Apache-2.0 */
/* Sharded operations: reduce-scatter and all-gather. Each rank owns one of world_size
 * equal parts. Failure modes are those of every operation, and RS_EUNSUPPORTED, which
 * does not break the communicator. */
#include "agent/lib/api/calls.h"
#include "common/dtype.h"
#include "proto/frame.h"

/* Makes the request one of all parts: so far it has the elements of one. */
static int sharded_of(struct backend_request *r, const struct reduction_comm *c, struct rs_err *e)
{
	uint64_t parts = c ? c->world_size : 1, count;

	if (!c)
		return comm_null("comm", e);
	if (api_check_elements(&r->of, e))
		return e->code;
	if (__builtin_mul_overflow(r->of.count, parts, &count) || count > PTRDIFF_MAX / r->of.size)
		return rs_fail(e, RS_EINVAL, "%llu parts of %llu elements of %s do not fit the address space",
			       (unsigned long long)parts, (unsigned long long)r->of.count, rs_dtype_name(r->of.dtype));
	r->of.count = count;
	r->of.parts = (uint32_t)parts;
	r->of.sharded = 1;
	return RS_OK;
}

/* Checks that this process can do it. */
static int sharded_possible(const struct backend_request *r, struct reduction_comm *c, struct rs_err *e)
{
	if (comm_check(c, e))
		return e->code;
	if (!c->backend->v->can_shard(c->backend))
		return rs_fail(
		    e, RS_EUNSUPPORTED,
		    "a rank or a reducer of this job knows no reduce-scatter and no all-gather: start a "
		    "newer release everywhere, without job.features: baseline. Or nodes have several ranks, but not "
		    "all of them equally many in the order of ranks (0 to 3 on the first node, 4 to 7 on the next "
		    "one): then set REDUCTION_MODE=direct. Or the job has started without some of its reducers: then "
		    "call reduction_barrier() first");
	return comm_check_device(c, r, e);
}

/* Checks that the buffer of one part is the own place in the buffer of all parts, or
 * apart from it. Their names are for messages. */
static int sharded_buffers(const struct backend_request *r, const struct reduction_comm *c, struct rs_err *e)
{
	bool gather = operation_is_gather(&r->of);
	uintptr_t all = (uintptr_t)(gather ? r->recv : r->send), part = (uintptr_t)(gather ? r->send : r->recv);
	uint64_t bytes = operation_bytes(&r->of), own = bytes / r->of.parts;

	if (bytes > 0 && (!r->send || !r->recv))
		return comm_null(r->send ? "recv" : "send", e);
	if (part == all + c->rank * own || part + own <= all || all + bytes <= part)
		return RS_OK;
	return rs_fail(e, RS_EINVAL, "the send and receive buffers overlap: %s must be part %u of %s, or apart from it",
		       gather ? "send" : "recv", c->rank, gather ? "recv" : "send");
}

static int sharded_scatter(struct backend_request *r, struct reduction_comm *c, struct rs_err *e)
{
	if (sharded_of(r, c, e) || api_check_op(&r->of, e) || sharded_buffers(r, c, e) || sharded_possible(r, c, e))
		return e->code;
	return RS_OK;
}

static int sharded_gather(struct backend_request *r, struct reduction_comm *c, struct rs_err *e)
{
	r->of.op = FRAME_OP_BROADCAST;
	if (sharded_of(r, c, e) || sharded_buffers(r, c, e) || sharded_possible(r, c, e))
		return e->code;
	return RS_OK;
}

static int sharded_tensor(struct backend_request *r, struct reduction_comm *c, const reduction_tensor *tensor,
			  bool gather, struct rs_err *e)
{
	if (api_check_tensors(c, tensor, 1, "tensor", e) || api_request(r, tensor, e))
		return e->code;
	return gather ? sharded_gather(r, c, e) : sharded_scatter(r, c, e);
}

int reduction_can_shard(const reduction_comm *comm)
{
	if (!comm)
		return -1;
	return comm->backend->v->can_shard(comm->backend);
}

int reduction_reduce_scatter_async(reduction_comm *comm, const void *send, void *recv, size_t count,
				   reduction_dtype dtype, reduction_op op, const char *name, reduction_request **ret,
				   reduction_error *err)
{
	struct backend_request r = {.send = send,
				    .recv = recv,
				    .of = api_operation(count, dtype, op, REDUCTION_PRIORITY_AUTO, name),
				    .name = name};
	struct rs_err e;

	return api_start(comm, &r, sharded_scatter(&r, comm, &e), &e, ret, err);
}

int reduction_all_gather_async(reduction_comm *comm, const void *send, void *recv, size_t count, reduction_dtype dtype,
			       const char *name, reduction_request **ret, reduction_error *err)
{
	struct backend_request r = {.send = send,
				    .recv = recv,
				    .of = api_operation(count, dtype, 0, REDUCTION_PRIORITY_AUTO, name),
				    .name = name};
	struct rs_err e;

	return api_start(comm, &r, sharded_gather(&r, comm, &e), &e, ret, err);
}

int reduction_reduce_scatter(reduction_comm *comm, const void *send, void *recv, size_t count, reduction_dtype dtype,
			     reduction_op op, reduction_error *err)
{
	struct backend_request r = {
	    .send = send, .recv = recv, .of = api_operation(count, dtype, op, REDUCTION_PRIORITY_AUTO, NULL)};
	struct rs_err e;

	return api_run(comm, &r, sharded_scatter(&r, comm, &e), &e, err);
}

int reduction_all_gather(reduction_comm *comm, const void *send, void *recv, size_t count, reduction_dtype dtype,
			 reduction_error *err)
{
	struct backend_request r = {
	    .send = send, .recv = recv, .of = api_operation(count, dtype, 0, REDUCTION_PRIORITY_AUTO, NULL)};
	struct rs_err e;

	return api_run(comm, &r, sharded_gather(&r, comm, &e), &e, err);
}

int reduction_reduce_scatter_tensor_async(reduction_comm *comm, const reduction_tensor *tensor, reduction_request **ret,
					  reduction_error *err)
{
	struct backend_request r;
	struct rs_err e;

	return api_start(comm, &r, sharded_tensor(&r, comm, tensor, false, &e), &e, ret, err);
}

int reduction_all_gather_tensor_async(reduction_comm *comm, const reduction_tensor *tensor, reduction_request **ret,
				      reduction_error *err)
{
	struct backend_request r;
	struct rs_err e;

	return api_start(comm, &r, sharded_tensor(&r, comm, tensor, true, &e), &e, ret, err);
}
