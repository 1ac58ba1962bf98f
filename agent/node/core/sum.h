/* SPDX-License-Identifier: Apache-2.0 */
/* The sum of a chunk of a node's local ranks, and the form in which it is sent. */
#ifndef RS_AGENT_NODE_CORE_SUM_H
#define RS_AGENT_NODE_CORE_SUM_H

#include "agent/node/core/op_state.h"

/* Returns whether a float16 or bfloat16 partial sum is rounded to the dtype before it is
 * sent; whether it is float32 in memory until then. */
bool local_op_rounds(const struct local_op *op);
bool local_op_is_wide(const struct local_op *op);
/* As fill of an exchange_op: sums the local ranks' elements at send. */
void local_op_fill_sum(struct exchange_op *x, uint64_t first, uint32_t n);
/* As finish: without other nodes, computes what the reducers would make of the sum. */
void local_op_finish_sum(struct exchange_op *x, uint64_t first, uint32_t n);

#endif
