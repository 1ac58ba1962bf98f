/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/node/core/status.h"

#include "agent/node/core/hub_state.h"
#include "agent/node/core/job_state.h"
#include "agent/node/core/text.h"
#include "common/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum local_status_state status_state(const struct local_job *j)
{
	static const enum local_status_state states[] = {
	    [JOB_GATHERING] = LOCAL_STATUS_GATHERING, [JOB_STARTING] = LOCAL_STATUS_STARTING,
	    [JOB_RUNNING] = LOCAL_STATUS_RUNNING,     [JOB_ENDING] = LOCAL_STATUS_ENDING,
	    [JOB_FAILING] = LOCAL_STATUS_FAILED,      [JOB_FAILED] = LOCAL_STATUS_FAILED,
	};

	return states[j->state];
}

static void status_ranks(const struct local_job *j, uint64_t now_ms, struct local_status_job *to)
{
	for (unsigned i = 0; i < j->members_n; i++) {
		const struct local_member *m = &j->members[i];

		to->ranks[i] = (struct local_status_rank){.local_rank = i};
		if (!m->client && !m->left && !m->hello.world_size)
			continue;
		to->ranks[i].known = true;
		to->ranks[i].attached = m->client != NULL;
		to->ranks[i].rank = m->hello.rank;
		to->ranks[i].pid = m->hello.pid;
		to->ranks[i].attached_ms = now_ms - m->joined_ms;
		to->ranks[i].in_flight = m->in_flight;
		to->world_size = m->hello.world_size;
		to->nodes = m->hello.nodes;
		to->node_rank = m->hello.node_rank;
	}
}

/* Fills the status of one job. Returns false without memory. */
static bool status_job(const struct local_job *j, uint64_t now_ms, struct local_status_job *to)
{
	to->engine = j->freeing ? NULL : j->engine;
	to->cfg = j->cfg;
	memcpy(to->name, j->name, sizeof to->name);
	memcpy(to->run, j->run, sizeof to->run);
	rs_utf8_clean(to->run);
	to->generation = j->generation;
	to->state = status_state(j);
	if (to->state == LOCAL_STATUS_FAILED) {
		snprintf(to->why, sizeof to->why, "%s", j->err.msg);
		rs_utf8_clean(to->why);
	}
	if (to->state == LOCAL_STATUS_GATHERING)
		local_job_waiting_text(j, now_ms, to->waiting, sizeof to->waiting);
	to->joined = j->clients_n;
	to->age_ms = now_ms - j->opened_ms;
	to->single_worker = j->single_worker;
	to->ranks_n = j->members_n;
	to->ranks = calloc(j->members_n, sizeof *to->ranks);
	if (!to->ranks)
		return false;
	status_ranks(j, now_ms, to);
	if (to->engine)
		j->hub->ports.engine_stats(j->hub->ctx, to->engine, &to->tx_bytes, &to->rx_bytes);
	return true;
}

struct local_status *local_hub_status(const struct local_hub *h, uint64_t now_ms)
{
	struct local_status *st = calloc(1, sizeof *st);
	unsigned i = h->jobs_n;

	if (!st)
		return NULL;
	st->draining = h->draining;
	st->clients = h->clients_n;
	st->clients_max = LOCAL_CLIENTS_MAX;
	st->jobs_max = h->cfg->agent.max_jobs;
	st->shm_bytes = h->shm_used;
	st->shm_max_bytes = h->cfg->agent.shm_bytes;
	/* one more, so that an empty array is not NULL */
	st->jobs = calloc((size_t)h->jobs_n + 1, sizeof *st->jobs);
	st->jobs_n = st->jobs ? h->jobs_n : 0;
	/* the hub's list begins with the newest job */
	for (const struct local_job *j = h->jobs; st->jobs && j; j = j->next)
		if (!status_job(j, now_ms, &st->jobs[--i])) {
			local_status_free(st);
			return NULL;
		}
	if (st->jobs)
		return st;
	local_status_free(st);
	return NULL;
}

void local_status_free(struct local_status *st)
{
	if (!st)
		return;
	for (unsigned i = 0; i < st->jobs_n; i++) {
		free(st->jobs[i].ranks);
		free(st->jobs[i].report);
	}
	free(st->jobs);
	free(st);
}
