/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that small tensors of a group share, some of which are on GPUs: the copier
 * collects the tensors piece by piece, so no stage of the group is needed. */
#ifndef RS_AGENT_LIB_API_GROUP_COPY_H
#define RS_AGENT_LIB_API_GROUP_COPY_H

#include "agent/lib/api/comm.h"

/* Starts an operation on base->of.tensors > 1 tensors, which are chained by next, the
 * last one first; each takes a multiple of `block` elements. `base` describes the
 * operation. With `order` held. After an error nothing is started. */
int group_copy_start(struct reduction_comm *c, const struct backend_request *base, struct reduction_request *last,
		     unsigned block, struct rs_err *e);

#endif
