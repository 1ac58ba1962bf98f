/* SPDX-License-Identifier: Apache-2.0 */
/* The verdict of a plan: whether reducers help, as a sentence. */
#include "config/plan/plan.h"

#include "config/value.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

/* Gains below these factors do not justify machines: against a ring, and of a whole training step. */
static const double ring_gain_min = 1.02, step_gain_min = 1.05;

/* Tolerance for quotients that are exactly 1. */
static const double slack = 1e-9;

const char *plan_reason_name(enum plan_reason reason)
{
	static const char *const names[] = {
	    [PLAN_ONE_MACHINE] = "one-machine",     [PLAN_RING_IS_LEAST] = "ring-is-least",
	    [PLAN_SLOWER] = "slower-than-ring",     [PLAN_COMPUTE_BOUND] = "compute-bound",
	    [PLAN_IF_NOT_HIDDEN] = "if-not-hidden", [PLAN_FASTER] = "faster",
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

/* Computes how many machines that only reduce would be needed: counted in the best of those that exist, or in machines
 * with the slowest link of the workers. */
static void count_needed(struct plan *p)
{
	double rate = 0, slowest = INFINITY, workers = 0, bytes = (double)p->bytes, beat, least;

	for (unsigned m = 0; m < p->net.machines_n; m++) {
		const struct plan_machine *machine = &p->net.machine[m];

		if (machine->workers == 0) {
			rate = fmax(rate, machine->rate);
			continue;
		}
		slowest = fmin(slowest, machine->rate);
		workers = fmax(workers, machine->workers / machine->rate * bytes);
	}
	p->needed_rate = rate > 0 ? rate : slowest;
	p->needed_ring = p->needed_least = 0;
	if (workers * ring_gain_min > p->ring) /* the workers' own traffic takes as long as a ring */
		return;
	beat = p->net.workers * bytes / (p->needed_rate * p->ring / ring_gain_min);
	least = p->net.workers * bytes / (p->needed_rate * workers);
	p->needed_ring = (unsigned)fmin(ceil(beat * (1 - slack)), 1e9);
	p->needed_least = (unsigned)fmin(ceil(least * (1 - slack)), 1e9);
}

/* Adds what would make it faster, if anything would. */
static void say_advice(struct sentence *s, const struct plan *p)
{
	bool mixed = p->mixed * ring_gain_min < fmin(p->time, p->ring);
	char rate[32];

	value_format_rate((uint64_t)(p->needed_rate * 8 + 0.5), rate, sizeof rate);
	if (p->reason == PLAN_SLOWER && p->needed_ring)
		say(s,
		    "; it takes at least %u machine%s of %s that only reduce to be faster, %u for the least possible "
		    "time",
		    p->needed_ring, p->needed_ring == 1 ? "" : "s", rate, p->needed_least);
	else if (p->needed_least && p->least * ring_gain_min < p->time)
		say(s, "; %u machine%s of %s that only reduce would bring it to the least possible", p->needed_least,
		    p->needed_least == 1 ? "" : "s", rate);
	if (!mixed)
		return;
	say(s, "; reducers on all workers' machines too (mixed mode) would take ");
	say_time(s, p->mixed);
}

static void say_ring_is_least(struct sentence *s, const struct plan *p)
{
	say(s, "no: with %u workers a ring already takes the least time that is possible, ", p->net.workers);
	say_time(s, p->ring);
}

static void say_slower(struct sentence *s, const struct plan *p)
{
	say(s, "no: ");
	say(s, p->reducers_n == 1 ? "one reducer takes " : "%u reducers take ", p->reducers_n);
	say_time(s, p->time);
	say(s, ", a ring of the workers ");
	say_time(s, p->ring);
	say_advice(s, p);
}

static void say_compute_bound(struct sentence *s, const struct plan *p, double gain)
{
	say(s, "no: the step of ");
	say_time(s, p->step);
	say(s, " is compute-bound, the all-reduce takes ");
	say_time(s, p->time);
	say(s, " (a ring ");
	say_time(s, p->ring);
	say(s, "), which makes a step at most %.1f %% faster", 100 * (gain - 1));
}

/* Adds the gain for a training step. The all-reduce may overlap completely with computing, or not at all; the gain is
 * between these bounds. */
static void say_faster(struct sentence *s, const struct plan *p, double gain)
{
	double hidden = fmax(p->step, p->ring) / fmax(p->step, p->time);

	say(s, p->reason == PLAN_FASTER ? "yes: the all-reduce takes "
					: "yes, to the extent that the all-reduce does not overlap with "
					  "computing: it takes ");
	say_time(s, p->time);
	say(s, ", %.2f times as fast as a ring (", p->ring / p->time);
	say_time(s, p->ring);
	say(s, ")");
	if (p->step == 0) {
		say(s, "; --step adds the gain for a training step");
	} else {
		say(s, "; a step that computes for ");
		say_time(s, p->step);
		say(s, " is %.0f to %.0f %% faster", 100 * (fmin(gain, hidden) - 1), 100 * (fmax(gain, hidden) - 1));
	}
	say_advice(s, p);
}

void plan_verdict(struct plan *p)
{
	struct sentence s = {.text = p->verdict, .size = sizeof p->verdict};
	double gain = (p->step + p->ring) / (p->step + p->time); /* of a step, without overlap */

	count_needed(p);
	if (p->least == 0) {
		p->reason = PLAN_ONE_MACHINE;
		say(&s, "no: all %u workers are on one machine, where an all-reduce needs no network", p->net.workers);
	} else if (p->ring <= p->least * (1 + slack)) {
		p->reason = PLAN_RING_IS_LEAST;
		say_ring_is_least(&s, p);
	} else if (p->time * ring_gain_min > p->ring) {
		p->reason = PLAN_SLOWER;
		say_slower(&s, p);
	} else if (p->step > 0 && gain < step_gain_min) {
		p->reason = PLAN_COMPUTE_BOUND;
		say_compute_bound(&s, p, gain);
	} else if (p->step >= p->ring) {
		p->reason = PLAN_IF_NOT_HIDDEN;
		say_faster(&s, p, gain);
	} else {
		p->reason = PLAN_FASTER;
		say_faster(&s, p, gain);
	}
}
