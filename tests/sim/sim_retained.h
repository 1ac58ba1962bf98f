/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that an exchange refers to; separate from sim.h, because links have streams
 * of their own. */
#ifndef RS_TESTS_SIM_SIM_RETAINED_H
#define RS_TESTS_SIM_SIM_RETAINED_H

#include "agent/worker/core/exchange.h"

/* Returns whether the exchange would read from this memory to answer FETCH. */
bool retained_within(const struct exchange *x, const void *memory, size_t bytes);

#endif
