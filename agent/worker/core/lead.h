/* SPDX-License-Identifier: Apache-2.0 */
/* How much a worker may have in flight on long links.
 *
 * What is in flight is bounded twice: by the window of each link, which the reducer's
 * memory bounds, and by the lead, how many chunks a link may be ahead of the slowest one,
 * which bounds the retained results of all ranks (retain.h). The configuration gives both
 * for a network within one building. On longer links both follow bandwidth x round trip:
 *
 * HELLO says which window the round trip of this connection would use, and the largest
 * one that this rank has memory for. START gives all ranks the same window: the largest
 * that a rank asked for, or less if a rank or the reducer lacks memory. The lead is the
 * largest window for each link. A rank fixes its memory for retained results once, before
 * any result can come: when all links have received START, or before its first VIEW. If
 * all links have started, all ranks know the same windows. Otherwise a reducer was lost,
 * and the ranks may know different ones: so VIEW says how large this rank's lead is, and
 * RESUME gives all the smallest one. */
#ifndef RS_AGENT_WORKER_CORE_LEAD_H
#define RS_AGENT_WORKER_CORE_LEAD_H

#include "agent/worker/core/link.h"

/* Returns the size of the ring of LINK_RETAINED: its entries belong to chunks in the
 * rings of the priorities. */
uint32_t lead_retained_ring(const struct exchange_params *p, uint32_t ring);
/* Returns the most bytes of a retained result. */
size_t lead_retained_bytes(const struct exchange *x);
/* Sets the lead of the configuration. */
void lead_init(struct exchange *x);
/* Returns the window that the link's round trip would use, at least the configured
 * one. */
uint32_t lead_window(const struct link *l);
/* Returns the largest window that the link takes in START: that of its round trip, or
 * what the link of another rank may need. */
uint32_t lead_most_window(const struct link *l);
/* START has given the link a window; 0: the configured one. Errors: RS_EPROTO (it is
 * larger than HELLO allows), RS_ENOMEM. */
int lead_take_window(struct link *l, uint32_t window, struct rs_err *e);
/* Fixes the lead and allocates the retained results, unless it is done. Errors:
 * RS_ENOMEM. */
int lead_fix(struct exchange *x, struct rs_err *e);
/* The features of the job are fixed: without FEATURE_SLOTS the lead of the configuration
 * may be larger. No chunk was sent so far. Errors: RS_ENOMEM. */
int lead_settle(struct exchange *x, struct rs_err *e);
/* Returns the lead that VIEW tells; 0: that of the configuration. */
uint32_t lead_to_tell(const struct exchange *x);
/* RESUME has given all ranks a lead; 0: that of the configuration. */
void lead_resume(struct exchange *x, uint32_t lead);

#endif
