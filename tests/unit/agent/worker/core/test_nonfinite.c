/* SPDX-License-Identifier: Apache-2.0 */
/* Nonfinite elements of contributions: how they are found, reported and handled by an
 * exchange. test_local_nonfinite.c tests the agent's local ranks. */
#include "agent/worker/core/link.h"
#include "agent/worker/core/nonfinite.h"
#include "common/dtype.h"
#include "proto/features.h"
#include "tests/unit/fake_reducer.h"

#include <check.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	float value;
	const char *name; /* NULL: a number */
} values[] = {
    {NAN, "NaN"},     {-NAN, "NaN"}, {INFINITY, "infinity"}, {-INFINITY, "-infinity"}, {FLT_MAX / 1e34f, NULL},
    {-FLT_MIN, NULL}, {0, NULL}};

START_TEST(the_first_nonfinite_element_is_named)
{
	static const unsigned dtypes[] = {RS_FLOAT16, RS_BFLOAT16, RS_FLOAT32, RS_FLOAT64};
	const struct rs_kernels *k = rs_kernels_usable(0);
	struct nonfinite found = {0};
	char at[100 * 8] = {0};

	for (unsigned t = 0; t < 4; t++)
		for (unsigned v = 0; v < sizeof values / sizeof values[0]; v++) {
			unsigned dtype = dtypes[t];
			size_t size = rs_dtype_size(dtype);
			double wide = (double)values[v].value;
			bool is;

			for (unsigned i = 31; i < 33; i++) { /* the second one must not count */
				if (dtype == RS_FLOAT64)
					memcpy(at + i * size, &wide, size);
				else
					k->store[dtype](at + i * size, &values[v].value, 1);
			}
			is = nonfinite_find(&found, k, dtype, at, 1000, 100);
			ck_assert_msg(is == (values[v].name != NULL), "%s value %u", rs_dtype_name(dtype), v);
			if (is) {
				ck_assert_uint_eq(found.element, 1031);
				ck_assert_str_eq(found.value, values[v].name);
			}
			ck_assert(!nonfinite_find(&found, k, dtype, at, 0, 31));
			memset(at, 0, sizeof at);
		}
}
END_TEST

START_TEST(only_floats_are_checked_and_only_if_configured)
{
	for (unsigned dtype = 0; dtype < RS_DTYPE_NR; dtype++)
		ck_assert_int_eq(nonfinite_wanted(RS_NONFINITE_LOG, dtype),
				 strstr(rs_dtype_name(dtype), "float") != NULL);
	ck_assert(nonfinite_wanted(RS_NONFINITE_FAIL, RS_FLOAT32));
	ck_assert(!nonfinite_wanted(RS_NONFINITE_OFF, RS_FLOAT32));
}
END_TEST

START_TEST(the_message_has_all_facts)
{
	const struct nonfinite f = {.element = 17, .value = "NaN"};
	struct exchange_op op = {.of.seq = 812, .name = "layer1.weight"};
	struct rs_err e;

	ck_assert_int_eq(nonfinite_fail(&e, "rank 3 sent", &f, &op), RS_ENONFINITE);
	ck_assert_str_eq(e.msg, "rank 3 sent NaN: element 17 of all-reduce 812 (layer1.weight)");
	op.name = NULL;
	op.of.op = FRAME_OP_BROADCAST;
	nonfinite_fail(&e, "rank 3 sent", &f, &op);
	ck_assert_str_eq(e.msg, "rank 3 sent NaN: element 17 of broadcast 812");
	ck_assert_str_eq(rs_code_text(RS_ENONFINITE), "a rank sent NaN or infinity");
}
END_TEST

/* ---- an exchange ---- */

enum { CHUNK = 256, COUNT = 5 * CHUNK }; /* elements of float32 */

static const char two_reducers[] = "job: {detect_nonfinite: %s}\n"
				   "reducers:\n"
				   "  - {id: r0, address: \"127.0.0.1:1\"}\n"
				   "  - {id: r1, address: \"127.0.0.1:2\"}\n"
				   "sharding: {shards: 2, chunk_bytes: 1024, window: 4, priorities: 1}\n";

static unsigned inspected, lines;
static struct rs_err line;

static int inspect(struct exchange_op *op, const void *at, uint64_t first, uint32_t n, struct rs_err *e)
{
	struct nonfinite f;

	inspected++;
	ck_assert_ptr_eq(at, (const float *)op->send + first);
	ck_assert_uint_eq(n, CHUNK);
	if (!nonfinite_find(&f, rs_kernels_usable(0), op->of.dtype, at, first, n))
		return RS_OK;
	return nonfinite_fail(e, "rank 0 sent", &f, op);
}

static void on_nonfinite(void *user, const struct rs_err *what)
{
	ck_assert_ptr_eq(user, &lines);
	lines++;
	line = *what;
}

static void open_with(struct reducers *f, const char *mode)
{
	char yaml[512];

	inspected = lines = 0;
	snprintf(yaml, sizeof yaml, two_reducers, mode);
	reducers_open(f, yaml, 2, 1000);
	f->x->opt.on_nonfinite = on_nonfinite;
	f->x->opt.user = &lines;
	reducers_advance(f, 1);
}

static void submit(struct reducers *f, struct reducers_op *o, bool bad)
{
	struct rs_err e;

	ck_assert_int_eq(reducers_submit(f, o, COUNT, &e), RS_OK);
	o->op.inspect = inspect; /* nothing is inspected before the pump */
	if (bad)
		o->x[2 * CHUNK + 7] = o->x[2 * CHUNK + 9] = o->x[4 * CHUNK] = NAN;
}

START_TEST(log_warns_once_and_continues)
{
	struct reducers_op ops[3];
	struct reducers f;

	open_with(&f, "log");
	for (unsigned i = 0; i < 3; i++)
		submit(&f, &ops[i], i == 1);
	reducers_pump(&f);
	for (unsigned i = 0; i < 3; i++) {
		ck_assert_int_eq(ops[i].done, 1);
		ck_assert_int_eq(ops[i].err.code, 0);
	}
	ck_assert_uint_eq(lines, 1);
	ck_assert_int_eq(line.code, RS_ENONFINITE);
	/* which of two chunks is first depends on the links: each is the first of its
	 * link */
	ck_assert_msg(!strcmp(line.msg, "rank 0 sent NaN: element 519 of all-reduce 1 (grad)") ||
			  !strcmp(line.msg, "rank 0 sent NaN: element 1024 of all-reduce 1 (grad)"),
		      "%s", line.msg);
	ck_assert_uint_lt(inspected, 15); /* after the find the rest of the operation is not inspected */
	reducers_close(&f);
}
END_TEST

static void say_start(struct reducers *f, uint64_t features)
{
	uint8_t payload[FRAME_CONTROL_MAX];

	for (unsigned i = 0; i < 2; i++) {
		uint32_t len = control_pack_start(payload, &(struct control_start){.features = features});

		f->l[i].started = true;
		reducers_say_control(f, i, FRAME_START, payload, len);
	}
	reducers_pump(f);
}

/* Opens a job in which both reducers have these features. */
static void open_telling(struct reducers *f, uint64_t features)
{
	char yaml[512];

	snprintf(yaml, sizeof yaml, two_reducers, "log");
	reducers_open_offering(f, yaml, 2, 1000, FEATURES_ALL);
	f->start = false;
	reducers_advance(f, 1);
	say_start(f, features);
}

static void run(struct reducers *f, bool bad)
{
	static struct reducers_op o;

	submit(f, &o, bad);
	reducers_pump(f);
	ck_assert_int_eq(o.done, 1);
	ck_assert_uint_le(exchange_next(f->x), f->now_ms + 1000);
	reducers_advance(f, 1);
}

/* At once, then at most once a second, with the counts so far. */
START_TEST(reducers_are_told)
{
	struct reducers f;

	open_telling(&f, FEATURES_ALL);
	run(&f, false);
	ck_assert_uint_eq(f.l[0].nonfinites, 0);
	for (unsigned n = 0; n < 3; n++)
		run(&f, true);
	for (unsigned i = 0; i < 2; i++) {
		ck_assert_uint_eq(f.l[i].nonfinites, 1);
		ck_assert_uint_eq(f.l[i].nonfinite.nan_operations, 1);
		ck_assert_uint_eq(f.l[i].nonfinite.infinite_operations, 0);
		ck_assert_uint_eq(f.l[i].nonfinite.seq, 1);
		ck_assert_ptr_nonnull(strstr(f.l[i].nonfinite.first, "rank 0 sent NaN: element "));
	}
	reducers_advance(&f, 1100);
	for (unsigned i = 0; i < 2; i++) {
		ck_assert_uint_eq(f.l[i].nonfinites, 2);
		ck_assert_uint_eq(f.l[i].nonfinite.nan_operations, 3);
		ck_assert_uint_eq(f.l[i].nonfinite.seq, 1);
	}
	reducers_close(&f);
}
END_TEST

START_TEST(infinity_counts_apart_and_nan_is_named_first)
{
	struct reducers f;
	struct reducers_op o;

	open_telling(&f, FEATURES_ALL);
	submit(&f, &o, false);
	o.x[CHUNK] = -INFINITY;
	reducers_pump(&f);
	reducers_advance(&f, 1);
	ck_assert_uint_eq(f.l[1].nonfinite.infinite_operations, 1);
	ck_assert_str_eq(f.l[1].nonfinite.first, "rank 0 sent -infinity: element 256 of all-reduce 0 (grad)");
	run(&f, true);
	reducers_advance(&f, 1100);
	ck_assert_uint_eq(f.l[1].nonfinite.infinite_operations, 1);
	ck_assert_uint_eq(f.l[1].nonfinite.nan_operations, 1);
	ck_assert_uint_eq(f.l[1].nonfinite.seq, 1);
	ck_assert_ptr_nonnull(strstr(f.l[1].nonfinite.first, "rank 0 sent NaN: element "));
	reducers_close(&f);
}
END_TEST

START_TEST(older_reducers_are_not_told)
{
	struct reducers f;

	open_telling(&f, FEATURES_ALL & ~FEATURE_NONFINITE);
	run(&f, true);
	reducers_advance(&f, 1100);
	ck_assert_uint_eq(f.l[0].nonfinites + f.l[1].nonfinites, 0);
	reducers_close(&f);
}
END_TEST

/* No byte of the chunk is sent, the operation fails on this rank, and both reducers get
 * the reason. */
START_TEST(fail_ends_the_job_before_the_chunk_is_sent)
{
	struct reducers_op good, bad, later;
	const char *says = "rank 0 sent NaN: element ";
	struct rs_err e;
	struct reducers f;

	open_with(&f, "fail");
	submit(&f, &good, false);
	submit(&f, &bad, true);
	submit(&f, &later, false);
	reducers_pump(&f);
	ck_assert_uint_le(exchange_next(f.x), f.now_ms); /* the end does not wait for the next heartbeat */
	reducers_advance(&f, 1);
	ck_assert_int_eq(good.done, 1);
	ck_assert_int_eq(good.err.code, 0);
	ck_assert_int_eq(bad.done, 1);
	reducers_expect_error(&bad.err, RS_ENONFINITE, says);
	reducers_expect_error(&later.err, RS_ENONFINITE, says);
	reducers_expect_end(&f, RS_ENONFINITE, says);
	ck_assert_uint_eq(lines, 0);
	for (unsigned i = 0; i < 2; i++) {
		ck_assert_uint_eq(f.l[i].aborts, 1);
		ck_assert_int_eq(f.l[i].abort.code, RS_ENONFINITE);
		ck_assert_str_eq(f.l[i].abort.msg, bad.err.msg);
		for (unsigned d = 0; d < f.l[i].data_n; d++)
			for (unsigned n = 0; n < CHUNK; n++)
				ck_assert(isfinite(((const float *)f.l[i].payload[d])[n]));
	}
	ck_assert_int_eq(exchange_submit(f.x, &later.op, f.now_ms, &e), RS_ENONFINITE);
	reducers_close(&f);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("nonfinite");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_test(tc, the_first_nonfinite_element_is_named);
	tcase_add_test(tc, only_floats_are_checked_and_only_if_configured);
	tcase_add_test(tc, the_message_has_all_facts);
	tcase_add_test(tc, log_warns_once_and_continues);
	tcase_add_test(tc, reducers_are_told);
	tcase_add_test(tc, infinity_counts_apart_and_nan_is_named_first);
	tcase_add_test(tc, older_reducers_are_not_told);
	tcase_add_test(tc, fail_ends_the_job_before_the_chunk_is_sent);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
