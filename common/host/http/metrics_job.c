/* SPDX-License-Identifier: Apache-2.0 */
#include "common/host/http/metrics_job.h"

typedef Reduction__V1__JobStatus job;

static double job_generation(const job *j)
{
	return j->generation;
}

static double job_ranks(const job *j)
{
	return j->world_size;
}

static double job_joined(const job *j)
{
	return j->joined;
}

static double job_operations(const job *j)
{
	return (double)j->operations;
}

static double job_chunks(const job *j)
{
	return (double)j->chunks;
}

static double job_encoded(const job *j)
{
	return (double)j->encoded_chunks;
}

static double job_memory(const job *j)
{
	return (double)j->memory_bytes;
}

static double job_slots(const job *j)
{
	return j->slots;
}

static double job_slots_used(const job *j)
{
	return j->slots_used;
}

static double job_window(const job *j)
{
	return j->window;
}

static double job_served(const job *j)
{
	return (double)j->served_us / 1e6;
}

static double job_weight(const job *j)
{
	return j->weight;
}

static double job_lost(const job *j)
{
	double n = 0;

	for (size_t i = 0; i < j->n_lost; i++)
		n += !j->lost[i]->empty;
	return n;
}

static double job_empty(const job *j)
{
	return (double)j->n_lost - job_lost(j);
}

static double job_share_changes(const job *j)
{
	return j->share_changes;
}

static double job_latest(const job *j)
{
	return j->latest_permil ? (double)j->latest_rank : -1;
}

static double job_latest_waited(const job *j)
{
	return j->latest_permil / 1e3;
}

static double job_latest_behind(const job *j)
{
	return j->latest_permil && j->latest_rank < j->n_ranks ? j->ranks[j->latest_rank]->late_ms / 1e3 : 0;
}

static double job_missing(const job *j)
{
	uint32_t most = 0;

	for (size_t i = 0; i < j->n_ranks; i++)
		most = j->ranks[i]->missing_ms > most ? j->ranks[i]->missing_ms : most;
	return most / 1e3;
}

/* Returns the rank whose contribution was the last one most often; NULL: none was. */
static const Reduction__V1__RankStatus *most_last(const job *j)
{
	const Reduction__V1__RankStatus *most = NULL;

	for (size_t i = 0; i < j->n_ranks; i++)
		if (j->ranks[i]->last_chunks > (most ? most->last_chunks : 0))
			most = j->ranks[i];
	return most;
}

static double job_most_last(const job *j)
{
	const Reduction__V1__RankStatus *r = most_last(j);

	return r ? (double)r->rank : -1;
}

static double job_most_last_share(const job *j)
{
	const Reduction__V1__RankStatus *r = most_last(j);

	return r && j->chunks ? (double)r->last_chunks / (double)j->chunks : 0;
}

static double job_retransmits(const job *j)
{
	uint64_t n = 0;

	for (size_t i = 0; i < j->n_ranks; i++)
		n += j->ranks[i]->retransmits;
	return (double)n;
}

static double job_rtt(const job *j)
{
	uint32_t most = 0;

	for (size_t i = 0; i < j->n_ranks; i++)
		most = j->ranks[i]->rtt_us > most ? j->ranks[i]->rtt_us : most;
	return most / 1e6;
}

const struct metrics_job_family metrics_job_families[] = {
    {"reduction_job_generation", "Generation: how often the job was restarted.", METRICS_GAUGE, job_generation},
    {"reduction_job_ranks", "Ranks of the job.", METRICS_GAUGE, job_ranks},
    {"reduction_job_joined_ranks", "Ranks that have joined with all their connections.", METRICS_GAUGE, job_joined},
    {"reduction_job_operations", "Operations of which this reducer has summed a chunk.", METRICS_COUNTER,
     job_operations},
    {"reduction_job_chunks", "Chunks summed.", METRICS_COUNTER, job_chunks},
    {"reduction_job_encoded_chunks", "Of these, chunks that were encoded on the network (job.wire).", METRICS_COUNTER,
     job_encoded},
    {"reduction_job_memory_bytes", "Memory that the job can take.", METRICS_GAUGE, job_memory},
    {"reduction_job_slots", "Most chunks in work at the same time.", METRICS_GAUGE, job_slots},
    {"reduction_job_used_slots", "Chunks in work.", METRICS_GAUGE, job_slots_used},
    {"reduction_job_window_chunks", "Most chunks of a rank in flight on a lane (sharding.window).", METRICS_GAUGE,
     job_window},
    {"reduction_job_lane_seconds", "Time that the threads of the lanes have spent on the job.", METRICS_COUNTER,
     job_served},
    {"reduction_job_weight", "Weight of the job's connections in what is shared among jobs (access.weight).",
     METRICS_GAUGE, job_weight},
    {"reduction_job_lost_reducers", "Reducers that are lost in the job: above 0 it is degraded.", METRICS_GAUGE,
     job_lost},
    {"reduction_job_empty_slots", "Slots of its configuration without a reducer: it has not come, or has left.",
     METRICS_GAUGE, job_empty},
    {"reduction_job_share_changes", "Times that rank 0 has set the shares of the reducers.", METRICS_COUNTER,
     job_share_changes},
    {"reduction_job_latest_rank", "Rank that the others waited for most in the last second; -1: none.", METRICS_GAUGE,
     job_latest},
    {"reduction_job_latest_rank_waiting_ratio", "Share of the last second in which chunks waited for that rank.",
     METRICS_GAUGE, job_latest_waited},
    {"reduction_job_latest_rank_lateness_seconds",
     "Mean time in the last second from the first rank's first byte of a chunk to the end of that rank's part.",
     METRICS_GAUGE, job_latest_behind},
    {"reduction_job_missing_seconds", "Time for which the oldest chunk has waited for a rank.", METRICS_GAUGE,
     job_missing},
    {"reduction_job_most_often_last_rank", "Rank whose part of a chunk was the last one most often; -1: none.",
     METRICS_GAUGE, job_most_last},
    {"reduction_job_most_often_last_ratio", "Share of the chunks of which that rank's part was the last one.",
     METRICS_GAUGE, job_most_last_share},
    {"reduction_job_retransmitted_segments", "TCP segments of results that were sent again.", METRICS_COUNTER,
     job_retransmits},
    {"reduction_job_round_trip_seconds", "Longest smoothed round-trip time to a rank; 0: not known.", METRICS_GAUGE,
     job_rtt},
};

const unsigned metrics_job_families_n = sizeof metrics_job_families / sizeof metrics_job_families[0];
