/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/worker/engine/poll.h"

#include <check.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

static struct engine_poll polled;
static int loop_fd, fd;

static void setup(void)
{
	struct rs_err e;

	loop_fd = eventfd(0, EFD_NONBLOCK);
	fd = eventfd(0, EFD_NONBLOCK);
	ck_assert_int_ge(loop_fd, 0);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(engine_poll_init(&polled, loop_fd, &e), RS_OK);
	ck_assert_int_eq(engine_poll_add(&polled, fd, EPOLLIN, 7), 0);
}

static void teardown(void)
{
	engine_poll_close(&polled);
	close(loop_fd);
	close(fd);
}

static void write_to(int to)
{
	ck_assert_int_eq(eventfd_write(to, 1), 0);
}

/* A thread that polls sockets, finds none and then sleeps learns what ended its wait: an
 * interrupt is never lost. */
START_TEST(an_interrupt_is_reported)
{
	struct epoll_event ev[ENGINE_POLL_EVENTS];

	ck_assert_int_eq(engine_poll_sockets(&polled, ev, 0), 0);
	engine_poll_interrupt(&polled);
	engine_poll_interrupt(&polled);
	ck_assert_int_eq(engine_poll_sockets(&polled, ev, 0), -1);
	ck_assert_int_eq(engine_poll_sockets(&polled, ev, 0), 0);
	engine_poll_interrupt(&polled);
	ck_assert_int_eq(engine_poll_sockets(&polled, ev, -1), -1);
}
END_TEST

START_TEST(sockets_are_reported_with_and_without_an_interrupt)
{
	struct epoll_event ev[ENGINE_POLL_EVENTS];

	write_to(fd);
	for (int kicks = 0; kicks < 2; kicks++) {
		if (kicks)
			engine_poll_interrupt(&polled);
		ck_assert_int_eq(engine_poll_sockets(&polled, ev, 0), 1);
		ck_assert_uint_eq(ev[0].data.u64, 7);
		ck_assert_uint_eq(ev[0].events, EPOLLIN);
	}
}
END_TEST

START_TEST(hidden_sockets_do_not_end_a_sleep)
{
	struct epoll_event ev[ENGINE_POLL_EVENTS];

	engine_poll_hide(&polled, true);
	write_to(fd);
	ck_assert_int_eq(engine_poll_sleep(&polled, 0), 0);
	write_to(loop_fd);
	ck_assert_int_eq(engine_poll_sleep(&polled, -1), ENGINE_POLL_LOOP);
	ck_assert_int_eq(engine_poll_sockets(&polled, ev, -1), 1);
	engine_poll_hide(&polled, false);
	ck_assert_int_eq(engine_poll_sleep(&polled, -1), ENGINE_POLL_LOOP | ENGINE_POLL_SOCKETS);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine_poll");
	TCase *t = tcase_create("engine_poll");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, an_interrupt_is_reported);
	tcase_add_test(t, sockets_are_reported_with_and_without_an_interrupt);
	tcase_add_test(t, hidden_sockets_do_not_end_a_sleep);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
