/* SPDX-License-Identifier: Apache-2.0 */
/* Output of a plan as JSON. Names and sentences need no escapes: the table of keys
 * accepts no quotes, backslashes or control characters in them. */
#include "deploy/ctl/plan/plan.h"

#include <inttypes.h>

/* Writes a number, or null for a value that does not exist. */
static void json_number(const char *key, double value, FILE *out)
{
	if (value > 0)
		fprintf(out, "\"%s\":%.9g,", key, value);
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

static void json_pair(const char *key, struct plan_pair pair, FILE *out)
{
	if (pair.ring > 0)
		fprintf(out, "\"%s\":{\"ring\":%.9g,\"reducers\":%.9g},", key, pair.ring, pair.reducers);
	else
		fprintf(out, "\"%s\":null,", key);
}

static void json_training(const struct plan *p, FILE *out)
{
	fprintf(out,
		"{\"bytes\":%" PRIu64
		",\"sent_bytes\":%.0f,\"ring_bytes\":%.0f,\"workers\":%u,\"ranks_per_node\":%u,\"racks_n\":%u,",
		p->bytes, p->sent, p->elements, p->net.workers, p->ranks, p->net.racks_n);
	fprintf(out, "\"shards\":%u,", p->shards);
	json_number("step_s", p->step, out);
	json_number("time_s", p->time, out);
	json_number("optimum_s", p->optimum, out);
	json_number("flat_s", p->flat, out);
	json_number("dedicated_s", p->dedicated, out);
	json_number("mixed_s", p->mixed, out);
	json_number("ring_s", p->ring, out);
	json_number("ring_of_ranks_s", p->ring_ranks, out);
	json_number("least_s", p->least, out);
	json_number("speedup", p->time > 0 ? p->ring / p->time : 0, out);
	json_pair("step_no_overlap_s", p->steps[PLAN_NO_OVERLAP], out);
	json_pair("step_full_overlap_s", p->steps[PLAN_FULL_OVERLAP], out);
	json_pair("price_1000_steps_no_overlap", p->cost[PLAN_NO_OVERLAP], out);
	json_pair("price_1000_steps_full_overlap", p->cost[PLAN_FULL_OVERLAP], out);
}

static void json_needs(const struct plan *p, FILE *out)
{
	const struct plan_needs *needs = &p->needs;

	fprintf(out, "\"needed\":{\"bandwidth\":%.0f,", p->needed_rate * 8);
	json_count("to_beat_ring", p->needed_ring, ",", out);
	json_count("to_reach_least", p->needed_least, ",", out);
	json_count("for_this_time", p->needed_same, "},", out);
	if (needs->ahead)
		fprintf(out, "\"decoupled\":{\"chunks\":%u,\"retained_bytes\":%" PRIu64 "},", needs->ahead,
			needs->retained);
	fprintf(out,
		"\"each_reducer\":{\"cores\":[%.4g,%.4g],\"cpu_s_per_GiB\":[%.2g,%.2g],\"lanes\":%u,\"memory_bytes\":"
		"%" PRIu64 "},",
		needs->cores_least, needs->cores_most, needs->cpu_least, needs->cpu_most, needs->lanes, needs->memory);
}

/* Writes what is common to a machine's link and a rack's uplink. */
static void json_link(const struct plan *p, unsigned workers, double share, double load, double rate, FILE *out)
{
	double busy = p->time > 0 ? load / rate * p->sent / p->time : 0;

	fprintf(out,
		"\"bandwidth\":%.0f,\"workers\":%u,\"share\":%.9g,\"in_over_S\":%.9g,\"out_over_S\":%.9g,\"busy\":%.6g,"
		"\"bottleneck\":%s}",
		rate * 8, workers, share, load, load, busy, busy > 1 - 1e-6 ? "true" : "false");
}

static void json_links(const struct plan *p, FILE *out)
{
	const struct plan_net *net = &p->net;

	fputs("\"machines\":[", out);
	for (unsigned m = 0; m < net->machines_n; m++) {
		fprintf(out, "%s{\"host\":\"%s\",\"reducers\":%u,", m ? "," : "", net->machine[m].host,
			net->machine[m].reducers);
		json_link(p, net->machine[m].workers, p->share[m], p->load[m], net->machine[m].rate, out);
	}
	fputs("],\"racks\":[", out);
	for (unsigned r = 0; net->racks_n > 1 && r < net->racks_n; r++) {
		fprintf(out, "%s{\"machines\":%u,", r ? "," : "", net->rack[r].machines_n);
		json_link(p, net->rack[r].workers, plan_rack_share(net, r, p->share), p->uplink[r], net->uplink, out);
	}
	fputs("],", out);
}

static void json_reducers(const struct plan *p, const struct rs_config *cfg, FILE *out)
{
	fputs("\"reducers\":[", out);
	for (unsigned i = 0; i < p->reducers_n; i++)
		fprintf(out, "%s{\"id\":\"%s\",\"host\":\"%s\",\"shards\":%u,\"relayed\":%u}", i ? "," : "",
			cfg->reducers[i].id, p->net.machine[p->on[i]].host, p->count[i], p->relayed[i]);
	fputs("],\"owner\":[", out);
	for (unsigned s = 0; s < p->shards; s++)
		fprintf(out, "%s\"%s\"", s ? "," : "", cfg->reducers[p->owner[s]].id);
	fputs("]", out);
}

static void json_way(const char *key, const struct plan_cost *way, FILE *out)
{
	fprintf(out, "\"%s\":", key);
	if (way->time <= 0) {
		fputs("null", out);
		return;
	}
	fprintf(out, "{\"time_s\":%.9g,\"uplink_over_S\":%.9g,\"leave_racks_bytes\":%.0f,\"price_1000\":", way->time,
		way->uplink, way->leave);
	fprintf(out, way->price > 0 ? "%.9g}" : "null}", way->price);
}

/* Writes which reducer relays which shard for which group: the group's name, and a list
 * with an id or null for each shard. */
static void json_relays(const struct plan *p, const struct rs_config *cfg, FILE *out)
{
	fputs("\"relays\":{", out);
	for (unsigned g = 0; p->relay && g < p->net.racks_n; g++) {
		fprintf(out, "%s\"%s\":[", g ? "," : "", cfg->groups[g].name);
		for (unsigned s = 0; s < p->shards; s++) {
			unsigned relay = p->relay[(size_t)g * p->shards + s];

			if (relay == RS_NO_RELAY)
				fputs(s ? ",null" : "null", out);
			else
				fprintf(out, "%s\"%s\"", s ? "," : "", cfg->reducers[relay].id);
		}
		fputs("]", out);
	}
	fputs("},", out);
}

/* Writes what is known if there are racks. */
static void json_racks(const struct plan *p, const struct rs_config *cfg, FILE *out)
{
	static const char *const keys[PLAN_WAYS] = {"ring", "random_ring", "ring_2d", "flat", "relays"};

	if (p->net.racks_n == 1) {
		fputs("\"ways\":null,\"relays\":null,", out);
		return;
	}
	fputs("\"ways\":{", out);
	for (unsigned i = 0; i < PLAN_WAYS; i++) {
		fputs(i ? "," : "", out);
		json_way(keys[i], &p->way[i], out);
	}
	fputs("},", out);
	json_count("spine_would_have", p->spine_n, ",", out);
	json_number("at_spine_s", p->at_spine, out);
	json_relays(p, cfg, out);
}

void plan_print_json(const struct plan *p, const struct rs_config *cfg, FILE *out)
{
	json_training(p, out);
	json_needs(p, out);
	plan_print_far_json(p, out);
	fprintf(out, "\"verdict\":{\"helps\":%s,\"reason\":\"%s\",\"text\":\"%s\"},",
		p->reason >= PLAN_IF_NOT_HIDDEN ? "true" : "false", plan_reason_name(p->reason), p->verdict);
	json_links(p, out);
	json_racks(p, cfg, out);
	json_reducers(p, cfg, out);
	fputs("}\n", out);
}
