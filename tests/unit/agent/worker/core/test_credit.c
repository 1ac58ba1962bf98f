/* SPDX-License-Identifier: Apache-2.0 */
/* A decoupled job: chunks that reducers have added do not count in the window, and are
 * kept until their results come. */
#include "agent/worker/core/link.h"
#include "proto/features.h"
#include "tests/unit/fake_views.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

enum { AHEAD = 6, OFFERS = FEATURE_START | FEATURE_DECOUPLED };

/* 12 KiB on two links with half of the shards each: 6 chunks on each. */
static const char decoupled[] =
    "reducers: [{id: r0, address: \"127.0.0.1:1\"}, {id: r1, address: \"127.0.0.1:2\"}]\n"
    "sharding: {chunk_bytes: 1024, window: 2, decoupled: 12KiB, priorities: 1, map: {0: r0, 1: r1}}\n"
    "timeouts: {detect: 4s}\n";

static void open_with(struct reducers *f, const char *yaml, uint64_t start_features)
{
	const struct control_welcome w = {.detect_ms = 1000, .features = UINT64_MAX};
	const struct control_start s = {.features = start_features, .start = 99};
	uint8_t payload[FRAME_CONTROL_MAX];

	reducers_open_offering(f, yaml, 3, 10000, FEATURES_ALL);
	f->welcome = f->start = f->answer = false;
	reducers_pump(f);
	for (unsigned i = 0; i < 2; i++) {
		reducers_say_control(f, i, FRAME_WELCOME, payload, control_pack_welcome(payload, &w));
		reducers_pump(f);
	}
	for (unsigned i = 0; i < 2; i++) {
		f->l[i].started = true;
		reducers_say_control(f, i, FRAME_START, payload, control_pack_start(payload, &s));
		reducers_pump(f);
	}
	ck_assert_int_eq(exchange_state(f->x), EXCHANGE_RUNNING);
}

static void say_credit(struct reducers *f, unsigned link, unsigned priority, uint64_t count)
{
	reducers_say(f, link,
		     &(struct frame){.type = FRAME_CREDIT, .of.priority = (uint8_t)priority, .of.count = count}, NULL);
	reducers_pump(f);
}

static void answer_all(struct reducers *f)
{
	f->answer = true;
	for (unsigned i = 0; i < 2; i++)
		while (f->l[i].answered < f->l[i].data_n) {
			reducers_answer(f, i);
			reducers_pump(f);
		}
}

START_TEST(hello_says_how_far_a_rank_goes_ahead)
{
	struct reducers f;

	open_with(&f, decoupled, OFFERS);
	ck_assert_uint_eq(f.l[0].hello.window, AHEAD);
	ck_assert(f.l[0].hello.features & FEATURE_DECOUPLED);
	ck_assert_uint_eq(f.x->max_lead, 16); /* more than 12 for two links */
	reducers_close(&f);
	open_with(&f, views_two, OFFERS);
	ck_assert_uint_eq(f.l[0].hello.window, 4);
	ck_assert(!(f.l[0].hello.features & FEATURE_DECOUPLED));
	reducers_close(&f);
}
END_TEST

/* Counts of CREDIT on link 0, one after the other, and the chunks that were sent then;
 * and after the result of the first chunk. */
static const struct {
	uint64_t counts[4];
	unsigned sent[4], result;
} credits[] = {
    {{1, 2, 4, 6}, {3, 4, 6, 6}, 7}, /* without a result not more than 6 */
    {{2, 2, 1, 4}, {4, 4, 4, 6}, 6}, /* what was said before changes nothing */
    {{0, 0, 2, 3}, {2, 2, 4, 5}, 5},
};

START_TEST(added_chunks_leave_the_window)
{
	static struct reducers_op o[4];
	struct reducers f;

	open_with(&f, decoupled, OFFERS);
	for (unsigned i = 0; i < 4; i++)
		views_submit(&f, &o[i], 8);
	for (unsigned i = 0; i < 4; i++) {
		say_credit(&f, 0, 0, credits[_i].counts[i]);
		ck_assert_uint_eq(f.l[0].data_n, credits[_i].sent[i]);
	}
	reducers_answer(&f, 0);
	reducers_pump(&f);
	ck_assert_uint_eq(f.l[0].data_n, credits[_i].result);
	answer_all(&f);
	for (unsigned i = 0; i < 4; i++)
		views_expect_done(&o[i]);
	reducers_close(&f);
}
END_TEST

/* Links stay in step with what the other reducers have added: within 8 chunks for each of
 * them. */
START_TEST(links_stay_in_step)
{
	static const char far[] = "reducers: [{id: r0, address: \"127.0.0.1:1\"}, {id: r1, address: \"127.0.0.1:2\"}]\n"
				  "sharding: {chunk_bytes: 1024, window: 2, decoupled: 40KiB, priorities: 1, "
				  "map: {0: r0, 1: r1}}\ntimeouts: {detect: 4s}\n";
	static struct reducers_op o[5];
	struct reducers f;

	open_with(&f, far, OFFERS);
	ck_assert_uint_eq(f.x->max_lead, 40);
	for (unsigned i = 0; i < 5; i++)
		views_submit(&f, &o[i], 8);
	for (unsigned n = 1; n < 9; n++)
		say_credit(&f, 0, 0, n);
	/* chunk 1 of link 1 is not added: chunk 17 is the last one */
	ck_assert_uint_eq(f.l[0].data_n, 9);
	say_credit(&f, 1, 0, 1);
	ck_assert_uint_eq(f.l[0].data_n, 10);
	answer_all(&f);
	for (unsigned i = 0; i < 5; i++)
		views_expect_done(&o[i]);
	reducers_close(&f);
}
END_TEST

/* After the loss of a reducer everything without a result is sent again: also what the
 * other one had added. */
START_TEST(added_chunks_are_sent_again)
{
	static struct reducers_op o;
	struct reducers f;

	open_with(&f, decoupled, OFFERS);
	views_submit(&f, &o, 8);
	say_credit(&f, 0, 0, 2);
	ck_assert_str_eq(views_said(&f, 0, 0), "D0 D2 D4 D6");
	f.l[1].dead = true;
	reducers_cut(&f, 1, "cut");
	reducers_pump(&f);
	say_credit(&f, 0, 0, 4); /* of the view before */
	views_say_resume(&f, 0, 0);
	ck_assert_str_eq(views_said(&f, 0, 4), "D0 D1");
	say_credit(&f, 0, 0, 2);
	ck_assert_str_eq(views_said(&f, 0, 4), "D0 D1 D2 D3");
	answer_all(&f);
	views_expect_done(&o);
	reducers_close(&f);
}
END_TEST

/* What a reducer may not say. */
static const struct {
	uint64_t features;
	unsigned priority;
	uint64_t count;
	const char *says;
} wrongs[] = {
    {FEATURE_START, 0, 1, "it sent CREDIT for priority 0, which was not asked for"},
    {OFFERS, 1, 1, "it sent CREDIT for priority 1, which was not asked for"},
    {OFFERS, 0, 3, "it says that it has added 3 chunks of priority 0, this rank has sent 2"},
    {OFFERS, 0, UINT64_MAX, "it says that it has added 18446744073709551615 chunks of priority 0"},
};

START_TEST(a_wrong_credit_loses_the_reducer)
{
	static struct reducers_op o;
	struct reducers f;

	open_with(&f, decoupled, wrongs[_i].features);
	views_submit(&f, &o, 8);
	say_credit(&f, 0, wrongs[_i].priority, wrongs[_i].count);
	ck_assert_uint_eq(f.lost, 1);
	ck_assert_msg(strstr(f.why, wrongs[_i].says) != NULL, "%s", f.why);
	reducers_close(&f);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("credit");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_test(tc, hello_says_how_far_a_rank_goes_ahead);
	tcase_add_loop_test(tc, added_chunks_leave_the_window, 0, sizeof credits / sizeof credits[0]);
	tcase_add_test(tc, links_stay_in_step);
	tcase_add_test(tc, added_chunks_are_sent_again);
	tcase_add_loop_test(tc, a_wrong_credit_loses_the_reducer, 0, sizeof wrongs / sizeof wrongs[0]);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
