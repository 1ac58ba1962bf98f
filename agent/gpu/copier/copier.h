/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on a device's memory. A copier has one thread, which copies pieces between
 * devices and rings in host memory; the backend runs the operation on the ring meanwhile
 * (`ring` of backend_request). A communicator makes a copier when its first buffer of a
 * device comes. */
#ifndef RS_AGENT_GPU_COPIER_COPIER_H
#define RS_AGENT_GPU_COPIER_COPIER_H

#include "agent/lib/backend/backend.h"

struct copier;

/* One tensor of an operation. device < 0: it is in host memory. */
struct copier_tensor {
	const void *send; /* equal to recv for a broadcast */
	void *recv;
	uint64_t bytes; /* of a sharded operation: of all parts, which only one of the two buffers has */
	uint64_t gap;   /* bytes of zeros that follow it in the operation */
	int device;
	void *stream;
};

/* Opens the devices and starts the thread. trace: the file to which copier_free writes
 * when each piece was copied and on the network, borrowed; NULL: nothing is recorded.
 * rank: for that file.
 * failed(user): copying has failed, so the job must end with this reason; called on any
 * thread. Errors: RS_EUNSUPPORTED: no device can be used; RS_ENOMEM, RS_EIO. */
int copier_new(struct copier **ret, struct backend *b, unsigned rank, const char *trace,
	       void (*failed)(void *user, const struct rs_err *why), void *user, struct rs_err *e);

/* Checks that `bytes` bytes at p are memory of that device. Any thread. Errors:
 * RS_EINVAL; RS_EIO: the device cannot be used. */
int copier_check(struct copier *c, int device, const void *p, uint64_t bytes, struct rs_err *e);

/* Starts an operation of this rank on n tensors, which stand end to end in its bytes and,
 * with their gaps, are together as large as req says; n is 1 if it is sharded. As submit
 * of backend_vtbl; the send and recv of req are not used, and `tensors` is not used after
 * the call. May wait until other operations give their memory back. */
int copier_submit(struct copier *c, unsigned rank, struct backend_request *req, const struct copier_tensor *tensors,
		  unsigned n, struct rs_err *e);

/* Waits until all operations have ended, ends the thread, and frees the copier. After the
 * backend's stop, before its close. */
void copier_free(struct copier *c);

#endif
