/* SPDX-License-Identifier: Apache-2.0 */
/* What an exchange refers to; apart from sim.h, since links have streams of their own. */
#ifndef RS_TESTS_SIM_SIM_RETAINED_H
#define RS_TESTS_SIM_SIM_RETAINED_H

#include "agent/core/exchange.h"

/* Would it read from this memory when others ask for results? */
bool retained_within(const struct exchange *x, const void *memory, size_t bytes);

#endif
