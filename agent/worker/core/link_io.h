/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of one link. */
#ifndef RS_AGENT_WORKER_CORE_LINK_IO_H
#define RS_AGENT_WORKER_CORE_LINK_IO_H

#include "agent/worker/core/link.h"

/* As exchange_send_target, exchange_sent, exchange_recv_target and exchange_received. */
unsigned link_send_target(struct link *l, struct iovec *iov, unsigned max);
void link_sent(struct link *l, size_t n, uint64_t now_ms);
unsigned link_recv_target(struct link *l, struct iovec iov[2]);
void link_received(struct link *l, size_t n, uint64_t now_ms);

#endif
