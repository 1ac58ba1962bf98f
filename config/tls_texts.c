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

struct tls_files rs_config_tls_files(const struct rs_config *cfg)
{
	return (struct tls_files){
	    .certificate = cfg->security.certificate, .key = cfg->security.key, .authority = cfg->security.authority};
}

int rs_config_tls_context(SSL_CTX **ret, enum rs_tls_side side, const struct rs_config *cfg, struct rs_err *e)
{
	struct tls_files files = rs_config_tls_files(cfg);

	return (side == RS_TLS_REDUCER ? tls_reducer : tls_worker)(ret, cfg->security.tls, &files, e);
}
