/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/worker/core/window.h"

#include <check.h>
#include <stdlib.h>

/* One signal after another; want[i] is the limit after signal i. */
static const struct {
	const char *what;
	uint32_t most;
	unsigned n;
	struct {
		uint32_t rtt_us;
		uint64_t lost;
		uint64_t now_ms;
		bool limited;
		uint32_t want;
	} step[8];
} cases[] = {
    {"doubles while the delay is small",
     16,
     5,
     {{100, 0, 0, true, 2}, {300, 0, 1, true, 4}, {349, 0, 2, true, 8}, {100, 0, 3, true, 16}, {100, 0, 4, true, 16}}},
    {"stays at two when nothing was kept back", 16, 2, {{100, 0, 0, false, 2}, {100, 0, 1, false, 2}}},
    {"two in a queue that is not long, else one",
     16,
     5,
     {{1600, 0, 0, false, 2},
      {1600, 0, 1, true, 2},
      {1601, 0, 2, true, 1},
      {1601, 0, 3, true, 1},
      {1600, 0, 4, true, 2}}},
    {"one for a minute where two were too many",
     16,
     5,
     {{600, 0, 0, true, 2},
      {600, 1, 1, true, 1},
      {600, 1, 5000, true, 1},
      {600, 1, 60000, true, 1},
      {600, 1, 60001, true, 2}}},
    {"what more than two lose says nothing of two",
     16,
     4,
     {{100, 0, 0, true, 2}, {100, 0, 1, true, 4}, {600, 1, 2, true, 2}, {1500, 1, 3, true, 2}}},
    {"keeps between the two delays", 16, 3, {{100, 0, 0, true, 2}, {350, 0, 1, true, 2}, {1100, 0, 2, true, 2}}},
    {"shrinks by one and an eighth, then grows by one",
     32,
     8,
     {{100, 0, 0, true, 2},
      {100, 0, 1, true, 4},
      {100, 0, 2, true, 8},
      {100, 0, 3, true, 16},
      {5000, 0, 4, true, 13},
      {5000, 0, 5, true, 11},
      {100, 0, 6, true, 12},
      {100, 0, 7, true, 13}}},
    {"never below one", 16, 2, {{9000, 0, 0, true, 1}, {9000, 0, 1, true, 1}}},
    {"halves at a loss and holds, longer each time",
     16,
     8,
     {{100, 0, 0, true, 2},
      {100, 0, 1, true, 4},
      {100, 3, 2, true, 2},
      {100, 3, 1001, true, 2},
      {100, 3, 1002, true, 3},
      {100, 4, 1003, true, 2},
      {100, 4, 3002, true, 2},
      {100, 4, 3003, true, 3}}},
    {"halves once for what one overflow lost",
     16,
     6,
     {{100, 0, 0, true, 2},
      {100, 0, 1, true, 4},
      {1000, 3, 2, true, 2},
      {1000, 5, 4, true, 2},
      {1000, 6, 6, true, 2},
      {1000, 7, 10, true, 1}}},
    {"a window of one stays one", 1, 2, {{100, 0, 0, true, 1}, {100, 1, 1, true, 1}}},
    {"a round-trip time below the smallest is no delay", 16, 1, {{10, 0, 0, true, 2}}},
};

START_TEST(test_signals)
{
	struct window w;

	window_init(&w, 1, cases[_i].most, true, false);
	for (unsigned i = 0; i < cases[_i].n; i++) {
		struct window_signal s = {
		    .rtt_us = cases[_i].step[i].rtt_us, .min_rtt_us = 100, .lost = cases[_i].step[i].lost};

		w.limited = cases[_i].step[i].limited;
		window_signal(&w, &s, cases[_i].step[i].now_ms);
		ck_assert_msg(w.limit == cases[_i].step[i].want, "%s: step %u gave %u, expected %u", cases[_i].what, i,
			      w.limit, cases[_i].step[i].want);
	}
}
END_TEST

/* A limit of two becomes one if the signal shows that two are not better. */
START_TEST(test_single_chunk_signal)
{
	struct window w;
	struct window_signal s = {.rtt_us = 600, .min_rtt_us = 100, .single_chunk = true};

	window_init(&w, 1, 16, true, false);
	window_signal(&w, &s, 0);
	ck_assert_uint_eq(w.limit, 1);
	s.single_chunk = false;
	window_signal(&w, &s, 1);
	ck_assert_uint_eq(w.limit, 2);
}
END_TEST

/* A long link with BBR has all chunks in flight from the start, whatever is queued or
 * lost. A link that turns out to be short, or without BBR, is as any other one. */
START_TEST(a_long_link_is_wide)
{
	struct window w;
	struct window_signal s = {.rtt_us = 300000, .min_rtt_us = 100000, .lost = 5, .paced = true};

	window_init(&w, 1, 16, true, !_i);
	ck_assert_uint_eq(w.limit, _i ? 1 : 16);
	window_widen(&w, 64);
	ck_assert_uint_eq(w.limit, _i ? 1 : 64);
	for (unsigned i = 0; i < 10; i++) {
		s.lost += i;
		window_signal(&w, &s, 10 * i);
		ck_assert_uint_eq(w.limit, 64);
	}
	s.min_rtt_us = _i ? 100 : s.min_rtt_us; /* 0: another congestion control */
	s.paced = _i;
	s.lost++;
	window_signal(&w, &s, 1000);
	ck_assert_uint_eq(w.limit, 32);
}
END_TEST

/* Chunks on the first of several hops: delay alone does not make the window smaller than
 * they need, a loss does. */
START_TEST(delay_leaves_the_least)
{
	static const struct {
		uint32_t rtt_us;
		uint64_t lost, now_ms;
		uint32_t want;
	} steps[] = {
	    {9000, 0, 0, 6},   {9000, 0, 1, 6},  {100, 0, 2, 7},    {9000, 0, 3, 6},
	    {9000, 1, 500, 3}, {100, 1, 600, 3}, {9000, 1, 700, 3}, {9000, 1, 1500, 6},
	};
	struct window w;

	window_init(&w, 1, 16, true, false);
	window_keep(&w, 6);
	for (unsigned i = 0; i < sizeof steps / sizeof *steps; i++) {
		struct window_signal s = {.rtt_us = steps[i].rtt_us, .min_rtt_us = 100, .lost = steps[i].lost};

		w.limited = true;
		window_signal(&w, &s, steps[i].now_ms);
		ck_assert_msg(w.limit == steps[i].want, "step %u gave %u, expected %u", i, w.limit, steps[i].want);
	}
	window_keep(&w, 64);
	window_signal(&w, &(struct window_signal){.rtt_us = 9000, .min_rtt_us = 100, .lost = 1}, 1600);
	ck_assert_uint_eq(w.limit, 16);
}
END_TEST

START_TEST(test_local_takes_all)
{
	struct window w;
	struct window_signal s = {.rtt_us = 90000, .min_rtt_us = 1, .lost = 7, .local_bytes = WINDOW_LOCAL_BYTES};

	window_init(&w, 4 << 20, 64, true, false);
	window_signal(&w, &s, 0);
	ck_assert_uint_eq(w.limit, 1);
	window_init(&w, 32 << 10, 64, true, false);
	window_signal(&w, &s, 0);
	ck_assert_msg(w.limit == 16, "512 KiB, not %u chunks", w.limit);
	s.local_bytes = WINDOW_LOCAL_GRPC_BYTES;
	window_signal(&w, &s, 0);
	ck_assert_msg(w.limit == 8, "256 KiB, not %u chunks", w.limit);
	window_init(&w, 1, 64, true, false);
	window_signal(&w, &s, 0);
	ck_assert_uint_eq(w.limit, 64);
	for (int i = 0; i < 1000; i++)
		ck_assert_msg(!window_result(&w, 1), "a local link asks for signals again");
}
END_TEST

/* The limit is counted in bytes, so that small chunks are not sent one by one; most
 * counts chunks of any size. */
START_TEST(test_bytes)
{
	struct window w;

	window_init(&w, 1000, 4, true, false);
	ck_assert_uint_eq(w.limit, 1);
	ck_assert_msg(window_open(&w, 0, 0, 1000) && !w.limited, "the first chunk may always go");
	ck_assert_msg(window_open(&w, 0, 0, 0), "also an empty one");
	ck_assert(window_open(&w, 2, 400, 600));
	ck_assert(!w.limited);
	ck_assert_msg(!window_open(&w, 2, 401, 600) && w.limited, "a byte too many");
	w.limited = false;
	ck_assert(window_open(&w, 3, 0, 0));
	ck_assert_msg(!window_open(&w, 4, 0, 0) && w.limited, "a chunk too many");
	ck_assert(!window_result(&w, 999));
	ck_assert_msg(window_result(&w, 1), "a round is as many bytes as the limit");
}
END_TEST

START_TEST(test_rounds)
{
	struct window w;

	window_init(&w, 1, 3, false, false);
	ck_assert_uint_eq(w.limit, 3);
	for (int round = 0; round < 2; round++) {
		ck_assert(!window_result(&w, 1));
		ck_assert(!window_result(&w, 1));
		ck_assert(window_result(&w, 1));
	}
}
END_TEST

/* On a longer link a delay that would be a queue on a short one is noise, until the
 * window is large. */
START_TEST(test_longer_link)
{
	struct window w;
	struct window_signal s = {.rtt_us = 9500, .min_rtt_us = 9000};
	static const uint32_t want[] = {2, 4, 8, 8, 8};

	window_init(&w, 1, 32, true, false);
	for (unsigned i = 0; i < sizeof want / sizeof want[0]; i++) {
		w.limited = true;
		window_signal(&w, &s, i);
		ck_assert_msg(w.limit == want[i], "signal %u gave %u", i, w.limit);
	}
	s.rtt_us = 13400; /* a quarter of a chunk and more waits, for less than half a round trip */
	window_signal(&w, &s, 9);
	ck_assert_uint_eq(w.limit, 8);
	s.rtt_us = 13600;
	window_signal(&w, &s, 10);
	ck_assert_uint_lt(w.limit, 8);
}
END_TEST

enum { UNIT = 16 << 10 };

/* `ms` of a link that brings what is in flight once every 6 ms, chunks and all, but no
 * more than `rate` bytes a second. TCP sees 4 ms and up, and always more delay than lets
 * the window grow. */
static void run_link(struct window *w, uint64_t *now_ms, unsigned ms, uint32_t rate, struct window_signal s)
{
	uint32_t most = rate / 1000 * 6;

	s.rtt_us = 5000;
	s.min_rtt_us = 4000;
	for (uint64_t end = *now_ms + ms; *now_ms < end; *now_ms += 6) {
		w->limited = true;
		window_result(w, w->limit * UNIT < most ? w->limit * UNIT : most);
		window_signal(w, &s, *now_ms);
	}
}

/* A rate that grows with the window lets it grow. A loss does not undo that, a smaller
 * share of the link does. */
START_TEST(test_kept_busy)
{
	struct window w;
	struct window_signal quiet = {0}, lossy = {.lost = 1};
	uint64_t now = 5000;

	window_init(&w, UNIT, 32, true, false);
	w.limit = 2;
	w.starting = false;
	run_link(&w, &now, 1000, 8000000, quiet);
	ck_assert_msg(w.limit == 4, "%u chunks for 64 KB", w.limit);
	run_link(&w, &now, 6, 8000000, lossy);
	ck_assert_uint_eq(w.limit, 4);
	for (; lossy.lost < 10; lossy.lost++)
		run_link(&w, &now, 400, 1000000, lossy);
	ck_assert_uint_eq(w.limit, 1);
	run_link(&w, &now, 4000, 100000000, lossy);
	ck_assert_uint_eq(w.limit, 32);
}
END_TEST

/* On a short link it requests no signals. */
START_TEST(test_short_link)
{
	struct window w;
	struct window_signal s = {.rtt_us = 2000, .min_rtt_us = 100};

	window_init(&w, UNIT, 32, true, false);
	for (unsigned i = 0; i < 1000; i++) {
		window_result(&w, 30000);
		window_signal(&w, &s, i);
		ck_assert_uint_eq(w.limit, 1);
	}
}
END_TEST

/* For any values of the kernel, the limit stays within its bounds. */
START_TEST(test_bounds)
{
	struct window w;
	uint64_t now = 0;

	srand(1);
	window_init(&w, 1, 7, true, false);
	for (int i = 0; i < 100000; i++) {
		struct window_signal s = {.rtt_us = (uint32_t)(rand() % 4000),
					  .min_rtt_us = (uint32_t)(rand() % 500),
					  .lost = (uint64_t)(rand() % 50 == 0 ? rand() : 0)};

		w.limited = rand() % 2;
		window_result(&w, (uint32_t)rand());
		window_signal(&w, &s, now += (uint64_t)(rand() % 1000));
		ck_assert_uint_ge(w.limit, 1);
		ck_assert_uint_le(w.limit, 7);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("window");
	TCase *tc = tcase_create("window");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, test_signals, 0, (int)(sizeof cases / sizeof cases[0]));
	tcase_add_test(tc, test_single_chunk_signal);
	tcase_add_loop_test(tc, a_long_link_is_wide, 0, 2);
	tcase_add_test(tc, delay_leaves_the_least);
	tcase_add_test(tc, test_local_takes_all);
	tcase_add_test(tc, test_bytes);
	tcase_add_test(tc, test_longer_link);
	tcase_add_test(tc, test_kept_busy);
	tcase_add_test(tc, test_short_link);
	tcase_add_test(tc, test_rounds);
	tcase_add_test(tc, test_bounds);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
