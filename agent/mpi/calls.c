/* SPDX-License-Identifier: Apache-2.0 */
/* The functions that replace MPI's. */
#include "agent/mpi/calls.h"
#include "agent/mpi/job.h"

#include <limits.h>
#include <stdlib.h>

#define CALLER __builtin_return_address(0)

/* An all-reduce as the program has called for it. */
struct reduce {
	const void *send;
	void *recv;
	int64_t count;
	mpi_handle type, op, comm;
};

/* What reducers are told about it. */
struct reduce_plan {
	size_t count;
	reduction_dtype dtype;
	reduction_op op;
};

/* Reports an error of an operation that reducers have taken, as MPI would. */
static int fail(struct shim *s, mpi_handle comm)
{
	s->mpi.call.comm_call_errhandler(comm, s->mpi.err_other);
	return s->mpi.err_other;
}

static bool plan_op(const struct mpi *m, const struct reduce *r, const struct mpi_type *t, reduction_op *ret)
{
	const struct {
		mpi_handle handle;
		reduction_op op;
		bool complex; /* is defined element by element for complex numbers */
	} ops[] = {
	    {m->sum, REDUCTION_SUM, true},
	    {m->prod, REDUCTION_PROD, false},
	    {m->min, REDUCTION_MIN, false},
	    {m->max, REDUCTION_MAX, false},
	};

	for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
		if (ops[i].handle == r->op && (t->elements == 1 || ops[i].complex)) {
			*ret = ops[i].op;
			return true;
		}
	}
	return false;
}

/* Decides by what is equal on all ranks: whether a call of this kind can be taken. */
static enum pass plan(const struct shim *s, const struct reduce *r, int64_t bytes, struct reduce_plan *ret)
{
	const struct mpi_type *t;

	if (bytes >= 0 && bytes < s->settings.min_bytes)
		return PASS_SMALL;
	t = mpi_find_type(&s->mpi, r->type);
	if (!t)
		return PASS_TYPE;
	if (!plan_op(&s->mpi, r, t, &ret->op))
		return PASS_OP;
	ret->dtype = t->dtype;
	ret->count = (size_t)r->count * t->elements;
	return PASS_NOT;
}

/* Finds the job that takes the call. NULL: it is passed on, or fails with *ret_error. */
static struct job *take(struct shim *s, struct reduce *r, bool blocking, struct reduce_plan *ret, int *ret_error)
{
	struct job *job = NULL;
	bool refused = false;
	enum pass pass;
	int64_t bytes;

	*ret_error = MPI_SUCCEEDED;
	if (!s->active)
		return NULL;
	r->type = mpi_handle_of(&s->mpi, r->type);
	r->op = mpi_handle_of(&s->mpi, r->op);
	r->comm = mpi_handle_of(&s->mpi, r->comm);
	bytes = mpi_bytes(&s->mpi, r->count, r->type);
	pass = plan(s, r, bytes, ret);
	if (pass == PASS_NOT)
		job = job_find(s, r->comm, blocking, &pass, &refused);
	if (refused)
		*ret_error = fail(s, r->comm);
	else
		report_count(&s->report, pass, bytes);
	return job;
}

static const void *send_of(const struct shim *s, const struct reduce *r)
{
	return r->send == s->mpi.in_place ? r->recv : r->send;
}

/* Returns true if the call is done, with its result. */
static bool all_reduce(struct shim *s, struct reduce r, int *result)
{
	struct reduce_plan p;
	struct job *job = take(s, &r, true, &p, result);
	reduction_error e;

	if (job && reduction_all_reduce(job->comm, send_of(s, &r), r.recv, p.count, p.dtype, p.op, &e)) {
		shim_say(s, "%s", e.message);
		*result = fail(s, r.comm);
	}
	return job || *result;
}

static bool all_reduce_pending(struct shim *s, struct reduce r, void *request, int *result)
{
	struct reduce_plan p;
	struct job *job = take(s, &r, false, &p, result);

	if (job && pending_all_reduce(job, send_of(s, &r), r.recv, p.count, p.dtype, p.op, request))
		*result = fail(s, r.comm);
	return job || *result;
}

int MPI_Allreduce(const void *send, void *recv, int count, mpi_handle type, mpi_handle op, mpi_handle comm)
{
	struct shim *s = shim_get(CALLER);
	int rc;

	if (all_reduce(s, (struct reduce){send, recv, count, type, op, comm}, &rc))
		return rc;
	return s->mpi.call.allreduce(send, recv, count, type, op, comm);
}

int MPI_Allreduce_c(const void *send, void *recv, int64_t count, mpi_handle type, mpi_handle op, mpi_handle comm)
{
	struct shim *s = shim_get(CALLER);
	int rc;

	if (all_reduce(s, (struct reduce){send, recv, count, type, op, comm}, &rc))
		return rc;
	if (s->mpi.call.allreduce_c)
		return s->mpi.call.allreduce_c(send, recv, count, type, op, comm);
	return count <= INT_MAX ? s->mpi.call.allreduce(send, recv, (int)count, type, op, comm) : fail(s, comm);
}

int MPI_Iallreduce(const void *send, void *recv, int count, mpi_handle type, mpi_handle op, mpi_handle comm,
		   void *request)
{
	struct shim *s = shim_get(CALLER);
	int rc;

	if (all_reduce_pending(s, (struct reduce){send, recv, count, type, op, comm}, request, &rc))
		return rc;
	return s->mpi.call.iallreduce(send, recv, count, type, op, comm, request);
}

int MPI_Iallreduce_c(const void *send, void *recv, int64_t count, mpi_handle type, mpi_handle op, mpi_handle comm,
		     void *request)
{
	struct shim *s = shim_get(CALLER);
	int rc;

	if (all_reduce_pending(s, (struct reduce){send, recv, count, type, op, comm}, request, &rc))
		return rc;
	if (s->mpi.call.iallreduce_c)
		return s->mpi.call.iallreduce_c(send, recv, count, type, op, comm, request);
	return count <= INT_MAX ? s->mpi.call.iallreduce(send, recv, (int)count, type, op, comm, request)
				: fail(s, comm);
}

/* A broadcast as the program has called for it. Its types may differ between ranks; only
 * the bytes without gaps are equal. */
struct copy {
	char *buffer;
	int64_t count;
	mpi_handle type;
	int root;
	mpi_handle comm;
};

/* Returns whether the elements are the bytes from `buffer` on, without gaps and in this
 * order. A type that the program has made may have another order, though no gaps. */
static bool copy_is_plain(const struct mpi *m, const struct copy *c, int64_t bytes)
{
	intptr_t low, extent, true_low, true_extent;
	int64_t each = bytes / c->count;

	if (mpi_find_type(m, c->type))
		return true;
	return mpi_is_named(m, c->type) && m->call.type_get_extent(c->type, &low, &extent) == MPI_SUCCEEDED &&
	       m->call.type_get_true_extent(c->type, &true_low, &true_extent) == MPI_SUCCEEDED && low == 0 &&
	       true_low == 0 && extent == each && true_extent == each;
}

/* Packs the elements into `to`, or unpacks them. MPI counts their bytes in an int. */
static int copy_pack(const struct mpi *m, const struct copy *c, int64_t bytes, char *to, bool unpack)
{
	int64_t each = bytes / c->count, piece = each < INT_MAX ? INT_MAX / each : 0;
	intptr_t low, extent;
	int rc = piece ? m->call.type_get_extent(c->type, &low, &extent) : m->err_other;

	for (int64_t i = 0; i < c->count && !rc; i += piece) {
		int n = (int)(c->count - i < piece ? c->count - i : piece), at = 0, size = (int)(n * each);
		char *from = c->buffer + i * extent;

		rc = unpack ? m->call.unpack(to + i * each, size, &at, from, n, c->type, c->comm)
			    : m->call.pack(from, n, c->type, to + i * each, size, &at, c->comm);
		rc = rc ? rc : at == size ? MPI_SUCCEEDED : m->err_other;
	}
	return rc;
}

/* Broadcasts elements with gaps or in another order. */
static int copy_packed(struct job *job, const struct copy *c, int64_t bytes, reduction_error *e)
{
	const struct mpi *m = &job->shim->mpi;
	char *packed = malloc((size_t)bytes);
	int rc;

	*e = (reduction_error){.message = "the elements of a broadcast cannot be packed"};
	if (!packed)
		return m->err_other;
	rc = job->rank == c->root ? copy_pack(m, c, bytes, packed, false) : MPI_SUCCEEDED;
	if (!rc)
		rc = reduction_broadcast(job->comm, packed, (size_t)bytes, REDUCTION_UINT8, c->root, e);
	if (!rc && job->rank != c->root)
		rc = copy_pack(m, c, bytes, packed, true);
	free(packed);
	return rc;
}

/* Returns true if the call is done, with its result. */
static bool broadcast(struct shim *s, struct copy c, int *result)
{
	struct job *job = NULL;
	enum pass pass = PASS_SMALL;
	bool refused = false;
	reduction_error e;
	int64_t bytes;
	int rc;

	*result = MPI_SUCCEEDED;
	if (!s->active)
		return false;
	c.type = mpi_handle_of(&s->mpi, c.type);
	c.comm = mpi_handle_of(&s->mpi, c.comm);
	bytes = mpi_bytes(&s->mpi, c.count, c.type);
	if (bytes < 0)
		pass = PASS_TYPE;
	else if (bytes >= s->settings.min_bytes)
		job = job_find(s, c.comm, true, &pass, &refused);
	if (refused)
		*result = fail(s, c.comm);
	else
		report_count(&s->report, pass, bytes);
	if (!job)
		return *result;
	if (copy_is_plain(&s->mpi, &c, bytes))
		rc = reduction_broadcast(job->comm, c.buffer, (size_t)bytes, REDUCTION_UINT8, c.root, &e);
	else
		rc = copy_packed(job, &c, bytes, &e);
	if (rc) {
		shim_say(s, "%s", e.message);
		*result = fail(s, c.comm);
	}
	return true;
}

int MPI_Bcast(void *buffer, int count, mpi_handle type, int root, mpi_handle comm)
{
	struct shim *s = shim_get(CALLER);
	int rc;

	if (broadcast(s, (struct copy){buffer, count, type, root, comm}, &rc))
		return rc;
	return s->mpi.call.bcast(buffer, count, type, root, comm);
}

int MPI_Bcast_c(void *buffer, int64_t count, mpi_handle type, int root, mpi_handle comm)
{
	struct shim *s = shim_get(CALLER);
	int rc;

	if (broadcast(s, (struct copy){buffer, count, type, root, comm}, &rc))
		return rc;
	if (s->mpi.call.bcast_c)
		return s->mpi.call.bcast_c(buffer, count, type, root, comm);
	return count <= INT_MAX ? s->mpi.call.bcast(buffer, (int)count, type, root, comm) : fail(s, comm);
}
