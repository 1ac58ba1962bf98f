/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/node/core/status_pack.h"

#include "agent/node/core/status.h"
#include "proto/reduction.pb-c.h"

#include <stdlib.h>
#include <string.h>

typedef Reduction__V1__AgentJob agent_job;
typedef Reduction__V1__AgentRank agent_rank;
typedef Reduction__V1__AgentReducer agent_reducer;

static agent_rank *pack_rank(struct service_block *b, const struct local_status_rank *r)
{
	agent_rank *m = service_take(b, sizeof *m);

	reduction__v1__agent_rank__init(m);
	m->local_rank = r->local_rank;
	m->rank = r->rank;
	m->pid = r->pid;
	m->attached = r->attached;
	m->known = r->known;
	m->attached_ms = r->attached_ms;
	m->in_flight = r->in_flight;
	return m;
}

/* Adds the ids of the reducers that have the shards of a lost one. */
static void pack_holders(struct service_block *b, const struct exchange_report *all, unsigned lost, agent_reducer *m)
{
	bool has[RS_REDUCERS_MAX];
	unsigned n = exchange_report_holders(all, lost, has);

	m->shards_with = service_take(b, n * sizeof(*m->shards_with));
	for (unsigned i = 0; i < all->reducers_n; i++)
		if (has[i])
			m->shards_with[m->n_shards_with++] = all->reducers[i].id;
}

static agent_reducer *pack_reducer(struct service_block *b, const struct exchange_report *all, unsigned i)
{
	static const Reduction__V1__AgentReducer__State states[] = {
	    [REPORT_CONNECTING] = REDUCTION__V1__AGENT_REDUCER__STATE__CONNECTING,
	    [REPORT_CONNECTED] = REDUCTION__V1__AGENT_REDUCER__STATE__CONNECTED,
	    [REPORT_LOST] = REDUCTION__V1__AGENT_REDUCER__STATE__LOST,
	};
	struct report_reducer *r = &all->reducers[i];
	agent_reducer *m = service_take(b, sizeof *m);

	reduction__v1__agent_reducer__init(m);
	m->id = r->id;
	m->address = r->address;
	m->state = states[r->reach];
	m->for_ms = r->for_ms;
	m->why = r->why;
	m->tries = r->tries;
	m->lanes = r->lanes;
	m->lanes_up = r->lanes_up;
	m->rtt_us = r->rtt_us;
	m->retransmits = r->retransmits;
	m->window = r->window;
	m->window_max = r->window_max;
	m->shards = r->shards;
	m->home_shards = r->home_shards;
	m->losses = r->losses;
	m->returns = r->returns;
	if (r->reach == REPORT_LOST)
		pack_holders(b, all, i, m);
	return m;
}

static void pack_report(struct service_block *b, struct exchange_report *r, agent_job *m)
{
	m->running_ms = r->running_ms;
	m->operations = r->operations;
	m->pending = r->pending;
	m->transport = r->transport;
	m->reducers_alive = r->alive;
	m->degraded_ms = r->degraded_ms;
	if (r->waiting[0])
		m->waiting = r->waiting;
	m->n_reducers = r->reducers_n;
	m->reducers = service_take(b, r->reducers_n * sizeof(*m->reducers));
	for (unsigned i = 0; i < r->reducers_n; i++)
		m->reducers[i] = pack_reducer(b, r, i);
}

static agent_job *pack_job(struct service_block *b, struct local_status_job *j, bool without_ranks)
{
	static const Reduction__V1__AgentJob__State states[LOCAL_STATUS_STATES] = {
	    [LOCAL_STATUS_GATHERING] = REDUCTION__V1__AGENT_JOB__STATE__GATHERING,
	    [LOCAL_STATUS_STARTING] = REDUCTION__V1__AGENT_JOB__STATE__STARTING,
	    [LOCAL_STATUS_RUNNING] = REDUCTION__V1__AGENT_JOB__STATE__RUNNING,
	    [LOCAL_STATUS_ENDING] = REDUCTION__V1__AGENT_JOB__STATE__ENDING,
	    [LOCAL_STATUS_FAILED] = REDUCTION__V1__AGENT_JOB__STATE__FAILED,
	};
	agent_job *m = service_take(b, sizeof *m);

	reduction__v1__agent_job__init(m);
	m->name = j->name;
	m->generation = j->generation;
	m->state = states[j->state];
	m->reason = j->why;
	m->run = j->run;
	m->waiting = j->waiting;
	m->world_size = j->world_size;
	m->nodes = j->nodes;
	m->node_rank = j->node_rank;
	m->local_ranks = j->ranks_n;
	m->joined = j->joined;
	m->age_ms = j->age_ms;
	m->bytes_out = j->tx_bytes;
	m->bytes_in = j->rx_bytes;
	m->summed_by_node = j->single_worker;
	if (j->report)
		pack_report(b, j->report, m);
	if (without_ranks)
		return m;
	m->n_ranks = j->ranks_n;
	m->ranks = service_take(b, j->ranks_n * sizeof(*m->ranks));
	for (unsigned i = 0; i < j->ranks_n; i++)
		m->ranks[i] = pack_rank(b, &j->ranks[i]);
	return m;
}

static bool is_wanted(const struct local_status_job *j, const char *name)
{
	return !name || !name[0] || strcmp(j->name, name) == 0;
}

/* Returns the bytes of the block for a status. */
static size_t block_size(const struct local_status *st, const char *job)
{
	enum { EACH = 16 + sizeof(void *) };
	size_t n = 64 + st->jobs_n * sizeof(void *);

	for (unsigned i = 0; i < st->jobs_n; i++) {
		const struct local_status_job *j = &st->jobs[i];
		size_t reducers = j->report ? j->report->reducers_n : 0;
		size_t lost = j->report ? reducers - j->report->alive : 0;

		if (!is_wanted(j, job))
			continue;
		n += EACH + 64 + sizeof(agent_job) + j->ranks_n * (EACH + sizeof(agent_rank));
		n += reducers * (EACH + sizeof(agent_reducer)) + lost * (16 + reducers * sizeof(char *));
	}
	return n;
}

struct service_bytes local_status_pack(const void *status, const char *job, bool without_ranks)
{
	const struct local_status *st = status;
	Reduction__V1__StatusReply m = REDUCTION__V1__STATUS_REPLY__INIT;
	Reduction__V1__AgentStatus a = REDUCTION__V1__AGENT_STATUS__INIT;
	struct service_block b = {.size = block_size(st, job)};
	struct service_bytes bytes = {0};

	b.at = malloc(b.size);
	if (!b.at)
		return bytes;
	m.software = (char *)st->agent.software;
	m.grpc_address = (char *)st->agent.grpc;
	m.http_address = (char *)st->agent.http;
	m.unix_ms = st->agent.unix_ms;
	m.up_ms = st->agent.up_ms;
	m.draining = st->draining;
	m.drain_left_ms = st->agent.drain_left_ms;
	m.jobs_max = st->jobs_max;
	m.agent = &a;
	a.host = (char *)st->agent.host;
	a.pid = st->agent.pid;
	a.socket = (char *)st->agent.socket;
	a.clients = st->clients;
	a.clients_max = st->clients_max;
	a.shm_bytes = st->shm_bytes;
	a.shm_max_bytes = st->shm_max_bytes;
	a.jobs = service_take(&b, st->jobs_n * sizeof(*a.jobs));
	for (unsigned i = 0; i < st->jobs_n; i++)
		if (is_wanted(&st->jobs[i], job))
			a.jobs[a.n_jobs++] = pack_job(&b, &st->jobs[i], without_ranks);
	bytes = service_pack(&m.base);
	free(b.at);
	return bytes;
}
