/* SPDX-License-Identifier: Apache-2.0 */
/* run: tsan */
/* A process is forked while another thread makes an event loop: the child can make loops
 * too. The linker replaces uv_loop_init, which is called while that thread holds the
 * lock. */
#include "common/descriptors.h"
#include "common/loop_uv.h"

#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t child; /* -1: uv_loop_init() is to fork */

int __real_uv_loop_init(uv_loop_t *loop);
int __wrap_uv_loop_init(uv_loop_t *loop);

static void *make_loop(void *arg)
{
	uv_loop_t loop;
	struct rs_err e;
	int *ret = arg;

	*ret = rs_loop_init(&loop, RS_LOOP_DESCRIPTORS, &e);
	if (!*ret)
		uv_loop_close(&loop);
	return NULL;
}

int __wrap_uv_loop_init(uv_loop_t *loop)
{
	int rc = -1;
	pthread_t thread;

	if (child == -1) {
		child = fork();
		if (child == 0) {
			pthread_create(&thread, NULL, make_loop, &rc);
			pthread_join(thread, NULL);
			_exit(rc != RS_OK);
		}
	}
	return __real_uv_loop_init(loop);
}

START_TEST(test_fork)
{
	int rc, status;

	child = -1;
	make_loop(&rc);
	ck_assert_int_eq(rc, RS_OK);
	ck_assert_int_gt(child, 0);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("loop_uv");
	TCase *tc = tcase_create("loop_uv");
	SRunner *sr;
	int failed;

	rs_loop_own_libuv();
	tcase_add_test(tc, test_fork);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
