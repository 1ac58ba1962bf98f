/* SPDX-License-Identifier: Apache-2.0 */
#include "server/join/secrets.h"

#include "config/job.h"
#include "proto/control.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

bool secrets_exist(const struct rs_config *cfg)
{
	return cfg->server.secrets_dir[0] || cfg->server.secret[0];
}

int secrets_load(const struct rs_config *cfg, const char *job, struct auth_secret *ret, struct rs_err *e)
{
	char file[RS_PATH_LEN + CONTROL_JOB + 16], base[RS_NAME_MAX];

	rs_job_base(base, job);
	snprintf(file, sizeof file, "%s/%s.secret", cfg->server.secrets_dir, base);
	if (!cfg->server.secrets_dir[0] || (access(file, F_OK) && errno == ENOENT))
		snprintf(file, sizeof file, "%s", cfg->server.secret);
	if (!rs_job_valid(job) || !file[0])
		return rs_fail(e, RS_EREFUSED, "this reducer has no secret for job %s, and serves no job without one",
			       base);
	return auth_secret_load(ret, file, e) ? RS_ECONFIG : RS_OK;
}
