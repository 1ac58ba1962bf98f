/* SPDX-License-Identifier: Apache-2.0 */
/* Control frames of one link. */
#ifndef RS_AGENT_CORE_LINK_CONTROL_H
#define RS_AGENT_CORE_LINK_CONTROL_H

#include "agent/core/link.h"

/* Queues HELLO. Errors: RS_EIO (no random bytes). */
int link_queue_hello(struct link *l, struct rs_err *e);
void link_queue_abort(struct link *l, const struct rs_err *why);
/* Queues a frame without payload: PING, GOODBYE, SETTLE. */
void link_queue_empty(struct link *l, enum frame_type type);
/* Queues the frames that are due and waited for control_out to be empty. */
void link_queue_due(struct link *l);
/* Handles l->frame, a complete control frame. */
void link_control(struct link *l, uint64_t now_ms);
/* The reducer broke the protocol. With failover it counts as lost; without, the exchange ends. */
void link_violation(struct link *l, uint64_t now_ms, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
