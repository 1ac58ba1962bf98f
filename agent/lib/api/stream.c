/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of GPUs that wait for requests. */
#include "agent/lib/api/comm.h"

/* Gives the request a word for which streams wait, unless it has one. *ret: the word; copier NULL: the request has
 * ended, so that no stream has to wait. */
static int stream_hold(reduction_request *req, int device, struct copier_hold *ret, struct rs_err *e)
{
	uint32_t before = REQUEST_FREE;
	int rc;

	if (atomic_load(&req->hold_state) == REQUEST_FREE) {
		rc = copier_hold_take(req->comm->copier, device, &req->hold, e);
		if (rc)
			return rc;
		if (!atomic_compare_exchange_strong(&req->hold_state, &before, REQUEST_HELD))
			copier_hold_open(&req->hold);
	}
	*ret = req->hold;
	if (atomic_load(&req->hold_state) == REQUEST_OPEN)
		ret->copier = NULL;
	return RS_OK;
}

/* Checks the arguments of reduction_stream_wait. */
static int stream_check(const reduction_request *req, int device, struct rs_err *e)
{
	if (!req->copied)
		return rs_fail(e, RS_EINVAL,
			       "the request is that of a tensor in host memory, one on a GPU was expected");
	return copier_check_device(req->comm->copier, device, e);
}

int reduction_stream_wait(reduction_request *req, int device, void *stream, reduction_error *err)
{
	struct copier_hold hold;
	struct rs_err e = {.code = RS_OK};

	if (!req) {
		comm_null("req", &e);
		return comm_result(err, &e);
	}
	if (comm_check_process(request_pool_pid(req->pool), &e))
		return comm_result(err, &e);
	if (request_is_done(req))
		return comm_result(err, &e);
	if (!stream_check(req, device, &e) && !stream_hold(req, device, &hold, &e) && hold.copier)
		copier_hold_stream(&hold, device, stream, &e);
	return comm_result(err, &e);
}
