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

#endif
