/* SPDX-License-Identifier: Apache-2.0 */
#include "server/join/certificates.h"

#include "config/tls_texts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int certificates_load(struct certificates *ret, const struct rs_config *cfg, struct rs_err *e)
{
	struct certificates c = {.mutual = cfg->security.tls == TLS_MUTUAL};
	int rc = RS_OK;

	if (cfg->access_n > 0) {
		c.rules = calloc(cfg->access_n, sizeof *c.rules);
		if (!c.rules)
			return rs_oom(e, 0, "%u rules of access", cfg->access_n);
		memcpy(c.rules, cfg->access, cfg->access_n * sizeof *c.rules);
		c.rules_n = cfg->access_n;
	}
	if (cfg->security.tls != TLS_OFF)
		rc = rs_config_tls_context(&c.ctx, RS_TLS_REDUCER, cfg, e);
	if (rc)
		free(c.rules);
	else
		*ret = c;
	return rc;
}

int certificates_renew(struct certificates *c, const struct rs_config *cfg, struct rs_err *e)
{
	SSL_CTX *fresh;
	int rc = rs_config_tls_context(&fresh, RS_TLS_REDUCER, cfg, e);

	if (rc)
		return rc;
	SSL_CTX_free(c->ctx);
	c->ctx = fresh;
	return RS_OK;
}

void certificates_close(struct certificates *c)
{
	SSL_CTX_free(c->ctx);
	free(c->rules);
	*c = (struct certificates){.ctx = NULL};
}

void certificates_log(const struct certificates *c, const struct rs_log *log, const char *event)
{
	char names[TLS_NAMES_MAX], expiry[TLS_EXPIRY_TEXT];

	if (!c->ctx)
		return;
	tls_own_certificate(c->ctx, names, expiry);
	rs_log(log, RS_LOG_INFO, event, rs_kv_s("certificate", names), rs_kv_s("expires", expiry),
	       rs_kv_s("tls", c->mutual ? "mutual" : "on"), rs_kv_u("access_rules", c->rules_n));
}

int certificates_may_join(const struct certificates *c, const char *names, const char *job, double *ret_weight,
			  struct control_refused *refused)
{
	const struct rs_access *rule = c->mutual ? rs_config_may_join(c->rules, c->rules_n, names, job) : NULL;

	*ret_weight = rule ? rule->weight : 1;
	if (!c->mutual || rule)
		return RS_OK;
	*refused = (struct control_refused){.code = RS_EREFUSED};
	snprintf(refused->message, sizeof refused->message, "the certificate of %.180s may not join job %s here%s",
		 names[0] ? names : "a worker without a name", job,
		 c->rules_n ? "" : ": this reducer's configuration has no rules of access");
	return RS_EREFUSED;
}
