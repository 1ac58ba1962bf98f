/* SPDX-License-Identifier: Apache-2.0 */
/* Sharded operations of rank 0 of two: what it sends, what it takes, and what it sends
 * again after the loss of a reducer. */
#include "common/dtype.h"
#include "proto/features.h"
#include "tests/unit/fake_ops.h"
#include "tests/unit/fake_views.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define REDUCERS                                                                                                       \
	"reducers: [{id: r0, address: \"127.0.0.1:1\"}, {id: r1, address: \"127.0.0.1:2\"}]\n"                         \
	"sharding: {chunk_bytes: 1024, window: 32, priorities: 1, map: {0: r0, 1: r1}}\ntimeouts: {detect: 4s}\n"

static const char plain[] = REDUCERS, checked[] = "job: {checksum: true}\n" REDUCERS,
		  at_random[] = "job: {wire: {up: int8, rounding: stochastic}}\n" REDUCERS,
		  feedback[] = "job: {wire: {up: int8, rounding: stochastic, feedback: 1MiB}}\n" REDUCERS;

enum {
	WORLD = 2,
	PART = 1000, /* elements: chunks of 256, or of up to 1024 */
	ALL = WORLD * PART,
	/* Of a part of an odd number of chunks the last one is encoded where a chunk of
	 * rank 1 was whose result has not come, and which is retained. */
	LONG = 51 * VIEWS_CHUNK,
	CHUNKS = WORLD * 51,
	MINE = 99, /* incarnation of the exchange */
};

static void say_welcome(struct reducers *f, unsigned link, uint64_t features)
{
	struct control_welcome w = {.detect_ms = 1000, .features = features};
	uint8_t payload[FRAME_CONTROL_MAX];

	reducers_say_control(f, link, FRAME_WELCOME, payload, control_pack_welcome(payload, &w));
	reducers_pump(f);
}

static void say_start(struct reducers *f, uint64_t features)
{
	const struct control_start s = {.features = features, .start = MINE};
	uint8_t payload[CONTROL_START_LEN];

	for (unsigned i = 0; i < f->links_n; i++) {
		f->l[i].started = true;
		reducers_say_control(f, i, FRAME_START, payload, features ? control_pack_start(payload, &s) : 0);
	}
	reducers_pump(f);
}

static void open_waiting(struct reducers *f, const char *yaml, uint64_t offers)
{
	reducers_open_offering(f, yaml, WORLD, 10000, offers);
	f->welcome = f->start = f->answer = false;
	reducers_pump(f);
	for (unsigned i = 0; i < f->links_n; i++)
		say_welcome(f, i, FEATURES_ALL);
}

/* Without FEATURE_SLOTS, so that few results are retained. */
static void open_running(struct reducers *f, const char *yaml)
{
	open_waiting(f, yaml, FEATURES_ALL & ~FEATURE_SLOTS);
	say_start(f, FEATURES_ALL & ~FEATURE_SLOTS);
	ck_assert_int_eq(exchange_state(f->x), EXCHANGE_RUNNING);
}

static struct exchange_op sharded(unsigned op, const float *send, float *recv)
{
	return (struct exchange_op){
	    .send = send,
	    .recv = recv,
	    .of = {.count = ALL, .dtype = RS_FLOAT32, .op = op & 31, .sharded = 1, .parts = WORLD}};
}

/* One result at a time, the links in turn. */
static void answer_all(struct reducers *f)
{
	bool more = true;

	while (more) {
		more = false;
		for (unsigned i = 0; i < f->links_n; i++) {
			if (!f->l[i].up || f->l[i].answered == f->l[i].data_n)
				continue;
			reducers_answer(f, i);
			reducers_pump(f);
			more = true;
		}
	}
}

/* Checks all DATA of an operation that was not encoded. */
static void expect_sent(const struct reducers *f, const float *x)
{
	uint64_t sent = 0;

	for (unsigned l = 0; l < f->links_n; l++)
		for (unsigned i = 0; i < f->l[l].data_n; i++) {
			const struct frame *h = &f->l[l].data[i];
			const struct operation_place at = operation_place(&h->of, h->chunk_elems, h->chunk);
			bool own = at.part == 0, gather = h->of.op == FRAME_OP_BROADCAST;

			ck_assert(h->type == FRAME_DATA && h->of.sharded && h->of.parts == WORLD && h->of.count == ALL);
			ck_assert_uint_eq(h->flags & FRAME_ROOT, own ? FRAME_ROOT : 0);
			ck_assert_uint_eq(h->payload_len, gather && !own ? 0 : at.elems * sizeof *x);
			ck_assert(!h->payload_len || memcmp(f->l[l].payload[i], x + at.first, h->payload_len) == 0);
			sent += at.elems;
		}
	ck_assert_uint_eq(sent, ALL);
}

static const struct {
	const char *yaml;
	bool gather, in_place;
	size_t piece;
} rows[] = {
    {plain, false, false, SIZE_MAX}, {plain, false, true, SIZE_MAX},  {checked, false, false, 131},
    {checked, false, true, 131},     {plain, true, false, SIZE_MAX},  {plain, true, true, SIZE_MAX},
    {checked, true, false, 131},     {checked, true, true, SIZE_MAX},
};

START_TEST(an_operation_without_losses)
{
	float *x = ops_numbers(ALL), *y = calloc(ALL, sizeof *y), *part = rows[_i].in_place ? x : y;
	struct reducers f;
	struct fake_op o;

	open_running(&f, rows[_i].yaml);
	f.piece = rows[_i].piece;
	ops_submit(&f, &o, sharded(rows[_i].gather ? FRAME_OP_BROADCAST : RS_SUM, x, part));
	reducers_pump(&f);
	answer_all(&f);
	ck_assert_int_eq(o.done, 1);
	ck_assert_int_eq(o.err.code, 0);
	ck_assert_uint_eq(o.filled, rows[_i].gather ? PART : ALL);
	ck_assert_uint_eq(o.landed, ALL);
	if (!rows[_i].in_place || rows[_i].gather)
		expect_sent(&f, x);
	if (!rows[_i].gather) {
		ops_expect_tripled(part, PART); /* the fake reducer's result */
	} else {
		ck_assert_mem_eq(part, x, PART * sizeof *x);
		for (size_t i = PART * sizeof *x; i < ALL * sizeof *x; i++)
			ck_assert(((uint8_t *)part)[i] > 0 && ((uint8_t *)part)[i] <= 2 * 4);
	}
	reducers_close(&f);
	free(y);
	free(x);
}
END_TEST

/* The first DATA of each chunk. */
struct sent {
	uint32_t len;
	uint8_t bytes[4096];
};

static void remember(const struct reducers *f, struct sent *first)
{
	for (unsigned l = 0; l < f->links_n; l++)
		for (unsigned i = 0; i < f->l[l].data_n; i++) {
			const struct frame *h = &f->l[l].data[i];

			ck_assert(h->chunk < CHUNKS && h->type == FRAME_DATA && h->payload_len <= sizeof first->bytes);
			first[h->chunk].len = h->payload_len;
			memcpy(first[h->chunk].bytes, f->l[l].payload[i], h->payload_len);
		}
}

static const struct {
	const char *yaml;
	unsigned up;
	uint32_t name;
	bool in_place, done; /* the loss comes when the operation is done and its memory is free */
} losses[] = {
    {plain, 0, 0, false, false},
    {plain, 0, 0, true, false},
    {plain, 0, 0, false, true},
    {checked, 0, 0, true, true},
    {plain, RS_WIRE_BF16, 0, false, false},
    {plain, RS_WIRE_BF16, 0, false, true},
    {at_random, RS_WIRE_INT8, 0, false, false},
    {at_random, RS_WIRE_INT8, 0, true, true},
    {feedback, RS_WIRE_INT8, 7, false, false},
    {feedback, RS_WIRE_INT8, 7, true, true},
    {feedback, RS_WIRE_FP8, 7, false, true},
};

/* After the loss of r1 the contributions to the part of rank 1 are sent once more, the
 * same bytes; HAVE comes in place of the own part. */
START_TEST(contributions_are_repeated)
{
	float *x = ops_numbers(WORLD * LONG), *y = calloc(LONG, sizeof *y);
	struct exchange_op op = sharded(RS_SUM, x, losses[_i].in_place ? x : y);
	struct sent *first = calloc(CHUNKS, sizeof *first);
	struct reducers f;
	struct fake_op o;
	unsigned before, again = 0, had = 0;

	open_running(&f, losses[_i].yaml);
	for (unsigned i = 0; i < WORLD * LONG; i++)
		x[i] = x[i] * 0.37F - 100; /* not what a code can have */
	op.of.count = WORLD * LONG;
	op.of.up = losses[_i].up & 15;
	op.of.name_hash = losses[_i].name;
	ops_submit(&f, &o, op);
	reducers_pump(&f);
	if (losses[_i].done)
		answer_all(&f);
	while (f.l[0].answered < f.l[0].data_n) {
		reducers_answer(&f, 0);
		reducers_pump(&f);
	}
	ck_assert_int_eq(o.done, losses[_i].done);
	remember(&f, first);
	if (losses[_i].done) {
		memset(x, 0xdb, WORLD * LONG * sizeof *x);
		memset(y, 0xdb, LONG * sizeof *y);
	}
	before = f.l[0].data_n;
	f.l[1].dead = f.resume = true;
	reducers_cut(&f, 1, "cut");
	reducers_pump(&f);
	answer_all(&f);
	ck_assert_int_eq(o.done, 1);
	ck_assert_int_eq(o.err.code, 0);
	ck_assert_uint_gt(f.l[0].data_n, before);
	for (unsigned i = before; i < f.l[0].data_n; i++) {
		const struct frame *h = &f.l[0].data[i];
		bool own = operation_place(&h->of, h->chunk_elems, h->chunk).part == 0;

		ck_assert_uint_eq(h->flags & FRAME_ROOT, own && h->type == FRAME_DATA ? FRAME_ROOT : 0);
		ck_assert(h->of.sharded && h->of.parts == WORLD);
		had += h->type == FRAME_HAVE;
		if (h->type == FRAME_HAVE) {
			ck_assert(own && h->payload_len == 0);
			continue;
		}
		again += !own;
		ck_assert(!own || !losses[_i].done);
		if (!first[h->chunk].len)
			continue; /* this is the first time */
		ck_assert_uint_eq(h->payload_len, first[h->chunk].len);
		ck_assert_mem_eq(f.l[0].payload[i], first[h->chunk].bytes, h->payload_len);
		if (losses[_i].yaml == checked)
			ck_assert_uint_eq(h->payload_sum, frame_checksum(first[h->chunk].bytes, h->payload_len));
	}
	ck_assert(again > 0 && had > 0);
	reducers_close(&f);
	free(first);
	free(y);
	free(x);
}
END_TEST

/* Contributions to parts of others are no results: a FETCH for one is a breach. */
START_TEST(contributions_cannot_be_fetched)
{
	float *x = ops_numbers(ALL), *y = calloc(PART, sizeof *y);
	struct reducers f;
	struct fake_op o;
	unsigned before, n;

	open_running(&f, plain);
	ops_submit(&f, &o, sharded(RS_SUM, x, y));
	reducers_pump(&f);
	answer_all(&f);
	before = f.l[0].data_n;
	f.l[1].dead = f.resume = true;
	reducers_cut(&f, 1, "cut");
	reducers_pump(&f);
	for (n = before; f.l[0].data[n].type == FRAME_HAVE; n++)
		ck_assert_uint_lt(n + 1, f.l[0].data_n);
	ck_assert_uint_eq(f.lost, 1);
	reducers_fetch(&f, 0, n);
	reducers_pump(&f);
	ck_assert_uint_eq(f.l[0].kept_n, 0);
	reducers_expect_end(&f, RS_EPEER, "which this rank did not offer");
	reducers_close(&f);
	free(y);
	free(x);
}
END_TEST

/* Results of a sharded operation with another header or length. */
static const struct {
	unsigned op, chunk;
	bool whole; /* the result is that of an operation that is not sharded */
	uint32_t bytes;
} wrong[] = {
    {RS_SUM, 1, false, 1024}, /* part 1 is not ours */
    {RS_SUM, 0, false, 0},
    {RS_SUM, 0, false, 1020},
    {RS_SUM, 0, true, 1024},
    {FRAME_OP_BROADCAST, 0, false, 1024}, /* it is ours */
    {FRAME_OP_BROADCAST, 1, false, 0},
};

START_TEST(wrong_results_are_breaches)
{
	float *x = ops_numbers(ALL), *y = calloc(ALL, sizeof *y);
	static const uint8_t zeros[1024];
	struct reducers f;
	struct fake_op o;
	struct frame h;

	open_running(&f, plain);
	ops_submit(&f, &o, sharded(wrong[_i].op, x, y));
	reducers_pump(&f);
	h = f.l[wrong[_i].chunk].data[0];
	ck_assert_uint_eq(h.chunk, wrong[_i].chunk);
	h.type = FRAME_RESULT;
	h.flags = 0;
	h.payload_len = wrong[_i].bytes;
	if (wrong[_i].whole)
		h.of.sharded = h.of.parts = 0;
	reducers_say(&f, wrong[_i].chunk, &h, zeros);
	reducers_pump(&f);
	ck_assert_uint_eq(f.lost, 1);
	ck_assert_ptr_nonnull(strstr(f.why, "the result of chunk"));
	exchange_abort(f.x, RS_ECLOSED, "enough", f.now_ms);
	reducers_pump(&f);
	reducers_close(&f);
	free(y);
	free(x);
}
END_TEST

/* Jobs that cannot do it: an operation that is submitted before START, or after it. */
static const struct {
	uint64_t offers, start;
	bool early;
	const char *says;
} unsupported[] = {
    {FEATURES_ALL, FEATURES_ALL & ~FEATURE_SHARDED, true,
     "a rank or a reducer of job unit does not know reduce-scatter: start a newer release everywhere"},
    {FEATURES_ALL, FEATURES_ALL & ~FEATURE_SHARDED, false,
     "a rank or a reducer of job unit does not know reduce-scatter: start a newer release everywhere"},
    {0, 0, true, "start a newer release everywhere, and do not set job.features: baseline"},
    {0, 0, false, "start a newer release everywhere, and do not set job.features: baseline"},
};

START_TEST(a_job_without_the_feature)
{
	float *x = ops_numbers(ALL), *y = calloc(PART, sizeof *y);
	struct exchange_op op = sharded(RS_SUM, x, y);
	struct rs_err e = {0};
	struct reducers f;
	struct fake_op o;

	open_waiting(&f, plain, unsupported[_i].offers);
	ck_assert(!exchange_can_shard(f.x));
	if (unsupported[_i].early && unsupported[_i].offers)
		ops_submit(&f, &o, op);
	if (!unsupported[_i].early)
		say_start(&f, unsupported[_i].start);
	if (!unsupported[_i].early || !unsupported[_i].offers) {
		op.of.size = sizeof(float);
		ck_assert_int_eq(exchange_submit(f.x, &op, f.now_ms, &e), RS_EUNSUPPORTED);
		reducers_expect_error(&e, RS_EUNSUPPORTED, unsupported[_i].says);
	} else {
		say_start(&f, unsupported[_i].start);
		reducers_advance(&f, 1);
		reducers_expect_end(&f, RS_EUNSUPPORTED, unsupported[_i].says);
		ck_assert_int_eq(o.err.code, RS_EUNSUPPORTED);
	}
	ck_assert(!exchange_can_shard(f.x));
	ck_assert_uint_eq(f.l[0].data_n, 0);
	reducers_close(&f);
	free(y);
	free(x);
}
END_TEST

START_TEST(a_job_with_the_feature)
{
	struct reducers f;

	open_waiting(&f, plain, FEATURES_ALL);
	ck_assert(!exchange_can_shard(f.x));
	say_start(&f, FEATURES_ALL);
	ck_assert(exchange_can_shard(f.x));
	reducers_close(&f);
}
END_TEST

/* Without a priority an all-gather has the highest one, so that it does not wait for a
 * reduce-scatter. */
START_TEST(priorities)
{
	struct operation large = {.count = 1 << 20, .size = 4, .sharded = 1, .parts = 4, .priority = OPERATION_AUTO};
	struct operation small = large, gather = large;

	small.count = 16;
	gather.op = FRAME_OP_BROADCAST;
	ck_assert_uint_eq(exchange_priority(3, &large), 0);
	ck_assert_uint_eq(exchange_priority(3, &small), 2);
	ck_assert_uint_eq(exchange_priority(3, &gather), 2);
	gather.priority = 1;
	ck_assert_uint_eq(exchange_priority(3, &gather), 1);
}
END_TEST

#define COUNT(a) (int)(sizeof(a) / sizeof(a)[0])

int main(void)
{
	Suite *suite = suite_create("sharded");
	TCase *tc = tcase_create("exchange");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, an_operation_without_losses, 0, COUNT(rows));
	tcase_add_loop_test(tc, contributions_are_repeated, 0, COUNT(losses));
	tcase_add_test(tc, contributions_cannot_be_fetched);
	tcase_add_loop_test(tc, wrong_results_are_breaches, 0, COUNT(wrong));
	tcase_add_loop_test(tc, a_job_without_the_feature, 0, COUNT(unsupported));
	tcase_add_test(tc, a_job_with_the_feature);
	tcase_add_test(tc, priorities);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
