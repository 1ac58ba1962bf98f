/* SPDX-License-Identifier: Apache-2.0 */
/* The arguments of a command: its file, which may be standard input, and numbers. */
#include "config/cluster.h"
#include "deploy/ctl/ctl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *file_name(const struct call *call)
{
	return call->file && strcmp(call->file, "-") == 0 ? "<stdin>" : call->file;
}

int load_config(struct rs_config *ret, const struct call *call, struct rs_err *e)
{
	struct rs_cluster cluster;
	char *text;
	size_t len;
	int rc;

	if (!call->file && rs_cluster_named())
		return rs_cluster_load_or_file(&cluster, ret, NULL, e);
	if (!call->file || strcmp(call->file, "-") != 0)
		return rs_config_load(ret, call->file, e);
	rc = rs_config_read(&text, &len, NULL, e);
	if (rc)
		return rc;
	rc = rs_config_parse(ret, file_name(call), text, len, e);
	free(text);
	return rc;
}

int take_number(const char *given, const char *option, uint32_t least, uint32_t most, uint32_t *ret, struct rs_err *e)
{
	unsigned long n;
	char *end;

	if (!given)
		return RS_OK;
	errno = 0;
	n = strtoul(given, &end, 10);
	if (errno || given[0] < '0' || given[0] > '9' || *end || n < least || n > most)
		return rs_fail(e, RS_EINVAL, "--%s: found \"%s\", expected a whole number from %u to %u", option, given,
			       least, most);
	*ret = (uint32_t)n;
	return RS_OK;
}

int take_seconds(const char *given, const char *option, double least, double most, double *ret, struct rs_err *e)
{
	double seconds;
	char *end;

	if (!given)
		return RS_OK;
	seconds = strtod(given, &end);
	if (end == given || *end || !(seconds >= least && seconds <= most))
		return rs_fail(e, RS_EINVAL, "--%s: found \"%s\", expected seconds from %g to %g", option, given, least,
			       most);
	*ret = seconds;
	return RS_OK;
}
