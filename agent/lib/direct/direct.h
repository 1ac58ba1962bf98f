/* SPDX-License-Identifier: Apache-2.0 */
/* The direct backend: the engine runs in this process. */
#ifndef RS_AGENT_LIB_DIRECT_DIRECT_H
#define RS_AGENT_LIB_DIRECT_DIRECT_H

#include "agent/lib/backend/backend.h"

/* Opens a direct backend. Returns when all ranks have met, or with an error. On an error
 * opt->cfg still belongs to the caller. */
int direct_open(struct backend **ret, const struct backend_options *opt, struct rs_err *e);

#endif
