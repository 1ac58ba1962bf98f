/* SPDX-License-Identifier: Apache-2.0 */
/* The secrets of jobs: files of this reducer's configuration. They are read each time, so
 * they can be added, changed and removed while the reducer runs. Any thread. */
#ifndef RS_SERVER_JOIN_SECRETS_H
#define RS_SERVER_JOIN_SECRETS_H

#include "common/auth.h"
#include "config/config.h"

/* Returns whether workers have to prove that they have their job's secret. */
bool secrets_exist(const struct rs_config *cfg);
/* Reads the secret of a job. Errors: RS_EREFUSED, if there is none; RS_ECONFIG. */
int secrets_load(const struct rs_config *cfg, const char *job, struct auth_secret *ret, struct rs_err *e);

#endif
