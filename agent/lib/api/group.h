/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: many small tensors share operations.
 *
 * Which tensors of a group share an operation depends only on what is equal on all ranks:
 * their order, dtypes, ops, encodings and counts. Tensors larger than GROUP_SMALL_MAX are
 * operations of their own. The others of one dtype, op and reduction_tensor.wire are
 * placed end to end, in the caller's order, in operations of at most GROUP_OP_MAX bytes.
 * The place of such an operation in the sequence is that of its first tensor. If an
 * operation would have a single tensor, that tensor is used directly, without a copy.
 *
 * If an encoding with blocks may be chosen for such an operation, a tensor takes whole
 * blocks of it: zeros follow the tensor, so that no block has elements of two. An
 * operation that then is not encoded, since its tensors together are small, keeps these
 * zeros.
 *
 * The happy path of a shared operation: a stage is free -> its tensors are copied in ->
 * the backend runs it in place -> they are copied out on the backend's thread, the stage
 * is free again, the tensors' requests are done. Failure modes: no memory for the first
 * stage; errors of the backend, with which the tensors' requests end. */
#ifndef RS_AGENT_LIB_API_GROUP_H
#define RS_AGENT_LIB_API_GROUP_H

#include "agent/lib/api/comm.h"

enum {
	/* Largest tensor, in bytes, that shares an operation. A tensor of a default chunk
	 * (config/schema.c) or more fills frames of its own, and copying it in and out
	 * costs as much as the operation that it would save. All ranks must use the same
	 * value, so it is not configurable. */
	GROUP_SMALL_MAX = 32 << 10,
};

/* Starts the requests of a group, which are chained by `follows`. A request that cannot
 * be started ends with the reason. May wait while the limits of operations in flight are
 * reached. Any thread. */
void group_start(struct reduction_comm *c, struct reduction_request *first);

#endif
