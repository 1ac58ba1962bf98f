/* SPDX-License-Identifier: Apache-2.0 */
#include "server/run/server_port.h"

#include "server/run/server_streams.h"

#include <stdio.h>
#include <string.h>

enum { CALLS_BESIDE = 64 }; /* calls above the service's limits, which are refused with a sentence */

/* Logs a line of gRPC, on any of its threads. There can be many. */
static void on_rpc_log(void *user, const char *line)
{
	const struct server *s = user;

	rs_log(s->log, RS_LOG_DEBUG, "grpc", rs_kv_s("text", line));
}

/* Loads a token, if there is one. */
static int load_token(struct auth_secret *token, const char *file, const char *key, struct rs_err *e)
{
	token->len = 0;
	if (!file[0] || !auth_token_load(token, file, e))
		return RS_OK;
	return rs_wrap(e, "security.%s", key);
}

int server_port_read_tokens(struct server *s, struct port_tokens *ret, struct rs_err *e)
{
	int rc;

	*ret = (struct port_tokens){.read.len = 0};
	if (!s->control)
		return RS_OK;
	rc = load_token(&ret->read, s->cfg->security.read_token, "read_token", e);
	if (!rc)
		rc = load_token(&ret->admin, s->cfg->security.admin_token, "admin_token", e);
	if (rc)
		auth_secret_clear(&ret->read);
	return rc;
}

void server_port_set_tokens(struct server *s, struct port_tokens *t)
{
	if (s->control)
		service_tokens(control_uv_service(s->control), (struct service_token){t->read.bytes, t->read.len},
			       (struct service_token){t->admin.bytes, t->admin.len});
	auth_secret_clear(&t->read);
	auth_secret_clear(&t->admin);
}

int server_port_read_tls(const struct server *s, const struct rs_config *cfg, struct tls_texts *ret, struct rs_err *e)
{
	*ret = (struct tls_texts){.certificate = NULL};
	return s->rpc_server ? rs_config_tls_texts(ret, RS_TLS_REDUCER, cfg, e) : RS_OK;
}

int server_port_set_tls(struct server *s, const struct tls_texts *texts, struct rs_err *e)
{
	struct rpc_tls tls = {texts->certificate, texts->key, texts->authority};

	return tls.certificate ? s->rpc->server_reload(s->rpc_server, &tls, e) : RS_OK;
}

int server_port_start(struct server *s, struct rs_err *e)
{
	struct tls_texts texts;
	struct rpc_tls tls;
	struct rpc_method methods[SERVICE_METHODS + 1];
	struct rpc_server_options opt = {
	    .address = s->cfg->server.grpc,
	    .methods = methods,
	    .methods_n = SERVICE_METHODS + 1,
	    .threads = s->lanes_n, /* receiving takes as much processor time here as summing takes in the lanes */
	    .handshake_ms = s->cfg->timeouts.handshake_ms,
	    .detect_ms = s->cfg->timeouts.detect_ms,
	    .calls_max = SERVICE_CALLS_MAX + SERVICE_WATCHES_MAX + CALLS_BESIDE + s->max_connections,
	    .log = on_rpc_log,
	    .user = s,
	};
	const char *colon = strrchr(s->cfg->server.grpc, ':');
	int rc;

	control_uv_methods(s->control, methods);
	methods[SERVICE_METHODS] = grpc_handshakes_method(s->streams);
	rc = rs_config_tls_texts(&texts, RS_TLS_REDUCER, s->cfg, e);
	if (rc)
		return rc;
	tls = (struct rpc_tls){texts.certificate, texts.key, texts.authority};
	opt.tls = s->cfg->security.tls == TLS_OFF ? NULL : &tls;
	rc = s->rpc->server_start(&s->rpc_server, &opt, e);
	tls_texts_free(&texts);
	if (rc)
		return rs_wrap(e, "server.grpc");
	snprintf(s->grpc_name, sizeof s->grpc_name, "%.*s:%u", (int)(colon - s->cfg->server.grpc), s->cfg->server.grpc,
		 s->rpc->server_port(s->rpc_server));
	journal(&s->journal, RS_LOG_INFO, "grpc-ready", rs_kv_s("address", s->grpc_name));
	rc = server_streams_guard(s, e);
	return rc ? rs_wrap(e, "server.grpc") : RS_OK;
}

int server_port_init_tokens(struct server *s, struct rs_err *e)
{
	struct port_tokens tokens;
	int rc = server_port_read_tokens(s, &tokens, e);

	if (!rc)
		server_port_set_tokens(s, &tokens);
	return rc;
}
