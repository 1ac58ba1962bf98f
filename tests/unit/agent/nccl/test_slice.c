/* SPDX-License-Identifier: Apache-2.0 */
/* Slices of NCCL's all-gathers and reduce-scatters: their runs are the slice, in order,
 * and a rank's bytes are in one of them. */
#include "agent/nccl/slice.h"

#include <check.h>
#include <stdlib.h>

/* Check writes down each of its assertions, which takes most of the time here. */
#define MUST(cond) ((cond) ? (void)0 : ck_abort_msg("not true: %s", #cond))

enum { RANKS = 4 };

static void check_slice(const struct slice *w)
{
	struct slice_run runs[SLICE_RUNS + 1];
	unsigned n = slice_split(w, runs);
	size_t at = 0, own = 0;

	MUST(n <= SLICE_RUNS);
	for (unsigned i = 0; i < n; i++) {
		MUST(runs[i].at == at && runs[i].part > 0 && runs[i].parts > 0);
		for (unsigned k = 0; k < runs[i].parts; k++, at += runs[i].part) {
			MUST((w->offset + at) / w->part == runs[i].first + k);
			MUST(slice_own(w, runs[i].first + k) == runs[i].part);
			MUST(runs[i].parts == 1 || runs[i].part == w->part);
		}
	}
	MUST(at == w->bytes);
	for (unsigned rank = 0; rank < RANKS; rank++)
		own += slice_own(w, rank);
	MUST(own == w->bytes);
}

/* _i: the bytes of a part */
START_TEST(runs_are_the_slice)
{
	size_t part = (size_t)_i;

	for (size_t offset = 0; offset <= RANKS * part; offset++)
		for (size_t bytes = 0; offset + bytes <= RANKS * part; bytes++)
			check_slice(&(struct slice){.part = part, .offset = offset, .bytes = bytes});
}
END_TEST

static const struct {
	struct slice of;
	unsigned n;
	struct slice_run runs[SLICE_RUNS];
} rows[] = {
    {{10, 0, 40}, 1, {{0, 10, 0, 4}}},
    {{10, 3, 4}, 1, {{0, 4, 0, 1}}},
    {{10, 20, 10}, 1, {{0, 10, 2, 1}}},
    {{10, 5, 30}, 3, {{0, 5, 0, 1}, {5, 10, 1, 2}, {25, 5, 3, 1}}},
    {{10, 5, 10}, 2, {{0, 5, 0, 1}, {5, 5, 1, 1}}},
    {{10, 0, 25}, 2, {{0, 10, 0, 2}, {20, 5, 2, 1}}},
    {{10, 15, 25}, 2, {{0, 5, 1, 1}, {5, 10, 2, 2}}},
    {{0, 0, 0}, 0, {{0}}},
};

START_TEST(runs)
{
	struct slice_run found[SLICE_RUNS];

	ck_assert_uint_eq(slice_split(&rows[_i].of, found), rows[_i].n);
	for (unsigned i = 0; i < rows[_i].n; i++) {
		ck_assert_uint_eq(found[i].at, rows[_i].runs[i].at);
		ck_assert_uint_eq(found[i].part, rows[_i].runs[i].part);
		ck_assert_uint_eq(found[i].first, rows[_i].runs[i].first);
		ck_assert_uint_eq(found[i].parts, rows[_i].runs[i].parts);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("slice");
	TCase *tc = tcase_create("slice");
	SRunner *sr;
	int failed;

	tcase_add_loop_test(tc, runs_are_the_slice, 1, 12);
	tcase_add_loop_test(tc, runs, 0, sizeof rows / sizeof rows[0]);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
