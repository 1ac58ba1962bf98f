/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that leave a stripe in good order. */
#ifndef RS_SERVER_CORE_STRIPE_DEPART_H
#define RS_SERVER_CORE_STRIPE_DEPART_H

#include "server/core/stripe.h"

/* Returns true if another rank needs something of a rank that departs with the results of
 * all operations below ack. */
bool stripe_needs_rank(const struct stripe *st, unsigned rank, uint64_t ack);
/* Continues without a rank that departed in good order. */
void stripe_rank_departed(struct stripe *st, struct session *s, uint64_t ack);

/* A rank has departed, and another one sends a chunk; `view`: the number of its last
 * view. Returns whether all ranks have the result. The rank may repeat the chunk: HAVE,
 * or DATA for parts of others. Or it has sent it before it knew of the view in which the
 * chunk was done elsewhere; the RESUME of that view drops it. */
bool stripe_is_over(const struct stripe *st, const struct frame *f, uint64_t view);

#endif
