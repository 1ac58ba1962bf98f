/* SPDX-License-Identifier: Apache-2.0 */
/* The configurations of an agent that reads its file again. Jobs that start later use the
 * last one; a running job keeps the one that it started with, since all its ranks must
 * agree. */
#include "agent/node/daemon/agentd.h"

#include <stdlib.h>

int agentd_take_config(struct agentd *a, const struct rs_config *fresh, struct rs_err *e)
{
	struct agentd_config *c = malloc(sizeof *c);

	if (!c)
		return rs_oom(e, 0, "the configuration");
	c->cfg = *fresh;
	c->cfg.paranoid = a->cfg->paranoid; /* of the command line, not of the file */
	c->next = a->configs;
	a->configs = c;
	a->cfg = &c->cfg;
	local_hub_set_config(a->hub, a->cfg);
	agentd_free_configs(a);
	return RS_OK;
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
