/* SPDX-License-Identifier: Apache-2.0 */
/* Failures of one link. */
#ifndef RS_AGENT_WORKER_CORE_LINK_FAIL_H
#define RS_AGENT_WORKER_CORE_LINK_FAIL_H

#include "agent/worker/core/link.h"

/* The link's connection is lost, or its reducer says why it cannot serve the job any
 * more. */
void link_lost(struct link *l, const struct loss *loss, uint64_t now_ms);
/* An attempt to join has failed. The link tries again; if the job is running without
 * failure so far, it is a loss. */
void link_join_failed(struct link *l, const char *reason, enum rs_loss how, uint64_t now_ms);
/* The reducer broke the protocol. With failover it counts as lost; without, the exchange
 * ends. */
void link_violation(struct link *l, uint64_t now_ms, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
