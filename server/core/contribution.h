/* SPDX-License-Identifier: Apache-2.0 */
/* The contribution of a rank to a chunk: checked, summed, and the result sent after the
 * last one. */
#ifndef RS_SERVER_CORE_CONTRIBUTION_H
#define RS_SERVER_CORE_CONTRIBUTION_H

#include "server/core/stripe.h"

/* Finds the slot for the contribution with the header f, or takes a free one if it is the
 * chunk's first. Errors: RS_EPROTO, RS_EMISMATCH, with a sentence. */
int contribution_begin(struct stripe *st, const struct frame *f, unsigned rank, struct slot **ret, struct rs_err *e);
/* Returns the number of the rank whose place in a slot's stash a session uses: its own,
 * or the lowest one of the group for which it relays. */
unsigned contribution_stash(const struct stripe *st, const struct session *s);
/* Completes the contribution of a rank. The last one sends the result. Errors:
 * RS_EMISMATCH. */
int contribution_complete(struct stripe *st, struct slot *slot, unsigned rank, struct rs_err *e);

#endif
