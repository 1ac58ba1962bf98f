/* SPDX-License-Identifier: Apache-2.0 */
/* Operations whose data is filled and landed while they run: rings, FILLED and LANDED. */
#include "agent/node/core/stage.h"
#include "common/dtype.h"
#include "proto/frame.h"
#include "tests/unit/fake_agent.h"

#include <check.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
	RING = 8 << 18,           /* bytes: the minimum that this agent accepts */
	COUNT = 3 * RING / 4 + 5, /* float32: three rings and a bit */
	HEAD = 64,                /* bytes before the ring, where the counter is */
	PIECE = (1 << 18) / 4,    /* elements */
	CHUNK = FAKE_CHUNK / 4,
};

static struct fake_agent fa;
static struct fake_client *c[2];
static struct fake_engine *en;

static void setup(void)
{
	fake_agent_init(&fa);
	fa.cfg.agent.shm_bytes = 1 << 24;
	en = fake_job(&fa, c, 2, 2);
	for (unsigned r = 0; r < 2; r++)
		ck_assert_uint_eq(fake_alloc(&fa, c[r], HEAD + RING), 0);
}

static void teardown(void)
{
	fake_agent_close(&fa);
}

/* Sends SUBMIT of COUNT elements in the ring, `there` of which are filled. */
static union local_message ring_submit(uint64_t there)
{
	union local_message m;

	local_init(&m, LOCAL_SUBMIT);
	m.submit.of.dtype = RS_FLOAT32;
	m.submit.of.size = 4;
	m.submit.of.count = COUNT;
	m.submit.missing = COUNT - there;
	m.submit.ring = RING;
	m.submit.send_offset = m.submit.recv_offset = HEAD;
	return m;
}

static void say_submit(unsigned r, uint64_t there)
{
	union local_message m = ring_submit(there);

	m.submit.of.seq = c[r]->seq++;
	fake_say(&fa, c[r], &m);
}

static void say_filled(unsigned r, uint64_t seq, uint64_t count)
{
	union local_message m;

	local_init(&m, LOCAL_FILLED);
	m.filled.seq = seq;
	m.filled.count = count;
	fake_say(&fa, c[r], &m);
}

static float *ring(unsigned r)
{
	return (float *)((char *)c[r]->buffer[0] + HEAD);
}

static uint64_t counter(unsigned r)
{
	return atomic_load((_Atomic uint64_t *)c[r]->buffer[0]);
}

static float input(unsigned r, uint64_t i)
{
	return (float)(i % 1000) + (float)(1000 * r);
}

/* Writes elements [from, to) of a rank's contribution into its ring. */
static void fill(unsigned r, uint64_t from, uint64_t to)
{
	for (uint64_t i = from; i < to; i++)
		ring(r)[i % (RING / 4)] = input(r, i);
}

static void expect_result(unsigned r, uint64_t from, uint64_t to)
{
	for (uint64_t i = from; i < to; i++)
		if (ring(r)[i % (RING / 4)] != input(0, i) + input(1, i)) /* Check writes a file at every assertion */
			ck_abort_msg("element %u of rank %u is %g", (unsigned)i, r, ring(r)[i % (RING / 4)]);
}

/* Runs chunk i as an engine does, without contributions of other nodes. */
static void run_chunk(struct exchange_op *op, uint64_t i)
{
	uint32_t n = frame_chunk_len(COUNT, CHUNK, (uint32_t)i);

	if (*op->ready < i * CHUNK + n)
		ck_abort_msg("chunk %u is not there", (unsigned)i);
	op->fill(op, i * CHUNK, n);
	op->landed(op, i * CHUNK, n);
}

/* Each rank's ring wraps around three times; the chunks of a piece land in another
 * order. */
START_TEST(a_ring_wraps_around)
{
	uint64_t there = RING / 4, landed = 0, ended = 0, last;
	struct exchange_op *op;

	for (unsigned r = 0; r < 2; r++) {
		fill(r, 0, there);
		say_submit(r, there);
	}
	ck_assert_uint_eq(en->ops_n, 1);
	op = en->ops[0];
	op->chunk_elems = CHUNK;
	ck_assert_uint_eq(*op->ready, there);
	while (ended < COUNT) {
		last = ended + PIECE < COUNT ? PIECE / CHUNK : (COUNT - ended + CHUNK - 1) / CHUNK;
		for (uint64_t i = 0; i < last; i++)
			run_chunk(op, ended / CHUNK + (last - 1 - i));
		fake_settle(&fa);
		ended = ended + PIECE < COUNT ? ended + PIECE : COUNT;
		for (unsigned r = 0; r < 2; r++) {
			/* DONE covers the last piece */
			ck_assert_uint_eq(counter(r), ended < COUNT ? ended : landed);
			expect_result(r, landed, ended);
		}
		landed = ended;
		for (unsigned r = 0; r < 2 && there < COUNT; r++) {
			last = there + PIECE < COUNT ? there + PIECE : COUNT;
			fill(r, there, last);
			ck_assert_uint_eq(*op->ready, there);
			say_filled(r, 0, last);
		}
		there = there + PIECE < COUNT ? there + PIECE : COUNT;
		ck_assert_uint_eq(*op->ready, there);
	}
	ck_assert_uint_eq(en->pokes, (COUNT - RING / 4 + PIECE - 1) / PIECE);
	en->ops_n = 0;
	op->done(op, NULL);
	fake_settle(&fa);
	ck_assert_ptr_nonnull(strstr(c[0]->story, "READY ALLOCED:0 LANDED LANDED"));
	ck_assert_str_eq(strrchr(c[1]->story, ' '), " DONE:0");
}
END_TEST

/* A chunk of float16 ones, seen through the sum that is sent, float32 or rounded. */
static void run_half_chunk(struct exchange_op *op, uint64_t i)
{
	uint64_t at = i * CHUNK * (op->wide ? 8 : 4);
	const char *sum = (const char *)op->send + exchange_ring_offset(at, op->send_ring);

	op->fill(op, i * CHUNK * 2, CHUNK * 2);
	for (unsigned k = 0; k < CHUNK * 2; k++)
		if (op->wide ? ((const float *)sum)[k] != 2 : ((const uint16_t *)sum)[k] != 0x4000)
			ck_abort_msg("element %u of chunk %u is wrong", k, (unsigned)i);
	op->landed(op, i * CHUNK * 2, CHUNK * 2);
}

static void fill_ones(unsigned r, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		((uint16_t *)ring(r))[i] = 0x3c00;
}

/* Partial sums of float16 need twice the ring, and the memory of one chunk if they are
 * rounded. Those that are encoded are not rounded. The number of elements may be larger
 * than any memory, or so large that the number of bytes overflows. */
START_TEST(partial_sums_wrap_around_with_the_ring)
{
	static const uint64_t counts[] = {4 * RING / 2, UINT64_C(1) << 40, (UINT64_C(1) << 61) + 1,
					  (UINT64_C(1) << 62) + 1};
	bool exact = _i < 8, encoded = _i < 4;
	uint64_t count = counts[_i % 4];
	union local_message m = ring_submit(0);
	struct exchange_op *op;

	for (unsigned r = 0; r < 2; r++)
		fill_ones(r, RING / 2);
	fa.cfg.job.exact_partials = exact && !encoded;
	m.submit.of.up = encoded ? RS_WIRE_FP8 : RS_WIRE_SAME;
	m.submit.of.dtype = RS_FLOAT16;
	m.submit.of.size = 2;
	m.submit.of.count = count;
	m.submit.missing = count - RING / 2;
	m.submit.of.seq = 0;
	for (unsigned r = 0; r < 2; r++)
		fake_say(&fa, c[r], &m);
	ck_assert_uint_le(fa.stage_most, exact ? 2 * RING : LOCAL_STAGE_MIN);
	ck_assert_uint_eq(en->ops_n, 1);
	op = en->ops[0];
	ck_assert_int_eq(op->wide, exact);
	ck_assert_uint_eq(op->of.up, m.submit.of.up);
	op->chunk_elems = CHUNK * 2;
	for (uint64_t i = 0; i < RING / FAKE_CHUNK; i++)
		run_half_chunk(op, i);
	fake_settle(&fa);
	for (unsigned r = 0; r < 2; r++) {
		fill_ones(r, CHUNK * 2);
		say_filled(r, 0, RING / 2 + CHUNK * 2);
	}
	ck_assert_uint_eq(*op->ready, RING / 2 + CHUNK * 2);
	run_half_chunk(op, RING / FAKE_CHUNK);
}
END_TEST

/* LANDED waits until the hub runs: one message covers everything that landed
 * meanwhile. */
START_TEST(one_landed_message_covers_many_pieces)
{
	struct exchange_op *op;

	for (unsigned r = 0; r < 2; r++)
		say_submit(r, RING / 4);
	op = en->ops[0];
	for (uint64_t i = 0; i < 3 * PIECE / CHUNK; i++)
		run_chunk(op, i);
	ck_assert_uint_eq(counter(0), 3 * PIECE);
	ck_assert_str_eq(c[0]->story, "WELCOME READY ALLOCED:0");
	fake_settle(&fa);
	ck_assert_str_eq(c[0]->story, "WELCOME READY ALLOCED:0 LANDED");
	for (uint64_t i = 3 * PIECE / CHUNK; i < 4 * PIECE / CHUNK; i++)
		run_chunk(op, i);
	fake_settle(&fa);
	ck_assert_str_eq(c[0]->story, "WELCOME READY ALLOCED:0 LANDED LANDED");
}
END_TEST

/* FILLED counts from SUBMIT on, even before another local rank has started the
 * operation. */
START_TEST(filled_before_all_have_started)
{
	say_submit(0, 100);
	say_filled(0, 0, 300);
	say_submit(1, 200);
	ck_assert_uint_eq(*en->ops[0]->ready, 200);
	say_filled(1, 0, 400);
	ck_assert_uint_eq(*en->ops[0]->ready, 300);
	ck_assert_uint_eq(en->pokes, 1);
}
END_TEST

static const struct {
	uint64_t seq, count;
	const char *sentence;
} wrong[] = {
    {1, 7, "FILLED of operation 1, which it has not started"},
    {0, 100, "FILLED up to element 100 of operation 0, expected 101 to 524288"},
    {0, 0, "FILLED up to element 0 of operation 0, expected 101 to 524288"},
    {0, RING / 4 + 1, "FILLED up to element 524289 of operation 0, expected 101 to 524288"},
    {0, UINT64_MAX, "FILLED up to element 18446744073709551615 of operation 0, expected 101 to 524288"},
};

START_TEST(invalid_filled_values_are_refused)
{
	char whole[300];

	say_submit(0, 100);
	if (_i % 2) /* the same if it runs already */
		say_submit(1, 100);
	say_filled(0, wrong[_i].seq, wrong[_i].count);
	snprintf(whole, sizeof whole, "rank 0 (pid 101 on host) broke the local protocol: %s", wrong[_i].sentence);
	ck_assert_str_eq(en->why, whole);
	fake_settle(&fa);
	ck_assert_ptr_null(c[0]->client);
}
END_TEST

START_TEST(invalid_rings_are_refused)
{
	static const struct {
		uint64_t missing, ring, counter, recv;
		const char *sentence;
	} bad[] = {
	    {COUNT + 1, 0, 0, HEAD, "SUBMIT of 1572869 elements of which 1572870 are missing"},
	    {0, RING, 0, HEAD, "SUBMIT with 1572869 elements in a ring of 2097152 bytes"},
	    {COUNT, RING - FAKE_CHUNK, 0, HEAD,
	     "SUBMIT with a ring of 2096128 bytes, expected at least 2097152, in whole chunks of 1024"},
	    {COUNT, RING + 4, 0, HEAD,
	     "SUBMIT with a ring of 2097156 bytes, expected at least 2097152, in whole chunks of 1024"},
	    {COUNT, RING, 4, HEAD, "SUBMIT with a counter at offset 4 of a shared buffer of 2101248 bytes"},
	    {COUNT, RING, (RING + 4096), HEAD,
	     "SUBMIT with a counter at offset 2101248 of a shared buffer of 2101248 bytes"},
	    {COUNT, RING, UINT64_MAX - 7, HEAD,
	     "SUBMIT with a counter at offset 18446744073709551608 of a shared buffer of 2101248 bytes"},
	    {COUNT, RING, 0, 4104, "SUBMIT names 2097152 bytes at offset 4104 of shared buffer 0, which has 2101248"},
	};
	union local_message m = ring_submit(0);
	char whole[300];

	m.submit.missing = bad[_i].missing;
	m.submit.ring = bad[_i].ring;
	m.submit.landed_offset = bad[_i].counter;
	m.submit.send_offset = m.submit.recv_offset = bad[_i].recv;
	fake_say(&fa, c[0], &m);
	snprintf(whole, sizeof whole, "rank 0 (pid 101 on host) broke the local protocol: %s", bad[_i].sentence);
	ck_assert_str_eq(en->why, whole);
}
END_TEST

/* A chunk of an encoded operation takes more of a ring: the ring has room for as many. */
static const struct {
	unsigned dtype, up, down;
	uint32_t span; /* bytes of a chunk in the ring, at most 2 x FAKE_CHUNK as float32 */
} encoded[] = {
    {RS_FLOAT32, RS_WIRE_FP8, RS_WIRE_FP8, 2 * FAKE_CHUNK},
    {RS_FLOAT32, RS_WIRE_BF16, RS_WIRE_INT8, 2 * FAKE_CHUNK},
    {RS_FLOAT32, RS_WIRE_SAME, RS_WIRE_INT8, FAKE_CHUNK},
    {RS_BFLOAT16, RS_WIRE_INT8, RS_WIRE_INT8, FAKE_CHUNK},
};

START_TEST(rings_of_encoded_operations)
{
	union local_message m = ring_submit(0);
	uint32_t span = encoded[_i].span, elems;
	uint64_t least = (uint64_t)RING / FAKE_CHUNK * span, piece = 0;
	char whole[300];

	m.submit.of.dtype = encoded[_i].dtype & 15;
	m.submit.of.size = rs_dtype_size(m.submit.of.dtype) & OPERATION_SIZE;
	m.submit.of.count = m.submit.missing = least;
	m.submit.of.up = encoded[_i].up & 15;
	m.submit.of.down = encoded[_i].down & 7;
	m.submit.ring = least;
	elems = span / m.submit.of.size;
	for (unsigned r = 0; r < 2; r++) {
		m.submit.send_buffer = m.submit.recv_buffer = fake_alloc(&fa, c[r], HEAD + least);
		fake_say(&fa, c[r], &m);
	}
	ck_assert_uint_eq(en->ops_n, 1);
	for (uint64_t i = 0; atomic_load((_Atomic uint64_t *)c[0]->buffer[1]) == 0; i++, piece += elems)
		en->ops[0]->landed(en->ops[0], i * elems, elems);
	ck_assert_uint_ge(piece * m.submit.of.size, 1 << 18);
	ck_assert_uint_eq(piece, atomic_load((_Atomic uint64_t *)c[0]->buffer[1]));

	m.submit.of.seq = 1;
	m.submit.ring = least - span / 2;
	fake_say(&fa, c[0], &m);
	snprintf(whole, sizeof whole,
		 "rank 0 (pid 101 on host) broke the local protocol: SUBMIT with a ring of %u bytes, expected at least "
		 "%u, in whole chunks of %u",
		 (unsigned)m.submit.ring, (unsigned)least, span);
	ck_assert_str_eq(en->why, whole);
}
END_TEST

START_TEST(a_rank_that_leaves_with_input_missing)
{
	say_submit(0, 100);
	say_submit(1, RING / 4);
	fake_goodbye(&fa, c[0]);
	ck_assert_str_eq(en->why, "rank 0 (pid 101 on host) has left the job before it had given all of operation 0");
}
END_TEST

/* A rank that could fill more is late; ranks that wait for results are not, whichever
 * they are. */
START_TEST(a_rank_late_with_the_rest_is_reported)
{
	fa.cfg.timeouts.op_ms = 500;
	say_submit(0, RING / 4);
	say_submit(1, 100);
	ck_assert_uint_eq(local_hub_next(fa.hub), fa.now_ms + 500);
	local_hub_tick(fa.hub, fa.now_ms + 499);
	ck_assert_int_eq(en->aborted, 0);
	local_hub_tick(fa.hub, fa.now_ms + 500);
	ck_assert_str_eq(en->why,
			 "operation 0, an all-reduce sum of 1572869 float32, was not done within 500 ms: rank 1 "
			 "(pid 102 on host) has given only 100 elements");
}
END_TEST

/* The time runs from the start of the last rank; another operation may have waited longer
 * to be started. */
START_TEST(the_operation_that_waits_longest_is_reported_first)
{
	fa.cfg.timeouts.op_ms = 500;
	say_submit(0, 100);
	fa.now_ms += 200;
	say_submit(0, 100);
	fa.now_ms += 200;
	say_submit(1, RING / 4);
	ck_assert_uint_eq(local_hub_next(fa.hub), fa.now_ms + 300);
	local_hub_tick(fa.hub, fa.now_ms + 300);
	ck_assert_str_eq(en->why,
			 "operation 1, an all-reduce sum of 1572869 float32, was not done within 500 ms: rank 1 "
			 "(pid 102 on host) has not started it");
}
END_TEST

START_TEST(a_rank_that_waits_for_results_is_not_late)
{
	fa.cfg.timeouts.op_ms = 500;
	for (unsigned r = 0; r < 2; r++)
		say_submit(r, RING / 4);
	ck_assert_uint_eq(local_hub_next(fa.hub), FAKE_FIRST_PING_MS);
	local_hub_tick(fa.hub, fa.now_ms + 5000);
	ck_assert_int_eq(en->aborted, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("local_progress");
	TCase *t = tcase_create("local_progress");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, a_ring_wraps_around);
	tcase_add_loop_test(t, partial_sums_wrap_around_with_the_ring, 0, 12);
	tcase_add_test(t, one_landed_message_covers_many_pieces);
	tcase_add_test(t, filled_before_all_have_started);
	tcase_add_loop_test(t, invalid_filled_values_are_refused, 0, sizeof wrong / sizeof wrong[0]);
	tcase_add_loop_test(t, invalid_rings_are_refused, 0, 8);
	tcase_add_loop_test(t, rings_of_encoded_operations, 0, sizeof encoded / sizeof encoded[0]);
	tcase_add_test(t, a_rank_that_leaves_with_input_missing);
	tcase_add_test(t, a_rank_late_with_the_rest_is_reported);
	tcase_add_test(t, the_operation_that_waits_longest_is_reported_first);
	tcase_add_test(t, a_rank_that_waits_for_results_is_not_late);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
