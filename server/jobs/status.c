/* SPDX-License-Identifier: Apache-2.0 */
#include "server/jobs/status.h"

#include "common/error.h"
#include "config/limits.h"

#include <stdlib.h>
#include <string.h>

enum status_refusal status_refusal_of(int code)
{
	switch (code) {
	case RS_EREFUSED:
	case RS_ECLOSED:
		return STATUS_REFUSED_POLICY;
	case RS_EINVAL:
	case RS_EMISMATCH:
		return STATUS_REFUSED_MISMATCH;
	case RS_EPROTO:
	case RS_ETIMEOUT:
		return STATUS_REFUSED_PROTOCOL;
	default:
		return STATUS_REFUSED_OTHER;
	}
}

enum status_end status_end_of(const struct rs_cause *cause)
{
	switch (cause->code) {
	case RS_EPEER:
		return cause->rank ? STATUS_ENDED_LOST : STATUS_ENDED_OTHER;
	case RS_EMISMATCH:
		return STATUS_ENDED_MISMATCH;
	case RS_EABORTED:
		return STATUS_ENDED_ABORTED;
	case RS_ENONFINITE:
		return STATUS_ENDED_NONFINITE;
	case RS_ECUT:
	case RS_ECLOSED:
		return STATUS_ENDED_LEFT;
	default:
		return STATUS_ENDED_OTHER;
	}
}

const char *status_end_name(enum status_end how)
{
	static const char *const names[STATUS_ENDS] = {"finished", "incomplete", "rank-lost", "mismatch",
						       "aborted",  "non-finite", "left",      "other"};

	return names[how];
}

static Reduction__V1__Traffic *new_traffic(struct status_reply *r)
{
	return status_reply_message(r, &reduction__v1__traffic__descriptor);
}

static Reduction__V1__Histogram *new_histogram(struct status_reply *r)
{
	Reduction__V1__Histogram *h = status_reply_message(r, &reduction__v1__histogram__descriptor);

	if (!h)
		return NULL;
	h->n_counts = TIMES_BUCKETS;
	h->counts = status_reply_take(r, TIMES_BUCKETS * sizeof(*h->counts));
	return h;
}

/* Makes the lanes, the reasons of refusals, and the limits of all histograms. */
static void new_process(struct status_reply *r, unsigned lanes)
{
	static const char *const reasons[STATUS_REFUSALS] = {"policy", "mismatch", "protocol", "other"};
	Reduction__V1__StatusReply *m = &r->m;

	m->n_lanes = lanes;
	m->lanes = status_reply_messages(r, &reduction__v1__lane_status__descriptor, lanes);
	for (unsigned i = 0; m->lanes && i < lanes; i++)
		m->lanes[i]->traffic = new_traffic(r);
	m->n_refusals = STATUS_REFUSALS;
	m->refusals = status_reply_messages(r, &reduction__v1__refusals__descriptor, STATUS_REFUSALS);
	for (unsigned i = 0; m->refusals && i < STATUS_REFUSALS; i++)
		m->refusals[i]->reason = (char *)reasons[i];
	m->n_ended = STATUS_ENDS;
	m->ended = status_reply_messages(r, &reduction__v1__ended_jobs__descriptor, STATUS_ENDS);
	for (unsigned i = 0; m->ended && i < STATUS_ENDS; i++)
		m->ended[i]->reason = (char *)status_end_name(i);
	m->n_bucket_limits_us = TIMES_BUCKETS - 1;
	m->bucket_limits_us = status_reply_take(r, m->n_bucket_limits_us * sizeof(*m->bucket_limits_us));
	for (unsigned i = 0; m->bucket_limits_us && i < TIMES_BUCKETS - 1; i++)
		m->bucket_limits_us[i] = lane_times_limit_us(i);
}

struct status *status_new(unsigned jobs, unsigned lanes)
{
	struct status *st = calloc(1, sizeof *st);

	if (!st)
		return NULL;
	status_reply_init(&st->reply);
	new_process(&st->reply, lanes);
	st->reply.m.n_jobs = jobs;
	st->reply.m.jobs = status_reply_take(&st->reply, jobs * sizeof(*st->reply.m.jobs));
	st->ids = status_reply_take(&st->reply, jobs * sizeof *st->ids);
	if (!st->reply.failed)
		return st;
	status_free(st);
	return NULL;
}

Reduction__V1__JobStatus *status_job(struct status *st, unsigned i, uint64_t id, uint32_t world_size)
{
	struct status_reply *r = &st->reply;
	Reduction__V1__JobStatus *m = status_reply_message(r, &reduction__v1__job_status__descriptor);

	if (!m)
		return NULL;
	st->ids[i] = id;
	r->m.jobs[i] = m;
	m->traffic = new_traffic(r);
	m->waiting = new_histogram(r);
	m->summing = new_histogram(r);
	m->sending = new_histogram(r);
	m->world_size = world_size;
	m->ranks = status_reply_messages(r, &reduction__v1__rank_status__descriptor, world_size);
	for (uint32_t rank = 0; m->ranks && rank < world_size; rank++) {
		m->ranks[rank]->rank = rank;
		m->ranks[rank]->silent_ms = UINT32_MAX;
		m->ranks[rank]->traffic = new_traffic(r);
	}
	return r->failed ? NULL : m;
}

void status_free(struct status *st)
{
	if (st)
		status_reply_free(&st->reply);
	free(st);
}

static uint64_t most(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static void add_traffic(Reduction__V1__Traffic *to, const struct lane_count *total, const struct lane_count *second)
{
	to->bytes_in += total->bytes_in;
	to->bytes_out += total->bytes_out;
	to->chunks += total->chunks;
	to->bytes_in_per_s += second->bytes_in;
	to->bytes_out_per_s += second->bytes_out;
	to->chunks_per_s += second->chunks;
}

static void add_times(Reduction__V1__Histogram *to, const struct lane_times *t)
{
	for (unsigned i = 0; i < TIMES_BUCKETS; i++)
		to->counts[i] += t->n[i];
	to->sum_us += t->sum_us;
}

/* Lanes run in parallel, so waiting on several of them at the same time counts once. */
static void add_session(Reduction__V1__JobStatus *job, const struct lane_report_session *s)
{
	Reduction__V1__RankStatus *rank = job->ranks[s->rank];
	uint64_t waited_ms = s->second.waited_ms < UINT32_MAX ? s->second.waited_ms : UINT32_MAX;

	add_traffic(job->traffic, &s->total, &s->second);
	add_traffic(rank->traffic, &s->total, &s->second);
	job->served_us += s->total.served_ns / 1000;
	job->served_permil += (uint32_t)(s->second.served_ns / 1000) /* until finish_job */;
	job->weight = s->weight > job->weight ? s->weight : job->weight;
	job->nan_operations += s->total.nan_operations;
	job->infinite_operations += s->total.infinite_operations;
	rank->waited_ms = most(rank->waited_ms, s->total.waited_ms);
	rank->waited_permil = (uint32_t)most(rank->waited_permil, waited_ms);
	rank->late_ms += (double)s->second.late_ms;
	rank->last_chunks += s->total.last_chunks;
	rank->retransmits += s->total.retransmits;
	rank->outstanding += s->outstanding;
	rank->rtt_us = s->rtt_us > rank->rtt_us ? s->rtt_us : rank->rtt_us;
	rank->min_rtt_us = s->min_rtt_us > rank->min_rtt_us ? s->min_rtt_us : rank->min_rtt_us;
	rank->silent_ms = s->silent_ms < rank->silent_ms ? s->silent_ms : rank->silent_ms;
	rank->missing_ms = s->missing_ms > rank->missing_ms ? s->missing_ms : rank->missing_ms;
}

/* Adds a connection of a relay. Waiting on several at the same time counts once. */
static void add_relay(struct status_reply *r, Reduction__V1__JobStatus *job, const struct lane_report_relay *from)
{
	uint64_t second_ms = from->second_waited_ms < UINT32_MAX ? from->second_waited_ms : UINT32_MAX;
	Reduction__V1__RelayStatus *to;

	if (!job->relays)
		job->relays = status_reply_take(r, RS_REDUCERS_MAX * sizeof(*job->relays));
	if (!job->relays || from->reducer >= RS_REDUCERS_MAX)
		return;
	to = job->relays[from->reducer];
	if (!to)
		to = status_reply_message(r, &reduction__v1__relay_status__descriptor);
	if (!to)
		return;
	to->reducer = status_reply_text(r, from->id);
	to->waited_ms = most(to->waited_ms, from->waited_ms);
	to->waited_permil = (uint32_t)most(to->waited_permil, second_ms) /* until finish_job */;
	to->min_rtt_us = (uint32_t)most(to->min_rtt_us, from->min_rtt_us);
	job->relays[from->reducer] = to;
}

/* A loss counts from the lane that has known it for the longest time. */
static void add_loss(struct status_reply *r, Reduction__V1__JobStatus *job, const struct lane_report_loss *from)
{
	Reduction__V1__LostReducer *to;

	if (!job->lost)
		job->lost = status_reply_take(r, job->reducers * sizeof(*job->lost));
	if (!job->lost || from->index >= job->reducers)
		return;
	to = job->lost[from->index];
	if (to && from->for_ms <= to->for_ms)
		return;
	if (!to)
		to = status_reply_message(r, &reduction__v1__lost_reducer__descriptor);
	if (!to)
		return;
	to->index = from->index;
	to->for_ms = from->for_ms;
	to->losses = from->losses;
	to->id = status_reply_text(r, from->id);
	to->why = status_reply_text(r, from->why);
	to->narrow = from->narrow;
	to->empty = from->empty;
	job->lost[from->index] = to;
}

/* The lane that knows the last change counts. What a rank says on another lane may have
 * another number of reducers: the first lane's counts. */
static void add_shares(struct status_reply *r, Reduction__V1__JobStatus *job, const struct lane_report *report,
		       const struct lane_report_stripe *stripe)
{
	if (stripe->epoch <= job->share_changes || stripe->reducers != job->reducers)
		return;
	if (!job->shares)
		job->shares = status_reply_take(r, job->reducers * sizeof(*job->shares));
	if (!job->shares)
		return;
	job->share_changes = stripe->epoch;
	job->n_shares = stripe->reducers;
	memcpy(job->shares, report->shares + stripe->shares, job->n_shares * sizeof *job->shares);
}

static void add_stripe(struct status *st, const struct lane_report *report, const struct lane_report_stripe *stripe)
{
	Reduction__V1__JobStatus *job;
	size_t i = 0;

	while (i < st->reply.m.n_jobs && st->ids[i] != stripe->job)
		i++;
	if (i == st->reply.m.n_jobs)
		return;
	job = st->reply.m.jobs[i];
	job->chunks += stripe->chunks;
	job->encoded_chunks += stripe->encoded;
	if (stripe->encoded) {
		job->up = (char *)rs_wire_name(stripe->up);
		job->down = (char *)rs_wire_name(stripe->down);
	}
	job->slots += stripe->slots;
	job->slots_used += stripe->slots_used;
	add_times(job->waiting, &stripe->times.waiting);
	add_times(job->summing, &stripe->times.summing);
	add_times(job->sending, &stripe->times.sending);
	job->operations = most(job->operations, stripe->operations);
	if (!job->reducers)
		job->reducers = stripe->reducers;
	add_shares(&st->reply, job, report, stripe);
	for (unsigned k = 0; k < stripe->losses_n; k++)
		add_loss(&st->reply, job, &report->losses[stripe->losses + k]);
	for (unsigned k = 0; k < stripe->sessions_n; k++)
		add_session(job, &report->sessions[stripe->sessions + k]);
	for (unsigned k = 0; k < stripe->relays_n; k++)
		add_relay(&st->reply, job, &report->relays[stripe->relays + k]);
}

void status_add(struct status *st, const struct lane_report *report)
{
	Reduction__V1__LaneStatus *lane = st->reply.m.lanes[report->thread];

	lane->connections = report->sessions_n;
	lane->busy_permil = report->busy_permil;
	lane->starved_permil = report->starved_permil;
	add_traffic(lane->traffic, &report->total, &report->second);
	st->reply.m.second_ms = (uint32_t)most(st->reply.m.second_ms, report->second_ms);
	for (unsigned i = 0; i < report->stripes_n; i++)
		add_stripe(st, report, &report->stripes[i]);
}

static uint64_t rate(uint64_t n, uint32_t second_ms)
{
	return second_ms ? n * 1000 / second_ms : 0;
}

static uint32_t permil(uint32_t n, uint32_t of)
{
	uint64_t p = rate(n, of);

	return p < 1000 ? (uint32_t)p : 1000;
}

static void finish_traffic(Reduction__V1__Traffic *t, uint32_t second_ms)
{
	t->bytes_in_per_s = rate(t->bytes_in_per_s, second_ms);
	t->bytes_out_per_s = rate(t->bytes_out_per_s, second_ms);
	t->chunks_per_s = rate(t->chunks_per_s, second_ms);
}

/* Names the rank for which the others wait most, too. */
static void finish_job(Reduction__V1__JobStatus *job, uint32_t second_ms)
{
	uint32_t longest = 0;

	finish_traffic(job->traffic, second_ms);
	job->served_permil = (uint32_t)(rate(job->served_permil, second_ms) / 1000);
	for (unsigned i = 0; i < job->world_size; i++) {
		Reduction__V1__RankStatus *rank = job->ranks[i];

		if (rank->waited_permil > longest) {
			longest = rank->waited_permil;
			job->latest_rank = i;
		}
		rank->waited_permil = permil(rank->waited_permil, second_ms);
		rank->late_ms = rank->traffic->chunks_per_s ? rank->late_ms / (double)rank->traffic->chunks_per_s : 0;
		rank->silent_ms = rank->silent_ms < UINT32_MAX ? rank->silent_ms : 0;
		finish_traffic(rank->traffic, second_ms);
	}
	job->latest_permil = permil(longest, second_ms);
	for (unsigned i = 0; job->relays && i < RS_REDUCERS_MAX; i++)
		if (job->relays[i]) {
			job->relays[i]->waited_permil = permil(job->relays[i]->waited_permil, second_ms);
			job->relays[job->n_relays++] = job->relays[i];
		}
	for (unsigned i = 0; job->lost && i < job->reducers; i++)
		if (job->lost[i])
			job->lost[job->n_lost++] = job->lost[i];
}

struct status_reply *status_finish(struct status *st)
{
	Reduction__V1__StatusReply *m = &st->reply.m;

	for (size_t i = 0; i < m->n_lanes; i++)
		finish_traffic(m->lanes[i]->traffic, m->second_ms);
	for (size_t i = 0; i < m->n_jobs; i++)
		finish_job(m->jobs[i], m->second_ms);
	return &st->reply;
}
