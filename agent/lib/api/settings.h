/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of a communicator: the caller's option, else the environment's variable, else
 * the configuration file. */
#ifndef RS_AGENT_LIB_API_SETTINGS_H
#define RS_AGENT_LIB_API_SETTINGS_H

#include "agent/lib/backend/backend.h"
#include "config/cluster.h"

#include <stdint.h>

/* Returns the option, else the variable; NULL if neither says anything. */
const char *setting_text(const char *option, const char *variable);
/* Sets *ret to the option if it is set (not -1), else to the variable (may be NULL); -1
 * if neither is set. Errors: RS_EINVAL for the option, RS_ECONFIG for the variable. */
int setting_number(int64_t option, const char *what, const char *variable, int64_t min, int64_t max, int64_t *ret,
		   struct rs_err *e);
/* Returns what replaces job.wire; NULL: nothing. */
const char *setting_wire(const reduction_options *opt);
/* Reads the configuration, and replaces in it what options and variables say. On success
 * the caller closes *ret. Errors: those of rs_cluster_load_or_file(), RS_EINVAL,
 * RS_ECONFIG. */
int settings_load(const reduction_options *opt, struct rs_config *ret, struct rs_cluster *ret_cluster,
		  struct rs_err *e);

#endif
