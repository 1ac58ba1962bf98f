/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/worker/engine/tls.h"

#include "config/tls_texts.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void engine_tls_stat_files(const struct rs_config *cfg, struct engine_tls_file ret[ENGINE_TLS_FILES])
{
	const char *const names[ENGINE_TLS_FILES] = {cfg->security.certificate, cfg->security.key,
						     cfg->security.authority};

	memset(ret, 0, ENGINE_TLS_FILES * sizeof *ret);
	for (unsigned i = 0; i < ENGINE_TLS_FILES; i++) {
		struct stat st;

		if (names[i][0] && stat(names[i], &st) == 0)
			ret[i] = (struct engine_tls_file){.inode = st.st_ino,
							  .bytes = (uint64_t)st.st_size,
							  .changed_ns = (uint64_t)st.st_ctim.tv_sec * 1000000000 +
									(uint64_t)st.st_ctim.tv_nsec};
	}
}

int engine_tls_init(struct engine_tls *t, const struct rs_config *cfg, const struct rs_log *log, struct rs_err *e)
{
	*t = (struct engine_tls){.cfg = cfg, .log = log, .limit = {.event = "tls-failed", .per_s = ENGINE_TLS_LINES}};
	if (cfg->security.tls == TLS_OFF)
		return RS_OK;
	t->peers = calloc(cfg->reducers_n, sizeof *t->peers);
	if (!t->peers)
		return rs_oom(e, cfg->reducers_n * sizeof *t->peers, "TLS");
	for (unsigned i = 0; i < cfg->reducers_n; i++)
		rs_config_tls_name(&cfg->reducers[i], t->peers[i].name);
	engine_tls_stat_files(cfg, t->files);
	return rs_config_tls_context(&t->ctx, RS_TLS_WORKER, cfg, e);
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
	struct engine_tls_file found[ENGINE_TLS_FILES];
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
	engine_tls_forget_sessions(t); /* a removed authority must not live on in sessions */
}

void engine_tls_failed(struct engine_tls *t, unsigned reducer, const char *reason, uint64_t now_ms)
{
	const struct rs_reducer *r = &t->cfg->reducers[reducer];

	engine_tls_tell(t, now_ms);
	if (rs_log_limit_pass(&t->limit, now_ms))
		rs_log(t->log, RS_LOG_WARN, "tls-failed", rs_kv_s("reducer", r->id),
		       rs_kv_s("address", rs_config_address(t->cfg, r)), rs_kv_s("reason", reason));
}

void engine_tls_tell(struct engine_tls *t, uint64_t now_ms)
{
	rs_log_limit_report(&t->limit, t->log, RS_LOG_WARN, now_ms);
}
