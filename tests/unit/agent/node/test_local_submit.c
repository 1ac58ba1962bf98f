/* SPDX-License-Identifier: Apache-2.0 */
/* How operations of local ranks are matched, their order for the engine, and invalid
 * ones. */
#include "common/dtype.h"
#include "proto/frame.h"
#include "tests/unit/fake_agent.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct fake_agent fa;
static struct fake_client *c[4];
static unsigned buffer[4];
static struct fake_engine *en;

/* Two local ranks, each with a buffer of 8 KiB. */
static void setup(void)
{
	fake_agent_init(&fa);
	en = fake_job(&fa, c, 4, 2);
	for (int i = 0; i < 2; i++) {
		buffer[i] = fake_alloc(&fa, c[i], 8192);
		c[i]->story[0] = 0;
	}
}

static void teardown(void)
{
	fake_agent_close(&fa);
}

START_TEST(operations_wait_for_all_ranks_and_keep_their_order)
{
	fake_submit(&fa, c[0], buffer[0], 1, NULL);
	fake_submit(&fa, c[0], buffer[0], 2, NULL);
	ck_assert_uint_eq(en->ops_n, 0);
	fake_submit(&fa, c[1], buffer[1], 1, NULL);
	ck_assert_uint_eq(en->ops_n, 1);
	fake_submit(&fa, c[1], buffer[1], 2, NULL);
	fake_submit(&fa, c[1], buffer[1], 3, NULL);
	fake_submit(&fa, c[0], buffer[0], 3, NULL);
	ck_assert_uint_eq(en->ops_n, 3);
	for (unsigned i = 0; i < 3; i++)
		ck_assert_uint_eq(en->ops[i]->of.count, i + 1);
	fake_engine_run(&fa, en, 1); /* they may end in any order */
	fake_engine_run(&fa, en, 0);
	fake_engine_run(&fa, en, 0);
	ck_assert_str_eq(c[0]->story, "DONE:1 DONE:0 DONE:2");
	ck_assert_str_eq(c[1]->story, "DONE:1 DONE:0 DONE:2");
}
END_TEST

/* Operations with the same result match; the engine gets what was asked for. */
START_TEST(equivalent_priorities_agree)
{
	static const uint8_t asked[][2] = {{1, OPERATION_AUTO - 1}, {OPERATION_AUTO, 1}, {0, 0}};
	struct local_submit s = {.of.dtype = RS_INT8};

	for (unsigned i = 0; i < sizeof asked / sizeof asked[0]; i++) {
		for (unsigned r = 0; r < 2; r++) {
			s.of.priority = asked[i][r];
			fake_submit(&fa, c[r], buffer[r], 8, &s);
		}
		ck_assert_uint_eq(en->ops_n, 1);
		ck_assert_int_eq(en->ops[0]->of.priority, asked[i][0]);
		fake_engine_run(&fa, en, 0);
	}
}
END_TEST

START_TEST(a_rank_runs_ahead_up_to_the_limit)
{
	for (unsigned round = 0; round < 5; round++) {
		for (unsigned i = 0; i < 8; i++)
			fake_submit(&fa, c[0], buffer[0], i, NULL);
		for (unsigned i = 0; i < 8; i++)
			fake_submit(&fa, c[1], buffer[1], i, NULL);
		while (en->ops_n)
			fake_engine_run(&fa, en, en->ops_n / 2);
	}
	for (unsigned i = 0; i < 8; i++)
		fake_submit(&fa, c[0], buffer[0], 0, NULL);
	ck_assert(!c[0]->dropped);
	fake_submit(&fa, c[0], buffer[0], 0, NULL);
	fake_settle(&fa);
	ck_assert_str_eq(c[0]->sentence, "the agent on host dropped this process: more than 8 operations in flight");
	ck_assert_str_eq(c[1]->sentence,
			 "rank 0 (pid 101 on host) broke the local protocol: more than 8 operations in flight");
}
END_TEST

/* The oldest operation waits; ranks may start others up to the limit. */
START_TEST(an_old_operation_does_not_block_the_ring)
{
	for (unsigned i = 0; i < 40; i++) {
		for (unsigned r = 0; r < 2; r++)
			fake_submit(&fa, c[r], buffer[r], 1, NULL);
		if (i > 3)
			fake_engine_run(&fa, en, 1);
	}
	ck_assert_uint_eq(en->ops_n, 4);
	ck_assert(!c[0]->dropped);
	while (en->ops_n)
		fake_engine_run(&fa, en, 0);
}
END_TEST

static const struct {
	struct local_submit a, b;
	uint64_t count_a, count_b;
	const char *sentence;
} differences[] = {
    {{.of.dtype = RS_FLOAT32},
     {.of.dtype = RS_FLOAT32},
     8,
     9,
     "called an all-reduce sum of 9 float32, rank 0 (pid 101 on host) an all-reduce sum of 8 float32"},
    {{.of.dtype = RS_FLOAT32},
     {.of.dtype = RS_INT8},
     8,
     8,
     "called an all-reduce sum of 8 int8, rank 0 (pid 101 on host) an all-reduce sum of 8 float32"},
    {{.of.dtype = RS_INT8, .of.op = RS_MAX},
     {.of.dtype = RS_INT8, .of.op = RS_AVG},
     8,
     8,
     "called an all-reduce avg of 8 int8, rank 0 (pid 101 on host) an all-reduce max of 8 int8"},
    {{.of.dtype = RS_INT8},
     {.of.dtype = RS_INT8, .of.op = FRAME_OP_BROADCAST, .of.root = 3},
     8,
     8,
     "called a broadcast of 8 int8 from rank 3, rank 0 (pid 101 on host) an all-reduce sum of 8 int8"},
    {{.of.dtype = RS_INT8, .of.op = FRAME_OP_BROADCAST, .of.root = 2},
     {.of.dtype = RS_INT8, .of.op = FRAME_OP_BROADCAST, .of.root = 3},
     8,
     8,
     "called a broadcast of 8 int8 from rank 3, rank 0 (pid 101 on host) a broadcast of 8 int8 from rank 2"},
    {{.of.dtype = RS_INT8, .name = "weights"},
     {.of.dtype = RS_INT8, .name = "bias"},
     8,
     8,
     "calls it 'bias', rank 0 (pid 101 on host) 'weights'"},
    {{.of.dtype = RS_FLOAT32},
     {.of.dtype = RS_FLOAT32, .of.up = RS_WIRE_FP8, .of.down = RS_WIRE_BF16},
     8,
     8,
     "sends it as fp8 and wants the result as bf16, rank 0 (pid 101 on host) as same and same (job.wire)"},
    {{.of.dtype = RS_INT8, .of.priority = 1},
     {.of.dtype = RS_INT8},
     8,
     8,
     "gave it priority 0, rank 0 (pid 101 on host) priority 1"},
    {{.of.dtype = RS_INT8},
     {.of.dtype = RS_INT8, .of.priority = OPERATION_AUTO},
     8,
     8,
     "gave it priority 1, rank 0 (pid 101 on host) priority 0"},
    {{.of.dtype = RS_INT8, .of.tensors = 2},
     {.of.dtype = RS_INT8, .of.tensors = 3},
     8,
     8,
     "called an all-reduce sum of 8 int8 (group of 3 tensors), rank 0 (pid 101 on host) an all-reduce sum of 8 int8 "
     "(group of 2 tensors)"},
    {{.of.dtype = RS_INT8, .of.tensors = 2, .of.name_hash = 5},
     {.of.dtype = RS_INT8, .of.tensors = 2, .of.name_hash = 6},
     8,
     8,
     "gave its group of 2 tensors other counts or names than rank 0 (pid 101 on host)"},
};

START_TEST(differences_end_the_job_and_name_both_ranks)
{
	char whole[400];

	snprintf(whole, sizeof whole, "ranks disagree about operation 0: rank 1 (pid 102 on host) %s",
		 differences[_i].sentence);
	fake_submit(&fa, c[0], buffer[0], differences[_i].count_a, &differences[_i].a);
	fake_submit(&fa, c[1], buffer[1], differences[_i].count_b, &differences[_i].b);
	ck_assert_uint_eq(en->ops_n, 0);
	ck_assert_int_eq(en->aborted, RS_EMISMATCH);
	ck_assert_str_eq(en->why, whole);
	fake_settle(&fa);
	for (int i = 0; i < 2; i++) {
		ck_assert_str_eq(c[i]->story, "ABORT:-5");
		ck_assert_str_eq(c[i]->sentence, whole);
	}
}
END_TEST

/* SUBMITs that a correct library never sends; buffer 0 has 8192 bytes. */
static const struct {
	struct local_submit s;
	const char *sentence;
} wrong[] = {
    {{.of = {.count = 4, .sharded = 1, .parts = 2}}, "SUBMIT of 4 elements in 2 parts in a world of 4"},
    {{.of.seq = 1}, "SUBMIT of operation 1, expected 0"},
    {{.of.dtype = RS_DTYPE_NR}, "SUBMIT with unknown dtype 10 of 0 bytes"},
    {{.of.dtype = 15}, "SUBMIT with unknown dtype 15 of 0 bytes"},
    {{.of.size = 8}, "SUBMIT with unknown dtype 0 of 8 bytes"},
    {{.of.op = RS_OP_NR}, "SUBMIT with unknown op 5"},
    {{.of.op = 31}, "SUBMIT with unknown op 31"},
    {{.of.root = 1}, "SUBMIT with root 1 in a world of 4"},
    {{.of.up = RS_WIRE_FP8}, "SUBMIT of dtype 0 and op 0 with encodings 2 and 0"},
    {{.of.dtype = RS_FLOAT16, .of.down = RS_WIRE_BF16}, "SUBMIT of dtype 6 and op 0 with encodings 0 and 1"},
    {{.of.dtype = RS_FLOAT32, .of.op = RS_MAX, .of.up = RS_WIRE_INT8},
     "SUBMIT of dtype 7 and op 2 with encodings 3 and 0"},
    {{.of.dtype = RS_FLOAT32, .of.up = 15, .of.down = 7}, "SUBMIT of dtype 7 and op 0 with encodings 15 and 7"},
    {{.of.op = FRAME_OP_BROADCAST, .of.root = 4}, "SUBMIT with root 4 in a world of 4"},
    {{.of.count = 1, .send_buffer = 1}, "SUBMIT names shared buffer 1, which does not exist"},
    {{.of.count = 1, .recv_buffer = UINT32_MAX}, "SUBMIT names shared buffer 4294967295, which does not exist"},
    {{.of.count = 8193}, "SUBMIT names 8193 bytes at offset 0 of shared buffer 0, which has 8192"},
    {{.of.count = 2, .send_offset = 8191, .recv_offset = 8191},
     "SUBMIT names 2 bytes at offset 8191 of shared buffer 0, which has 8192"},
    {{.of.count = 2, .recv_offset = UINT64_MAX},
     "SUBMIT names 2 bytes at offset 18446744073709551615 of shared buffer 0, which has 8192"},
    {{.of.count = UINT64_MAX},
     "SUBMIT names 18446744073709551615 bytes at offset 0 of shared buffer 0, which has 8192"},
    {{.of.count = UINT64_MAX / 4 + 1, .of.dtype = RS_FLOAT32}, "SUBMIT of 4611686018427387904 elements"},
    {{.of.count = 2, .recv_offset = 1}, "SUBMIT whose send and recv overlap"},
    {{.of.count = 100, .send_offset = 99}, "SUBMIT whose send and recv overlap"},
    {{.of.count = 2, .recv_offset = 2, .of.op = FRAME_OP_BROADCAST},
     "SUBMIT of a broadcast whose send and recv differ"},
};

START_TEST(invalid_messages_are_refused)
{
	union local_message m;
	char whole[400];

	local_init(&m, LOCAL_SUBMIT);
	m.submit = wrong[_i].s;
	if (m.submit.of.size == 0)
		m.submit.of.size = rs_dtype_size(m.submit.of.dtype) & OPERATION_SIZE;
	m.submit.head.version = LOCAL_VERSION;
	m.submit.head.type = LOCAL_SUBMIT;
	m.submit.head.bytes = sizeof m.submit;
	fake_say(&fa, c[0], &m);
	fake_settle(&fa);
	snprintf(whole, sizeof whole, "the agent on host dropped this process: %s", wrong[_i].sentence);
	ck_assert_str_eq(c[0]->sentence, whole);
	ck_assert_ptr_null(c[0]->client);
	snprintf(whole, sizeof whole, "rank 0 (pid 101 on host) broke the local protocol: %s", wrong[_i].sentence);
	ck_assert_str_eq(en->why, whole);
}
END_TEST

/* Ranges at the end of a buffer, and adjacent ranges, are valid. */
START_TEST(messages_at_their_limits_are_accepted)
{
	static const struct local_submit good[] = {
	    {.of.count = 8192},
	    {.of.count = 1, .send_offset = 8191, .recv_offset = 8190},
	    {.of.count = 4096, .send_offset = 4096},
	    {.of.count = 0, .send_buffer = 99, .recv_buffer = 77, .send_offset = UINT64_MAX},
	};
	union local_message m;

	for (unsigned i = 0; i < 4; i++) {
		for (unsigned r = 0; r < 2; r++) {
			local_init(&m, LOCAL_SUBMIT);
			m.submit = good[i];
			m.submit.head = (struct local_head){LOCAL_VERSION, LOCAL_SUBMIT, sizeof m.submit};
			m.submit.of.seq = i;
			m.submit.of.size = 1;
			fake_say(&fa, c[r], &m);
			ck_assert_str_eq(c[r]->sentence, "");
		}
	}
	while (en->ops_n)
		fake_engine_run(&fa, en, 0);
	ck_assert_str_eq(c[1]->story, "DONE:0 DONE:1 DONE:2 DONE:3");
}
END_TEST

START_TEST(ranks_that_have_left_are_named)
{
	fake_submit(&fa, c[0], buffer[0], 1, NULL);
	fake_submit(&fa, c[1], buffer[1], 1, NULL);
	fake_engine_run(&fa, en, 0);
	ck_assert_str_eq(c[0]->story, "DONE:0");
	fake_goodbye(&fa, c[1]);
	fake_settle(&fa);
	ck_assert_int_eq(en->aborted, 0);
	fake_submit(&fa, c[0], buffer[0], 1, NULL);
	ck_assert_int_eq(en->aborted, RS_ECLOSED);
	fake_settle(&fa);
	ck_assert_str_eq(c[0]->story, "DONE:0 ABORT:-9");
	ck_assert_str_eq(c[0]->sentence, "rank 1 (pid 102 on host) has left the job before operation 1");
}
END_TEST

/* A rank leaves with an operation that both have started, or it alone (_i 1). Its
 * requests fail, so no other rank's may succeed. Its connection ends when the engine has
 * stopped. */
START_TEST(leaving_with_a_pending_operation)
{
	const char *why = "rank 1 (pid 102 on host) has left the job while 1 of its operations was pending";

	fake_submit(&fa, c[1], buffer[1], 1, NULL);
	if (_i == 0)
		fake_submit(&fa, c[0], buffer[0], 1, NULL);
	fake_goodbye(&fa, c[1]);
	ck_assert_int_eq(en->aborted, RS_ECLOSED);
	ck_assert_str_eq(en->why, why);
	ck_assert(!c[1]->dropped);
	fake_settle(&fa);
	ck_assert_ptr_null(c[1]->client);
	ck_assert_str_eq(c[0]->sentence, why);
}
END_TEST

START_TEST(leaving_with_an_unmatched_operation_of_another)
{
	fake_submit(&fa, c[0], buffer[0], 1, NULL);
	fake_goodbye(&fa, c[1]);
	fake_settle(&fa);
	ck_assert_str_eq(c[0]->sentence, "rank 1 (pid 102 on host) has left the job before operation 0");
}
END_TEST

START_TEST(ranks_that_are_late_are_named)
{
	fa.cfg.timeouts.op_ms = 5000;
	fake_submit(&fa, c[0], buffer[0], 1, NULL);
	ck_assert_uint_eq(local_hub_next(fa.hub), fa.now_ms + 5000);
	fa.now_ms += 3000;
	fake_submit(&fa, c[0], buffer[0], 2, NULL);
	fake_submit(&fa, c[1], buffer[1], 1, NULL); /* now the second waits, for the same time again */
	ck_assert_uint_eq(local_hub_next(fa.hub), fa.now_ms + 5000);
	local_hub_tick(fa.hub, fa.now_ms + 4999);
	ck_assert_int_eq(en->aborted, 0);
	local_hub_tick(fa.hub, fa.now_ms + 5000);
	ck_assert_int_eq(en->aborted, RS_EPEER);
	ck_assert_str_eq(en->why, "operation 1, an all-reduce sum of 2 float32, was not done within 5000 ms: "
				  "rank 1 (pid 102 on host) has not started it");
	ck_assert_uint_eq(local_hub_next(fa.hub), FAKE_FIRST_PING_MS);
}
END_TEST

START_TEST(the_engine_refuses_one_operation)
{
	en->refuse = RS_EINVAL;
	for (unsigned r = 0; r < 2; r++)
		fake_submit(&fa, c[r], buffer[r], 1, NULL);
	ck_assert_str_eq(c[0]->story, "DONE:0:-1");
	en->refuse = 0;
	for (unsigned r = 0; r < 2; r++)
		fake_submit(&fa, c[r], buffer[r], 1, NULL);
	fake_engine_run(&fa, en, 0);
	ck_assert_str_eq(c[1]->story, "DONE:0:-1 DONE:1");
}
END_TEST

START_TEST(the_engine_has_just_failed)
{
	en->refuse = RS_EPEER;
	for (unsigned r = 0; r < 2; r++)
		fake_submit(&fa, c[r], buffer[r], 1, NULL);
	ck_assert_str_eq(c[0]->story, "");
	fake_settle(&fa);
	ck_assert_str_eq(c[0]->story, "ABORT:-6");
}
END_TEST

START_TEST(submit_before_ready)
{
	struct fake_client *early = fake_connect(&fa);

	fake_hello(&fa, early, "early", 0, 0, 2, 1);
	fake_submit(&fa, early, 0, 0, NULL);
	fake_settle(&fa);
	ck_assert_str_eq(early->sentence, "the agent on host dropped this process: SUBMIT before READY");
}
END_TEST

START_TEST(partial_sums_are_bounded)
{
	static const struct local_submit half = {.of.dtype = RS_FLOAT16};
	struct fake_client *big[2];
	struct fake_engine *e;
	unsigned b[2];

	fa.cfg.agent.shm_bytes = UINT64_C(1) << 32;
	for (unsigned r = 0; r < 2; r++) {
		fake_lose(c[r]);
		fake_settle(&fa);
	}
	e = fake_job(&fa, big, 2, 2);
	for (unsigned r = 0; r < 2; r++)
		b[r] = fake_alloc(&fa, big[r], 100 << 20);
	/* each needs a stage of 128 MiB, two of which fit 256 MiB */
	fa.cfg.job.exact_partials = true;
	for (unsigned i = 0; i < 5; i++)
		for (unsigned r = 0; r < 2; r++)
			fake_submit(&fa, big[r], b[r], 30 << 20, &half);
	ck_assert_uint_eq(e->ops_n, 2);
	for (unsigned left = 5; left > 0; left--) {
		struct exchange_op *op = e->ops[0];

		memmove(e->ops, e->ops + 1, --e->ops_n * sizeof e->ops[0]);
		op->done(op, NULL);
		fake_settle(&fa);
		ck_assert_uint_eq(e->ops_n, left > 2 ? 2 : left - 1);
	}
	ck_assert_uint_eq(fa.stage_most, 256 << 20);
}
END_TEST

START_TEST(no_memory_for_partial_sums)
{
	static const struct local_submit half = {.of.dtype = RS_BFLOAT16};

	fa.no_memory = true;
	for (unsigned r = 0; r < 2; r++)
		fake_submit(&fa, c[r], buffer[r], 100, &half);
	fake_settle(&fa);
	ck_assert_str_eq(c[0]->story, "ABORT:-2");
	ck_assert_str_eq(c[0]->sentence,
			 "out of memory for the partial sums of operation 0 in the agent on host (400 bytes)");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("local_submit");
	TCase *t = tcase_create("local_submit");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, operations_wait_for_all_ranks_and_keep_their_order);
	tcase_add_test(t, equivalent_priorities_agree);
	tcase_add_test(t, a_rank_runs_ahead_up_to_the_limit);
	tcase_add_test(t, an_old_operation_does_not_block_the_ring);
	tcase_add_loop_test(t, differences_end_the_job_and_name_both_ranks, 0,
			    sizeof differences / sizeof differences[0]);
	tcase_add_loop_test(t, invalid_messages_are_refused, 0, sizeof wrong / sizeof wrong[0]);
	tcase_add_test(t, messages_at_their_limits_are_accepted);
	tcase_add_test(t, ranks_that_have_left_are_named);
	tcase_add_loop_test(t, leaving_with_a_pending_operation, 0, 2);
	tcase_add_test(t, leaving_with_an_unmatched_operation_of_another);
	tcase_add_test(t, ranks_that_are_late_are_named);
	tcase_add_test(t, the_engine_refuses_one_operation);
	tcase_add_test(t, the_engine_has_just_failed);
	tcase_add_test(t, submit_before_ready);
	tcase_add_test(t, partial_sums_are_bounded);
	tcase_add_test(t, no_memory_for_partial_sums);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
