/* SPDX-License-Identifier: Apache-2.0 */
/* The backend whose operations the node's agent runs. */
#ifndef RS_AGENT_LIB_CLIENT_OPEN_H
#define RS_AGENT_LIB_CLIENT_OPEN_H

#include "agent/lib/backend/backend.h"

#include <stdbool.h>

/* Returns whether an agent listens at a path. */
bool client_agent_listens(const char *path);

/* Connects to the agent at opt->agent_path. Returns when all ranks have met, or with an
 * error. On an error opt->cfg still belongs to the caller. */
int client_open(struct backend **ret, const struct backend_options *opt, struct rs_err *e);

#endif
