/* SPDX-License-Identifier: Apache-2.0 */
/* Priorities of an exchange's operations: the order of chunks and results. */
#include "common/dtype.h"
#include "tests/unit/fake_ops.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

/* The chunks that the first link has sent, as "priority:chunk ...". */
static const char *arrivals(const struct reducers *f)
{
	static char text[400];
	size_t len = 0;

	text[0] = '\0';
	for (unsigned i = 0; i < f->l[0].data_n; i++)
		len += (size_t)snprintf(text + len, sizeof text - len, "%s%u:%u", i ? " " : "",
					f->l[0].data[i].of.priority, f->l[0].data[i].chunk);
	return text;
}

static void submit_urgent(struct reducers *f, struct fake_op *o, float *x, uint64_t count, int priority)
{
	ops_submit(
	    f, o,
	    (struct exchange_op){
		.send = x, .recv = x, .of.count = count, .of.dtype = RS_FLOAT32, .of.priority = (uint8_t)priority});
}

static const char urgent[] = "reducers: [{id: r0, address: \"127.0.0.1:1\"}]\n"
			     "sharding: {shards: 1, chunk_bytes: 1024, window: 4, priorities: 3}\n";

/* The window is full when urgent operations start: they take their reserve, then every
 * place that becomes free. */
START_TEST(urgent_chunks_go_first)
{
	float *x = ops_numbers(256 * 6), *y = ops_numbers(256 * 3), *z = ops_numbers(256);
	struct fake_op low, high, middle;
	struct reducers f;

	reducers_open(&f, urgent, 2, 1000);
	f.answer = false;
	submit_urgent(&f, &low, x, 256 * 6, 0);
	reducers_pump(&f);
	submit_urgent(&f, &middle, z, 256, 1);
	submit_urgent(&f, &high, y, 256 * 3, 7);
	reducers_pump(&f);
	ck_assert_str_eq(arrivals(&f), "0:0 0:1 0:2 0:3 2:0 1:0");
	for (unsigned i = 0; i < 3; i++) {
		reducers_answer(&f, 0);
		reducers_pump(&f);
	}
	ck_assert_str_eq(arrivals(&f), "0:0 0:1 0:2 0:3 2:0 1:0 2:1");
	f.answer = true;
	while (f.l[0].answered < f.l[0].data_n)
		reducers_answer(&f, 0);
	reducers_pump(&f);
	ck_assert_str_eq(arrivals(&f), "0:0 0:1 0:2 0:3 2:0 1:0 2:1 2:2 0:4 0:5");
	ck_assert(low.done && high.done && middle.done);
	ops_expect_tripled(x, 256 * 6);
	ops_expect_tripled(y, 256 * 3);
	reducers_close(&f);
	free(x);
	free(y);
	free(z);
}
END_TEST

/* _i: bytes of the first operation's frames that were sent when the urgent one started.
 * Frames are not interrupted, and encoded frames are overtaken too. */
START_TEST(urgent_chunks_wait_for_the_frame_in_progress)
{
	enum { FRAME = FRAME_HEADER + 1024 };
	static const char *const want[] = {"2:0 0:0 0:1 0:2", "0:0 2:0 0:1 0:2", "0:0 0:1 2:0 0:2"};
	float *x = ops_numbers(256 * 3), *y = ops_numbers(256);
	size_t at = (size_t)_i * 37;
	struct fake_op low, high;
	struct reducers f;

	reducers_open(&f, urgent, 2, 1000);
	reducers_pump(&f);
	submit_urgent(&f, &low, x, 256 * 3, 0);
	for (size_t n = 0; n < at; n += 37) {
		f.piece = 37;
		f.answer = false;
		reducers_step(&f, 0);
	}
	submit_urgent(&f, &high, y, 256, 2);
	f.piece = SIZE_MAX;
	while (f.l[0].answered < f.l[0].data_n)
		reducers_answer(&f, 0);
	f.answer = true;
	reducers_pump(&f);
	ck_assert_str_eq(arrivals(&f), want[(at + FRAME - 1) / FRAME]);
	ck_assert(low.done && high.done);
	ops_expect_tripled(x, 256 * 3);
	ops_expect_tripled(y, 256);
	reducers_close(&f);
	free(x);
	free(y);
}
END_TEST

/* Results of an urgent operation overtake others; a smaller operation that started later
 * completes earlier. */
START_TEST(urgent_results_come_first)
{
	float *x = ops_numbers(256 * 3), *y = ops_numbers(256);
	struct fake_op low, high;
	struct reducers f;
	struct frame h;
	void *payload;

	reducers_open(&f, urgent, 2, 1000);
	f.answer = false;
	submit_urgent(&f, &low, x, 256 * 3, 0);
	submit_urgent(&f, &high, y, 256, 2);
	reducers_pump(&f);
	ck_assert_str_eq(arrivals(&f), "2:0 0:0 0:1 0:2");
	for (unsigned i = 0; i < 4; i++) {
		static const unsigned order[] = {1, 2, 0, 3};

		ck_assert_int_eq(high.done, i > 2);
		reducers_result(&f, 0, order[i], &h, &payload);
		reducers_say(&f, 0, &h, payload);
		reducers_pump(&f);
	}
	ck_assert(low.done && high.done);
	ops_expect_tripled(x, 256 * 3);
	ops_expect_tripled(y, 256);
	ck_assert_uint_eq(exchange_ops_done(f.x), 2);
	reducers_close(&f);
	free(x);
	free(y);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("link_urgent");
	TCase *tc = tcase_create("urgent");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, urgent_chunks_go_first);
	tcase_add_loop_test(tc, urgent_chunks_wait_for_the_frame_in_progress, 0, 2 * (FRAME_HEADER + 1024) / 37 + 1);
	tcase_add_test(tc, urgent_results_come_first);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
