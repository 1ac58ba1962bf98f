/* SPDX-License-Identifier: Apache-2.0 */
/* The table of links in a plan's text. */
#include "deploy/ctl/plan/print.h"

#include "config/value.h"

#include <math.h>
#include <string.h>

static bool limits(const struct plan *p, double load, double rate)
{
	return p->time > 0 && load / rate * p->sent > p->time * (1 - 1e-6);
}

static bool is_alike(const struct plan *p, unsigned a, unsigned b)
{
	const struct plan_machine *first = &p->net.machine[a], *second = &p->net.machine[b];

	return first->workers == second->workers && first->reducers == second->reducers &&
	       first->rate == second->rate && fabs(p->share[a] - p->share[b]) < 1e-9 &&
	       fabs(p->load[a] - p->load[b]) < 1e-9;
}

/* Returns the last of the machines from m on that are like m. */
static unsigned last_alike(const struct plan *p, unsigned m)
{
	unsigned last = m;

	while (last + 1 < p->net.machines_n && is_alike(p, m, last + 1))
		last++;
	return last;
}

void plan_print_row(const struct plan_page *g, const struct plan_row *row)
{
	double busy = row->rate > 0 && g->p->time > 0 ? row->load / row->rate * g->p->sent / g->p->time : 0;
	char name[64], rate[32] = "";

	if (strcmp(row->first, row->last) != 0)
		snprintf(name, sizeof name, "%.28s .. %.28s", row->first, row->last);
	else
		snprintf(name, sizeof name, "%.63s", row->first);
	if (row->rate > 0)
		value_format_rate((uint64_t)(row->rate * 8 + 0.5), rate, sizeof rate);
	fprintf(g->out, "%s  %-26s %9s %7u %8u %7.2f%%", g->prefix, name, rate, row->workers, row->reducers,
		100 * row->share);
	if (g->p->relay)
		fprintf(g->out, " %7.2f%%", 100 * row->relayed);
	fprintf(g->out, " %7.3fx", row->load);
	if (row->rate > 0)
		fprintf(g->out, " %4.0f%%%s", 100 * busy, limits(g->p, row->load, row->rate) ? "  bottleneck" : "");
	fputc('\n', g->out);
}

static double relayed_on(const struct plan *p, unsigned m)
{
	unsigned n = 0;

	for (unsigned i = 0; i < p->reducers_n; i++)
		n += p->on[i] == m ? p->relayed[i] : 0;
	return (double)n / p->shards;
}

void plan_print_machines(const struct plan_page *g)
{
	const struct plan *p = g->p;

	fprintf(g->out, "%s  %-26s %9s %7s %8s %8s", g->prefix, "machine", "link", "workers", "reducers", "shards");
	fprintf(g->out, p->relay ? " %8s %8s %5s\n" : "%.0s %8s %5s\n", "relayed", "each way", "busy");
	for (unsigned m = 0, last; m < p->net.machines_n; m = last + 1) {
		const struct plan_machine *machine = &p->net.machine[m];
		struct plan_row row = {.first = machine->host,
				       .rate = machine->rate,
				       .share = p->share[m],
				       .relayed = relayed_on(p, m),
				       .load = p->load[m],
				       .workers = machine->workers,
				       .reducers = machine->reducers};

		last = last_alike(p, m);
		row.last = p->net.machine[last].host;
		plan_print_row(g, &row);
	}
}
