/* SPDX-License-Identifier: Apache-2.0 */
/* Scheduling on one link: which chunk is sent next. */
#ifndef RS_AGENT_WORKER_CORE_STREAM_H
#define RS_AGENT_WORKER_CORE_STREAM_H

#include "agent/worker/core/link.h"

/* Adds a new operation, which is the last one so far. */
void link_add_op(struct link *l, struct exchange_op *op);
/* Removes an operation that is done; its `next` must still be valid. */
void link_remove_op(struct link *l, const struct exchange_op *op);
/* Encodes the next chunk of a priority into its ring. Returns false if there is none or
 * it may not be sent yet. */
bool stream_next(struct link *l, unsigned priority);
/* Starts the stream at this position. */
void stream_begin(struct link *l, unsigned priority, uint64_t position);
/* Returns the bytes of the result of a chunk, as this rank receives it. */
uint32_t stream_result_bytes(const struct exchange_op *op, const struct operation_place *at);
/* Returns the shards of this link for a chunk of op: other ones if it goes through
 * relays. */
const struct shard_list *stream_shards(const struct link *l, const struct exchange_op *op, uint64_t chunk);

#endif
