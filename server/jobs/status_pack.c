/* SPDX-License-Identifier: Apache-2.0 */
#include "server/jobs/status_pack.h"

#include "proto/reduction.pb-c.h"
#include "server/jobs/status.h"

#include <stdlib.h>
#include <string.h>

static uint64_t rate(uint64_t n, uint32_t second_ms)
{
	return second_ms ? n * 1000 / second_ms : 0;
}

static uint32_t permil(uint64_t n, uint64_t of)
{
	uint64_t p = of ? n * 1000 / of : 0;

	return p < 1000 ? (uint32_t)p : 1000;
}

static Reduction__V1__Traffic *traffic(struct service_block *b, const struct lane_count *total,
				       const struct lane_count *second, uint32_t second_ms)
{
	Reduction__V1__Traffic *t = service_take(b, sizeof *t);

	reduction__v1__traffic__init(t);
	t->bytes_in = total->bytes_in;
	t->bytes_out = total->bytes_out;
	t->chunks = total->chunks;
	t->bytes_in_per_s = rate(second->bytes_in, second_ms);
	t->bytes_out_per_s = rate(second->bytes_out, second_ms);
	t->chunks_per_s = rate(second->chunks, second_ms);
	return t;
}

static Reduction__V1__Histogram *histogram(struct service_block *b, const struct lane_times *t)
{
	Reduction__V1__Histogram *m = service_take(b, sizeof *m);

	reduction__v1__histogram__init(m);
	m->n_counts = TIMES_BUCKETS;
	m->counts = (uint64_t *)t->n;
	m->sum_us = t->sum_us;
	return m;
}

static Reduction__V1__LaneStatus *lane_message(struct service_block *b, const struct status_lane *lane,
					       uint32_t second_ms)
{
	Reduction__V1__LaneStatus *m = service_take(b, sizeof *m);

	reduction__v1__lane_status__init(m);
	m->connections = lane->connections;
	m->busy_permil = lane->busy_permil;
	m->starved_permil = lane->starved_permil;
	m->traffic = traffic(b, &lane->total, &lane->second, second_ms);
	return m;
}

static Reduction__V1__RankStatus *rank_message(struct service_block *b, unsigned rank, const struct status_rank *r,
					       uint32_t second_ms)
{
	Reduction__V1__RankStatus *m = service_take(b, sizeof *m);

	reduction__v1__rank_status__init(m);
	m->rank = rank;
	m->label = (char *)r->label;
	m->peer = (char *)r->peer;
	m->transport = (char *)r->transport;
	m->lanes = r->lanes;
	m->processes = r->processes;
	m->traffic = traffic(b, &r->total, &r->second, second_ms);
	m->waited_ms = r->total.waited_ms;
	m->waited_permil = permil(r->second.waited_ms, second_ms);
	m->late_ms = r->second.chunks ? (double)r->second.late_ms / (double)r->second.chunks : 0;
	m->missing_ms = r->missing_ms;
	m->silent_ms = r->silent_ms < UINT32_MAX ? r->silent_ms : 0;
	m->outstanding = r->outstanding;
	m->last_chunks = r->total.last_chunks;
	m->rtt_us = r->rtt_us;
	m->retransmits = r->total.retransmits;
	return m;
}

/* Names the rank for which the others wait most. */
static void name_latest(Reduction__V1__JobStatus *m, const struct status_job *job, uint32_t second_ms)
{
	uint64_t most = 0;

	for (unsigned r = 0; r < job->world_size; r++)
		if (job->ranks[r].second.waited_ms > most) {
			most = job->ranks[r].second.waited_ms;
			m->latest_rank = r;
		}
	m->latest_permil = permil(most, second_ms);
}

static void pack_losses(struct service_block *b, const struct status_job *job, Reduction__V1__JobStatus *m)
{
	m->reducers = job->reducers;
	if (!job->losses)
		return;
	m->lost = service_take(b, job->reducers * sizeof(*m->lost));
	for (unsigned i = 0; i < job->reducers; i++) {
		const struct status_loss *l = &job->losses[i];
		Reduction__V1__LostReducer *to;

		if (!l->lost)
			continue;
		to = m->lost[m->n_lost++] = service_take(b, sizeof *to);
		reduction__v1__lost_reducer__init(to);
		to->index = i;
		to->id = (char *)l->id;
		to->for_ms = l->for_ms;
		to->why = (char *)l->why;
	}
}

static Reduction__V1__JobStatus *job_message(struct service_block *b, const struct status_job *job, bool without_ranks,
					     uint32_t second_ms)
{
	static const Reduction__V1__JobStatus__State states[STATUS_STATES] = {
	    [STATUS_GATHERING] = REDUCTION__V1__JOB_STATUS__STATE__GATHERING,
	    [STATUS_RUNNING] = REDUCTION__V1__JOB_STATUS__STATE__RUNNING,
	    [STATUS_DRAINING] = REDUCTION__V1__JOB_STATUS__STATE__DRAINING,
	    [STATUS_ENDED] = REDUCTION__V1__JOB_STATUS__STATE__ENDED,
	};
	Reduction__V1__JobStatus *m = service_take(b, sizeof *m);

	reduction__v1__job_status__init(m);
	m->name = (char *)job->name;
	m->run = (char *)job->run;
	m->generation = job->generation;
	m->state = states[job->state];
	m->reason = job->state == STATUS_ENDED ? (char *)job->why.msg : "";
	m->world_size = job->world_size;
	m->joined = job->joined;
	m->processes = job->processes;
	m->age_ms = job->age_ms;
	m->running_ms = job->running_ms;
	m->memory_bytes = job->memory;
	m->operations = job->operations;
	m->chunks = job->chunks;
	m->lanes = job->lanes;
	m->chunk_bytes = job->chunk_bytes;
	m->window = job->window;
	m->priorities = job->priorities;
	m->deterministic = job->deterministic;
	m->checksum = job->checksum;
	m->failover = job->retain;
	m->traffic = traffic(b, &job->total, &job->second, second_ms);
	m->waiting = histogram(b, &job->times.waiting);
	m->summing = histogram(b, &job->times.summing);
	m->sending = histogram(b, &job->times.sending);
	m->slots = job->slots;
	m->slots_used = job->slots_used;
	name_latest(m, job, second_ms);
	m->reducer = (char *)job->reducer;
	pack_losses(b, job, m);
	if (without_ranks)
		return m;
	m->n_ranks = job->world_size;
	m->ranks = service_take(b, job->world_size * sizeof(*m->ranks));
	for (unsigned r = 0; r < job->world_size; r++)
		m->ranks[r] = rank_message(b, r, &job->ranks[r], second_ms);
	return m;
}

static bool is_wanted(const struct status_job *job, const char *name)
{
	return !name || !name[0] || strcmp(job->name, name) == 0;
}

/* Returns the bytes of the block for a status. */
static size_t block_size(const struct status *st, const char *job, bool without_ranks)
{
	enum { EACH = 16 * 2 + sizeof(Reduction__V1__Traffic) + sizeof(void *) };
	size_t n = 64 + 16 + TIMES_BUCKETS * sizeof(uint64_t) +
		   STATUS_REFUSALS * (EACH + sizeof(Reduction__V1__Refusals)) +
		   st->lanes_n * (EACH + sizeof(Reduction__V1__LaneStatus)) + st->jobs_n * sizeof(void *);

	for (unsigned i = 0; i < st->jobs_n; i++) {
		if (!is_wanted(&st->jobs[i], job))
			continue;
		n += EACH + 32 + sizeof(Reduction__V1__JobStatus) + 3 * (16 + sizeof(Reduction__V1__Histogram));
		if (st->jobs[i].losses)
			n += 16 + st->jobs[i].reducers * (EACH + sizeof(Reduction__V1__LostReducer));
		if (!without_ranks)
			n += st->jobs[i].world_size * (EACH + sizeof(Reduction__V1__RankStatus));
	}
	return n;
}

static void server_fields(Reduction__V1__StatusReply *m, const struct status *st)
{
	const struct status_server *s = &st->server;

	m->software = (char *)s->software;
	m->address = (char *)s->address;
	m->grpc_address = (char *)s->grpc;
	m->cpu = (char *)s->cpu;
	m->unix_ms = s->unix_ms;
	m->up_ms = s->up_ms;
	m->draining = s->draining;
	m->drain_left_ms = s->drain_left_ms;
	m->connections = s->connections;
	m->connections_max = s->connections_max;
	m->jobs_max = s->jobs_max;
	m->memory_bytes = s->memory;
	m->memory_max_bytes = s->memory_max;
	m->second_ms = st->second_ms;
	m->certificate_unix_s = s->certificate_unix_s;
	m->http_address = (char *)s->http;
}

static void pack_refusals(struct service_block *b, const struct status_server *s, Reduction__V1__StatusReply *m)
{
	m->n_refusals = STATUS_REFUSALS;
	m->refusals = service_take(b, STATUS_REFUSALS * sizeof(*m->refusals));
	for (unsigned i = 0; i < STATUS_REFUSALS; i++) {
		m->refusals[i] = service_take(b, sizeof **m->refusals);
		reduction__v1__refusals__init(m->refusals[i]);
		m->refusals[i]->reason = (char *)status_refusal_name(i);
		m->refusals[i]->count = s->refused[i];
	}
}

static void pack_limits(struct service_block *b, Reduction__V1__StatusReply *m)
{
	m->n_bucket_limits_us = TIMES_BUCKETS - 1;
	m->bucket_limits_us = service_take(b, TIMES_BUCKETS * sizeof(*m->bucket_limits_us));
	for (unsigned i = 0; i < TIMES_BUCKETS - 1; i++)
		m->bucket_limits_us[i] = lane_times_limit_us(i);
}

struct service_bytes status_pack(const void *status, const char *job, bool without_ranks)
{
	const struct status *st = status;
	Reduction__V1__StatusReply m = REDUCTION__V1__STATUS_REPLY__INIT;
	struct service_block b = {.size = block_size(st, job, without_ranks)};
	struct service_bytes bytes = {0};

	b.at = malloc(b.size);
	if (!b.at)
		return bytes;
	server_fields(&m, st);
	pack_refusals(&b, &st->server, &m);
	pack_limits(&b, &m);
	m.n_lanes = st->lanes_n;
	m.lanes = service_take(&b, st->lanes_n * sizeof(*m.lanes));
	for (unsigned i = 0; i < st->lanes_n; i++)
		m.lanes[i] = lane_message(&b, &st->lanes[i], st->second_ms);
	m.jobs = service_take(&b, st->jobs_n * sizeof(*m.jobs));
	for (unsigned i = 0; i < st->jobs_n; i++)
		if (is_wanted(&st->jobs[i], job))
			m.jobs[m.n_jobs++] = job_message(&b, &st->jobs[i], without_ranks, st->second_ms);
	bytes = service_pack(&m.base);
	free(b.at);
	return bytes;
}
