/* SPDX-License-Identifier: Apache-2.0 */
/* Which ranks are late, and how long chunks and ranks wait. */
#ifndef RS_SERVER_CORE_STRIPE_LATE_H
#define RS_SERVER_CORE_STRIPE_LATE_H

#include "server/core/stripe.h"

/* Tells the ranks, on every tick, which ranks they wait for. */
void stripe_watch_late(struct stripe *st, uint64_t now_ms);
/* Counts a complete contribution of a rank; `last`: it also completed the chunk. */
void stripe_count_contribution(struct stripe *st, const struct slot *slot, unsigned rank, bool last);
/* Returns the oldest incomplete chunk; NULL: none. */
const struct slot *stripe_oldest(const struct stripe *st);
/* Returns true if a rank has not started or not finished its contribution to a chunk. */
bool stripe_is_missing(const struct stripe *st, const struct slot *slot, unsigned rank);
/* Returns whether ranks that have a relay send their parts of this chunk to it. The relay
 * then is the one that knows whether such a rank is late. */
bool stripe_is_relayed(const struct stripe *st, const struct slot *slot);
/* Returns whether relays of a rank's group have connections to this lane, in a job with
 * relays. */
bool stripe_has_relay(const struct stripe *st, unsigned rank);

/* A relay says for which ranks of its group it waits, and how they call the operation.
 * Errors: RS_EPROTO; RS_EMISMATCH, if others call it otherwise. */
int stripe_hear_late(struct stripe *st, struct session *s, struct rs_err *e);
/* A home says whom an operation waits for: tells the ranks that wait for it here. */
void stripe_pass_late(struct stripe *st, const uint8_t *payload, uint32_t len);

#endif
