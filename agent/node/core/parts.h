/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a sharded operation of local ranks, in elements. */
#ifndef RS_AGENT_NODE_CORE_PARTS_H
#define RS_AGENT_NODE_CORE_PARTS_H

#include "agent/node/core/op_state.h"

/* Returns the elements of the part of this node. */
static inline uint64_t local_sharded_part(const struct local_op *op)
{
	return op->spec.of.count / op->job->members[0].hello.nodes;
}

/* Returns those of the part of each rank. */
static inline uint64_t local_sharded_own(const struct local_op *op)
{
	return op->spec.of.count / op->spec.of.parts;
}

/* Returns the first element of the part of this node. */
static inline uint64_t local_sharded_first(const struct local_op *op)
{
	return op->job->members[0].hello.node_rank * local_sharded_part(op);
}

/* Returns the local rank that owns an element of this node's part. */
static inline unsigned local_sharded_owner(const struct local_op *op, uint64_t element)
{
	return (unsigned)((element - local_sharded_first(op)) / local_sharded_own(op));
}

#endif
