/* SPDX-License-Identifier: Apache-2.0 */
/* NVIDIA's GPUs, over the driver API. Their memory is one that the processor does not
 * reach. Any thread may call the functions, those of each queue one at a time. */
#ifndef RS_AGENT_GPU_CUDA_CUDA_H
#define RS_AGENT_GPU_CUDA_CUDA_H

#include "common/error.h"

#include <stdint.h>

/* The GPUs of a communicator. */
struct cuda;
/* A queue of copies of one operation on one GPU. */
struct cuda_queue;

enum cuda_direction { CUDA_OUT, CUDA_IN }; /* out of the device's memory, into it */

enum { CUDA_FENCES = 8 }; /* most fences of one direction of a queue that are not passed */

/* Loads libcuda.so.1 and initializes it. notify(user) is called on a thread of the driver
 * after a fence may have been passed; it must not block for long and must not call
 * functions of this file. Errors: RS_EUNSUPPORTED: there is no library, no driver, or no
 * GPU. */
int cuda_open(struct cuda **ret, void (*notify)(void *user), void *user, struct rs_err *e);
/* All queues were given back. When it returns, the owner is not notified any more. */
void cuda_close(struct cuda *c);

/* Checks that [p, p + bytes) is memory of this device. Errors: RS_EINVAL. */
int cuda_check(struct cuda *c, int device, const void *p, size_t bytes, struct rs_err *e);
/* Makes host memory a place from which and to which devices copy by themselves. */
int cuda_pin(struct cuda *c, int device, void *p, size_t bytes, struct rs_err *e);
/* Ends that. Nothing is being copied there. */
void cuda_unpin(struct cuda *c, int device, void *p);

/* Makes a queue of copies for one operation, or takes one that was given back. */
int cuda_take(struct cuda *c, int device, struct cuda_queue **ret, struct rs_err *e);
/* Gives a queue back. All its fences are passed, or have failed. */
void cuda_give(struct cuda_queue *q);
/* The queue's copies, in both directions, wait on the device for what is queued on this
 * stream of the caller so far. Before the first copy. Errors: RS_EINVAL: the stream is of
 * another device, or is being captured. */
int cuda_mark(struct cuda_queue *q, void *stream, struct rs_err *e);
/* Queues a copy. Copies of one direction are done in order. */
int cuda_copy_out(struct cuda_queue *q, void *to, const void *from, size_t bytes, struct rs_err *e);
int cuda_copy_in(struct cuda_queue *q, void *to, const void *from, size_t bytes, struct rs_err *e);
/* Adds a fence behind the copies of a direction; at most CUDA_FENCES are not passed. */
int cuda_fence(struct cuda_queue *q, enum cuda_direction dir, struct rs_err *e);
/* Stores the number of fences of a direction that have been passed since cuda_take. Never
 * blocks. After an error no copy of the queue touches memory any more. */
int cuda_poll(struct cuda_queue *q, enum cuda_direction dir, uint64_t *ret, struct rs_err *e);
/* Waits until the queue's copies in both directions are done or have failed. */
void cuda_wait(struct cuda_queue *q);

#endif
