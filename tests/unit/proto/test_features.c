/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/features.h"

#include <check.h>
#include <string.h>

static const struct {
	uint64_t set;
	const char *text;
} names[] = {
    {0, ""},
    {FEATURE_START, "start"},
    {FEATURE_START | UINT64_C(1) << 40, "start, feature 40"},
    {UINT64_C(3) << 62, "feature 62, feature 63"},
};

START_TEST(features_have_names)
{
	char buf[64];

	ck_assert_str_eq(features_text(buf, sizeof buf, names[_i].set), names[_i].text);
}
END_TEST

START_TEST(a_text_that_is_too_long_is_cut)
{
	char buf[16], all[2048];

	features_text(all, sizeof all, UINT64_MAX);
	features_text(buf, sizeof buf, UINT64_MAX);
	ck_assert_uint_eq(strlen(buf), sizeof buf - 1);
	ck_assert(strncmp(buf, all, sizeof buf - 1) == 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("features");
	TCase *tc = tcase_create("features");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, features_have_names, 0, sizeof names / sizeof names[0]);
	tcase_add_test(tc, a_text_that_is_too_long_is_cut);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
