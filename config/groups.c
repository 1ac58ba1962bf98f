/* SPDX-License-Identifier: Apache-2.0 */
#include "config/groups.h"

#include <stdlib.h>

void groups_close(struct rs_config *cfg)
{
	for (unsigned i = 0; i < cfg->groups_n; i++) {
		free(cfg->groups[i].nodes);
		free(cfg->groups[i].addresses);
	}
	free(cfg->groups);
	free(cfg->relays);
	cfg->groups = NULL;
	cfg->groups_n = 0;
	cfg->relays = NULL;
}
