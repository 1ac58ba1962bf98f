/* SPDX-License-Identifier: Apache-2.0 */
/* Output of a plan: YAML comments, which may precede the map in a file, and JSON. */
#include "config/plan/plan.h"

#include "config/value.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Returns the part of the all-reduce's time in which a machine's link is busy, each way. */
static double busy(const struct plan *p, unsigned m)
{
	if (p->time == 0)
		return 0;
	return plan_load(&p->net, m, p->share[m]) / p->net.machine[m].rate * (double)p->bytes / p->time;
}

static bool is_bottleneck(const struct plan *p, unsigned m)
{
	return busy(p, m) > 1 - 1e-6;
}

static uint64_t bits(double rate)
{
	return (uint64_t)(rate * 8 + 0.5);
}

/* Machines with equal links that have one worker and no reducer share a line. Returns the last machine like m. */
static unsigned last_alike(const struct plan *p, unsigned m)
{
	const struct plan_machine *machine = p->net.machine;
	unsigned last = m;

	while (last + 1 < p->net.machines_n && machine[m].reducers == 0 && machine[last + 1].reducers == 0 &&
	       machine[last + 1].workers == machine[m].workers && machine[last + 1].rate == machine[m].rate)
		last++;
	return last;
}

static void print_time(const char *what, double seconds, FILE *out)
{
	char text[32];

	plan_format_time(seconds, text, sizeof text);
	fprintf(out, "#   %-46s %9s\n", what, text);
}

static void print_machine(const struct plan *p, unsigned m, FILE *out)
{
	const struct plan_machine *machine = &p->net.machine[m];
	unsigned last = last_alike(p, m);
	double load = plan_load(&p->net, m, p->share[m]);
	char name[64], rate[32];

	if (last > m)
		snprintf(name, sizeof name, "%.28s .. %.28s", machine->host, p->net.machine[last].host);
	else
		snprintf(name, sizeof name, "%.63s", machine->host);
	value_format_rate(bits(machine->rate), rate, sizeof rate);
	fprintf(out, "#   %-24s %9s %7u %8u %7.2f%% %6.3f %6.3f %4.0f%%%s\n", name, rate, machine->workers,
		machine->reducers, 100 * p->share[m], load, load, 100 * busy(p, m),
		is_bottleneck(p, m) ? "  bottleneck" : "");
}

/* Writes the machines whose links limit the time, as "r0.cluster and 3 more". */
static void print_bottleneck(const struct plan *p, FILE *out)
{
	unsigned first = 0, n = 0;

	for (unsigned m = 0; m < p->net.machines_n; m++)
		if (is_bottleneck(p, m) && n++ == 0)
			first = m;
	fprintf(out, "# bottleneck: the link%s of %s", n > 1 ? "s" : "", p->net.machine[first].host);
	if (n > 1)
		fprintf(out, " and %u more", n - 1);
	fputc('\n', out);
}

static void print_unused(const struct plan *p, const struct rs_config *cfg, FILE *out)
{
	unsigned n = 0;

	for (unsigned i = 0; i < p->reducers_n; i++)
		if (p->count[i] == 0)
			fprintf(out, n++ ? ", %s" : "# not used, may be left out of the list of reducers: %s",
				cfg->reducers[i].id);
	if (n)
		fputc('\n', out);
}

void plan_print(const struct plan *p, const struct rs_config *cfg, FILE *out)
{
	char size[32];

	value_format_bytes(p->bytes, size, sizeof size);
	fprintf(out, "# all-reduce of %s, %u workers, %u reducer%s, %u machines\n", size, p->net.workers, p->reducers_n,
		p->reducers_n == 1 ? "" : "s", p->net.machines_n);
	print_time("with this shard map", p->time, out);
	print_time("at best, if a shard could be divided", p->optimum, out);
	if (p->dedicated > 0 && p->dedicated > p->optimum * (1 + 1e-6))
		print_time("only the reducers on machines without workers", p->dedicated, out);
	if (p->mixed * (1 + 1e-6) < p->optimum)
		print_time("reducers on all workers' machines too (mixed)", p->mixed, out);
	print_time("ring of the workers", p->ring, out);
	print_time("least possible, S over the slowest worker link", p->least, out);
	fprintf(out, "# verdict: %s\n", p->verdict);
	fprintf(out, "#\n#   %-24s %9s %7s %8s %8s %6s %6s %5s\n", "machine", "link", "workers", "reducers", "shards",
		"in/S", "out/S", "busy");
	for (unsigned m = 0; m < p->net.machines_n; m = last_alike(p, m) + 1)
		print_machine(p, m, out);
	print_bottleneck(p, out);
	print_unused(p, cfg, out);
}

/* Writes seconds, or null for a value that does not exist. */
static void json_seconds(const char *key, double seconds, FILE *out)
{
	if (seconds > 0)
		fprintf(out, "\"%s\":%.9g,", key, seconds);
	else
		fprintf(out, "\"%s\":null,", key);
}

static void json_count(const char *key, unsigned n, const char *end, FILE *out)
{
	if (n)
		fprintf(out, "\"%s\":%u%s", key, n, end);
	else
		fprintf(out, "\"%s\":null%s", key, end);
}

static void json_machines(const struct plan *p, FILE *out)
{
	fputs("\"machines\":[", out);
	for (unsigned m = 0; m < p->net.machines_n; m++) {
		const struct plan_machine *machine = &p->net.machine[m];
		double load = plan_load(&p->net, m, p->share[m]);

		fprintf(out,
			"%s{\"host\":\"%s\",\"bandwidth\":%" PRIu64 ",\"workers\":%u,\"reducers\":%u,\"share\":%.9g,"
			"\"in_over_S\":%.9g,\"out_over_S\":%.9g,\"busy\":%.6g,\"bottleneck\":%s}",
			m ? "," : "", machine->host, bits(machine->rate), machine->workers, machine->reducers,
			p->share[m], load, load, busy(p, m), is_bottleneck(p, m) ? "true" : "false");
	}
	fputs("],", out);
}

static void json_reducers(const struct plan *p, const struct rs_config *cfg, FILE *out)
{
	fputs("\"reducers\":[", out);
	for (unsigned i = 0; i < p->reducers_n; i++)
		fprintf(out, "%s{\"id\":\"%s\",\"host\":\"%s\",\"shards\":%u}", i ? "," : "", cfg->reducers[i].id,
			p->net.machine[p->on[i]].host, p->count[i]);
	fputs("],\"owner\":[", out);
	for (unsigned s = 0; s < p->shards; s++)
		fprintf(out, "%s\"%s\"", s ? "," : "", cfg->reducers[p->owner[s]].id);
	fputs("]", out);
}

/* Names and sentences need no escapes: the table of keys accepts no quotes, backslashes or control characters in them.
 */
void plan_print_json(const struct plan *p, const struct rs_config *cfg, FILE *out)
{
	fprintf(out, "{\"bytes\":%" PRIu64 ",\"workers\":%u,\"shards\":%u,", p->bytes, p->net.workers, p->shards);
	json_seconds("step_s", p->step, out);
	json_seconds("time_s", p->time, out);
	json_seconds("optimum_s", p->optimum, out);
	json_seconds("dedicated_s", p->dedicated, out);
	json_seconds("mixed_s", p->mixed, out);
	json_seconds("ring_s", p->ring, out);
	json_seconds("least_s", p->least, out);
	if (p->time > 0 && p->ring > 0)
		fprintf(out, "\"speedup\":%.6g,", p->ring / p->time);
	else
		fputs("\"speedup\":null,", out);
	fprintf(out, "\"needed\":{\"bandwidth\":%" PRIu64 ",", bits(p->needed_rate));
	json_count("to_beat_ring", p->needed_ring, ",", out);
	json_count("to_reach_least", p->needed_least, "},", out);
	fprintf(out, "\"verdict\":{\"helps\":%s,\"reason\":\"%s\",\"text\":\"%s\"},",
		p->reason >= PLAN_IF_NOT_HIDDEN ? "true" : "false", plan_reason_name(p->reason), p->verdict);
	json_machines(p, out);
	json_reducers(p, cfg, out);
	fputs("}\n", out);
}
