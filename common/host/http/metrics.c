/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of families: what each is called, and which field of the status it is. The
 * series of a job do not depend on its number of ranks: of the ranks only the latest one
 * appears, as a value. */
#include "common/host/http/metrics.h"

#include "common/host/http/metrics_job.h"
#include "common/host/http/metrics_standard.h"

#include <stdlib.h>
#include <string.h>

typedef Reduction__V1__StatusReply reply;
typedef Reduction__V1__JobStatus job;
typedef Reduction__V1__AgentJob agent_job;
typedef Reduction__V1__AgentReducer agent_reducer;

static const char *const none[] = {NULL};

enum { TRANSPORTS = 4 };
static const char *const transports[TRANSPORTS] = {"tcp", "tcp+tls", "grpc", "grpc+tls"};

/* The jobs with metrics. Invariant: no two have the same name; of equal ones the newest
 * is here. */
struct shown {
	const job **jobs;
	const agent_job **agent_jobs;
	size_t n, agent_n;
};

static bool take_shown(struct shown *s, const reply *m)
{
	size_t agent_n = m->agent ? m->agent->n_jobs : 0;

	*s = (struct shown){.jobs = calloc(METRICS_JOBS_MAX, sizeof(*s->jobs)),
			    .agent_jobs = calloc(METRICS_JOBS_MAX, sizeof(*s->agent_jobs))};
	if (!s->jobs || !s->agent_jobs)
		return false;
	for (size_t i = m->n_jobs; i-- > 0 && s->n < METRICS_JOBS_MAX;) {
		bool have = false;

		for (size_t k = 0; k < s->n && !have; k++)
			have = strcmp(s->jobs[k]->name, m->jobs[i]->name) == 0;
		if (!have)
			s->jobs[s->n++] = m->jobs[i];
	}
	for (size_t i = agent_n; i-- > 0 && s->agent_n < METRICS_JOBS_MAX;) {
		bool have = false;

		for (size_t k = 0; k < s->agent_n && !have; k++)
			have = strcmp(s->agent_jobs[k]->name, m->agent->jobs[i]->name) == 0;
		if (!have)
			s->agent_jobs[s->agent_n++] = m->agent->jobs[i];
	}
	return true;
}

static void one(struct metrics_out *o, enum metrics_type type, const char *name, const char *help, double value)
{
	metrics_family(o, type, name, help);
	metrics_sample(o, value, none);
}

static void write_process(struct metrics_out *o, const reply *m)
{
	const char *build[] = {"version", m->software, "cpu", m->cpu, "process", m->agent ? "agent" : "reducer", NULL};

	metrics_family(o, METRICS_GAUGE, "reduction_build_info", "Version of the process; always 1.");
	metrics_sample(o, 1, build);
	one(o, METRICS_GAUGE, "reduction_start_time_seconds", "Time when the process started, in seconds since 1970.",
	    (double)m->started_unix_ms / 1e3);
	one(o, METRICS_GAUGE, "reduction_draining", "1 if the process takes no new jobs because it stops.",
	    m->draining);
	if (m->draining) {
		metrics_family(o, METRICS_GAUGE, "reduction_drain_info", "Why it drains; always 1.");
		metrics_sample(o, 1, (const char *[]){"because", m->drain_because, NULL});
	}
	one(o, METRICS_GAUGE, "reduction_jobs", "Jobs of the process.",
	    (double)(m->agent ? m->agent->n_jobs : m->n_jobs));
	one(o, METRICS_GAUGE, "reduction_jobs_limit", "Most jobs of the process.", m->jobs_max);
	metrics_family(o, METRICS_COUNTER, "reduction_events", "Lines of the log at level info or above, by event.");
	for (size_t i = 0; i < m->n_events; i++)
		metrics_count(o, m->events[i]->count, (const char *[]){"event", m->events[i]->event, NULL});
	if (m->certificate_unix_s)
		one(o, METRICS_GAUGE, "reduction_certificate_expiry_timestamp_seconds",
		    "Time when the certificate expires, in seconds since 1970.", (double)m->certificate_unix_s);
	if (m->certificate_renew_unix_s)
		one(o, METRICS_GAUGE, "reduction_certificate_renew_timestamp_seconds",
		    "Time from which the certificate should be renewed, in seconds since 1970.",
		    (double)m->certificate_renew_unix_s);
}

static void write_reducer(struct metrics_out *o, const reply *m)
{
	one(o, METRICS_GAUGE, "reduction_connections", "Connections of workers.", m->connections);
	one(o, METRICS_GAUGE, "reduction_connections_limit", "Most connections.", m->connections_max);
	one(o, METRICS_GAUGE, "reduction_memory_bytes", "Memory that all jobs together can take.",
	    (double)m->memory_bytes);
	one(o, METRICS_GAUGE, "reduction_memory_limit_bytes", "Limit of this memory (server.memory).",
	    (double)m->memory_max_bytes);
	metrics_family(o, METRICS_COUNTER, "reduction_refused_connections",
		       "Connections of workers that were refused.");
	for (size_t i = 0; i < m->n_refusals; i++)
		metrics_count(o, m->refusals[i]->count, (const char *[]){"reason", m->refusals[i]->reason, NULL});
	metrics_family(o, METRICS_COUNTER, "reduction_lost_ranks", "Ranks of running jobs that were lost.");
	metrics_count(o, m->lost_ranks, none);
	metrics_family(o, METRICS_COUNTER, "reduction_ended_jobs", "Jobs that have ended.");
	for (size_t i = 0; i < m->n_ended; i++)
		metrics_count(o, m->ended[i]->count, (const char *[]){"reason", m->ended[i]->reason, NULL});
}

typedef Reduction__V1__LaneStatus lane;

static double lane_busy(const lane *l)
{
	return l->busy_permil / 1e3;
}

static double lane_starved(const lane *l)
{
	return l->starved_permil / 1e3;
}

static double lane_connections(const lane *l)
{
	return l->connections;
}

static double lane_in(const lane *l)
{
	return l->traffic ? (double)l->traffic->bytes_in : 0;
}

static double lane_out(const lane *l)
{
	return l->traffic ? (double)l->traffic->bytes_out : 0;
}

static const struct {
	const char *name, *help;
	enum metrics_type type;
	double (*get)(const lane *l);
} lane_families[] = {
    {"reduction_lane_busy_ratio", "Share of the last second in which the lane's thread ran.", METRICS_GAUGE, lane_busy},
    {"reduction_lane_starved_ratio", "Share of the last second in which the lane's thread waited for a core.",
     METRICS_GAUGE, lane_starved},
    {"reduction_lane_connections", "Connections of the lane.", METRICS_GAUGE, lane_connections},
    {"reduction_lane_received_bytes", "Bytes received by the lane.", METRICS_COUNTER, lane_in},
    {"reduction_lane_sent_bytes", "Bytes sent by the lane.", METRICS_COUNTER, lane_out},
};

static void write_lanes(struct metrics_out *o, const reply *m)
{
	for (size_t f = 0; f < sizeof lane_families / sizeof lane_families[0]; f++) {
		metrics_family(o, lane_families[f].type, lane_families[f].name, lane_families[f].help);
		for (size_t i = 0; i < m->n_lanes; i++) {
			char number[24];

			snprintf(number, sizeof number, "%zu", i);
			metrics_sample(o, lane_families[f].get(m->lanes[i]), (const char *[]){"lane", number, NULL});
		}
	}
}

/* A state as one series for each possible state, of which one is 1. */
static void write_state(struct metrics_out *o, const char *name, const ProtobufCEnumDescriptor *states, int state)
{
	for (unsigned i = 1; i < states->n_values; i++) { /* 0 is UNKNOWN */
		char word[24];
		size_t n = 0;

		for (const char *c = states->values[i].name; *c && n < sizeof word - 1; c++)
			word[n++] = (char)(*c >= 'A' && *c <= 'Z' ? *c - 'A' + 'a' : *c);
		word[n] = '\0';
		metrics_count(o, states->values[i].value == state,
			      (const char *[]){"reduction_job", name, "state", word, NULL});
	}
}

enum traffic_kind { TRAFFIC_IN, TRAFFIC_OUT, TRAFFIC_CHUNKS };

/* The traffic of the ranks that use a transport. */
static void write_traffic(struct metrics_out *o, const job *j, enum traffic_kind kind)
{
	for (unsigned t = 0; t < TRANSPORTS; t++) {
		uint64_t n = 0;
		bool used = false;

		for (size_t i = 0; i < j->n_ranks; i++) {
			const Reduction__V1__Traffic *traffic = j->ranks[i]->traffic;

			if (!traffic || strcmp(j->ranks[i]->transport, transports[t]) != 0)
				continue;
			used = true;
			n += kind == TRAFFIC_IN    ? traffic->bytes_in
			     : kind == TRAFFIC_OUT ? traffic->bytes_out
						   : traffic->chunks;
		}
		if (used)
			metrics_count(o, n,
				      (const char *[]){"reduction_job", j->name, "transport", transports[t], NULL});
	}
}

static const struct {
	const char *name, *help;
} traffic_families[] = {
    [TRAFFIC_IN] = {"reduction_job_received_bytes", "Bytes received from the ranks of the job."},
    [TRAFFIC_OUT] = {"reduction_job_sent_bytes", "Bytes sent to the ranks of the job."},
    [TRAFFIC_CHUNKS] = {"reduction_job_contributions", "Parts of chunks received completely, one of each rank."},
};

static const Reduction__V1__Histogram *job_waiting_times(const job *j)
{
	return j->waiting;
}

static const Reduction__V1__Histogram *job_summing_times(const job *j)
{
	return j->summing;
}

static const Reduction__V1__Histogram *job_sending_times(const job *j)
{
	return j->sending;
}

static const struct {
	const char *name, *help;
	const Reduction__V1__Histogram *(*get)(const job *j);
} time_families[] = {
    {"reduction_chunk_waiting_seconds", "Time of a chunk from its first byte until all ranks have sent their part.",
     job_waiting_times},
    {"reduction_chunk_summing_seconds", "Time for which the lane worked on a chunk.", job_summing_times},
    {"reduction_chunk_sending_seconds", "Time of a chunk from then until the last rank has its result.",
     job_sending_times},
};

static void write_nonfinite(struct metrics_out *o, const struct shown *s)
{
	metrics_family(o, METRICS_COUNTER, "reduction_job_nonfinite_operations",
		       "Operations in which a rank sent NaN or infinity, summed over the ranks.");
	for (size_t i = 0; i < s->n; i++) {
		const char *nan[] = {"reduction_job", s->jobs[i]->name, "value", "nan", NULL};
		const char *infinity[] = {"reduction_job", s->jobs[i]->name, "value", "infinity", NULL};

		metrics_count(o, s->jobs[i]->nan_operations, nan);
		metrics_count(o, s->jobs[i]->infinite_operations, infinity);
	}
}

static void write_jobs(struct metrics_out *o, const reply *m, const struct shown *s)
{
	metrics_family(o, METRICS_GAUGE, "reduction_job_state", "1 for the state of the job, else 0.");
	for (size_t i = 0; i < s->n; i++)
		write_state(o, s->jobs[i]->name, &reduction__v1__job_status__state__descriptor, (int)s->jobs[i]->state);
	for (size_t f = 0; f < metrics_job_families_n; f++) {
		metrics_family(o, metrics_job_families[f].type, metrics_job_families[f].name,
			       metrics_job_families[f].help);
		for (size_t i = 0; i < s->n; i++)
			metrics_sample(o, metrics_job_families[f].get(s->jobs[i]),
				       (const char *[]){"reduction_job", s->jobs[i]->name, NULL});
	}
	write_nonfinite(o, s);
	for (size_t f = 0; f < sizeof traffic_families / sizeof traffic_families[0]; f++) {
		metrics_family(o, METRICS_COUNTER, traffic_families[f].name, traffic_families[f].help);
		for (size_t i = 0; i < s->n; i++)
			write_traffic(o, s->jobs[i], (enum traffic_kind)f);
	}
	for (size_t f = 0; f < sizeof time_families / sizeof time_families[0]; f++) {
		metrics_family(o, METRICS_HISTOGRAM, time_families[f].name, time_families[f].help);
		for (size_t i = 0; i < s->n; i++) {
			const Reduction__V1__Histogram *h = time_families[f].get(s->jobs[i]);

			if (h && h->n_counts == m->n_bucket_limits_us + 1)
				metrics_histogram(o, h->counts, m->bucket_limits_us, m->n_bucket_limits_us, h->sum_us,
						  "reduction_job", s->jobs[i]->name);
		}
	}
}

static double agent_ranks(const agent_job *j)
{
	return j->local_ranks;
}

static double agent_joined(const agent_job *j)
{
	return j->joined;
}

static double agent_operations(const agent_job *j)
{
	return (double)j->operations;
}

static double agent_pending(const agent_job *j)
{
	return (double)j->pending;
}

static double agent_out(const agent_job *j)
{
	return (double)j->bytes_out;
}

static double agent_in(const agent_job *j)
{
	return (double)j->bytes_in;
}

static double agent_reducers(const agent_job *j)
{
	return (double)j->n_reducers;
}

static double agent_alive(const agent_job *j)
{
	return j->reducers_alive;
}

static double agent_empty(const agent_job *j)
{
	return j->reducers_empty;
}

static double agent_degraded(const agent_job *j)
{
	return (double)j->degraded_ms / 1e3;
}

static double agent_share_changes(const agent_job *j)
{
	return j->share_changes;
}

static const struct {
	const char *name, *help;
	enum metrics_type type;
	double (*get)(const agent_job *j);
} agent_families[] = {
    {"reduction_agent_job_local_ranks", "Ranks of the job on this node.", METRICS_GAUGE, agent_ranks},
    {"reduction_agent_job_joined_ranks", "Those that are connected.", METRICS_GAUGE, agent_joined},
    {"reduction_agent_job_operations", "Completed operations.", METRICS_COUNTER, agent_operations},
    {"reduction_agent_job_pending_operations", "Operations that have started and are not complete.", METRICS_GAUGE,
     agent_pending},
    {"reduction_agent_job_sent_bytes", "Bytes sent to reducers.", METRICS_COUNTER, agent_out},
    {"reduction_agent_job_received_bytes", "Bytes received from reducers.", METRICS_COUNTER, agent_in},
    {"reduction_agent_job_reducers", "Reducers of the job; 0: it has not started.", METRICS_GAUGE, agent_reducers},
    {"reduction_agent_job_alive_reducers", "Reducers that are not lost.", METRICS_GAUGE, agent_alive},
    {"reduction_agent_job_empty_slots", "Slots of the configuration without a reducer: it has not come, or has left.",
     METRICS_GAUGE, agent_empty},
    {"reduction_agent_job_degraded_seconds", "Time since the first of the lost reducers was lost; 0: none is lost.",
     METRICS_GAUGE, agent_degraded},
    {"reduction_agent_job_share_changes", "Times that the shares of the reducers were changed.", METRICS_COUNTER,
     agent_share_changes},
};

static double link_up(const agent_reducer *r)
{
	return r->state == REDUCTION__V1__AGENT_REDUCER__STATE__CONNECTED;
}

static double link_rtt(const agent_reducer *r)
{
	return r->rtt_us / 1e6;
}

static double link_retransmits(const agent_reducer *r)
{
	return (double)r->retransmits;
}

static double link_window(const agent_reducer *r)
{
	return r->window;
}

static double link_shards(const agent_reducer *r)
{
	return r->shards;
}

static double link_losses(const agent_reducer *r)
{
	return r->losses;
}

static double link_returns(const agent_reducer *r)
{
	return r->returns;
}

static const struct {
	const char *name, *help;
	enum metrics_type type;
	double (*get)(const agent_reducer *r);
} link_families[] = {
    {"reduction_agent_reducer_connected", "1 if all connections to the reducer have joined the job.", METRICS_GAUGE,
     link_up},
    {"reduction_agent_reducer_round_trip_seconds", "Smoothed round-trip time to the reducer; 0: not known.",
     METRICS_GAUGE, link_rtt},
    {"reduction_agent_reducer_retransmitted_segments", "TCP segments to the reducer that were sent again.",
     METRICS_COUNTER, link_retransmits},
    {"reduction_agent_reducer_window_chunks", "Chunks that may be in flight on a lane of the reducer now.",
     METRICS_GAUGE, link_window},
    {"reduction_agent_reducer_shards", "Shards that the reducer has now.", METRICS_GAUGE, link_shards},
    {"reduction_agent_reducer_losses", "How often the reducer was lost in the job.", METRICS_COUNTER, link_losses},
    {"reduction_agent_reducer_returns", "How often the reducer came back.", METRICS_COUNTER, link_returns},
};

static void write_links(struct metrics_out *o, const struct shown *s)
{
	for (size_t f = 0; f < sizeof link_families / sizeof link_families[0]; f++) {
		metrics_family(o, link_families[f].type, link_families[f].name, link_families[f].help);
		for (size_t i = 0; i < s->agent_n; i++)
			for (size_t r = 0; r < s->agent_jobs[i]->n_reducers; r++) {
				const agent_reducer *reducer = s->agent_jobs[i]->reducers[r];

				metrics_sample(o, link_families[f].get(reducer),
					       (const char *[]){"reduction_job", s->agent_jobs[i]->name, "reducer",
								reducer->id, NULL});
			}
	}
}

static void write_agent(struct metrics_out *o, const Reduction__V1__AgentStatus *a, const struct shown *s)
{
	one(o, METRICS_GAUGE, "reduction_agent_clients", "Training processes that are connected.", a->clients);
	one(o, METRICS_GAUGE, "reduction_agent_clients_limit", "Most training processes.", a->clients_max);
	one(o, METRICS_GAUGE, "reduction_agent_shared_memory_bytes", "Shared memory in use.", (double)a->shm_bytes);
	one(o, METRICS_GAUGE, "reduction_agent_shared_memory_limit_bytes", "Its limit (agent.shm_bytes).",
	    (double)a->shm_max_bytes);
	metrics_family(o, METRICS_GAUGE, "reduction_agent_job_state", "1 for the state of the job, else 0.");
	for (size_t i = 0; i < s->agent_n; i++)
		write_state(o, s->agent_jobs[i]->name, &reduction__v1__agent_job__state__descriptor,
			    (int)s->agent_jobs[i]->state);
	for (size_t f = 0; f < sizeof agent_families / sizeof agent_families[0]; f++) {
		metrics_family(o, agent_families[f].type, agent_families[f].name, agent_families[f].help);
		for (size_t i = 0; i < s->agent_n; i++)
			metrics_sample(o, agent_families[f].get(s->agent_jobs[i]),
				       (const char *[]){"reduction_job", s->agent_jobs[i]->name, NULL});
	}
	write_links(o, s);
}

void metrics_write(const Reduction__V1__StatusReply *m, bool openmetrics, FILE *out)
{
	struct metrics_out o = {.out = out, .openmetrics = openmetrics};
	struct shown s;

	if (take_shown(&s, m)) {
		write_process(&o, m);
		metrics_standard(&o, m);
		if (m->agent) {
			write_agent(&o, m->agent, &s);
		} else {
			write_reducer(&o, m);
			write_lanes(&o, m);
			write_jobs(&o, m, &s);
		}
	}
	metrics_end(&o);
	free(s.jobs);
	free(s.agent_jobs);
}
