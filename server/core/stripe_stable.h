/* SPDX-License-Identifier: Apache-2.0 */
/* Which operations are stable: all ranks have their results. */
#ifndef RS_SERVER_CORE_STRIPE_STABLE_H
#define RS_SERVER_CORE_STRIPE_STABLE_H

#include "server/core/stripe.h"

/* Stores the acknowledgement of a session: its rank has the results of all operations
 * below ack. */
void stripe_acked(struct stripe *st, struct session *s, uint64_t ack);
/* Computes `stable` again, after a rank departed or acknowledged more. */
void stripe_find_stable(struct stripe *st);
/* Remembers that the worker of a session wants a PING when all ranks have what it has,
 * and asks the others for their acknowledgements. */
void stripe_request_stable(struct stripe *st, struct session *s);

#endif
