/* SPDX-License-Identifier: Apache-2.0 */
/* A libcuda.so.1 without a GPU, for tests. Addresses of its devices cannot be read by the processor. One thread does
 * all streams' work: copies at a rate, one for each direction of a device at a time, and moves the bytes at a copy's
 * end. Copies to or from host memory that is not pinned are errors. Environment:
 *
 *   FAKE_CUDA_DEVICES    number of devices (2); 0: cuInit fails
 *   FAKE_CUDA_RATE       MB/s of each copy direction (0: no limit)
 *   FAKE_CUDA_JITTER_US  longest random time that a copy takes in addition (0)
 *   FAKE_CUDA_FAIL       FUNCTION:N:CODE: the N-th call of this function (from 1) returns CODE
 *   FAKE_CUDA_BREAK      N:CODE: the N-th copy of a stream fails when it runs; then every call returns CODE, and
 * nothing that is queued happens FAKE_CUDA_REPORT     path of a file: at exit, a line with the most bytes pinned at a
 * time, copies and copied bytes
 */
#include "tests/cuda/driver.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))

enum { DEVICES = 8, STACK = 16, OK = 0, INVALID = 1, NO_MEMORY = 2, NO_DEVICE = 100, BAD_DEVICE = 101 };
enum { BAD_CONTEXT = 201, BAD_HANDLE = 400, NOT_READY = 600, NOT_PINNED = 713, PINNED_ALREADY = 712 };

enum kind { COPY_OUT, COPY_IN, SET, RECORD, WAIT, WAIT_VALUE, CALL };

/* Work of a stream. */
struct work {
	struct work *next;
	enum kind kind;
	uint64_t device;
	void *host;
	size_t bytes;
	unsigned value;
	struct CUevent_st *event;
	uint64_t count; /* of the event */
	CUhostFn fn;
	void *user;
	uint64_t end_ns; /* of a copy that runs; 0: it does not */
};

struct CUevent_st {
	struct CUevent_st *next; /* all, also destroyed ones */
	uint64_t recorded, done;
};

struct CUstream_st {
	struct CUstream_st *next;
	struct CUctx_st *ctx;
	struct work *first, **end;
	uint64_t ready_ns; /* when the first work could start */
	bool destroyed;
};

struct CUctx_st {
	int device;
	uint64_t free_ns[2]; /* when each direction has done its copies */
	const struct work *busy[2];
	struct CUstream_st stream; /* the default one */
};

/* Memory of a device, or pinned memory of the host. */
struct range {
	struct range *next;
	uint64_t at;
	size_t bytes;
	char *backing;
	int device; /* -1: pinned host memory */
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed; /* anything */
	pthread_t thread;
	bool started;
	int devices_n;
	struct CUctx_st ctx[DEVICES];
	struct CUstream_st *streams;
	struct CUevent_st *events;
	struct range *ranges;
	uint64_t rate, jitter_us, copies, copied, pinned, pinned_most;
	unsigned seed, broken, calls;
	const char *report;
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static _Thread_local CUcontext stack[STACK];
static _Thread_local unsigned depth;

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static uint64_t setting(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 10) : otherwise;
}

/* Returns the error of a call: an injected one, or that of a broken device. With lock held. */
static CUresult begin(const char *function)
{
	const char *text = getenv("FAKE_CUDA_FAIL");
	size_t n = strlen(function);

	if (fake.broken)
		return fake.broken;
	if (text && strncmp(text, function, n) == 0 && text[n] == ':') {
		char *code;
		unsigned at = (unsigned)strtoul(text + n + 1, &code, 10);

		if (++fake.calls == at)
			return (CUresult)strtoul(code + 1, NULL, 10);
	}
	return OK;
}

static struct range *find(uint64_t at)
{
	for (struct range *r = fake.ranges; r; r = r->next)
		if (at >= r->at && at < r->at + r->bytes)
			return r;
	return NULL;
}

static bool inside(uint64_t at, size_t bytes, bool host)
{
	const struct range *r = find(at);

	return r && (r->device < 0) == host && bytes <= r->at + r->bytes - at;
}

static char *backing(uint64_t device)
{
	const struct range *r = find(device);

	return r->backing + (device - r->at);
}

static bool is_copy(const struct work *w)
{
	return w->kind == COPY_OUT || w->kind == COPY_IN;
}

/* Starts a copy whose direction is free. Returns whether it has ended. */
static bool run_copy(struct CUstream_st *s, struct work *w, uint64_t now)
{
	struct CUctx_st *ctx = s->ctx;
	uint64_t start, took;

	if (!w->end_ns) {
		if (ctx->busy[w->kind])
			return false;
		start = s->ready_ns > ctx->free_ns[w->kind] ? s->ready_ns : ctx->free_ns[w->kind];
		took = fake.rate ? w->bytes * 1000 / fake.rate : 0;
		fake.seed = fake.seed * 1103515245 + 12345;
		took += fake.jitter_us ? (fake.seed >> 8) % (fake.jitter_us * 1000) : 0;
		w->end_ns = start + took + 1;
		ctx->busy[w->kind] = w;
	}
	if (w->end_ns > now)
		return false;
	ctx->busy[w->kind] = NULL;
	ctx->free_ns[w->kind] = w->end_ns;
	if (++fake.copies == setting("FAKE_CUDA_BREAK", 0)) {
		fake.broken = (unsigned)strtoul(strchr(getenv("FAKE_CUDA_BREAK"), ':') + 1, NULL, 10);
		return false;
	}
	fake.copied += w->bytes;
	if (w->kind == COPY_OUT)
		memcpy(w->host, backing(w->device), w->bytes);
	else
		memcpy(backing(w->device), w->host, w->bytes);
	return true;
}

/* Does one work if it can be done now. A function is called without the lock. */
static bool run_one(struct CUstream_st *s, uint64_t now)
{
	struct work *w = s->first;
	bool done = true;

	if (is_copy(w))
		done = run_copy(s, w, now);
	else if (w->kind == SET)
		for (size_t i = 0; i < w->bytes / sizeof w->value; i++)
			memcpy(backing(w->device) + i * sizeof w->value, &w->value, sizeof w->value);
	else if (w->kind == RECORD)
		w->event->done = w->count > w->event->done ? w->count : w->event->done;
	else if (w->kind == WAIT_VALUE)
		done = (int32_t)(atomic_load((_Atomic uint32_t *)w->host) - w->value) >= 0;
	else if (w->kind == WAIT)
		done = w->event->done >= w->count;
	if (!done)
		return false;
	if (w->kind == CALL) {
		pthread_mutex_unlock(&fake.lock);
		w->fn(w->user);
		pthread_mutex_lock(&fake.lock);
	}
	s->ready_ns = is_copy(w) ? w->end_ns : now;
	s->first = w->next;
	if (!s->first)
		s->end = &s->first;
	free(w);
	return true;
}

static void *fake_main(void *arg)
{
	pthread_mutex_lock(&fake.lock);
	for (;;) {
		uint64_t now = now_ns(), next = UINT64_MAX;
		bool some = false;

		for (struct CUstream_st *s = fake.streams; s && !fake.broken; s = s->next) {
			while (s->first && !fake.broken && run_one(s, now))
				some = true;
			if (s->first && s->first->kind == WAIT_VALUE && now + 200000 < next)
				next = now + 200000;
			if (s->first && is_copy(s->first) && s->first->end_ns && s->first->end_ns < next)
				next = s->first->end_ns;
		}
		if (some || fake.broken)
			pthread_cond_broadcast(&fake.changed);
		if (some)
			continue;
		if (next == UINT64_MAX || fake.broken) {
			pthread_cond_wait(&fake.changed, &fake.lock);
		} else {
			pthread_mutex_unlock(&fake.lock);
			now = now_ns();
			if (next > now)
				nanosleep(
				    &(struct timespec){.tv_nsec = (long)(next - now < 1000000 ? next - now : 1000000)},
				    NULL);
			pthread_mutex_lock(&fake.lock);
		}
	}
	return arg;
}

static void add_stream(struct CUstream_st *s, struct CUctx_st *ctx)
{
	s->ctx = ctx;
	s->end = &s->first;
	s->next = fake.streams;
	fake.streams = s;
}

static void say_report(void)
{
	FILE *f = fopen(fake.report, "a");

	if (!f)
		return;
	fprintf(f, "pinned=%llu copies=%llu bytes=%llu\n", (unsigned long long)fake.pinned_most,
		(unsigned long long)fake.copies, (unsigned long long)fake.copied);
	fclose(f);
}

EXPORT CUresult cuInit(unsigned int flags)
{
	CUresult r;

	(void)flags;
	pthread_mutex_lock(&fake.lock);
	r = begin("cuInit");
	if (!fake.started && !r) {
		fake.devices_n = (int)setting("FAKE_CUDA_DEVICES", 2);
		fake.rate = setting("FAKE_CUDA_RATE", 0);
		fake.jitter_us = setting("FAKE_CUDA_JITTER_US", 0);
		fake.report = getenv("FAKE_CUDA_REPORT");
		for (int i = 0; i < DEVICES; i++) {
			fake.ctx[i].device = i;
			add_stream(&fake.ctx[i].stream, &fake.ctx[i]);
		}
		if (fake.report)
			atexit(say_report);
		fake.started = pthread_create(&fake.thread, NULL, fake_main, NULL) == 0;
	}
	if (!r && fake.devices_n == 0)
		r = NO_DEVICE;
	pthread_mutex_unlock(&fake.lock);
	return r;
}

EXPORT CUresult cuGetErrorName(CUresult error, const char **text)
{
	*text = error == 700         ? "CUDA_ERROR_ILLEGAL_ADDRESS"
		: error == NO_DEVICE ? "CUDA_ERROR_NO_DEVICE"
				     : "CUDA_ERROR";
	return OK;
}

EXPORT CUresult cuDeviceGetCount(int *count)
{
	*count = fake.devices_n;
	return OK;
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	*device = ordinal;
	return ordinal >= 0 && ordinal < fake.devices_n ? OK : BAD_DEVICE;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice device)
{
	CUresult r;

	pthread_mutex_lock(&fake.lock);
	r = begin("cuDevicePrimaryCtxRetain");
	pthread_mutex_unlock(&fake.lock);
	if (!r)
		*ctx = &fake.ctx[device];
	return r;
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	(void)device;
	return OK;
}

EXPORT CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
	if (depth == STACK)
		return INVALID;
	stack[depth++] = ctx;
	return OK;
}

EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *ctx)
{
	if (depth == 0)
		return BAD_CONTEXT;
	*ctx = stack[--depth];
	return OK;
}

EXPORT CUresult cuCtxSetCurrent(CUcontext ctx)
{
	depth = 1;
	stack[0] = ctx;
	return OK;
}

EXPORT CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	*least = 0;
	*greatest = -5;
	return depth ? OK : BAD_CONTEXT;
}

EXPORT CUresult cuStreamCreateWithPriority(CUstream *ret, unsigned int flags, int priority)
{
	struct CUstream_st *s = calloc(1, sizeof *s);
	CUresult r;

	(void)flags;
	(void)priority;
	pthread_mutex_lock(&fake.lock);
	r = depth ? begin("cuStreamCreateWithPriority") : BAD_CONTEXT;
	if (!s || r) {
		free(s);
	} else {
		add_stream(s, stack[depth - 1]);
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
	return stream && (uintptr_t)stream > 2 ? stream : &stack[depth - 1]->stream;
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
	if (!r && !depth)
		r = BAD_CONTEXT;
	if (!r && is_copy(what) && !inside((uintptr_t)what->host, what->bytes, true))
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

EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *ret, void *p, unsigned int flags)
{
	bool known;

	(void)flags;
	pthread_mutex_lock(&fake.lock);
	known = inside((uintptr_t)p, 1, true);
	pthread_mutex_unlock(&fake.lock);
	*ret = (uintptr_t)p;
	return known ? OK : NOT_PINNED;
}

EXPORT CUresult cuCtxSynchronize(void)
{
	pthread_mutex_lock(&fake.lock);
	for (struct CUstream_st *s = fake.streams; s && !fake.broken;) {
		if (s->first)
			pthread_cond_wait(&fake.changed, &fake.lock);
		s = s->first ? fake.streams : s->next; /* the list may have changed */
	}
	pthread_mutex_unlock(&fake.lock);
	return fake.broken;
}

EXPORT CUresult cuEventRecord(CUevent event, CUstream stream)
{
	return queue("cuEventRecord", stream, &(struct work){.kind = RECORD, .event = event});
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

/* With lock held. */
static bool add_range(uint64_t at, size_t bytes, char *memory, int device)
{
	struct range *r = malloc(sizeof *r);

	if (!r)
		return false;
	*r = (struct range){.next = fake.ranges, .at = at, .bytes = bytes, .backing = memory, .device = device};
	fake.ranges = r;
	return true;
}

/* With lock held. */
static struct range *remove_range(uint64_t at)
{
	for (struct range **p = &fake.ranges; *p; p = &(*p)->next) {
		struct range *r = *p;

		if (r->at != at)
			continue;
		*p = r->next;
		return r;
	}
	return NULL;
}

EXPORT CUresult cuMemHostRegister_v2(void *p, size_t bytes, unsigned int flags)
{
	CUresult r;

	(void)flags;
	pthread_mutex_lock(&fake.lock);
	r = begin("cuMemHostRegister_v2");
	if (!r && find((uintptr_t)p))
		r = PINNED_ALREADY;
	if (!r && !add_range((uintptr_t)p, bytes, NULL, -1))
		r = NO_MEMORY;
	if (!r) {
		fake.pinned += bytes;
		fake.pinned_most = fake.pinned > fake.pinned_most ? fake.pinned : fake.pinned_most;
	}
	pthread_mutex_unlock(&fake.lock);
	return r;
}

EXPORT CUresult cuMemHostUnregister(void *p)
{
	struct range *r;

	pthread_mutex_lock(&fake.lock);
	r = remove_range((uintptr_t)p);
	if (r)
		fake.pinned -= r->bytes;
	pthread_mutex_unlock(&fake.lock);
	free(r);
	return r ? OK : NOT_PINNED;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *ret, size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *memory = calloc(1, bytes);
	bool added;

	if (at == MAP_FAILED || !memory)
		return NO_MEMORY;
	pthread_mutex_lock(&fake.lock);
	added = depth && add_range((uintptr_t)at, bytes, memory, stack[depth - 1]->device);
	pthread_mutex_unlock(&fake.lock);
	*ret = (uintptr_t)at;
	return added ? OK : BAD_CONTEXT;
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr p)
{
	struct range *r;

	pthread_mutex_lock(&fake.lock);
	r = remove_range(p);
	pthread_mutex_unlock(&fake.lock);
	if (!r)
		return INVALID;
	munmap((void *)(uintptr_t)r->at, r->bytes);
	free(r->backing);
	free(r);
	return OK;
}

/* These two wait for the default stream, and are for tests only. */
EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
	bool known;

	cuStreamSynchronize(NULL);
	pthread_mutex_lock(&fake.lock);
	known = inside(to, bytes, false);
	if (known)
		memcpy(backing(to), from, bytes);
	pthread_mutex_unlock(&fake.lock);
	return known ? OK : INVALID;
}

EXPORT CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
	bool known;

	cuStreamSynchronize(NULL);
	pthread_mutex_lock(&fake.lock);
	known = inside(from, bytes, false);
	if (known)
		memcpy(to, backing(from), bytes);
	pthread_mutex_unlock(&fake.lock);
	return known ? OK : INVALID;
}

EXPORT CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr p)
{
	return cuPointerGetAttributes(1, &attribute, &data, p);
}

EXPORT CUresult cuPointerGetAttributes(unsigned int n, CUpointer_attribute *attributes, void **data, CUdeviceptr p)
{
	const struct range *r;
	bool device;

	pthread_mutex_lock(&fake.lock);
	r = find(p);
	device = r && r->device >= 0;
	for (unsigned i = 0; i < n; i++) {
		if (attributes[i] == CUDA_ATTRIBUTE_MEMORY_TYPE)
			*(unsigned int *)data[i] = r ? (device ? CUDA_MEMORY_DEVICE : 1) : 0;
		else if (attributes[i] == CUDA_ATTRIBUTE_DEVICE_ORDINAL)
			*(int *)data[i] = device ? r->device : -2;
		else if (attributes[i] == CUDA_ATTRIBUTE_RANGE_START)
			*(CUdeviceptr *)data[i] = device ? r->at : 0;
		else if (attributes[i] == CUDA_ATTRIBUTE_RANGE_SIZE)
			*(size_t *)data[i] = device ? r->bytes : 0;
	}
	pthread_mutex_unlock(&fake.lock);
	return OK;
}
