/* SPDX-License-Identifier: Apache-2.0 */
/* What a worker sends for an encoded operation, and who may not have one. */
#include "proto/features.h"
#include "tests/unit/fake_reducer.h"
#include "tests/unit/wire_ref.h"

#include <check.h>
#include <string.h>

#define WITHOUT (FEATURES_ALL & ~FEATURE_ENCODINGS)

enum { CHUNK = 1024, COUNT = CHUNK + 131 };

static const char job_plain[] = "reducers: [{id: r0, address: 127.0.0.1:1, lanes: 1}]\n"
				"sharding: {chunk_bytes: 1KiB, window: 4}\n";
static const char job_fp8[] = "job: {wire: fp8}\n"
			      "reducers: [{id: r0, address: 127.0.0.1:1, lanes: 1}]\n"
			      "sharding: {chunk_bytes: 1KiB, window: 4}\n";
static const char job_random[] = "job: {wire: {up: int8, rounding: stochastic}}\n"
				 "reducers: [{id: r0, address: 127.0.0.1:1, lanes: 1}]\n"
				 "sharding: {chunk_bytes: 1KiB, window: 4}\n";

static const char job_feedback[] = "job: {wire: {up: int8, rounding: stochastic, feedback: 1MiB}}\n"
				   "reducers: [{id: r0, address: 127.0.0.1:1, lanes: 1}]\n"
				   "sharding: {chunk_bytes: 1KiB, window: 4}\n";

static void say_welcome(struct reducers *f, uint64_t features)
{
	struct control_welcome w = {.detect_ms = 1000, .features = features};
	uint8_t payload[FRAME_CONTROL_MAX];

	reducers_say_control(f, 0, FRAME_WELCOME, payload, control_pack_welcome(payload, &w));
	reducers_pump(f);
}

static void say_start(struct reducers *f, uint64_t features)
{
	const struct control_start s = {.features = features, .start = 99};
	uint8_t payload[CONTROL_START_LEN];

	f->l[0].started = true;
	reducers_say_control(f, 0, FRAME_START, payload, features ? control_pack_start(payload, &s) : 0);
	reducers_pump(f);
}

static void open_with(struct reducers *f, const char *yaml, uint64_t offers)
{
	reducers_open_offering(f, yaml, 2, 10000, offers);
	f->welcome = f->start = f->answer = false;
	reducers_pump(f);
}

static float element(uint64_t i)
{
	return (float)((int)(i * 37 % 97) - 48) * 0.37F;
}

static void on_done(struct exchange_op *op, const struct rs_err *err)
{
	struct reducers_op *o = op->user;

	o->done = err ? -1 : 1;
	if (err)
		o->err = *err;
}

static int submit_named(struct reducers *f, struct reducers_op *o, unsigned up, unsigned down, uint32_t name,
			struct rs_err *e)
{
	*o = (struct reducers_op){.op = {.send = o->x,
					 .recv = o->x,
					 .of = {.count = COUNT,
						.dtype = RS_FLOAT32,
						.size = sizeof(float),
						.up = up & 15,
						.down = down & 7,
						.name_hash = name},
					 .done = on_done,
					 .user = o}};
	for (unsigned i = 0; i < COUNT; i++)
		o->x[i] = element(i);
	return exchange_submit(f->x, &o->op, f->now_ms, e);
}

static int submit(struct reducers *f, struct reducers_op *o, unsigned up, unsigned down, struct rs_err *e)
{
	return submit_named(f, o, up, down, 0, e);
}

/* The job does not know encodings: a submit before and after START. */
static const struct {
	uint64_t offers, start;
	bool early;
	const char *says;
} refused[] = {
    {0, 0, true, "job.features: baseline allows no encodings: set job.wire: same"},
    {0, 0, false, "job.features: baseline allows no encodings: set job.wire: same"},
    {FEATURES_ALL, WITHOUT, true,
     "a rank or a reducer of job unit runs a release that knows no encodings: start a newer one everywhere, or set "
     "job.wire: same"},
    {FEATURES_ALL, WITHOUT, false, "a rank or a reducer of job unit runs a release that knows no encodings"},
    {FEATURES_ALL, 0, false, "a rank or a reducer of job unit runs a release that knows no encodings"},
};

START_TEST(a_job_without_the_feature_has_no_encodings)
{
	struct reducers_op o;
	struct rs_err e = {0};
	struct reducers f;
	int rc = RS_OK;

	open_with(&f, job_plain, refused[_i].offers);
	say_welcome(&f, FEATURES_ALL);
	if (refused[_i].early)
		rc = submit(&f, &o, RS_WIRE_FP8, RS_WIRE_FP8, &e);
	say_start(&f, refused[_i].start);
	if (!refused[_i].early)
		rc = submit(&f, &o, RS_WIRE_SAME, RS_WIRE_BF16, &e);
	if (refused[_i].early && refused[_i].offers) {
		ck_assert_int_eq(rc, RS_OK);
		reducers_advance(&f, 1);
		reducers_expect_end(&f, RS_EREFUSED, refused[_i].says);
		ck_assert_int_eq(o.err.code, RS_EREFUSED);
	} else {
		ck_assert_int_eq(rc, RS_EREFUSED);
		reducers_expect_error(&e, RS_EREFUSED, refused[_i].says);
	}
	ck_assert_uint_eq(f.l[0].data_n, 0);
	reducers_close(&f);
}
END_TEST

/* job.wire is set: a reducer without the feature is named at once. */
START_TEST(a_reducer_without_the_feature_is_refused)
{
	struct reducers f;

	open_with(&f, job_fp8, FEATURES_ALL);
	ck_assert_uint_eq(f.l[0].hello.decoded_bytes, 4 * CHUNK);
	say_welcome(&f, WITHOUT);
	reducers_expect_end(&f, RS_EREFUSED,
			    "which knows no encodings: start a newer release there, or set job.wire: same");
	reducers_close(&f);
}
END_TEST

/* The bytes of contributions are those of the reference; results are decoded. */
static const struct row {
	const char *yaml;
	unsigned up, down;
	uint32_t decoded, elems;
	bool random, feedback;
} encoded[] = {
    {job_plain, RS_WIRE_BF16, RS_WIRE_BF16, 0, CHUNK / 2, false, false},
    {job_fp8, RS_WIRE_FP8, RS_WIRE_INT8, 4 * CHUNK, CHUNK, false, false},
    {job_random, RS_WIRE_INT8, RS_WIRE_INT8, 4 * CHUNK, CHUNK, true, false},
    {job_plain, RS_WIRE_SAME, RS_WIRE_FP8, 0, CHUNK / 4, false, false},
    {job_feedback, RS_WIRE_INT8, RS_WIRE_BF16, 4 * CHUNK, CHUNK / 2, true, true},
    {job_feedback, RS_WIRE_FP8, RS_WIRE_FP8, 4 * CHUNK, CHUNK, true, true},
};

/* Checks contribution i, and sends a result of its elements doubled. want: the elements
 * of the result. lost: what the encoding has lost before, which is set anew. */
static void answer(struct reducers *f, const struct row *row, unsigned i, float *want, float *lost)
{
	unsigned char bytes[CHUNK * sizeof(float)];
	struct frame h = f->l[0].data[i];
	uint32_t first = h.chunk * h.chunk_elems, n = frame_chunk_len(h.of.count, h.chunk_elems, h.chunk);
	const struct wref_rounding rounding = {
	    .random = row->random, .key = h.of.seq * UINT64_C(0x9e3779b97f4a7c15), .first = first};
	float x[CHUNK];

	ck_assert_uint_eq(h.chunk_elems, row->elems);
	ck_assert_uint_eq(h.of.up, row->up);
	ck_assert_uint_eq(h.of.down, row->down);
	ck_assert_uint_eq(h.payload_len, rs_wire_bytes(row->up, sizeof(float), n));
	for (uint32_t k = 0; k < n; k++)
		x[k] = lost[first + k] + element(first + k);
	wref_encode(row->up, bytes, x, n, rounding);
	for (uint32_t k = 0; row->feedback && k < n; k++)
		lost[first + k] = x[k] - wref_decode(row->up, bytes, k);
	ck_assert_mem_eq(f->l[0].payload[i], bytes, h.payload_len);

	for (uint32_t k = 0; k < n; k++)
		x[k] *= 2;
	wref_encode(row->down, bytes, x, n, (struct wref_rounding){0});
	for (uint32_t k = 0; k < n; k++)
		want[first + k] = wref_decode(row->down, bytes, k);
	h.type = FRAME_RESULT;
	h.flags = 0;
	h.payload_len = (uint32_t)rs_wire_bytes(row->down, sizeof(float), n);
	reducers_say(f, 0, &h, bytes);
	reducers_pump(f);
}

START_TEST(contributions_and_results_are_encoded)
{
	const struct row *row = &encoded[_i];
	float want[COUNT], lost[COUNT] = {0};
	struct reducers_op o;
	struct reducers f;
	struct rs_err e;

	open_with(&f, row->yaml, FEATURES_ALL);
	ck_assert_uint_eq(f.l[0].hello.decoded_bytes, row->decoded);
	say_welcome(&f, FEATURES_ALL);
	say_start(&f, FEATURES_ALL);
	for (unsigned seq = 0, done = 0; seq < 2; seq++) {
		f.piece = seq ? 131 : SIZE_MAX;
		ck_assert_int_eq(submit_named(&f, &o, row->up, row->down, 7, &e), RS_OK);
		reducers_pump(&f);
		while (done < f.l[0].data_n)
			answer(&f, row, done++, want, lost);
		ck_assert_int_eq(o.done, 1);
		ck_assert_mem_eq(o.x, want, sizeof want);
	}
	reducers_close(&f);
}
END_TEST

/* Without a name there is no residual, and the worker says so once. */
START_TEST(feedback_needs_a_name)
{
	struct reducers_op o[3];
	struct reducers f;
	struct rs_err e;

	open_with(&f, job_feedback, FEATURES_ALL);
	say_welcome(&f, FEATURES_ALL);
	say_start(&f, FEATURES_ALL);
	ck_assert_int_eq(submit_named(&f, &o[0], RS_WIRE_INT8, RS_WIRE_INT8, 7, &e), RS_OK);
	ck_assert_uint_eq(f.excuses, 0);
	for (unsigned i = 1; i < 3; i++)
		ck_assert_int_eq(submit(&f, &o[i], RS_WIRE_INT8, RS_WIRE_INT8, &e), RS_OK);
	ck_assert_uint_eq(f.excuses, 1);
	ck_assert_str_eq(f.excuse, "all-reduce 1 has no error feedback (job.wire.feedback): it has no name");
	reducers_close(&f);
}
END_TEST

/* A result whose header has another encoding, or whose length is another one: the reducer
 * breaks the protocol. */
START_TEST(a_wrong_result_is_a_breach)
{
	static const unsigned char zeros[2 * CHUNK];
	static const char *const says[] = {"is 1040 bytes of float32 (op 0, encodings 3 and 2",
					   "is 1040 bytes of float32 (op 0, encodings 2 and 3", "is 1041 bytes",
					   "is 1039 bytes"};
	struct reducers_op o;
	struct reducers f;
	struct rs_err e;
	struct frame h;

	open_with(&f, job_fp8, FEATURES_ALL);
	say_welcome(&f, FEATURES_ALL);
	say_start(&f, FEATURES_ALL);
	ck_assert_int_eq(submit(&f, &o, RS_WIRE_FP8, RS_WIRE_FP8, &e), RS_OK);
	reducers_pump(&f);
	h = f.l[0].data[0];
	h.type = FRAME_RESULT;
	h.of.up = _i == 0 ? RS_WIRE_INT8 : h.of.up;
	h.of.down = _i == 1 ? RS_WIRE_INT8 : h.of.down;
	h.payload_len += _i == 2 ? 1 : _i == 3 ? UINT32_MAX : 0;
	reducers_say(&f, 0, &h, zeros);
	reducers_pump(&f);
	reducers_expect_end(&f, RS_EPROTO, says[_i]);
	ck_assert_int_eq(o.done, -1);
	reducers_close(&f);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("encoded");
	TCase *tc = tcase_create("encoded");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, a_job_without_the_feature_has_no_encodings, 0, sizeof refused / sizeof refused[0]);
	tcase_add_test(tc, a_reducer_without_the_feature_is_refused);
	tcase_add_loop_test(tc, contributions_and_results_are_encoded, 0, sizeof encoded / sizeof encoded[0]);
	tcase_add_test(tc, feedback_needs_a_name);
	tcase_add_loop_test(tc, a_wrong_result_is_a_breach, 0, 4);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
