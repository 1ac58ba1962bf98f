/* SPDX-License-Identifier: Apache-2.0 */
/* What all operations of a communicator share: its error, and the way to the backend. */
#include "agent/lib/api/comm.h"
#include "common/version.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct reduction_comm *comm_new(struct rs_err *e)
{
	struct reduction_comm *c = calloc(1, sizeof *c);

	if (c)
		c->requests = request_pool_new();
	if (!c || !c->requests) {
		rs_oom(e, 0, "a communicator");
		free(c);
		return NULL;
	}
	c->pid = getpid();
	pthread_mutex_init(&c->order, NULL);
	pthread_mutex_init(&c->lock, NULL);
	pthread_mutex_init(&c->copier_lock, NULL);
	group_stages_init(&c->stages);
	return c;
}

void comm_delete(struct reduction_comm *c)
{
	request_pool_drop(c->requests);
	group_stages_close(&c->stages);
	pthread_mutex_destroy(&c->copier_lock);
	pthread_mutex_destroy(&c->lock);
	pthread_mutex_destroy(&c->order);
	free(c->gpu_trace);
	free(c);
}

void comm_break(struct reduction_comm *c, const struct rs_err *err)
{
	pthread_mutex_lock(&c->lock);
	if (!c->broken) {
		c->broken = true;
		c->err = *err;
	}
	pthread_mutex_unlock(&c->lock);
}

void comm_abort(struct reduction_comm *c, const char *reason)
{
	char host[80] = "?";
	struct rs_err e;
	bool again;

	gethostname(host, sizeof host - 1);
	rs_fail(&e, RS_EABORTED, "rank %u (pid %ld on %s) aborted the job%s%s", c->rank, (long)getpid(), host,
		*reason ? ": " : "", reason);
	pthread_mutex_lock(&c->lock);
	again = c->aborted;
	c->aborted = true;
	if (!c->broken)
		c->err = e;
	c->broken = true;
	pthread_mutex_unlock(&c->lock);
	if (!again)
		c->backend->v->abort(c->backend, &e);
}

void comm_mend(struct reduction_comm *c)
{
	pthread_mutex_lock(&c->lock);
	c->aborted = c->broken = false;
	pthread_mutex_unlock(&c->lock);
}

bool comm_aborted(struct reduction_comm *c)
{
	bool aborted;

	pthread_mutex_lock(&c->lock);
	aborted = c->aborted;
	pthread_mutex_unlock(&c->lock);
	return aborted;
}

int comm_check(struct reduction_comm *c, struct rs_err *e)
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

static void comm_on_copy_failed(void *user, const struct rs_err *why)
{
	comm_abort(user, why->msg);
}

int comm_check_device(struct reduction_comm *c, const struct backend_request *req, struct rs_err *e)
{
	uint64_t bytes = operation_bytes(&req->of), own = req->of.sharded ? bytes / req->of.parts : bytes;
	int device = (int)req->device - 1, rc = RS_OK;

	if (!req->device)
		return RS_OK;
	pthread_mutex_lock(&c->copier_lock);
	if (!c->copier)
		rc = copier_new(&c->copier, c->backend, c->rank, c->gpu_trace, comm_on_copy_failed, c, e);
	pthread_mutex_unlock(&c->copier_lock);
	if (!rc)
		rc = copier_check(c->copier, device, req->send, operation_is_gather(&req->of) ? own : bytes, e);
	if (!rc && (req->recv != req->send || req->of.sharded))
		rc = copier_check(c->copier, device, req->recv, operation_is_scatter(&req->of) ? own : bytes, e);
	return rc;
}

void comm_choose_wire(const struct reduction_comm *c, struct operation *of, reduction_wire wire)
{
	const struct backend *b = c->backend;

	if (b->single_node) /* nothing is sent */
		return;
	if (wire != REDUCTION_WIRE_JOB)
		operation_choose_wire(of, wire - REDUCTION_WIRE_SAME, wire - REDUCTION_WIRE_SAME);
	else
		operation_choose_job_wire(of, b->wire_up, b->wire_down);
}

struct copier_tensor comm_tensor(const struct backend_request *req)
{
	return (struct copier_tensor){.send = req->send,
				      .recv = req->recv,
				      .bytes = operation_bytes(&req->of),
				      .device = (int)req->device - 1,
				      .stream = req->stream};
}

int comm_submit_tensors(struct reduction_comm *c, struct backend_request *req, const struct copier_tensor *tensors,
			unsigned n, struct rs_err *e)
{
	int rc = comm_check(c, e);

	if (rc)
		return rc;
	rc = copier_submit(c->copier, c->rank, req, tensors, n, e);
	if (rc && rc != RS_EINVAL)
		comm_break(c, e);
	return rc;
}

void comm_stop_copies(struct reduction_comm *c)
{
	if (c->copier)
		copier_free(c->copier);
}

int comm_submit(struct reduction_comm *c, struct backend_request *req, struct rs_err *e)
{
	struct copier_tensor t = comm_tensor(req);
	int rc;

	if (req->device && t.bytes > 0)
		return comm_submit_tensors(c, req, &t, 1, e);
	rc = comm_check(c, e);
	if (rc)
		return rc;
	rc = c->backend->v->submit(c->backend, req, e);
	if (rc && rc != RS_EINVAL)
		comm_break(c, e);
	return rc;
}

void comm_failed(struct reduction_comm *c, const struct rs_err *err, struct rs_err *ret)
{
	*ret = *err;
	if (err->code == RS_ETIMEOUT)
		ret->code = RS_EPEER;
	comm_break(c, ret);
}

int comm_check_process(pid_t opened_by, struct rs_err *e)
{
	if (getpid() == opened_by)
		return RS_OK;
	return rs_fail(e, RS_EINVAL,
		       "the communicator was opened by process %ld, before a fork() that made this one; only that "
		       "process can use it",
		       (long)opened_by);
}

int comm_null(const char *argument, struct rs_err *e)
{
	return rs_fail(e, RS_EINVAL, "%s is NULL", argument);
}

int comm_check_size(size_t size, size_t least, size_t most, const char *init, struct rs_err *e)
{
	if (size < least)
		return rs_fail(e, RS_EINVAL, "struct_size is %zu, at least %zu was expected: use %s", size, least,
			       init);
	if (size > most)
		return rs_fail(e, RS_EUNSUPPORTED,
			       "struct_size is %zu, at most %zu was expected: the program was compiled for a newer "
			       "libreduction than the %s that is loaded",
			       size, most, RS_VERSION);
	return RS_OK;
}

int comm_result(reduction_error *err, const struct rs_err *e)
{
	if (err) {
		err->code = e->code;
		memcpy(err->message, e->msg, sizeof err->message);
	}
	return e->code;
}
