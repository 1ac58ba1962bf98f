/* SPDX-License-Identifier: Apache-2.0 */
/* A loop that other threads wake, while it sleeps in libuv or in a queue, which is a
 * semaphore here. */
#include "proto/rpc/wakeup.h"

#include <check.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 200, TICK_MS = 20 };

/* Replaces the module's queue. */
static struct {
	sem_t kicks;
	_Atomic unsigned kicked, slept; /* number of kicks; number of waits */
	int taken;                      /* by the loop, now */
	int last_wait_ms;
	struct wakeup *arrives; /* is woken within the next queue_serve, as by a stream; NULL: none */
} fake;

static void fake_take(struct rpc_queue *q)
{
	(void)q;
	ck_assert_int_eq(fake.taken++, 0);
}

static void fake_leave(struct rpc_queue *q)
{
	(void)q;
	ck_assert_int_eq(--fake.taken, 0);
}

static void fake_serve(struct rpc_queue *q, int wait_ms)
{
	struct timespec by;

	(void)q;
	ck_assert_int_eq(fake.taken, 1);
	fake.last_wait_ms = wait_ms;
	if (fake.arrives) {
		wakeup_send(fake.arrives);
		fake.arrives = NULL;
		return;
	}
	if (wait_ms)
		atomic_fetch_add(&fake.slept, 1);
	if (wait_ms < 0) {
		ck_assert_int_eq(sem_wait(&fake.kicks), 0);
		return;
	}
	clock_gettime(CLOCK_REALTIME, &by);
	by.tv_nsec += wait_ms % 1000 * 1000000L;
	by.tv_sec += wait_ms / 1000 + by.tv_nsec / 1000000000;
	by.tv_nsec %= 1000000000;
	sem_timedwait(&fake.kicks, &by);
}

static void fake_kick(struct rpc_queue *q)
{
	(void)q;
	atomic_fetch_add(&fake.kicked, 1);
	sem_post(&fake.kicks);
}

static const struct rpc_api api = {
    .queue_take = fake_take, .queue_leave = fake_leave, .queue_serve = fake_serve, .queue_kick = fake_kick};

static struct {
	uv_loop_t loop;
	struct wakeups wakeups;
	struct wakeup a, b;
	uv_timer_t timer;
	unsigned a_times, b_times, ticks;
	uv_thread_t loop_thread;
	sem_t seen; /* posted when `a` was woken */
} at;

static void stop(void)
{
	wakeups_serve(&at.wakeups, NULL, NULL);
	wakeup_close(&at.a);
	wakeup_close(&at.b);
	wakeups_close(&at.wakeups);
	if (!uv_is_closing((uv_handle_t *)&at.timer))
		uv_close((uv_handle_t *)&at.timer, NULL);
}

static void on_a(struct wakeup *w)
{
	uv_thread_t self = uv_thread_self();

	ck_assert_ptr_eq(w, &at.a);
	ck_assert(uv_thread_equal(&self, &at.loop_thread));
	if (++at.a_times == ROUNDS)
		stop();
	sem_post(&at.seen);
}

static void on_b(struct wakeup *w)
{
	ck_assert_ptr_eq(w, &at.b);
	at.b_times++;
}

static void on_tick(uv_timer_t *t)
{
	(void)t;
	at.ticks++;
}

static void setup(void)
{
	struct rs_err e;

	/* from an earlier test, without fork */
	memset(&fake, 0, sizeof fake);
	memset(&at, 0, sizeof at);
	sem_init(&fake.kicks, 0, 0);
	sem_init(&at.seen, 0, 0);
	at.loop_thread = uv_thread_self();
	ck_assert_int_eq(uv_loop_init(&at.loop), 0);
	ck_assert_int_eq(wakeups_init(&at.wakeups, &at.loop, &e), RS_OK);
	wakeup_init(&at.a, &at.wakeups, on_a);
	wakeup_init(&at.b, &at.wakeups, on_b);
	uv_timer_init(&at.loop, &at.timer);
}

static void teardown(void)
{
	wakeups_run(&at.wakeups);
	ck_assert_int_eq(fake.taken, 0);
	wakeups_destroy(&at.wakeups);
	ck_assert_int_eq(uv_loop_close(&at.loop), 0);
}

/* One after the other, each after the loop has handled the last one: it is about to
 * sleep, or sleeps. */
static void send_rounds(void *unused)
{
	(void)unused;
	for (unsigned i = 0; i < ROUNDS; i++) {
		wakeup_send(&at.a);
		sem_wait(&at.seen);
	}
}

/* _i: sleeps in the queue, and not in libuv. */
START_TEST(every_wakeup_from_another_thread_arrives)
{
	uv_thread_t thread;

	if (_i)
		wakeups_serve(&at.wakeups, &api, (struct rpc_queue *)&fake);
	ck_assert_int_eq(uv_thread_create(&thread, send_rounds, NULL), 0);
	wakeups_run(&at.wakeups);
	uv_thread_join(&thread);
	ck_assert_uint_eq(at.a_times, ROUNDS);
	ck_assert_uint_le(atomic_load(&fake.kicked), _i ? ROUNDS : 0);
	ck_assert_uint_le(atomic_load(&fake.slept), _i ? ROUNDS + 1 : 0);
}
END_TEST

/* Wakeups of the queue's streams are handled without a kick, and before the loop sleeps
 * again. */
START_TEST(streams_of_the_queue_are_handled_without_a_kick)
{
	wakeups_serve(&at.wakeups, &api, (struct rpc_queue *)&fake);
	at.a_times = ROUNDS - 1;
	fake.arrives = &at.a;
	wakeups_run(&at.wakeups);
	ck_assert_uint_eq(at.a_times, ROUNDS);
	ck_assert_uint_eq(atomic_load(&fake.kicked), 0);
	ck_assert_uint_eq(atomic_load(&fake.slept), 0);
}
END_TEST

static void on_last_tick(uv_timer_t *t)
{
	on_tick(t);
	wakeup_send(&at.b);
	if (at.ticks == 3) {
		at.a_times = ROUNDS - 1;
		wakeup_send(&at.a); /* which stops, after b */
	}
}

START_TEST(timers_interrupt_the_wait_in_the_queue)
{
	wakeups_serve(&at.wakeups, &api, (struct rpc_queue *)&fake);
	uv_timer_start(&at.timer, on_last_tick, TICK_MS, TICK_MS);
	wakeups_run(&at.wakeups);
	ck_assert_uint_eq(at.ticks, 3);
	ck_assert_uint_eq(at.b_times, 3);
	ck_assert_uint_eq(atomic_load(&fake.kicked), 0);
	ck_assert_int_le(fake.last_wait_ms, TICK_MS);
}
END_TEST

/* From the queue to libuv with a wakeup in the list, and to the same queue again. */
START_TEST(moving_a_wakeup_loses_no_wakeup)
{
	wakeups_serve(&at.wakeups, NULL, NULL);
	wakeups_serve(&at.wakeups, &api, (struct rpc_queue *)&fake);
	wakeups_serve(&at.wakeups, &api, (struct rpc_queue *)&fake);
	wakeup_send(&at.b);
	at.a_times = ROUNDS - 1;
	wakeup_send(&at.a);
	wakeup_send(&at.a); /* is in the list already */
	wakeups_serve(&at.wakeups, NULL, NULL);
	wakeups_run(&at.wakeups);
	ck_assert_uint_eq(at.b_times, 1);
	ck_assert_uint_eq(at.a_times, ROUNDS);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("wakeup");
	TCase *tc = tcase_create("wakeup");
	SRunner *r;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, every_wakeup_from_another_thread_arrives, 0, 2);
	tcase_add_test(tc, streams_of_the_queue_are_handled_without_a_kick);
	tcase_add_test(tc, timers_interrupt_the_wait_in_the_queue);
	tcase_add_test(tc, moving_a_wakeup_loses_no_wakeup);
	suite_add_tcase(s, tc);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
