/* SPDX-License-Identifier: Apache-2.0 */
/* Retained results: after the loss of a reducer, ranks say HAVE for chunks whose result
 * they already have. */
#ifndef RS_SERVER_CORE_RETAINED_H
#define RS_SERVER_CORE_RETAINED_H

#include "server/core/stripe.h"

/* Completes a slot to which all ranks have contributed DATA or HAVE, at least one of them
 * HAVE. */
void retained_complete(struct stripe *st, struct slot *slot);
/* Sends a fetched result, which is complete in the slot, to the ranks that do not have
 * it. */
void retained_received(struct stripe *st, struct slot *slot);
/* Returns the slot whose result `rank` was asked for with FETCH; NULL: none. */
struct slot *retained_fetched_slot(struct stripe *st, const struct frame *f, unsigned rank);
/* Finds a rank other than `except` that can be asked for the result. Returns false if
 * there is none. */
bool retained_find_holder(const struct stripe *st, const struct slot *slot, unsigned except, unsigned *ret);
/* Asks other ranks for the results that the departed `rank` was asked for. */
void retained_fetch_again(struct stripe *st, unsigned rank);

#endif
