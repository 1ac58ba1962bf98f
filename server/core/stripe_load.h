/* SPDX-License-Identifier: Apache-2.0 */
/* How busy the connections of a stripe are, for rank 0, which may give the reducers
 * other shares (agent/worker/core/balance.h). A worker says of its connection for how
 * long bytes waited to be acknowledged on their way up. The driver samples the same for
 * the way down. Rank 0 gets the medians of all ranks, since a reducer whose link is
 * slow is slow for most of them, and the largest values, since one path may be slow
 * alone. */
#ifndef RS_SERVER_CORE_STRIPE_LOAD_H
#define RS_SERVER_CORE_STRIPE_LOAD_H

#include "server/core/stripe.h"

enum { LOAD_FRESH_MS = 3000 /* what a worker said counts for this time */ };

/* Returns true if the job's ranks may send LOAD. */
bool stripe_hears_load(const struct stripe *st);
/* Takes the LOAD that a session has received, and answers rank 0 if it wants that.
 * Errors: RS_ENOMEM, RS_EPROTO. */
int stripe_take_load(struct session *s, struct rs_err *e);

#endif
