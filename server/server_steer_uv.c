/* SPDX-License-Identifier: Apache-2.0 */
#include "server/server_priv.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

void server_drain(struct server *s, int signum)
{
	if (s->draining)
		_exit(1);
	s->draining = true;
	s->deadline_ms = uv_now(&s->loop) + s->cfg->timeouts.drain_ms;
	registry_drain(s->registry);
	journal(&s->journal, RS_LOG_INFO, "draining", rs_kv_s("signal", signum == SIGTERM ? "SIGTERM" : "SIGINT"),
		rs_kv_u("jobs", registry_jobs(s->registry)));
	if (registry_jobs(s->registry) == 0)
		server_stop(s);
}

static bool needs_restart(const struct rs_config *a, const struct rs_config *b)
{
	return strcmp(a->server.listen, b->server.listen) != 0 || a->server.lanes != b->server.lanes ||
	       strcmp(a->server.cpu, b->server.cpu) != 0 || a->logging.json != b->logging.json ||
	       memcmp(&a->security, &b->security, sizeof a->security) != 0 ||
	       memcmp(&a->timeouts, &b->timeouts, sizeof a->timeouts) != 0;
}

void server_reload(struct server *s)
{
	struct rs_config fresh;
	struct rs_err e;

	if (!s->config_file) {
		journal(&s->journal, RS_LOG_WARN, "reload",
			rs_kv_s("result", "started without a file, nothing to read"));
		return;
	}
	if (rs_config_load(&fresh, s->config_file, &e)) {
		journal(&s->journal, RS_LOG_ERROR, "reload", rs_kv_s("result", "kept the old configuration"),
			rs_kv_s("reason", e.msg));
		return;
	}
	if (fresh.logging.level != s->as_read.logging.level)
		s->log->level = fresh.logging.level;
	s->as_read.logging.level = fresh.logging.level;
	s->max_connections = fresh.limits.connections;
	registry_set_limits(s->registry, &(struct registry_limits){.jobs = fresh.limits.jobs,
								   .workers = fresh.limits.workers,
								   .memory_bytes = fresh.limits.memory_bytes});
	journal(&s->journal, RS_LOG_INFO, "reload", rs_kv_s("result", "logging.level and limits taken over"));
	if (needs_restart(&fresh, &s->as_read))
		journal(&s->journal, RS_LOG_WARN, "reload",
			rs_kv_s("result", "changes of server, timeouts, security and logging.format need a restart"));
	rs_config_close(&fresh);
}
