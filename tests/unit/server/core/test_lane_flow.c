/* SPDX-License-Identifier: Apache-2.0 */
/* Many operations on a lane: memory, windows and priorities, acks, arrivals and
 * questions. test_lane.c has the sums. */
#include "proto/operation.h"
#include "tests/unit/fake_worker.h"

#include <check.h>
#include <malloc.h>
#include <stdlib.h>

static void ignore(void *ctx, const struct lane_event *ev)
{
	(void)ctx;
	(void)ev;
}

/* A lane allocates no more for all ranks of a job, with their queues and tables, than the
 * announced size. Sanitizers replace malloc, so its count is not available with them. */
START_TEST(allocations_are_within_stripe_overhead)
{
	struct stripe_params p = {.job = 1,
				  .world_size = _i & 1 ? 300 : 1,
				  .chunk_bytes = 1024,
				  .window = _i & 2 ? 100 : 1,
				  .priorities = _i & 2 ? 4 : 1,
				  .checksum = _i & 4};
	struct lane_options opt = {.kernels = rs_kernels_usable(0), .detect_ms = 1000, .event = ignore};
	struct lane *l;
	struct session *s;
	struct rs_err e;
	size_t before, grown;

	p.memory = calloc(1, stripe_memory(&p));
	ck_assert_int_eq(lane_new(&l, &opt, &e), RS_OK);
	before = mallinfo2().uordblks + mallinfo2().hblkhd;
	for (unsigned r = 0; r < p.world_size; r++)
		ck_assert_int_eq(lane_attach(l, &s, &p, &(struct session_params){.rank = r}, NULL, 0, &e), RS_OK);
	grown = mallinfo2().uordblks + mallinfo2().hblkhd - before;
	ck_assert_uint_le(grown, stripe_overhead(&p));
	if (grown) /* the announced size is not much too large either */
		ck_assert_uint_ge(grown * 2, stripe_overhead(&p));
	lane_free(l);
	free(p.memory);
}
END_TEST

/* A long run of operations under a window, every rank at its own pace. */
struct traffic {
	struct fw_world fw;
	uint64_t sent[FAKE_WORLD_MAX], got[FAKE_WORLD_MAX]; /* chunks of the lane */
};

enum { CHUNKS_OF_AN_OP = 3 };

static struct frame traffic_frame(const struct fw_world *fw, uint64_t chunk)
{
	static const unsigned dtypes[] = {RS_FLOAT32, RS_FLOAT16, RS_INT8, RS_FLOAT64, RS_BFLOAT16};
	uint64_t seq = chunk / CHUNKS_OF_AN_OP;
	struct frame f = fw_data(fw, (unsigned)(seq % 2 ? RS_SUM : RS_AVG), dtypes[seq % 5], seq, 0, 0);

	f.of.count = 2 * f.chunk_elems + 3;
	f.chunk = (uint32_t)(chunk % CHUNKS_OF_AN_OP);
	f.ack = seq ? seq - 1 : 0;
	return f;
}

static void traffic_step(struct traffic *t, uint64_t total, unsigned world)
{
	struct fw_world *fw = &t->fw;
	unsigned r = fw_random(fw, world);

	switch (fw_random(fw, 4)) {
	case 0:
		while (t->sent[r] < total && t->sent[r] - t->got[r] < fw->params.window)
			fw_contribute(fw, r, traffic_frame(fw, t->sent[r]++));
		break;
	case 1:
		fw_grant(fw, r, fw_random(fw, 3) ? fw_random(fw, 300) : 0);
		break;
	default:
		fw_feed(fw, r, 1 + fw_random(fw, 200));
	}
	while (fw->w[r].in.len - fw->w[r].in.off >= FRAME_HEADER + fw->params.chunk_bytes ||
	       (fw->w[r].session->results_n == 0 && fw->w[r].in.len > fw->w[r].in.off))
		fw_expect_result(fw, r, traffic_frame(fw, t->got[r]++), world);
}

START_TEST(slots_are_used_again_within_the_bound)
{
	static const struct {
		unsigned world, window;
		uint64_t chunks;
	} rows[] = {{1, 1, 3000}, {2, 1, 3000}, {2, 2, 3000}, {3, 16, 6000}, {5, 2, 2000}};
	struct traffic t = {0};
	uint64_t done = 0;

	fw_running(&t.fw, &(struct fw_options){.world = rows[_i].world,
					       .window = rows[_i].window,
					       .chunk_bytes = 128,
					       .deterministic = _i % 2});
	while (done < rows[_i].chunks) {
		traffic_step(&t, rows[_i].chunks, rows[_i].world);
		done = rows[_i].chunks;
		for (unsigned r = 0; r < rows[_i].world; r++)
			done = t.got[r] < done ? t.got[r] : done;
	}
	ck_assert_uint_le(t.fw.slots_seen_max, 2 * rows[_i].window);
	for (unsigned r = 0; r < rows[_i].world; r++)
		ck_assert_uint_eq(t.fw.w[r].session->outstanding, 0);
	fw_say_goodbye(&t.fw);
}
END_TEST

/* The same with priorities: operation q has priority q % PRIORITIES, and each rank
 * continues with any of them. */
enum { PRIORITIES = 3 };

struct streams {
	struct fw_world fw;
	uint64_t sent[FAKE_WORLD_MAX][PRIORITIES], got[FAKE_WORLD_MAX][PRIORITIES];
};

static struct frame stream_frame(const struct fw_world *fw, uint64_t n, unsigned p)
{
	uint64_t seq = n / CHUNKS_OF_AN_OP * PRIORITIES + p;
	struct frame f = fw_data(fw, RS_SUM, seq % 2 ? RS_FLOAT16 : RS_INT32, seq, 0, 0);

	f.of.count = 2 * f.chunk_elems + 3;
	f.chunk = (uint32_t)(n % CHUNKS_OF_AN_OP);
	f.of.priority = (uint8_t)p;
	return f;
}

static bool may_send(const struct streams *t, unsigned r, unsigned p)
{
	uint64_t mine = t->sent[r][p] - t->got[r][p], all = 0;

	for (unsigned i = 0; i < PRIORITIES; i++)
		all += t->sent[r][i] - t->got[r][i];
	return all < t->fw.params.window || mine < frame_reserve(t->fw.params.window);
}

static void streams_take(struct streams *t, unsigned r)
{
	struct fw_buffer *in = &t->fw.w[r].in;
	struct frame f;
	struct rs_err e;

	while (in->len - in->off >= FRAME_HEADER) {
		must(frame_decode(in->at + in->off, &f, &e) == RS_OK);
		must(f.of.priority < PRIORITIES);
		if (in->len - in->off < FRAME_HEADER + f.payload_len)
			return;
		fw_expect_result(&t->fw, r, stream_frame(&t->fw, t->got[r][f.of.priority]++, f.of.priority),
				 t->fw.params.world_size);
	}
}

START_TEST(priorities_progress_independently)
{
	static const struct {
		unsigned world, window;
	} rows[] = {{1, 1}, {2, 1}, {2, 2}, {3, 16}, {4, 8}};
	enum { EACH = 600 };
	struct streams t = {0};
	unsigned world = rows[_i].world;
	uint64_t done = 0;

	fw_running(&t.fw, &(struct fw_options){.world = world,
					       .window = rows[_i].window,
					       .priorities = PRIORITIES,
					       .chunk_bytes = 128,
					       .deterministic = _i % 2});
	while (done < (uint64_t)EACH * PRIORITIES * world) {
		unsigned r = fw_random(&t.fw, world), p = fw_random(&t.fw, PRIORITIES);

		if (fw_random(&t.fw, 3) == 0)
			while (t.sent[r][p] < EACH && may_send(&t, r, p))
				fw_contribute(&t.fw, r, stream_frame(&t.fw, t.sent[r][p]++, p));
		else if (fw_random(&t.fw, 2))
			fw_grant(&t.fw, r, fw_random(&t.fw, 3) ? fw_random(&t.fw, 300) : 0);
		fw_feed(&t.fw, r, 1 + fw_random(&t.fw, 200));
		streams_take(&t, r);
		done = 0;
		for (r = 0; r < world; r++)
			for (p = 0; p < PRIORITIES; p++)
				done += t.got[r][p];
	}
	ck_assert_uint_eq(t.fw.failed, 0);
	ck_assert_uint_le(t.fw.slots_seen_max, 2 * rows[_i].window * PRIORITIES);
	fw_say_goodbye(&t.fw);
}
END_TEST

/* The reducer's ack is the minimum of the acks of all ranks. */
START_TEST(the_ack_is_the_minimum_of_all_ranks)
{
	static const struct {
		unsigned rank;
		uint64_t ack, want;
	} rows[] = {{0, 5, 0}, {1, 3, 0}, {2, 4, 3}, {2, 9, 3}, {1, 2, 3}, {1, 7, 5}, {0, 7, 7}, {1, 8, 7}, {0, 10, 8}};
	struct fw_world fw;
	struct stripe *st;

	fw_running(&fw, &(struct fw_options){.world = 3});
	st = stripe_find(fw.lane, FAKE_JOB, 1);
	for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		fw_send(&fw, rows[i].rank,
			(struct frame){.type = FRAME_PING, .generation = FAKE_GENERATION, .ack = rows[i].ack}, NULL);
		fw_feed_all(&fw, SIZE_MAX);
		ck_assert_uint_eq(st->stable, rows[i].want);
	}
	/* a rank that has left does not lower it */
	fw_send_type(&fw, 2, FRAME_GOODBYE);
	fw_feed_all(&fw, SIZE_MAX);
	fw_close_peer(&fw, 2);
	for (unsigned r = 0; r < 2; r++)
		fw_send(&fw, r, (struct frame){.type = FRAME_PING, .generation = FAKE_GENERATION, .ack = 20}, NULL);
	fw_feed_all(&fw, SIZE_MAX);
	ck_assert_uint_ge(st->stable, 8);
	fw_close(&fw);
}
END_TEST

static void contribute(struct fw_world *fw, struct frame f, enum lane_arrivals came)
{
	struct frame chunk = f;

	for (unsigned r = 0; r < 2; r++) {
		fw_contribute(fw, r, chunk);
		/* a driver may ask in the middle of a contribution, which counts once */
		fw_feed(fw, r, FRAME_HEADER);
		ck_assert_int_eq(lane_arrivals(fw->lane), came);
		fw_feed(fw, r, SIZE_MAX);
		ck_assert_int_eq(lane_arrivals(fw->lane), LANE_ARRIVED_NOTHING);
	}
}

START_TEST(arrivals_are_small_or_large)
{
	struct fw_world fw;
	struct frame f;

	fw_running(&fw, &(struct fw_options){.world = 2, .window = 8});
	ck_assert_int_eq(lane_arrivals(fw.lane), LANE_ARRIVED_NOTHING);
	contribute(&fw, fw_data(&fw, RS_SUM, RS_FLOAT32, 0, 10, 0), LANE_ARRIVED_SMALL);
	contribute(&fw, fw_data(&fw, RS_SUM, RS_FLOAT32, 1, OPERATION_SMALL / 4, 0), LANE_ARRIVED_SMALL);
	contribute(&fw, fw_data(&fw, RS_SUM, RS_FLOAT32, 2, OPERATION_SMALL / 4 + 1, 0), LANE_ARRIVED_LARGE);
	contribute(&fw, fw_data(&fw, RS_SUM, RS_INT8, 3, OPERATION_SMALL, 0), LANE_ARRIVED_SMALL);
	contribute(&fw, fw_data(&fw, RS_SUM, RS_INT8, 4, UINT64_MAX, 0), LANE_ARRIVED_LARGE);
	/* large and small together count as large, in any order */
	f = fw_data(&fw, RS_SUM, RS_INT8, 5, 16, 0);
	for (unsigned r = 0; r < 2; r++) {
		fw_contribute(&fw, r, f);
		fw_contribute(&fw, r, fw_data(&fw, RS_SUM, RS_INT8, 6, OPERATION_SMALL + 1, 0));
		fw_contribute(&fw, r, fw_data(&fw, RS_SUM, RS_INT8, 7, 16, 0));
		fw_feed(&fw, r, SIZE_MAX);
		while (fw_feed(&fw, r, SIZE_MAX))
			;
		ck_assert_int_eq(lane_arrivals(fw.lane), LANE_ARRIVED_LARGE);
	}
	fw_send_type(&fw, 0, FRAME_PING);
	fw_feed(&fw, 0, SIZE_MAX);
	ck_assert_int_eq(lane_arrivals(fw.lane), LANE_ARRIVED_NOTHING);
	fw_close_peer(&fw, 0);
	fw_close_peer(&fw, 1);
	fw_close(&fw);
}
END_TEST

/* Sends PING of a rank. count: as in the PING that it answers. */
static void answer(struct fw_world *fw, unsigned rank, uint64_t count)
{
	fw_send(fw, rank, (struct frame){.type = FRAME_PING, .generation = FAKE_GENERATION, .of.count = count}, NULL);
	fw_feed_all(fw, SIZE_MAX);
}

/* Expects a PING that asks a rank, and returns its count. */
static uint64_t question_for(struct fw_world *fw, unsigned rank)
{
	struct frame f;

	fw_flush(fw);
	do
		f = fw_expect(fw, rank, FRAME_PING);
	while (!f.of.count);
	return f.of.count;
}

/* _i: before START, after it. */
START_TEST(a_rank_is_asked_whether_it_lives)
{
	struct fw_world fw;

	if (_i)
		fw_running(&fw, &(struct fw_options){0});
	else
		fw_attached(&fw, &(struct fw_options){0});
	answer(&fw, 1, 7);
	lane_ask(fw.lane, FAKE_JOB, 1, 1, 7);
	lane_ask(fw.lane, FAKE_JOB, 0, 0, 7);     /* not of this lane */
	lane_ask(fw.lane, FAKE_JOB + 1, 1, 0, 7); /* over */
	answer(&fw, 1, 7);                        /* it is not asked yet */
	ck_assert_uint_eq(fw.answered, 0);
	ck_assert_uint_eq(question_for(&fw, 1), 7);
	fw_expect_nothing(&fw, 0);
	answer(&fw, 1, 0); /* a worker that does not know questions */
	answer(&fw, 1, 1);
	answer(&fw, 1, 6);
	answer(&fw, 0, 7);
	ck_assert_uint_eq(fw.answered, 0);
	for (unsigned i = 0; i < 2; i++) {
		answer(&fw, 1, 7);
		ck_assert_uint_eq(fw.answered, 1);
	}
	ck_assert_uint_eq(fw.event.job, FAKE_JOB);
	ck_assert_uint_eq(fw.event.rank, 1);
	ck_assert_uint_eq(fw.event.lane, 1);
	ck_assert_uint_eq(fw.event.question, 7);
	/* the answer to the first question was on its way when the second one was
	 * asked */
	lane_ask(fw.lane, FAKE_JOB, 1, 1, 8);
	ck_assert_uint_eq(question_for(&fw, 1), 8);
	lane_ask(fw.lane, FAKE_JOB, 1, 1, 9);
	ck_assert_uint_eq(question_for(&fw, 1), 9);
	answer(&fw, 1, 8);
	ck_assert_uint_eq(fw.answered, 1);
	answer(&fw, 1, 9);
	ck_assert_uint_eq(fw.answered, 2);
	ck_assert_uint_eq(fw.event.question, 9);
	/* a rank that has left does not answer */
	fw_send_type(&fw, 1, FRAME_GOODBYE);
	fw_feed_all(&fw, SIZE_MAX);
	lane_ask(fw.lane, FAKE_JOB, 1, 1, 10);
	fw_flush(&fw);
	ck_assert_uint_eq(fw.answered, 2);
	fw_close_peer(&fw, 1);
	lane_ask(fw.lane, FAKE_JOB, 1, 1, 11);
	fw_close_peer(&fw, 0);
	fw_close(&fw);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("lane_flow");
	TCase *tc = tcase_create("flow");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, a_rank_is_asked_whether_it_lives, 0, 2);
	tcase_add_loop_test(tc, allocations_are_within_stripe_overhead, 0, 8);
	tcase_add_loop_test(tc, slots_are_used_again_within_the_bound, 0, 5);
	tcase_add_loop_test(tc, priorities_progress_independently, 0, 5);
	tcase_add_test(tc, the_ack_is_the_minimum_of_all_ranks);
	tcase_add_test(tc, arrivals_are_small_or_large);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
