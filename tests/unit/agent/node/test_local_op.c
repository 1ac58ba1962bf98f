/* SPDX-License-Identifier: Apache-2.0 */
/* The local sum against plain loops: every op on every dtype, one to three local ranks,
 * in place and not. */
#include "common/dtype.h"
#include "proto/frame.h"
#include "tests/unit/fake_agent.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum {
	COUNT = 1500, /* elements: several chunks of every dtype and a rest */
	ROOM = COUNT * 8,
};

static struct fake_agent fa;
static const struct rs_kernels *k;

static void setup(void)
{
	fake_agent_init(&fa);
	fa.cfg.agent.shm_bytes = 1 << 24;
	k = rs_kernels_usable(0);
}

static void teardown(void)
{
	fake_agent_close(&fa);
}

/* Small numbers that differ between ranks, in any dtype. */
static void make_input(char *to, unsigned dtype, unsigned rank)
{
	float acc[COUNT];
	int64_t whole;

	for (unsigned i = 0; i < COUNT; i++) {
		whole = (int64_t)((i * 7 + rank * 13) % 5) + 1;
		if (rs_dtype_is_half(dtype))
			acc[i] = (float)whole;
		else if (dtype == RS_FLOAT32)
			((float *)to)[i] = (float)whole;
		else if (dtype == RS_FLOAT64)
			((double *)to)[i] = (double)whole;
		else
			memcpy(to + i * rs_dtype_size(dtype), &whole, rs_dtype_size(dtype)); /* little-endian */
	}
	if (rs_dtype_is_half(dtype))
		k->store[dtype](to, acc, COUNT);
}

/* Computes the contribution of all local ranks with the kernels in one step; without
 * other nodes it is the result. */
static void make_result(char *to, unsigned dtype, unsigned op, unsigned ranks, bool all)
{
	static char acc[ROOM], in[ROOM];

	for (unsigned r = 0; r < ranks; r++) {
		make_input(in, dtype, r);
		if (r == 0)
			k->load[dtype](acc, in, COUNT);
		else
			k->reduce[op][dtype](acc, in, COUNT);
	}
	if (all && op == RS_AVG)
		k->divide[rs_dtype_is_half(dtype) ? RS_FLOAT32 : dtype](acc, ranks, COUNT);
	k->store[dtype](to, acc, COUNT);
}

static void submit(struct fake_client *c, unsigned send, unsigned recv, unsigned dtype, unsigned op, unsigned root)
{
	union local_message m;

	local_init(&m, LOCAL_SUBMIT);
	m.submit.of.seq = c->seq++;
	m.submit.of.count = COUNT;
	m.submit.of.dtype = (uint8_t)dtype;
	m.submit.of.size = rs_dtype_size(dtype) & OPERATION_SIZE;
	m.submit.of.op = (uint8_t)op;
	m.submit.of.root = root;
	m.submit.send_buffer = send;
	m.submit.recv_buffer = recv;
	fake_say(&fa, c, &m);
}

/* Checks that every rank has the sum; out of place its input is unchanged (buffer 0) and
 * the sum is in buffer 1. */
static void check_result(struct fake_client *const c[], unsigned ranks, unsigned dtype, unsigned op, bool in_place)
{
	static char want[ROOM], input[ROOM];
	size_t bytes = COUNT * rs_dtype_size(dtype);

	make_result(want, dtype, op, ranks, !fa.cfg.agent.single_node_reducers);
	for (unsigned r = 0; r < ranks; r++) {
		ck_assert_mem_eq(c[r]->buffer[in_place ? 0 : 1], want, bytes);
		make_input(input, dtype, r);
		if (!in_place)
			ck_assert_mem_eq(c[r]->buffer[0], input, bytes);
	}
}

/* Returns whether a node of several ranks sends float32 although the dtype has 16
 * bits. */
static bool sends_float32(unsigned dtype, unsigned op)
{
	static const bool rounded[RS_OP_NR] = {[RS_PROD] = true};
	static const bool exact[RS_OP_NR] = {[RS_SUM] = true, [RS_PROD] = true, [RS_AVG] = true};

	if (!rs_dtype_is_half(dtype))
		return false;
	if (op == RS_AVG) /* all ranks of the job are on this node */
		return true;
	return fa.cfg.job.exact_partials ? exact[op] : rounded[op];
}

static void run_sum(unsigned ranks, unsigned dtype, unsigned op, bool in_place)
{
	bool single_worker = !fa.cfg.agent.single_node_reducers;
	struct fake_client *c[3];
	struct fake_engine *en = fake_job(&fa, c, ranks, ranks);

	for (unsigned r = 0; r < ranks; r++) {
		unsigned send = fake_alloc(&fa, c[r], ROOM), recv = in_place ? send : fake_alloc(&fa, c[r], ROOM);

		make_input(c[r]->buffer[send], dtype, r);
		submit(c[r], send, recv, dtype, op, 0);
	}
	ck_assert_uint_eq(en->ops_n, 1);
	ck_assert_int_eq(en->spec.single_worker, single_worker);
	if (single_worker)
		ck_assert_int_eq(en->ops[0]->wide, rs_dtype_is_half(dtype));
	else
		ck_assert_int_eq(en->ops[0]->wide, ranks > 1 && sends_float32(dtype, op));
	if (single_worker && en->ops[0]->wide) /* never more at a time */
		ck_assert_uint_eq(en->ops[0]->send_ring, 2 * FAKE_CHUNK);
	if (ranks == 1 && !single_worker) { /* nothing between the client's memory and the engine */
		ck_assert_ptr_eq(en->ops[0]->send, c[0]->buffer[0]);
		ck_assert(!en->ops[0]->fill && !en->ops[0]->landed);
	}
	fake_engine_run(&fa, en, 0);
	check_result(c, ranks, dtype, op, in_place);
	for (unsigned r = 0; r < ranks; r++)
		fake_lose(c[r]);
	fake_settle(&fa);
}

START_TEST(sums)
{
	unsigned dtype = (unsigned)_i % RS_DTYPE_NR;

	fa.cfg.agent.single_node_reducers = (unsigned)_i < 2 * RS_DTYPE_NR;
	fa.cfg.job.exact_partials = (unsigned)_i < RS_DTYPE_NR;
	for (unsigned ranks = 1; ranks <= 3; ranks++)
		for (unsigned op = 0; op < RS_OP_NR; op++)
			run_sum(ranks, dtype, op, (ranks + op) % 2);
}
END_TEST

/* 2048 + 1 + 1 in float16: rounded after each addition it would stay 2048. The node's sum
 * is rounded once, also if it is only a part of the job's sum. */
START_TEST(halves_are_rounded_once)
{
	const float parts[3] = {2048, 1, 1};
	float sum = 0;
	struct fake_client *c[3];
	struct fake_engine *en;

	fa.cfg.agent.single_node_reducers = _i;
	en = fake_job(&fa, c, 3, 3);
	for (unsigned r = 0; r < 3; r++) {
		unsigned b = fake_alloc(&fa, c[r], ROOM);

		k->store[RS_FLOAT16](c[r]->buffer[b], &parts[r], 1);
		submit(c[r], b, b, RS_FLOAT16, RS_SUM, 0);
	}
	fake_engine_run(&fa, en, 0);
	k->load[RS_FLOAT16](&sum, c[1]->buffer[0], 1);
	ck_assert_float_eq(sum, 2050);
}
END_TEST

/* The root is local rank 1 of this node, which may be the only one, or is on the other
 * node (local rank 1 then gets what the engine receives). */
START_TEST(broadcasts)
{
	bool here = _i != 1, alone = _i == 2;
	static char want[ROOM];
	struct fake_client *c[2];
	struct fake_engine *en;

	fa.cfg.agent.single_node_reducers = false;
	en = fake_job(&fa, c, alone ? 2 : 4, 2);
	ck_assert_int_eq(en->spec.single_worker, alone);
	for (unsigned r = 0; r < 2; r++) {
		unsigned b = fake_alloc(&fa, c[r], ROOM);

		make_input(c[r]->buffer[b], RS_INT32, r);
		submit(c[r], b, b, RS_INT32, FRAME_OP_BROADCAST, here ? 1 : 3);
	}
	ck_assert_int_eq(en->ops[0]->root, here);
	ck_assert_ptr_eq(en->ops[0]->recv, c[here]->buffer[0]);
	make_input(want, RS_INT32, here ? 1 : 9);
	if (!here) /* as if it had arrived: the fake engine leaves these bytes */
		memcpy(c[0]->buffer[0], want, COUNT * 4);
	fake_engine_run(&fa, en, 0);
	for (unsigned r = 0; r < 2; r++)
		ck_assert_mem_eq(c[r]->buffer[0], want, COUNT * 4);
}
END_TEST

START_TEST(a_barrier_needs_no_memory)
{
	struct fake_client *c[2];
	struct fake_engine *en = fake_job(&fa, c, 2, 2);

	for (unsigned r = 0; r < 2; r++)
		fake_submit(&fa, c[r], 0, 0, NULL);
	fake_engine_run(&fa, en, 0);
	ck_assert_str_eq(c[1]->story, "WELCOME READY DONE:0");
}
END_TEST

START_TEST(names_reach_the_engine)
{
	static const struct local_submit named = {.of.dtype = RS_INT8, .name = "layer1.weight"};
	struct fake_client *c[1];
	struct fake_engine *en = fake_job(&fa, c, 2, 1);
	unsigned b = fake_alloc(&fa, c[0], 100);

	fake_submit(&fa, c[0], b, 1, &named);
	fake_submit(&fa, c[0], b, 1, NULL);
	ck_assert_str_eq(en->ops[0]->name, "layer1.weight");
	ck_assert_uint_eq(en->ops[0]->of.name_hash, frame_name_hash("layer1.weight"));
	ck_assert_ptr_null(en->ops[1]->name);
	ck_assert_uint_eq(en->ops[1]->of.name_hash, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("local_op");
	TCase *t = tcase_create("local_op");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, sums, 0, 3 * RS_DTYPE_NR);
	tcase_add_loop_test(t, halves_are_rounded_once, 0, 2);
	tcase_add_loop_test(t, broadcasts, 0, 3);
	tcase_add_test(t, a_barrier_needs_no_memory);
	tcase_add_test(t, names_reach_the_engine);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
