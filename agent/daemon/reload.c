/* SPDX-License-Identifier: Apache-2.0 */
/* SIGHUP: the configuration is read again. Jobs that start later use it; a running job keeps the one that it started
 * with, since all its ranks must agree. */
#include "agent/daemon/agentd.h"

#include <stdlib.h>
#include <string.h>

/* Returns whether something has changed that only a restart can take over. */
static bool reload_needs_restart(const struct rs_config *before, const struct rs_config *fresh)
{
	return before->job.max_ops != fresh->job.max_ops || before->logging.json != fresh->logging.json ||
	       strcmp(before->agent.socket, fresh->agent.socket) != 0 ||
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
	*ret = c;
	return RS_OK;
}

void agentd_reload(struct agentd *a)
{
	struct agentd_config *c = NULL;
	struct rs_err e;

	if (reload_read(a, &c, &e)) {
		rs_log(a->log, RS_LOG_ERROR, "reload", rs_kv_s("result", "kept the old configuration"),
		       rs_kv_s("reason", e.msg));
		return;
	}
	if (c->cfg.logging.level != a->as_read->logging.level) /* else that of the command line stays */
		a->log->level = c->cfg.logging.level;
	rs_log(a->log, RS_LOG_INFO, "reload",
	       rs_kv_s("result", "new jobs use the configuration, running jobs keep theirs"),
	       rs_kv_u("jobs", local_hub_jobs(a->hub)));
	if (reload_needs_restart(a->as_read, &c->cfg))
		rs_log(a->log, RS_LOG_WARN, "reload",
		       rs_kv_s("result",
			       "changes of agent.socket, agent.cpu, job.max_ops and logging.format need a restart"));
	c->next = a->configs;
	a->configs = c;
	a->cfg = a->as_read = &c->cfg;
	local_hub_set_config(a->hub, a->cfg);
	agentd_free_configs(a);
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
