/* SPDX-License-Identifier: Apache-2.0 */
/* Queues of copies. The happy path of a fence: an event behind the copies -> the stream
 * of notices waits for it -> cuda_on_fence runs on a thread of the driver, counts it, and
 * wakes the owner. Failure modes: a call fails (its caller gets the error); a copy or the
 * whole context fails: the driver then does not call cuda_on_fence, and cuda_poll finds
 * the error at the event. */
#include "agent/gpu/cuda/state.h"

#include <stdatomic.h>
#include <stdlib.h>

static void cuda_on_fence(void *user)
{
	struct cuda_side *s = user;

	atomic_fetch_add(&s->passed, 1);
	s->cuda->notify(s->cuda->user);
}

static void cuda_side_free(const struct cuda *c, struct cuda_side *s)
{
	for (unsigned i = 0; i < CUDA_FENCES && s->fence[i]; i++)
		c->api.cuEventDestroy_v2(s->fence[i]);
	if (s->copies) {
		c->api.cuStreamSynchronize(s->copies);
		c->api.cuStreamDestroy_v2(s->copies);
	}
	if (s->notices) {
		c->api.cuStreamSynchronize(s->notices);
		c->api.cuStreamDestroy_v2(s->notices);
	}
}

void cuda_queue_free(struct cuda *c, struct cuda_queue *q)
{
	for (unsigned i = 0; i < 2; i++)
		cuda_side_free(c, &q->side[i]);
	if (q->mark)
		c->api.cuEventDestroy_v2(q->mark);
	free(q);
}

static CUresult cuda_side_make(struct cuda *c, struct cuda_side *s)
{
	int least, greatest;
	CUresult r = c->api.cuCtxGetStreamPriorityRange(&least, &greatest);

	s->cuda = c;
	if (!r)
		r = c->api.cuStreamCreateWithPriority(&s->copies, CUDA_STREAM_NON_BLOCKING, greatest);
	if (!r)
		r = c->api.cuStreamCreateWithPriority(&s->notices, CUDA_STREAM_NON_BLOCKING, greatest);
	for (unsigned i = 0; i < CUDA_FENCES && !r; i++)
		r = c->api.cuEventCreate(&s->fence[i], CUDA_EVENT_DISABLE_TIMING);
	return r;
}

static int cuda_queue_make(struct cuda *c, int device, struct cuda_queue **ret, struct rs_err *e)
{
	struct cuda_queue *q = calloc(1, sizeof *q);
	CUresult r;

	if (!q)
		return rs_oom(e, 0, "a queue of copies");
	q->cuda = c;
	q->device = device;
	r = c->api.cuEventCreate(&q->mark, CUDA_EVENT_DISABLE_TIMING);
	for (unsigned i = 0; i < 2 && !r; i++)
		r = cuda_side_make(c, &q->side[i]);
	if (r) {
		cuda_fail(c, e, RS_EIO, "cannot make streams", device, r);
		cuda_queue_free(c, q);
		return e->code;
	}
	*ret = q;
	return RS_OK;
}

int cuda_take(struct cuda *c, int device, struct cuda_queue **ret, struct rs_err *e)
{
	struct cuda_queue *q;
	int rc = cuda_enter(c, device, e);

	if (rc)
		return rc;
	pthread_mutex_lock(&c->lock);
	q = c->device[device].idle;
	if (q)
		c->device[device].idle = q->next;
	pthread_mutex_unlock(&c->lock);
	if (!q)
		rc = cuda_queue_make(c, device, &q, e);
	cuda_leave(c);
	if (rc)
		return rc;
	for (unsigned i = 0; i < 2; i++) {
		q->side[i].added = 0;
		atomic_store(&q->side[i].passed, 0);
	}
	*ret = q;
	return RS_OK;
}

void cuda_give(struct cuda_queue *q)
{
	struct cuda *c = q->cuda;

	pthread_mutex_lock(&c->lock);
	q->next = c->device[q->device].idle;
	c->device[q->device].idle = q;
	pthread_mutex_unlock(&c->lock);
}

/* With the context current. */
static int cuda_mark_entered(struct cuda *c, struct cuda_queue *q, CUstream stream, struct rs_err *e)
{
	CUstreamCaptureStatus capturing;
	CUresult r = c->api.cuStreamIsCapturing(stream, &capturing);

	if (!r && capturing)
		return rs_fail(e, RS_EINVAL,
			       "the stream is being captured to a graph: start operations on it before or after that");
	if (!r)
		r = c->api.cuEventRecord(q->mark, stream);
	if (r)
		return cuda_fail(c, e, RS_EINVAL, "the stream cannot be used", q->device, r);
	for (unsigned i = 0; i < 2 && !r; i++)
		r = c->api.cuStreamWaitEvent(q->side[i].copies, q->mark, 0);
	return r ? cuda_fail(c, e, RS_EIO, "cannot wait for the stream", q->device, r) : RS_OK;
}

int cuda_mark(struct cuda_queue *q, void *stream, struct rs_err *e)
{
	struct cuda *c = q->cuda;
	int rc = cuda_enter(c, q->device, e);

	if (rc)
		return rc;
	rc = cuda_mark_entered(c, q, stream, e);
	cuda_leave(c);
	return rc;
}

int cuda_copy_out(struct cuda_queue *q, void *to, const void *from, size_t bytes, struct rs_err *e)
{
	struct cuda *c = q->cuda;
	CUstream stream = q->side[CUDA_OUT].copies;
	CUresult r;

	if (cuda_enter(c, q->device, e))
		return e->code;
	r = c->api.cuMemcpyDtoHAsync_v2(to, (CUdeviceptr)(uintptr_t)from, bytes, stream);
	cuda_leave(c);
	return r ? cuda_fail(c, e, RS_EIO, "cannot copy from the device", q->device, r) : RS_OK;
}

int cuda_copy_in(struct cuda_queue *q, void *to, const void *from, size_t bytes, struct rs_err *e)
{
	struct cuda *c = q->cuda;
	CUstream stream = q->side[CUDA_IN].copies;
	CUresult r;

	if (cuda_enter(c, q->device, e))
		return e->code;
	r = c->api.cuMemcpyHtoDAsync_v2((CUdeviceptr)(uintptr_t)to, from, bytes, stream);
	cuda_leave(c);
	return r ? cuda_fail(c, e, RS_EIO, "cannot copy to the device", q->device, r) : RS_OK;
}

int cuda_fence(struct cuda_queue *q, enum cuda_direction dir, struct rs_err *e)
{
	struct cuda *c = q->cuda;
	struct cuda_side *s = &q->side[dir];
	CUevent event = s->fence[s->added % CUDA_FENCES];
	CUresult r;

	if (cuda_enter(c, q->device, e))
		return e->code;
	r = c->api.cuEventRecord(event, s->copies);
	if (!r)
		r = c->api.cuStreamWaitEvent(s->notices, event, 0);
	if (!r)
		r = c->api.cuLaunchHostFunc(s->notices, cuda_on_fence, s);
	cuda_leave(c);
	if (r)
		return cuda_fail(c, e, RS_EIO, "cannot follow copies", q->device, r);
	s->added++;
	return RS_OK;
}

int cuda_poll(struct cuda_queue *q, enum cuda_direction dir, uint64_t *ret, struct rs_err *e)
{
	struct cuda *c = q->cuda;
	struct cuda_side *s = &q->side[dir];
	uint64_t passed = atomic_load(&s->passed);
	CUresult r = CUDA_RESULT_OK;

	if (passed < s->added) {
		if (cuda_enter(c, q->device, e))
			return e->code;
		r = c->api.cuEventQuery(s->fence[passed % CUDA_FENCES]);
		cuda_leave(c);
	}
	if (r != CUDA_RESULT_OK && r != CUDA_RESULT_NOT_READY)
		return cuda_fail(c, e, RS_EIO, "a copy failed", q->device, r);
	*ret = passed;
	return RS_OK;
}

void cuda_wait(struct cuda_queue *q)
{
	struct cuda *c = q->cuda;
	struct rs_err e;

	if (cuda_enter(c, q->device, &e))
		return;
	for (unsigned i = 0; i < 2; i++) {
		c->api.cuStreamSynchronize(q->side[i].copies);
		c->api.cuStreamSynchronize(q->side[i].notices);
	}
	cuda_leave(c);
}
