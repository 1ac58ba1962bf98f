/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a stripe. */
#ifndef RS_SERVER_CORE_STRIPE_FAIL_H
#define RS_SERVER_CORE_STRIPE_FAIL_H

#include "server/core/stripe.h"

/* Sends ABORT to all sessions and ends the stripe, without an event. */
void stripe_end(struct stripe *st, const struct rs_err *why, const struct rs_cause *cause);
/* Ends the stripe and reports LANE_FAILED, because the job cannot go on. cause: what the
 * sentence says, as data; NULL: the code alone. */
void stripe_fail(struct stripe *st, const struct rs_err *why, const struct rs_cause *cause);
/* Ends a running stripe because a rank is lost in this way; reports LANE_LOST too. */
void stripe_fail_lost(struct stripe *st, unsigned rank, enum rs_loss loss, bool narrow, const struct rs_err *why);

#endif
