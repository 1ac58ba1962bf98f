/* SPDX-License-Identifier: Apache-2.0 */
/* Streams and events. Streams, works that run and events are never freed: a program has
 * few, and ends. */
#include "tests/torch_cuda/fake.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PIECE = 1 << 16, PIECES = 4, POLL_US = 50 };

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void dawdle(unsigned *seed)
{
	long us = setting("FAKE_DELAY_US", 2000);
	if (us > 0 && rand_r(seed) % 2)
		usleep((unsigned)rand_r(seed) % (unsigned)us);
}

/* A large copy takes place in pieces, so that others can see a part of it. */
static void copy(const struct work *w, unsigned *seed)
{
	const char *from = w->from ? w->from : w->staged;
	size_t step = w->bytes > PIECE ? (w->bytes + PIECES - 1) / PIECES : w->bytes;
	for (size_t i = 0; i < w->bytes; i += step) {
		size_t n = w->bytes - i < step ? w->bytes - i : step;
		if (i)
			dawdle(seed);
		memmove(w->to + i, from + i, n);
	}
}

static void await(const struct event *e, uint64_t count)
{
	pthread_mutex_lock(&fake.lock);
	while (e->passed < count)
		pthread_cond_wait(&fake.changed, &fake.lock);
	pthread_mutex_unlock(&fake.lock);
}

static void note(const struct work *w)
{
	pthread_mutex_lock(&fake.lock);
	if (w->kind == MARK) {
		*w->reached = true;
	} else if (w->event->passed < w->count) {
		w->event->passed = w->count;
		w->event->time_ns = now_ns();
	}
	pthread_cond_broadcast(&fake.changed);
	pthread_mutex_unlock(&fake.lock);
}

static void perform(const struct work *w, unsigned *seed)
{
	switch (w->kind) {
	case COPY:
		copy(w, seed);
		break;
	case SET:
		memset(w->to, w->value, w->bytes);
		break;
	case CALL:
		w->fn(w->user);
		break;
	case WAIT_EVENT:
		await(w->event, w->count);
		break;
	case RECORD:
	case MARK:
		note(w);
		break;
	}
}

static void *stream_main(void *arg)
{
	struct stream *s = arg;
	unsigned seed = (unsigned)setting("FAKE_SEED", 1) * 7919 + (unsigned)s->id;
	pthread_mutex_lock(&fake.lock);
	while (s->first || !s->gone) {
		struct work *w = s->first;
		if (!w) {
			pthread_cond_wait(&s->more, &fake.lock);
			continue;
		}
		s->busy = true;
		pthread_mutex_unlock(&fake.lock);
		if (w->kind != MARK)
			dawdle(&seed);
		perform(w, &seed);
		pthread_mutex_lock(&fake.lock);
		s->first = w->next;
		if (!s->first)
			s->end = &s->first;
		s->busy = false;
		free(w);
	}
	pthread_mutex_unlock(&fake.lock);
	return NULL;
}

struct stream *stream_new(int device, unsigned flags, int priority)
{
	struct stream *s = calloc(1, sizeof *s);
	pthread_t thread;
	if (!s || pthread_cond_init(&s->more, NULL))
		abort();
	s->end = &s->first, s->device = device, s->flags = flags, s->priority = priority;
	pthread_mutex_lock(&fake.lock);
	if (fake.streams_n == sizeof fake.streams / sizeof *fake.streams)
		abort();
	s->id = fake.streams_n;
	fake.streams[fake.streams_n++] = s;
	pthread_mutex_unlock(&fake.lock);
	if (pthread_create(&thread, NULL, stream_main, s) || pthread_detach(thread))
		abort();
	return s;
}

struct stream *stream_of(void *handle)
{
	if ((uintptr_t)handle > 2)
		return handle;
	pthread_mutex_lock(&fake.lock);
	struct stream *s = fake.plain[device_now];
	pthread_mutex_unlock(&fake.lock);
	if (s)
		return s;
	s = stream_new(device_now, 0, 0);
	pthread_mutex_lock(&fake.lock);
	if (!fake.plain[device_now])
		fake.plain[device_now] = s; /* else another thread was faster, and this one stays empty */
	s = fake.plain[device_now];
	pthread_mutex_unlock(&fake.lock);
	return s;
}

int stream_destroy(void *handle)
{
	struct stream *s = stream_of(handle);
	pthread_mutex_lock(&fake.lock);
	s->gone = true;
	pthread_cond_signal(&s->more);
	pthread_mutex_unlock(&fake.lock);
	return OK;
}

int stream_query(void *handle)
{
	struct stream *s = stream_of(handle);
	pthread_mutex_lock(&fake.lock);
	bool idle = !s->first && !s->busy;
	pthread_mutex_unlock(&fake.lock);
	return idle ? OK : NOT_READY;
}

/* Appends work, of which `extra` more bytes are staged. What is queued while a stream
 * captures never happens. */
static void put(void *handle, struct work what, const void *extra)
{
	struct stream *s = stream_of(handle);
	struct work *w = malloc(sizeof *w + (extra ? what.bytes : 0));
	if (!w)
		abort();
	*w = what;
	w->next = NULL;
	if (extra)
		memcpy(w->staged, extra, what.bytes);
	pthread_mutex_lock(&fake.lock);
	if (s->capturing) {
		free(w);
	} else {
		*s->end = w;
		s->end = &w->next;
		pthread_cond_signal(&s->more);
	}
	pthread_mutex_unlock(&fake.lock);
}

void stream_drain(void *handle)
{
	bool reached = false;
	struct stream *s = stream_of(handle);
	pthread_mutex_lock(&fake.lock);
	bool ended = s->gone || s->capturing;
	pthread_mutex_unlock(&fake.lock);
	if (ended)
		return;
	void *state = host_waits();
	put(s, (struct work){.kind = MARK, .reached = &reached}, NULL);
	pthread_mutex_lock(&fake.lock);
	while (!reached)
		pthread_cond_wait(&fake.changed, &fake.lock);
	pthread_mutex_unlock(&fake.lock);
	host_goes_on(state);
}

void stream_drain_all(void)
{
	pthread_mutex_lock(&fake.lock);
	size_t n = fake.streams_n;
	pthread_mutex_unlock(&fake.lock);
	for (size_t i = 0; i < n; i++)
		stream_drain(fake.streams[i]);
}

int stream_copy(void *to, const void *from, size_t bytes, void *handle)
{
	struct range r;
	struct work w = {.kind = COPY, .to = to, .from = from, .bytes = bytes};
	bool pageable = !memory_find(to, &r);
	if (!bytes)
		return OK;
	if (!memory_find(from, &r)) { /* the call reads pageable memory before it returns */
		w.from = NULL;
		put(handle, w, from);
	} else {
		put(handle, w, NULL);
	}
	if (pageable)
		stream_drain(handle);
	return OK;
}

void stream_set(void *to, int value, size_t bytes, void *handle)
{
	put(handle, (struct work){.kind = SET, .to = to, .value = value, .bytes = bytes}, NULL);
}

void stream_call(void (*fn)(void *user), void *user, void *handle)
{
	put(handle, (struct work){.kind = CALL, .fn = fn, .user = user}, NULL);
}

void stream_record(struct event *e, void *handle)
{
	pthread_mutex_lock(&fake.lock);
	uint64_t count = ++e->recorded;
	pthread_mutex_unlock(&fake.lock);
	put(handle, (struct work){.kind = RECORD, .event = e, .count = count}, NULL);
}

void stream_wait_event(struct event *e, void *handle)
{
	pthread_mutex_lock(&fake.lock);
	uint64_t count = e->recorded;
	pthread_mutex_unlock(&fake.lock);
	put(handle, (struct work){.kind = WAIT_EVENT, .event = e, .count = count}, NULL);
}

struct event *event_new(void)
{
	struct event *e = calloc(1, sizeof *e);
	if (!e)
		abort();
	return e;
}

int event_query(struct event *e)
{
	pthread_mutex_lock(&fake.lock);
	bool passed = e->passed >= e->recorded;
	pthread_mutex_unlock(&fake.lock);
	return passed ? OK : NOT_READY;
}

void event_wait(struct event *e)
{
	void *state = host_waits();
	pthread_mutex_lock(&fake.lock);
	uint64_t count = e->recorded;
	pthread_mutex_unlock(&fake.lock);
	await(e, count);
	host_goes_on(state);
}
