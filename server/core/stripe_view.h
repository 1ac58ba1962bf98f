/* SPDX-License-Identifier: Apache-2.0 */
/* Which reducers are lost in the job of a stripe. */
#ifndef RS_SERVER_CORE_STRIPE_VIEW_H
#define RS_SERVER_CORE_STRIPE_VIEW_H

#include "server/core/stripe.h"

/* Takes the view of a session, which says which reducers are lost. Errors: RS_EPROTO. */
int stripe_take_view(struct stripe *st, struct session *s, const struct control_view *v, struct rs_err *e);
/* Sends RESUME if all ranks have sent the same view, and no result of the view before is
 * partly sent. */
void stripe_try_resume(struct stripe *st);

#endif
