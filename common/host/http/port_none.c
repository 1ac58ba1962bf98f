/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP port of a build without libmicrohttpd. */
#include "common/host/http/port.h"

int http_port_start(struct http_port **ret, const struct http_options *opt, struct rs_err *e)
{
	(void)ret;
	return rs_fail(e, RS_EUNSUPPORTED,
		       "%s: this build has no HTTP; build it again where libmicrohttpd is installed (Debian's package "
		       "libmicrohttpd-dev)",
		       opt->address);
}

int http_port_reload(struct http_port *p, const struct tls_files *files, struct rs_err *e)
{
	(void)p;
	(void)files;
	(void)e;
	return RS_OK;
}

const char *http_port_name(const struct http_port *p)
{
	(void)p;
	return "";
}

void http_port_stop(struct http_port *p)
{
	(void)p;
}
