/* SPDX-License-Identifier: Apache-2.0 */
/* The registry's part of a status. */
#include "server/jobs/registry_priv.h"

static Reduction__V1__JobStatus__State job_state(const struct registry *r, const struct job *j)
{
	if (j->ended)
		return REDUCTION__V1__JOB_STATUS__STATE__ENDED;
	if (!j->running)
		return REDUCTION__V1__JOB_STATUS__STATE__GATHERING;
	return r->draining ? REDUCTION__V1__JOB_STATUS__STATE__DRAINING : REDUCTION__V1__JOB_STATUS__STATE__RUNNING;
}

/* Makes entry i of the status. Without memory it sets reply->failed. */
static void add_job(const struct registry *r, const struct job *j, struct status *st, unsigned i)
{
	const struct control_hello *f = &j->first;
	struct status_reply *reply = &st->reply;
	Reduction__V1__JobStatus *to = status_job(st, i, j->id, f->world_size);

	if (!to)
		return;
	to->name = status_reply_text(reply, f->job);
	to->run = status_reply_text(reply, f->run);
	to->reducer = status_reply_text(reply, f->reducer);
	to->generation = f->generation;
	to->state = job_state(r, j);
	if (j->ended)
		to->reason = status_reply_text(reply, j->why.msg);
	to->age_ms = r->now_ms - j->opened_ms;
	to->running_ms = j->running ? r->now_ms - j->started_ms : 0;
	to->memory_bytes = j->bound;
	to->processes = registry_processes(j);
	to->chunk_bytes = f->chunk_bytes;
	to->window = j->window;
	to->priorities = f->priorities;
	to->lanes = f->lanes;
	to->deterministic = f->deterministic;
	to->checksum = f->checksum;
	to->failover = f->retain;
	to->joined = j->complete;
	to->nonfinite = status_reply_text(reply, j->found.what);
	for (unsigned k = 0; k < f->world_size; k++) {
		const struct member *m = &j->members[k];
		Reduction__V1__RankStatus *rank = to->ranks[k];

		rank->label = status_reply_text(reply, m->label);
		rank->peer = status_reply_text(reply, m->peer);
		rank->transport = status_reply_text(reply, m->transport);
		rank->lanes = (uint32_t)__builtin_popcountll(m->lanes);
		rank->processes = m->processes;
	}
}

struct status *registry_status(const struct registry *r)
{
	struct status *st = status_new(r->jobs_n, r->opt.threads);
	unsigned i = r->jobs_n;

	if (!st)
		return NULL;
	/* the registry's list begins with the newest job */
	for (const struct job *j = r->jobs; j; j = j->next)
		add_job(r, j, st, --i);
	if (st->reply.failed) {
		status_free(st);
		return NULL;
	}
	for (unsigned k = 0; k < STATUS_ENDS; k++)
		st->reply.m.ended[k]->count = r->ended[k];
	st->reply.m.lost_ranks = r->lost_ranks;
	st->reply.m.draining = r->draining;
	st->reply.m.jobs_max = r->opt.limits.jobs;
	st->reply.m.memory_bytes = r->memory;
	st->reply.m.memory_max_bytes = r->opt.limits.memory_bytes;
	return st;
}
