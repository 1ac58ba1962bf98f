/* SPDX-License-Identifier: Apache-2.0 */
/* Where the shards of a group are relayed, in each view. */
#include "config/config.h"

#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Four reducers, a0 with two lanes, and eight shards: shard s belongs to reducer s %
 * 4. */
#define R4                                                                                                             \
	"reducers: [{id: a0, address: w, lanes: 2}, {id: a1, address: x}, {id: b0, address: y}, {id: b1, address: "    \
	"z}]\n"                                                                                                        \
	"sharding: {shards: 8}\n"

static const struct {
	const char *what, *first, *second;
	unsigned group;
	uint32_t lives[4];
	const char *owner, *relay, *lane; /* of each shard; '-': none */
} rows[] = {
    {"all live", "[a0, a1]", "[b0, b1]", 0, {0}, "01230123", "--01--01", "--00--10"},
    {"the other group", "[a0, a1]", "[b0, b1]", 1, {0}, "01230123", "23--23--", "00--00--"},
    {"one is back", "[a0, a1]", "[b0, b1]", 0, {2, 4, 0, 6}, "01230123", "--01--01", "--00--10"},
    {"a relay is lost: the other takes its shards", "[a0, a1]", "[b0, b1]", 0, {1}, "11231123", "--11--11", "--00--00"},
    {"but not those that it owns", "[a0, a1]", "[b0, b1]", 0, {1}, "11131123", "---1--11", "---0--00"},
    {"no relay lives", "[a0, a1]", "[b0, b1]", 0, {1, 3}, "22232223", "--------", "--------"},
    {"a home is lost: its shards stay at the relay",
     "[a0, a1]",
     "[b0, b1]",
     0,
     {0, 0, 1},
     "01330133",
     "--01--01",
     "--00--10"},
    {"they may come home to it", "[a0, a1]", "[b0, b1]", 0, {0, 0, 1}, "01030103", "---1---1", "---0---0"},
    {"shards without a relay have none", "{2: a0}", "[b0]", 0, {0}, "01230123", "--0-----", "--0-----"},
    {"even if others are lost", "{2: a0, 3: a1}", "[b0]", 0, {0, 1}, "00230023", "--00----", "--01----"},
    {"the relay with the fewest",
     "{2: a0, 3: a0, 6: a0, 7: a1, 0: b1, 1: b1}",
     "[b0]",
     0,
     {0, 0, 0, 1},
     "01220122",
     "1-00--01",
     NULL},
    {"a group without relays", "{}", "[b0]", 0, {0}, "01230123", "--------", "--------"},
};

static void parse(struct rs_config *cfg, const char *first, const char *second)
{
	char text[600];
	struct rs_err e = {0};

	snprintf(text, sizeof text, R4 "groups: [{name: a, relays: %s}, {name: b, relays: %s}]\n", first, second);
	ck_assert_msg(rs_config_parse(cfg, "f", text, strlen(text), &e) == RS_OK, "%s", e.msg);
}

START_TEST(relays_are_placed)
{
	struct rs_config cfg;
	struct exchange_params p;
	uint16_t owner[8], relay[8], lane[8];
	char relays[9] = "", lanes[9] = "";

	parse(&cfg, rows[_i].first, rows[_i].second);
	p = rs_config_exchange(&cfg);
	ck_assert_uint_eq(p.groups_n, 2);
	p.group = rows[_i].group;
	for (unsigned s = 0; s < 8; s++)
		owner[s] = (uint16_t)(rows[_i].owner[s] - '0');
	exchange_params_place_relays(&p, rows[_i].lives, owner, relay, lane);
	for (unsigned s = 0; s < 8; s++) {
		relays[s] = relay[s] == RS_NO_RELAY ? '-' : (char)('0' + relay[s]);
		lanes[s] = relay[s] == RS_NO_RELAY ? '-' : (char)('0' + lane[s]);
	}
	ck_assert_msg(!strcmp(relays, rows[_i].relay), "%s: %s", rows[_i].what, relays);
	if (rows[_i].lane)
		ck_assert_msg(!strcmp(lanes, rows[_i].lane), "%s: lanes %s", rows[_i].what, lanes);
	rs_config_close(&cfg);
}
END_TEST

/* In each view, what holds of all placements. _i: bits of the reducers that are lost */
START_TEST(each_view_has_its_relays)
{
	static const char *const maps[][2] = {{"[a0, a1]", "[b0, b1]"},
					      {"[a0]", "[b1, a1]"},
					      {"{2-7: a0, 0: a1}", "{0-3: b1, 4: b0}"},
					      {"{0-7: a1}", "{0-3: b0}"}};

	for (unsigned m = 0; m < sizeof maps / sizeof maps[0]; m++) {
		struct rs_config cfg;
		struct exchange_params p;
		uint32_t lives[4];

		parse(&cfg, maps[m][0], maps[m][1]);
		p = rs_config_exchange(&cfg);
		for (unsigned r = 0; r < 4; r++)
			lives[r] = _i >> r & 1 ? 3 : 2 * r;
		for (p.group = 0; p.group < 2; p.group++) {
			const uint16_t *map = p.relays + p.group * p.shards;
			uint16_t owner[8], lane_of[8], relay[8], lane[8];
			unsigned alive = 0;

			exchange_params_place(&p, lives, NULL, owner, lane_of);
			exchange_params_place_relays(&p, lives, owner, relay, lane);
			for (unsigned s = 0; s < 8; s++)
				alive += map[s] != RS_NO_RELAY && lives[map[s]] % 2 == 0;
			for (unsigned s = 0; s < 8; s++) {
				bool in_group = false;

				if (map[s] == RS_NO_RELAY || !alive) {
					ck_assert_uint_eq(relay[s], RS_NO_RELAY);
					continue;
				}
				if (lives[map[s]] % 2 == 0)
					ck_assert(relay[s] == (map[s] == owner[s] ? RS_NO_RELAY : map[s]));
				if (relay[s] == RS_NO_RELAY)
					continue;
				for (unsigned t = 0; t < 8; t++)
					in_group |= map[t] == relay[s];
				ck_assert(in_group && lives[relay[s]] % 2 == 0 && relay[s] != owner[s]);
				ck_assert_uint_lt(lane[s], p.reducers[relay[s]].lanes);
			}
		}
		rs_config_close(&cfg);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("place_relays");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, relays_are_placed, 0, sizeof rows / sizeof rows[0]);
	tcase_add_loop_test(tc, each_view_has_its_relays, 0, 15); /* not with all lost */
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
