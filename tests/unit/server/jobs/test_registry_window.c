/* SPDX-License-Identifier: Apache-2.0 */
/* The window of a job on long links: the largest that a rank would use, if all can read
 * it in START and the memory is free. */
#include "proto/features.h"
#include "tests/unit/fake_registry.h"

#include <check.h>

enum { ALL = 1 << 24, BOTH = FEATURE_START | FEATURE_WINDOWS };

/* What both ranks would use and take, what they announce, the memory; the window in
 * START. */
static const struct {
	const char *what;
	uint32_t wanted[2], most[2];
	uint64_t features[2];
	uint64_t memory;
	uint32_t window;
} rows[] = {
    {"no rank wants more", {0, 0}, {0, 0}, {BOTH, BOTH}, ALL, 0},
    {"the largest counts", {20, 64}, {64, 64}, {BOTH, BOTH}, ALL, 64},
    {"one link is long", {0, 64}, {64, 64}, {BOTH, BOTH}, ALL, 64},
    {"a rank takes less", {0, 64}, {40, 64}, {BOTH, BOTH}, ALL, 40},
    {"a rank takes no larger one", {0, 64}, {0, 64}, {BOTH, BOTH}, ALL, 0},
    {"the window of HELLO", {FR_WINDOW, FR_WINDOW}, {64, 64}, {BOTH, BOTH}, ALL, 0},
    {"a rank of an older release", {64, 64}, {64, 64}, {BOTH, FEATURE_START}, ALL, 0},
    {"a rank that does not read START", {64, 64}, {64, 64}, {BOTH, FEATURE_WINDOWS}, ALL, 0},
    {"halved once", {64, 64}, {64, 64}, {BOTH, BOTH}, UINT64_C(2) * FR_JOB_BYTES / FR_WINDOW * 50, 32},
    {"no room for more", {64, 64}, {64, 64}, {BOTH, BOTH}, 194000, 0},
};

START_TEST(the_largest_window_that_fits)
{
	struct fr_world w;
	uint64_t id = 0;

	fr_open(&w, 1, 2, rows[_i].memory);
	for (unsigned i = 0; i < 4; i++) {
		struct control_hello h = fr_hello(i / 2, i % 2);

		h.features = rows[_i].features[i / 2];
		h.most_window = rows[_i].most[i / 2];
		h.wanted_window = rows[_i].wanted[i / 2];
		id = fr_admit(&w, &h);
	}
	ck_assert_uint_eq(w.n[REGISTRY_START], 1);
	ck_assert_msg(w.last.begin.agreed.window == rows[_i].window, "%s: %u", rows[_i].what,
		      w.last.begin.agreed.window);
	ck_assert_uint_eq(w.n[REGISTRY_MOVED], rows[_i].window > 0);
	ck_assert_uint_eq(w.allocated,
			  2 * (uint64_t)FR_JOB_BYTES / FR_WINDOW * (rows[_i].window ? rows[_i].window : FR_WINDOW));
	ck_assert((rows[_i].window > 0) == (w.last.begin.memory != NULL));
	ck_assert_uint_le(w.last.job.memory, rows[_i].memory);
	ck_assert_uint_ge(w.last.job.memory, w.allocated);
	fr_all_gone(&w, id, true);
	fr_close(&w);
}
END_TEST

/* The second allocation fails: the job starts as HELLO says. */
START_TEST(without_memory_it_starts_with_the_window_of_hello)
{
	struct fr_world w;
	uint64_t id = 0;

	fr_open(&w, 1, 2, ALL);
	for (unsigned i = 0; i < 4; i++) {
		struct control_hello h = fr_hello(i / 2, i % 2);

		h.features = BOTH;
		h.most_window = h.wanted_window = 64;
		w.no_memory = i > 0;
		id = fr_admit(&w, &h);
	}
	ck_assert_uint_eq(w.n[REGISTRY_START], 1);
	ck_assert_uint_eq(w.n[REGISTRY_MOVED], 0);
	ck_assert_uint_eq(w.last.begin.agreed.window, 0);
	fr_all_gone(&w, id, true);
	fr_close(&w);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("registry_window");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, the_largest_window_that_fits, 0, sizeof rows / sizeof rows[0]);
	tcase_add_test(tc, without_memory_it_starts_with_the_window_of_hello);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
