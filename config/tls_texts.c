/* SPDX-License-Identifier: Apache-2.0 */
#include "config/tls_texts.h"

int rs_config_tls_texts(struct tls_texts *ret, enum rs_tls_side side, const struct rs_config *cfg, struct rs_err *e)
{
	bool mutual = cfg->security.tls == TLS_MUTUAL;
	bool shows = mutual || side == RS_TLS_REDUCER, checks = mutual || side == RS_TLS_WORKER;
	struct tls_files files = {.certificate = shows ? cfg->security.certificate : "",
				  .key = shows ? cfg->security.key : "",
				  .authority = checks ? cfg->security.authority : ""};

	if (cfg->security.tls != TLS_OFF)
		return tls_texts_load(ret, &files, e);
	*ret = (struct tls_texts){.certificate = NULL};
	return RS_OK;
}
