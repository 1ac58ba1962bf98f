/* SPDX-License-Identifier: Apache-2.0 */
/* The next generation on the connections of the one before. */
#include "agent/worker/core/link.h"
#include "proto/features.h"
#include "tests/unit/fake_reducer.h"

#include <check.h>
#include <stdlib.h>

static const char two[] = "reducers: [{id: r0, address: \"127.0.0.1:1\"}, {id: r1, address: \"127.0.0.1:2\"}]\n"
			  "job: {failover: fail}\nsharding: {shards: 2, chunk_bytes: 1024, window: 2}\n";

/* Opens an exchange of rank 0 that runs, and in which link 0 has sent a part of DATA. */
static void open_partly_sent(struct reducers *f, struct reducers_op *o)
{
	reducers_open_offering(f, two, 2, 4000, FEATURES_ALL);
	reducers_pump(f);
	ck_assert_int_eq(exchange_state(f->x), EXCHANGE_RUNNING);
	f->answer = false;
	ck_assert_int_eq(reducers_submit(f, o, 1024, NULL), 0);
	f->piece = 100;
	ck_assert(reducers_step(f, 0));
	ck_assert_uint_gt(f->x->links[0].sent_off, 0);
	f->piece = SIZE_MAX;
}

/* A connection broke in the middle of a frame, and the operation has ended since: its
 * memory is not read any more. AddressSanitizer would see it. */
START_TEST(a_frame_of_a_broken_connection_is_dropped)
{
	struct reducers_op *o = malloc(sizeof *o);
	struct reducers f;

	open_partly_sent(&f, o);
	reducers_cut(&f, 0, "cut");
	reducers_pump(&f);
	ck_assert_int_eq(exchange_state(f.x), EXCHANGE_ENDED);
	ck_assert_int_eq(o->done, 1);
	free(o);
	exchange_reconfigure(
	    f.x, &(struct exchange_place){.generation = 1, .world_size = 2, .incarnation = 5, .connect_ms = 4000},
	    f.now_ms);
	ck_assert_uint_eq(f.x->links[0].saved_len, 0);
	ck_assert_uint_eq(f.x->links[0].sent_off, 0);
	reducers_close(&f);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("rejoin");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_test(tc, a_frame_of_a_broken_connection_is_dropped);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
