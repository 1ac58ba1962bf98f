/* SPDX-License-Identifier: Apache-2.0 */
/* A CUDA runtime, driver and NVML for PyTorch's CUDA tensors on a machine without a GPU.
 * The memory of a device is memory of the host, at the same address. Every stream is a
 * thread, which does the stream's work in order, with random delays before and within it.
 * Kernels are not run: tests/torch_cuda/kernels.py puts functions in their place.
 *
 * Environment:
 *
 *   FAKE_DEVICES   number of devices (1)
 *   FAKE_DELAY_US  longest random delay before a stream's next work, in microseconds (2000); half of it has none
 *   FAKE_SEED      of the delays (1)
 *   FAKE_RETURN    FUNCTION=CODE,...: these functions do nothing and return CODE; see answered()
 *
 * One lock protects everything. A function that waits gives back Python's global
 * interpreter lock, since the streams may need it.
 */
#ifndef RS_TESTS_TORCH_CUDA_FAKE_H
#define RS_TESTS_TORCH_CUDA_FAKE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DEVICES = 8, OK = 0, INVALID = 1, NO_MEMORY = 2, NO_DEVICE = 101, NO_KERNEL = 209, NOT_READY = 600 };
enum { PINNED_ALREADY = 712, NOT_PINNED = 713, UNSUPPORTED = 801, NOT_CAPTURED = 900 };
enum kind { COPY, SET, RECORD, WAIT_EVENT, CALL, MARK };

struct event {
	uint64_t recorded, passed; /* numbers of records: the last one that was queued, the last one that was reached */
	uint64_t time_ns;          /* of the last one that was reached */
};

/* Work of a stream, in the order of the calls. */
struct work {
	struct work *next;
	enum kind kind;
	char *to;
	const char *from; /* of a copy; NULL: `staged` */
	size_t bytes;
	int value; /* of a set */
	struct event *event;
	uint64_t count; /* the record to note or to wait for */
	void (*fn)(void *user);
	void *user;
	bool *reached;
	char staged[];
};

struct stream {
	struct work *first, **end;
	pthread_cond_t more; /* work, or the end */
	int device, priority;
	unsigned flags;
	uint64_t id;
	bool busy, capturing, gone; /* gone: its thread ends after the last work */
};

/* Memory of a device, or pinned memory of the host. */
struct range {
	char *at;
	size_t bytes;
	int device;  /* -1: of the host */
	bool mapped; /* by this library */
};

struct fake {
	pthread_mutex_t lock;
	pthread_cond_t changed; /* an event has passed, or a mark was reached */
	struct stream *streams[4096];
	size_t streams_n;
	struct stream *plain[DEVICES]; /* the default streams */
	struct range *ranges;
	size_t ranges_n, ranges_room;
	size_t used[DEVICES]; /* bytes */
};
extern struct fake fake;
extern _Thread_local int device_now;

/* world.c */
/* Returns a number of the environment. */
long setting(const char *name, long otherwise);
/* Returns the number of devices. */
int devices(void);
/* Returns whether FAKE_RETURN names this function, and then stores what it returns. */
bool answered(const char *function, int *code);
/* Notes the error of a call of the runtime for cudaGetLastError(). Returns it. */
int noted(int error);
/* Says once that a function is not there. Returns UNSUPPORTED. */
long fake_missing(const char *name);
/* Gives back Python's lock if the thread has it; host_goes_on() takes it again. */
void *host_waits(void);
void host_goes_on(void *state);

/* memory.c; a size is rounded up to whole pages */
void *memory_new(size_t bytes, int device);
/* Returns INVALID if no such memory begins there. */
int memory_free(void *at);
int memory_pin(void *at, size_t bytes);
int memory_unpin(void *at);
/* Returns whether p is in known memory, and then stores a copy of its range. */
bool memory_find(const void *p, struct range *found);

/* stream.c; handles 0, 1 and 2 are the default stream of the thread's device */
struct stream *stream_new(int device, unsigned flags, int priority);
struct stream *stream_of(void *handle);
int stream_destroy(void *handle);
int stream_query(void *handle);
void stream_drain(void *handle);
/* Waits for all streams of all devices. */
void stream_drain_all(void);
int stream_copy(void *to, const void *from, size_t bytes, void *handle);
void stream_set(void *to, int value, size_t bytes, void *handle);
void stream_call(void (*fn)(void *user), void *user, void *handle);
void stream_record(struct event *e, void *handle);
void stream_wait_event(struct event *e, void *handle);
struct event *event_new(void);
int event_query(struct event *e);
void event_wait(struct event *e);

#endif
