/* SPDX-License-Identifier: Apache-2.0 */
/* An exchange with world size 1 that sums alone: the order, the amount at a time, and
 * when it does not. Reducers get no data, but the connections to them behave as in any
 * exchange. */
#include "common/dtype.h"
#include "tests/unit/fake_reducer.h"

#include <check.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 256 }; /* elements */

static const char one[] = "reducers: [{id: r0, address: \"127.0.0.1:1\"}]\n"
			  "sharding: {shards: 1, chunk_bytes: 1024, priorities: 3}\n";
static const char two[] = "reducers: [{id: r0, address: \"127.0.0.1:1\"}, {id: r1, address: \"127.0.0.1:2\"}]\n"
			  "sharding: {shards: 2, chunk_bytes: 1024}\n";
static const char strict[] = "job: {detect_nonfinite: fail}\n"
			     "reducers: [{id: r0, address: \"127.0.0.1:1\"}]\nsharding: {chunk_bytes: 1024}\n";

static char story[400]; /* "a0f a0r a0l a!": fill, result and landed of a's first chunk, and a's end */

struct single_op {
	struct exchange_op op; /* first */
	char name;
	int done;
	struct rs_err err;
};

static void tell(const struct exchange_op *op, uint64_t first, char what)
{
	size_t at = strlen(story);

	if (what == '!')
		snprintf(story + at, sizeof story - at, "%s%c!", at ? " " : "", ((const struct single_op *)op)->name);
	else
		snprintf(story + at, sizeof story - at, "%s%c%u%c", at ? " " : "", ((const struct single_op *)op)->name,
			 (unsigned)(first / CHUNK), what);
}

static void on_fill(struct exchange_op *op, uint64_t first, uint32_t n)
{
	ck_assert(n > 0 && first + n <= op->of.count);
	tell(op, first, 'f');
}

static void on_finish(struct exchange_op *op, uint64_t first, uint32_t n)
{
	(void)n;
	tell(op, first, 'r');
}

static void on_landed(struct exchange_op *op, uint64_t first, uint32_t n)
{
	(void)n;
	tell(op, first, 'l');
}

static void on_done(struct exchange_op *op, const struct rs_err *err)
{
	struct single_op *o = (struct single_op *)op;

	tell(op, 0, '!');
	o->done++;
	if (err)
		o->err = *err;
}

/* Records only ends and landings. */
static void submit(struct reducers *f, struct single_op *o, char name, uint64_t count, int priority)
{
	struct rs_err e = {0};

	o->op.of.count = count;
	o->op.of.dtype = RS_FLOAT32;
	o->op.of.size = 4;
	o->op.of.priority = (uint8_t)priority;
	o->op.landed = on_landed;
	o->op.done = on_done;
	o->name = name;
	ck_assert_msg(exchange_submit(f->x, &o->op, f->now_ms, &e) == 0, "%s", e.msg);
}

static void open_running(struct reducers *f, const char *yaml)
{
	story[0] = '\0';
	reducers_open_single(f, yaml);
	reducers_pump(f);
	ck_assert_int_eq(exchange_state(f->x), EXCHANGE_RUNNING);
}

static void expect_idle_reducers(const struct reducers *f)
{
	for (unsigned i = 0; i < f->links_n; i++)
		ck_assert_uint_eq(f->l[i].data_n, 0);
}

START_TEST(a_chunk_is_filled_summed_and_stored)
{
	struct reducers f;
	struct single_op a = {.op = {.fill = on_fill, .finish = on_finish}};

	open_running(&f, one);
	submit(&f, &a, 'a', CHUNK + 1, 0);
	ck_assert_str_eq(story, "");
	ck_assert(!exchange_run_single(f.x, UINT64_MAX));
	ck_assert_str_eq(story, "a0f a0r a0l a1f a1r a1l a!");
	ck_assert_int_eq(a.err.code, 0);
	ck_assert_uint_eq(exchange_ops_done(f.x), 1);
	reducers_pump(&f);
	expect_idle_reducers(&f);
	reducers_close(&f);
}
END_TEST

START_TEST(an_empty_operation_completes)
{
	struct reducers f;
	struct single_op a = {.op = {.fill = on_fill, .finish = on_finish}};

	open_running(&f, one);
	submit(&f, &a, 'a', 0, 0);
	ck_assert(!exchange_run_single(f.x, UINT64_MAX));
	ck_assert_str_eq(story, "a!");
	reducers_close(&f);
}
END_TEST

START_TEST(operations_wait_until_all_ranks_have_joined)
{
	struct reducers f;
	struct single_op a = {0};

	story[0] = '\0';
	reducers_open_single(&f, one);
	submit(&f, &a, 'a', 1, 0);
	ck_assert(!exchange_run_single(f.x, UINT64_MAX));
	ck_assert_int_eq(a.done, 0);
	reducers_pump(&f);
	ck_assert(!exchange_run_single(f.x, UINT64_MAX));
	ck_assert_int_eq(a.done, 1);
	reducers_close(&f);
}
END_TEST

/* Other exchanges send their data to reducers. */
START_TEST(exchanges_with_reducers_do_not_sum_alone)
{
	struct reducers f;
	struct single_op a = {0};

	story[0] = '\0';
	reducers_open(&f, one, 1, 1000);
	f.answer = false;
	submit(&f, &a, 'a', 0, 0);
	reducers_pump(&f);
	ck_assert(!exchange_run_single(f.x, UINT64_MAX));
	ck_assert_int_eq(a.done, 0);
	ck_assert_uint_eq(f.l[0].data_n, 1);
	reducers_answer(&f, 0);
	reducers_pump(&f);
	ck_assert_int_eq(a.done, 1);
	reducers_close(&f);
}
END_TEST

/* Processes until so many bytes of both are done, in whole chunks; the older one first if
 * priorities are equal. */
START_TEST(a_step_is_bounded_and_starts_with_the_urgent_operation)
{
	struct reducers f;
	struct single_op a = {0}, b = {0}, c = {0}, d = {0};

	open_running(&f, one);
	submit(&f, &a, 'a', 4 * CHUNK, 0);
	ck_assert(exchange_run_single(f.x, 2 * 1024 + 1));
	ck_assert_str_eq(story, "a0l a1l");
	submit(&f, &b, 'b', 1, 0);
	submit(&f, &c, 'c', CHUNK, 1);
	submit(&f, &d, 'd', 2 * CHUNK, 7);
	ck_assert(exchange_run_single(f.x, 1));
	ck_assert_str_eq(story, "a0l a1l d0l");
	ck_assert(exchange_run_single(f.x, 2 * 2048));
	ck_assert_str_eq(story, "a0l a1l d0l d1l d! c0l c!");
	ck_assert(!exchange_run_single(f.x, UINT64_MAX));
	ck_assert_str_eq(story, "a0l a1l d0l d1l d! c0l c! a2l a3l a! b0l b!");
	reducers_close(&f);
}
END_TEST

/* An urgent operation that waits for input does not block others. */
START_TEST(chunks_wait_for_missing_input)
{
	_Atomic uint64_t ready = CHUNK - 1;
	struct reducers f;
	struct single_op a = {.op = {.ready = &ready}}, b = {0};

	open_running(&f, one);
	submit(&f, &a, 'a', 2 * CHUNK, 7);
	submit(&f, &b, 'b', CHUNK, 0);
	ck_assert(!exchange_run_single(f.x, UINT64_MAX));
	ck_assert_str_eq(story, "b0l b!");
	atomic_store(&ready, 2 * CHUNK - 1);
	ck_assert(!exchange_run_single(f.x, UINT64_MAX));
	ck_assert_str_eq(story, "b0l b! a0l");
	atomic_store(&ready, 2 * CHUNK);
	ck_assert(!exchange_run_single(f.x, UINT64_MAX));
	ck_assert_str_eq(story, "b0l b! a0l a1l a!");
	reducers_close(&f);
}
END_TEST

static int find_one(struct exchange_op *op, const void *at, uint64_t first, uint32_t n, struct rs_err *e)
{
	(void)n;
	ck_assert_ptr_eq(at, (const char *)op->send + first * sizeof(float) % 1024);
	return first == CHUNK ? rs_fail(e, RS_ENONFINITE, "NaN") : RS_OK;
}

/* With a ring of one chunk, so that each chunk is at its beginning. */
START_TEST(a_nan_fails_the_job_if_configured)
{
	float x[CHUNK];
	struct reducers f;
	struct single_op a = {.op = {.inspect = find_one, .send = x, .send_ring = sizeof x}};

	open_running(&f, strict);
	submit(&f, &a, 'a', 3 * CHUNK, 0);
	ck_assert(!exchange_run_single(f.x, UINT64_MAX));
	ck_assert_str_eq(story, "a0l");
	reducers_advance(&f, 1);
	reducers_expect_end(&f, RS_ENONFINITE, "NaN");
	ck_assert_int_eq(a.err.code, RS_ENONFINITE);
	ck_assert_uint_eq(f.l[0].aborts, 1);
	reducers_close(&f);
}
END_TEST

START_TEST(the_loss_of_a_reducer_is_tolerated)
{
	_Atomic uint64_t ready = CHUNK;
	struct reducers f;
	struct single_op a = {.op = {.ready = &ready}}, b = {0};

	open_running(&f, two);
	f.resume = true;
	submit(&f, &a, 'a', 3 * CHUNK, 0);
	ck_assert(!exchange_run_single(f.x, UINT64_MAX));
	f.l[1].dead = true;
	reducers_cut(&f, 1, "connection reset by peer");
	reducers_pump(&f);
	ck_assert_uint_eq(f.lost, 1);
	submit(&f, &b, 'b', 3 * CHUNK, 0);
	atomic_store(&ready, 3 * CHUNK);
	ck_assert(!exchange_run_single(f.x, UINT64_MAX));
	ck_assert_str_eq(story, "a0l a1l a2l a! b0l b1l b2l b!");
	ck_assert(!a.err.code && !b.err.code);
	reducers_pump(&f);
	expect_idle_reducers(&f);
	reducers_close(&f);
}
END_TEST

/* It need not wait until others have its results: there are no others. */
START_TEST(goodbye_is_sent_at_once)
{
	struct reducers f;
	struct single_op a = {0}, b = {.op.of.size = 1};

	open_running(&f, two);
	submit(&f, &a, 'a', 1, 0);
	ck_assert(!exchange_run_single(f.x, UINT64_MAX));
	exchange_goodbye(f.x, f.now_ms);
	reducers_pump(&f);
	ck_assert_int_eq(exchange_state(f.x), EXCHANGE_ENDED);
	ck_assert(f.l[0].goodbyes == 1 && f.l[1].goodbyes == 1 && f.l[0].settles == 0);
	ck_assert_int_lt(exchange_submit(f.x, &b.op, f.now_ms, &b.err), 0);
	ck_assert(!exchange_run_single(f.x, UINT64_MAX));
	reducers_close(&f);
}
END_TEST

START_TEST(abort_fails_pending_operations)
{
	_Atomic uint64_t ready = 0;
	struct reducers f;
	struct single_op a = {.op = {.ready = &ready}};

	open_running(&f, one);
	submit(&f, &a, 'a', 1, 0);
	exchange_abort(f.x, RS_EPEER, "rank 1 exited", f.now_ms);
	atomic_store(&ready, 1);
	ck_assert(!exchange_run_single(f.x, UINT64_MAX));
	reducers_pump(&f);
	reducers_expect_error(&a.err, RS_EPEER, "rank 1 exited");
	ck_assert_str_eq(story, "a!");
	reducers_close(&f);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("single_worker");
	TCase *t = tcase_create("single_worker");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_test(t, a_chunk_is_filled_summed_and_stored);
	tcase_add_test(t, an_empty_operation_completes);
	tcase_add_test(t, operations_wait_until_all_ranks_have_joined);
	tcase_add_test(t, exchanges_with_reducers_do_not_sum_alone);
	tcase_add_test(t, a_step_is_bounded_and_starts_with_the_urgent_operation);
	tcase_add_test(t, chunks_wait_for_missing_input);
	tcase_add_test(t, a_nan_fails_the_job_if_configured);
	tcase_add_test(t, the_loss_of_a_reducer_is_tolerated);
	tcase_add_test(t, goodbye_is_sent_at_once);
	tcase_add_test(t, abort_fails_pending_operations);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
