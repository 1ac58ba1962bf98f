/* SPDX-License-Identifier: Apache-2.0 */
/* SIGHUP: the configuration is read again. Jobs that start later use it; a running job keeps the one that it started
 * with, since all its ranks must agree. */
#include "agent/node/daemon/agentd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns whether something has changed that only a restart can take over. */
static bool reload_needs_restart(const struct rs_config *before, const struct rs_config *fresh)
{
	return before->job.max_ops != fresh->job.max_ops || before->logging.json != fresh->logging.json ||
	       strcmp(before->agent.socket, fresh->agent.socket) != 0 ||
	       strcmp(before->agent.grpc, fresh->agent.grpc) != 0 ||
	       strcmp(before->agent.http, fresh->agent.http) != 0 || before->agent.http_tls != fresh->agent.http_tls ||
	       strcmp(before->agent.cpu, fresh->agent.cpu) != 0;
}

static int reload_read(const struct agentd *a, struct agentd_config **ret, struct rs_err *e)
{
	struct agentd_config *c;
	int rc;

	if (!a->config_file)
		return rs_fail(e, RS_ECONFIG, "started without a configuration file, so there is nothing to reload");
	c = malloc(sizeof *c);
	if (!c)
		return rs_fail(e, RS_ENOMEM, "out of memory for the configuration");
	rc = rs_config_load(&c->cfg, a->config_file, e);
	if (rc) {
		free(c);
		return rc;
	}
	c->cfg.paranoid = a->cfg->paranoid;
	*ret = c;
	return RS_OK;
}

static int reload(struct agentd *a, char result[AGENTD_RESULT], struct rs_err *e)
{
	static const char taken[] = "new jobs use the configuration, running jobs keep theirs";
	static const char others[] = "changes of agent.socket, agent.grpc, agent.http, agent.cpu, job.max_ops and "
				     "logging.format need a restart";
	struct agentd_config *c = NULL;
	bool needs;
	int rc = reload_read(a, &c, e);

	if (rc)
		return rc;
	if (a->hooks)
		rc = a->hooks->reload(a, &c->cfg, e);
	if (rc) {
		rs_config_close(&c->cfg);
		free(c);
		return rc;
	}
	if (c->cfg.logging.level != a->as_read->logging.level) /* else that of the command line stays */
		a->log->level = c->cfg.logging.level;
	needs = reload_needs_restart(a->as_read, &c->cfg);
	rs_log(a->log, RS_LOG_INFO, "reload", rs_kv_s("result", taken), rs_kv_u("jobs", local_hub_jobs(a->hub)));
	if (needs)
		rs_log(a->log, RS_LOG_WARN, "reload", rs_kv_s("result", others));
	snprintf(result, AGENTD_RESULT, "%s%s%s", taken, needs ? "; " : "", needs ? others : "");
	c->next = a->configs;
	a->configs = c;
	a->cfg = a->as_read = &c->cfg;
	local_hub_set_config(a->hub, a->cfg);
	agentd_free_configs(a);
	return RS_OK;
}

int agentd_reload(struct agentd *a, char result[AGENTD_RESULT], struct rs_err *e)
{
	int rc;

	rs_notify_reloading(a->notify);
	rc = reload(a, result, e);
	rs_notify_reloaded(a->notify, rc ? e : NULL);
	if (rc)
		rs_log(a->log, RS_LOG_ERROR, "reload", rs_kv_s("result", "kept the old configuration"),
		       rs_kv_s("reason", e->msg));
	return rc;
}

void agentd_free_configs(struct agentd *a)
{
	struct agentd_config **at = &a->configs, *c;

	while ((c = *at)) {
		if (a->hub && local_hub_uses_config(a->hub, &c->cfg)) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		rs_config_close(&c->cfg);
		free(c);
	}
}
