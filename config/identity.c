/* SPDX-License-Identifier: Apache-2.0 */
#include "config/identity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Returns the caller's text, else that of the variable; NULL: neither is set. */
static const char *identity_text(const char *given, const char *variable)
{
	const char *v = given && *given ? given : getenv(variable);

	return v && *v ? v : NULL;
}

static int identity_find_run(struct rs_identity *id, const char *given, const struct rs_launch *launch,
			     const struct rs_cluster *cluster, struct rs_err *e)
{
	const char *run = identity_text(given, "REDUCTION_RUN");
	char host[RS_HOST_MAX] = "", space[RS_HOST_MAX];

	if (run) {
		if (rs_run_check(run, run == given ? "run" : "REDUCTION_RUN", e))
			return e->code;
		strcpy(id->run, run); /* it fits: it is checked */
		return RS_OK;
	}
	gethostname(host, sizeof host - 1);
	rs_run_namespace(space, sizeof space, RS_RUN_NAMESPACE_FILE, NULL, NULL);
	rs_run_detect(id->run, launch, &(struct rs_run_place){host, space}, NULL, NULL);
	if (!id->run[0] && cluster->variable)
		memcpy(id->run, cluster->run, sizeof id->run);
	return RS_OK;
}

int rs_identity_find(struct rs_identity *ret, const char *job, const char *run, const struct rs_config *cfg,
		     const struct rs_launch *launch, const struct rs_cluster *cluster, struct rs_err *e)
{
	const char *name = identity_text(job, "REDUCTION_JOB");

	if (identity_find_run(ret, run, launch, cluster, e))
		return e->code;
	if (!name && cfg->job.name[0])
		name = cfg->job.name;
	if (name && !rs_name_valid(name))
		return rs_fail(e, RS_EINVAL,
			       "\"%s\" is not a job name: up to %d letters, digits, '.', '_' and '-' were expected",
			       name, RS_NAME_MAX - 1);
	if (!name && ret->run[0])
		rs_run_job_name(ret->job, ret->run);
	else
		strcpy(ret->job, name ? name : "default");
	return RS_OK;
}
