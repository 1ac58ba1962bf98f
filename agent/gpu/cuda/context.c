/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/gpu/cuda/state.h"

int cuda_fail(const struct cuda *c, struct rs_err *e, int code, const char *what, int device, CUresult r)
{
	const char *name;

	if (c->api.cuGetErrorName(r, &name) != CUDA_RESULT_OK)
		name = "unknown";
	return rs_fail(e, code, "%s on GPU %d: %s (%d)", what, device, name, (int)r);
}

/* Returns the context of a device, which is made at the first call. With lock held. */
static int cuda_open_device(struct cuda *c, int device, CUcontext *ret, struct rs_err *e)
{
	struct cuda_device *d = &c->device[device];
	CUresult r = CUDA_RESULT_OK;

	if (!d->ctx) {
		r = c->api.cuDeviceGet(&d->device, device);
		if (!r)
			r = c->api.cuDevicePrimaryCtxRetain(&d->ctx, d->device);
	}
	*ret = d->ctx;
	return r ? cuda_fail(c, e, RS_EIO, "cannot use the primary context", device, r) : RS_OK;
}

int cuda_enter(struct cuda *c, int device, struct rs_err *e)
{
	CUcontext ctx;
	CUresult r;
	int rc;

	pthread_mutex_lock(&c->lock);
	rc = cuda_open_device(c, device, &ctx, e);
	pthread_mutex_unlock(&c->lock);
	if (rc)
		return rc;
	r = c->api.cuCtxPushCurrent_v2(ctx);
	return r ? cuda_fail(c, e, RS_EIO, "cannot use the primary context", device, r) : RS_OK;
}

void cuda_leave(struct cuda *c)
{
	CUcontext ctx;

	c->api.cuCtxPopCurrent_v2(&ctx);
}
