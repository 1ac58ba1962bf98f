/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks of jobs whose ranks are in groups ("Relays" in proto/README.md). A reducer plays
 * two parts, each for some chunks. As the relay of a group it adds the contributions of
 * that group's ranks, sends the sum to the home of the chunk (uplink.h), and passes the
 * result on. As a home it counts which ranks are covered: a rank's contribution covers
 * that rank, and that of an uplink all ranks of its group. A chunk is complete when each
 * rank that it expects is covered once.
 *
 * Ranks and uplinks send different chunks on one lane, so they have no common sequence.
 * Results therefore go to ranks in the order (seq, chunk) of what has begun: each session
 * has sent its own contributions in this order. Uplinks with a long round trip get theirs
 * at once, see result.c. */
#ifndef RS_SERVER_CORE_GROUPS_H
#define RS_SERVER_CORE_GROUPS_H

#include "server/core/stripe.h"

/* Adds the rank of a session to its group. Errors: RS_ENOMEM. */
int groups_attach(struct stripe *st, const struct session *s, struct rs_err *e);
/* Returns the lowest rank of a group. */
unsigned groups_first(const struct stripe *st, unsigned group);
/* Returns how many ranks a contribution of this session covers. */
unsigned groups_covers(const struct stripe *st, const struct session *s);
/* Checks the home in the header of a contribution. */
int groups_check_header(const struct stripe *st, const struct session *s, const struct frame *f, struct rs_err *e);
/* Says what a slot is for, from the first header that came for its chunk. */
void groups_start_slot(struct stripe *st, struct slot *slot, const struct session *s, const struct frame *f);
/* Marks the ranks of a contribution as covered. Errors: RS_EMISMATCH, if one of them is
 * already, or the chunk has another home. */
int groups_cover(struct stripe *st, struct slot *slot, const struct session *s, const struct frame *f,
		 struct rs_err *e);
/* Deterministic: adds what is in the stash: the ranks of a group in their order, then the
 * groups in theirs. The sum of each group is rounded or encoded as its relay would do. So
 * it does not matter who adds. */
void groups_fold(struct stripe *st, struct slot *slot);
/* Takes a slot out of the list of those without a result. */
void groups_unlist(struct stripe *st, struct slot *slot);
/* An uplink is closed: nothing is sent to its place any more. */
void groups_forget(struct stripe *st, unsigned place);

#endif
