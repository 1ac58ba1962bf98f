/* SPDX-License-Identifier: Apache-2.0 */
/* Plans with relays: their bounds, and maps that carry what the plan says. */
#include "deploy/ctl/plan/relays.h"

#include <check.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (int)(sizeof(array) / sizeof(array)[0])

enum { TEXT_SIZE = 32 << 10 };

static void append(char *text, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void append(char *text, const char *fmt, ...)
{
	size_t len = strlen(text);
	va_list args;

	va_start(args, fmt);
	ck_assert_int_lt(vsnprintf(text + len, TEXT_SIZE - len, fmt, args), (int)(TEXT_SIZE - len));
	va_end(args);
}

static void make(struct plan *p, struct rs_config *cfg, const char *text)
{
	struct rs_err e = {0};

	ck_assert_msg(rs_config_parse(cfg, "f", text, strlen(text), &e) == RS_OK, "%s", e.msg);
	ck_assert_msg(plan_make(p, cfg, &e) == RS_OK, "%s", e.msg);
}

static void close_both(struct plan *p, struct rs_config *cfg)
{
	plan_close(p);
	rs_config_close(cfg);
}

/* Numbers that are the same in every run. */
static uint32_t draw(uint32_t *state, uint32_t below)
{
	*state = *state * 1664525 + 1013904223;
	return (uint32_t)(((uint64_t)*state * below) >> 32);
}

static unsigned place_of(const struct plan_net *net, unsigned machine)
{
	for (unsigned q = 0; q < net->places_n; q++)
		for (unsigned i = 0; i < net->rack[q].machines_n; i++)
			if (net->order[net->rack[q].first + i] == machine)
				return q;
	ck_abort_msg("machine %u is nowhere", machine);
	return 0;
}

/* What links carry each way, counted message by message. */
struct traffic {
	const struct plan_net *net;
	double load[512], uplink[128];
};

/* Counts one shard of `shards` that goes from a to b, and its result back. */
static void count(struct traffic *t, unsigned a, unsigned b, unsigned shards)
{
	unsigned p = place_of(t->net, a), q = place_of(t->net, b);

	if (a == b)
		return;
	t->load[a] += 1.0 / shards;
	t->load[b] += 1.0 / shards;
	if (p == q)
		return;
	t->uplink[p] += 1.0 / shards;
	t->uplink[q] += 1.0 / shards;
}

/* Counts a shard for a rack. */
static void count_shard(struct traffic *t, const struct plan *p, unsigned rack, unsigned s)
{
	unsigned home = p->on[p->owner[s]], relay = p->relay ? p->relay[(size_t)rack * p->shards + s] : RS_NO_RELAY;
	unsigned to = relay == RS_NO_RELAY ? home : p->on[relay];

	for (unsigned i = 0; i < p->net.rack[rack].machines_n; i++) {
		unsigned m = p->net.order[p->net.rack[rack].first + i];

		for (unsigned w = 0; w < p->net.machine[m].workers; w++)
			count(t, m, to, p->shards);
	}
	if (relay == RS_NO_RELAY)
		return;
	ck_assert_uint_eq(place_of(&p->net, to), rack);
	ck_assert_uint_ne(place_of(&p->net, home), rack);
	count(t, to, home, p->shards);
}

/* Checks the figures of a plan against its map, and that whole shards cost little. */
static void check_map(const struct plan *p, double worst)
{
	struct traffic t = {.net = &p->net};
	unsigned homes[RS_REDUCERS_MAX] = {0}, relayed[RS_REDUCERS_MAX] = {0};
	double longest = 0;

	ck_assert_uint_le(p->net.machines_n, 512);
	for (unsigned s = 0; s < p->shards; s++) {
		homes[p->owner[s]]++;
		for (unsigned g = 0; g < p->net.racks_n; g++) {
			count_shard(&t, p, g, s);
			if (p->relay && p->relay[(size_t)g * p->shards + s] != RS_NO_RELAY)
				relayed[p->relay[(size_t)g * p->shards + s]]++;
		}
	}
	for (unsigned i = 0; i < p->reducers_n; i++) {
		ck_assert_uint_eq(homes[i], p->count[i]);
		ck_assert_uint_eq(relayed[i], p->relayed[i]);
	}
	for (unsigned m = 0; m < p->net.machines_n; m++) {
		ck_assert_double_eq_tol(t.load[m], p->load[m], 1e-9);
		longest = fmax(longest, t.load[m] / p->net.machine[m].rate);
	}
	for (unsigned q = 0; q < p->net.places_n; q++) {
		ck_assert_double_eq_tol(t.uplink[q], p->uplink[q], 1e-9);
		longest = fmax(longest, q < p->net.racks_n ? t.uplink[q] / p->net.uplink : 0);
	}
	ck_assert_double_eq_tol(longest * p->sent, p->time, 1e-9 * p->time);
	ck_assert_double_ge(p->time, p->optimum * (1 - 1e-6));
	ck_assert_double_le(p->time, p->optimum * worst);
	ck_assert_double_ge(p->optimum, p->least * (1 - 1e-6));
}

/* Networks of R racks of m workers with equal links, each rack's uplink with the rate of
 * m / o of them; k machines that only reduce, some of them at the spine; on workers'
 * machines too if `mixed`. How many times as fast as a ring the best plan is: facts for
 * two levels of racks, calculated by hand from the loads in relays.h. */
static const struct {
	unsigned racks, m, k, spine;
	bool mixed;
	unsigned o;
	double gain;
} bounds[] = {
    {2, 4, 8, 0, false, 2, 1.53},
    {2, 4, 8, 0, false, 4, 1.40},
    {2, 4, 8, 0, false, 8, 1.75},
    {2, 4, 10, 0, false, 2, 1.75},
    {2, 4, 10, 0, false, 4, 1.75},
    {2, 4, 10, 0, false, 8, 1.75},
    {2, 4, 8, 0, true, 2, 1.65},
    {2, 4, 8, 0, true, 4, 1.60},
    {2, 4, 8, 0, true, 8, 1.75},
    {2, 16, 32, 0, false, 2, 1.88},
    {2, 16, 32, 0, false, 4, 1.82},
    {2, 16, 32, 0, false, 8, 1.82},
    {4, 16, 64, 0, false, 2, 1.85},
    {4, 16, 64, 0, false, 4, 1.80},
    {4, 16, 64, 0, false, 8, 1.80},
    {2, 16, 16, 0, false, 2, 0.97},
    {2, 16, 16, 0, false, 8, 0.91},
    {2, 16, 16, 0, true, 2, 1.44},
    {2, 16, 16, 0, true, 4, 1.44},
    {2, 16, 16, 0, true, 8, 1.44},
    /* 1.47 if all is relayed, see below; 1 + 3f on the uplink and 5 (1 - f) / 4 on the
     * relays with a part f of it straight */
    {3, 4, 15, 3, false, 4, 2.0 * 11 / 12 / (1 + 3.0 / 17)},
    /* the uplink alone decides: homes at the spine halve what it carries */
    {8, 4, 64, 0, false, 16, 31.0 / 32 / (7.0 / 8)},
    {8, 4, 64, 16, false, 16, 31.0 / 32 * 2},
};

static void append_bound(char *text, int i)
{
	unsigned n = bounds[i].racks * bounds[i].m;

	append(text, "plan: {workers: %u, bandwidth: 16mbit, racks: %u, uplink: %umbit, spine: %u}\nreducers:\n", n,
	       bounds[i].racks, 16 * bounds[i].m / bounds[i].o, bounds[i].spine);
	for (unsigned k = 0; k < bounds[i].k; k++)
		append(text, "- {id: c%u, address: c%u}\n", k, k);
	for (unsigned w = 0; bounds[i].mixed && w < n; w++)
		append(text, "- {id: w%u, address: worker-%u}\n", w, w);
}

START_TEST(bounds_are_those_of_two_levels)
{
	char text[TEXT_SIZE] = "";
	struct rs_config cfg;
	struct plan p;

	append_bound(text, _i);
	make(&p, &cfg, text);
	ck_assert_double_ge(p.ring / p.optimum, bounds[_i].gain - 0.0052);
	ck_assert_double_le(p.ring / p.optimum, bounds[_i].gain + 0.01); /* the facts are rounded down */
	check_map(&p, 1.02);
	close_both(&p, &cfg);
}
END_TEST

/* Homes at the spine, all shards relayed: a relay gets m + 1 times its fourth part, a
 * home one partial sum of each rack. */
START_TEST(homes_at_the_spine)
{
	char text[TEXT_SIZE] = "";
	double load[64], uplink[8];
	struct plan_split s;
	struct rs_config cfg;
	struct rs_err e = {0};
	struct plan p;
	int i = 0;

	while (bounds[i].racks != 3)
		i++;
	append_bound(text, i);
	make(&p, &cfg, text);
	ck_assert_int_eq(plan_split_init(&s, &p.net, &e), RS_OK);
	for (unsigned m = 0; m < 15; m++)
		*(m < 12 ? &s.relay[12 + m] : &s.home[12 + m]) = m < 12 ? 1 / 4.0 : 1 / 3.0;
	plan_split_loads(&s, &p.net, load, uplink);
	ck_assert_double_eq_tol(load[0], 1, 1e-12);
	ck_assert_double_eq_tol(load[12], 5 / 4.0, 1e-12);
	ck_assert_double_eq_tol(load[24], 1, 1e-12);
	ck_assert_double_eq_tol(uplink[0], 1, 1e-12);
	ck_assert_double_eq_tol(uplink[3], 3, 1e-12);
	ck_assert_double_eq_tol(p.ring / p.sent / plan_loads_time(&p.net, load, uplink), 1.47, 0.0052);
	plan_split_close(&s);
	close_both(&p, &cfg);
}
END_TEST

static void append_random(char *text, uint32_t *seed)
{
	unsigned racks = 2 + draw(seed, 3), n = racks + draw(seed, 12), k = 2 + draw(seed, 16);
	bool alike = draw(seed, 2);

	append(text, "job: {deterministic: false}\nplan: {bandwidth: 1gbit, racks: %u, uplink: %umbit, spine: %u}\n",
	       racks, 300 + draw(seed, 4000), draw(seed, 2) ? draw(seed, k) : 0);
	append(text, "workers:\n");
	for (unsigned i = 0; i < n; i++)
		append(text, "- {host: worker-%u, bandwidth: %umbit}\n", i, alike ? 1000 : 500 + draw(seed, 2000));
	append(text, "reducers:\n");
	for (unsigned i = 0; i < k; i++)
		append(text, "- {id: c%u, address: c%u, bandwidth: %umbit, lanes: %u}\n", i, i,
		       alike ? 1000 : 500 + draw(seed, 5000), 1 + draw(seed, 2));
	for (unsigned i = 0; i < n; i++)
		if (draw(seed, 4) == 0)
			append(text, "- {id: w%u, address: worker-%u, lanes: 1}\n", i, i);
}

/* Any plan: the map is what the plan says, and comes close to the best. */
START_TEST(maps_of_any_network)
{
	char text[TEXT_SIZE] = "";
	uint32_t seed = (uint32_t)_i;
	struct rs_config cfg;
	struct plan p;

	append_random(text, &seed);
	make(&p, &cfg, text);
	check_map(&p, 1.02);
	ck_assert_double_le(p.optimum, p.flat * (1 + 1e-9));
	ck_assert(!p.relay || p.time * plan_gain_min <= p.flat);
	ck_assert_double_le(p.mixed, p.optimum * (plan_gain_min + 1e-6)); /* small gains of relays do not count */
	close_both(&p, &cfg);
}
END_TEST

/* Fills a split with random parts that fit together. */
static void make_split(struct plan_split *s, const struct plan_net *net, uint32_t *seed)
{
	double sum = 0;

	for (unsigned m = 0; m < net->machines_n; m++) {
		s->home[m] = net->machine[m].reducers ? pow(draw(seed, 1000) + 1, draw(seed, 3)) : 0;
		s->relay[m] = 0;
		sum += s->home[m];
	}
	for (unsigned g = 0; g < net->racks_n; g++) {
		double straight = draw(seed, 3) ? draw(seed, 1000) / 1e3 : 0, left = 0, weights = 0;

		for (unsigned m = 0; m < net->machines_n; m++)
			if (place_of(net, m) == g && net->machine[m].reducers)
				weights += s->relay[m] = draw(seed, 1000) + 1;
		if (weights == 0)
			straight = 1;
		for (unsigned m = 0; m < net->machines_n; m++) {
			double part = place_of(net, m) == g ? 1 : straight;

			s->flat[(size_t)g * s->machines_n + m] = part * s->home[m] / sum;
			left += (1 - part) * s->home[m] / sum;
		}
		for (unsigned m = 0; m < net->machines_n; m++)
			if (place_of(net, m) == g)
				s->relay[m] *= weights > 0 ? left / weights : 0;
	}
	for (unsigned m = 0; m < net->machines_n; m++)
		s->home[m] /= sum;
}

/* Checks that no random split is faster than the best one. One in which nothing goes
 * straight home may be slower by less than plan_gain_min. */
START_TEST(no_split_is_faster)
{
	enum { TRIES = 1000 };
	char text[TEXT_SIZE] = "";
	uint32_t seed = (uint32_t)_i;
	double load[64], uplink[8], best, sum = 0, slack = plan_gain_min;
	struct plan_split s;
	struct rs_config cfg;
	struct rs_err e;
	struct plan p;

	append_random(text, &seed);
	make(&p, &cfg, text);
	ck_assert_int_eq(plan_split_best(&s, &best, &p.net, &e), RS_OK);
	ck_assert(isfinite(best));
	for (unsigned m = 0; m < p.net.machines_n; m++) {
		ck_assert(s.home[m] >= 0 && s.relay[m] >= 0);
		sum += s.home[m];
	}
	ck_assert_double_eq_tol(sum, 1, 1e-7);
	for (unsigned q = 0; q < p.net.places_n; q++)
		for (unsigned i = 0; i < p.net.rack[q].machines_n; i++)
			for (unsigned g = 0; g < p.net.racks_n; g++)
				if (g != q && s.flat[g * s.machines_n + p.net.order[p.net.rack[q].first + i]] > 1e-9)
					slack = 1;
	for (unsigned i = 0; i < TRIES; i++) {
		make_split(&s, &p.net, &seed);
		plan_split_loads(&s, &p.net, load, uplink);
		ck_assert_double_ge(plan_loads_time(&p.net, load, uplink), best / slack * (1 - 1e-4));
	}
	plan_split_close(&s);
	close_both(&p, &cfg);
}
END_TEST

/* Racks that all differ: more kinds than there may be variables for. */
START_TEST(racks_that_all_differ)
{
	char text[TEXT_SIZE] = "plan: {workers: 192, bandwidth: 1gbit, racks: 64, uplink: 1500mbit}\nreducers:\n";
	struct rs_config cfg;
	struct plan p;

	for (unsigned i = 0; i < RS_REDUCERS_MAX; i++)
		append(text, "- {id: c%u, address: c%u, bandwidth: %umbit}\n", i, i, 1000 + 7 * i);
	make(&p, &cfg, text);
	ck_assert_ptr_nonnull(p.relay);
	check_map(&p, 1.25); /* 576 shards, so that the file does not become too long, are few for 256 homes */
	ck_assert_double_le(p.time * 1.2, p.flat);
	close_both(&p, &cfg);
}
END_TEST

#define GROUPS(uplink)                                                                                                 \
	"plan: {bandwidth: 1gbit" uplink "}\n"                                                                         \
	"reducers: [{id: a, address: a}, {id: b, address: b}, {id: c, address: c}, {id: d, address: d}]\n"             \
	"groups: [{name: x, nodes: 'x[0-1].y', relays: [d]}, {name: y, nodes: 'y[0-1],z', addresses: [10.0.0.0/8], "   \
	"relays: [b]}]\n"

#define WORKERS(n) "plan: {bytes: 100MiB, bandwidth: 1gbit, workers: " #n
#define REDUCERS_1 "reducers: [{id: a, address: a}]\n"
#define REDUCERS_2 "reducers: [{id: a, address: a}, {id: b, address: b}]\n"
#define REDUCERS_4 "reducers: [{id: a, address: a}, {id: b, address: b}, {id: c, address: c}, {id: d, address: d}]\n"

static const struct {
	const char *text;
	enum plan_reason reason;
	bool relays;
	const char *verdict;
} verdicts[] = {
    {WORKERS(4) ", racks: 2, uplink: 1gbit}\n" REDUCERS_4, PLAN_FASTER, true,
     "yes: the all-reduce takes 1.12 s, 1.13 times as fast as a ring (1.26 s); reducers relay for their racks: without "
     "relays it takes 1.68 s; --step adds the gain for a training step; 6 reducers on machines of their own (1gbit) "
     "would be fastest; reducers on all workers' machines too (mixed mode) would take 944 ms"},
    {WORKERS(4) ", racks: 2, uplink: 2gbit}\n" REDUCERS_4, PLAN_FASTER, false,
     "yes: the all-reduce takes 839 ms, 1.50 times as fast as a ring (1.26 s); relays in the racks would not be "
     "faster: the uplinks are no busier than the machines' links; --step adds the gain for a training step"},
    {WORKERS(4) ", racks: 2, uplink: 1gbit}\n" REDUCERS_2, PLAN_SLOWER, false,
     "no: do not use reducers here: 2 reducers take 1.68 s, a ring of the workers 1.26 s; relays in the racks would "
     "not be faster: the uplinks are no busier than the machines' links; it takes at least 4 reducers on machines of "
     "their own "
     "(1gbit) to be faster, and more than 6 do not help; reducers on all workers' machines too (mixed mode) would take "
     "1.05 s"},
    {WORKERS(4) ", racks: 4, uplink: 1gbit}\n" REDUCERS_2, PLAN_SLOWER, false,
     "no: do not use reducers here: 2 reducers take 1.68 s, a ring of the workers 1.26 s; relays in the racks would "
     "not be faster: the uplinks are no busier than the machines' links; no number of reducers on machines of their "
     "own is "
     "faster"},
    {WORKERS(4) ", racks: 2, uplink: 1gbit}\n" REDUCERS_1, PLAN_SLOWER, false,
     "no: do not use reducers here: one reducer takes 3.36 s, a ring of the workers 1.26 s; no relays were considered: "
     "there is one reducer; no number of reducers on machines of their own is faster"},
    {WORKERS(4) ", racks: 2, uplink: 1gbit}\njob: {failover: fail}\n" REDUCERS_4, PLAN_SLOWER, false,
     "no: do not use reducers here: 4 reducers take 1.68 s, a ring of the workers 1.26 s; each rack's uplink carries 2 "
     "times the gradients each way, with a ring 1.5 times; no relays were considered: job.failover is fail; no number "
     "of reducers on machines of their own is faster"},
    {WORKERS(4) ", racks: 2, uplink: 1gbit}\nsharding: {rebalance: 'on'}\n" REDUCERS_4, PLAN_SLOWER, false,
     "no: do not use reducers here: 4 reducers take 1.68 s, a ring of the workers 1.26 s; each rack's uplink carries 2 "
     "times the gradients each way, with a ring 1.5 times; no relays were considered: sharding.rebalance is on; no "
     "number of reducers on machines of their own is faster"},
    {WORKERS(6) ", racks: 3, uplink: 500mbit}\nreducers: [{id: a, address: a}, {id: b, address: b}, {id: c, address: "
		"c},\n {id: d, address: d}, {id: e, address: e}, {id: f, address: f}, {id: g, address: g}, {id: h, "
		"address: h}]\n",
     PLAN_FASTER, true,
     "yes: the all-reduce takes 2.24 s, 1.25 times as fast as a ring (2.8 s); reducers relay for their racks: without "
     "relays it takes 4.47 s; with 2 of the reducers' machines at the spine (--spine 2) it would take 1.68 s; --step "
     "adds the gain for a training step; 6 reducers on machines of their own (1gbit) suffice for this time"},
};

START_TEST(verdicts_are_sentences)
{
	struct rs_config cfg;
	struct plan p;

	make(&p, &cfg, verdicts[_i].text);
	ck_assert_str_eq(p.verdict, verdicts[_i].verdict);
	ck_assert_int_eq(p.reason, verdicts[_i].reason);
	ck_assert_int_eq(p.relay != NULL, verdicts[_i].relays);
	check_map(&p, 1.02);
	close_both(&p, &cfg);
}
END_TEST

/* What a network of two racks of four carries, at 4:1, in units of S; a GB of
 * gradients. */
START_TEST(ways_between_racks)
{
	char text[TEXT_SIZE] =
	    "plan: {bytes: 1GB, workers: 8, bandwidth: 1gbit, racks: 2, uplink: 1gbit, price_uplink: "
	    "0.01}\nreducers:\n";
	static const double time[PLAN_WAYS] = {1.75, 4, 1.75, 4, 1.25}, uplink[PLAN_WAYS] = {1.75, 4, 1, 4, 1};
	struct rs_config cfg;
	struct plan p;

	for (unsigned i = 0; i < 8; i++)
		append(text, "- {id: c%u, address: c%u}\n", i, i);
	make(&p, &cfg, text);
	for (unsigned i = 0; i < PLAN_WAYS; i++) {
		ck_assert_double_eq_tol(p.way[i].time, time[i] * 8, 1e-4);
		ck_assert_double_eq_tol(p.way[i].uplink, uplink[i], 1e-4);
		ck_assert_double_eq_tol(p.way[i].leave, 2 * uplink[i] * 1e9, 1e6);
		/* each byte that leaves a rack enters another one */
		ck_assert_double_eq_tol(p.way[i].price, 1000 * 4 * uplink[i] * 0.01, 0.01);
	}
	ck_assert_double_eq_tol(p.way[PLAN_RING].time, p.ring, 1e-9);
	ck_assert_double_eq_tol(p.way[PLAN_RELAYS].time, p.time, 1e-9);
	close_both(&p, &cfg);
}
END_TEST

static const struct {
	const char *text, *message;
} bad[] = {
    {WORKERS(4) ", spine: 1}\n" REDUCERS_1,
     "plan.spine: found 1 machines but one rack, expected several in plan.racks or from --racks"},
    {WORKERS(4) ", racks: 2, uplink: 1gbit, spine: 2}\nreducers: [{id: a, address: worker-0}, {id: b, address: b}]\n",
     "plan.spine: found 2, expected at most 1, the number of machines that only reduce and are in no group"},
    {GROUPS(", uplink: 1gbit, racks: 3"), "plan.racks: found 3, expected 2, the number of groups"},
    {GROUPS(", uplink: 1gbit") "workers: [{host: y1}, {host: x0.y}, {host: a}]\n",
     "groups: found some workers' machines in their nodes and addresses, but not a, expected all of them or none"},
    {GROUPS(", uplink: 1gbit") "workers: [{host: b}, {host: y1}, {host: y0}]\n",
     "groups: found some workers' machines in their nodes and addresses, but not b, expected all of them or none"},
    {GROUPS(", uplink: 1gbit") "workers: [{host: z}, {host: y1}, {host: y0}]\n",
     "groups[0]: found no machine of a worker in x, expected some"},
};

START_TEST(unplannable_configurations_are_refused)
{
	struct rs_config cfg;
	struct rs_err e = {0};
	struct plan p;

	ck_assert_int_eq(rs_config_parse(&cfg, "f", bad[_i].text, strlen(bad[_i].text), &e), RS_OK);
	ck_assert_int_eq(plan_make(&p, &cfg, &e), RS_ECONFIG);
	ck_assert_str_eq(e.msg, bad[_i].message);
	rs_config_close(&cfg);
}
END_TEST

/* Returns the printed configuration; free() it. */
static char *print(const struct rs_config *cfg)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	ck_assert_ptr_nonnull(out);
	rs_config_print(cfg, out);
	fclose(out);
	return text;
}

/* The groups of a plan have the workers' machines, by name or address, and are read back
 * as they are. */
START_TEST(groups_are_made)
{
	struct rs_config cfg, again;
	struct rs_err e = {0};
	struct plan p;
	char *text;

	make(&p, &cfg,
	     "plan: {bandwidth: 1gbit, racks: 2, uplink: 1gbit}\n"
	     "workers: [{host: x}, {host: 10.0.0.1}, {host: y.example}, {host: z}]\n" REDUCERS_4);
	ck_assert_int_eq(plan_apply(&p, &cfg, &e), RS_OK);
	ck_assert_uint_eq(cfg.groups_n, 2);
	ck_assert_str_eq(cfg.groups[0].name, "rack-0");
	ck_assert_str_eq(cfg.groups[0].nodes, "x");
	ck_assert_uint_eq(cfg.groups[0].addresses_n, 1);
	ck_assert_str_eq(cfg.groups[1].nodes, "y.example,z");
	ck_assert_mem_eq(cfg.relays, p.relay, 2 * p.shards * sizeof *p.relay);
	text = print(&cfg);
	ck_assert_msg(rs_config_parse(&again, "f", text, strlen(text), &e) == RS_OK, "%s\n%s", e.msg, text);
	ck_assert_uint_eq(rs_config_digest(&cfg), rs_config_digest(&again));
	rs_config_close(&again);
	free(text);
	close_both(&p, &cfg);
}
END_TEST

/* Files with groups, and which machines are in which place: their names. */
static const struct {
	const char *text, *place[3];
} places[] = {
    {GROUPS(", uplink: 1gbit"), {"x0.y x1.y a d", "y0 y1 z b c"}},
    {GROUPS(", uplink: 1gbit, racks: 2, spine: 1"), {"x0.y x1.y a d", "y0 y1 z b", "c"}},
    {GROUPS(", uplink: 1gbit, workers: 5, spine: 2"), {"x0.y x1.y d", "y0 y1 z b", "a c"}},
    /* another number of workers, or others */
    {GROUPS(", uplink: 1gbit, workers: 4"), {"worker-0 worker-1 a d", "worker-2 worker-3 b c"}},
    {GROUPS(", uplink: 1gbit") "workers: [{host: y1.b}, {host: 10.1.2.3}, {host: x0.y}, {host: z}]\n",
     {"x0.y a d", "y1.b 10.1.2.3 z b c"}},
    /* groups are no racks */
    {GROUPS(", workers: 4"), {"worker-0 worker-1 worker-2 worker-3 a b c d"}},
};

START_TEST(groups_are_racks)
{
	struct rs_config cfg;
	struct plan p;

	make(&p, &cfg, places[_i].text);
	for (unsigned q = 0; q < 3; q++) {
		char found[TEXT_SIZE] = "";

		for (unsigned i = 0; q < p.net.places_n && i < p.net.rack[q].machines_n; i++)
			append(found, "%s%s", i ? " " : "", p.net.machine[p.net.order[p.net.rack[q].first + i]].host);
		ck_assert_str_eq(found, places[_i].place[q] ? places[_i].place[q] : "");
	}
	check_map(&p, 1.02);
	close_both(&p, &cfg);
}
END_TEST

/* Groups of the file remain; their relays are those of the plan, or dealt anew. */
START_TEST(groups_are_applied)
{
	for (unsigned i = 0; i < 2; i++) {
		struct rs_err e = {0};
		struct rs_config cfg;
		struct plan p;

		make(&p, &cfg, i ? GROUPS(", workers: 4") : GROUPS(", uplink: 1gbit"));
		ck_assert_int_eq(plan_apply(&p, &cfg, &e), RS_OK);
		ck_assert_uint_eq(cfg.groups_n, 2);
		ck_assert_str_eq(cfg.groups[1].name, "y");
		ck_assert_uint_eq(cfg.groups[1].addresses_n, 1);
		for (unsigned s = 0; s < 2 * p.shards; s++) {
			if (i)
				ck_assert(cfg.relays[s] == RS_NO_RELAY || cfg.relays[s] == (s < p.shards ? 3 : 1));
			else
				ck_assert_uint_eq(cfg.relays[s], p.relay[s]);
		}
		close_both(&p, &cfg);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("plan_relays");
	TCase *tc = tcase_create("plan_relays");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 60); /* sanitizers included */
	tcase_add_loop_test(tc, bounds_are_those_of_two_levels, 0, COUNT(bounds));
	tcase_add_test(tc, homes_at_the_spine);
	tcase_add_loop_test(tc, maps_of_any_network, 0, 100);
	tcase_add_loop_test(tc, no_split_is_faster, 0, 100);
	tcase_add_test(tc, racks_that_all_differ);
	tcase_add_loop_test(tc, verdicts_are_sentences, 0, COUNT(verdicts));
	tcase_add_test(tc, ways_between_racks);
	tcase_add_loop_test(tc, unplannable_configurations_are_refused, 0, COUNT(bad));
	tcase_add_test(tc, groups_are_made);
	tcase_add_loop_test(tc, groups_are_racks, 0, COUNT(places));
	tcase_add_test(tc, groups_are_applied);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
