/* SPDX-License-Identifier: Apache-2.0 */
/* The state of the fake driver, for the files of this folder. Environment:
 *
 *   FAKE_CUDA_DEVICES    number of devices (2); 0: cuInit fails
 *   FAKE_CUDA_RATE       MB/s of each copy direction (0: no limit)
 *   FAKE_CUDA_JITTER_US  longest random time that a copy takes in addition (0)
 *   FAKE_CUDA_FAIL       FUNCTION:N:CODE: the N-th call of this function (from 1) returns CODE
 *   FAKE_CUDA_BREAK      N:CODE: the N-th copy of a stream fails when it runs; then every call returns CODE, and
 *                        nothing that is queued happens
 *   FAKE_CUDA_CORRUPT    N: the N-th copy of a stream to a device changes the lowest bit of its first byte
 *   FAKE_CUDA_SHARED     path of a file: processes with the same one share the copy engines of the devices
 *   FAKE_CUDA_REPORT     path of a file: at exit, a line with the most bytes pinned at a time, copies and copied bytes
 */
#ifndef RS_TESTS_CUDA_FAKE_H
#define RS_TESTS_CUDA_FAKE_H

#include "tests/cuda/driver.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

enum { DEVICES = 8, OK = 0, INVALID = 1, NO_MEMORY = 2, NO_DEVICE = 100, BAD_DEVICE = 101 };
enum { BAD_CONTEXT = 201, NOT_READY = 600, NOT_PINNED = 713, PINNED_ALREADY = 712 };

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
	bool staged;     /* `host` is the driver's copy of pageable memory */
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
};

struct CUctx_st {
	int device;
	_Atomic uint64_t *free_ns; /* [2]: when each direction has done its copies; other processes may share them */
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

/* The driver. */
struct fake {
	pthread_mutex_t lock;   /* protects everything here */
	pthread_cond_t changed; /* anything */
	pthread_t thread;
	bool started;
	int devices_n;
	struct CUctx_st ctx[DEVICES];
	struct CUstream_st *streams;
	struct CUevent_st *events;
	struct range *ranges;
	uint64_t rate, jitter_us, copies, copies_in, copied, pinned, pinned_most;
	unsigned seed, broken, calls;
	const char *report;
};
extern struct fake fake;

/* context.c */
/* Returns a number of the environment. */
uint64_t setting(const char *name, uint64_t otherwise);
/* Returns the error of a call: an injected one, or that of a broken device. With lock
 * held. */
CUresult begin(const char *function);
/* Returns the calling thread's context; NULL: it has none. */
CUcontext current(void);

/* memory.c; all with lock held */
struct range *find(uint64_t at);
/* Returns whether [at, at + bytes) is pinned memory of the host, or memory of a
 * device. */
bool inside(uint64_t at, size_t bytes, bool host);
/* Returns where the bytes of a device's memory really are. */
char *backing(uint64_t device);

/* stream.c; with lock held */
void add_stream(struct CUstream_st *s, struct CUctx_st *ctx);

/* run.c */
uint64_t now_ns(void);
bool is_copy(const struct work *w);
/* The thread that does all streams' work. */
void *fake_main(void *arg);

#endif
