/* SPDX-License-Identifier: Apache-2.0 */
/* All-reduces of the NCCL plugin, on an engine that the test is: NCCL closes a
 * communicator as soon as its last test() has said done, and this must not look as if an
 * all-reduce were pending, which would end the job on all ranks. */
#include "agent/nccl/coll_state.h"
#include "common/dtype.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The engine. */
static struct {
	struct exchange_op *op; /* submitted last */
	struct coll *watched;   /* NULL: none */
	unsigned looks;         /* how often its lock was taken */
} engine;

int __real_pthread_mutex_lock(pthread_mutex_t *lock);
int __wrap_pthread_mutex_lock(pthread_mutex_t *lock);

/* Before the engine counts an operation as ended, NCCL must not find that it is done. */
int __wrap_pthread_mutex_lock(pthread_mutex_t *lock)
{
	struct coll *c = engine.watched;

	if (c && lock == &c->lock && c->in_flight > 0) {
		int state = atomic_load(&c->requests[0].state);

		ck_assert_int_eq(state, COLL_PENDING);
		engine.looks++;
	}
	return __real_pthread_mutex_lock(lock);
}

int engine_start(struct engine **ret, const struct engine_options *opt, struct rs_err *e)
{
	(void)ret, (void)opt;
	return rs_fail(e, RS_EINTERNAL, "not called");
}

int engine_submit(struct engine *en, struct exchange_op *op, struct rs_err *e)
{
	(void)en, (void)e;
	engine.op = op;
	return RS_OK;
}

void engine_abort(struct engine *en, int code, const char *message)
{
	(void)en, (void)code;
	ck_abort_msg("the job was ended: %s", message);
}

void engine_stop(struct engine *en)
{
	(void)en;
}

void engine_free(struct engine *en)
{
	(void)en;
}

static void log_nothing(int level, unsigned long subsystems, const char *function, int line, const char *format, ...)
{
	(void)level, (void)subsystems, (void)function, (void)line, (void)format;
}

START_TEST(test_done_is_not_in_flight)
{
	static struct plugin plugin;
	struct coll *c = calloc(1, sizeof *c);
	const struct rs_err failed = {.code = RS_EPEER, .msg = "rank 1 was lost"};
	bool good = _i == 0;
	float x[10] = {0};
	void *request;
	int done, bytes;

	memset(&engine, 0, sizeof engine); /* the row before this one may have run in this process */
	atomic_store(&plugin.logger, log_nothing);
	c->plugin = &plugin;
	c->phase = COLL_READY;
	pthread_mutex_init(&c->lock, NULL);
	coll_init_condition(&c->changed);
	ck_assert_int_eq(coll_all_reduce(c, x, x, 10, RS_FLOAT32, RS_SUM, &request), NCCL_SUCCESS);
	ck_assert_int_eq(coll_test(request, &done, &bytes), NCCL_SUCCESS);
	ck_assert_int_eq(done, 0);
	engine.watched = c;
	engine.op->done(engine.op, good ? NULL : &failed);
	engine.watched = NULL;
	ck_assert_uint_eq(engine.looks, 1);
	ck_assert_int_eq(coll_test(request, &done, &bytes), good ? NCCL_SUCCESS : NCCL_REMOTE_ERROR);
	ck_assert_int_eq(done, good);
	ck_assert(!good || bytes == sizeof x);
	ck_assert_int_eq(coll_close(c), NCCL_SUCCESS);
}
END_TEST

/* NCCL 2.20 to 2.25 repeat what has failed. */
START_TEST(test_error_is_told_once)
{
	static struct plugin plugin;
	struct coll *c = calloc(1, sizeof *c);
	const struct rs_err failed = {.code = RS_EPEER, .msg = "rank 1 was lost"};
	float x[10] = {0};
	void *first, *later;
	int done, bytes;

	memset(&engine, 0, sizeof engine);
	atomic_store(&plugin.logger, log_nothing);
	c->plugin = &plugin;
	c->phase = COLL_READY;
	pthread_mutex_init(&c->lock, NULL);
	coll_init_condition(&c->changed);
	ck_assert_int_eq(coll_all_reduce(c, x, x, 10, RS_FLOAT32, RS_SUM, &first), NCCL_SUCCESS);
	engine.op->done(engine.op, &failed);
	engine.op = NULL;
	ck_assert_int_eq(coll_all_reduce(c, x, x, 10, RS_FLOAT32, RS_SUM, &later), NCCL_REMOTE_ERROR);
	ck_assert_ptr_null(later);
	ck_assert_int_eq(coll_all_reduce(c, x, x, 10, RS_FLOAT32, RS_SUM, &later), NCCL_SUCCESS);
	ck_assert_ptr_null(engine.op);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(coll_test(i ? later : first, &done, &bytes), NCCL_SUCCESS);
		ck_assert_int_eq(done, 0);
		ck_assert(x[0] == 0);
	}
	c->told_until = coll_deadline(0);
	for (int i = 0; i < 2; i++) {
		x[9] = 0;
		ck_assert_int_eq(coll_test(i ? later : first, &done, &bytes), NCCL_SUCCESS);
		ck_assert_int_eq(done, 1);
		ck_assert_int_eq(bytes, sizeof x);
		ck_assert(isnan(x[0]) && isnan(x[9]));
	}
	ck_assert_int_eq(coll_close(c), NCCL_SUCCESS);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("coll");
	TCase *tc = tcase_create("coll");
	SRunner *sr;
	int failed;

	tcase_add_loop_test(tc, test_done_is_not_in_flight, 0, 2);
	tcase_add_test(tc, test_error_is_told_once);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
