/* SPDX-License-Identifier: Apache-2.0 */
/* What the lower files of the core report upwards to the view (view.c). It includes the lower files' headers; they
 * include only this one. */
#ifndef RS_AGENT_CORE_EVENTS_H
#define RS_AGENT_CORE_EVENTS_H

#include "agent/core/link.h"

/* view.c */
/* The link's connection is lost, or (reported) its reducer says why it cannot serve the job any more. */
void link_lost(struct link *l, const char *reason, bool reported, uint64_t now_ms);
/* An attempt to join has failed. The link tries again; if the job is running without failure so far, it is a loss. */
void link_join_failed(struct link *l, const char *reason, uint64_t now_ms);
/* START has arrived. */
void view_started(struct link *l, uint64_t now_ms);
/* DRAIN has arrived: the reducer wants to stop. */
void view_drained(struct link *l, uint64_t now_ms);
/* VIEW has arrived. */
void view_received(struct link *l, const struct control_view *v, uint64_t now_ms);
/* RESUME has arrived. */
void view_resumed(struct link *l, const struct control_view *v, uint64_t now_ms);

#endif
