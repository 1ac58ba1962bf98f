/* SPDX-License-Identifier: Apache-2.0 */
/* What counts in the window of a link.
 *
 * A chunk counts from when it is sent until its result arrives. So a rank that is ahead
 * of the others fills its window and waits, although its link is idle. In a decoupled job
 * reducers say with CREDIT how many chunks of a priority they have added to their sums:
 * these do not count any more, so that the window bounds what the network holds, and
 * `link.ahead` how many chunks lack a result, for which the reducer has memory. CREDIT is
 * not the news that all ranks have begun a chunk: only its result is. Contributions are
 * kept, and the lead counts, until then (retain.h). */
#ifndef RS_AGENT_WORKER_CORE_CREDIT_H
#define RS_AGENT_WORKER_CORE_CREDIT_H

#include "agent/worker/core/link.h"

/* The oldest chunk of a stream that counts in the window has arrived: its result, or
 * CREDIT, says so. */
void credit_landed(struct link *l, struct stream *s, uint64_t now_ms);
/* Handles CREDIT, in l->frame. */
void credit_received(struct link *l, uint64_t now_ms);

#endif
