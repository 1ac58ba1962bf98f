/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of one link. */
#ifndef RS_AGENT_CORE_LINK_IO_H
#define RS_AGENT_CORE_LINK_IO_H

#include "agent/core/link.h"

/* As exchange_send_target, exchange_sent, exchange_recv_target and exchange_received. */
unsigned link_send_target(struct link *l, struct iovec *iov, unsigned max);
void link_sent(struct link *l, size_t n, uint64_t now_ms);
unsigned link_recv_target(struct link *l, struct iovec iov[2]);
void link_received(struct link *l, size_t n, uint64_t now_ms);
bool link_has_output(const struct link *l);

/* Drops everything that belongs to the connection: frames that are partly sent or received. */
void link_reset(struct link *l);
/* Empties all streams. The rest of a frame that is partly sent is saved and will still be sent. */
void link_rewind(struct link *l);
/* The attempt to join has failed, for the reason in l->reason: waits and tries again. */
void link_retry(struct link *l, uint64_t now_ms);

#endif
