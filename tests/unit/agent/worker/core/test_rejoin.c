/* SPDX-License-Identifier: Apache-2.0 */
/* The next generation on the connections of the one before. */
#include "agent/worker/core/link.h"
#include "proto/features.h"
#include "tests/unit/fake_reducer.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static const char two[] = "reducers: [{id: r0, address: \"127.0.0.1:1\"}, {id: r1, address: \"127.0.0.1:2\"}]\n"
			  "job: {failover: fail}\nsharding: {shards: 2, chunk_bytes: 1024, window: 2}\n";

/* the same, and the job survives the loss of a reducer */
static const char survivor[] = "reducers: [{id: r0, address: \"127.0.0.1:1\"}, {id: r1, address: \"127.0.0.1:2\"}]\n"
			       "sharding: {shards: 2, chunk_bytes: 1024, window: 2}\n";

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

/* A reducer that keeps connections lets the rank join. */
static void join(struct reducers *f, unsigned link)
{
	const struct control_welcome w = {.features = FEATURES_ALL};
	const struct control_start s = {.features = FEATURES_ALL, .start = 99};
	uint8_t payload[FRAME_CONTROL_MAX];

	f->l[link].started = true;
	reducers_say_control(f, link, FRAME_WELCOME, payload, control_pack_welcome(payload, &w));
	reducers_say_control(f, link, FRAME_START, payload, control_pack_start(payload, &s));
}

/* A frame of the last generation was damaged on the way. What the reducer says of it is
 * no answer to HELLO, which goes out once more, on another connection. */
START_TEST(damage_of_the_last_generation_is_no_refusal)
{
	const struct exchange_place next = {.generation = 6, .world_size = 2, .incarnation = 5, .connect_ms = 4000};
	struct reducers f;
	unsigned tries;

	reducers_open_offering(&f, two, 2, 4000, FEATURES_ALL);
	f.welcome = f.start = false;
	reducers_pump(&f);
	for (unsigned i = 0; i < f.links_n; i++)
		join(&f, i);
	reducers_pump(&f);
	ck_assert_int_eq(exchange_state(f.x), EXCHANGE_RUNNING);
	tries = f.l[0].tries;
	f.generation = next.generation;
	f.l[0].greeted = f.l[1].greeted = false;
	exchange_reconfigure(f.x, &next, f.now_ms);
	reducers_pump(&f);
	ck_assert_uint_eq(f.l[0].tries, tries); /* the connection was kept */
	reducers_say_refused(&f, 0, RS_EPROTO, "a frame header's checksum is wrong", false);
	reducers_advance(&f, 1000);
	ck_assert_int_eq(exchange_state(f.x), EXCHANGE_JOINING);
	ck_assert_uint_eq(f.l[0].tries, tries + 1);
	reducers_say_refused(&f, 0, RS_EPROTO, "a frame header's checksum is wrong", false);
	reducers_pump(&f);
	ck_assert_int_ge(exchange_state(f.x), EXCHANGE_ENDING); /* it is one on a new connection */
	reducers_close(&f);
}
END_TEST

/* The same, but the rank itself cannot read what comes before the answer. */
START_TEST(damage_before_the_answer_is_no_breach)
{
	const struct exchange_place next = {.generation = 6, .world_size = 2, .incarnation = 5, .connect_ms = 4000};
	struct reducers f;
	unsigned tries;

	reducers_open_offering(&f, _i ? survivor : two, 2, 4000, FEATURES_ALL);
	f.welcome = f.start = false;
	reducers_pump(&f);
	for (unsigned i = 0; i < f.links_n; i++)
		join(&f, i);
	reducers_pump(&f);
	tries = f.l[0].tries;
	f.generation = next.generation;
	f.l[0].greeted = f.l[1].greeted = false;
	exchange_reconfigure(f.x, &next, f.now_ms);
	reducers_pump(&f);
	ck_assert_uint_eq(f.l[0].tries, tries); /* the connection was kept */
	memset(f.x->links[0].header, 'x', FRAME_HEADER);
	exchange_received(f.x, 0, FRAME_HEADER, f.now_ms);
	reducers_advance(&f, 1000);
	ck_assert_int_eq(exchange_state(f.x), EXCHANGE_JOINING);
	ck_assert_uint_eq(f.l[0].tries, tries + 1);
	reducers_close(&f);
}
END_TEST

/* The job is over, and its connections are at rest for the next generation. Bytes are
 * damaged on one: it is closed, and nobody connects to that reducer again. */
START_TEST(damage_at_rest_ends_the_connection)
{
	struct rs_err e;
	struct reducers f;
	unsigned tries;

	reducers_open_offering(&f, _i ? survivor : two, 2, 4000, FEATURES_ALL);
	f.welcome = f.start = false;
	reducers_pump(&f);
	for (unsigned i = 0; i < f.links_n; i++)
		join(&f, i);
	reducers_pump(&f);
	ck_assert_int_eq(exchange_state(f.x), EXCHANGE_RUNNING);
	tries = f.l[0].tries;
	rs_fail(&e, RS_EABORTED, "enough");
	exchange_abort(f.x, e.code, e.msg, f.now_ms);
	reducers_pump(&f);
	ck_assert_int_eq(exchange_state(f.x), EXCHANGE_ENDED);
	ck_assert(f.x->links[0].keeps);
	memset(f.x->links[0].header, 'x', FRAME_HEADER);
	exchange_received(f.x, 0, FRAME_HEADER, f.now_ms);
	ck_assert(!f.x->links[0].keeps);
	reducers_advance(&f, 3000);
	ck_assert_int_eq(f.x->links[0].state, LINK_CLOSED);
	ck_assert_uint_eq(f.l[0].tries, tries);
	ck_assert(f.x->links[1].keeps);
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
	tcase_add_test(tc, damage_of_the_last_generation_is_no_refusal);
	tcase_add_loop_test(tc, damage_before_the_answer_is_no_breach, 0, 2);
	tcase_add_loop_test(tc, damage_at_rest_ends_the_connection, 0, 2);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
