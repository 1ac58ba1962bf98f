/* SPDX-License-Identifier: Apache-2.0 */
/* Reduce-scatters and all-gathers of a node's local ranks.
 *
 * A node is one worker of its job, so an operation whose parts belong to ranks becomes
 * one whose parts belong to nodes: the part of a node is the parts of its local ranks one
 * after the other. That needs nodes with equally many ranks, in their order (see
 * local_job_shards). An operation of a node that has no others is no sharded one for the
 * engine. */
#ifndef RS_AGENT_NODE_CORE_SHARDED_H
#define RS_AGENT_NODE_CORE_SHARDED_H

#include "agent/node/core/op_state.h"

/* Returns whether the ranks of the nodes are such that operations can be sharded, as far
 * as this node can see: all nodes of the job must say so. All local ranks have joined. */
bool local_job_shards(const struct local_job *j);
/* Returns whether the job's ranks may submit sharded operations now. */
bool local_job_can_shard(const struct local_job *j);
/* Checks the SUBMIT of a sharded operation. Errors: RS_EPROTO. */
int local_sharded_check(const struct local_job *j, const struct local_submit *s, struct rs_err *e);
/* Sets the bytes that a local rank sends and receives. Errors: RS_EPROTO, if they overlap
 * in another way than that one is the own part of the other. */
int local_sharded_bytes(const struct local_submit *s, unsigned rank, uint64_t *send, uint64_t *recv, struct rs_err *e);
/* Returns the bytes of the stage that it needs. */
size_t local_sharded_stage(const struct local_op *op);
/* Sets x, as local_op_prepare() does. */
void local_sharded_prepare(struct local_op *op);

#endif
