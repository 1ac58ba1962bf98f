/* SPDX-License-Identifier: Apache-2.0 */
#include "server/run/server_lifecycle.h"

#include "server/run/server_descriptors.h"
#include "server/run/server_notify.h"
#include "server/run/server_port.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void server_drain(struct server *s, const char *by, uint32_t timeout_ms)
{
	if (!s->aborted) {
		s->drain_ms = timeout_ms;
		s->deadline_ms = uv_now(&s->loop) + timeout_ms;
	}
	if (s->draining)
		return;
	s->draining = true;
	server_notify_tick(s);
	registry_drain(s->registry);
	journal(&s->journal, RS_LOG_INFO, "draining", rs_kv_s("by", by), rs_kv_u("jobs", registry_jobs(s->registry)));
	if (s->control)
		service_draining(control_uv_service(s->control));
}

bool server_signalled(struct server *s, int signum)
{
	if (s->signalled)
		_exit(1);
	s->signalled = true;
	if (!s->draining)
		server_drain(s, signum == SIGTERM ? "SIGTERM" : "SIGINT", s->cfg->timeouts.drain_ms);
	return registry_jobs(s->registry) == 0;
}

static bool needs_restart(const struct rs_config *a, const struct rs_config *b)
{
	return strcmp(a->server.listen, b->server.listen) != 0 || strcmp(a->server.grpc, b->server.grpc) != 0 ||
	       strcmp(a->server.http, b->server.http) != 0 || a->server.http_tls != b->server.http_tls ||
	       a->server.lanes != b->server.lanes || strcmp(a->server.cpu, b->server.cpu) != 0 ||
	       a->logging.json != b->logging.json || a->server.insecure != b->server.insecure ||
	       a->security.tls != b->security.tls || strcmp(a->server.secrets_dir, b->server.secrets_dir) != 0 ||
	       strcmp(a->server.secret, b->server.secret) != 0 ||
	       strcmp(a->security.read_token, b->security.read_token) != 0 ||
	       strcmp(a->security.admin_token, b->security.admin_token) != 0 ||
	       memcmp(&a->timeouts, &b->timeouts, sizeof a->timeouts) != 0;
}

/* Loads the certificates for new connections. Only a restart can switch TLS on or off. */
static int reload_certificates(struct server *s, const struct rs_config *fresh, struct rs_err *e)
{
	struct tls_texts texts;
	int rc;

	if (fresh->security.tls != s->cfg->security.tls)
		return RS_OK;
	rc = server_port_read_tls(s, fresh, &texts, e);
	if (rc)
		return rc;
	rc = admission_reload(&s->admission, fresh, e);
	if (!rc) {
		tcp_handshakes_set_tls(s->handshakes, s->admission.certificates.ctx); /* the one before is freed */
		rc = server_port_set_tls(s, &texts, e);
	}
	tls_texts_free(&texts);
	if (rc)
		return rc;
	certificates_log(&s->admission.certificates, s->log, "tls");
	return RS_OK;
}

static void take_over(struct server *s, const struct rs_config *fresh)
{
	if (fresh->logging.level != s->as_read.logging.level)
		s->log->level = fresh->logging.level;
	s->as_read.logging.level = fresh->logging.level;
	s->max_connections = fresh->server.max_connections;
	server_bound_descriptors(s);
	registry_set_limits(s->registry, &(struct registry_limits){.jobs = fresh->server.max_jobs,
								   .workers = fresh->server.max_workers,
								   .memory_bytes = fresh->server.memory_bytes});
}

/* Reads everything before it changes anything. `result` gets a sentence about what changed. */
static int reload(struct server *s, char *result, size_t size, struct rs_err *e)
{
	static const char taken[] = "logging.level, limits, certificates, access and tokens taken over";
	static const char others[] =
	    "changes of addresses, lanes, timeouts, security and logging.format need a restart";
	struct port_tokens tokens;
	struct tls_files files;
	struct rs_config fresh;
	bool needs;
	int rc;

	if (!s->config_file)
		return rs_fail(e, RS_ECONFIG, "started without a configuration file, so there is nothing to reload");
	rc = rs_config_load(&fresh, s->config_file, e);
	if (rc)
		return rc;
	rc = server_port_read_tokens(s, &tokens, e);
	if (rc)
		goto close_config;
	files = rs_config_tls_files(&fresh);
	rc = http_port_reload(s->http, &files, e);
	if (!rc)
		rc = reload_certificates(s, &fresh, e);
	if (rc) {
		auth_secret_clear(&tokens.read);
		auth_secret_clear(&tokens.admin);
	} else {
		server_port_set_tokens(s, &tokens);
		take_over(s, &fresh);
		needs = needs_restart(&fresh, &s->as_read);
		snprintf(result, size, "%s%s%s", taken, needs ? "; " : "", needs ? others : "");
		journal(&s->journal, RS_LOG_INFO, "reload", rs_kv_s("result", taken));
		if (needs)
			journal(&s->journal, RS_LOG_WARN, "reload", rs_kv_s("result", others));
	}
close_config:
	rs_config_close(&fresh);
	return rc;
}

int server_reload(struct server *s, char *result, size_t size, struct rs_err *e)
{
	int rc;

	rs_notify_reloading(s->notify);
	rc = reload(s, result, size, e);
	rs_notify_reloaded(s->notify, rc ? e : NULL);
	if (rc)
		journal(&s->journal, RS_LOG_ERROR, "reload", rs_kv_s("result", "kept the old configuration"),
			rs_kv_s("reason", e->msg));
	return rc;
}
