/* SPDX-License-Identifier: Apache-2.0 */
#include "deploy/ctl/doctor.h"

#include "common/utf8.h"
#include "config/limits.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
	SEGMENT_BYTES = 1448, /* of a full TCP segment in an Ethernet frame */
	DAY_S = 86400,
	CERTIFICATE_LATE_S = 3 * DAY_S, /* before its end, a certificate is an urgent matter */
};

/* The place of findings: a window of a process, and one of its jobs. */
struct place {
	struct findings *all;
	const char *name; /* of the process */
	const char *job;
	uint64_t ms; /* length of the window; 0: there is only one look */
	/* share of it in which a lane of the process waited for a core, in thousandths:
	 * it did not read, so nobody knows who was late */
	uint64_t starved;
};

/* A job at both looks. */
struct job_pair {
	const Reduction__V1__JobStatus *a, *b;
};

static const char *const action_missing =
    "see what that rank does: a checkpoint, an evaluation, a hang; py-spy dump or its log shows it";
static const char *const action_late =
    "compare its step time with that of the others, then look at its machine: processor, data loading, GPU, network";
static const char *const action_gathering =
    "start the missing ranks, or read their logs; reductionctl status names them";
static const char *const action_lost = "start the reducer again: the job uses it again by itself";
static const char *const action_balance =
    "set sharding.rebalance: on, if shares would help; else look at the machine or the path that it names";
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
    "look for errors and drops of the interfaces and switches on the way (ip -s link, ethtool -S); "
    "deploy/troubleshooting.md, \"The network of reducers and workers\"";
static const char *const action_small =
    "use larger buckets (bucket_cap_mb of DistributedDataParallel), or a group of tensors";
static const char *const action_slots = "add reducers, or raise sharding.window if the round trip is long";
static const char *const action_sending =
    "the link of the reducer or of a rank is full: add reducers, or use a faster network";
static const char *const action_window = "raise sharding.window: a long link needs more chunks in flight";
static const char *const action_certificate =
    "put the renewed certificate and key in the place of the old ones; they are read within seconds (deploy/renew.md)";
static const char *const action_nan =
    "look for its cause in the step of that rank: agent/README.md, \"Which rank sent NaN\"";
static const char *const action_memory = "raise server.memory, or add a reducer: new jobs may be refused";

static const char *const action_no_answer =
    "look whether it runs there (systemctl status, its log); if it does, the sentence says what this command lacks";

/* What kind of finding it is. */
struct kind {
	const char *id;
	unsigned score;
	const char *action;
	bool is_fact;
	unsigned rank; /* as in struct finding */
};

/* Completes a finding and adds it. Names and sentences may come from the network. */
static void put_clean(struct findings *all, struct finding *f, const char *process, const char *job, const char *what,
		      const char *evidence)
{
	bool says_itself = strncmp(evidence, process, strlen(process)) == 0;

	f->score = f->score < 1000 ? f->score : 1000;
	snprintf(f->job, sizeof f->job, "%s", job);
	snprintf(f->process, sizeof f->process, "%s", process);
	snprintf(f->what, sizeof f->what, "%s", what);
	snprintf(f->evidence, sizeof f->evidence, "%.40s%s%s", says_itself ? "" : process, says_itself ? "" : ": ",
		 evidence);
	rs_utf8_clean(f->job);
	rs_utf8_clean(f->process);
	rs_utf8_clean(f->what);
	rs_utf8_clean(f->evidence);
	findings_put(all, f);
}

static void __attribute__((format(printf, 4, 5)))
add(const struct place *at, const struct kind *kind, const char *what, const char *evidence, ...)
{
	struct finding f = {.id = kind->id, .score = kind->score, .is_fact = kind->is_fact, .rank = kind->rank};
	char text[200];
	va_list ap;

	snprintf(f.action, sizeof f.action, "%s", kind->action);
	va_start(ap, evidence);
	vsnprintf(text, sizeof text, evidence, ap);
	va_end(ap);
	put_clean(at->all, &f, at->name, at->job, what, text);
}

void doctor_fact(struct findings *all, const struct fact *fact)
{
	struct finding f = {.id = fact->id, .score = fact->score, .is_fact = true};

	snprintf(f.action, sizeof f.action, "%s", fact->action);
	put_clean(all, &f, fact->process, fact->job, fact->what, fact->evidence);
}

void doctor_no_answer(struct findings *all, const char *name, const char *why)
{
	char what[200];

	snprintf(what, sizeof what, "%.100s does not answer", name);
	doctor_fact(all, &(struct fact){"no-answer", 990, name, "", what, why, action_no_answer});
}

bool doctor_is_late(const Reduction__V1__JobStatus *job, const Reduction__V1__RankStatus *rank)
{
	uint64_t all = 0;

	for (size_t i = 0; i < job->n_ranks; i++)
		all += job->ranks[i]->waited_permil;
	return rank->missing_ms >= MISSING_MS || doctor_stands_out(rank->waited_permil, all, job->n_ranks);
}

/* Returns by how much a counter grew. One that shrank belongs to a new connection. */
static uint64_t grown(uint64_t a, uint64_t b)
{
	return b > a ? b - a : 0;
}

/* Returns the share of the window in which the others waited for a rank, in
 * thousandths. */
static uint64_t waited_permil(const struct place *at, const struct job_pair *job, size_t rank)
{
	uint64_t permil = grown(job->a->ranks[rank]->waited_ms, job->b->ranks[rank]->waited_ms) * 1000 / at->ms;

	return permil < 1000 ? permil : 1000;
}

static void look_rank(const struct place *at, const struct job_pair *job, size_t i, uint64_t waited_all)
{
	const Reduction__V1__RankStatus *a = job->a->ranks[i], *r = job->b->ranks[i];
	uint64_t sent = a->traffic && r->traffic ? grown(a->traffic->bytes_out, r->traffic->bytes_out) : 0;
	uint64_t waited = waited_permil(at, job, i), segments = sent / SEGMENT_BYTES;
	uint64_t again = grown(a->retransmits, r->retransmits);
	unsigned rank = r->rank + 1;
	char what[200];

	if (r->missing_ms >= MISSING_MS) {
		snprintf(what, sizeof what, "rank %u (%.100s) has not sent its part", r->rank, r->label);
		add(at, &(struct kind){"rank-missing", 1000, action_missing, false, rank}, what,
		    "a chunk has waited for it for %.1f s", r->missing_ms / 1e3);
	}
	if (waited >= LATE_PERMIL + at->starved && doctor_stands_out(waited, waited_all, job->b->n_ranks)) {
		snprintf(what, sizeof what, "rank %u (%.100s) is late", r->rank, r->label);
		add(at, &(struct kind){"rank-late", (unsigned)waited, action_late, false, rank}, what,
		    "the others waited for it in %.1f %% of the time; it is %.1f ms behind with each chunk",
		    (double)waited / 10, r->late_ms);
	}
	if (again < RETRANSMITS_MIN || again * 1000 < segments * RETRANSMITS_PERMIL)
		return;
	/* if the rank is late, this is why */
	snprintf(what, sizeof what, "the network to rank %u (%.100s) loses packets", r->rank, r->label);
	add(at,
	    &(struct kind){"retransmissions", waited >= 400 ? (unsigned)waited + 1 : 400, action_network, false, rank},
	    what, "%" PRIu64 " of about %" PRIu64 " TCP segments were sent again", again, segments);
}

static void look_ranks(const struct place *at, const struct job_pair *job)
{
	uint64_t waited = 0;

	if (job->a->n_ranks != job->b->n_ranks)
		return;
	for (size_t i = 0; i < job->b->n_ranks; i++)
		waited += waited_permil(at, job, i);
	for (size_t i = 0; i < job->b->n_ranks; i++)
		look_rank(at, job, i, waited);
}

static uint64_t count_of(const Reduction__V1__Histogram *h)
{
	uint64_t n = 0;

	for (size_t i = 0; h && i < h->n_counts; i++)
		n += h->counts[i];
	return n;
}

/* Returns the mean of the times that came to a histogram, in microseconds; 0: there were
 * too few. */
static uint64_t mean_us(const Reduction__V1__Histogram *a, const Reduction__V1__Histogram *b)
{
	uint64_t n = grown(count_of(a), count_of(b));

	return a && b && n >= SLOW_CHUNKS ? grown(a->sum_us, b->sum_us) / n : 0;
}

/* Single steps with NaN are normal for a scaled loss: they are in few windows. */
static void look_nan(const struct place *at, const struct job_pair *job)
{
	uint64_t more = grown(job->a->nan_operations, job->b->nan_operations);

	if (more)
		add(at, &(struct kind){"nan", 800, action_nan, false, 0}, "ranks send NaN",
		    "in %" PRIu64 " operations more; the first: %.300s", more, job->b->nonfinite);
}

/* Keeps the time of a chunk of this job for doctor_compare. */
static void keep_pace(const struct place *at, const struct job_pair *job)
{
	struct findings *all = at->all;
	struct pace *p = &all->paces[all->paces_n];
	uint64_t waiting = mean_us(job->a->waiting, job->b->waiting);

	if (all->paces_n == PACES_MAX || !waiting)
		return;
	all->paces_n++;
	p->us = waiting + mean_us(job->a->sending, job->b->sending);
	snprintf(p->job, sizeof p->job, "%s", job->b->name);
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
		add(&at,
		    &(struct kind){"reducer-slow", 400 + (unsigned)(600 - 600 * (others / n) / p->us), action_slow,
				   false, 0},
		    what, "a chunk takes %.1f ms there on average, and %.1f ms on the other reducers",
		    (double)p->us / 1e3, (double)others / (double)n / 1e3);
	}
}

static void look_traffic(const struct place *at, const struct job_pair *job)
{
	const Reduction__V1__Traffic *a = job->a->traffic, *b = job->b->traffic;
	uint64_t sending = mean_us(job->a->sending, job->b->sending);
	uint64_t summing = mean_us(job->a->summing, job->b->summing);
	uint64_t chunks = a && b ? grown(a->chunks, b->chunks) : 0;
	uint64_t each = chunks ? grown(a->bytes_in, b->bytes_in) / chunks : 0;

	if (each && each < SMALL_BYTES && chunks * 1000 / at->ms >= SMALL_PER_S)
		add(at, &(struct kind){"small-operations", 150, action_small, false, 0}, "operations are small",
		    "%" PRIu64 " contributions a second have %" PRIu64 " bytes on average", chunks * 1000 / at->ms,
		    each);
	if (job->b->slots && job->b->slots_used * 1000ULL >= job->b->slots * (unsigned long long)SLOTS_PERMIL)
		add(at, &(struct kind){"slots-used", 200, action_slots, false, 0}, "all slots of the job are in use",
		    "%u of %u slots", job->b->slots_used, job->b->slots);
	if (sending >= SENDING_US && sending >= 4 * summing)
		add(at, &(struct kind){"sending-slow", 300, action_sending, false, 0},
		    "results take long to reach the ranks", "a result needs %.1f ms on average, its sum %.1f ms",
		    (double)sending / 1e3, (double)summing / 1e3);
}

/* A reducer that a job has lost. If only small messages passed, it may be well, and is
 * brought back after pauses. */
static void look_lost(const struct place *at, const char *id, uint64_t for_ms, unsigned losses, bool path,
		      const char *why)
{
	char what[200], times[40] = "";

	if (losses > 1)
		snprintf(times, sizeof times, "lost %u times, now ", losses);
	snprintf(what, sizeof what,
		 path ? "large messages do not get through to reducer %.100s: the job is degraded"
		      : "reducer %.100s is lost: the job is degraded",
		 id);
	add(at,
	    &(struct kind){path ? "reducer-path" : "reducer-lost", 500,
			   path                     ? action_path
			   : losses >= RETURNS_MANY ? action_returns
						    : action_lost,
			   true, 0},
	    what, "%sfor %.1f s: %.120s", times, (double)for_ms / 1e3, why[0] ? why : "no reason is known");
}

/* Returns the same job at the look before; NULL: it was not there. */
static const Reduction__V1__JobStatus *job_before(const Reduction__V1__StatusReply *before,
						  const Reduction__V1__JobStatus *job)
{
	for (size_t i = 0; before && i < before->n_jobs; i++) {
		const Reduction__V1__JobStatus *a = before->jobs[i];

		if (strcmp(a->name, job->name) == 0 && a->generation == job->generation && a->age_ms <= job->age_ms)
			return a;
	}
	return NULL;
}

static void look_job(struct place at, const Reduction__V1__StatusReply *before, const Reduction__V1__JobStatus *job)
{
	const struct job_pair pair = {job_before(before, job), job};

	at.job = job->name;
	for (size_t i = 0; i < job->n_lost; i++)
		if (!job->lost[i]->empty)
			look_lost(&at, job->lost[i]->id, job->lost[i]->for_ms, job->lost[i]->losses,
				  job->lost[i]->narrow, job->lost[i]->why);
	if (job->state == REDUCTION__V1__JOB_STATUS__STATE__GATHERING) {
		if (job->age_ms >= GATHERING_MS)
			add(&at, &(struct kind){"ranks-not-there", 950, action_gathering, true, 0},
			    "ranks of the job are missing", "%u of %u ranks have joined in %.1f s", job->joined,
			    job->world_size, (double)job->age_ms / 1e3);
		return;
	}
	if (!pair.a || !at.ms)
		return;
	look_ranks(&at, &pair);
	look_traffic(&at, &pair);
	doctor_look_relays(at.all, pair.a, job, at.name, at.ms);
	look_nan(&at, &pair);
	keep_pace(&at, &pair);
}

/* Returns the same job of an agent at the look before; NULL: it was not there. */
static const Reduction__V1__AgentJob *agent_job_before(const Reduction__V1__StatusReply *before,
						       const Reduction__V1__AgentJob *job)
{
	for (size_t i = 0; before && before->agent && i < before->agent->n_jobs; i++) {
		const Reduction__V1__AgentJob *a = before->agent->jobs[i];

		if (strcmp(a->name, job->name) == 0 && a->generation == job->generation && a->age_ms <= job->age_ms &&
		    a->n_reducers == job->n_reducers)
			return a;
	}
	return NULL;
}

/* `sent`: bytes that the job has sent to this reducer in the window. */
static void look_agent_window(const struct place *at, const Reduction__V1__AgentReducer *a,
			      const Reduction__V1__AgentReducer *r, uint64_t sent)
{
	uint64_t again = grown(a->retransmits, r->retransmits), segments = sent / SEGMENT_BYTES;
	char what[200];

	/* windows of long links follow the round trip: with BBR they are always at their
	 * limit */
	if (r->window_max && r->window == r->window_max && r->rtt_us >= WINDOW_ROUND_TRIP_US &&
	    r->min_rtt_us < RS_LONG_US) {
		snprintf(what, sizeof what, "the window to reducer %.100s is at its limit", r->id);
		add(at, &(struct kind){"window-at-limit", 250, action_window, false, 0}, what,
		    "%u chunks in flight, round trip %.2f ms", r->window, r->rtt_us / 1e3);
	}
	if (again < RETRANSMITS_MIN || again * 1000 < segments * RETRANSMITS_PERMIL)
		return;
	snprintf(what, sizeof what, "the network to reducer %.100s loses packets", r->id);
	add(at, &(struct kind){"retransmissions", 350, action_network, false, 0}, what,
	    "%" PRIu64 " of about %" PRIu64 " TCP segments were sent again", again, segments);
}

static void look_agent_fact(const struct place *at, const Reduction__V1__AgentReducer *r)
{
	char what[200];

	if (r->state == REDUCTION__V1__AGENT_REDUCER__STATE__LOST) {
		look_lost(at, r->id, r->for_ms, r->losses, r->narrow, r->why);
	} else if (r->losses >= RETURNS_MANY && r->for_ms < RETURNS_MS) {
		snprintf(what, sizeof what, "reducer %.100s is lost and comes back", r->id);
		add(at, &(struct kind){"reducer-returns", 450, action_returns, true, 0}, what,
		    "lost %u times, back for %.1f s", r->losses, (double)r->for_ms / 1e3);
	}
}

/* A certificate that ends soon. When that is soon the process itself says, by its own
 * clock. */
static void look_certificate(const struct place *at, const Reduction__V1__StatusReply *m)
{
	int64_t left_s = m->certificate_unix_s - m->unix_ms / 1000;
	bool soon = m->certificate_renew_unix_s && m->unix_ms / 1000 >= m->certificate_renew_unix_s;

	if (!m->certificate_unix_s || (left_s > 0 && !soon))
		return;
	if (left_s <= 0)
		add(at, &(struct kind){"certificate-ended", 900, action_certificate, true, 0},
		    "the certificate has expired", "since %.1f days: new connections fail", (double)-left_s / DAY_S);
	else
		add(at,
		    &(struct kind){"certificate-ends", left_s < CERTIFICATE_LATE_S ? 600 : 50, action_certificate, true,
				   0},
		    "the certificate expires soon", "in %.1f days", (double)left_s / DAY_S);
}

static void look_agent_job(struct place at, const Reduction__V1__StatusReply *before,
			   const Reduction__V1__AgentJob *job)
{
	const Reduction__V1__AgentJob *a = agent_job_before(before, job);

	at.job = job->name;
	if (job->balance[0])
		add(&at, &(struct kind){"unbalanced", 320, action_balance, false, 0},
		    "reducers, or the ways to them, are not equally fast", "%.400s", job->balance);
	for (size_t r = 0; r < job->n_reducers; r++) {
		look_agent_fact(&at, job->reducers[r]);
		if (a && at.ms)
			look_agent_window(&at, a->reducers[r], job->reducers[r],
					  grown(a->bytes_out, job->bytes_out) / job->n_reducers);
	}
}

static void look_lane(const struct place *at, size_t i, const Reduction__V1__LaneStatus *lane)
{
	char what[80];

	if (lane->starved_permil >= STARVED_PERMIL) {
		snprintf(what, sizeof what, "lane %zu of the reducer waits for a core that others use", i);
		add(at, &(struct kind){"lane-starved", 500 + lane->starved_permil / 2, action_starved, false, 0}, what,
		    "it waited for a core in %.1f %% of a second, and ran in %.1f %%", lane->starved_permil / 10.0,
		    lane->busy_permil / 10.0);
	} else if (lane->busy_permil >= BUSY_PERMIL) {
		snprintf(what, sizeof what, "the core of lane %zu of the reducer is exhausted", i);
		add(at, &(struct kind){"lane-busy", lane->busy_permil, action_busy, false, 0}, what,
		    "it was busy in %.1f %% of a second", lane->busy_permil / 10.0);
	}
}

static uint64_t most(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t most_starved(const Reduction__V1__StatusReply *m)
{
	uint64_t permil = 0;

	for (size_t i = 0; i < m->n_lanes; i++)
		permil = most(permil, m->lanes[i]->starved_permil);
	return permil;
}

void doctor_look(struct findings *all, const Reduction__V1__StatusReply *before,
		 const Reduction__V1__StatusReply *after, const char *name)
{
	struct place at = {.all = all, .name = name, .job = ""};

	if (before) /* a process that has started again begins at 0 */
		at.ms = grown(before->up_ms, after->up_ms);
	at.starved = most(before ? most_starved(before) : 0, most_starved(after));
	for (size_t i = 0; at.ms && i < after->n_lanes; i++)
		look_lane(&at, i, after->lanes[i]);
	if (after->memory_max_bytes && after->memory_bytes > after->memory_max_bytes / 10 * 9)
		add(&at, &(struct kind){"memory", 100, action_memory, true, 0}, "the memory for jobs is nearly used",
		    "%.1f %% of server.memory", 100.0 * (double)after->memory_bytes / (double)after->memory_max_bytes);
	look_certificate(&at, after);
	for (size_t i = 0; i < after->n_jobs; i++)
		look_job(at, before, after->jobs[i]);
	for (size_t i = 0; after->agent && i < after->agent->n_jobs; i++)
		look_agent_job(at, before, after->agent->jobs[i]);
}
