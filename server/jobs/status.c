/* SPDX-License-Identifier: Apache-2.0 */
#include "server/jobs/status.h"

#include "common/utf8.h"

#include <stdlib.h>
#include <string.h>

static const char *const state_names[STATUS_STATES] = {"gathering", "running", "draining", "ended"};

const char *status_state_name(enum status_state state)
{
	return (unsigned)state < STATUS_STATES ? state_names[state] : "state?";
}

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

const char *status_refusal_name(enum status_refusal reason)
{
	static const char *const names[STATUS_REFUSALS] = {"policy", "mismatch", "protocol", "other"};

	return (unsigned)reason < STATUS_REFUSALS ? names[reason] : "reason?";
}

struct status *status_new(unsigned jobs, unsigned lanes)
{
	struct status *st = calloc(1, sizeof *st);

	if (!st)
		return NULL;
	/* one more, so that an empty array is not NULL */
	st->jobs = calloc((size_t)jobs + 1, sizeof *st->jobs);
	st->lanes = calloc((size_t)lanes + 1, sizeof *st->lanes);
	st->jobs_n = jobs;
	st->lanes_n = lanes;
	if (st->jobs && st->lanes)
		return st;
	status_free(st);
	return NULL;
}

bool status_job_ranks(struct status_job *job)
{
	job->ranks = calloc((size_t)job->world_size + 1, sizeof *job->ranks);
	for (unsigned r = 0; job->ranks && r < job->world_size; r++)
		job->ranks[r].silent_ms = UINT32_MAX;
	return job->ranks;
}

void status_free(struct status *st)
{
	if (!st)
		return;
	for (unsigned i = 0; st->jobs && i < st->jobs_n; i++) {
		free(st->jobs[i].ranks);
		free(st->jobs[i].losses);
	}
	free(st->jobs);
	free(st->lanes);
	free(st);
}

static uint64_t most(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Adds counts of two lanes. They run in parallel, so waiting on both at the same time counts once. */
static void add_beside(struct lane_count *to, const struct lane_count *c)
{
	uint64_t waited_ms = most(to->waited_ms, c->waited_ms);

	lane_count_add(to, c);
	to->waited_ms = waited_ms;
}

static void add_session(struct status_job *job, const struct lane_report_session *s)
{
	struct status_rank *rank = &job->ranks[s->rank];

	add_beside(&rank->total, &s->total);
	add_beside(&rank->second, &s->second);
	rank->outstanding += s->outstanding;
	rank->rtt_us = s->rtt_us > rank->rtt_us ? s->rtt_us : rank->rtt_us;
	rank->silent_ms = s->silent_ms < rank->silent_ms ? s->silent_ms : rank->silent_ms;
	rank->missing_ms = s->missing_ms > rank->missing_ms ? s->missing_ms : rank->missing_ms;
	add_beside(&job->total, &s->total);
	add_beside(&job->second, &s->second);
}

static void add_loss(struct status_job *job, const struct lane_report_loss *from)
{
	struct status_loss *to;

	if (!job->losses)
		job->losses = calloc(job->reducers, sizeof *job->losses);
	if (!job->losses || from->index >= job->reducers)
		return;
	to = &job->losses[from->index];
	if (to->lost && from->for_ms <= to->for_ms)
		return;
	*to = (struct status_loss){.lost = true, .for_ms = from->for_ms};
	memcpy(to->id, from->id, sizeof to->id);
	memcpy(to->why, from->why, sizeof to->why);
	rs_utf8_clean(to->id);
	rs_utf8_clean(to->why);
}

static void add_stripe(struct status *st, const struct lane_report *report, const struct lane_report_stripe *stripe)
{
	struct status_job *job = st->jobs;

	while (job < st->jobs + st->jobs_n && job->id != stripe->job)
		job++;
	if (job == st->jobs + st->jobs_n)
		return;
	job->chunks += stripe->chunks;
	job->slots += stripe->slots;
	job->slots_used += stripe->slots_used;
	lane_times_add(&job->times.waiting, &stripe->times.waiting);
	lane_times_add(&job->times.summing, &stripe->times.summing);
	lane_times_add(&job->times.sending, &stripe->times.sending);
	job->operations = most(job->operations, stripe->operations);
	if (!job->reducers)
		job->reducers = stripe->reducers;
	for (unsigned i = 0; i < stripe->losses_n; i++)
		add_loss(job, &report->losses[stripe->losses + i]);
	for (unsigned i = 0; i < stripe->sessions_n; i++)
		add_session(job, &report->sessions[stripe->sessions + i]);
}

void status_add(struct status *st, const struct lane_report *report)
{
	struct status_lane *lane = &st->lanes[report->thread];

	lane->connections = report->sessions_n;
	lane->busy_permil = report->busy_permil;
	lane->starved_permil = report->starved_permil;
	lane->total = report->total;
	lane->second = report->second;
	st->second_ms = report->second_ms > st->second_ms ? report->second_ms : st->second_ms;
	for (unsigned i = 0; i < report->stripes_n; i++)
		add_stripe(st, report, &report->stripes[i]);
}
