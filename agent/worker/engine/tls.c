/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/worker/engine/tls.h"

#include "common/tls_own.h"
#include "config/tls_texts.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static void engine_tls_stat_files(const struct rs_config *cfg, struct rs_stamp ret[ENGINE_TLS_FILES])
{
	const char *const names[ENGINE_TLS_FILES] = {cfg->security.certificate, cfg->security.key,
						     cfg->security.authority};

	for (unsigned i = 0; i < ENGINE_TLS_FILES; i++)
		ret[i] = rs_stamp(names[i]);
}

/* Warns of an own certificate that ends soon. */
static void engine_tls_tell_validity(const struct engine_tls *t)
{
	struct tls_validity v = tls_own_validity(t->ctx);
	char names[TLS_NAMES_MAX], date[TLS_EXPIRY_TEXT];

	if (!v.expires_s || time(NULL) < v.renew_s)
		return;
	tls_own_certificate(t->ctx, names, date);
	rs_log(t->log, RS_LOG_WARN, "certificate-ends", rs_kv_s("certificate", names),
	       rs_kv_i("days", tls_own_days(t->ctx, date)), rs_kv_s("file", t->cfg->security.certificate));
}

int engine_tls_init(struct engine_tls *t, const struct rs_config *cfg, const struct rs_reducer *reducers,
		    const struct rs_log *log, struct rs_err *e)
{
	int rc;

	*t = (struct engine_tls){
	    .cfg = cfg, .reducers = reducers, .log = log, .limit = {.event = "tls-failed", .per_s = ENGINE_TLS_LINES}};
	if (cfg->security.tls == TLS_OFF)
		return RS_OK;
	t->peers = calloc(cfg->reducers_n, sizeof *t->peers);
	if (!t->peers)
		return rs_oom(e, cfg->reducers_n * sizeof *t->peers, "TLS");
	for (unsigned i = 0; i < cfg->reducers_n; i++)
		rs_config_tls_name(&reducers[i], t->peers[i].name);
	engine_tls_stat_files(cfg, t->files);
	rc = rs_config_tls_context(&t->ctx, RS_TLS_WORKER, cfg, e);
	if (!rc)
		engine_tls_tell_validity(t);
	return rc;
}

void engine_tls_rename(struct engine_tls *t, unsigned reducer)
{
	if (!t->peers)
		return;
	rs_config_tls_name(&t->reducers[reducer], t->peers[reducer].name);
	SSL_SESSION_free(t->peers[reducer].session);
	t->peers[reducer].session = NULL;
}

static void engine_tls_forget_sessions(struct engine_tls *t)
{
	for (unsigned i = 0; t->peers && i < t->cfg->reducers_n; i++) {
		SSL_SESSION_free(t->peers[i].session);
		t->peers[i].session = NULL;
	}
}

void engine_tls_close(struct engine_tls *t)
{
	engine_tls_forget_sessions(t);
	free(t->peers);
	SSL_CTX_free(t->ctx);
}

bool engine_tls_may_connect(struct engine_tls *t, unsigned reducer, const void *conn)
{
	struct engine_tls_peer *p = t->ctx ? &t->peers[reducer] : NULL;

	if (!p || p->session)
		return true;
	if (!p->leader)
		p->leader = conn;
	return p->leader == conn;
}

bool engine_tls_release(struct engine_tls *t, unsigned reducer, const void *conn)
{
	if (!t->ctx || t->peers[reducer].leader != conn)
		return false;
	t->peers[reducer].leader = NULL;
	return true;
}

void engine_tls_refresh(struct engine_tls *t)
{
	struct rs_stamp found[ENGINE_TLS_FILES];
	struct rs_err e;
	SSL_CTX *fresh;

	if (!t->ctx)
		return;
	engine_tls_stat_files(t->cfg, found); /* before they are read: a later change is seen the next time */
	if (memcmp(found, t->files, sizeof found) == 0)
		return;
	memcpy(t->files, found, sizeof found);
	if (rs_config_tls_context(&fresh, RS_TLS_WORKER, t->cfg, &e)) {
		rs_log(t->log, RS_LOG_WARN, "tls-files", rs_kv_s("result", "kept the previous files"),
		       rs_kv_s("reason", e.msg));
		return;
	}
	SSL_CTX_free(t->ctx);
	t->ctx = fresh;
	engine_tls_tell_validity(t);
	engine_tls_forget_sessions(t); /* a removed authority must not live on in sessions */
}

void engine_tls_failed(struct engine_tls *t, unsigned reducer, const char *reason, uint64_t now_ms)
{
	const struct rs_reducer *r = &t->reducers[reducer];

	engine_tls_tell(t, now_ms);
	if (rs_log_limit_pass(&t->limit, now_ms))
		rs_log(t->log, RS_LOG_WARN, "tls-failed", rs_kv_s("reducer", r->id),
		       rs_kv_s("address", rs_config_address(t->cfg, r)), rs_kv_s("reason", reason));
}

void engine_tls_tell(struct engine_tls *t, uint64_t now_ms)
{
	rs_log_limit_report(&t->limit, t->log, RS_LOG_WARN, now_ms);
}
