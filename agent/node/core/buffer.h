/* SPDX-License-Identifier: Apache-2.0 */
/* Shared memory of clients. */
#ifndef RS_AGENT_NODE_CORE_BUFFER_H
#define RS_AGENT_NODE_CORE_BUFFER_H

#include "agent/node/core/client.h"

/* One shared buffer of a client. Invariant: it exists while the driver makes it, while it
 * has an owner, or while operations refer to it. */
struct local_buffer {
	struct local_hub *hub;
	struct local_client *owner; /* NULL: freed, or its client has left */
	uint32_t id;
	bool making;
	unsigned refs;  /* held by operations */
	uint64_t bytes; /* counted in hub->shm_used */
	char *map;
};

/* Handles ALLOC; ALLOCED follows. */
void local_buffer_alloc(struct local_client *c, uint64_t bytes);
/* Handles FREE. Errors: RS_EPROTO. */
int local_buffer_drop(struct local_client *c, uint32_t id, struct rs_err *e);
/* Takes all buffers away from a client that leaves. */
void local_buffers_orphan(struct local_client *c);
/* Finds [offset, offset + bytes) of one of the client's buffers and takes a reference.
 * Errors: RS_EPROTO. */
int local_buffer_get(struct local_client *c, uint32_t id, uint64_t offset, uint64_t bytes, struct local_buffer **ret,
		     struct rs_err *e);
/* Drops a reference; NULL is allowed. */
void local_buffer_put(struct local_buffer *b);

#endif
