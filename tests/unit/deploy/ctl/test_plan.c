/* SPDX-License-Identifier: Apache-2.0 */
#include "deploy/ctl/plan/plan.h"

#include <check.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (int)(sizeof(array) / sizeof(array)[0])

/* Numbers that are the same in every run. */
static uint32_t draw(uint32_t *state, uint32_t below)
{
	*state = *state * 1664525 + 1013904223;
	return (uint32_t)(((uint64_t)*state * below) >> 32);
}

static void parse(struct rs_config *cfg, const char *text)
{
	struct rs_err e = {0};

	ck_assert_msg(rs_config_parse(cfg, "f", text, strlen(text), &e) == RS_OK, "%s", e.msg);
}

static void make(struct plan *p, struct rs_config *cfg, const char *text)
{
	struct rs_err e = {0};

	parse(cfg, text);
	ck_assert_msg(plan_make(p, cfg, &e) == RS_OK, "%s", e.msg);
}

static void append(char *text, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

static void append(char *text, size_t size, const char *fmt, ...)
{
	size_t len = strlen(text);
	va_list args;

	va_start(args, fmt);
	ck_assert_int_lt(vsnprintf(text + len, size - len, fmt, args), (int)(size - len));
	va_end(args);
}

/* Appends reducers with ids from `first` on, named after the machines. */
static void append_reducers(char *text, size_t size, unsigned first, unsigned n, const char *rest, const char *host)
{
	for (unsigned i = 0; i < n; i++)
		append(text, size, "- {id: %s%u, address: %s%u, host: %s%u%s}\n", host, first + i, host, first + i,
		       host, first + i, rest);
}

/* Plans for n workers, k machines that only reduce, and g workers' machines that also
 * reduce. */
static void make_mixed(struct plan *p, struct rs_config *cfg, unsigned n, unsigned k, unsigned g)
{
	char text[8192] = "";

	append(text, sizeof text, "plan: {bytes: 100MiB, workers: %u, bandwidth: 1gbit}\nreducers:\n", n);
	append_reducers(text, sizeof text, 0, k, "", "cpu-");
	append_reducers(text, sizeof text, 0, g, "", "worker-");
	make(p, cfg, text);
}

/* Checks that the map agrees with the plan's figures, is complete, and is close to the
 * best. */
static void check_map(const struct plan *p, const struct rs_config *cfg, double worst)
{
	unsigned *count = calloc(p->reducers_n, sizeof *count);
	double *share = calloc(p->net.machines_n, sizeof *share);

	ck_assert(count && share);
	ck_assert_uint_le(p->shards, PLAN_SHARDS_MAX);
	for (unsigned s = 0; s < p->shards; s++) {
		ck_assert_uint_lt(p->owner[s], p->reducers_n);
		count[p->owner[s]]++;
		share[p->on[p->owner[s]]] += 1.0 / p->shards;
	}
	ck_assert_mem_eq(count, p->count, p->reducers_n * sizeof *count);
	ck_assert_double_eq_tol(plan_time(&p->net, share) * (double)cfg->plan.bytes, p->time, 1e-9 * p->time);
	ck_assert_double_ge(p->time, p->optimum * (1 - 1e-6));
	ck_assert_double_le(p->time, p->optimum * worst);
	ck_assert_double_ge(p->optimum, p->least * (1 - 1e-9));
	free(count);
	free(share);
}

static const struct {
	unsigned n, k, g;
} mixes[] = {{8, 2, 8}, {8, 4, 8}, {8, 8, 8}, {6, 2, 6},   {4, 3, 0},
	     {4, 7, 0}, {2, 1, 2}, {5, 2, 3}, {16, 1, 16}, {30, 7, 30}};

START_TEST(maps_of_equal_links)
{
	struct rs_config cfg;
	struct plan p;

	make_mixed(&p, &cfg, mixes[_i].n, mixes[_i].k, mixes[_i].g);
	check_map(&p, &cfg, 1.02);
	ck_assert_double_eq_tol(p.optimum,
				plan_equal_time(mixes[_i].n, mixes[_i].k, mixes[_i].g) * 100 * (1 << 20) * 8 / 1e9,
				1e-9 * p.optimum);
	plan_close(&p);
	rs_config_close(&cfg);
}
END_TEST

START_TEST(maps_of_unequal_links)
{
	uint32_t seed = (uint32_t)_i;
	unsigned n = 2 + draw(&seed, 10), k = 1 + draw(&seed, 12);
	char text[8192] = "plan: {bytes: 1M}\nworkers:\n";
	struct rs_config cfg;
	struct plan p;

	for (unsigned i = 0; i < n; i++)
		append(text, sizeof text, "- {bandwidth: %umbit}\n", 100 + draw(&seed, 10000));
	append(text, sizeof text, "reducers:\n");
	for (unsigned i = 0; i < k; i++)
		append(text, sizeof text, "- {id: c%u, address: c%u, bandwidth: %umbit, lanes: %u}\n", i, i,
		       100 + draw(&seed, 10000), 1 + draw(&seed, 2));
	append_reducers(text, sizeof text, 0, draw(&seed, n), "", "worker-");
	make(&p, &cfg, text);
	check_map(&p, &cfg, 1.02);
	ck_assert_double_le(p.mixed, p.optimum * (1 + 1e-6));
	ck_assert_double_ge(p.dedicated, p.optimum * (1 - 1e-6));
	plan_close(&p);
	rs_config_close(&cfg);
}
END_TEST

/* Plans, and the shards that they give each reducer. */
static const struct {
	const char *text;
	unsigned shards, count[6];
} plans[] = {
    /* as many shards as divide evenly, over the lanes too */
    {"plan: {workers: 4, bandwidth: 1gbit}\nreducers: [{id: a, address: a}, {id: b, address: b}, {id: c, address: "
     "c}]\n",
     66,
     {22, 22, 22}},
    {"plan: {workers: 2, bandwidth: 1gbit}\nreducers: [{id: a, address: a, lanes: 4}, {id: b, address: b, lanes: 4},\n"
     "{id: c, address: c, lanes: 4}]\n",
     72,
     {24, 24, 24}},
    /* a reducer with half the rate has half the shards */
    {"plan: {workers: 4, bandwidth: 1gbit}\n"
     "reducers: [{id: a, address: a}, {id: b, address: b}, {id: c, address: c}, {id: d, address: d, bandwidth: "
     "500mbit}]\n",
     70,
     {20, 20, 20, 10}},
    /* workers take load off their machines' reducers, which get no shards if there are
     * enough others */
    {"plan: {workers: 8, bandwidth: 1gbit}\nreducers:\n"
     " [{id: a, address: 'worker-0:1'}, {id: b, address: 'c:1', bandwidth: 8gbit}]\n",
     64,
     {0, 64}},
    /* two reducers on one machine share its link */
    {"plan: {workers: 4, bandwidth: 1gbit}\nreducers:\n"
     " [{id: a, address: 'x:1'}, {id: b, address: 'x:2'}, {id: c, address: 'y'}]\n",
     64,
     {16, 16, 32}},
    /* all workers but one on a machine: its reducer keeps their traffic off the link */
    {"plan: {bandwidth: 1gbit}\nworkers: [{host: x}, {host: x}, {host: x}, {host: y}]\nreducers:\n"
     " [{id: a, address: x}, {id: b, address: z}]\n",
     64,
     {64, 0}},
};

START_TEST(plans_give_shards)
{
	struct rs_config cfg;
	struct plan p;
	struct rs_err e;

	make(&p, &cfg, plans[_i].text);
	ck_assert_uint_eq(p.shards, plans[_i].shards);
	for (unsigned i = 0; i < p.reducers_n; i++)
		ck_assert_msg(p.count[i] == plans[_i].count[i], "reducer %u has %u shards of %u", i, p.count[i],
			      p.shards);
	check_map(&p, &cfg, 1.02);
	ck_assert_int_eq(plan_apply(&p, &cfg, &e), RS_OK);
	ck_assert_uint_eq(cfg.sharding.shards, p.shards);
	ck_assert_mem_eq(cfg.sharding.owner, p.owner, p.shards * sizeof *p.owner);
	plan_close(&p);
	rs_config_close(&cfg);
}
END_TEST

/* Shards of one reducer are spaced as evenly as possible, so that short operations use
 * all of them. */
START_TEST(maps_are_interleaved)
{
	struct rs_config cfg;
	unsigned run = 1;
	struct plan p;

	make_mixed(&p, &cfg, 8, 2, 8);
	for (unsigned s = 1; s < p.shards; s++) {
		run = p.owner[s] == p.owner[s - 1] ? run + 1 : 1;
		ck_assert_uint_le(run, 1);
	}
	plan_close(&p);
	rs_config_close(&cfg);
}
END_TEST

START_TEST(largest_plan)
{
	size_t size = 64 << 10;
	char *text = calloc(1, size);
	struct rs_config cfg;
	struct plan p;

	ck_assert_ptr_nonnull(text);
	append(text, size, "plan: {workers: %d, bandwidth: 1gbit}\nreducers:\n", RS_WORLD_MAX);
	for (unsigned i = 0; i < RS_REDUCERS_MAX; i++)
		append(text, size, "- {id: c%u, address: c%u, bandwidth: %umbit}\n", i, i, 90000 + 16 * i);
	make(&p, &cfg, text);
	check_map(&p, &cfg, 1.25); /* four shards each are too few for small differences */
	plan_close(&p);
	rs_config_close(&cfg);
	free(text);
}
END_TEST

#define WORKERS(n) "plan: {bytes: 100MiB, bandwidth: 1gbit, workers: " #n
#define REDUCERS_1 "reducers: [{id: a, address: a}]\n"
#define REDUCERS_2 "reducers: [{id: a, address: a}, {id: b, address: b}]\n"
#define REDUCERS_4 "reducers: [{id: a, address: a}, {id: b, address: b}, {id: c, address: c}, {id: d, address: d}]\n"

static const struct {
	const char *text;
	enum plan_reason reason;
	const char *verdict;
} verdicts[] = {
    {WORKERS(4) "}\n" REDUCERS_4, PLAN_FASTER,
     "yes: the all-reduce takes 839 ms, 1.50 times as fast as a ring (1.26 s); --step adds the gain for a training "
     "step"},
    {WORKERS(4) ", step: 300ms}\n" REDUCERS_4, PLAN_FASTER,
     "yes: the all-reduce takes 839 ms, 1.50 times as fast as a ring (1.26 s); a step that computes for 300 ms is 37 "
     "to "
     "50 % faster"},
    {WORKERS(4) ", step: 1s}\n" REDUCERS_4, PLAN_FASTER,
     "yes: the all-reduce takes 839 ms, 1.50 times as fast as a ring (1.26 s); a step that computes for 1 s is 23 to "
     "26 "
     "% faster"},
    {WORKERS(4) ", step: 2s}\n" REDUCERS_4, PLAN_IF_NOT_HIDDEN,
     "yes, unless it overlaps with computing anyway: the all-reduce takes 839 ms, 1.50 times as fast as a ring (1.26 "
     "s); a step that computes for 2 s is 0 to 15 % faster"},
    {WORKERS(4) ", step: 20s}\n" REDUCERS_4, PLAN_COMPUTE_BOUND,
     "no: the step of 20 s is compute-bound, the all-reduce takes 839 ms (a ring 1.26 s), which makes a step at most "
     "2.0 "
     "% faster"},
    {WORKERS(8) "}\n" REDUCERS_2, PLAN_SLOWER,
     "no: do not use reducers here: 2 reducers take 3.36 s, a ring of the workers 1.47 s; it takes at least 5 reducers "
     "on machines of "
     "their own (1gbit) to be faster, and more than 8 do not help; reducers on all workers' machines too (mixed "
     "mode) would take 1.24 "
     "s"},
    {WORKERS(8) "}\nreducers: [{id: a, address: worker-0}]\n", PLAN_SLOWER,
     "no: do not use reducers here: one reducer takes 5.87 s, a ring of the workers 1.47 s; it takes at least 5 "
     "reducers on machines of "
     "their own (1gbit) to be faster, and more than 8 do not help"},
    {WORKERS(2) "}\n" REDUCERS_4, PLAN_RING_IS_LEAST,
     "no: do not use reducers here: with 2 workers a ring already takes the least time that is possible, 839 ms"},
    {WORKERS(3) "}\n" REDUCERS_4, PLAN_FASTER,
     "yes: the all-reduce takes 839 ms, 1.33 times as fast as a ring (1.12 s); --step adds the gain for a training "
     "step; 3 reducers on machines of their own (1gbit) suffice for this time"},
    {WORKERS(4) ", relays: 'off', racks: 2, uplink: 1gbit}\n" REDUCERS_4, PLAN_SLOWER,
     "no: do not use reducers here: 4 reducers take 1.68 s, a ring of the workers 1.26 s; each rack's uplink carries 2 "
     "times the gradients each way, with a ring 1.5 times; no number of reducers on machines of their own is faster"},
    {WORKERS(4) ", step: 1s, price_worker: 9, price_reducer: 1}\n" REDUCERS_4, PLAN_FASTER,
     "yes: the all-reduce takes 839 ms, 1.50 times as fast as a ring (1.26 s); a step that computes for 1 s is 23 to "
     "26 % faster; worth the price: a step costs 10 to 12 % less"},
    {WORKERS(4) ", step: 1s, price_worker: 1, price_reducer: 1}\n" REDUCERS_4, PLAN_TOO_DEAR,
     "no: reducers are not worth their price: a step is 23 to 26 % faster, but costs 59 to 63 % more"},
    {WORKERS(4) ", step: 200ms, price_worker: 9, price_reducer: 4}\n" REDUCERS_4, PLAN_FASTER,
     "yes: the all-reduce takes 839 ms, 1.50 times as fast as a ring (1.26 s); a step that computes for 200 ms is 40 "
     "to 50 % faster; worth the price only if the all-reduce overlaps with computing: a step costs 3 % more without "
     "overlap, 4 % less with full overlap"},
    {WORKERS(4) ", price_worker: 9, price_reducer: 1}\n" REDUCERS_4, PLAN_FASTER,
     "yes: the all-reduce takes 839 ms, 1.50 times as fast as a ring (1.26 s); --step adds the gain for a training "
     "step; worth the price if a step computes for less than 2.94 s"},
    {WORKERS(4) ", price_worker: 1, price_reducer: 1}\n" REDUCERS_4, PLAN_TOO_DEAR,
     "no: reducers are not worth their price: the all-reduce is 1.50 times as fast as a ring, but the machines cost "
     "2.00 times as much"},
    {"plan: {workers: 4, bandwidth: 400gbit}\n" REDUCERS_4, PLAN_FASTER,
     "yes: the all-reduce takes 2.1 ms, 1.50 times as fast as a ring (3.15 ms); --step adds the gain for a training "
     "step; only if the reducers' processors keep up: each needs 37 to 70 cores, its 16 lanes can use 16"},
    {"plan: {bandwidth: 1gbit}\nworkers: [{host: x}, {host: x}]\n" REDUCERS_1, PLAN_ONE_MACHINE,
     "no: all 2 workers are on one machine, where an all-reduce needs no network"},
};

START_TEST(verdicts_are_sentences)
{
	struct rs_config cfg;
	struct plan p;

	make(&p, &cfg, verdicts[_i].text);
	ck_assert_str_eq(p.verdict, verdicts[_i].verdict);
	ck_assert_int_eq(p.reason, verdicts[_i].reason);
	plan_close(&p);
	rs_config_close(&cfg);
}
END_TEST

/* The number of reducers that the verdict asks for suffices, and one less does not. */
START_TEST(the_needed_number_of_reducers_is_minimal)
{
	struct rs_config cfg;
	struct plan p, q;
	unsigned k;

	for (unsigned n = 3; n <= 40; n++) {
		make_mixed(&p, &cfg, n, 1, 0);
		ck_assert_int_eq(p.reason, PLAN_SLOWER);
		rs_config_close(&cfg);
		for (k = p.needed_ring - 1; k <= p.needed_ring; k++) {
			make_mixed(&q, &cfg, n, k, 0);
			/* the verdict holds for shards that can be divided */
			ck_assert_int_eq(q.optimum * 1.02 <= q.ring * (1 + 1e-9), k == p.needed_ring);
			plan_close(&q);
			rs_config_close(&cfg);
		}
		ck_assert_uint_eq(p.needed_least, n);
		plan_close(&p);
	}
}
END_TEST

static const struct {
	const char *text, *message;
} bad[] = {
    {"", "plan.workers: found no workers, expected at least 2, there, in the list workers, or from --workers"},
    {"workers: [{}]\n", "plan.workers: found 1 worker, expected at least 2, there, in the list workers, or from "
			"--workers"},
    {"plan: {workers: 2}\n" REDUCERS_1, "plan.bandwidth: found no bandwidth for the link of worker-0, expected one "
					"there, at its worker or reducer, or from "
					"--bandwidth"},
    {"workers: [{bandwidth: 1gbit}, {bandwidth: 1gbit}]\n" REDUCERS_1,
     "plan.bandwidth: found no bandwidth for the link of a, expected one there, at its worker or reducer, or from "
     "--bandwidth"},
    {WORKERS(4) ", racks: 2}\n" REDUCERS_1,
     "plan.uplink: found no bandwidth of the 2 racks, expected one there or from --uplink"},
    {WORKERS(4) ", uplink: 1gbit}\n" REDUCERS_1,
     "plan.uplink: found a bandwidth but one rack, expected several in plan.racks or from --racks"},
    {WORKERS(4) ", racks: 5, uplink: 1gbit}\n" REDUCERS_1,
     "plan.racks: found 5, expected at most 4, the number of workers' machines"},
    {WORKERS(4) ", price_reducer: 1}\n" REDUCERS_1,
     "plan.price_worker: found no price beside plan.price_reducer, expected one there or from --price-worker"},
    {"workers: [{host: X, bandwidth: 1gbit}, {}]\nreducers: [{id: a, address: x, bandwidth: 999mbit}]\n",
     "reducers[0].bandwidth: found another rate for the link of X than in workers[0], expected the same in both or "
     "only "
     "one of them"},
};

START_TEST(unplannable_configurations_are_refused)
{
	struct rs_config cfg;
	struct rs_err e = {0};
	struct plan p;

	parse(&cfg, bad[_i].text);
	memset(&p, 0x5a, sizeof p);
	ck_assert_int_eq(plan_make(&p, &cfg, &e), RS_ECONFIG);
	ck_assert_str_eq(e.msg, bad[_i].message);
	ck_assert_uint_eq(p.shards, 0x5a5a5a5a); /* set only on success */
	rs_config_close(&cfg);
}
END_TEST

/* Racks without relays: the file, and the times in units of what a link of 1 Gbit/s
 * needs for S. */
static const struct {
	const char *text;
	double time, ring, least;
} racks[] = {
    /* n S / 2 on the uplinks of two racks, wherever the reducers are */
    {"plan: {workers: 8, bandwidth: 1gbit, relays: 'off', racks: 2, uplink: 1gbit}\n" REDUCERS_4, 4, 1.75, 1},
    {"plan: {workers: 8, bandwidth: 1gbit, relays: 'off', racks: 2, uplink: 1gbit}\n" REDUCERS_1, 8, 1.75, 1},
    {"plan: {workers: 4, bandwidth: 1gbit, relays: 'off', racks: 2, uplink: 1gbit}\n" REDUCERS_4, 2, 1.5, 1},
    /* the uplinks are fast enough */
    {"plan: {workers: 4, bandwidth: 1gbit, relays: 'off', racks: 2, uplink: 2gbit}\n" REDUCERS_4, 1, 1.5, 1},
    /* four racks with a worker and a reducer each: 1 + (4 - 2) / 4 */
    {"plan: {workers: 4, bandwidth: 1gbit, relays: 'off', racks: 4, uplink: 1gbit}\n" REDUCERS_4, 1.5, 1.5, 1},
    /* two of four racks have a reducer: 1 + (4 - 2) / 2 */
    {"plan: {workers: 4, bandwidth: 1gbit, relays: 'off', racks: 4, uplink: 1gbit}\n" REDUCERS_2, 2, 1.5, 1},
    /* uplinks slower than the machines' links limit the ring, too */
    {"plan: {workers: 8, bandwidth: 1gbit, relays: 'off', racks: 2, uplink: 500mbit}\n" REDUCERS_4, 8, 3.5, 2},
    /* a reducer on the machine of a worker is in its rack */
    {"plan: {workers: 3, bandwidth: 1gbit, relays: 'off', racks: 3, uplink: 1gbit}\n"
     "reducers: [{id: a, address: worker-1}]\n",
     2, 4.0 / 3, 1},
};

START_TEST(racks_limit_times)
{
	struct rs_config cfg;
	struct plan p;
	double unit;

	make(&p, &cfg, racks[_i].text);
	unit = p.sent / 125e6;
	ck_assert_double_eq_tol(p.optimum, racks[_i].time * unit, 1e-9);
	ck_assert_double_eq_tol(p.time, racks[_i].time * unit, 1e-9);
	ck_assert_double_eq_tol(p.ring, racks[_i].ring * unit, 1e-9);
	ck_assert_double_eq_tol(p.least, racks[_i].least * unit, 1e-9);
	plan_close(&p);
	rs_config_close(&cfg);
}
END_TEST

/* What was measured in a laboratory of two racks with four workers and four reducers
 * each, 250 Mbit/s to each host, in MB/s. The uplinks had the rate of four, two and one
 * of these links; 956 of 1000 bits are payload. */
static const struct {
	unsigned uplink; /* links */
	double reducers, gloo;
	enum plan_reason reason;
} laboratory[] = {{4, 29.5, 15.6, PLAN_FASTER}, {2, 12.1, 13.0, PLAN_SLOWER}, {1, 6.6, 16.8, PLAN_SLOWER}};

START_TEST(racks_are_as_measured)
{
	char text[4096] = "";
	struct rs_config cfg;
	struct plan p;
	double reducers, ring;

	append(text, sizeof text,
	       "plan: {bytes: 16MiB, workers: 8, bandwidth: 239100kbit, relays: 'off', racks: 2, uplink: %ukbit}\n",
	       laboratory[_i].uplink * 239100);
	append(text, sizeof text, "reducers:\n");
	append_reducers(text, sizeof text, 0, 8, "", "cpu-");
	make(&p, &cfg, text);
	reducers = p.sent / p.time / 1e6;
	ring = p.sent / p.ring / 1e6;
	ck_assert_double_le(laboratory[_i].reducers, reducers * 1.01);
	ck_assert_double_ge(laboratory[_i].reducers, reducers * 0.8);
	ck_assert_double_le(laboratory[_i].gloo, ring * 1.01);
	ck_assert_double_ge(laboratory[_i].gloo, ring * 0.75);
	ck_assert_int_eq(p.reason, laboratory[_i].reason);
	ck_assert_int_eq(p.reason == PLAN_FASTER, laboratory[_i].reducers > laboratory[_i].gloo);
	plan_close(&p);
	rs_config_close(&cfg);
}
END_TEST

/* What is sent: half of the gradients in half types; a ring of all ranks sends more than
 * one of the nodes. */
static const struct {
	const char *keys;
	double sent, ring, ring_ranks; /* MB; multiples of sent */
} trainings[] = {
    {"bytes: 100MB", 100, 1.5, 1.5},
    {"bytes: 100MB, wire: fp16", 50, 1.5, 1.5},
    {"bytes: 100MB, wire: bf16, ranks_per_node: 8", 50, 1.5, 2 * 31 / 32.0},
    {"bytes: 100MB, wire: bf16, ranks_per_node: 8}\njob: {partials: exact", 100, 0.75, 31 / 32.0},
    /* encoded: compared with a ring of 16 bits */
    {"bytes: 128MB, wire: fp8", 32.5, 1.5 * 64 / 32.5, 1.5 * 64 / 32.5},
    {"bytes: 128MB, wire: int8}\njob: {wire: bf16", 32.5, 1.5 * 64 / 32.5, 1.5 * 64 / 32.5},
    {"bytes: 128MB}\njob: {wire: bf16", 64, 1.5, 1.5},
    {"bytes: 128MB}\njob: {wire: {up: fp8, down: bf16}", 64, 1.5, 1.5},
    {"bytes: 128MB}\njob: {wire: {up: fp8}", 128, 1.5, 1.5}, /* the wider direction decides */
    {"bytes: 128MB, wire: bf16}\njob: {wire: bf16", 64, 1.5, 1.5},
    {"bytes: 128MB, wire: fp16, ranks_per_node: 8}\njob: {partials: exact, wire: fp8", 32.5, 1.5 * 64 / 32.5,
     31 / 16.0 * 64 / 32.5},
};

START_TEST(trainings_send)
{
	char text[512] = "";
	struct rs_config cfg;
	struct plan p;

	append(text, sizeof text, "plan: {workers: 4, bandwidth: 1gbit, %s}\n" REDUCERS_4, trainings[_i].keys);
	make(&p, &cfg, text);
	ck_assert_double_eq(p.sent, trainings[_i].sent * 1e6);
	ck_assert_double_eq_tol(p.time, p.sent / 125e6, 1e-9);
	ck_assert_double_eq_tol(p.ring, trainings[_i].ring * p.sent / 125e6, 1e-9);
	ck_assert_double_eq_tol(p.ring_ranks, trainings[_i].ring_ranks * p.sent / 125e6, 1e-9);
	plan_close(&p);
	rs_config_close(&cfg);
}
END_TEST

START_TEST(steps_and_prices)
{
	struct rs_config cfg;
	struct plan p;

	make(&p, &cfg,
	     "plan: {workers: 4, bandwidth: 1gbit, bytes: 125MB, step: 900ms, price_worker: 9, price_reducer: "
	     "1}\n" REDUCERS_4);
	/* a ring takes 1.5 s, reducers 1 s */
	ck_assert_double_eq_tol(p.steps[PLAN_NO_OVERLAP].ring, 2.4, 1e-9);
	ck_assert_double_eq_tol(p.steps[PLAN_NO_OVERLAP].reducers, 1.9, 1e-9);
	ck_assert_double_eq_tol(p.steps[PLAN_FULL_OVERLAP].ring, 1.5, 1e-9);
	ck_assert_double_eq_tol(p.steps[PLAN_FULL_OVERLAP].reducers, 1, 1e-9);
	ck_assert_double_eq_tol(p.cost[PLAN_NO_OVERLAP].ring, 2400 / 3600.0 * 36, 1e-9);
	ck_assert_double_eq_tol(p.cost[PLAN_NO_OVERLAP].reducers, 1900 / 3600.0 * 40, 1e-9);
	ck_assert_double_eq_tol(p.cost[PLAN_FULL_OVERLAP].ring, 1500 / 3600.0 * 36, 1e-9);
	ck_assert_double_eq_tol(p.cost[PLAN_FULL_OVERLAP].reducers, 1000 / 3600.0 * 40, 1e-9);
	plan_close(&p);
	rs_config_close(&cfg);
}
END_TEST

/* Configurations, and what their reducers need. */
static const struct {
	const char *text;
	double cores_least, cores_most, mib;
	unsigned lanes;
} needs[] = {
    /* 1.25 GB/s are 1.164 GiB/s; a lane has 128 slots of 64 KiB */
    {"plan: {workers: 4, bandwidth: 10gbit}\n" REDUCERS_4, 0.8 * 1.164, 1.5 * 1.164, 8.2, 1},
    {"plan: {workers: 4, bandwidth: 25gbit}\n" REDUCERS_4, 0.8 * 2.91, 1.5 * 2.91, 24.4, 3},
    /* the workers' links limit reducers that are too many, and reducers limit themselves
     * if there are too few */
    {"plan: {workers: 2, bandwidth: 10gbit}\n" REDUCERS_4, 0.4 * 1.164, 0.75 * 1.164, 8.2, 1},
    {"plan: {workers: 4, bandwidth: 10gbit}\n" REDUCERS_1, 0.8 * 1.164, 1.5 * 1.164, 8.2, 1},
    /* encryption and gRPC cost more */
    {"job: {transport: grpc}\nplan: {workers: 4, bandwidth: 10gbit}\n" REDUCERS_4, 2.2 * 1.164, 2.9 * 1.164, 8.2, 1},
    {"security: {tls: 'on'}\nplan: {workers: 4, bandwidth: 10gbit}\n" REDUCERS_4, 1.5 * 1.164, 2.2 * 1.164, 8.2, 1},
    /* fewer bytes for each element; 8 bits also need larger accumulators */
    {"job: {wire: bf16}\nplan: {workers: 4, bandwidth: 10gbit}\n" REDUCERS_4, 0.848 * 1.164, 1.59 * 1.164, 8.2, 1},
    {"plan: {workers: 4, bandwidth: 10gbit, wire: fp8}\n" REDUCERS_4, 0.941 * 1.164, 1.764 * 1.164, 16.2, 1},
    {"security: {tls: 'on'}\nplan: {workers: 4, bandwidth: 10gbit, wire: int8}\n" REDUCERS_4, 1.641 * 1.164,
     2.464 * 1.164, 16.2, 1},
    /* buffers of each rank, smaller windows, one priority */
    {"job: {deterministic: true}\nplan: {workers: 4, bandwidth: 10gbit}\n" REDUCERS_4, 0.8 * 1.164, 1.5 * 1.164, 32.2,
     1},
    {"sharding: {window: 4, priorities: 1}\nplan: {workers: 4, bandwidth: 10gbit}\n" REDUCERS_4, 0.8 * 1.164,
     1.5 * 1.164, 0.62, 1},
};

START_TEST(reducers_need)
{
	struct rs_config cfg;
	struct plan p;

	make(&p, &cfg, needs[_i].text);
	ck_assert_double_eq_tol(p.needs.cores_least, needs[_i].cores_least, 0.02);
	ck_assert_double_eq_tol(p.needs.cores_most, needs[_i].cores_most, 0.02);
	ck_assert_double_eq_tol((double)p.needs.memory / (1 << 20), needs[_i].mib, 0.1);
	ck_assert_uint_eq(p.needs.lanes, needs[_i].lanes);
	plan_close(&p);
	rs_config_close(&cfg);
}
END_TEST

/* Which configurations lack what a plan requires. */
static const struct {
	const char *text;
	bool outline;
} outlines[] = {
    {"", true},
    {REDUCERS_2, true},
    {"plan: {workers: 4}\n" REDUCERS_2, true},
    {"plan: {bandwidth: 1gbit}\n" REDUCERS_2, true},
    {"plan: {workers: 4, bandwidth: 1gbit}\n" REDUCERS_2, false},
    {"workers: [{bandwidth: 1gbit}, {}]\n" REDUCERS_2, false},
    {"reducers: [{id: a, address: a, bandwidth: 1gbit}]\n", false},
    {"plan: {racks: 2, uplink: 1gbit}\n" REDUCERS_2, false},
};

START_TEST(outlines_lack_something)
{
	struct rs_config cfg;

	parse(&cfg, outlines[_i].text);
	ck_assert_int_eq(plan_is_outline(&cfg), outlines[_i].outline);
	rs_config_close(&cfg);
}
END_TEST

static const struct {
	double bytes;
	const char *text;
} sizes[] = {
    {1, "1 B"},           {1000, "1000 B"}, {1024, "1 KiB"},   {1e9, "1 GB"},         {104857600, "100 MiB"},
    {26214400, "25 MiB"}, {5e8, "500 MB"},  {1.5e9, "1.5 GB"}, {123456789, "123 MB"}, {(double)(1ull << 34), "16 GiB"}};

START_TEST(sizes_are_short)
{
	char text[32];

	plan_format_bytes(sizes[_i].bytes, text, sizeof text);
	ck_assert_str_eq(text, sizes[_i].text);
}
END_TEST

static const struct {
	double seconds;
	const char *text;
} times[] = {{0, "0 us"},     {12.34e-6, "12.3 us"}, {0.0009994, "999 us"}, {0.0009996, "1 ms"},   {0.0839, "83.9 ms"},
	     {0.9996, "1 s"}, {12.34, "12.3 s"},     {999.4, "999 s"},      {123456.7, "123457 s"}};

START_TEST(times_are_short)
{
	char text[32];

	plan_format_time(times[_i].seconds, text, sizeof text);
	ck_assert_str_eq(text, times[_i].text);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("plan");
	TCase *tc = tcase_create("plan");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 30); /* sanitizers included */
	tcase_add_loop_test(tc, maps_of_equal_links, 0, COUNT(mixes));
	tcase_add_loop_test(tc, maps_of_unequal_links, 0, 100);
	tcase_add_loop_test(tc, plans_give_shards, 0, COUNT(plans));
	tcase_add_test(tc, maps_are_interleaved);
	tcase_add_test(tc, largest_plan);
	tcase_add_loop_test(tc, verdicts_are_sentences, 0, COUNT(verdicts));
	tcase_add_test(tc, the_needed_number_of_reducers_is_minimal);
	tcase_add_loop_test(tc, unplannable_configurations_are_refused, 0, COUNT(bad));
	tcase_add_loop_test(tc, racks_limit_times, 0, COUNT(racks));
	tcase_add_loop_test(tc, racks_are_as_measured, 0, COUNT(laboratory));
	tcase_add_loop_test(tc, trainings_send, 0, COUNT(trainings));
	tcase_add_test(tc, steps_and_prices);
	tcase_add_loop_test(tc, reducers_need, 0, COUNT(needs));
	tcase_add_loop_test(tc, outlines_lack_something, 0, COUNT(outlines));
	tcase_add_loop_test(tc, sizes_are_short, 0, COUNT(sizes));
	tcase_add_loop_test(tc, times_are_short, 0, COUNT(times));
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
