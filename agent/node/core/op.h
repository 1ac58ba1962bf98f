/* SPDX-License-Identifier: Apache-2.0 */
/* One operation of a node's local ranks: comparing what they submit, and their sum. */
#ifndef RS_AGENT_NODE_CORE_OP_H
#define RS_AGENT_NODE_CORE_OP_H

#include "agent/node/core/op_state.h"

/* Makes the operation that this SUBMIT starts. Errors: RS_ENOMEM. */
int local_op_new(struct local_op **ret, struct local_job *j, unsigned local_rank, const struct local_submit *s,
		 struct rs_err *e);
/* Releases its buffers and its stage. The memory of the struct becomes idle. */
void local_op_free(struct local_op *op);
/* Compares this local rank's SUBMIT with the first one. Errors: RS_EMISMATCH. */
int local_op_compare(const struct local_op *op, unsigned local_rank, const struct local_submit *s, struct rs_err *e);
/* Returns the bytes of the stage that it needs. */
size_t local_op_stage(const struct local_op *op);
/* Sets x. All local ranks have started it, and it has its stage. */
void local_op_prepare(struct local_op *op);

#endif
