/* SPDX-License-Identifier: Apache-2.0 */
/* Sharded training: what reduce-scatters and all-gathers take on a network.
 *
 * n workers own a part of S bytes each. For a reduce-scatter through reducers a worker
 * sends S and gets its part, S / n. For an all-gather it sends its part and gets the
 * others, (n - 1) / n S. So one direction is idle in each of them, and both at once take
 * (1 + 1 / n) S. A ring sends (n - 1) / n S for each, in both directions. What is
 * gathered has the dtype of the parameters, as in a ring; only reduce-scatters are
 * encoded. */
#include "deploy/ctl/plan/plan.h"

#include <math.h>
#include <string.h>

static const char *const plan_sharded_names[PLAN_SHARDED_NR] = {
    [PLAN_FSDP] = "fsdp", [PLAN_ZERO1] = "zero1", [PLAN_ZERO2] = "zero2", [PLAN_ZERO3] = "zero3", [PLAN_HSDP] = "hsdp"};

bool plan_sharded_find(const char *name, enum plan_sharded_kind *ret)
{
	for (unsigned i = 0; i < PLAN_SHARDED_NR; i++)
		if (strcmp(name, plan_sharded_names[i]) == 0) {
			*ret = (enum plan_sharded_kind)i;
			return true;
		}
	return false;
}

/* Bytes that pass the link of a machine or rack, as multiples of S. */
struct passes {
	double in, out;
};

/* The link of w of n workers, with reducers that own the share x of all shards. */
static struct passes scatter_passes(double n, double w, double x)
{
	return (struct passes){.in = x * (n - w) + w / n * (1 - x), .out = w * (1 - x) + x * (n - w) / n};
}

static struct passes gather_passes(double n, double w, double x)
{
	return (struct passes){.in = x * (n - w) / n + w * (n - 1) / n * (1 - x),
			       .out = w / n * (1 - x) + x * (n - w) * (n - 1) / n};
}

/* Bytes of all parts that are scattered and gathered at the same time. */
struct amounts {
	double scatter, gather;
};

/* Returns the time that a link needs for them, in the busier direction. */
static double link_time(const struct plan_net *net, double w, double x, double rate, struct amounts a)
{
	double n = net->workers;
	struct passes s = scatter_passes(n, w, x), g = gather_passes(n, w, x);

	return fmax(a.scatter * s.in + a.gather * g.in, a.scatter * s.out + a.gather * g.out) / rate;
}

static double reducers_time(const struct plan *p, struct amounts a)
{
	const struct plan_net *net = &p->net;
	double longest = 0;

	for (unsigned m = 0; m < net->machines_n; m++)
		longest = fmax(longest, link_time(net, net->machine[m].workers, p->share[m], net->machine[m].rate, a));
	for (unsigned r = 0; net->racks_n > 1 && r < net->racks_n; r++)
		longest = fmax(longest,
			       link_time(net, net->rack[r].workers, plan_rack_share(net, r, p->share), net->uplink, a));
	return longest;
}

/* Sums the operations of a step. */
static struct plan_pair step_of(const struct plan_sharded *s)
{
	struct plan_pair t = {0, 0};

	switch (s->kind) {
	case PLAN_HSDP:
		return s->all_reduce;
	case PLAN_ZERO1:
		t = s->all_reduce;
		t.ring += s->gather.ring;
		t.reducers += fmin(s->gather.ring, s->gather.reducers);
		return t;
	case PLAN_ZERO2:
		t.ring = s->scatter.ring + s->gather.ring;
		t.reducers = fmin(s->scatter.ring, s->scatter.reducers) + fmin(s->gather.ring, s->gather.reducers);
		return t;
	default:
		t.ring = s->gather.ring + s->both.ring;
		t.reducers = fmin(s->gather.ring, s->gather.reducers) + fmin(s->both.ring, s->both.reducers);
		return t;
	}
}

void plan_sharded(struct plan_sharded *ret, const struct plan *p, enum plan_sharded_kind kind)
{
	double ring = p->ring / 2;

	*ret = (struct plan_sharded){
	    .kind = kind,
	    .scatter = {ring, reducers_time(p, (struct amounts){p->sent, 0})},
	    .gather = {ring, reducers_time(p, (struct amounts){0, p->elements})},
	    .both = {2 * ring, reducers_time(p, (struct amounts){p->sent, p->elements})},
	    .all_reduce = {p->ring, p->time},
	};
	ret->step = step_of(ret);
	if (p->step > 0) {
		ret->steps[PLAN_NO_OVERLAP] =
		    (struct plan_pair){p->step + ret->step.ring, p->step + ret->step.reducers};
		ret->steps[PLAN_FULL_OVERLAP] =
		    (struct plan_pair){fmax(p->step, ret->step.ring), fmax(p->step, ret->step.reducers)};
	}
}

static void print_pair(const char *what, struct plan_pair t, const char *prefix, FILE *out)
{
	char ring[32], reducers[32];

	plan_format_time(t.ring, ring, sizeof ring);
	plan_format_time(t.reducers, reducers, sizeof reducers);
	fprintf(out, "%s  %-50s %9s %9s  %.2f times as fast\n", prefix, what, ring, reducers, t.ring / t.reducers);
}

/* Says what a step of this kind sends. */
static const char *sharded_sends(enum plan_sharded_kind kind)
{
	static const char *const sends[PLAN_SHARDED_NR] = {
	    [PLAN_FSDP] = "an all-gather forward; an all-gather and a reduce-scatter at once backward",
	    [PLAN_ZERO1] = "an all-reduce of gradients, then an all-gather of parameters",
	    [PLAN_ZERO2] = "a reduce-scatter of gradients, then an all-gather of parameters",
	    [PLAN_ZERO3] = "an all-gather forward; an all-gather and a reduce-scatter at once backward",
	    [PLAN_HSDP] = "an all-reduce between the replicas; sharding stays on the node",
	};

	return sends[kind];
}

void plan_sharded_print(const struct plan_sharded *s, const struct plan *p, const char *prefix, FILE *out)
{
	char ring[32], reducers[32], size[32];
	double gain = s->step.ring / s->step.reducers;

	if (p->least == 0) {
		fprintf(out, "%sno: all %u workers are on one machine, which needs no network\n", prefix,
			p->net.workers);
		return;
	}
	plan_format_time(s->step.ring, ring, sizeof ring);
	plan_format_time(s->step.reducers, reducers, sizeof reducers);
	plan_format_bytes(p->elements, size, sizeof size);
	fprintf(out, "%s%s: what a step of %s sends takes %s, %.2f times as fast as with rings (%s)\n", prefix,
		gain > plan_gain_min ? "yes" : "no", plan_sharded_names[s->kind], reducers, gain, ring);
	fprintf(out, "%s  %s; %s of %u workers\n%s\n", prefix, sharded_sends(s->kind), size, p->net.workers,
		prefix[0] ? "#" : "");
	fprintf(out, "%s  %-50s %9s %9s\n", prefix, "", "ring", "reducers");
	if (s->kind != PLAN_HSDP && s->kind != PLAN_ZERO1)
		print_pair("reduce-scatter alone", s->scatter, prefix, out);
	if (s->kind != PLAN_HSDP)
		print_pair("all-gather alone", s->gather, prefix, out);
	if (s->kind == PLAN_FSDP || s->kind == PLAN_ZERO3)
		print_pair("both at once", s->both, prefix, out);
	if (s->kind == PLAN_HSDP || s->kind == PLAN_ZERO1)
		print_pair("all-reduce", s->all_reduce, prefix, out);
	print_pair("all that a step sends, the faster way for each", s->step, prefix, out);
	if (p->step == 0)
		return;
	print_pair("step, if nothing overlaps with computing", s->steps[PLAN_NO_OVERLAP], prefix, out);
	print_pair("step, if all of it overlaps with computing", s->steps[PLAN_FULL_OVERLAP], prefix, out);
}

static void json_pair(const char *key, struct plan_pair t, FILE *out)
{
	fprintf(out, ",\"%s\":{\"ring\":%.9g,\"reducers\":%.9g}", key, t.ring, t.reducers);
}

void plan_sharded_print_json(const struct plan_sharded *s, const struct plan *p, FILE *out)
{
	fprintf(out, "{\"sharded\":\"%s\",\"bytes\":%.0f,\"workers\":%u", plan_sharded_names[s->kind], p->elements,
		p->net.workers);
	json_pair("reduce_scatter_s", s->scatter, out);
	json_pair("all_gather_s", s->gather, out);
	json_pair("both_s", s->both, out);
	json_pair("all_reduce_s", s->all_reduce, out);
	json_pair("sends_s", s->step, out);
	if (p->step > 0) {
		json_pair("step_no_overlap_s", s->steps[PLAN_NO_OVERLAP], out);
		json_pair("step_full_overlap_s", s->steps[PLAN_FULL_OVERLAP], out);
	}
	fprintf(out, ",\"helps\":%s}\n", s->step.ring > s->step.reducers * plan_gain_min ? "true" : "false");
}
