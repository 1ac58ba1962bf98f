/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a plan's text that are about racks. */
#include "deploy/ctl/plan/print.h"

#include "config/value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Most names of a rack in a line; the others are counted. */
enum { NAMES_MAX = 6 };

static unsigned reducers_in(const struct plan_net *net, unsigned place)
{
	unsigned n = 0;

	for (unsigned i = 0; i < net->rack[place].machines_n; i++)
		n += net->machine[net->order[net->rack[place].first + i]].reducers;
	return n;
}

static double relayed_in(const struct plan *p, unsigned place)
{
	const struct plan_rack *rack = &p->net.rack[place];
	unsigned n = 0;

	for (unsigned i = 0; i < rack->machines_n; i++)
		for (unsigned r = 0; r < p->reducers_n; r++)
			n += p->on[r] == p->net.order[rack->first + i] ? p->relayed[r] : 0;
	return (double)n / p->shards;
}

/* Writes the name of a place: that of the group of the file, or of the one that the plan
 * makes. */
static void format_place(const struct plan_page *g, unsigned place, char *buf, size_t size)
{
	if (place == g->p->net.racks_n)
		snprintf(buf, size, "spine");
	else if (g->cfg->groups_n == g->p->net.racks_n)
		snprintf(buf, size, "%s", g->cfg->groups[place].name);
	else
		snprintf(buf, size, "rack-%u", place);
}

/* Names that are listed in a line: the first ones, then how many more. */
struct names {
	FILE *out;
	unsigned n;
};

static void add_name(struct names *names, const char *name)
{
	if (names->n < NAMES_MAX)
		fprintf(names->out, names->n ? ", %s" : "%s", name);
	names->n++;
}

static void end_names(const struct names *names)
{
	if (names->n > NAMES_MAX)
		fprintf(names->out, " and %u more", names->n - NAMES_MAX);
}

static void print_place(const struct plan_page *g, unsigned place)
{
	const struct plan *p = g->p;
	const struct plan_rack *rack = &p->net.rack[place];
	struct names names = {.out = g->out};
	char name[RS_NAME_MAX];

	format_place(g, place, name, sizeof name);
	fprintf(g->out, "%s  %s: ", g->prefix, name);
	for (unsigned i = 0; i < rack->machines_n; i++)
		if (p->net.machine[p->net.order[rack->first + i]].workers)
			add_name(&names, p->net.machine[p->net.order[rack->first + i]].host);
	end_names(&names);
	fputs(names.n ? "; reducers " : "reducers ", g->out);
	names.n = 0;
	for (unsigned i = 0; i < rack->machines_n; i++)
		for (unsigned r = 0; r < p->reducers_n; r++)
			if (p->on[r] == p->net.order[rack->first + i])
				add_name(&names, g->cfg->reducers[r].id);
	end_names(&names);
	fputs(names.n ? "\n" : "none\n", g->out);
}

void plan_print_places(const struct plan_page *g)
{
	const struct plan_net *net = &g->p->net;
	char rate[32];

	if (net->racks_n == 1)
		return;
	value_format_rate((uint64_t)(net->uplink * 8 + 0.5), rate, sizeof rate);
	fprintf(g->out, "%s%s %u racks, each joined to the others with %s\n", g->prefix,
		net->machine[0].in ? "in the groups of the file," : "spread evenly over", net->racks_n, rate);
	for (unsigned q = 0; q < net->places_n; q++)
		print_place(g, q);
}

static bool are_alike(const struct plan *p, unsigned a, unsigned b)
{
	return p->net.rack[a].workers == p->net.rack[b].workers && reducers_in(&p->net, a) == reducers_in(&p->net, b) &&
	       fabs(plan_rack_share(&p->net, a, p->share) - plan_rack_share(&p->net, b, p->share)) < 1e-9 &&
	       fabs(p->uplink[a] - p->uplink[b]) < 1e-9;
}

/* Racks that are alike and follow each other share a line. */
void plan_print_racks(const struct plan_page *g)
{
	const struct plan_net *net = &g->p->net;
	char first[RS_NAME_MAX], last[RS_NAME_MAX];

	for (unsigned r = 0, next; net->racks_n > 1 && r < net->places_n; r = next) {
		struct plan_row row = {.first = first,
				       .last = last,
				       .rate = r < net->racks_n ? net->uplink : 0,
				       .share = plan_rack_share(net, r, g->p->share),
				       .relayed = relayed_in(g->p, r),
				       .load = g->p->uplink[r],
				       .workers = net->rack[r].workers,
				       .reducers = reducers_in(net, r)};

		for (next = r + 1; next < net->racks_n && are_alike(g->p, r, next); next++)
			;
		format_place(g, r, first, sizeof first);
		format_place(g, next - 1, last, sizeof last);
		plan_print_row(g, &row);
	}
}

static void print_way(const struct plan_page *g, const char *name, const struct plan_cost *way)
{
	char time[32], leave[32];

	if (way->time <= 0)
		return;
	plan_format_time(way->time, time, sizeof time);
	plan_format_bytes(way->leave, leave, sizeof leave);
	fprintf(g->out, "%s  %-46s %9s %8.3fx %12s", g->prefix, name, time, way->uplink, leave);
	if (g->p->price_uplink > 0)
		fprintf(g->out, " %10.*f", way->price < 1000 ? 2 : 0, way->price);
	fputc('\n', g->out);
}

void plan_print_ways(const struct plan_page *g)
{
	static const char *const names[PLAN_WAYS] = {"a ring, rack by rack", "a ring in random order, on average",
						     "a 2-D ring, pipelined", "reducers without relays",
						     "reducers with relays"};
	const struct plan *p = g->p;

	if (p->net.racks_n == 1 || p->least == 0)
		return;
	fprintf(g->out, "%s\n%s  %-46s %9s %9s %12s%s\n", g->prefix[0] ? "#" : "", g->prefix, "between racks", "time",
		"uplink", "leaves racks", p->price_uplink > 0 ? "  1000 cost" : "");
	for (unsigned i = 0; i < PLAN_WAYS; i++)
		print_way(g, names[i], &p->way[i]);
}
