/* SPDX-License-Identifier: Apache-2.0 */
/* Which wait for other ranks a worker warns of, by what was between its operations. */
#include "tests/unit/fake_reducer.h"

#include <check.h>

static const char two[] = "reducers: [{id: r0, address: \"127.0.0.1:1\"}, {id: r1, address: \"127.0.0.1:2\"}]\n"
			  "sharding: {shards: 2, chunk_bytes: 1024, window: 2}\n"
			  "timeouts: {detect: 1h}\njob: {failover: fail}\n";

enum { PAUSES = 20, S = 1000, MINUTE = 60 * S };

/* Pauses before operations, in ms, the first one after START; how long each operation
 * takes; the first wait of the next operation of which a worker warns. */
static const struct {
	const char *what;
	uint32_t pause[PAUSES];
	unsigned n;
	uint32_t takes;
	uint32_t warns;
} rows[] = {
    {"the first operation, at once", {0}, 1, 0, 10 * S},
    {"steps of a second", {S, S, S, S}, 4, 300, 10 * S},
    {"the first outer step", {10 * MINUTE}, 1, 0, 5 * MINUTE},
    {"outer steps", {10 * MINUTE, 10 * MINUTE, 10 * MINUTE, 10 * MINUTE}, 4, 200, 5 * MINUTE},
    {"outer steps of several operations", {10 * MINUTE, 1, 1, 10 * MINUTE, 1, 1, 10 * MINUTE}, 7, 200, 5 * MINUTE},
    {"outer steps become shorter",
     {10 * MINUTE, 2 * MINUTE, 2 * MINUTE, 2 * MINUTE, 2 * MINUTE, 2 * MINUTE, 2 * MINUTE, 2 * MINUTE, 2 * MINUTE,
      2 * MINUTE, 2 * MINUTE, 2 * MINUTE},
     12,
     0,
     70135},
    {"long operations, short pauses", {S, S, S, S}, 4, 2 * MINUTE, 10 * S},
    {"one evaluation, then steps of a second",
     {S, 30 * MINUTE, S, S, S, S, S, S, S, S, S, S, S, S, S, S, S, S, S, S},
     20,
     0,
     10 * S},
};

/* Sends LATE of the pending operation; returns whether the worker has warned. */
static bool says_late(struct reducers *f, uint64_t seq, uint32_t waited_ms)
{
	unsigned before = f->lates;

	reducers_say_late(f, 0, seq, waited_ms, 1, 1, 0);
	reducers_pump(f);
	return f->lates > before;
}

static void let_pass(struct reducers *f, uint32_t ms)
{
	if (ms)
		reducers_advance(f, ms);
}

START_TEST(a_worker_warns_after_half_of_a_pause)
{
	static struct reducers_op o[PAUSES];
	struct reducers f;
	unsigned last = rows[_i].n - 1;

	reducers_open(&f, two, 2, 1000);
	reducers_pump(&f);
	for (unsigned i = 0; i < rows[_i].n; i++) {
		let_pass(&f, rows[_i].pause[i]);
		f.answer = false;
		o[i] = (struct reducers_op){.done = 0};
		ck_assert_int_eq(reducers_submit(&f, &o[i], 256, NULL), 0);
		reducers_pump(&f);
		if (i == last)
			break;
		let_pass(&f, rows[_i].takes);
		f.answer = true;
		reducers_answer(&f, i % 2);
		reducers_pump(&f);
		ck_assert_int_eq(o[i].done, 1);
	}
	ck_assert_msg(!says_late(&f, last, rows[_i].warns - 1), "%s", rows[_i].what);
	ck_assert_msg(says_late(&f, last, rows[_i].warns), "%s", rows[_i].what);
	ck_assert_msg(!says_late(&f, last, 2 * rows[_i].warns), "%s: twice", rows[_i].what);
	reducers_close(&f);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("late");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, a_worker_warns_after_half_of_a_pause, 0, sizeof rows / sizeof rows[0]);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
