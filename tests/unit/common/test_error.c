/* SPDX-License-Identifier: Apache-2.0 */
#include "common/error.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

START_TEST(fail_stores_code_and_sentence)
{
	struct rs_err e = {0};

	ck_assert_int_eq(rs_fail(&e, RS_EMISMATCH, "rank %d sent %s", 3, "float32"), RS_EMISMATCH);
	ck_assert_int_eq(e.code, RS_EMISMATCH);
	ck_assert_str_eq(e.msg, "rank 3 sent float32");
	ck_assert_int_eq(rs_fail(NULL, RS_EPEER, "x"), RS_EPEER);
	ck_assert_int_eq(rs_fail_sys(NULL, RS_EIO, ENOENT, "x"), RS_EIO);
	ck_assert_int_lt(rs_wrap(NULL, "x"), 0);
}
END_TEST

START_TEST(oom_names_what_and_how_much)
{
	struct rs_err e;

	ck_assert_int_eq(rs_oom(&e, 0, "job %s", "a"), RS_ENOMEM);
	ck_assert_int_eq(e.code, RS_ENOMEM);
	ck_assert_str_eq(e.msg, "out of memory for job a");
	ck_assert_int_eq(rs_oom(&e, 4096, "%u buffers", 16), RS_ENOMEM);
	ck_assert_str_eq(e.msg, "out of memory for 16 buffers (4096 bytes)");
	ck_assert_int_eq(rs_oom(NULL, 1, "x"), RS_ENOMEM);
}
END_TEST

START_TEST(fail_marks_a_cut)
{
	struct rs_err e;
	char text[600];

	for (size_t n = sizeof e.msg - 3; n <= sizeof e.msg + 3; n++) {
		memset(text, 'a', sizeof text);
		text[n] = '\0';
		rs_fail(&e, RS_EIO, "%s", text);
		if (n < sizeof e.msg) {
			ck_assert_str_eq(e.msg, text);
		} else {
			ck_assert_uint_eq(strlen(e.msg), sizeof e.msg - 1);
			ck_assert_str_eq(e.msg + sizeof e.msg - 5, "a...");
		}
	}
	for (size_t shift = 0; shift < 2; shift++) {
		memset(text, 'a', sizeof text);
		for (size_t i = 400 + shift; i < 550; i += 2)
			memcpy(text + i, "\xc3\xa9", 2);
		text[550 + shift] = '\0';
		rs_fail(&e, RS_EIO, "%s", text);
		ck_assert_mem_eq(e.msg + strlen(e.msg) - 5, "\xc3\xa9...", 5);
	}
}
END_TEST

START_TEST(fail_keeps_one_line)
{
	struct rs_err e;

	rs_fail(&e, RS_EPROTO, "job %s", "a\nb\x1b[31m\x7f");
	ck_assert_str_eq(e.msg, "job a?b?[31m?");
	rs_fail(&e, RS_EPROTO, "twice: %s", e.msg);
	ck_assert_str_eq(e.msg, "twice: job a?b?[31m?");
}
END_TEST

START_TEST(fail_sys_appends_errno)
{
	struct rs_err e;
	char text[600];

	errno = EAGAIN;
	ck_assert_int_eq(rs_fail_sys(&e, RS_EIO, ENOENT, "open %s", "map.yaml"), RS_EIO);
	ck_assert_int_eq(errno, EAGAIN);
	ck_assert_str_eq(e.msg, "open map.yaml: No such file or directory");
	rs_fail_sys(&e, RS_EIO, 99999, "odd");
	ck_assert_ptr_nonnull(strstr(e.msg, "odd: "));
	ck_assert_ptr_nonnull(strstr(e.msg, "99999"));
	memset(text, 'a', sizeof text);
	text[sizeof text - 1] = '\0';
	rs_fail_sys(&e, RS_EIO, ENOENT, "%s", text);
	ck_assert_uint_eq(strlen(e.msg), sizeof e.msg - 1);
	ck_assert_ptr_nonnull(strstr(e.msg, "a...: No such file or directory"));
}
END_TEST

START_TEST(wrap_puts_context_in_front)
{
	struct rs_err e;
	char text[600];

	rs_fail(&e, RS_ECONFIG, "weight 0, expected 1 or more");
	ck_assert_int_eq(rs_wrap(&e, "reducer %s", "r0"), RS_ECONFIG);
	ck_assert_int_eq(rs_wrap(&e, "job.yaml:3:5"), RS_ECONFIG);
	ck_assert_str_eq(e.msg, "job.yaml:3:5: reducer r0: weight 0, expected 1 or more");
	ck_assert_int_eq(e.code, RS_ECONFIG);

	/* room for exactly both, then one byte less: the cause is kept whole */
	memset(text, 'a', sizeof text);
	text[sizeof e.msg - 1 - 5] = '\0';
	rs_fail(&e, RS_EIO, "%s", text);
	rs_wrap(&e, "ctx");
	ck_assert_uint_eq(strlen(e.msg), sizeof e.msg - 1);
	ck_assert_mem_eq(e.msg, "ctx: aaa", 8);
	rs_wrap(&e, "more");
	ck_assert_mem_eq(e.msg, "ctx: aaa", 8);
	rs_fail(&e, RS_EIO, "%s", text);
	rs_wrap(&e, "ctxt");
	ck_assert_str_eq(e.msg, text);
}
END_TEST

START_TEST(every_code_has_a_text)
{
	ck_assert_str_eq(rs_code_text(RS_OK), "success");
	ck_assert_str_eq(rs_code_text(RS_EPEER), "a peer was lost");
	ck_assert_str_eq(rs_code_text(RS_ENONFINITE), "a rank sent NaN or infinity");
	ck_assert_str_eq(rs_code_text(1), "unknown error");
	ck_assert_str_eq(rs_code_text(-9999), "unknown error");
	for (int code = RS_EABORTED; code < 0; code++)
		ck_assert_str_ne(rs_code_text(code), "unknown error");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("error");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_test(tc, fail_stores_code_and_sentence);
	tcase_add_test(tc, oom_names_what_and_how_much);
	tcase_add_test(tc, fail_marks_a_cut);
	tcase_add_test(tc, fail_keeps_one_line);
	tcase_add_test(tc, fail_sys_appends_errno);
	tcase_add_test(tc, wrap_puts_context_in_front);
	tcase_add_test(tc, every_code_has_a_text);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
