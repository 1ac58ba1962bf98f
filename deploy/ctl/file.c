/* SPDX-License-Identifier: Apache-2.0 */
/* The file of a command, which may be standard input. */
#include "deploy/ctl/ctl.h"

#include <stdlib.h>
#include <string.h>

const char *file_name(const struct call *call)
{
	return call->file && strcmp(call->file, "-") == 0 ? "<stdin>" : call->file;
}

int load_config(struct rs_config *ret, const struct call *call, struct rs_err *e)
{
	char *text;
	size_t len;
	int rc;

	if (!call->file || strcmp(call->file, "-") != 0)
		return rs_config_load(ret, call->file, e);
	rc = rs_config_read(&text, &len, NULL, e);
	if (rc)
		return rc;
	rc = rs_config_parse(ret, file_name(call), text, len, e);
	free(text);
	return rc;
}
