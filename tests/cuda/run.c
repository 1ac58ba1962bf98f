/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that does the work of all streams: copies at a rate, one for each direction
 * of a device at a time. A copy moves its bytes at its end. */
#include "tests/cuda/fake.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

bool is_copy(const struct work *w)
{
	return w->kind == COPY_OUT || w->kind == COPY_IN;
}

/* When a copy from pageable memory ends, after the call: late enough for a program that
 * does not wait to be wrong. */
enum { STAGED_NS = 300000 };

/* Takes the next free time of a direction of a device for a copy. */
static void reserve(const struct CUstream_st *s, struct work *w)
{
	_Atomic uint64_t *free_ns = &s->ctx->free_ns[w->kind];
	uint64_t took = fake.rate ? w->bytes * 1000 / fake.rate : 0, before = atomic_load(free_ns);

	fake.seed = fake.seed * 1103515245 + 12345;
	took += fake.jitter_us ? (fake.seed >> 8) % (fake.jitter_us * 1000) : 0;
	do
		w->end_ns = (s->ready_ns > before ? s->ready_ns : before) + took + 1;
	while (!atomic_compare_exchange_weak(free_ns, &before, w->end_ns));
}

/* Ends a copy from pageable memory. Settings that count copies do not count it. */
static bool run_staged(struct work *w)
{
	memcpy(backing(w->device), w->host, w->bytes);
	free(w->host);
	return true;
}

/* Starts a copy whose direction is free. Returns whether it has ended. */
static bool run_copy(struct CUstream_st *s, struct work *w, uint64_t now)
{
	struct CUctx_st *ctx = s->ctx;

	if (!w->end_ns && w->staged)
		w->end_ns = s->ready_ns + STAGED_NS;
	if (!w->end_ns) {
		if (ctx->busy[w->kind])
			return false;
		reserve(s, w);
		ctx->busy[w->kind] = w;
	}
	if (w->end_ns > now)
		return false;
	if (w->staged)
		return run_staged(w);
	ctx->busy[w->kind] = NULL;
	if (++fake.copies == setting("FAKE_CUDA_BREAK", 0)) {
		fake.broken = (unsigned)strtoul(strchr(getenv("FAKE_CUDA_BREAK"), ':') + 1, NULL, 10);
		return false;
	}
	fake.copied += w->bytes;
	if (w->kind == COPY_OUT)
		memcpy(w->host, backing(w->device), w->bytes);
	else
		memcpy(backing(w->device), w->host, w->bytes);
	if (w->kind == COPY_IN && ++fake.copies_in == setting("FAKE_CUDA_CORRUPT", 0))
		*backing(w->device) ^= 1;
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

void *fake_main(void *arg)
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
