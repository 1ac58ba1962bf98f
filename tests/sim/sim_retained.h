/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that an exchange refers to; separate from sim.h, because links have streams
 * of their own. */
#ifndef RS_TESTS_SIM_SIM_RETAINED_H
#define RS_TESTS_SIM_SIM_RETAINED_H

#include "agent/worker/core/exchange.h"

/* Returns whether the exchange would read from this memory to answer FETCH. */
bool retained_within(const struct exchange *x, const void *memory, size_t bytes);

/* Returns whether the exchange sends: it has START and RESUME of all reducers, and does
 * not leave. */
bool retained_sends(const struct exchange *x);
/* Returns whether two exchanges that send go as far ahead as each other, if they are in
 * the same view. */
bool retained_agree(const struct exchange *a, const struct exchange *b);

/* Returns whether a link waits for the news that chunks were added. */
bool retained_waits(const struct exchange *x, unsigned link);
/* Returns whether a link has more chunks without a result than may be in flight. */
bool retained_is_ahead(const struct exchange *x, unsigned link);

#endif
