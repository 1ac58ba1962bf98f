/* SPDX-License-Identifier: Apache-2.0 */
/* What the registry gives to its driver: actions and refusals. */
#include "server/jobs/registry_priv.h"

#include <stdarg.h>
#include <stdio.h>

int registry_refuse(struct control_refused *to, int code, bool retry, const char *fmt, ...)
{
	va_list ap;

	to->code = code;
	to->retry = retry;
	to->elsewhere = false;
	to->reducer[0] = '\0';
	va_start(ap, fmt);
	vsnprintf(to->message, sizeof to->message, fmt, ap);
	va_end(ap);
	return code;
}

uint64_t registry_processes(const struct job *j)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < j->first.world_size; i++)
		n += j->members[i].processes;
	return n;
}

void registry_emit(struct registry *r, const struct job *j, struct registry_action a)
{
	a.job = (struct registry_job){
	    .id = j->id,
	    .name = j->first.job,
	    .run = j->first.run,
	    .generation = j->first.generation,
	    .world_size = j->first.world_size,
	    .lanes = j->first.lanes,
	    .joined = j->complete_most,
	    .processes = registry_processes(j),
	    .memory = j->bound,
	};
	r->opt.action(r->opt.ctx, &a);
}
