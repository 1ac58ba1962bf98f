/* SPDX-License-Identifier: Apache-2.0 */
/* The view of a worker: which reducers live, and which link owns each shard. */
#ifndef RS_AGENT_WORKER_CORE_VIEW_H
#define RS_AGENT_WORKER_CORE_VIEW_H

#include "agent/worker/core/link.h"

/* Gives every link its part of the shards in the current view. */
void view_assign_shards(struct exchange *x);
/* Continues without the reducers that could not be reached, if at least one was. */
void view_drop_unreached(struct exchange *x, uint64_t now_ms);
/* A living reducer is lost. The others take over its shards; without others the exchange
 * ends. from: the link that was lost or brought the news, which gets no ABORT; may be
 * NULL. */
void view_lose_reducer(struct exchange *x, unsigned reducer, const struct loss *loss, const struct link *from,
		       uint64_t now_ms);

/* The view has changed: all links start again from the positions that all ranks have. */
void view_apply(struct exchange *x, uint64_t now_ms);
/* Takes shares over, which view_apply() has to follow. */
void view_take_shares(struct exchange *x, uint32_t epoch, const uint32_t *shares);

/* An attempt to bring a reducer back has shown that no large message passes: the next
 * ones come later each time. Adds to `why`, a sentence in a buffer of this size, when
 * that is. */
void view_probe_failed(struct exchange *x, unsigned reducer, char *why, size_t size, uint64_t now_ms);

/* START has arrived. */
void view_started(struct link *l, uint64_t now_ms);
/* DRAIN has arrived: the reducer wants to stop. */
void view_drained(struct link *l, uint64_t now_ms);
/* VIEW has arrived. Errors: RS_EPROTO (its shares are not those that rank 0 has set). */
int view_received(struct link *l, const struct control_view *v, uint64_t now_ms, struct rs_err *e);
/* RESUME has arrived. Errors: RS_EPROTO (it contradicts an earlier frame of the link). */
int view_resumed(struct link *l, const struct control_view *v, struct rs_err *e);

#endif
