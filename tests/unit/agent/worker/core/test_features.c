/* SPDX-License-Identifier: Apache-2.0 */
/* Which features a job uses and which start it belongs to, by the rules of
 * proto/README.md, "Features". */
#include "proto/features.h"
#include "tests/unit/fake_views.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

enum {
	MINE = 99, /* incarnation of the exchange, which is rank 0 */
	PROBE_BYTES = 2048,
};

#define NEWER (UINT64_C(1) << 40) /* a feature that no release has */

static void say_welcome(struct reducers *f, unsigned link, uint64_t features)
{
	struct control_welcome w = {.detect_ms = 1000, .features = features};
	uint8_t payload[FRAME_CONTROL_MAX];

	reducers_say_control(f, link, FRAME_WELCOME, payload, control_pack_welcome(payload, &w));
	reducers_pump(f);
}

static void say_start(struct reducers *f, unsigned link, uint64_t features, uint64_t start)
{
	const struct control_start s = {.features = features, .start = start};
	uint8_t payload[CONTROL_START_LEN];
	uint32_t len = features || start ? control_pack_start(payload, &s) : 0;

	f->l[link].started = true;
	reducers_say_control(f, link, FRAME_START, payload, len);
	reducers_pump(f);
}

/* Opens an exchange that offers these features and waits for START on all links. */
static void open_with(struct reducers *f, const char *yaml, uint64_t offers)
{
	reducers_open_offering(f, yaml, 3, 10000, offers);
	f->welcome = f->start = f->answer = false;
	reducers_pump(f);
	for (unsigned i = 0; i < VIEWS_LINKS; i++)
		say_welcome(f, i, UINT64_MAX);
}

static void open_offering(struct reducers *f, uint64_t offers)
{
	open_with(f, views_three, offers);
}

/* The sets of START on the links of reducers 0, 1, 2, of which 0 has two; what the rank
 * offers; what the job uses. */
static const struct {
	uint64_t starts[VIEWS_LINKS], offers, uses;
} agreements[] = {
    {{1, 1, 1, 1}, 1, 1}, {{7, 7, 7, 7}, 5, 5},
    {{7, 7, 3, 5}, 7, 1}, {{3, 3, 0, 3}, 3, 0}, /* a reducer of release 0.1 */
    {{0, 0, 0, 0}, 0, 0},                       /* job.features: baseline */
};

START_TEST(a_job_uses_what_all_have)
{
	struct reducers f;
	struct reducers_op o;

	open_offering(&f, agreements[_i].offers);
	for (unsigned i = 0; i < VIEWS_LINKS; i++) {
		ck_assert_uint_eq(f.l[i].hello.features, agreements[_i].offers);
		say_start(&f, i, agreements[_i].starts[i], agreements[_i].starts[i] ? MINE : 0);
	}
	ck_assert_int_eq(exchange_state(f.x), EXCHANGE_RUNNING);
	ck_assert_uint_eq(exchange_features(f.x), agreements[_i].uses);
	f.answer = true;
	views_submit(&f, &o, 6);
	ck_assert_int_eq(o.done, 1);
	reducers_close(&f);
}
END_TEST

START_TEST(a_start_of_another_rank_0_is_another_training)
{
	struct reducers f;

	open_offering(&f, FEATURE_START);
	say_start(&f, 0, FEATURE_START, MINE);
	ck_assert_int_eq(exchange_state(f.x), EXCHANGE_JOINING);
	say_start(&f, 2, FEATURE_START, MINE + 1);
	reducers_expect_end(&f, RS_EMISMATCH, "reducer r1 (127.0.0.1:2) has started job unit with another process");
	ck_assert_ptr_nonnull(strstr(exchange_error(f.x)->msg, "Set REDUCTION_RUN to the same text on all ranks"));
	reducers_close(&f);
}
END_TEST

START_TEST(a_start_that_was_not_announced_is_a_breach)
{
	struct reducers f;

	open_offering(&f, 0);
	say_start(&f, 2, FEATURE_START, MINE);
	ck_assert(!f.l[2].up);
	reducers_advance(&f, EXCHANGE_QUIET_MS);
	ck_assert_int_eq(exchange_state(f.x), EXCHANGE_JOINING);
	reducers_close(&f);
}
END_TEST

/* A rank that loses a reducer before it begins uses what the ranks use that had begun
 * with it. */
START_TEST(resume_says_what_others_use)
{
	struct reducers f;

	open_offering(&f, 7);
	for (unsigned i = 0; i < VIEWS_LINKS; i++)
		if (i != 2)
			say_start(&f, i, 7, MINE);
	f.l[2].dead = true;
	views_say_lives(&f, 0, 0, 1, 0);
	ck_assert_uint_eq(f.l[3].view.features, 7);
	f.l[3].view.features = 3;
	reducers_resume(&f, 3);
	reducers_pump(&f);
	ck_assert_uint_eq(exchange_features(f.x), 3);
	/* chunks have been sent: nothing changes it any more */
	f.l[0].view.features = 1;
	reducers_resume(&f, 0);
	reducers_pump(&f);
	ck_assert_uint_eq(exchange_features(f.x), 3);
	reducers_close(&f);
}
END_TEST

/* What a reducer that returns has; the job uses FEATURE_START and NEWER. */
static const struct {
	uint64_t has;
	const char *waits; /* why it is not back; NULL: it is */
} returns[] = {
    {FEATURE_START | NEWER, NULL},
    {NEWER, NULL},
    {FEATURE_START, "does not have what the job uses since its start (feature 40)"},
    {0, "does not have what the job uses since its start (feature 40)"},
};

START_TEST(a_reducer_without_what_the_job_uses_cannot_return)
{
	struct reducers f;

	open_offering(&f, FEATURE_START | NEWER);
	for (unsigned i = 0; i < VIEWS_LINKS; i++)
		say_start(&f, i, FEATURE_START | NEWER, MINE);
	reducers_cut(&f, 2, "cut");
	reducers_advance(&f, 1000);
	ck_assert(f.l[2].greeted && f.l[2].hello.rejoin);
	ck_assert_uint_eq(f.l[2].hello.features, FEATURE_START | NEWER);
	say_welcome(&f, 2, returns[_i].has);
	if (!returns[_i].waits) {
		say_start(&f, 2, returns[_i].has & NEWER, 0);
		ck_assert_uint_eq(f.back, 1);
	} else {
		for (unsigned ms = 0; ms < EXCHANGE_LOST_MS; ms += 50) {
			for (unsigned i = 0; i < VIEWS_LINKS && ms % 1000 == 0; i++)
				if (i != 2)
					reducers_say_control(&f, i, FRAME_PING, NULL, 0);
			reducers_advance(&f, 50);
			if (f.l[2].up && f.l[2].greeted)
				say_welcome(&f, 2, returns[_i].has);
		}
		ck_assert_uint_eq(f.back, 0);
		ck_assert_msg(strstr(f.reminder, returns[_i].waits) != NULL, "%s", f.reminder);
	}
	ck_assert_int_eq(exchange_state(f.x), EXCHANGE_RUNNING);
	reducers_close(&f);
}
END_TEST

/* Lets time pass in which other reducers are heard. */
static void wait_without(struct reducers *f, uint32_t ms)
{
	for (uint32_t at = 0; at < ms; at += 50) {
		for (unsigned i = 0; i < VIEWS_LINKS && at % 500 == 0; i++)
			if (i != 2)
				reducers_say_control(f, i, FRAME_PING, NULL, 0);
		reducers_advance(f, 50);
	}
}

/* Reducer 1 is lost before the job begins, and is greeted again. */
static void open_without(struct reducers *f)
{
	open_offering(f, FEATURE_START | NEWER);
	say_start(f, 0, FEATURE_START | NEWER, MINE);
	say_start(f, 1, FEATURE_START | NEWER, MINE);
	views_say_lives(f, 0, 0, 1, 0);
	reducers_cut(f, 2, "cut");
	wait_without(f, 1000);
	ck_assert(f->l[2].greeted && f->l[2].hello.rejoin);
}

/* Reducer 1 is lost and comes back before this rank begins. Other ranks may have begun
 * without it, if it has what they use: then it decides nothing. */
static const struct {
	uint64_t has, uses;
} early[] = {
    {FEATURE_START | NEWER, FEATURE_START | NEWER},
    {NEWER, FEATURE_START | NEWER},
    {FEATURE_START, FEATURE_START},
};

START_TEST(a_reducer_that_came_back_decides_nothing_optional)
{
	uint64_t has = early[_i].has;
	struct reducers f;

	open_without(&f);
	say_welcome(&f, 2, has);
	say_start(&f, 2, has & FEATURE_START ? has : 0, has & FEATURE_START ? MINE : 0);
	ck_assert_uint_eq(f.back, 1);
	ck_assert_int_eq(exchange_state(f.x), EXCHANGE_JOINING);
	say_start(&f, 3, FEATURE_START | NEWER, MINE);
	reducers_resume(&f, 3);
	reducers_pump(&f);
	ck_assert_uint_eq(exchange_features(f.x), early[_i].uses);
	ck_assert_int_eq(exchange_state(f.x), EXCHANGE_RUNNING);
	reducers_close(&f);
}
END_TEST

/* WELCOME of a reducer that was lost comes before this rank begins, and START after it:
 * 0 the reducer has what the job uses then; 1 it has not, and is not back, also if
 * another rank says so. */
START_TEST(a_reducer_is_checked_again_when_the_job_has_begun)
{
	struct reducers f;

	open_without(&f);
	say_welcome(&f, 2, _i ? FEATURE_START : NEWER);
	say_start(&f, 3, FEATURE_START | NEWER, MINE);
	reducers_resume(&f, 3);
	reducers_pump(&f);
	ck_assert_uint_eq(exchange_features(f.x), FEATURE_START | NEWER);
	if (_i)
		views_say_lives(&f, 0, 0, 2, 0);
	ck_assert_uint_eq(f.lost, 1 + _i);
	say_start(&f, 2, FEATURE_START, MINE);
	ck_assert_uint_eq(f.back, !_i);
	ck_assert_int_eq(exchange_state(f.x), EXCHANGE_RUNNING);
	reducers_close(&f);
}
END_TEST

/* A rank of a job that uses `probe` has lost reducer 1, and reads WELCOME of one that has
 * these features. */
static void open_return(struct reducers *f, uint64_t has)
{
	char yaml[400], *chunk;

	/* a chunk that needs two packets */
	ck_assert_uint_lt((size_t)snprintf(yaml, sizeof yaml, "%s", views_three), sizeof yaml);
	chunk = strstr(yaml, "chunk_bytes: 1024");
	ck_assert_ptr_nonnull(chunk);
	memcpy(chunk, "chunk_bytes: 2048", strlen("chunk_bytes: 2048"));
	open_with(f, yaml, FEATURES_ALL);
	for (unsigned i = 0; i < VIEWS_LINKS; i++)
		say_start(f, i, FEATURES_ALL, MINE);
	reducers_cut(f, 2, "cut");
	f->resume = true;
	reducers_advance(f, 1000);
	ck_assert(f->l[2].greeted && f->l[2].hello.rejoin);
	say_welcome(f, 2, has);
}

static void say_probe(struct reducers *f, uint32_t bytes)
{
	static const uint8_t zeros[PROBE_BYTES + 4];

	reducers_say(f, 2, &(struct frame){.type = FRAME_PROBE, .payload_len = bytes}, zeros);
	reducers_pump(f);
}

/* A chunk goes to a reducer that returns, and comes back; then the rank says so. One that
 * cannot answer is not asked.
 */
START_TEST(a_reducer_returns_when_a_chunk_has_passed)
{
	struct reducers f;

	open_return(&f, _i ? FEATURES_ALL : FEATURE_START | FEATURE_ENCODINGS | FEATURE_SHARES | FEATURE_SHARDED);
	ck_assert_uint_eq(f.l[2].probes, _i);
	if (_i) {
		ck_assert_uint_eq(f.l[2].probe_bytes, PROBE_BYTES);
		f.piece = 7;
		say_probe(&f, PROBE_BYTES);
		ck_assert_uint_eq(f.l[2].probes, 2);
		ck_assert_uint_eq(f.l[2].probe_bytes, 0);
	}
	ck_assert_uint_eq(f.back, 0);
	say_start(&f, 2, FEATURE_START, 0);
	ck_assert_uint_eq(f.back, 1);
	reducers_close(&f);
}
END_TEST

/* 0: START before the answer; 1, 2: an answer of another length; 3: one more. The reducer
 * stays lost. */
START_TEST(a_wrong_answer_to_probe_is_a_breach)
{
	struct reducers f;

	open_return(&f, FEATURES_ALL);
	if (_i == 0)
		say_start(&f, 2, FEATURE_START, 0);
	else
		say_probe(&f, _i == 1 ? PROBE_BYTES - 4 : _i == 2 ? PROBE_BYTES + 4 : PROBE_BYTES);
	if (_i == 3)
		say_probe(&f, PROBE_BYTES);
	ck_assert(!f.l[2].up);
	ck_assert_uint_eq(f.back, 0);
	ck_assert_int_eq(exchange_state(f.x), EXCHANGE_RUNNING);
	reducers_close(&f);
}
END_TEST

/* A reducer to which small messages pass, and large ones do not: 0 the rank hears nothing
 * more of it, 1 the reducer says that it hears nothing more of the rank. It is tried
 * again after 5 s, 10 s, ..., and the reason is the path. */
START_TEST(a_narrow_path_is_tried_ever_later)
{
	struct reducers f;
	unsigned tries;

	open_return(&f, FEATURES_ALL);
	for (unsigned n = 0; n < 4; n++) {
		ck_assert_uint_eq(f.l[2].probes, 1 + n);
		tries = f.l[2].tries;
		if (_i)
			reducers_say_lost(&f, 2, 0, "rank 0 was lost: nothing was heard from it for 1.0 s");
		wait_without(&f, (_i ? 0 : f.cfg.timeouts.detect_ms) + (5000 << n) - 500);
		ck_assert_uint_eq(f.l[2].tries, tries);
		wait_without(&f, 1000);
		ck_assert_uint_eq(f.l[2].tries, tries + 1);
		say_welcome(&f, 2, FEATURES_ALL);
	}
	wait_without(&f, EXCHANGE_LOST_MS);
	ck_assert_msg(strstr(f.reminder,
			     "small messages pass and large ones do not (no answer to 2048 bytes): check the "
			     "MTU and the filters of the path; next attempt in ") != NULL,
		      "%s", f.reminder);
	ck_assert_uint_eq(f.back, 0);
	reducers_close(&f);
}
END_TEST

static void add_tests(TCase *tc)
{
	tcase_add_loop_test(tc, a_reducer_returns_when_a_chunk_has_passed, 0, 2);
	tcase_add_loop_test(tc, a_wrong_answer_to_probe_is_a_breach, 0, 4);
	tcase_add_loop_test(tc, a_narrow_path_is_tried_ever_later, 0, 2);
	tcase_add_loop_test(tc, a_job_uses_what_all_have, 0, sizeof agreements / sizeof agreements[0]);
	tcase_add_test(tc, a_start_of_another_rank_0_is_another_training);
	tcase_add_test(tc, a_start_that_was_not_announced_is_a_breach);
	tcase_add_test(tc, resume_says_what_others_use);
	tcase_add_loop_test(tc, a_reducer_that_came_back_decides_nothing_optional, 0, sizeof early / sizeof early[0]);
	tcase_add_loop_test(tc, a_reducer_is_checked_again_when_the_job_has_begun, 0, 2);
	tcase_add_loop_test(tc, a_reducer_without_what_the_job_uses_cannot_return, 0,
			    sizeof returns / sizeof returns[0]);
}

int main(void)
{
	Suite *suite = suite_create("features");
	TCase *tc = tcase_create("features");
	SRunner *runner;
	int failed;

	add_tests(tc);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
