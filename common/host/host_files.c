/* SPDX-License-Identifier: Apache-2.0 */
/* The tokens and certificates of a daemon: read when its ports open and at each
 * reload. */
#include "common/host/host_state.h"

/* Loads a token, if there is one. */
static int host_load_token(struct auth_secret *token, const char *file, const char *key, struct rs_err *e)
{
	return !file[0] || !auth_token_load(token, file, e) ? RS_OK : rs_wrap(e, "security.%s", key);
}

int host_files_read(const struct host *h, const struct rs_config *cfg, struct host_files *ret, struct rs_err *e)
{
	int rc = RS_OK;

	*ret = (struct host_files){.read.len = 0};
	if (h->control)
		rc = host_load_token(&ret->read, cfg->security.read_token, "read_token", e);
	if (!rc && h->control)
		rc = host_load_token(&ret->admin, cfg->security.admin_token, "admin_token", e);
	/* only a restart can switch TLS on or off */
	if (!rc && h->rpc && h->ports.grpc_tls && cfg->security.tls == h->opt.cfg->security.tls)
		rc = rs_config_tls_texts(&ret->texts, RS_TLS_REDUCER, cfg, e);
	return rc;
}

void host_files_close(struct host_files *f)
{
	auth_secret_clear(&f->read);
	auth_secret_clear(&f->admin);
	tls_texts_free(&f->texts);
}

void host_set_tokens(struct host *h, const struct host_files *f)
{
	if (h->control)
		service_tokens(control_uv_service(h->control), (struct service_token){f->read.bytes, f->read.len},
			       (struct service_token){f->admin.bytes, f->admin.len});
}

int host_set_certificates(struct host *h, const struct host_files *f, struct rs_err *e)
{
	struct rpc_tls tls = {f->texts.certificate, f->texts.key, f->texts.authority};

	return h->rpc_server && tls.certificate ? h->rpc->server_reload(h->rpc_server, &tls, e) : RS_OK;
}
