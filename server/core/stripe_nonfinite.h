/* SPDX-License-Identifier: Apache-2.0 */
/* NaN and infinity that workers have found in what they send. */
#ifndef RS_SERVER_CORE_STRIPE_NONFINITE_H
#define RS_SERVER_CORE_STRIPE_NONFINITE_H

#include "server/core/stripe.h"

/* Returns true if the job's ranks may send NONFINITE. */
bool stripe_hears_nonfinite(const struct stripe *st);
/* Takes the NONFINITE that a session has received. Reports LANE_NONFINITE when the rank
 * has sent NaN for the first time, or infinity and no NaN. Errors: RS_ENOMEM,
 * RS_EPROTO. */
int stripe_take_nonfinite(struct session *s, struct rs_err *e);

#endif
