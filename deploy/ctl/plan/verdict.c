/* SPDX-License-Identifier: Apache-2.0 */
/* The verdict of a plan: whether reducers help, as a sentence. */
#include "deploy/ctl/plan/relays.h"

#include "config/value.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

/* A smaller gain of a whole training step does not justify machines. */
static const double step_gain_min = 1.05;

const char *plan_reason_name(enum plan_reason reason)
{
	static const char *const names[] = {
	    [PLAN_ONE_MACHINE] = "one-machine", [PLAN_RING_IS_LEAST] = "ring-is-least",
	    [PLAN_SLOWER] = "slower-than-ring", [PLAN_COMPUTE_BOUND] = "compute-bound",
	    [PLAN_TOO_DEAR] = "too-dear",       [PLAN_IF_NOT_HIDDEN] = "if-not-hidden",
	    [PLAN_FASTER] = "faster",
	};

	return names[reason];
}

void plan_format_time(double seconds, char *buf, size_t size)
{
	if (seconds < 999.5e-6)
		snprintf(buf, size, "%.3g us", seconds * 1e6);
	else if (seconds < 999.5e-3)
		snprintf(buf, size, "%.3g ms", seconds * 1e3);
	else
		snprintf(buf, size, seconds < 999.5 ? "%.3g s" : "%.0f s", seconds);
}

/* Takes powers of 1024 where they are whole, else powers of 1000. */
void plan_format_bytes(double bytes, char *buf, size_t size)
{
	static const char *const names[] = {"B", "KiB", "MiB", "GiB", "kB", "MB", "GB"};
	unsigned unit = 0;

	while (bytes >= 1024 && unit < 3 && fmod(bytes, 1024) == 0) {
		bytes /= 1024;
		unit++;
	}
	if (bytes >= 10000) {
		while (unit > 0) {
			bytes *= 1024;
			unit--;
		}
		for (unit = 3; bytes >= 999.5 && unit < 6; unit++)
			bytes /= 1000;
	}
	snprintf(buf, size, bytes < 999.5 ? "%.3g %s" : "%.0f %s", bytes, names[unit]);
}

/* A sentence under construction; what does not fit is cut. */
struct sentence {
	char *text;
	size_t size, len;
};

static void say(struct sentence *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void say(struct sentence *s, const char *fmt, ...)
{
	va_list args;

	if (s->len >= s->size)
		return;
	va_start(args, fmt);
	s->len += (size_t)vsnprintf(s->text + s->len, s->size - s->len, fmt, args);
	va_end(args);
}

static void say_time(struct sentence *s, double seconds)
{
	char text[32];

	plan_format_time(seconds, text, sizeof text);
	say(s, "%s", text);
}

/* Says "3 to 5 %", or "5 %" if both are alike. */
static void say_percents(struct sentence *s, double a, double b)
{
	if (lround(a) == lround(b))
		say(s, "%.0f %%", fabs(a) < 0.5 ? 0 : a);
	else
		say(s, "%ld to %ld %%", lround(fmin(a, b)), lround(fmax(a, b)));
}

static void say_machines(struct sentence *s, const struct plan *p, unsigned n)
{
	char rate[32];

	value_format_rate((uint64_t)(p->needed_rate * 8 + 0.5), rate, sizeof rate);
	say(s, "%u reducer%s on %s of %s own (%s)", n, n == 1 ? "" : "s", n == 1 ? "a machine" : "machines",
	    n == 1 ? "its" : "their", rate);
}

/* Adds what would make it faster, or as fast with less, if anything would. */
static void say_advice(struct sentence *s, const struct plan *p)
{
	if (p->reason == PLAN_SLOWER && p->needed_ring) {
		say(s, "; it takes at least ");
		say_machines(s, p, p->needed_ring);
		say(s, " to be faster, and more than %u do not help", p->needed_least);
	} else if (p->reason == PLAN_SLOWER) {
		say(s, "; no number of reducers on machines of their own is faster");
	} else if (p->needed_same && p->dedicated_n > p->needed_same) {
		say(s, "; ");
		say_machines(s, p, p->needed_same);
		say(s, " suffice%s for this time", p->needed_same == 1 ? "s" : "");
	} else if (p->needed_least > p->dedicated_n && p->least * plan_gain_min < p->time) {
		say(s, "; ");
		say_machines(s, p, p->needed_least);
		say(s, " would be fastest");
	}
	if (p->mixed * plan_gain_min < fmin(p->time, p->ring)) {
		say(s, "; reducers on all workers' machines too (mixed mode) would take ");
		say_time(s, p->mixed);
	}
}

/* Adds what relays do, or why there are none. */
static void say_relays(struct sentence *s, const struct plan *p)
{
	if (p->relay) {
		say(s, "; reducers relay for their racks: without relays it takes ");
		say_time(s, p->flat);
	} else if (p->no_relays) {
		say(s, "; no relays were considered: %s", p->no_relays);
	} else if (p->may_relay) {
		say(s, "; relays in the racks would not be faster");
		if (plan_loads_uplinks(&p->net, p->uplink) <= plan_loads_links(&p->net, p->load) * (1 + plan_slack))
			say(s, ": the uplinks are no busier than the machines' links");
	}
	if (p->at_spine > 0 && p->at_spine * plan_gain_min < fmin(p->time, p->ring)) {
		say(s, "; with %u of the reducers' machines at the spine (--spine %u) it would take ", p->spine_n,
		    p->spine_n);
		say_time(s, p->at_spine);
	}
}

static void say_ring_is_least(struct sentence *s, const struct plan *p)
{
	say(s, "no: do not use reducers here: with %u workers %s already takes the least time that is possible, ",
	    p->net.workers, p->ring_name);
	say_time(s, p->ring);
}

static void say_slower(struct sentence *s, const struct plan *p)
{
	double uplinks = plan_loads_uplinks(&p->net, p->uplink), machines = plan_loads_links(&p->net, p->load);

	say(s, "no: do not use reducers here: ");
	say(s, p->reducers_n == 1 ? "one reducer takes " : "%u reducers take ", p->reducers_n);
	say_time(s, p->time);
	say(s, ", %s of the workers ", p->ring_name);
	say_time(s, p->ring);
	if (uplinks > machines)
		say(s, "; each rack's uplink carries %.3g times the gradients each way, with a ring %.3g times",
		    uplinks * p->net.uplink, plan_ring(&p->net, 1) / plan_least(&p->net));
	say_relays(s, p);
	say_advice(s, p);
}

/* Returns by how many percent a step is faster with reducers. */
static double step_gain(const struct plan *p, enum plan_overlap overlap)
{
	return 100 * (p->steps[overlap].ring / p->steps[overlap].reducers - 1);
}

/* Returns by how many percent a step is cheaper with reducers. */
static double saving(const struct plan *p, enum plan_overlap overlap)
{
	return 100 * (1 - p->cost[overlap].reducers / p->cost[overlap].ring);
}

static void say_compute_bound(struct sentence *s, const struct plan *p)
{
	say(s, "no: the step of ");
	say_time(s, p->step);
	say(s, " is compute-bound, the all-reduce takes ");
	say_time(s, p->time);
	say(s, " (%s ", p->ring_name);
	say_time(s, p->ring);
	say(s, "), which makes a step at most %.1f %% faster", step_gain(p, PLAN_NO_OVERLAP));
}

/* Returns the computing time of a step, without overlap, below which reducers are worth
 * their price; below 0: always too dear. */
static double break_even(const struct plan *p)
{
	double workers = (p->net.machines_n - p->dedicated_n) * p->price_worker;
	double reducers = p->dedicated_n * p->price_reducer;

	return reducers > 0 ? (workers * (p->ring - p->time) - reducers * p->time) / reducers : INFINITY;
}

static void say_too_dear(struct sentence *s, const struct plan *p)
{
	say(s, "no: reducers are not worth their price: ");
	if (p->step == 0) {
		say(s, "the all-reduce is %.2f times as fast as %s, but the machines cost %.2f times as much",
		    p->ring / p->time, p->ring_name,
		    1 + p->dedicated_n * p->price_reducer / ((p->net.machines_n - p->dedicated_n) * p->price_worker));
		return;
	}
	say(s, "a step is ");
	say_percents(s, step_gain(p, PLAN_NO_OVERLAP), step_gain(p, PLAN_FULL_OVERLAP));
	say(s, " faster, but costs ");
	say_percents(s, -saving(p, PLAN_NO_OVERLAP), -saving(p, PLAN_FULL_OVERLAP));
	say(s, " more");
}

/* Adds whether reducers are worth their price. */
static void say_price(struct sentence *s, const struct plan *p)
{
	double none = saving(p, PLAN_NO_OVERLAP), full = saving(p, PLAN_FULL_OVERLAP);

	if (p->price_worker == 0)
		return;
	if (p->step == 0) {
		if (isfinite(break_even(p))) {
			say(s, "; worth the price if a step computes for less than ");
			say_time(s, break_even(p));
		}
	} else if (none > 0 && full > 0) {
		say(s, "; worth the price: a step costs ");
		say_percents(s, none, full);
		say(s, " less");
	} else {
		say(s, "; worth the price only if the all-reduce %s: a step costs ",
		    none > 0 ? "overlaps little with computing" : "overlaps with computing");
		say(s, "%.0f %% %s without overlap, %.0f %% %s with full overlap", fabs(none),
		    none > 0 ? "less" : "more", fabs(full), full > 0 ? "less" : "more");
	}
}

/* Adds the gain for a training step. The all-reduce may overlap completely with
 * computing, or not at all; the gain is between these bounds. */
static void say_faster(struct sentence *s, const struct plan *p)
{
	say(s, p->reason == PLAN_FASTER ? "yes: the all-reduce takes "
					: "yes, unless it overlaps with computing anyway: the all-reduce takes ");
	say_time(s, p->time);
	say(s, ", %.2f times as fast as %s (", p->ring / p->time, p->ring_name);
	say_time(s, p->ring);
	say(s, ")");
	say_relays(s, p);
	if (p->step == 0) {
		say(s, "; --step adds the gain for a training step");
	} else {
		say(s, "; a step that computes for ");
		say_time(s, p->step);
		say(s, " is ");
		say_percents(s, step_gain(p, PLAN_NO_OVERLAP), step_gain(p, PLAN_FULL_OVERLAP));
		say(s, " faster");
	}
	if (p->needs.cores_least > p->needs.lanes)
		say(s,
		    "; only if the reducers' processors keep up: each needs %.2g to %.2g cores, its %u lane%s can use "
		    "%u",
		    p->needs.cores_least, p->needs.cores_most, p->needs.lanes, p->needs.lanes == 1 ? "" : "s",
		    p->needs.lanes);
	say_price(s, p);
	say_advice(s, p);
}

static bool is_too_dear(const struct plan *p)
{
	if (p->price_worker == 0)
		return false;
	if (p->step == 0)
		return break_even(p) <= 0;
	return saving(p, PLAN_NO_OVERLAP) <= 0 && saving(p, PLAN_FULL_OVERLAP) <= 0;
}

static enum plan_reason find_reason(const struct plan *p)
{
	if (p->least == 0)
		return PLAN_ONE_MACHINE;
	if (p->ring <= p->least * (1 + plan_slack))
		return PLAN_RING_IS_LEAST;
	if (p->time * plan_gain_min > p->ring)
		return PLAN_SLOWER;
	if (p->step > 0 && step_gain(p, PLAN_NO_OVERLAP) < 100 * (step_gain_min - 1))
		return PLAN_COMPUTE_BOUND;
	if (is_too_dear(p))
		return PLAN_TOO_DEAR;
	return p->step >= p->ring ? PLAN_IF_NOT_HIDDEN : PLAN_FASTER;
}

void plan_verdict(struct plan *p)
{
	struct sentence s = {.text = p->verdict, .size = sizeof p->verdict};

	p->reason = find_reason(p);
	switch (p->reason) {
	case PLAN_ONE_MACHINE:
		say(&s, "no: all %u workers are on one machine, where an all-reduce needs no network", p->net.workers);
		break;
	case PLAN_RING_IS_LEAST:
		say_ring_is_least(&s, p);
		break;
	case PLAN_SLOWER:
		say_slower(&s, p);
		break;
	case PLAN_COMPUTE_BOUND:
		say_compute_bound(&s, p);
		break;
	case PLAN_TOO_DEAR:
		say_too_dear(&s, p);
		break;
	case PLAN_IF_NOT_HIDDEN:
	case PLAN_FASTER:
		say_faster(&s, p);
		break;
	}
}
