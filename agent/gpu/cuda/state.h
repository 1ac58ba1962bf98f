/* SPDX-License-Identifier: Apache-2.0 */
/* The state of the GPUs that a communicator uses, for the files of cuda/. */
#ifndef RS_AGENT_GPU_CUDA_STATE_H
#define RS_AGENT_GPU_CUDA_STATE_H

#include "agent/gpu/cuda/abi.h"
#include "agent/gpu/cuda/cuda.h"

#include <pthread.h>

enum { CUDA_DEVICES = 64 };

#define CUDA_MEMBER(name, arguments) CUresult(*name) arguments;
/* The driver's functions. */
struct cuda_api {
	CUDA_FUNCTIONS(CUDA_MEMBER)
};

/* One direction of a queue. Invariant: passed <= added <= passed + CUDA_FENCES. */
struct cuda_side {
	CUstream copies, notices; /* the second one runs cuda_on_fence, so that copies do not wait for the processor */
	CUevent fence[CUDA_FENCES];
	struct cuda *cuda;
	uint64_t added;
	_Atomic uint64_t passed;
};

/* A queue. */
struct cuda_queue {
	struct cuda *cuda;
	int device;
	struct cuda_queue *next; /* idle */
	CUevent mark;
	struct cuda_side side[2];
};

/* A GPU. ctx NULL: it is not used yet. */
struct cuda_device {
	CUcontext ctx; /* its primary context, which the program uses too */
	CUdevice device;
	struct cuda_queue *idle;
};

struct cuda {
	struct cuda_api api;
	void *library;
	void (*notify)(void *user);
	void *user;
	pthread_mutex_t lock; /* protects the devices */
	int devices_n;
	struct cuda_device device[CUDA_DEVICES];
};

/* context.c */
/* Makes a context current; cuda_leave ends that. Errors: RS_EIO. */
int cuda_enter(struct cuda *c, int device, struct rs_err *e);
void cuda_leave(struct cuda *c);
/* Returns code; the sentence is "WHAT on GPU 0: CUDA_ERROR_...". */
int cuda_fail(const struct cuda *c, struct rs_err *e, int code, const char *what, int device, CUresult r);

/* queue.c */
/* Waits for the queue's notices and frees it. With its device's context current. */
void cuda_queue_free(struct cuda *c, struct cuda_queue *q);

#endif
