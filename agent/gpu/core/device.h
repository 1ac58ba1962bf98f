/* SPDX-License-Identifier: Apache-2.0 */
/* A kind of devices whose memory the processor does not reach, such as GPUs. cuda/ implements it; copier/ uses it. */
#ifndef RS_AGENT_GPU_CORE_DEVICE_H
#define RS_AGENT_GPU_CORE_DEVICE_H

#include "common/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct devices;
struct device_queue;

enum device_direction { DEVICE_OUT, DEVICE_IN }; /* out of the device's memory, into it */

enum { DEVICE_FENCES = 8 }; /* most fences of one direction of a queue that are not passed */

/* The functions of a kind of devices. Any thread may call them, each queue's one at a time. */
struct devices_vtbl {
	/* Checks that [p, p + bytes) is memory of this device. Errors: RS_EINVAL. */
	int (*check)(struct devices *d, int device, const void *p, size_t bytes, struct rs_err *e);
	/* Makes host memory a place from which and to which devices copy by themselves. */
	int (*pin)(struct devices *d, int device, void *p, size_t bytes, struct rs_err *e);
	/* Ends that. Nothing is being copied there. */
	void (*unpin)(struct devices *d, int device, void *p);
	/* Makes a queue of copies for one operation, or takes one that was given back. */
	int (*take)(struct devices *d, int device, struct device_queue **ret, struct rs_err *e);
	/* Gives a queue back. All its fences are passed, or have failed. */
	void (*give)(struct devices *d, struct device_queue *q);
	/* The queue's copies, in both directions, wait on the device for what is queued on this stream of the caller so
	 * far. Before the first copy. Errors: RS_EINVAL: the stream is of another device, or is being captured. */
	int (*mark)(struct device_queue *q, void *stream, struct rs_err *e);
	/* Queues a copy. Copies of one direction are done in order. */
	int (*copy_out)(struct device_queue *q, void *to, const void *from, size_t bytes, struct rs_err *e);
	int (*copy_in)(struct device_queue *q, void *to, const void *from, size_t bytes, struct rs_err *e);
	/* Adds a fence behind the copies of a direction; at most DEVICE_FENCES are not passed. */
	int (*fence)(struct device_queue *q, enum device_direction dir, struct rs_err *e);
	/* Stores the number of fences of a direction that have been passed since take. Never blocks. After an error no
	 * copy of the queue touches memory any more. */
	int (*poll)(struct device_queue *q, enum device_direction dir, uint64_t *ret, struct rs_err *e);
	/* Waits until the queue's copies in both directions are done or have failed. */
	void (*wait)(struct device_queue *q);
	/* Work that is queued on this stream of the caller from now on waits, on the device, until *word - value >= 0
	 * as int32_t. `word` is 32 bits of pinned memory. Errors: RS_EINVAL. */
	int (*hold)(struct devices *d, int device, void *stream, void *word, uint32_t value, struct rs_err *e);
	/* Waits until all work that is queued on the device is done. */
	void (*finish)(struct devices *d, int device);
	/* All queues were given back. When it returns, the owner is not notified any more. */
	void (*close)(struct devices *d);
};

/* Base of each implementation's own struct; its first member. */
struct devices {
	const struct devices_vtbl *v;
};

/* Base of each implementation's queue; its first member. */
struct device_queue {
	struct devices *of;
	int device;
};

#endif
