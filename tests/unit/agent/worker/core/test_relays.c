/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank in a group sends to relays, and from which position on after a loss. Links
 * 0 and 1 are r0's lanes, 2 is r1, 3 is r2. r0 relays for the first group. */
#include "agent/worker/core/exchange_state.h"
#include "proto/features.h"
#include "tests/unit/fake_ops.h"
#include "tests/unit/fake_views.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#define REDUCERS                                                                                                       \
	"reducers: [{id: r0, address: \"127.0.0.1:1\", lanes: 2}, {id: r1, address: \"127.0.0.1:2\"},\n"               \
	"  {id: r2, address: \"127.0.0.1:3\"}]\n"                                                                      \
	"sharding: {chunk_bytes: 1024, window: 16, priorities: 1, map: {\"0,3\": r0, \"1,4\": r1, \"2,5\": r2}}\n"     \
	"timeouts: {detect: 4s}\n"
static const char grouped[] = REDUCERS "groups: [{name: a, relays: {1: r0, 4: r0, 5: r0}}, {name: b, relays: [r2]}]\n";
static const char plain[] = REDUCERS;

enum { MINE = 99, OFFERS = FEATURE_START | FEATURE_RELAYS, CHUNKS = 8 };

static void say_start(struct reducers *f, uint64_t features)
{
	const struct control_welcome w = {.detect_ms = 8000, .features = features};
	const struct control_start s = {.features = features, .start = MINE};
	uint8_t payload[FRAME_CONTROL_MAX];

	for (unsigned i = 0; i < f->links_n; i++)
		reducers_say_control(f, i, FRAME_WELCOME, payload, control_pack_welcome(payload, &w));
	reducers_pump(f);
	for (unsigned i = 0; i < f->links_n; i++) {
		f->l[i].started = true;
		reducers_say_control(f, i, FRAME_START, payload, control_pack_start(payload, &s));
	}
	reducers_pump(f);
}

static void open_group(struct reducers *f, const char *yaml, unsigned group, uint64_t above, uint64_t offers,
		       uint64_t features)
{
	reducers_open_group(f, yaml, group, above, offers);
	f->welcome = f->start = false;
	reducers_pump(f);
	say_start(f, features);
	ck_assert_int_eq(exchange_state(f->x), EXCHANGE_RUNNING);
}

/* Returns text such as "D0 D1>1.0", as views_said(), with the home of relayed chunks. */
static const char *said(const struct reducers *f, unsigned link, unsigned from)
{
	static char text[800];
	size_t len = 0;

	text[0] = '\0';
	for (unsigned i = from; i < f->l[link].data_n; i++) {
		const struct frame *h = &f->l[link].data[i];

		len += (size_t)snprintf(text + len, sizeof text - len, "%s%c%u", i > from ? " " : "",
					h->type == FRAME_HAVE ? 'H' : 'D', h->chunk);
		if (h->flags & FRAME_RELAY)
			len += (size_t)snprintf(text + len, sizeof text - len, ">%u.%u",
						frame_home_reducer(h->generation), frame_home_lane(h->generation));
	}
	return text;
}

/* Which ways a sum of 12 chunks takes. */
static const struct {
	const char *what;
	const char *yaml;
	unsigned group;
	uint64_t above, offers, features;
	const char *links[4];
} ways[] = {
    {"the first group", grouped, 0, 0, OFFERS, OFFERS, {"D0 D1>1.0 D5>2.0 D6 D7>1.0", "D3 D4>1.0", "", "D2"}},
    {"the other group", grouped, 1, 0, OFFERS, OFFERS, {"", "", "", "D0>0.0 D1>1.0 D2 D3>0.1 D4>1.0 D5 D6>0.0 D7>1.0"}},
    {"small", grouped, 0, CHUNKS * 1024, OFFERS, OFFERS, {"D0 D6", "D3", "D1 D4 D7", "D2 D5"}},
    {"just large enough",
     grouped,
     0,
     CHUNKS * 1024 - 1,
     OFFERS,
     OFFERS,
     {"D0 D1>1.0 D5>2.0 D6 D7>1.0", "D3 D4>1.0", "", "D2"}},
    {"a reducer cannot", grouped, 0, 0, OFFERS, FEATURE_START, {"D0 D6", "D3", "D1 D4 D7", "D2 D5"}},
    {"this rank cannot", grouped, 0, 0, FEATURE_START, OFFERS, {"D0 D6", "D3", "D1 D4 D7", "D2 D5"}},
    {"no groups", plain, 0, 0, OFFERS, OFFERS, {"D0 D6", "D3", "D1 D4 D7", "D2 D5"}},
};

START_TEST(chunks_go_to_relays_or_home)
{
	struct reducers f;
	struct reducers_op o;
	const struct control_hello *h;

	open_group(&f, ways[_i].yaml, ways[_i].group, ways[_i].above, ways[_i].offers, ways[_i].features);
	h = &f.l[0].hello;
	if (ways[_i].yaml == grouped)
		ck_assert(h->groups == 2 && h->group == ways[_i].group + 1 && h->uplinks == 3 && h->relay == 0 &&
			  h->reducers_digest == rs_config_reducers_digest(&f.cfg));
	else
		ck_assert(!h->groups && !h->group && !h->uplinks && !h->reducers_digest);
	ck_assert_int_eq(!(h->features & FEATURE_RELAYS),
			 ways[_i].yaml == plain || !(ways[_i].offers & FEATURE_RELAYS));
	views_submit(&f, &o, CHUNKS);
	for (unsigned i = 0; i < f.links_n; i++)
		ck_assert_msg(!strcmp(said(&f, i, 0), ways[_i].links[i]), "%s: link %u: %s", ways[_i].what, i,
			      said(&f, i, 0));
	views_expect_done(&o);
	reducers_close(&f);
}
END_TEST

/* Broadcasts and sharded operations go home. _i: broadcast, reduce-scatter, all-gather */
START_TEST(only_all_reduces_are_relayed)
{
	const uint64_t features = OFFERS | FEATURE_SHARDED;
	static float x[2048], y[2048];
	struct reducers f;
	struct fake_op o;
	unsigned sent = 0;

	open_group(&f, grouped, 0, 0, features, features);
	ops_submit(&f, &o,
		   (struct exchange_op){.send = x,
					.recv = _i ? y : x,
					.of = {.op = _i == 1 ? RS_SUM : FRAME_OP_BROADCAST,
					       .dtype = RS_FLOAT32,
					       .count = 2048,
					       .sharded = _i > 0,
					       .parts = _i ? 2 : 0}});
	reducers_pump(&f);
	ck_assert_int_eq(o.done, 1);
	ck_assert_int_eq(o.err.code, 0);
	for (unsigned i = 0; i < 4; i++)
		for (unsigned k = 0; k < f.l[i].data_n; k++) {
			const struct frame *h = &f.l[i].data[k];

			ck_assert_int_eq(h->flags & FRAME_RELAY, 0);
			ck_assert_uint_eq(h->chunk % 3, i > 1 ? i - 1 : 0);
			sent++;
		}
	ck_assert_uint_ge(sent, 2);
	reducers_close(&f);
}
END_TEST

/* Where a chunk goes in the current view, "link" and home as in said(). */
static void expect_way(const struct reducers *f, uint64_t chunk, bool through, char *ways_said[4])
{
	const struct exchange *x = f->x;
	unsigned shard = (unsigned)(chunk % 6), link, reducer = x->owner[shard], lane = x->lane_of[shard];
	bool relayed = through && x->relay[shard] != RS_NO_RELAY;
	char *to;

	if (relayed) {
		reducer = x->relay[shard];
		lane = x->relay_lane[shard];
	}
	link = reducer ? reducer + 1 : lane;
	to = ways_said[link] + strlen(ways_said[link]);
	to += sprintf(to, "%sD%u", to > ways_said[link] ? " " : "", (unsigned)chunk);
	if (relayed)
		sprintf(to, ">%u.%u", x->owner[shard], x->lane_of[shard]);
}

/* Reducers are lost, no result has come to this rank, and to another one those before
 * position `begun`: chunks before it go home, the others to relays. _i: begun, then the
 * lost reducer: r0, which relays, r1 or r2 */
START_TEST(relays_begin_at_the_border)
{
	unsigned begun = (unsigned)_i % (CHUNKS + 2), victim = (unsigned)_i / (CHUNKS + 2), sent[4];
	static const unsigned first_link[] = {0, 2, 3};
	struct reducers f;
	struct reducers_op o;
	char texts[4][200] = {""}, *ways_said[4] = {texts[0], texts[1], texts[2], texts[3]};

	open_group(&f, grouped, 0, 0, OFFERS, OFFERS);
	f.answer = false;
	views_submit(&f, &o, CHUNKS);
	for (unsigned i = 0; i < 4; i++)
		sent[i] = f.l[i].data_n;
	for (unsigned i = first_link[victim]; i < first_link[victim] + (victim ? 1 : 2); i++)
		f.l[i].dead = true;
	reducers_cut(&f, first_link[victim], "cut");
	reducers_pump(&f);
	for (unsigned i = 0; i < 4; i++) {
		struct control_view v = f.l[i].view;

		if (!f.l[i].views)
			continue;
		ck_assert_uint_eq(v.begun[0], 0); /* this rank has seen none */
		v.begun[0] = begun;
		reducers_say_view(&f, i, FRAME_RESUME, &v);
		reducers_pump(&f);
	}
	for (uint64_t c = 0; c < CHUNKS; c++)
		expect_way(&f, c, c >= begun, ways_said);
	for (unsigned i = 0; i < 4; i++)
		ck_assert_msg(!strcmp(said(&f, i, sent[i]), texts[i]), "begun %u, link %u: \"%s\" instead of \"%s\"",
			      begun, i, said(&f, i, sent[i]), texts[i]);
	f.answer = true;
	for (unsigned i = 0; i < 4; i++)
		while (!f.l[i].dead && f.l[i].answered < f.l[i].data_n)
			reducers_answer(&f, i);
	reducers_pump(&f);
	views_expect_done(&o);
	reducers_close(&f);
}
END_TEST

/* This rank has results of relayed chunks: it says up to where, and says HAVE at their
 * homes, as of chunks that went straight; a FETCH gets KEPT. All of these have the job's
 * generation (fake_reducer.c checks it). */
START_TEST(what_was_relayed_is_had)
{
	struct reducers f;
	struct reducers_op o;
	unsigned sent[4], had = 0, data = 0;

	open_group(&f, grouped, 0, 0, OFFERS, OFFERS);
	f.answer = false;
	views_submit(&f, &o, CHUNKS);
	/* on link 0 chunks 0, 1 and 5 have results */
	for (unsigned i = 0; i < 3; i++)
		reducers_answer(&f, 0);
	reducers_pump(&f);
	for (unsigned i = 0; i < 4; i++)
		sent[i] = f.l[i].data_n;
	f.l[3].dead = true;
	reducers_cut(&f, 3, "cut");
	reducers_pump(&f);
	for (unsigned i = 0; i < 3; i++) {
		ck_assert_uint_eq(f.l[i].view.begun[0], 6);
		reducers_resume(&f, i);
		reducers_pump(&f);
	}
	for (unsigned i = 0; i < 3; i++)
		for (unsigned k = sent[i]; k < f.l[i].data_n; k++) {
			const struct frame *h = &f.l[i].data[k];

			if (h->type == FRAME_HAVE) {
				had |= 1U << h->chunk;
				ck_assert_uint_eq(f.l[i].kept_n, 0);
				reducers_fetch(&f, i, k);
				reducers_pump(&f);
				ck_assert_uint_eq(f.l[i].kept_n, 1);
				ck_assert(f.l[i].kept.chunk == h->chunk && f.l[i].kept.payload_len == 1024);
				f.l[i].kept_n = 0;
			} else {
				data |= 1U << h->chunk;
				ck_assert_int_eq(h->flags & FRAME_RELAY && h->chunk < 6, 0);
			}
		}
	ck_assert_uint_eq(had, 1 | 2 | 32);
	ck_assert_uint_eq(data, 4 | 8 | 16 | 64 | 128);
	reducers_close(&f);
}
END_TEST

/* RESUME may not say less than this rank has said. */
START_TEST(a_border_below_is_a_breach)
{
	struct reducers f;
	struct reducers_op o;
	struct control_view v;

	open_group(&f, grouped, 0, 0, OFFERS, OFFERS);
	f.answer = false;
	views_submit(&f, &o, CHUNKS);
	reducers_answer(&f, 0);
	reducers_answer(&f, 0);
	reducers_pump(&f);
	f.l[3].dead = true;
	reducers_cut(&f, 3, "cut");
	reducers_pump(&f);
	v = f.l[2].view;
	ck_assert_uint_eq(v.begun[0], 2);
	v.begun[0] = 1;
	f.l[2].dead = true;
	reducers_say_view(&f, 2, FRAME_RESUME, &v);
	reducers_pump(&f);
	ck_assert_uint_eq(f.lost, 2);
	ck_assert_msg(strstr(f.why, "results before position 1 have begun, this rank's VIEW 2"), "\"%s\"", f.why);
	reducers_close(&f);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("relays");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, chunks_go_to_relays_or_home, 0, sizeof ways / sizeof ways[0]);
	tcase_add_loop_test(tc, only_all_reduces_are_relayed, 0, 3);
	tcase_add_loop_test(tc, relays_begin_at_the_border, 0, 3 * (CHUNKS + 2));
	tcase_add_test(tc, what_was_relayed_is_had);
	tcase_add_test(tc, a_border_below_is_a_breach);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
