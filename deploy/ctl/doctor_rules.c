/* SPDX-License-Identifier: Apache-2.0 */
#include "deploy/ctl/doctor.h"

#include "common/utf8.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
	SEGMENT_BYTES = 1448, /* of a full TCP segment in an Ethernet frame */
	DAY_S = 86400,
	CERTIFICATE_LATE_S = 3 * DAY_S, /* before its end, a certificate is an urgent matter */
};

/* The place of a finding. */
struct place {
	struct findings *all;
	const char *name; /* of the process */
	const char *job;
};

static const char *const action_missing =
    "see what that rank does: a checkpoint, an evaluation, a hang; py-spy dump or its log shows it";
static const char *const action_late =
    "compare its step time with that of the others, then look at its machine: processor, data loading, GPU, network";
static const char *const action_gathering =
    "start the missing ranks, or read their logs; reductionctl status names them";
static const char *const action_lost = "start the reducer again: the job uses it again by itself";
static const char *const action_path = "check the MTU and the filters between the rank and the reducer, both ways: "
				       "ping -M do -s 8972 HOST (1472 if the MTU "
				       "is 1500)";
static const char *const action_returns =
    "look at its machine and at the network to it; the logs of the ranks have the reason of each loss";
static const char *const action_busy =
    "raise server.lanes and reducers.lanes if cores are free there, else add reducers";
static const char *const action_starved =
    "give the reducer's cores to it alone: look for other programs there (top), and for a cgroup limit (cpu.max)";
static const char *const action_slow =
    "compare its link with that of the others (ethtool, ip -s link), or give it fewer shards: reductionctl plan";
static const char *const action_network =
    "look for errors and drops of the interfaces and switches on the way (ip -s link, ethtool -S)";
static const char *const action_small =
    "use larger buckets (bucket_cap_mb of DistributedDataParallel), or a group of tensors";
static const char *const action_slots = "add reducers, or raise sharding.window if the round trip is long";
static const char *const action_sending =
    "the link of the reducer or of a rank is full: add reducers, or use a faster network";
static const char *const action_window = "raise sharding.window: a long link needs more chunks in flight";
static const char *const action_certificate =
    "put the renewed certificate and key in the place of the old ones; they are read within seconds (deploy/renew.md)";
static const char *const action_memory = "raise server.memory, or add a reducer: new jobs may be refused";

/* Adds a finding in its place, if there is room or it is worse than the last one. */
static void __attribute__((format(printf, 6, 7))) add(const struct place *at, const char *id, unsigned score,
						      const char *action, const char *what, const char *evidence, ...)
{
	struct findings *all = at->all;
	struct finding f = {.id = id, .score = score < 1000 ? score : 1000, .action = action};
	char text[200];
	unsigned i = all->n;
	va_list ap;

	va_start(ap, evidence);
	vsnprintf(text, sizeof text, evidence, ap);
	va_end(ap);
	snprintf(f.job, sizeof f.job, "%s", at->job);
	snprintf(f.what, sizeof f.what, "%s", what);
	snprintf(f.evidence, sizeof f.evidence, "%.40s: %s", at->name, text);
	rs_utf8_clean(f.job);
	rs_utf8_clean(f.what);
	rs_utf8_clean(f.evidence);
	while (i > 0 && all->at[i - 1].score < f.score)
		i--;
	if (i == FINDINGS_MAX)
		return;
	if (all->n < FINDINGS_MAX)
		all->n++;
	memmove(&all->at[i + 1], &all->at[i], (all->n - 1 - i) * sizeof all->at[0]);
	all->at[i] = f;
}

bool doctor_is_late(const Reduction__V1__JobStatus *job, const Reduction__V1__RankStatus *rank)
{
	uint64_t others = 0;

	if (rank->missing_ms >= MISSING_MS)
		return true;
	for (size_t i = 0; i < job->n_ranks; i++)
		if (job->ranks[i] != rank)
			others += job->ranks[i]->waited_permil;
	return rank->waited_permil >= LATE_PERMIL && job->n_ranks > 1 &&
	       rank->waited_permil >= LATE_TIMES * others / (job->n_ranks - 1);
}

static void look_rank(const struct place *at, const Reduction__V1__JobStatus *job, const Reduction__V1__RankStatus *r)
{
	uint64_t segments = r->traffic ? r->traffic->bytes_out / SEGMENT_BYTES : 0;
	char what[200];

	if (r->missing_ms >= MISSING_MS) {
		snprintf(what, sizeof what, "rank %u (%.100s) has not sent its part", r->rank, r->label);
		add(at, "rank-missing", 1000, action_missing, what, "a chunk has waited for it for %.1f s",
		    r->missing_ms / 1e3);
	} else if (doctor_is_late(job, r)) {
		snprintf(what, sizeof what, "rank %u (%.100s) is late", r->rank, r->label);
		add(at, "rank-late", r->waited_permil, action_late, what,
		    "the others waited for it in %.1f %% of the last second; it is %.1f ms behind with each chunk",
		    r->waited_permil / 10.0, r->late_ms);
	}
	if (r->retransmits < RETRANSMITS_MIN || r->retransmits * 1000 < segments * RETRANSMITS_PERMIL)
		return;
	/* if the rank is late, this is why */
	snprintf(what, sizeof what, "the network to rank %u (%.100s) loses packets", r->rank, r->label);
	add(at, "retransmissions", r->waited_permil >= 400 ? r->waited_permil + 1 : 400, action_network, what,
	    "%" PRIu64 " of about %" PRIu64 " TCP segments were sent again", r->retransmits, segments);
}

/* Returns the mean of a histogram in microseconds; 0: it is empty. */
static uint64_t mean_us(const Reduction__V1__Histogram *h)
{
	uint64_t n = 0;

	for (size_t i = 0; h && i < h->n_counts; i++)
		n += h->counts[i];
	return n ? h->sum_us / n : 0;
}

/* Keeps the time of a chunk of this job for doctor_compare. */
static void keep_pace(const struct place *at, const Reduction__V1__JobStatus *job)
{
	struct findings *all = at->all;
	struct pace *p = &all->paces[all->paces_n];

	if (all->paces_n == PACES_MAX || !mean_us(job->waiting))
		return;
	all->paces_n++;
	p->us = mean_us(job->waiting) + mean_us(job->sending);
	snprintf(p->job, sizeof p->job, "%s", job->name);
	snprintf(p->name, sizeof p->name, "%s", at->name);
}

void doctor_compare(struct findings *all)
{
	for (unsigned i = 0; i < all->paces_n; i++) {
		const struct pace *p = &all->paces[i];
		struct place at = {.all = all, .name = p->name, .job = p->job};
		uint64_t others = 0, n = 0;
		char what[200];

		for (unsigned k = 0; k < all->paces_n; k++)
			if (k != i && strcmp(all->paces[k].job, p->job) == 0) {
				others += all->paces[k].us;
				n++;
			}
		if (!n || p->us < SLOW_US || p->us * 100 < others / n * SLOW_PERCENT)
			continue;
		snprintf(what, sizeof what, "reducer %.100s is slower than the others", p->name);
		add(&at, "reducer-slow", 400 + (unsigned)(600 - 600 * (others / n) / p->us), action_slow, what,
		    "a chunk takes %.1f ms there on average, and %.1f ms on the other reducers", (double)p->us / 1e3,
		    (double)others / (double)n / 1e3);
	}
}

static void look_traffic(const struct place *at, const Reduction__V1__JobStatus *job)
{
	const Reduction__V1__Traffic *t = job->traffic;
	uint64_t sending = mean_us(job->sending), summing = mean_us(job->summing);
	uint64_t each = t && t->chunks_per_s ? t->bytes_in_per_s / t->chunks_per_s : 0;

	if (each && each < SMALL_BYTES && t->chunks_per_s >= SMALL_PER_S)
		add(at, "small-operations", 150, action_small, "operations are small",
		    "%" PRIu64 " contributions a second have %" PRIu64 " bytes on average", t->chunks_per_s, each);
	if (job->slots && job->slots_used * 1000ULL >= job->slots * (unsigned long long)SLOTS_PERMIL)
		add(at, "slots-used", 200, action_slots, "all slots of the job are in use", "%u of %u slots",
		    job->slots_used, job->slots);
	if (sending >= SENDING_US && sending >= 4 * summing)
		add(at, "sending-slow", 300, action_sending, "results take long to reach the ranks",
		    "a result needs %.1f ms on average, its sum %.1f ms", (double)sending / 1e3, (double)summing / 1e3);
}

/* A reducer that a job has lost. If only small messages passed, it may be well, and is
 * brought back after pauses. */
static void look_lost(const struct place *at, const char *id, uint64_t for_ms, unsigned losses, const char *why)
{
	bool path = strstr(why, "small messages");
	char what[200], times[40] = "";

	if (losses > 1)
		snprintf(times, sizeof times, "lost %u times, now ", losses);
	snprintf(what, sizeof what,
		 path ? "large messages do not get through to reducer %.100s: the job is degraded"
		      : "reducer %.100s is lost: the job is degraded",
		 id);
	add(at, path ? "reducer-path" : "reducer-lost", 500,
	    path                     ? action_path
	    : losses >= RETURNS_MANY ? action_returns
				     : action_lost,
	    what, "%sfor %.1f s: %.120s", times, (double)for_ms / 1e3, why[0] ? why : "no reason is known");
}

static void look_job(struct place at, const Reduction__V1__JobStatus *job)
{
	at.job = job->name;
	if (job->state == REDUCTION__V1__JOB_STATUS__STATE__GATHERING)
		add(&at, "ranks-not-there", 950, action_gathering, "ranks of the job are missing",
		    "%u of %u ranks have joined in %.1f s", job->joined, job->world_size, (double)job->age_ms / 1e3);
	for (size_t i = 0; i < job->n_lost; i++)
		look_lost(&at, job->lost[i]->id, job->lost[i]->for_ms, job->lost[i]->losses, job->lost[i]->why);
	for (size_t i = 0; i < job->n_ranks; i++)
		if (job->state != REDUCTION__V1__JOB_STATUS__STATE__GATHERING)
			look_rank(&at, job, job->ranks[i]);
	look_traffic(&at, job);
	keep_pace(&at, job);
}

static void look_agent_reducer(const struct place *at, const Reduction__V1__AgentReducer *r)
{
	char what[200];

	if (r->state == REDUCTION__V1__AGENT_REDUCER__STATE__LOST) {
		look_lost(at, r->id, r->for_ms, r->losses, r->why);
	} else if (r->losses >= RETURNS_MANY && r->for_ms < RETURNS_MS) {
		snprintf(what, sizeof what, "reducer %.100s is lost and comes back", r->id);
		add(at, "reducer-returns", 450, action_returns, what, "lost %u times, back for %.1f s", r->losses,
		    (double)r->for_ms / 1e3);
	}
	if (r->window_max && r->window == r->window_max && r->rtt_us >= WINDOW_ROUND_TRIP_US) {
		snprintf(what, sizeof what, "the window to reducer %.100s is at its limit", r->id);
		add(at, "window-at-limit", 250, action_window, what, "%u chunks in flight, round trip %.2f ms",
		    r->window, r->rtt_us / 1e3);
	}
	if (r->retransmits < RETRANSMITS_MIN)
		return;
	snprintf(what, sizeof what, "the network to reducer %.100s loses packets", r->id);
	add(at, "retransmissions", 350, action_network, what, "%" PRIu64 " TCP segments were sent again",
	    r->retransmits);
}

/* A certificate that ends soon. When that is soon the process itself says, by its own
 * clock. */
static void look_certificate(const struct place *at, const Reduction__V1__StatusReply *m)
{
	int64_t left_s = m->certificate_unix_s - m->unix_ms / 1000;

	if (!m->certificate_unix_s || m->unix_ms / 1000 < m->certificate_renew_unix_s)
		return;
	if (left_s <= 0)
		add(at, "certificate-ended", 900, action_certificate, "the certificate has expired",
		    "since %.1f days: new connections fail", (double)-left_s / DAY_S);
	else
		add(at, "certificate-ends", left_s < CERTIFICATE_LATE_S ? 600 : 50, action_certificate,
		    "the certificate expires soon", "in %.1f days", (double)left_s / DAY_S);
}

void doctor_look(struct findings *all, const Reduction__V1__StatusReply *m, const char *name)
{
	struct place at = {.all = all, .name = name, .job = ""};

	for (size_t i = 0; i < m->n_lanes; i++)
		if (m->lanes[i]->starved_permil >= STARVED_PERMIL)
			add(&at, "lane-starved", 500 + m->lanes[i]->starved_permil / 2, action_starved,
			    "a lane of the reducer waits for a core that others use",
			    "lane %zu waited for a core in %.1f %% of the last second, and ran in %.1f %%", i,
			    m->lanes[i]->starved_permil / 10.0, m->lanes[i]->busy_permil / 10.0);
		else if (m->lanes[i]->busy_permil >= BUSY_PERMIL)
			add(&at, "lane-busy", m->lanes[i]->busy_permil, action_busy,
			    "a core of the reducer is exhausted", "lane %zu was busy in %.1f %% of the last second", i,
			    m->lanes[i]->busy_permil / 10.0);
	if (m->memory_max_bytes && m->memory_bytes > m->memory_max_bytes / 10 * 9)
		add(&at, "memory", 100, action_memory, "the memory for jobs is nearly used", "%.1f %% of server.memory",
		    100.0 * (double)m->memory_bytes / (double)m->memory_max_bytes);
	look_certificate(&at, m);
	for (size_t i = 0; i < m->n_jobs; i++)
		look_job(at, m->jobs[i]);
	for (size_t i = 0; m->agent && i < m->agent->n_jobs; i++) {
		at.job = m->agent->jobs[i]->name;
		for (size_t r = 0; r < m->agent->jobs[i]->n_reducers; r++)
			look_agent_reducer(&at, m->agent->jobs[i]->reducers[r]);
	}
}
