/* SPDX-License-Identifier: Apache-2.0 */
/* The control frames that a link sends. */
#ifndef RS_AGENT_WORKER_CORE_LINK_QUEUE_H
#define RS_AGENT_WORKER_CORE_LINK_QUEUE_H

#include "agent/worker/core/link.h"

/* Appends a frame to control_out. It fits: at most one frame of each kind waits there,
 * and their strings are bounded. A frame that did not fit would be dropped. */
void link_queue_frame(struct link *l, enum frame_type type, const uint8_t *payload, uint32_t len);
/* Queues HELLO. Errors: RS_EIO (no random bytes). */
int link_queue_hello(struct link *l, struct rs_err *e);
void link_queue_abort(struct link *l, const struct rs_err *why, const struct rs_cause *cause);
/* Queues a frame without payload: GOODBYE, SETTLE. */
void link_queue_empty(struct link *l, enum frame_type type);
/* Queues the frames that are due and waited for control_out to be empty. */
void link_queue_due(struct link *l);

#endif
