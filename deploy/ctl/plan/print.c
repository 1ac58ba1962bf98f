/* SPDX-License-Identifier: Apache-2.0 */
/* Output of a plan as text, which may precede the map in a file if it is made of
 * comments. */
#include "deploy/ctl/plan/print.h"

#include "config/value.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static void print_encodings(const struct plan_page *g)
{
	const struct plan *p = g->p;
	char sent[32], ring[32];

	plan_format_bytes(p->sent, sent, sizeof sent);
	plan_format_bytes(p->elements, ring, sizeof ring);
	fprintf(g->out, ", sent as %s of %s", sent, rs_wire_name(p->up));
	if (p->up != p->down)
		fprintf(g->out, " up and %s down", rs_wire_name(p->down));
	fprintf(g->out, " (%s: %s)", p->ring_name, ring);
}

static void print_head(const struct plan_page *g)
{
	const struct plan *p = g->p;
	char size[32], sent[32];

	plan_format_bytes((double)p->bytes, size, sizeof size);
	plan_format_bytes(p->sent, sent, sizeof sent);
	fprintf(g->out, "%sall-reduce of %s", g->prefix, size);
	if (p->up || p->down)
		print_encodings(g);
	else if (p->elements != (double)p->bytes)
		fprintf(g->out, ", sent as %s of %s%s", sent, p->sent == p->elements ? "" : "float32 for sums of ",
			g->cfg->plan.wire == RS_PLAN_BF16 ? "bf16" : "fp16");
	fprintf(g->out, ", %u workers", p->net.workers);
	if (p->ranks > 1)
		fprintf(g->out, " with %u ranks each", p->ranks);
	fprintf(g->out, ", %u reducer%s, %u machines\n", p->reducers_n, p->reducers_n == 1 ? "" : "s",
		p->net.machines_n);
	if (rs_config_has_slots(g->cfg))
		fprintf(g->out,
			"%swith a reducer in all of its slots; the job starts with %u: --reducers %u predicts that\n",
			g->prefix, g->cfg->job.min_reducers, g->cfg->job.min_reducers);
	plan_print_places(g);
}

static void print_row(const struct plan_page *g, const char *what, struct plan_pair of, const char *gain)
{
	char ring[32] = "", reducers[32] = "";

	if (of.ring > 0)
		plan_format_time(of.ring, ring, sizeof ring);
	if (of.reducers > 0)
		plan_format_time(of.reducers, reducers, sizeof reducers);
	fprintf(g->out, "%s  %-46s %9s", g->prefix, what, ring);
	if (of.reducers > 0)
		fprintf(g->out, " %9s", reducers);
	fprintf(g->out, gain[0] ? "  %s\n" : "\n", gain);
}

/* Writes "5 % faster", or which of two words applies. */
static void format_percent(double percent, const char *above, const char *below, char *buf, size_t size)
{
	if (fabs(percent) < 0.5)
		snprintf(buf, size, "the same");
	else
		snprintf(buf, size, "%.0f %% %s", fabs(percent), percent > 0 ? above : below);
}

static void print_steps(const struct plan_page *g)
{
	static const char *const steps[] = {"step, if nothing overlaps with computing",
					    "step, if all of it overlaps with computing"};
	static const char *const prices[] = {"price of 1000 steps, if nothing overlaps",
					     "price of 1000 steps, if all of it overlaps"};
	const struct plan *p = g->p;
	char gain[32];

	for (unsigned i = 0; p->step > 0 && i < PLAN_OVERLAPS; i++) {
		format_percent(100 * (p->steps[i].ring / p->steps[i].reducers - 1), "faster", "slower", gain,
			       sizeof gain);
		print_row(g, steps[i], p->steps[i], gain);
	}
	for (unsigned i = 0; p->cost[0].ring > 0 && i < PLAN_OVERLAPS; i++) {
		format_percent(100 * (p->cost[i].reducers / p->cost[i].ring - 1), "more", "less", gain, sizeof gain);
		fprintf(g->out, "%s  %-46s %9.*f %9.*f  %s\n", g->prefix, prices[i], p->cost[i].ring < 1000 ? 2 : 0,
			p->cost[i].ring, p->cost[i].reducers < 1000 ? 2 : 0, p->cost[i].reducers, gain);
	}
}

static void print_times(const struct plan_page *g)
{
	const struct plan *p = g->p;
	char text[64] = "";

	fprintf(g->out, "%s  %-46s %9s %9s\n", g->prefix, "", "ring", "reducers");
	if (p->time > 0 && p->ring > 0)
		snprintf(text, sizeof text, "%.2f times as fast", p->ring / p->time);
	print_row(g, "all-reduce", (struct plan_pair){p->ring, p->time}, text);
	if (p->ranks > 1) {
		snprintf(text, sizeof text, "all-reduce, ring of all %u ranks (gloo)", p->ranks * p->net.workers);
		print_row(g, text, (struct plan_pair){p->ring_ranks, 0}, "");
	}
	if (p->dedicated > 0 && p->dedicated > p->optimum * (1 + 1e-6))
		print_row(g, "all-reduce, only machines without workers reduce", (struct plan_pair){0, p->dedicated},
			  "");
	if (p->mixed * (1 + 1e-6) < p->optimum)
		print_row(g, "all-reduce, all workers' machines reduce too", (struct plan_pair){0, p->mixed}, "");
	print_row(g, "all-reduce, the least that is possible", (struct plan_pair){p->least, p->least}, "");
	print_steps(g);
}

static void print_unused(const struct plan_page *g)
{
	unsigned n = 0;

	for (unsigned i = 0; i < g->p->reducers_n; i++) {
		if (g->p->count[i] || g->p->relayed[i])
			continue;
		if (n++ == 0)
			fprintf(g->out, "%snot used, may be left out of the list of reducers: ", g->prefix);
		fprintf(g->out, n == 1 ? "%s" : ", %s", g->cfg->reducers[i].id);
	}
	if (n)
		fputc('\n', g->out);
}

static void print_needs(const struct plan_page *g)
{
	const struct plan_needs *needs = &g->p->needs;
	double mib = (double)needs->memory / (1 << 20);

	fprintf(g->out, "%seach reducer: ", g->prefix);
	if (needs->cores_most < 0.1)
		fputs("less than 0.1 cores", g->out);
	else
		fprintf(g->out, "%.2g to %.2g cores", needs->cores_least, needs->cores_most);
	fprintf(g->out, " while it sums, %.3g %s of memory for this job\n", mib < 1000 ? mib : mib / 1024,
		mib < 1000 ? "MiB" : "GiB");
	fprintf(g->out, "%s  measured: %.1f to %.1f CPU s for each GiB that workers send (bench/README.md)\n",
		g->prefix, needs->cpu_least, needs->cpu_most);
	if (g->p->ranks > 1)
		fprintf(g->out, "%snot included: the time in which a node sums its %u ranks\n", g->prefix, g->p->ranks);
}

static void print_decoupled(const struct plan_page *g)
{
	const struct plan_needs *needs = &g->p->needs;
	char retained[32];

	if (!needs->ahead)
		return;
	plan_format_bytes((double)needs->retained, retained, sizeof retained);
	fprintf(g->out, "%s  decoupled ranks: up to %u chunks without a result on a lane", g->prefix, needs->ahead);
	if (needs->retained)
		fprintf(g->out, "; each worker: %s for retained results", retained);
	fputc('\n', g->out);
	if (needs->memory > g->cfg->server.memory_bytes)
		fprintf(g->out, "%s  server.memory is too little: reducers refuse this job\n", g->prefix);
}

/* Writes each part of the verdict on a line. */
static void print_verdict(const struct plan_page *g)
{
	const char *text = g->p->verdict, *end;

	for (; (end = strstr(text, "; ")); text = end + 2)
		fprintf(g->out, "%s%s%.*s\n", g->prefix, text == g->p->verdict ? "" : "  ", (int)(end - text), text);
	fprintf(g->out, "%s%s%s\n%s\n", g->prefix, text == g->p->verdict ? "" : "  ", text, g->prefix[0] ? "#" : "");
}

void plan_print(const struct plan *p, const struct rs_config *cfg, const char *prefix, FILE *out)
{
	struct plan_page g = {p, cfg, prefix, out};

	print_verdict(&g);
	print_head(&g);
	print_times(&g);
	plan_print_ways(&g);
	fprintf(out, "%s\n", prefix[0] ? "#" : "");
	plan_print_machines(&g);
	plan_print_racks(&g);
	print_unused(&g);
	print_needs(&g);
	print_decoupled(&g);
	plan_print_far(p, cfg, prefix, out);
}
