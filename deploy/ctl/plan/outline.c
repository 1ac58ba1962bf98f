/* SPDX-License-Identifier: Apache-2.0 */
/* What can be said without the number of workers or the bandwidth: times relative to that
 * of one link, if all links are equal. */
#include "deploy/ctl/plan/places.h"
#include "deploy/ctl/plan/plan.h"

#include <math.h>

/* Numbers of workers that are shown if there is none. */
static const unsigned usual[] = {2, 4, 8, 16, 32, 64};

enum { USUAL_N = sizeof usual / sizeof usual[0] };

/* Times relative to S divided by the links' rate, and numbers of reducers; 0: no number
 * suffices. */
struct outline {
	unsigned workers, reducers;
	double ring, time, mixed;
	unsigned to_beat_ring, to_reach_least;
};

static struct outline outline_of(unsigned n, unsigned k)
{
	struct outline o = {.workers = n, .reducers = k};
	double workers = n;

	o.ring = 2 * (workers - 1) / workers;
	o.time = plan_equal_time(n, k, 0);
	o.mixed = plan_equal_time(n, k, n);
	if (o.ring >= plan_gain_min) {
		o.to_beat_ring = (unsigned)ceil(workers / (o.ring / plan_gain_min) * (1 - plan_slack));
		o.to_reach_least = n;
	}
	return o;
}

static unsigned workers_of(const struct rs_config *cfg)
{
	return cfg->plan.workers ? cfg->plan.workers : cfg->workers_n;
}

bool plan_is_outline(const struct rs_config *cfg)
{
	bool known = cfg->plan.bandwidth > 0, all = known;

	for (unsigned i = 0; i < cfg->workers_n; i++)
		known = known || cfg->workers[i].bandwidth;
	for (unsigned i = 0; i < cfg->reducers_n; i++)
		known = known || cfg->reducers[i].bandwidth;
	return plan_racks(cfg) == 1 && (!known || (workers_of(cfg) == 0 && all));
}

/* Returns the i-th row; false after the last one. */
static bool row_of(const struct rs_config *cfg, bool as_many, unsigned i, struct outline *ret)
{
	unsigned given = workers_of(cfg), n = given >= 2 ? given : i < USUAL_N ? usual[i] : 0;

	if (n == 0 || (given >= 2 && i > 0))
		return false;
	*ret = outline_of(n, as_many ? n : cfg->reducers_n);
	return true;
}

static void print_count(unsigned n, FILE *out)
{
	if (n)
		fprintf(out, "  %5u reducer%s", n, n == 1 ? " " : "s");
	else
		fprintf(out, "  %14s", "never");
}

void plan_outline_print(const struct rs_config *cfg, bool as_many, FILE *out)
{
	bool workers = workers_of(cfg) >= 2, bandwidth = cfg->plan.bandwidth > 0;
	struct outline o;
	char head[32];

	fputs("Time of an all-reduce, in units of the time that one link needs for the gradients, if all links are "
	      "equal:\n\n",
	      out);
	if (as_many)
		snprintf(head, sizeof head, "as many reducers");
	else
		snprintf(head, sizeof head, "%u reducer%s", cfg->reducers_n, cfg->reducers_n == 1 ? "" : "s");
	fprintf(out, "  %7s  %5s  %16s  %5s  %14s  %14s\n", "workers", "ring", head, "mixed", "faster than a",
		"no faster");
	fprintf(out, "  %7s  %5s  %16s  %5s  %14s  %14s\n", "", "", "", "", "ring from", "from");
	for (unsigned i = 0; row_of(cfg, as_many, i, &o); i++) {
		fprintf(out, "  %7u  %5.2f  %16.2f  %5.2f", o.workers, o.ring, o.time, o.mixed);
		print_count(o.to_beat_ring, out);
		print_count(o.to_reach_least, out);
		fputc('\n', out);
	}
	fprintf(out, "\nmixed: with one more reducer on each worker's machine\n");
	fprintf(out, "For times, a verdict and the shard map add %s%s%s,\nor %s%s%s to the file.\n",
		workers ? "" : "--workers N", workers || bandwidth ? "" : " and ", bandwidth ? "" : "--bandwidth RATE",
		workers ? "" : "plan.workers", workers || bandwidth ? "" : " and ", bandwidth ? "" : "plan.bandwidth");
}

void plan_outline_print_json(const struct rs_config *cfg, bool as_many, FILE *out)
{
	struct outline o;

	fputs("{\"relative\":[", out);
	for (unsigned i = 0; row_of(cfg, as_many, i, &o); i++)
		fprintf(
		    out,
		    "%s{\"workers\":%u,\"reducers\":%u,\"ring\":%.9g,\"time\":%.9g,\"mixed\":%.9g,\"to_beat_ring\":%u,"
		    "\"to_reach_least\":%u}",
		    i ? "," : "", o.workers, o.reducers, o.ring, o.time, o.mixed, o.to_beat_ring, o.to_reach_least);
	fprintf(out, "],\"missing\":[%s%s%s]}\n", workers_of(cfg) >= 2 ? "" : "\"workers\"",
		workers_of(cfg) >= 2 || cfg->plan.bandwidth ? "" : ",", cfg->plan.bandwidth ? "" : "\"bandwidth\"");
}
