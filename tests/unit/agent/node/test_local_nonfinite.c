/* SPDX-License-Identifier: Apache-2.0 */
/* The local rank that is named for NaN or infinity: one to three of them, every float
 * dtype and op, in place and not. */
#include "common/dtype.h"
#include "config/config.h"
#include "proto/frame.h"
#include "tests/unit/fake_agent.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
	COUNT = 1500, /* elements: several chunks of every dtype and a rest */
	ROOM = COUNT * 8,
};

static struct fake_agent fa;
static const struct rs_kernels *k;
static struct fake_client *c[3];
static const unsigned dtypes[] = {RS_FLOAT16, RS_BFLOAT16, RS_FLOAT32, RS_FLOAT64};

static void setup(void)
{
	fake_agent_init(&fa);
	fa.cfg.agent.shm_bytes = 1 << 24;
	fa.cfg.job.detect_nonfinite = RS_NONFINITE_LOG;
	k = rs_kernels_usable(0);
}

static void teardown(void)
{
	fake_agent_close(&fa);
}

static void put(unsigned rank, unsigned dtype, size_t i, float value)
{
	char *at = (char *)c[rank]->buffer[0] + i * rs_dtype_size(dtype);
	double wide = (double)value;

	if (dtype == RS_FLOAT64)
		memcpy(at, &wide, sizeof wide);
	else
		k->store[dtype](at, &value, 1);
}

/* All local ranks of a job start an operation on ones. */
static struct exchange_op *start(unsigned ranks, unsigned dtype, unsigned op, unsigned root, bool in_place,
				 struct fake_engine **ret)
{
	struct fake_engine *en = *ret = fake_job(&fa, c, 2 * ranks, ranks);

	for (unsigned r = 0; r < ranks; r++) {
		unsigned send = fake_alloc(&fa, c[r], ROOM), recv = in_place ? send : fake_alloc(&fa, c[r], ROOM);
		union local_message m;

		for (unsigned i = 0; i < COUNT; i++)
			put(r, dtype, i, 1);
		local_init(&m, LOCAL_SUBMIT);
		m.submit.of.seq = c[r]->seq++;
		m.submit.of.count = COUNT;
		m.submit.of.dtype = (uint8_t)dtype;
		m.submit.of.size = rs_dtype_size(dtype) & OPERATION_SIZE;
		m.submit.of.op = (uint8_t)op;
		m.submit.of.root = root;
		m.submit.send_buffer = send;
		m.submit.recv_buffer = recv;
		snprintf(m.submit.name, sizeof m.submit.name, "w");
		fake_say(&fa, c[r], &m);
	}
	ck_assert_uint_eq(en->ops_n, 1);
	return en->ops[0];
}

/* Inspects chunk by chunk, as the exchange does, until something is found. */
static bool look(struct exchange_op *op, struct rs_err *e)
{
	uint32_t chunk = FAKE_CHUNK / (uint32_t)rs_dtype_size(op->of.dtype);
	size_t size = op->wide ? sizeof(float) : rs_dtype_size(op->of.dtype);

	ck_assert_ptr_nonnull(op->inspect);
	for (unsigned i = 0; i < frame_chunks(op->of.count, chunk); i++) {
		uint64_t first = (uint64_t)i * chunk;
		uint32_t n = frame_chunk_len(op->of.count, chunk, i);

		if (op->fill)
			op->fill(op, first, n);
		if (op->inspect(op, (const char *)op->send + first * size, first, n, e)) {
			ck_assert_int_eq(e->code, RS_ENONFINITE);
			return true;
		}
	}
	return false;
}

static void leave(struct fake_engine *en, unsigned ranks)
{
	fake_engine_fail(&fa, en, RS_ECLOSED, "over");
	for (unsigned r = 0; r < ranks; r++)
		fake_lose(c[r]);
	fake_settle(&fa);
	/* memory of the test's clients is reused, as by the next job */
	memset(fa.clients, 0, sizeof fa.clients);
	memset(fa.engines, 0, sizeof fa.engines);
	fa.clients_n = fa.engines_n = 0;
}

static const struct {
	float value;
	const char *name;
} values[] = {{NAN, "NaN"}, {INFINITY, "infinity"}, {-INFINITY, "-infinity"}};

START_TEST(names_the_rank_and_the_element)
{
	unsigned dtype = dtypes[_i];

	for (unsigned at = 0; at < RS_OP_NR * 3 * 2 * 3 * 3; at++) {
		unsigned op = at % RS_OP_NR, v = at / RS_OP_NR % 3, in_place = at / RS_OP_NR / 3 % 2;
		unsigned ranks = 1 + at / RS_OP_NR / 6 % 3, who = at / RS_OP_NR / 18, i = (at * 37) % COUNT;
		struct fake_engine *en;
		struct exchange_op *x;
		struct rs_err e = {0};
		char want[200];

		if (who >= ranks)
			continue;
		x = start(ranks, dtype, op, 0, in_place, &en);
		put(who, dtype, i, values[v].value);
		snprintf(want, sizeof want, "rank %u (pid %u on host) sent %s: element %u of all-reduce 0 (w)", who,
			 101 + who, values[v].name, i);
		ck_assert_msg(look(x, &e), "not found: %s, %s of %u, %s", want, rs_op_name(op), ranks,
			      in_place ? "in place" : "not in place");
		ck_assert_str_eq(e.msg, want);
		leave(en, ranks);
	}
}
END_TEST

START_TEST(finite_numbers_are_not_reported)
{
	struct fake_engine *en;
	struct exchange_op *x;
	struct rs_err e;

	for (unsigned ranks = 1; ranks <= 3; ranks++)
		for (unsigned op = 0; op < RS_OP_NR; op++) {
			x = start(ranks, dtypes[_i], op, 0, op % 2, &en);
			ck_assert(!look(x, &e));
			leave(en, ranks);
		}
}
END_TEST

/* All ranks send finite numbers: the node's sum is infinite. */
START_TEST(an_infinite_sum_of_finite_inputs_is_reported)
{
	struct fake_engine *en;
	struct exchange_op *x;
	struct rs_err e = {0};

	for (unsigned in_place = 0; in_place < 2; in_place++) {
		x = start(2, RS_FLOAT32, RS_SUM, 0, in_place, &en);
		put(0, RS_FLOAT32, 9, -3e38f);
		put(1, RS_FLOAT32, 9, -3e38f);
		ck_assert(look(x, &e));
		ck_assert_str_eq(e.msg, "processes 0-1 on host sent finite numbers whose sum is -infinity: "
					"element 9 of all-reduce 0 (w)");
		leave(en, 2);
		x = start(2, RS_FLOAT32, RS_PROD, 0, in_place, &en);
		put(0, RS_FLOAT32, 1, 3e38f);
		put(1, RS_FLOAT32, 1, 2);
		ck_assert(look(x, &e));
		ck_assert_str_eq(e.msg, "processes 0-1 on host sent finite numbers whose product is infinity: "
					"element 1 of all-reduce 0 (w)");
		leave(en, 2);
	}
}
END_TEST

/* For a broadcast only the root's bytes are checked, and only on its node. */
START_TEST(of_a_broadcast_names_the_root)
{
	struct fake_engine *en;
	struct exchange_op *x;
	struct rs_err e = {0};

	for (unsigned ranks = 1; ranks <= 3; ranks++) {
		x = start(ranks, RS_FLOAT64, FRAME_OP_BROADCAST, ranks - 1, true, &en);
		ck_assert(x->root);
		for (unsigned r = 0; r + 1 < ranks; r++)
			put(r, RS_FLOAT64, 3, NAN);
		ck_assert(!look(x, &e));
		put(ranks - 1, RS_FLOAT64, 1400, INFINITY);
		ck_assert(look(x, &e));
		ck_assert_msg(strstr(e.msg, "infinity: element 1400 of broadcast 0 (w)") != NULL, "%s", e.msg);
		ck_assert_uint_eq((unsigned)(e.msg[5] - '0'), ranks - 1);
		leave(en, ranks);
	}
}
END_TEST

START_TEST(integers_are_not_checked_and_off_checks_nothing)
{
	struct fake_engine *en;

	ck_assert_ptr_null(start(2, RS_INT32, RS_SUM, 0, true, &en)->inspect);
	leave(en, 2);
	fa.cfg.job.detect_nonfinite = RS_NONFINITE_OFF;
	ck_assert_ptr_null(start(2, RS_FLOAT32, RS_SUM, 0, true, &en)->inspect);
	leave(en, 2);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("local nonfinite");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, names_the_rank_and_the_element, 0, 4);
	tcase_add_loop_test(tc, finite_numbers_are_not_reported, 0, 4);
	tcase_add_test(tc, an_infinite_sum_of_finite_inputs_is_reported);
	tcase_add_test(tc, of_a_broadcast_names_the_root);
	tcase_add_test(tc, integers_are_not_checked_and_off_checks_nothing);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
