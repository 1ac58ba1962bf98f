/* SPDX-License-Identifier: Apache-2.0 */
/* Streams, the work that is queued on them, and events. */
#include "tests/cuda/fake.h"

#include <stdlib.h>
#include <string.h>

void add_stream(struct CUstream_st *s, struct CUctx_st *ctx)
{
	s->ctx = ctx;
	s->end = &s->first;
	s->next = fake.streams;
	fake.streams = s;
}

EXPORT CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	*least = 0;
	*greatest = -5;
	return current() ? OK : BAD_CONTEXT;
}

EXPORT CUresult cuStreamCreateWithPriority(CUstream *ret, unsigned int flags, int priority)
{
	struct CUstream_st *s = calloc(1, sizeof *s);
	CUresult r;

	(void)flags;
	(void)priority;
	pthread_mutex_lock(&fake.lock);
	r = current() ? begin("cuStreamCreateWithPriority") : BAD_CONTEXT;
	if (!s || r) {
		free(s);
	} else {
		add_stream(s, current());
		*ret = s;
	}
	pthread_mutex_unlock(&fake.lock);
	return r;
}

EXPORT CUresult cuStreamCreate(CUstream *ret, unsigned int flags)
{
	return cuStreamCreateWithPriority(ret, flags, 0);
}

/* With lock held. */
static struct CUstream_st *resolve(CUstream stream)
{
	return stream && (uintptr_t)stream > 2 ? stream : &current()->stream;
}

EXPORT CUresult cuStreamSynchronize(CUstream stream)
{
	struct CUstream_st *s;

	pthread_mutex_lock(&fake.lock);
	s = resolve(stream);
	while (s->first && !fake.broken)
		pthread_cond_wait(&fake.changed, &fake.lock);
	pthread_mutex_unlock(&fake.lock);
	return fake.broken;
}

EXPORT CUresult cuStreamQuery(CUstream stream)
{
	CUresult r;

	pthread_mutex_lock(&fake.lock);
	r = begin("cuStreamQuery");
	if (!r && resolve(stream)->first)
		r = NOT_READY;
	pthread_mutex_unlock(&fake.lock);
	return r;
}

EXPORT CUresult cuStreamDestroy_v2(CUstream stream)
{
	cuStreamSynchronize(stream);
	pthread_mutex_lock(&fake.lock);
	for (struct CUstream_st **at = &fake.streams; *at; at = &(*at)->next) {
		if (*at != stream)
			continue;
		*at = stream->next;
		break;
	}
	while (stream->first) { /* of a broken device */
		struct work *w = stream->first;

		stream->first = w->next;
		free(w);
	}
	free(stream);
	pthread_mutex_unlock(&fake.lock);
	return OK;
}

EXPORT CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
	(void)stream;
	*status = setting("FAKE_CUDA_CAPTURING", 0) != 0;
	return OK;
}

/* Queues work unless the call fails. */
static CUresult queue(const char *function, CUstream stream, const struct work *what)
{
	struct work *w = malloc(sizeof *w);
	struct CUstream_st *s;
	CUresult r;

	pthread_mutex_lock(&fake.lock);
	r = begin(function);
	if (!r && !current())
		r = BAD_CONTEXT;
	if (!r && is_copy(what) && !what->staged && !inside((uintptr_t)what->host, what->bytes, true))
		r = NOT_PINNED;
	if (!r && (is_copy(what) || what->kind == SET) && !inside(what->device, what->bytes, false))
		r = INVALID;
	if (!w || r) {
		free(w);
	} else {
		s = resolve(stream);
		*w = *what;
		w->next = NULL;
		if (w->kind == RECORD)
			w->count = ++w->event->recorded;
		else if (w->kind == WAIT)
			w->count = w->event->recorded;
		if (!s->first)
			s->ready_ns = now_ns();
		*s->end = w;
		s->end = &w->next;
		pthread_cond_broadcast(&fake.changed);
	}
	pthread_mutex_unlock(&fake.lock);
	return r;
}

EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
	(void)flags;
	return queue("cuStreamWaitEvent", stream, &(struct work){.kind = WAIT, .event = event});
}

EXPORT CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr at, unsigned int value, unsigned int flags)
{
	(void)flags;
	return queue("cuStreamWaitValue32_v2", stream,
		     &(struct work){.kind = WAIT_VALUE, .host = (void *)(uintptr_t)at, .value = value});
}

EXPORT CUresult cuLaunchHostFunc(CUstream stream, CUhostFn fn, void *user)
{
	return queue("cuLaunchHostFunc", stream, &(struct work){.kind = CALL, .fn = fn, .user = user});
}

EXPORT CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	return queue("cuMemcpyDtoHAsync_v2", stream,
		     &(struct work){.kind = COPY_OUT, .host = to, .device = from, .bytes = bytes});
}

EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
	return queue("cuMemcpyHtoDAsync_v2", stream,
		     &(struct work){.kind = COPY_IN, .host = (void *)(uintptr_t)from, .device = to, .bytes = bytes});
}

/* For tests only. As a real driver, it returns when it has a copy of pageable memory. The
 * copy to the device is work of the default stream: other streams do not wait for it. */
EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
	void *copy = malloc(bytes ? bytes : 1);
	CUresult r = NO_MEMORY;

	cuStreamSynchronize(NULL);
	if (copy) {
		memcpy(copy, from, bytes);
		r = queue("cuMemcpyHtoD_v2", NULL,
			  &(struct work){.kind = COPY_IN, .host = copy, .device = to, .bytes = bytes, .staged = true});
	}
	if (r)
		free(copy);
	return r;
}

EXPORT CUresult cuMemsetD32Async(CUdeviceptr to, unsigned int value, size_t n, CUstream stream)
{
	return queue("cuMemsetD32Async", stream,
		     &(struct work){.kind = SET, .device = to, .bytes = n * sizeof value, .value = value});
}

EXPORT CUresult cuEventCreate(CUevent *ret, unsigned int flags)
{
	struct CUevent_st *event = calloc(1, sizeof *event);

	(void)flags;
	if (!event)
		return NO_MEMORY;
	pthread_mutex_lock(&fake.lock);
	event->next = fake.events;
	fake.events = event;
	pthread_mutex_unlock(&fake.lock);
	*ret = event;
	return OK;
}

EXPORT CUresult cuEventDestroy_v2(CUevent event)
{
	(void)event; /* streams may still wait for it */
	return OK;
}

EXPORT CUresult cuEventRecord(CUevent event, CUstream stream)
{
	return queue("cuEventRecord", stream, &(struct work){.kind = RECORD, .event = event});
}

EXPORT CUresult cuEventQuery(CUevent event)
{
	CUresult r;

	pthread_mutex_lock(&fake.lock);
	r = begin("cuEventQuery");
	if (!r && event->done < event->recorded)
		r = NOT_READY;
	pthread_mutex_unlock(&fake.lock);
	return r;
}
