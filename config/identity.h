/* SPDX-License-Identifier: Apache-2.0 */
/* Which job a rank belongs to, and which run of it. The caller's values come first, then
 * REDUCTION_JOB and REDUCTION_RUN, then the configuration file, then what the launcher or
 * a managed job says. */
#ifndef RS_CONFIG_IDENTITY_H
#define RS_CONFIG_IDENTITY_H

#include "config/cluster.h"
#include "config/run.h"

struct rs_identity {
	char run[RS_RUN_MAX];  /* "": unknown */
	char job[RS_NAME_MAX]; /* if nobody names it: made from the run, or "default" if that is unknown too */
};

/* Fills *ret. job, run: the caller's; NULL or "": not given. Errors: RS_EINVAL. */
int rs_identity_find(struct rs_identity *ret, const char *job, const char *run, const struct rs_config *cfg,
		     const struct rs_launch *launch, const struct rs_cluster *cluster, struct rs_err *e);

#endif
