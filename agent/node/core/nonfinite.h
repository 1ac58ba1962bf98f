/* SPDX-License-Identifier: Apache-2.0 */
/* job.detect_nonfinite for the local ranks of a node. */
#ifndef RS_AGENT_NODE_CORE_NONFINITE_H
#define RS_AGENT_NODE_CORE_NONFINITE_H

#include "agent/node/core/op_state.h"

/* Sets x.inspect if the operation's numbers are to be checked. The other members of x
 * must be set. */
void local_op_detect_nonfinite(struct local_op *op);
/* Checks what the sum would hide, on the engine's thread, before elements [first, first +
 * n) of all parts are summed at `sum`. */
void local_op_check_inputs(struct local_op *op, const void *sum, uint64_t first, uint32_t n);

#endif
