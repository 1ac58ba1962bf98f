/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/node/core/status.h"

#include "agent/node/core/hub_state.h"
#include "agent/node/core/job_state.h"
#include "agent/node/core/text.h"

#include <stdlib.h>

typedef Reduction__V1__AgentJob agent_job;
typedef Reduction__V1__AgentRank agent_rank;
typedef Reduction__V1__AgentReducer agent_reducer;

static void fill_ranks(const struct local_job *j, uint64_t now_ms, agent_job *to)
{
	for (unsigned i = 0; i < j->members_n; i++) {
		const struct local_member *m = &j->members[i];
		agent_rank *rank = to->ranks[i];

		rank->local_rank = i;
		if (!m->client && !m->left && !m->hello.world_size)
			continue;
		rank->known = true;
		rank->attached = m->client != NULL;
		rank->rank = m->hello.rank;
		rank->pid = m->hello.pid;
		rank->attached_ms = now_ms - m->joined_ms;
		rank->in_flight = m->in_flight;
		to->world_size = m->hello.world_size;
		to->nodes = m->hello.nodes;
		to->node_rank = m->hello.node_rank;
	}
}

/* Makes the entry of one job. NULL: no memory. */
static agent_job *new_job(struct status_reply *r, const struct local_job *j, uint64_t now_ms)
{
	static const Reduction__V1__AgentJob__State states[] = {
	    [JOB_GATHERING] = REDUCTION__V1__AGENT_JOB__STATE__GATHERING,
	    [JOB_STARTING] = REDUCTION__V1__AGENT_JOB__STATE__STARTING,
	    [JOB_RUNNING] = REDUCTION__V1__AGENT_JOB__STATE__RUNNING,
	    [JOB_ENDING] = REDUCTION__V1__AGENT_JOB__STATE__ENDING,
	    [JOB_FAILING] = REDUCTION__V1__AGENT_JOB__STATE__FAILED,
	    [JOB_FAILED] = REDUCTION__V1__AGENT_JOB__STATE__FAILED,
	};
	agent_job *to = status_reply_message(r, &reduction__v1__agent_job__descriptor);
	char waiting[REPORT_TEXT];

	if (!to)
		return NULL;
	to->name = status_reply_text(r, j->name);
	to->run = status_reply_text(r, j->run);
	to->generation = j->generation;
	to->state = states[j->state];
	if (to->state == REDUCTION__V1__AGENT_JOB__STATE__FAILED)
		to->reason = status_reply_text(r, j->err.msg);
	if (j->state == JOB_GATHERING) {
		local_job_waiting_text(j, now_ms, waiting, sizeof waiting);
		to->waiting = status_reply_text(r, waiting);
	}
	to->local_ranks = j->members_n;
	to->joined = j->clients_n;
	to->age_ms = now_ms - j->opened_ms;
	to->summed_by_node = j->single_worker;
	to->ranks = status_reply_messages(r, &reduction__v1__agent_rank__descriptor, j->members_n);
	if (to->ranks)
		fill_ranks(j, now_ms, to);
	return to;
}

/* Makes entry i of the jobs. Without memory it sets st->reply.failed. */
static void add_job(struct local_status *st, const struct local_job *j, uint64_t now_ms, unsigned i)
{
	agent_job *to = new_job(&st->reply, j, now_ms);

	if (!to)
		return;
	st->reply.m.agent->jobs[i] = to;
	st->engines[i].cfg = j->cfg;
	st->engines[i].engine = j->freeing ? NULL : j->engine;
	if (st->engines[i].engine)
		j->hub->ports.engine_stats(j->hub->ctx, st->engines[i].engine, &to->bytes_out, &to->bytes_in);
}

/* Fills in what does not belong to one job. Without memory it sets st->reply.failed. */
static void fill_hub(struct local_status *st, const struct local_hub *h)
{
	struct status_reply *r = &st->reply;
	Reduction__V1__AgentStatus *a = status_reply_message(r, &reduction__v1__agent_status__descriptor);

	if (!a)
		return;
	r->m.draining = h->draining;
	r->m.jobs_max = h->cfg->agent.max_jobs;
	r->m.agent = a;
	a->clients = h->clients_n;
	a->clients_max = LOCAL_CLIENTS_MAX;
	a->shm_bytes = h->shm_used;
	a->shm_max_bytes = h->cfg->agent.shm_bytes;
	a->n_jobs = h->jobs_n;
	a->jobs = status_reply_take(r, h->jobs_n * sizeof(*a->jobs));
	st->engines = status_reply_take(r, h->jobs_n * sizeof *st->engines);
}

struct local_status *local_hub_status(const struct local_hub *h, uint64_t now_ms)
{
	struct local_status *st = calloc(1, sizeof *st);
	unsigned i = h->jobs_n;

	if (!st)
		return NULL;
	status_reply_init(&st->reply);
	fill_hub(st, h);
	/* the hub's list begins with the newest job */
	for (const struct local_job *j = LIST_FIRST(&h->jobs); j && !st->reply.failed; j = LIST_NEXT(j, link))
		add_job(st, j, now_ms, --i);
	if (!st->reply.failed)
		return st;
	local_status_free(st);
	return NULL;
}

/* Adds the ids of the reducers that have the shards of a lost one. */
static void add_holders(struct status_reply *to, const struct exchange_report *all, unsigned lost, agent_reducer *m)
{
	bool has[RS_REDUCERS_MAX];
	unsigned n = exchange_report_holders(all, lost, has);

	m->shards_with = status_reply_take(to, n * sizeof(*m->shards_with));
	for (unsigned i = 0; m->shards_with && i < all->reducers_n; i++)
		if (has[i])
			m->shards_with[m->n_shards_with++] = all->reducers[i].id;
}

static void add_reducer(struct status_reply *to, const struct exchange_report *all, unsigned i, agent_reducer *m)
{
	static const Reduction__V1__AgentReducer__State states[] = {
	    [REPORT_CONNECTING] = REDUCTION__V1__AGENT_REDUCER__STATE__CONNECTING,
	    [REPORT_CONNECTED] = REDUCTION__V1__AGENT_REDUCER__STATE__CONNECTED,
	    [REPORT_LOST] = REDUCTION__V1__AGENT_REDUCER__STATE__LOST,
	    [REPORT_EMPTY] = REDUCTION__V1__AGENT_REDUCER__STATE__EMPTY,
	};
	struct report_reducer *r = &all->reducers[i];

	m->id = r->id;
	m->address = r->address;
	m->state = states[r->reach];
	m->for_ms = r->for_ms;
	m->why = r->why;
	m->narrow = r->narrow;
	m->tries = r->tries;
	m->lanes = r->lanes;
	m->lanes_up = r->lanes_up;
	m->rtt_us = r->rtt_us;
	m->min_rtt_us = r->min_rtt_us;
	m->retransmits = r->retransmits;
	m->window = r->window;
	m->window_max = r->window_max;
	m->shards = r->shards;
	m->home_shards = r->home_shards;
	m->losses = r->losses;
	m->returns = r->returns;
	if (r->reach == REPORT_LOST)
		add_holders(to, all, i, m);
}

static void add_report(struct status_reply *to, struct exchange_report *r, agent_job *m)
{
	m->running_ms = r->running_ms;
	m->operations = r->operations;
	m->pending = r->pending;
	m->retained_bytes = r->retained_bytes;
	m->transport = r->transport;
	m->reducers_alive = r->alive;
	m->reducers_empty = r->empty;
	m->degraded_ms = r->degraded_ms;
	m->share_changes = r->share_changes;
	if (r->balance[0])
		m->balance = r->balance;
	if (r->waiting[0])
		m->waiting = r->waiting;
	m->reducers = status_reply_messages(to, &reduction__v1__agent_reducer__descriptor, r->reducers_n);
	if (!m->reducers)
		return;
	m->n_reducers = r->reducers_n;
	for (unsigned i = 0; i < r->reducers_n; i++)
		add_reducer(to, r, i, m->reducers[i]);
}

struct status_reply *local_status_finish(struct local_status *st)
{
	Reduction__V1__AgentStatus *a = st->reply.m.agent;

	for (size_t i = 0; i < a->n_jobs; i++)
		if (st->engines[i].report)
			add_report(&st->reply, st->engines[i].report, a->jobs[i]);
	return &st->reply;
}

void local_status_free(struct local_status *st)
{
	if (!st)
		return;
	for (size_t i = 0; st->engines && i < st->reply.m.agent->n_jobs; i++)
		free(st->engines[i].report);
	status_reply_free(&st->reply);
	free(st);
}
