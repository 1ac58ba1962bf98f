/* SPDX-License-Identifier: Apache-2.0 */
#include "deploy/ctl/doctor.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const action_refused = "deploy/troubleshooting.md, \"A job does not start\", has what to do for "
					  "each reason; events --past has all of them";
static const char *const action_narrow = "check the MTU and the filters of the path: deploy/troubleshooting.md, "
					 "\"Small messages pass and large ones do not\"";
static const char *const action_ended =
    "look at the process that the reason names, and at its log; deploy/troubleshooting.md, \"Errors\"";

/* Returns the value of a field; "" if the event does not have it. */
static const char *field(const Reduction__V1__Event *ev, const char *key)
{
	for (size_t i = 0; i < ev->n_fields; i++)
		if (strcmp(ev->fields[i]->key, key) == 0)
			return ev->fields[i]->value;
	return "";
}

static void remove_end(struct doctor_past *p, unsigned i)
{
	p->ends_n--;
	memmove(&p->ends[i], &p->ends[i + 1], (p->ends_n - i) * sizeof p->ends[0]);
}

/* A job begins: how those of this name ended before does not matter any more. */
static void take_start(struct doctor_past *p, const Reduction__V1__Event *ev)
{
	for (unsigned i = p->ends_n; i-- > 0;)
		if (strcmp(p->ends[i].job, field(ev, "job")) == 0 && p->ends[i].unix_ms <= ev->unix_ms)
			remove_end(p, i);
}

static struct past_end end_of(const Reduction__V1__Event *ev, const char *reason)
{
	struct past_end end = {.unix_ms = ev->unix_ms, .narrow = strcmp(field(ev, "narrow"), "1") == 0};

	snprintf(end.job, sizeof end.job, "%s", field(ev, "job"));
	snprintf(end.generation, sizeof end.generation, "%s", field(ev, "generation"));
	snprintf(end.reason, sizeof end.reason, "%s", reason);
	return end;
}

/* The first reason is the cause of the later ones. */
static void take_end(struct doctor_past *p, const Reduction__V1__Event *ev)
{
	struct past_end end = end_of(ev, field(ev, "reason"));

	if (ev->unix_ms < p->now_ms - PAST_MS)
		return;
	if (!end.reason[0])
		snprintf(end.reason, sizeof end.reason,
			 "its ranks left before all had joined: %.12s of %.12s were there", field(ev, "joined"),
			 field(ev, "world_size"));
	for (unsigned i = 0; i < p->ends_n; i++)
		if (strcmp(p->ends[i].job, end.job) == 0 && strcmp(p->ends[i].generation, end.generation) == 0)
			return;
	if (p->ends_n == PAST_ENDS)
		remove_end(p, 0);
	p->ends[p->ends_n++] = end;
}

/* The record of a job that has ended. */
static void take_record(struct doctor_past *p, const Reduction__V1__Event *ev)
{
	const char *how = field(ev, "ended");

	if (!how[0]) /* an older release has no records */
		return;
	if (ev->unix_ms >= p->last.unix_ms)
		p->last = end_of(ev, how);
	if (strcmp(how, "finished") != 0 && strcmp(how, "left") != 0)
		take_end(p, ev);
}

/* All ranks of a job have joined: those that were refused before, too. */
static void forget_refusals(struct doctor_past *p, const char *job)
{
	for (unsigned i = p->refusals_n; i-- > 0;)
		if (strcmp(p->refusals[i].job, job) == 0) {
			p->refusals_n--;
			memmove(&p->refusals[i], &p->refusals[i + 1], (p->refusals_n - i) * sizeof p->refusals[0]);
		}
}

static void take_refusal(struct doctor_past *p, const Reduction__V1__Event *ev)
{
	const char *job = field(ev, "job");
	struct past_refusal *r;
	unsigned n = 0;

	if (ev->unix_ms < p->now_ms - PAST_MS)
		return;
	for (unsigned i = 0; i < p->refusals_n; i++)
		if (strcmp(p->refusals[i].job, job) == 0)
			n = p->refusals[i].n;
	forget_refusals(p, job);
	if (p->refusals_n == PAST_REFUSALS)
		memmove(&p->refusals[0], &p->refusals[1], --p->refusals_n * sizeof p->refusals[0]);
	r = &p->refusals[p->refusals_n++];
	*r = (struct past_refusal){.n = n + 1, .unix_ms = ev->unix_ms};
	snprintf(r->job, sizeof r->job, "%s", job);
	snprintf(r->peer, sizeof r->peer, "%s", field(ev, "peer"));
	snprintf(r->why, sizeof r->why, "%s", field(ev, "reason"));
}

void doctor_past_event(struct doctor_past *p, const Reduction__V1__Event *ev)
{
	if (strcmp(ev->name, "job-opened") == 0) {
		take_start(p, ev);
	} else if (strcmp(ev->name, "job-closed") == 0) {
		take_record(p, ev);
	} else if (strcmp(ev->name, "rank-lost") == 0 || strcmp(ev->name, "job-aborted") == 0 ||
		   strcmp(ev->name, "job-incomplete") == 0) {
		take_end(p, ev);
	} else if (strcmp(ev->name, "job-started") == 0) {
		forget_refusals(p, field(ev, "job"));
	} else if (strcmp(ev->name, "connection-refused") == 0) {
		take_refusal(p, ev);
	}
}

static double seconds_ago(const struct doctor_past *p, int64_t unix_ms)
{
	return p->now_ms > unix_ms ? (double)(p->now_ms - unix_ms) / 1e3 : 0;
}

void doctor_past_end(const struct doctor_past *p, struct findings *all, const char *name, const char *job)
{
	char what[80], evidence[440];

	for (unsigned i = 0; i < p->ends_n; i++) {
		const struct past_end *end = &p->ends[i];

		if (job && strcmp(job, end->job) != 0)
			continue;
		snprintf(what, sizeof what, "generation %.12s has ended%s", end->generation,
			 end->narrow ? ": large messages did not get through" : "");
		snprintf(evidence, sizeof evidence, "%.0f s ago: %s", seconds_ago(p, end->unix_ms), end->reason);
		doctor_fact(all, &(struct fact){end->narrow ? "reducer-path" : "job-ended", 600, name, end->job, what,
						evidence, end->narrow ? action_narrow : action_ended});
	}
	for (unsigned i = 0; i < p->refusals_n; i++) {
		const struct past_refusal *r = &p->refusals[i];

		if (job && r->job[0] && strcmp(job, r->job) != 0)
			continue;
		snprintf(evidence, sizeof evidence, "%u time%s in %u min, %.0f s ago %.60s: %s", r->n,
			 r->n == 1 ? "" : "s", PAST_MS / 60000, seconds_ago(p, r->unix_ms), r->peer, r->why);
		doctor_fact(all, &(struct fact){"refused", p->now_ms - r->unix_ms < REFUSED_MS ? 700 : 120, name,
						r->job, "workers are refused", evidence, action_refused});
	}
}
