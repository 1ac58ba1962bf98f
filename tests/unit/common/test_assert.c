/* SPDX-License-Identifier: Apache-2.0 */
#include "common/assert.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void fail_condition(void)
{
	int head = 2, tail = 1;

	rs_assert(head <= tail);
}

static void fail_check(void)
{
	rs_assert_sound("core.c", 7, "a slot has two roots");
}

/* Runs f in a process of its own. Returns its status; text gets what it wrote to standard
 * error. */
static int run(void (*f)(void), char *text, size_t size)
{
	size_t len = 0;
	int ends[2], status;
	ssize_t n;
	pid_t pid;

	ck_assert_int_eq(pipe(ends), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		dup2(ends[1], STDERR_FILENO);
		f();
		_exit(0);
	}
	close(ends[1]);
	while (len + 1 < size && (n = read(ends[0], text + len, size - 1 - len)) > 0)
		len += (size_t)n;
	text[len] = '\0';
	close(ends[0]);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return status;
}

static const struct {
	void (*f)(void);
	const char *says;
} deaths[] = {
    {fail_condition, ": a bug: head <= tail does not hold; please report it\n"},
    {fail_check, "core.c:7: a bug: a slot has two roots; please report it\n"},
};

START_TEST(a_broken_invariant_ends_the_process_and_is_named)
{
	char text[256];
	int status = run(deaths[_i].f, text, sizeof text);

	ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	ck_assert_msg(strstr(text, deaths[_i].says), "%s", text);
}
END_TEST

START_TEST(what_holds_costs_nothing)
{
	int once = 0;

	rs_assert(++once == 1);
	rs_assert_sound(__FILE__, __LINE__, NULL);
	ck_assert_int_eq(once, 1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("assert");
	TCase *tc = tcase_create("assert");
	SRunner *sr;
	int failed;

	tcase_add_loop_test(tc, a_broken_invariant_ends_the_process_and_is_named, 0, sizeof deaths / sizeof deaths[0]);
	tcase_add_test(tc, what_holds_costs_nothing);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
