/* SPDX-License-Identifier: Apache-2.0 */
/* What a worker asks for on long links, and what it does with the window of START and the
 * lead of RESUME. */
#include "agent/worker/core/link.h"
#include "proto/features.h"
#include "tests/unit/fake_views.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

enum { MINE = 99, WINDOW = 4, BASE = 16, OPS = 8, OFFERS = FEATURE_START | FEATURE_WINDOWS };

/* Opens an exchange with two reducers with this configuration, without START. */
static void open_links(struct reducers *f, const char *yaml, uint64_t offers)
{
	reducers_open_offering(f, yaml, 3, 10000, offers);
	f->welcome = f->start = false;
	reducers_pump(f);
	for (unsigned i = 0; i < 2; i++) {
		struct control_welcome w = {.detect_ms = 1000, .features = UINT64_MAX};
		uint8_t payload[FRAME_CONTROL_MAX];

		reducers_say_control(f, i, FRAME_WELCOME, payload, control_pack_welcome(payload, &w));
		reducers_pump(f);
	}
}

/* The same, with this round trip to the first one and this bandwidth. */
static void open_long(struct reducers *f, const char *rtt, const char *bandwidth, uint64_t offers)
{
	char yaml[500];

	snprintf(yaml, sizeof yaml,
		 "reducers: [{id: r0, address: \"127.0.0.1:1\", rtt: %s}, {id: r1, address: \"127.0.0.1:2\"}]\n"
		 "sharding: {chunk_bytes: 1024, window: %d, priorities: 1, map: {0: r0, 1: r1}}\n"
		 "timeouts: {detect: 4s}\n%s%s",
		 rtt, WINDOW, bandwidth ? "plan: {bandwidth: " : "", bandwidth ? bandwidth : "");
	if (bandwidth)
		snprintf(yaml + strlen(yaml), sizeof yaml - strlen(yaml), "}\n");
	open_links(f, yaml, offers);
}

static void say_start(struct reducers *f, unsigned link, uint32_t window)
{
	const struct control_start s = {.features = OFFERS, .start = MINE, .window = window};
	uint8_t payload[CONTROL_START_LEN];

	f->l[link].started = true;
	reducers_say_control(f, link, FRAME_START, payload, control_pack_start(payload, &s));
	reducers_pump(f);
}

/* Round trip and bandwidth of the file; what HELLO to r0 asks for, 0: nothing; what both
 * HELLOs allow. */
static const struct {
	const char *rtt, *bandwidth;
	uint64_t offers;
	uint32_t wanted, most;
} wishes[] = {
    {"auto", NULL, OFFERS, 0, 1024},         {"9ms", NULL, OFFERS, 0, 1024},
    {"100ms", NULL, OFFERS, 1024, 1024},     {"100ms", "1mbit", OFFERS, 25, 1024},
    {"200ms", "1mbit", OFFERS, 49, 1024},    {"10ms", "1mbit", OFFERS, 0, 1024},
    {"100ms", "10gbit", OFFERS, 1024, 1024}, {"100ms", "1mbit", FEATURE_START, 0, 0},
};

START_TEST(hello_asks_for_what_the_round_trip_needs)
{
	struct reducers f;

	open_long(&f, wishes[_i].rtt, wishes[_i].bandwidth, wishes[_i].offers);
	ck_assert_uint_eq(f.l[0].hello.window, WINDOW);
	ck_assert_uint_eq(f.l[0].hello.wanted_window, wishes[_i].wanted);
	ck_assert_uint_eq(f.l[1].hello.wanted_window, 0);
	for (unsigned i = 0; i < 2; i++)
		ck_assert_uint_eq(f.l[i].hello.most_window, wishes[_i].most);
	reducers_close(&f);
}
END_TEST

/* Windows of START on both links; chunks in flight on each; 0: the START is a breach. */
static const struct {
	uint32_t start[2];
	unsigned in_flight[2];
} starts[] = {
    {{0, 0}, {4, 4}}, {{25, 0}, {25, 4}}, {{25, 30}, {25, 30}}, {{3, 0}, {0, 0}}, {{1025, 0}, {0, 0}},
};

START_TEST(start_gives_a_larger_window)
{
	static struct reducers_op o[OPS];
	struct reducers f;

	open_long(&f, "100ms", "1mbit", OFFERS);
	f.answer = false;
	say_start(&f, 0, starts[_i].start[0]);
	ck_assert(f.l[0].up == (starts[_i].in_flight[0] > 0));
	if (!f.l[0].up) {
		reducers_close(&f);
		return;
	}
	say_start(&f, 1, starts[_i].start[1]);
	ck_assert_int_eq(exchange_state(f.x), EXCHANGE_RUNNING);
	for (unsigned i = 0; i < OPS; i++)
		views_submit(&f, &o[i], 8);
	for (unsigned i = 0; i < 2; i++)
		ck_assert_uint_eq(f.l[i].data_n, starts[_i].in_flight[i]);
	f.answer = true;
	for (unsigned i = 0; i < 2; i++)
		while (f.l[i].answered < f.l[i].data_n) {
			reducers_answer(&f, i);
			reducers_pump(&f);
		}
	for (unsigned i = 0; i < OPS; i++)
		views_expect_done(&o[i]);
	reducers_close(&f);
}
END_TEST

/* Bandwidth of the file, for a round trip of 200 ms to r0; what the HELLOs to r0 and r1
 * allow with chunks of 64 KiB. 32 MiB on two links are 257 chunks on each, because a link
 * is never left without any. */
static const struct {
	const char *bandwidth;
	uint32_t most[2];
} bounds[] = {{"1mbit", {257, 257}}, {"1gbit", {763, 257}}};

/* A larger window than HELLO has allowed is a breach: it would need more memory. */
START_TEST(start_gives_no_larger_window_than_hello_allows)
{
	char yaml[500], says[200];
	struct reducers f;
	unsigned link = _i % 2;

	snprintf(yaml, sizeof yaml,
		 "reducers: [{id: r0, address: \"127.0.0.1:1\", rtt: 200ms}, {id: r1, address: \"127.0.0.1:2\"}]\n"
		 "sharding: {chunk_bytes: 64KiB, window: %d}\nplan: {bandwidth: %s}\njob: {failover: fail}\n",
		 WINDOW, bounds[_i / 2].bandwidth);
	for (uint32_t more = 0; more < 2; more++) {
		uint32_t most = bounds[_i / 2].most[link];

		open_links(&f, yaml, OFFERS);
		ck_assert_uint_eq(f.l[link].hello.most_window, most);
		say_start(&f, link, most + more);
		ck_assert_int_eq(exchange_state(f.x) < EXCHANGE_ENDING, !more);
		if (more) {
			snprintf(says, sizeof says,
				 "reducer r%u (127.0.0.1:%u): its START has a window of %u chunks, and this rank's "
				 "HELLO allows 4 to %u",
				 link, link + 1, most + 1, most);
			reducers_expect_end(&f, RS_EPROTO, says);
		}
		reducers_close(&f);
	}
}
END_TEST

/* r1 is lost. VIEW tells the lead for which this rank has memory; RESUME limits it. */
static const struct {
	uint32_t window, tells, resume;
	uint64_t lead;
} leads[] = {
    {0, 0, 0, BASE}, {25, 50, 50, 50}, {25, 50, 30, 30}, {25, 50, 99, 50}, {25, 50, 0, BASE}, {25, 50, 3, BASE},
};

START_TEST(resume_gives_all_ranks_one_lead)
{
	struct reducers f;
	struct control_view v;
	uint64_t chunks, bytes;

	open_long(&f, "100ms", "1mbit", OFFERS);
	for (unsigned i = 0; i < 2; i++)
		say_start(&f, i, leads[_i].window);
	ck_assert_uint_eq(f.x->max_lead, leads[_i].tells ? leads[_i].tells : BASE);
	ck_assert(exchange_is_long(f.x, &chunks, &bytes) == (leads[_i].tells > 0));
	ck_assert_uint_eq(chunks, f.x->max_lead);
	ck_assert_uint_eq(bytes, (chunks + 1) * f.x->retain.stride);
	f.l[1].dead = true;
	reducers_cut(&f, 1, "cut");
	reducers_pump(&f);
	v = f.l[0].view;
	ck_assert_uint_eq(v.lead, leads[_i].tells);
	v.lead = leads[_i].resume;
	reducers_say_view(&f, 0, FRAME_RESUME, &v);
	reducers_pump(&f);
	ck_assert_uint_eq(f.x->max_lead, leads[_i].lead);
	ck_assert_uint_eq(f.x->retain.size, 1 + (leads[_i].tells ? leads[_i].tells : BASE));
	reducers_close(&f);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("lead");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, hello_asks_for_what_the_round_trip_needs, 0, sizeof wishes / sizeof wishes[0]);
	tcase_add_loop_test(tc, start_gives_a_larger_window, 0, sizeof starts / sizeof starts[0]);
	tcase_add_loop_test(tc, start_gives_no_larger_window_than_hello_allows, 0,
			    2 * sizeof bounds / sizeof bounds[0]);
	tcase_add_loop_test(tc, resume_gives_all_ranks_one_lead, 0, sizeof leads / sizeof leads[0]);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
