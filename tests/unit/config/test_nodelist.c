/* SPDX-License-Identifier: Apache-2.0 */
#include "config/nodelist.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* Lists, and their names with spaces between them. */
static const struct {
	const char *text, *names;
} good[] = {
    {"login", "login"},
    {"n[01-03,7]", "n01 n02 n03 n7"},
    {"n[8-11],m", "n8 n9 n10 n11 m"},
    {"n[098-101]", "n098 n099 n100 n101"},
    {"a.b-c_d[1]", "a.b-c_d1"},
    {"rack[0-1]n[5,7]x", "rack0n5x rack0n7x rack1n5x rack1n7x"},
    {"[1-2]", "1 2"},
    {"a[1][2]", "a12"},
};

START_TEST(expands)
{
	struct nodelist l;
	struct rs_err e = {0};
	char all[512] = "";

	ck_assert_msg(nodelist_read(&l, "X", good[_i].text, &e) == RS_OK, "%s", e.msg);
	for (unsigned i = 0; i < l.n; i++) {
		strcat(all, i ? " " : "");
		strcat(all, l.name[i]);
		ck_assert_int_eq(nodelist_find(&l, l.name[i]), (int)i);
	}
	ck_assert_str_eq(all, good[_i].names);
	ck_assert_int_eq(nodelist_find(&l, "other"), -1);
	nodelist_close(&l);
}
END_TEST

#define EXPECTED "expected a list of nodes such as n[01-03,7]; "

static const struct {
	const char *text, *message;
} bad[] = {
    {"", "environment variable X: found \"\", " EXPECTED "at character 1 a name was expected"},
    {"a,", "environment variable X: found \"a,\", " EXPECTED "at character 3 a name was expected"},
    {"a,,b", EXPECTED "at character 3 a name was expected"},
    {"a b", EXPECTED "at character 2 a letter, a digit, '.', '_', '-' or '[' was expected"},
    {"(null)", EXPECTED "at character 1 a letter, a digit"},
    {"n[1-3", EXPECTED "at character 2 a bracket that ends was expected"},
    {"n1]", EXPECTED "at character 3 a letter"},
    {"n[]", EXPECTED "at character 3 a number of at most 9 digits was expected"},
    {"n[1,]", EXPECTED "at character 5 a number of at most 9 digits was expected"},
    {"n[a]", EXPECTED "at character 3 a number of at most 9 digits was expected"},
    {"n[1-]", EXPECTED "at character 5 a number of at most 9 digits was expected"},
    {"n[1[2]]", EXPECTED "at character 7 a letter"},
    {"n[1;2]", EXPECTED "at character 4 ',', '-' or ']' was expected"},
    {"n[3-1]", EXPECTED "at character 3 a range from a smaller to a larger number was expected"},
    {"n[1234567890]", EXPECTED "at character 12 ',', '-' or ']' was expected"},
    {"n[1-4097]", "environment variable X: found more than 4096 nodes in \"n[1-4097]\", expected fewer"},
    {"n[1-999999999]", "found more than 4096 nodes"},
};

START_TEST(refuses)
{
	struct nodelist l = {.n = 7};
	struct rs_err e = {0};

	ck_assert_int_eq(nodelist_read(&l, "X", bad[_i].text, &e), RS_ECONFIG);
	ck_assert_msg(strstr(e.msg, bad[_i].message) != NULL, "%s", e.msg);
	ck_assert_uint_eq(l.n, 7);
}
END_TEST

/* The longest name fits; one character more does not, in a number either. */
START_TEST(long_names)
{
	char text[RS_HOST_MAX + 8];
	struct nodelist l;
	struct rs_err e;

	memset(text, 'a', sizeof text);
	text[RS_HOST_MAX - 1] = '\0';
	ck_assert_int_eq(nodelist_read(&l, "X", text, &e), RS_OK);
	nodelist_close(&l);
	memcpy(text + RS_HOST_MAX - 1, "a", 2);
	ck_assert_int_eq(nodelist_read(&l, "X", text, &e), RS_ECONFIG);
	memcpy(text + RS_HOST_MAX - 1, "[1]", 4);
	ck_assert_int_eq(nodelist_read(&l, "X", text, &e), RS_ECONFIG);
	ck_assert_ptr_nonnull(strstr(e.msg, "a shorter name was expected"));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("nodelist");
	TCase *tc = tcase_create("nodelist");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_add_loop_test(tc, expands, 0, (int)(sizeof good / sizeof good[0]));
	tcase_add_loop_test(tc, refuses, 0, (int)(sizeof bad / sizeof bad[0]));
	tcase_add_test(tc, long_names);
	suite_add_tcase(s, tc);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
