/* SPDX-License-Identifier: Apache-2.0 */
/* What all operations of a communicator share: its error, and the way to the backend. */
#include "agent/api/comm.h"

#include <stdlib.h>
#include <string.h>

struct reduction_comm *comm_new(struct rs_err *e)
{
	struct reduction_comm *c = calloc(1, sizeof *c);

	if (c)
		c->requests = request_pool_new();
	if (!c || !c->requests) {
		rs_fail(e, RS_ENOMEM, "out of memory for a communicator");
		free(c);
		return NULL;
	}
	pthread_mutex_init(&c->order, NULL);
	pthread_mutex_init(&c->lock, NULL);
	group_stages_init(&c->stages);
	return c;
}

void comm_delete(struct reduction_comm *c)
{
	request_pool_drop(c->requests);
	group_stages_close(&c->stages);
	pthread_mutex_destroy(&c->lock);
	pthread_mutex_destroy(&c->order);
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

int comm_submit(struct reduction_comm *c, struct backend_request *req, struct rs_err *e)
{
	int rc = comm_check(c, e);

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

int comm_result(reduction_error *err, const struct rs_err *e)
{
	if (err) {
		err->code = e->code;
		memcpy(err->message, e->msg, sizeof err->message);
	}
	return e->code;
}
