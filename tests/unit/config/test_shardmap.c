/* SPDX-License-Identifier: Apache-2.0 */
#include "config/shardmap.h"

#include "config/config.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Weights of reducers (0 ends them), number of shards (0: the default), and the shards
 * that each must get. */
static const struct {
	double weights[6];
	unsigned lanes, shards;
	unsigned expected_shards, expected[6];
} deals[] = {
    {{1}, 1, 0, 64, {64}},
    {{1, 1}, 1, 0, 64, {32, 32}},
    {{1, 1, 1}, 1, 0, 66, {22, 22, 22}},
    {{7, 7, 7}, 1, 0, 66, {22, 22, 22}},
    {{1, 1, 1}, 4, 0, 72, {24, 24, 24}}, /* six on each lane */
    {{1, 1, 1, 1, 1}, 1, 0, 65, {13, 13, 13, 13, 13}},
    {{1, 1, 1}, 1, 64, 64, {22, 21, 21}},
    {{1, 1, 1}, 1, 3, 3, {1, 1, 1}},
    {{2, 1}, 1, 0, 64, {43, 21}},
    {{3, 1}, 1, 8, 8, {6, 2}},
    {{0.25, 0.75}, 1, 8, 8, {2, 6}},
    {{1, 2, 1, 1, 1}, 1, 0, 80, {14, 27, 13, 13, 13}},
    {{100, 100, 25, 12.5, 12.5}, 1, 500, 500, {200, 200, 50, 25, 25}},
    /* each gets at least one, taken from those furthest above their share */
    {{1000000, 0.000001}, 1, 64, 64, {63, 1}},
    {{1000000, 0.000001, 0.000001}, 1, 3, 3, {1, 1, 1}},
    {{5, 5, 0.1, 0.1, 0.1}, 1, 6, 6, {2, 1, 1, 1, 1}},
};

/* Makes the reducers of one row of the table; returns their number. */
static unsigned make_reducers(struct rs_reducer reducers[6], int row)
{
	unsigned n = 0;

	memset(reducers, 0, 6 * sizeof *reducers);
	for (; n < 6 && deals[row].weights[n] > 0; n++) {
		reducers[n].weight = deals[row].weights[n];
		reducers[n].lanes = deals[row].lanes;
	}
	return n;
}

START_TEST(shares_follow_weights)
{
	struct rs_reducer reducers[6];
	unsigned n = make_reducers(reducers, _i), shards = deals[_i].shards, got[6] = {0};
	uint16_t owner[RS_SHARDS_MAX];
	struct rs_err e;

	if (shards == 0)
		shards = shardmap_default_shards(reducers, n, false);
	ck_assert_uint_eq(shards, deals[_i].expected_shards);
	ck_assert_int_eq(shardmap_deal(owner, shards, reducers, n, &e), RS_OK);
	for (unsigned s = 0; s < shards; s++) {
		ck_assert_uint_lt(owner[s], n);
		got[owner[s]]++;
	}
	ck_assert_mem_eq(got, deals[_i].expected, sizeof got);
}
END_TEST

/* In any sequence of consecutive shards each reducer has its share, plus or minus two. */
START_TEST(shares_are_interleaved)
{
	struct rs_reducer reducers[6];
	unsigned n = make_reducers(reducers, _i), shards = deals[_i].expected_shards;
	uint16_t owner[RS_SHARDS_MAX];
	double furthest = 0;
	struct rs_err e;

	ck_assert_int_eq(shardmap_deal(owner, shards, reducers, n, &e), RS_OK);
	for (unsigned first = 0; first < shards; first++) {
		unsigned got[6] = {0};

		for (unsigned len = 1; first + len <= shards; len++) {
			got[owner[first + len - 1]]++;
			for (unsigned i = 0; i < n; i++) {
				double off = got[i] - (double)len * deals[_i].expected[i] / shards;

				furthest = fabs(off) > furthest ? fabs(off) : furthest;
			}
		}
	}
	ck_assert_double_lt(furthest, 2);
}
END_TEST

START_TEST(equal_reducers_alternate)
{
	struct rs_reducer reducers[6];
	unsigned n = make_reducers(reducers, 2);
	uint16_t owner[66];
	struct rs_err e;

	ck_assert_int_eq(shardmap_deal(owner, 66, reducers, n, &e), RS_OK);
	for (unsigned s = 0; s < 66; s++)
		ck_assert_uint_eq(owner[s], s % 3);
}
END_TEST

START_TEST(counts_are_kept)
{
	static const unsigned counts[] = {0, 5, 0, 1, 2};
	static const uint16_t expected[] = {1, 4, 1, 1, 3, 1, 4, 1};
	uint16_t owner[8];
	struct rs_err e;

	ck_assert_int_eq(shardmap_interleave(owner, 8, counts, 5, &e), RS_OK);
	ck_assert_mem_eq(owner, expected, sizeof owner);
}
END_TEST

START_TEST(many_reducers)
{
	static struct rs_reducer reducers[RS_REDUCERS_MAX];
	static uint16_t owner[RS_SHARDS_MAX];
	unsigned got[RS_REDUCERS_MAX] = {0};
	struct rs_err e;

	for (unsigned i = 0; i < RS_REDUCERS_MAX; i++)
		reducers[i] = (struct rs_reducer){.weight = 1, .lanes = RS_LANES_MAX};
	ck_assert_uint_eq(shardmap_default_shards(reducers, RS_REDUCERS_MAX, false), RS_REDUCERS_MAX);
	reducers[7].weight = 1e6;
	ck_assert_uint_eq(shardmap_default_shards(reducers, RS_REDUCERS_MAX, false), RS_SHARDS_MAX);
	ck_assert_int_eq(shardmap_deal(owner, RS_SHARDS_MAX, reducers, RS_REDUCERS_MAX, &e), RS_OK);
	for (unsigned s = 0; s < RS_SHARDS_MAX; s++)
		got[owner[s]]++;
	for (unsigned i = 0; i < RS_REDUCERS_MAX; i++)
		ck_assert_uint_eq(got[i], i == 7 ? RS_SHARDS_MAX - (RS_REDUCERS_MAX - 1) : 1);
}
END_TEST

START_TEST(lanes_alternate)
{
	static const char text[] = "reducers: [{id: a, address: x, lanes: 2}, {id: b, address: y, lanes: 3}]\n"
				   "sharding: {map: {\"0-2,5,7\": a, \"3-4,6,8-9\": b}}\n";
	static const unsigned lanes[] = {0, 1, 0, 0, 1, 1, 2, 0, 0, 1};
	struct rs_config cfg;
	struct rs_err e;

	ck_assert_int_eq(rs_config_parse(&cfg, "f", text, strlen(text), &e), RS_OK);
	ck_assert_uint_eq(cfg.sharding.shards, sizeof lanes / sizeof lanes[0]);
	for (unsigned s = 0; s < cfg.sharding.shards; s++)
		ck_assert_uint_eq(rs_config_lane(&cfg, s), lanes[s]);
	rs_config_close(&cfg);
}
END_TEST

/* Places of shards while some reducers are lost: the map and the lanes, the lives, and
 * the places as reducer + lane. */
#define SIX "reducers: [{id: a, address: x}, {id: b, address: y}, {id: c, address: z}]\n"
static const char abcabc[] = SIX "sharding: {map: {\"0,3\": a, \"1,4\": b, \"2,5\": c}}\n";
static const char aaaabc[] = SIX "sharding: {map: {\"0-3\": a, \"4\": b, \"5\": c}}\n";
static const char aabbbb[] = SIX "sharding: {map: {\"0-1\": a, \"2-5\": b}}\n";
static const char lanes[] = "reducers: [{id: a, address: x, lanes: 2}, {id: b, address: y, lanes: 3}]\n"
			    "sharding: {map: {\"0,2,4\": a, \"1,3,5\": b}}\n";
struct placement {
	const char *yaml;
	uint32_t lives[3];
	const char *places[6];
};

static const struct placement placements[] = {
    {abcabc, {0, 0, 0}, {"a0", "b0", "c0", "a0", "b0", "c0"}},
    {abcabc, {0, 1, 0}, {"a0", "a0", "c0", "a0", "c0", "c0"}}, /* only b's shards move */
    {abcabc, {1, 0, 0}, {"b0", "b0", "c0", "c0", "b0", "c0"}},
    {abcabc, {1, 1, 0}, {"c0", "c0", "c0", "c0", "c0", "c0"}},
    {abcabc, {2, 4, 6}, {"a0", "b0", "c0", "a0", "b0", "c0"}}, /* a returned reducer has its own shards again */
    {abcabc, {7, 4, 6}, {"b0", "b0", "c0", "c0", "b0", "c0"}}, /* lives of earlier losses make no difference */
    {aaaabc,
     {0, 1, 0},
     {"a0", "a0", "a0", "a0", "a0", "c0"}}, /* by share: five for weight 4 is less than two for weight 1 */
    {aaaabc, {1, 0, 0}, {"b0", "c0", "b0", "c0", "b0", "c0"}},
    {aabbbb, {0, 0, 0}, {"a0", "a0", "b0", "b0", "b0", "b0"}},
    {aabbbb, {0, 1, 0}, {"a0", "a0", "c0", "c0", "a0", "c0"}}, /* c has no shards: it counts as one with two */
    {aabbbb, {0, 1, 1}, {"a0", "a0", "a0", "a0", "a0", "a0"}},
    {lanes, {0, 0}, {"a0", "b0", "a1", "b1", "a0", "b2"}},
    {lanes,
     {1, 0},
     {"b0", "b0", "b1", "b1", "b2", "b2"}}, /* b's shards keep their lanes, added ones continue from there */
    {lanes, {0, 1}, {"a0", "a1", "a1", "a0", "a0", "a1"}},
};

static void expect_places(const struct placement *p, const uint32_t *shares)
{
	uint16_t owner[6], lane[6];
	struct exchange_params params;
	struct rs_config cfg;
	struct rs_err e = {0};

	ck_assert_msg(rs_config_parse(&cfg, "f", p->yaml, strlen(p->yaml), &e) == 0, "%s", e.msg);
	ck_assert_uint_eq(cfg.sharding.shards, 6);
	params = rs_config_exchange(&cfg);
	exchange_params_place(&params, p->lives, shares, owner, lane);
	for (unsigned s = 0; s < 6; s++) {
		char place[8];

		snprintf(place, sizeof place, "%c%u", 'a' + owner[s], lane[s]);
		ck_assert_msg(strcmp(place, p->places[s]) == 0, "shard %u is at %s instead of %s", s, place,
			      p->places[s]);
	}
	rs_config_close(&cfg);
}

START_TEST(shards_of_lost_reducers_move_to_the_others)
{
	expect_places(&placements[_i], NULL);
}
END_TEST

/* The same with shares. */
static const struct {
	struct placement at;
	uint32_t shares[3];
} shared[] = {
    /* shares replace the map, also where it gives a reducer nothing */
    {{aaaabc, {0, 0, 0}, {"a0", "b0", "c0", "a0", "b0", "c0"}}, {1, 1, 1}},
    {{abcabc, {0, 0, 0}, {"a0", "a0", "b0", "a0", "c0", "a0"}}, {4, 1, 1}},
    {{abcabc, {0, 0, 0}, {"a0", "a0", "b0", "a0", "c0", "a0"}}, {65535, 1, 1}}, /* one at least */
    {{aabbbb, {0, 0, 0}, {"a0", "b0", "a0", "c0", "b0", "a0"}}, {3, 2, 1}},
    {{lanes, {0, 0}, {"b0", "a0", "b1", "b2", "a1", "b0"}}, {1, 2}},
    /* then losses move shards as before */
    {{abcabc, {0, 1, 0}, {"a0", "a0", "c0", "a0", "c0", "c0"}}, {1, 4, 1}},
    {{abcabc, {2, 0, 1}, {"b0", "a0", "b0", "b0", "a0", "b0"}}, {2, 3, 1}},
};

START_TEST(shares_replace_the_map)
{
	expect_places(&shared[_i].at, shared[_i].shares);
}
END_TEST

/* Shares of any kind: counts follow them within one, each reducer has a shard, and any
 * sequence of shards has its share of each reducer within two; shards of running reducers
 * stay where the shares put them, and the first share of all does not matter, only their
 * ratio. */
START_TEST(counts_follow_shares)
{
	enum { N = 5, SHARDS = 160 };
	static const char text[] = "reducers: [{id: a, address: x, weight: 2}, {id: b, address: y, lanes: 3},\n"
				   "  {id: c, address: z}, {id: d, address: v}, {id: e, address: w}]\n"
				   "sharding: {shards: 160}\n";
	static const uint32_t none_lost[N] = {0};
	uint32_t random = 7 + (uint32_t)_i, shares[N], twice[N], lives[N];
	uint16_t owner[SHARDS], again[SHARDS], placed[SHARDS], lane[SHARDS];
	unsigned got[N] = {0}, seen[N] = {0}, small = 0;
	struct exchange_params params;
	struct rs_config cfg;
	double sum = 0;
	struct rs_err e;

	ck_assert_int_eq(rs_config_parse(&cfg, "f", text, strlen(text), &e), 0);
	params = rs_config_exchange(&cfg);
	for (unsigned r = 0; r < N; r++) {
		random = random * 1664525 + 1013904223;
		shares[r] = 1 + (random >> 8) % (_i % 3 == 0 ? 32767 : _i % 3 == 1 ? 4 : 100);
		twice[r] = 2 * shares[r];
		lives[r] = random >> 30 == 0 && r > 0;
		sum += shares[r];
	}
	exchange_params_place(&params, none_lost, shares, owner, lane);
	exchange_params_place(&params, none_lost, twice, again, lane);
	ck_assert_mem_eq(owner, again, sizeof owner);
	for (unsigned s = 0; s < SHARDS; s++)
		got[owner[s]]++;
	for (unsigned r = 0; r < N; r++) {
		small += SHARDS * shares[r] < sum;
		ck_assert_uint_ge(got[r], 1);
		/* those that have one in place of none take it from the others */
		ck_assert_double_lt(fabs(got[r] - SHARDS * shares[r] / sum), 1 + small);
	}
	for (unsigned s = 0; s < SHARDS; s++) {
		seen[owner[s]]++;
		for (unsigned r = 0; r < N; r++)
			ck_assert_double_lt(fabs(seen[r] - (s + 1.0) * got[r] / SHARDS), 2);
	}
	exchange_params_place(&params, lives, shares, placed, lane);
	for (unsigned s = 0; s < SHARDS; s++)
		ck_assert(lives[placed[s]] % 2 == 0 && (lives[owner[s]] % 2 || placed[s] == owner[s]));
	rs_config_close(&cfg);
}
END_TEST

/* With fewer shards than reducers the map stays. */
START_TEST(too_few_shards_for_shares)
{
	static const char text[] = SIX "sharding: {map: {\"0\": c, \"1\": a}}\n";
	static const uint32_t lives[3] = {0}, shares[3] = {1, 9, 5};
	uint16_t owner[2], lane[2];
	struct exchange_params params;
	struct rs_config cfg;
	struct rs_err e;

	ck_assert_int_eq(rs_config_parse(&cfg, "f", text, strlen(text), &e), 0);
	params = rs_config_exchange(&cfg);
	exchange_params_place(&params, lives, shares, owner, lane);
	ck_assert(owner[0] == 2 && owner[1] == 0);
	rs_config_close(&cfg);
}
END_TEST

/* Larger maps: shards of running reducers do not move, none stays on a lost one, and load
 * follows the shares. */
START_TEST(loads_stay_even)
{
	static const char text[] =
	    "reducers: [{id: a, address: x, weight: 2}, {id: b, address: y}, {id: c, address: z, weight: 3},\n"
	    "  {id: d, address: v, lanes: 2}, {id: e, address: w}]\nsharding: {shards: 160}\n";
	uint32_t lives[5] = {_i & 1, _i >> 1 & 1, _i >> 2 & 1, _i >> 3 & 1, _i >> 4 & 1};
	static const unsigned weights[5] = {2, 1, 3, 1, 1};
	unsigned got[5] = {0}, living = 0;
	uint16_t owner[160], lane[160];
	struct exchange_params params;
	struct rs_config cfg;
	struct rs_err e;

	ck_assert_int_eq(rs_config_parse(&cfg, "f", text, strlen(text), &e), 0);
	params = rs_config_exchange(&cfg);
	exchange_params_place(&params, lives, NULL, owner, lane);
	for (unsigned r = 0; r < 5; r++)
		living += lives[r] % 2 ? 0 : weights[r];
	for (unsigned s = 0; s < 160; s++) {
		unsigned before = cfg.sharding.owner[s];

		ck_assert_uint_eq(lives[owner[s]] % 2, 0);
		ck_assert(lives[before] % 2 || owner[s] == before);
		if (lives[before] % 2 == 0)
			ck_assert_uint_eq(lane[s], rs_config_lane(&cfg, s));
		ck_assert_uint_lt(lane[s], cfg.reducers[owner[s]].lanes);
		got[owner[s]]++;
	}
	for (unsigned r = 0; r < 5; r++)
		if (lives[r] % 2 == 0)
			ck_assert_double_le(fabs(got[r] - 160.0 * weights[r] / living), 2);
	rs_config_close(&cfg);
}
END_TEST

/* Slots: with any set of living reducers no shard of a living reducer moves, and none
 * gets more than its share, rounded up. When one more comes, few shards move but those
 * that it gets; the first that is lost moves its own alone. */
enum { SLOTS_SETS = 400, SLOTS_MOST = 64 };
static const struct {
	unsigned reducers, shards, weights; /* weights of the reducers in turn: 1 to this number */
	unsigned moved;                     /* per cent of all shards that may move beside the newcomer's, on average */
} slots[] = {
    {2, 64, 1, 0},  {3, 66, 1, 0},   {4, 64, 1, 1}, {8, 64, 1, 3},
    {16, 64, 1, 6}, {64, 256, 1, 5}, {5, 80, 3, 2}, {12, 192, 4, 4},
};

struct slots_case {
	struct rs_reducer reducers[SLOTS_MOST];
	uint16_t home[RS_SHARDS_MAX];
	unsigned share[SLOTS_MOST];
	struct exchange_params p;
};

static void slots_open(struct slots_case *c, int row)
{
	struct rs_err e;
	unsigned n = slots[row].reducers;

	memset(c, 0, sizeof *c);
	for (unsigned r = 0; r < n; r++) {
		c->reducers[r].weight = 1 + r % slots[row].weights;
		c->reducers[r].lanes = 1 + r % 2;
	}
	ck_assert_int_eq(shardmap_deal(c->home, slots[row].shards, c->reducers, n, &e), RS_OK);
	for (unsigned s = 0; s < slots[row].shards; s++)
		c->share[c->home[s]]++;
	c->p = (struct exchange_params){
	    .reducers = c->reducers, .reducers_n = n, .home = c->home, .shards = slots[row].shards};
}

static void slots_place(const struct slots_case *c, const uint32_t *lives, uint16_t *owner)
{
	uint16_t lane[RS_SHARDS_MAX];
	unsigned load[SLOTS_MOST] = {0}, living = 0;

	exchange_params_place_slots(&c->p, lives, NULL, owner, lane);
	for (unsigned r = 0; r < c->p.reducers_n; r++)
		living += lives[r] % 2 ? 0 : c->share[r];
	for (unsigned s = 0; s < c->p.shards; s++) {
		ck_assert_uint_eq(lives[owner[s]] % 2, 0);
		ck_assert(lives[c->home[s]] % 2 || owner[s] == c->home[s]);
		ck_assert_uint_lt(lane[s], c->reducers[owner[s]].lanes);
		load[owner[s]]++;
	}
	for (unsigned r = 0; r < c->p.reducers_n; r++)
		ck_assert_uint_le(load[r], lives[r] % 2 ? 0 : (c->p.shards * c->share[r] + living - 1) / living);
}

/* Returns how many shards are on another reducer although neither is `changed`. */
static unsigned slots_moved(const struct slots_case *c, const uint16_t *a, const uint16_t *b, unsigned changed)
{
	unsigned n = 0;

	for (unsigned s = 0; s < c->p.shards; s++)
		n += a[s] != b[s] && a[s] != changed && b[s] != changed;
	return n;
}

START_TEST(few_shards_move)
{
	static struct slots_case c;
	uint16_t before[RS_SHARDS_MAX], after[RS_SHARDS_MAX];
	unsigned n = slots[_i].reducers, moved = 0;
	uint64_t state = 88172645463325252;

	slots_open(&c, _i);
	for (unsigned set = 0; set < SLOTS_SETS; set++) {
		uint32_t lives[SLOTS_MOST];
		unsigned dead = 0, comes;

		for (unsigned r = 0; r < n; r++) {
			state ^= state << 13, state ^= state >> 7, state ^= state << 17;
			lives[r] = (state >> 20) % 100 < 100 * (set % 8) / 8;
			dead += lives[r];
		}
		comes = (unsigned)(state % n);
		dead += 1 - lives[comes];
		lives[comes] = 1;
		if (dead == n)
			continue;
		slots_place(&c, lives, before);
		lives[comes] = 2;
		slots_place(&c, lives, after);
		moved += slots_moved(&c, before, after, comes);
		if (dead == 1)
			ck_assert_uint_eq(slots_moved(&c, before, after, comes), 0);
	}
	ck_assert_uint_le(moved * 100, slots[_i].moved * slots[_i].shards * SLOTS_SETS);
}
END_TEST

/* Shares of a view are the weights. */
START_TEST(shares_decide)
{
	static struct slots_case c;
	uint16_t owner[RS_SHARDS_MAX], lane[RS_SHARDS_MAX];
	const uint32_t lives[] = {0, 0, 1, 0}, shares[] = {10, 20, 40, 2};
	unsigned load[4] = {0};

	slots_open(&c, 2);
	exchange_params_place_slots(&c.p, lives, shares, owner, lane);
	for (unsigned s = 0; s < c.p.shards; s++)
		load[owner[s]]++;
	ck_assert_uint_eq(load[2], 0);
	ck_assert_uint_le(load[3], 5);
	for (unsigned r = 0; r < 2; r++)
		ck_assert_uint_le(load[r], (64 * shares[r] + 31) / 32 + 2);
}
END_TEST

/* What a worker retains does not grow with the slots that a job declares. */
START_TEST(lead_is_bounded)
{
	const struct exchange_params p = {.shards = 4096, .window = 8, .ahead = 8, .lead_most = LEAD_MOST};
	const struct exchange_params decoupled = {.shards = 4, .window = 8, .ahead = 200, .lead_most = LEAD_MOST};

	ck_assert_uint_eq(exchange_params_lead(&p, 8, 1, true), LEAD_MOST);
	ck_assert_uint_eq(exchange_params_lead(&p, 8, 64 * 256, true), LEAD_MOST);
	ck_assert_uint_eq(exchange_params_lead(&p, 8, 1, false), 4096);
	ck_assert_uint_eq(exchange_params_lead(&p, 8, 1024, false), 8192);
	ck_assert_uint_eq(exchange_params_lead(&p, 100, 8, true), 800); /* long links need it */
	/* a rank may be ahead on all links at once */
	ck_assert_uint_eq(exchange_params_lead(&decoupled, 200, 8, true), 1600);
	ck_assert_uint_eq(exchange_params_lead(&decoupled, 8, 8, true), 1600);
	ck_assert_uint_eq(exchange_params_lead(&decoupled, 300, 8, true), 2400);
}
END_TEST

#define COUNT(array) (int)(sizeof(array) / sizeof(array)[0])

int main(void)
{
	Suite *suite = suite_create("shardmap");
	TCase *tc = tcase_create("shardmap");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, shares_follow_weights, 0, COUNT(deals));
	tcase_add_loop_test(tc, shares_are_interleaved, 0, COUNT(deals));
	tcase_add_test(tc, equal_reducers_alternate);
	tcase_add_test(tc, counts_are_kept);
	tcase_add_test(tc, many_reducers);
	tcase_add_test(tc, lanes_alternate);
	tcase_add_loop_test(tc, shards_of_lost_reducers_move_to_the_others, 0, COUNT(placements));
	tcase_add_loop_test(tc, loads_stay_even, 0, 31); /* all but the one in which every reducer is lost */
	tcase_add_loop_test(tc, shares_replace_the_map, 0, COUNT(shared));
	tcase_add_loop_test(tc, counts_follow_shares, 0, 300);
	tcase_add_test(tc, too_few_shards_for_shares);
	tcase_add_loop_test(tc, few_shards_move, 0, COUNT(slots));
	tcase_add_test(tc, shares_decide);
	tcase_add_test(tc, lead_is_bounded);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
