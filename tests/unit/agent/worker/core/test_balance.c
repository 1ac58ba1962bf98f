/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/worker/core/balance.h"

#include "proto/control.h"

#include <check.h>
#include <string.h>

enum { N = 4, ALL = 1000, MIB = 1 << 20 };

/* A second of samples of half a second. */
static struct balance_verdict feed(struct balance *b, const struct balance_reducer r[N], uint32_t active,
				   uint64_t bytes, uint64_t *now_ms)
{
	struct balance_verdict v;

	for (int i = 0; i < 2; i++) {
		*now_ms += 500;
		balance_sample(b, r, N, 500, active, bytes / 2, *now_ms, &v);
	}
	return v;
}

/* What four reducers show: share, busy, the busiest path and its rank; and the verdict
 * after two seconds: kind, reducer or rank, gain, and the shares in 1/1000. */
static const struct {
	const char *what;
	uint32_t active;
	struct balance_reducer r[N];
	enum balance_kind kind;
	unsigned about;
	uint32_t gain, shares[N];
} rows[] = {
    {"all are equal",
     ALL,
     {{true, 16, 950, 0, 480, 960, 1, 0},
      {true, 16, 940, 0, 480, 960, 2, 0},
      {true, 16, 960, 0, 485, 970, 0, 0},
      {true, 16, 930, 0, 470, 940, 3, 0}},
     BALANCE_EVEN,
     0,
     0,
     {0}},
    {"a link has half its rate",
     ALL,
     {{true, 16, 1000, 0, 500, 1000, 1, 0},
      {true, 16, 500, 0, 300, 600, 2, 0},
      {true, 16, 500, 0, 300, 600, 0, 0},
      {true, 16, 500, 0, 300, 600, 3, 0}},
     BALANCE_SHARES,
     0,
     429,
     {142, 285, 285, 285}},
    {"it is repaired",
     ALL,
     {{true, 10, 500, 0, 300, 600, 1, 0},
      {true, 20, 1000, 0, 500, 1000, 2, 0},
      {true, 20, 1000, 0, 500, 1000, 0, 0},
      {true, 20, 1000, 0, 500, 1000, 3, 0}},
     BALANCE_SHARES,
     1,
     125,
     {250, 250, 250, 250}},
    {"ranks compute for most of the time",
     200,
     {{true, 16, 200, 0, 100, 200, 1, 0},
      {true, 16, 100, 0, 60, 120, 2, 0},
      {true, 16, 100, 0, 60, 120, 0, 0},
      {true, 16, 100, 0, 60, 120, 3, 0}},
     BALANCE_SHARES,
     0,
     429,
     {142, 285, 285, 285}},
    {"there is nearly no communication",
     20,
     {{true, 16, 20, 0, 10, 20, 1, 0},
      {true, 16, 10, 0, 5, 10, 2, 0},
      {true, 16, 10, 0, 5, 10, 0, 0},
      {true, 16, 10, 0, 5, 10, 3, 0}},
     BALANCE_EVEN,
     0,
     0,
     {0}},
    {"latency decides, no link is full",
     ALL,
     {{true, 16, 400, 0, 200, 400, 1, 0},
      {true, 16, 200, 0, 100, 200, 2, 0},
      {true, 16, 200, 0, 100, 200, 0, 0},
      {true, 16, 200, 0, 100, 200, 3, 0}},
     BALANCE_EVEN,
     0,
     0,
     {0}},
    {"too little to gain",
     ALL,
     {{true, 16, 1000, 0, 500, 1000, 1, 0},
      {true, 16, 910, 0, 460, 920, 2, 0},
      {true, 16, 900, 0, 460, 920, 0, 0},
      {true, 16, 900, 0, 460, 920, 3, 0}},
     BALANCE_EVEN,
     0,
     0,
     {0}},
    {"a lost reducer keeps an average share",
     ALL,
     {{true, 16, 1000, 0, 500, 1000, 1, 0},
      {false, 1, 0, 0, 0, 0, 0, 0},
      {true, 16, 500, 0, 300, 600, 0, 0},
      {true, 16, 500, 0, 300, 600, 3, 0}},
     BALANCE_SHARES,
     0,
     400,
     {200, 0, 400, 400}}, /* of the three that live */
    {"what the configuration says does as well",
     ALL,
     {{true, 22, 1000, 0, 480, 990, 1, 10},
      {true, 18, 850, 0, 480, 900, 2, 10},
      {true, 20, 930, 0, 480, 970, 0, 10},
      {true, 20, 930, 0, 480, 970, 3, 10}},
     BALANCE_SHARES,
     0,
     56,
     {250, 250, 250, 250}},
    {"it has these shares already",
     ALL,
     {{true, 20, 1000, 0, 480, 990, 1, 10},
      {true, 20, 910, 0, 480, 900, 2, 10},
      {true, 20, 980, 0, 480, 970, 0, 10},
      {true, 20, 930, 0, 480, 970, 3, 10}},
     BALANCE_EVEN,
     0,
     0,
     {0}},
    {"the configuration has other shares, and would be slow",
     ALL,
     {{true, 16, 1000, 0, 500, 1000, 1, 20},
      {true, 16, 500, 0, 300, 600, 2, 10},
      {true, 16, 500, 0, 300, 600, 0, 10},
      {true, 16, 500, 0, 300, 600, 3, 10}},
     BALANCE_SHARES,
     0,
     429,
     {142, 285, 285, 285}},
    {"idle reducers get at most four times as much",
     ALL,
     {{true, 16, 1000, 0, 500, 1000, 1, 0},
      {true, 16, 10, 0, 10, 20, 2, 0},
      {true, 16, 10, 0, 10, 20, 0, 0},
      {true, 16, 10, 0, 10, 20, 3, 0}},
     BALANCE_SHARES,
     0,
     693,
     {76, 307, 307, 307}},
    {"rank 2 is slow everywhere",
     ALL,
     {{true, 16, 1000, 0, 300, 1000, 2, 0},
      {true, 16, 1000, 0, 310, 980, 2, 0},
      {true, 16, 1000, 0, 300, 990, 2, 0},
      {true, 16, 1000, 0, 300, 990, 2, 0}},
     BALANCE_SLOW_RANK,
     2,
     0,
     {0}},
    {"one path is slow",
     ALL,
     {{true, 16, 500, 0, 300, 400, 1, 0},
      {true, 16, 510, 0, 300, 400, 0, 0},
      {true, 16, 1000, 0, 300, 990, 2, 0},
      {true, 16, 500, 0, 300, 400, 2, 0}},
     BALANCE_ANEW,
     2,
     0,
     {0}},
    {"two paths of different ranks are slow",
     ALL,
     {{true, 16, 300, 0, 300, 1000, 1, 0},
      {true, 16, 310, 0, 300, 400, 0, 0},
      {true, 16, 300, 0, 300, 990, 2, 0},
      {true, 16, 300, 0, 300, 400, 2, 0}},
     BALANCE_EVEN,
     0,
     0,
     {0}},
};

START_TEST(verdicts)
{
	const struct balance_reducer *r = rows[_i].r;
	uint64_t now_ms = 100000, sum = 0;
	struct balance_verdict v;
	struct balance b;

	balance_init(&b);
	v = feed(&b, r, rows[_i].active, MIB, &now_ms);
	ck_assert_int_eq(v.kind, BALANCE_EVEN); /* one second may be an accident */
	v = feed(&b, r, rows[_i].active, MIB, &now_ms);
	ck_assert_msg(v.kind == rows[_i].kind, "%s: kind %d", rows[_i].what, v.kind);
	if (v.kind == BALANCE_SLOW_RANK)
		ck_assert_uint_eq(v.rank, rows[_i].about);
	else if (v.kind != BALANCE_EVEN)
		ck_assert_uint_eq(v.reducer, rows[_i].about);
	if (v.kind != BALANCE_SHARES)
		return;
	ck_assert_uint_eq(v.gain, rows[_i].gain);
	for (unsigned i = 0; i < N; i++) {
		ck_assert_uint_ge(v.shares[i], 1);
		ck_assert_uint_le(v.shares[i], CONTROL_SHARE_MAX);
		sum += r[i].lives ? v.shares[i] : 0;
	}
	for (unsigned i = 0; i < N; i++)
		if (r[i].lives)
			ck_assert_uint_le((v.shares[i] * 1000 + sum) / sum - rows[_i].shares[i], 2);
}
END_TEST

/* How a change is judged: bytes a second before and after it, and what follows. */
static const struct {
	uint64_t before, after;
	enum balance_kind next;
	uint32_t pause_ms;
} effects[] = {
    {10 * MIB, 15 * MIB, BALANCE_EVEN, BALANCE_PAUSE_MS},
    {10 * MIB, 10 * MIB, BALANCE_EVEN, 2 * BALANCE_PAUSE_MS}, /* it does not pay, and does no harm */
    {10 * MIB, 9 * MIB, BALANCE_BACK, 2 * BALANCE_PAUSE_MS},
};

START_TEST(effects_are_judged)
{
	const struct balance_reducer *half = rows[1].r, *even = rows[0].r;
	uint64_t now_ms = 100000;
	struct balance_verdict v;
	struct balance b;

	balance_init(&b);
	feed(&b, half, ALL, effects[_i].before, &now_ms);
	v = feed(&b, half, ALL, effects[_i].before, &now_ms);
	ck_assert_int_eq(v.kind, BALANCE_SHARES);
	balance_applied(&b, half, N, &v, now_ms);
	v = feed(&b, even, ALL, 1, &now_ms); /* links stop and start: this second does not count */
	ck_assert_int_eq(v.kind, BALANCE_EVEN);
	v = feed(&b, even, ALL, effects[_i].after, &now_ms);
	ck_assert_int_eq(v.kind, effects[_i].next);
	ck_assert_uint_eq(b.pause_ms, effects[_i].pause_ms);
	if (v.kind == BALANCE_BACK)
		for (unsigned i = 0; i < N; i++)
			ck_assert_uint_eq(v.shares[i], half[i].share);
}
END_TEST

/* No change within the pause, which grows as soon as a change is seen not to pay. */
START_TEST(pauses_grow)
{
	const struct balance_reducer *half = rows[1].r;
	uint64_t now_ms = 100000, at_ms = 0, expected = 2 * BALANCE_PAUSE_MS;
	struct balance_verdict v;
	struct balance b;

	balance_init(&b);
	for (unsigned changes = 0; changes < 9;) {
		v = feed(&b, half, ALL, MIB, &now_ms);
		ck_assert_int_ne(v.kind, BALANCE_BACK);
		if (v.kind != BALANCE_SHARES)
			continue;
		if (changes++) {
			ck_assert_uint_ge(now_ms - at_ms, expected);
			ck_assert_uint_le(now_ms - at_ms, expected + 3 * BALANCE_WINDOW_MS);
			expected = expected < BALANCE_PAUSE_MAX_MS ? 2 * expected : expected;
		}
		at_ms = now_ms;
		balance_applied(&b, half, N, &v, now_ms);
	}
	ck_assert_uint_eq(b.pause_ms, BALANCE_PAUSE_MAX_MS);
}
END_TEST

/* Feeds what four reducers show until shares are proposed, and applies them. Returns the
 * milliseconds that this took. */
static uint64_t change_to(struct balance *b, const struct balance_reducer *r, uint64_t *now_ms)
{
	uint64_t from_ms = *now_ms;
	struct balance_verdict v = {.kind = BALANCE_EVEN};

	while (v.kind != BALANCE_SHARES && *now_ms - from_ms < 1000000)
		v = feed(b, r, ALL, MIB, now_ms);
	balance_applied(b, r, N, &v, *now_ms);
	return *now_ms - from_ms;
}

/* Changes that are undone soon are made ever later; after an hour without them it is as
 * at first. */
START_TEST(accidents_make_it_careful)
{
	const struct balance_reducer *slow = rows[1].r, *repaired = rows[2].r;
	uint64_t now_ms = 100000;
	struct balance b;

	balance_init(&b);
	for (uint64_t window_ms = BALANCE_WINDOW_MS; window_ms <= BALANCE_WINDOW_MAX_MS; window_ms *= BALANCE_CAREFUL) {
		ck_assert_uint_eq(b.window_ms, window_ms);
		now_ms += BALANCE_PAUSE_MAX_MS; /* without operations */
		ck_assert_uint_ge(change_to(&b, slow, &now_ms), 2 * window_ms);
		change_to(&b, repaired, &now_ms);
	}
	ck_assert_uint_eq(b.window_ms, BALANCE_WINDOW_MAX_MS);
	now_ms += BALANCE_FORGET_MS;
	feed(&b, slow, ALL, MIB, &now_ms);
	change_to(&b, slow, &now_ms);
	ck_assert_uint_eq(b.window_ms, BALANCE_WINDOW_MS);
}
END_TEST

/* A change that lasts, and one that is not undone but goes on, are no accidents. */
START_TEST(changes_that_last_are_none)
{
	static const struct balance_reducer slower[N] = {{true, 10, 1000, 0, 500, 1000, 1, 0},
							 {true, 20, 500, 0, 300, 600, 2, 0},
							 {true, 20, 500, 0, 300, 600, 0, 0},
							 {true, 20, 500, 0, 300, 600, 3, 0}};
	uint64_t now_ms = 100000;
	struct balance b;

	balance_init(&b);
	change_to(&b, rows[1].r, &now_ms);
	change_to(&b, slower, &now_ms);
	ck_assert_uint_eq(b.window_ms, BALANCE_WINDOW_MS);
	now_ms += BALANCE_SOON * BALANCE_WINDOW_MS;
	change_to(&b, rows[2].r, &now_ms);
	ck_assert_uint_eq(b.window_ms, BALANCE_WINDOW_MS);
}
END_TEST

/* After a repair the others are all busy, and now one is the busiest and then another. */
START_TEST(home_does_not_wait_for_one_reducer)
{
	struct balance_reducer r[N] = {{true, 10, 500, 0, 300, 600, 1, 10},
				       {true, 20, 1000, 0, 500, 1000, 2, 10},
				       {true, 20, 990, 0, 500, 1000, 0, 10},
				       {true, 20, 990, 0, 500, 1000, 3, 10}};
	uint64_t now_ms = 100000;
	struct balance_verdict v;
	struct balance b;

	balance_init(&b);
	feed(&b, r, ALL, MIB, &now_ms);
	r[1].busy = 990;
	r[2].busy = 1000;
	v = feed(&b, r, ALL, MIB, &now_ms);
	ck_assert_int_eq(v.kind, BALANCE_SHARES);
	ck_assert(v.home);
}
END_TEST

static const struct balance_reducer slow_path[N] = {{true, 16, 1000, 0, 100, 990, 2, 0},
						    {true, 16, 250, 0, 100, 120, 0, 0},
						    {true, 16, 250, 0, 100, 120, 1, 0},
						    {true, 16, 250, 0, 100, 120, 3, 0}};

/* Connections are made anew first. Shares follow if the path stays slow. */
START_TEST(shares_follow_a_path_that_stays_slow)
{
	uint64_t now_ms = 100000;
	struct balance_verdict v;
	struct balance b;

	balance_init(&b);
	feed(&b, slow_path, ALL, MIB, &now_ms);
	v = feed(&b, slow_path, ALL, MIB, &now_ms);
	ck_assert_int_eq(v.kind, BALANCE_ANEW);
	ck_assert(v.rank == 2 && v.reducer == 0);
	balance_applied(&b, slow_path, N, &v, now_ms);
	feed(&b, slow_path, ALL, MIB, &now_ms);
	for (unsigned i = 3; i < BALANCE_PATIENCE; i++) {
		v = feed(&b, slow_path, ALL, MIB, &now_ms);
		ck_assert_int_eq(v.kind, BALANCE_SLOW_PATH); /* it is named, with other ports too */
	}
	feed(&b, slow_path, ALL, MIB, &now_ms);
	feed(&b, slow_path, ALL, MIB, &now_ms);
	v = feed(&b, slow_path, ALL, MIB, &now_ms);
	ck_assert_int_eq(v.kind, BALANCE_SHARES);
	ck_assert_uint_lt(v.shares[0] * 3, v.shares[1]);
}
END_TEST

/* Attempts that do not help become rare: after 1, 2, 4 minutes, at most each hour. */
START_TEST(new_connections_become_rare)
{
	const struct balance_reducer *even = rows[0].r;
	uint64_t now_ms = 100000, at_ms = 0, expected = BALANCE_ANEW_MS;
	struct balance_verdict v;
	struct balance b;

	balance_init(&b);
	for (unsigned times = 0; times < 9;) {
		feed(&b, even, ALL, MIB, &now_ms);
		feed(&b, slow_path, ALL, MIB, &now_ms);
		v = feed(&b, slow_path, ALL, MIB, &now_ms);
		if (v.kind != BALANCE_ANEW)
			continue;
		if (times++) {
			ck_assert_uint_ge(now_ms - at_ms, expected);
			ck_assert_uint_le(now_ms - at_ms, expected + 4 * BALANCE_WINDOW_MS);
			expected = 2 * expected < BALANCE_ANEW_MAX_MS ? 2 * expected : BALANCE_ANEW_MAX_MS;
		}
		at_ms = now_ms;
		balance_applied(&b, slow_path, N, &v, now_ms);
	}
	ck_assert_uint_eq(expected, BALANCE_ANEW_MAX_MS);
}
END_TEST

START_TEST(a_loss_starts_anew)
{
	const struct balance_reducer *half = rows[1].r;
	uint64_t now_ms = 100000, from_ms;
	struct balance_verdict v;
	struct balance b;

	balance_init(&b);
	feed(&b, half, ALL, MIB, &now_ms);
	balance_disturbed(&b, now_ms);
	from_ms = now_ms;
	do
		v = feed(&b, half, ALL, MIB, &now_ms);
	while (v.kind == BALANCE_EVEN);
	ck_assert_uint_ge(now_ms - from_ms, BALANCE_PAUSE_MS);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("balance");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, verdicts, 0, sizeof rows / sizeof rows[0]);
	tcase_add_loop_test(tc, effects_are_judged, 0, sizeof effects / sizeof effects[0]);
	tcase_add_test(tc, pauses_grow);
	tcase_add_test(tc, accidents_make_it_careful);
	tcase_add_test(tc, home_does_not_wait_for_one_reducer);
	tcase_add_test(tc, changes_that_last_are_none);
	tcase_add_test(tc, shares_follow_a_path_that_stays_slow);
	tcase_add_test(tc, new_connections_become_rare);
	tcase_add_test(tc, a_loss_starts_anew);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
