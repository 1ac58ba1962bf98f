/* SPDX-License-Identifier: Apache-2.0 */
/* The registry's part of a status. */
#include "common/utf8.h"
#include "server/jobs/registry_priv.h"

#include <stdlib.h>
#include <string.h>

/* Fills the status of one job. Returns false without memory. */
static bool job_status(const struct registry *r, const struct job *j, struct status_job *to)
{
	const struct control_hello *f = &j->first;

	*to = (struct status_job){
	    .id = j->id,
	    .generation = f->generation,
	    .state = j->ended      ? STATUS_ENDED
		     : !j->running ? STATUS_GATHERING
		     : r->draining ? STATUS_DRAINING
				   : STATUS_RUNNING,
	    .why = j->why,
	    .age_ms = r->now_ms - j->opened_ms,
	    .running_ms = j->running ? r->now_ms - j->started_ms : 0,
	    .memory = j->bound,
	    .processes = registry_processes(j),
	    .chunk_bytes = f->chunk_bytes,
	    .window = f->window,
	    .priorities = f->priorities,
	    .lanes = f->lanes,
	    .deterministic = f->deterministic,
	    .checksum = f->checksum,
	    .retain = f->retain,
	    .world_size = f->world_size,
	    .joined = j->complete,
	};
	memcpy(to->name, f->job, sizeof to->name);
	rs_utf8_clean(to->name);
	memcpy(to->run, f->run, sizeof to->run);
	rs_utf8_clean(to->run);
	memcpy(to->reducer, f->reducer, sizeof to->reducer);
	rs_utf8_clean(to->reducer);
	rs_utf8_clean(to->why.msg);
	if (!status_job_ranks(to))
		return false;
	for (unsigned i = 0; i < f->world_size; i++) {
		const struct member *m = &j->members[i];
		struct status_rank *rank = &to->ranks[i];

		memcpy(rank->label, m->label, sizeof rank->label);
		rs_utf8_clean(rank->label);
		memcpy(rank->peer, m->peer, sizeof rank->peer);
		memcpy(rank->transport, m->transport, sizeof rank->transport);
		rank->lanes = (unsigned)__builtin_popcountll(m->lanes);
		rank->processes = m->processes;
	}
	return true;
}

struct status *registry_status(const struct registry *r)
{
	struct status *st = status_new(r->jobs_n, r->opt.threads);
	unsigned i = r->jobs_n;

	if (!st)
		return NULL;
	/* the registry's list begins with the newest job */
	for (const struct job *j = r->jobs; j; j = j->next)
		if (!job_status(r, j, &st->jobs[--i])) {
			status_free(st);
			return NULL;
		}
	st->server.draining = r->draining;
	st->server.jobs_max = r->opt.limits.jobs;
	st->server.memory = r->memory;
	st->server.memory_max = r->opt.limits.memory_bytes;
	return st;
}
