/* SPDX-License-Identifier: Apache-2.0 */
/* What the lower files of the core report upwards: to the exchange (exchange.c) and the view (view.c). Those include
 * the lower files' headers; the lower files include only this one. */
#ifndef RS_AGENT_CORE_EVENTS_H
#define RS_AGENT_CORE_EVENTS_H

#include "agent/core/link.h"

/* exchange.c */
/* Enters EXCHANGE_RUNNING when all links of living reducers have received START. */
void exchange_check_running(struct exchange *x, uint64_t now_ms);
/* Enters EXCHANGE_ENDED when all last frames are sent, and ends all operations. */
void exchange_check_ended(struct exchange *x);
/* A reducer reports that all operations below `stable` are stable. */
void exchange_raise_stable(struct exchange *x, uint64_t stable, uint64_t now_ms);
/* Starts the end of the exchange. `local`: the cause was found here, so ABORT names this rank first. from: the link
 * that gets no ABORT because it failed or brought the news; may be NULL. */
void exchange_fail(struct exchange *x, const struct rs_err *why, bool local, struct link *from, uint64_t now_ms);

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
