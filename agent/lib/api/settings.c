/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/lib/api/settings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *setting_text(const char *option, const char *variable)
{
	const char *v = option ? option : getenv(variable);

	return v && *v ? v : NULL;
}

int setting_number(int64_t option, const char *what, const char *variable, int64_t min, int64_t max, int64_t *ret,
		   struct rs_err *e)
{
	const char *text;
	char *end;
	long long v;

	if (option != -1) {
		if (option < min || option > max)
			return rs_fail(e, RS_EINVAL, "%s is %lld, %lld to %lld was expected", what, (long long)option,
				       (long long)min, (long long)max);
		*ret = option;
		return RS_OK;
	}
	text = variable ? getenv(variable) : NULL;
	*ret = -1;
	if (!text || !*text)
		return RS_OK;
	errno = 0;
	v = strtoll(text, &end, 10);
	if (errno || *end || v < min || v > max)
		return rs_fail(e, RS_ECONFIG, "%s is \"%s\", a number from %lld to %lld was expected", variable, text,
			       (long long)min, (long long)max);
	*ret = v;
	return RS_OK;
}

/* Takes what replaces job.deterministic. */
static int settings_take_deterministic(const reduction_options *opt, struct rs_config *cfg, struct rs_err *e)
{
	int64_t v;
	int rc = setting_number(opt->deterministic, "deterministic", "REDUCTION_DETERMINISTIC", 0, 1, &v, e);

	if (!rc && v != -1)
		cfg->job.deterministic = v == 1;
	return rc;
}

const char *setting_wire(const reduction_options *opt)
{
	return setting_text(opt->wire && *opt->wire ? opt->wire : NULL, "REDUCTION_WIRE");
}

static int settings_take_wire(const reduction_options *opt, struct rs_config *cfg, struct rs_err *e)
{
	bool option = opt->wire && *opt->wire;
	int rc = setting_wire(opt) ? rs_config_take_wire(cfg, setting_wire(opt), option ? "wire" : "REDUCTION_WIRE", e)
				   : RS_OK;

	if (rc && option)
		rc = e->code = RS_EINVAL;
	return rc;
}

int settings_load(const reduction_options *opt, struct rs_config *ret, struct rs_cluster *ret_cluster, struct rs_err *e)
{
	const char *paranoid = setting_text(NULL, "REDUCTION_PARANOID");
	const char *file = opt->config && *opt->config ? opt->config : NULL;
	int rc = rs_cluster_load_or_file(ret_cluster, ret, file, e);

	if (rc)
		return rc;
	ret->paranoid = paranoid && strcmp(paranoid, "1") == 0;
	rc = rs_config_take_log_level(ret, e);
	if (!rc)
		rc = settings_take_wire(opt, ret, e);
	if (!rc)
		rc = settings_take_deterministic(opt, ret, e);
	if (rc)
		rs_config_close(ret);
	return rc;
}
