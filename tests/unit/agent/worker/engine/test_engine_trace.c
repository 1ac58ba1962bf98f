/* SPDX-License-Identifier: Apache-2.0 */
/* run: tsan */
/* A trace of an engine that connects in vain: each one ends, however soon its end is
 * asked for. */
#include "agent/worker/engine/engine.h"
#include "config/config.h"

#include <check.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 200, WAIT_S = 60, CONNECT_S = 3600 };

static struct rs_config cfg;
static struct engine *en;
static struct trace *trace;
static sem_t done;

static void on_ready(void *user)
{
	(void)user;
}

static void on_failed(void *user, const struct rs_err *err)
{
	(void)user;
	(void)err;
}

static void on_done(void *user)
{
	ck_assert_ptr_eq(user, &done);
	sem_post(&done);
}

static void setup(void)
{
	static const char yaml[] = "reducers: [{id: r0, address: '127.0.0.1:1'}]\n"; /* where nobody listens */
	static const struct trace_request request = {.ranges = {{.job = "a"}}, .ranges_n = 1, .operations = 1};
	struct engine_options opt = {.cfg = &cfg,
				     .job = "a",
				     .world_size = 2,
				     .processes = 1,
				     .label = "",
				     .run = "",
				     .connect_ms = 1000 * CONNECT_S,
				     .on_ready = on_ready,
				     .on_failed = on_failed};
	struct rs_err e;

	ck_assert_int_eq(sem_init(&done, 0, 0), 0);
	ck_assert_int_eq(rs_config_parse(&cfg, "test", yaml, strlen(yaml), &e), RS_OK);
	ck_assert_msg(engine_start(&en, &opt, &e) == RS_OK, "%s", e.msg);
	trace = trace_new(&request, 4);
	ck_assert_ptr_nonnull(trace);
}

static void teardown(void)
{
	engine_stop(en);
	engine_free(en);
	trace_free(trace);
	rs_config_close(&cfg);
	sem_destroy(&done);
}

static void wait_for_done(void)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += WAIT_S;
	ck_assert_int_eq(sem_timedwait(&done, &until), 0);
	ck_assert(trace->ended);
	trace->ended = false;
	trace->sources_n = 0;
}

/* The engine's thread mostly learns of both requests at once. */
START_TEST(an_end_does_not_replace_its_beginning)
{
	for (unsigned i = 0; i < ROUNDS; i++) {
		engine_trace(en, trace, on_done, &done);
		engine_trace(en, NULL, NULL, NULL);
		wait_for_done();
	}
}
END_TEST

static void on_reported(void *user)
{
	sem_post(user);
}

/* A trace may have ended by itself when its end is asked for. That must not end the next
 * one. */
START_TEST(a_late_end_does_not_end_the_next_trace)
{
	struct exchange_report *report = exchange_report_new(cfg.reducers_n, cfg.sharding.shards);
	sem_t reported;

	ck_assert_ptr_nonnull(report);
	ck_assert_int_eq(sem_init(&reported, 0, 0), 0);
	for (unsigned i = 0; i < ROUNDS; i++) {
		engine_trace(en, NULL, NULL, NULL);
		engine_trace(en, trace, on_done, &done);
		engine_ask_report(en, report, on_reported, &reported);
		sem_wait(&reported); /* the engine has taken both requests */
		ck_assert_int_ne(sem_trywait(&done), 0);
		engine_trace(en, NULL, NULL, NULL);
		wait_for_done();
	}
	sem_destroy(&reported);
	free(report);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine_trace");
	TCase *tc = tcase_create("trace");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 2 * WAIT_S);
	tcase_add_test(tc, an_end_does_not_replace_its_beginning);
	tcase_add_test(tc, a_late_end_does_not_end_the_next_trace);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
