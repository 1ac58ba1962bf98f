/* SPDX-License-Identifier: Apache-2.0 */
/* Every task is run once and then done once, on the owner's thread, also those that wait
 * when the pool stops. */
#include "common/pool.h"

#include <check.h>
#include <semaphore.h>
#include <stdlib.h>

enum { TASKS = 1000 };

struct one {
	struct rs_task task;
	pthread_t ran_on;
	int run, done;
};

static struct rs_pool pool;
static sem_t ended;
static struct one tasks[TASKS];

static void on_wake(void *ctx)
{
	sem_post(ctx);
}

static void on_run(struct rs_task *t)
{
	struct one *o = (struct one *)t;

	o->ran_on = pthread_self();
	o->run++;
}

static void on_done(struct rs_task *t)
{
	struct one *o = (struct one *)t;

	ck_assert(!pthread_equal(o->ran_on, pthread_self()));
	ck_assert_int_eq(o->run, 1);
	o->done++;
}

static void start(void)
{
	struct rs_err e;

	ck_assert_int_eq(sem_init(&ended, 0, 0), 0);
	ck_assert_int_eq(rs_pool_start(&pool, on_wake, &ended, &e), 0);
	for (int i = 0; i < TASKS; i++)
		tasks[i] = (struct one){.task = {.run = on_run, .done = on_done}};
}

static void check_done(void)
{
	for (int i = 0; i < TASKS; i++)
		ck_assert_int_eq(tasks[i].done, 1);
}

START_TEST(tasks_are_run_and_done)
{
	start();
	for (int i = 0; i < TASKS; i++)
		rs_pool_add(&pool, &tasks[i].task);
	for (int i = 0; i < TASKS; i++) {
		ck_assert_int_eq(sem_wait(&ended), 0);
		rs_pool_finish(&pool);
	}
	check_done();
	rs_pool_stop(&pool);
	rs_pool_stop(&pool); /* no effect */
	check_done();
}
END_TEST

START_TEST(stop_runs_what_waits)
{
	start();
	for (int i = 0; i < TASKS; i++)
		rs_pool_add(&pool, &tasks[i].task);
	rs_pool_stop(&pool);
	check_done();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("pool");
	TCase *t = tcase_create("pool");
	SRunner *r;
	int failed;

	tcase_add_test(t, tasks_are_run_and_done);
	tcase_add_test(t, stop_runs_what_waits);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
