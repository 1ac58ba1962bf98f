/* SPDX-License-Identifier: Apache-2.0 */
/* The control frames that a link receives. */
#ifndef RS_AGENT_WORKER_CORE_LINK_CONTROL_H
#define RS_AGENT_WORKER_CORE_LINK_CONTROL_H

#include "agent/worker/core/link.h"

/* Handles l->frame, a complete control frame. */
void link_control(struct link *l, uint64_t now_ms);

#endif
