/* SPDX-License-Identifier: Apache-2.0 */
/* The chunks of an exchange: destination, order, number in flight, and that all bytes
 * arrive for any split into pieces. test_exchange.c tests joining, test_exchange_end.c
 * the end. */
#include "common/dtype.h"
#include "tests/unit/fake_ops.h"

#include <check.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char two_lanes[] = "reducers:\n"
				"  - {id: r0, address: \"127.0.0.1:1\", lanes: 2}\n"
				"  - {id: r1, address: \"127.0.0.1:2\", weight: 2}\n"
				"sharding: {shards: 11, chunk_bytes: 1024, window: 3}\n";
static const char one_lane[] = "reducers: [{id: r0, address: \"127.0.0.1:1\"}]\n"
			       "sharding: {shards: 1, chunk_bytes: 1024, window: 2}\n";
static const char checked[] = "job: {checksum: true}\n"
			      "reducers: [{id: r0, address: \"127.0.0.1:1\"}]\n"
			      "sharding: {shards: 1, chunk_bytes: 1024, window: 2}\n";

static unsigned link_of(const struct reducers *f, unsigned shard)
{
	unsigned link = rs_config_lane(&f->cfg, shard);

	for (unsigned r = 0; r < f->cfg.sharding.owner[shard]; r++)
		link += f->cfg.reducers[r].lanes;
	return link;
}

/* Every chunk is sent once, on the link of its shard, in the order (seq, chunk). */
START_TEST(chunks_go_to_the_reducer_of_their_shard)
{
	static const uint64_t counts[] = {100, 0, 256 * 40 + 1, 1, 256, 257, 256 * 11, 5000, 0, 256 * 3};
	enum { OPS = sizeof counts / sizeof counts[0] };
	unsigned at[REDUCERS_LINKS_MAX] = {0};
	struct fake_op ops[OPS];
	struct reducers f;
	float *x[OPS];

	reducers_open(&f, two_lanes, 2, 1000);
	for (unsigned q = 0; q < OPS; q++) {
		x[q] = ops_numbers(counts[q]);
		ops_submit_floats(&f, &ops[q], x[q], x[q], counts[q]);
	}
	reducers_pump(&f);
	for (unsigned q = 0; q < OPS; q++) {
		for (unsigned i = 0; i < frame_chunks(counts[q], 256); i++) {
			unsigned link = link_of(&f, (i + q) % 11);
			const struct frame *d = &f.l[link].data[at[link]++];

			ck_assert_uint_eq(d->of.seq, q);
			ck_assert_uint_eq(d->chunk, i);
			ck_assert_uint_eq(d->of.count, counts[q]);
			ck_assert_uint_eq(d->chunk_elems, 256);
		}
		ck_assert_int_eq(ops[q].done, 1);
		ck_assert_int_eq(ops[q].err.code, 0);
		ck_assert_uint_eq(ops[q].filled, counts[q]);
		ck_assert_uint_eq(ops[q].landed, counts[q]);
		ops_expect_tripled(x[q], counts[q]);
		free(x[q]);
	}
	for (unsigned i = 0; i < f.links_n; i++)
		ck_assert_uint_eq(at[i], f.l[i].data_n);
	ck_assert_uint_eq(exchange_ops_done(f.x), OPS);
	reducers_close(&f);
}
END_TEST

START_TEST(the_window_bounds_chunks_in_flight)
{
	float *x = ops_numbers(256 * 30);
	struct reducers f;
	struct fake_op o;

	reducers_open(&f, two_lanes, 2, 1000);
	f.answer = false;
	ops_submit_floats(&f, &o, x, x, 256 * 30);
	reducers_pump(&f);
	for (unsigned i = 0; i < f.links_n; i++)
		ck_assert_uint_eq(f.l[i].data_n, 3);
	while (!o.done) {
		for (unsigned i = 0; i < f.links_n; i++) {
			unsigned before = f.l[i].data_n;

			if (f.l[i].answered == before)
				continue;
			reducers_answer(&f, i);
			reducers_pump(&f);
			ck_assert_uint_le(f.l[i].data_n, before + 1);
			ck_assert_uint_le(f.l[i].data_n, f.l[i].answered + 3);
		}
	}
	ops_expect_tripled(x, 256 * 30);
	reducers_close(&f);
	free(x);
}
END_TEST

/* Two and a half chunks and an empty operation. */
static void reduce_in_pieces(const char *yaml, size_t piece)
{
	size_t n = 256 * 2 + 100;
	float *x = ops_numbers(n), *y = calloc(n, sizeof *y);
	struct fake_op in_place, apart, empty;
	struct reducers f;

	reducers_open(&f, yaml, 2, 1000);
	f.piece = piece;
	ops_submit_floats(&f, &apart, x, y, n);
	ops_submit_floats(&f, &empty, x, x, 0);
	reducers_pump(&f);
	ops_submit_floats(&f, &in_place, x, x, n);
	reducers_pump(&f);
	ck_assert(apart.done && in_place.done && empty.done);
	ops_expect_tripled(y, n);
	ops_expect_tripled(x, n);
	reducers_close(&f);
	free(x);
	free(y);
}

/* Moved in pieces of every length up to more than a whole frame. */
START_TEST(every_split)
{
	for (size_t piece = 1; piece < FRAME_HEADER + 1024 + 70; piece++)
		reduce_in_pieces(_i ? checked : one_lane, piece);
}
END_TEST

/* Many operations, random pieces, links in random order. */
START_TEST(random_schedules)
{
	enum { OPS = 40 };
	struct reducers f;
	struct fake_op ops[OPS];
	float *x[OPS];

	reducers_open(&f, two_lanes, 2, 1000);
	f.random = (uint32_t)_i * 2654435761u + 1;
	for (unsigned q = 0; q < OPS; q++) {
		uint64_t count = (f.random + q * 977) % 3000;

		x[q] = ops_numbers(count);
		ops_submit(&f, &ops[q],
			   (struct exchange_op){.send = x[q],
						.recv = x[q],
						.of.count = count,
						.of.dtype = RS_FLOAT32,
						.of.priority = (int)(f.random % 4) - 1});
		for (unsigned i = 0; i < q % 7; i++)
			reducers_step(&f, i % f.links_n);
	}
	reducers_pump(&f);
	for (unsigned q = 0; q < OPS; q++) {
		ck_assert_msg(ops[q].done == 1 && ops[q].err.code == 0, "seed %d, operation %u: %s", _i, q,
			      ops[q].err.msg);
		ops_expect_tripled(x[q], ops[q].op.of.count);
		free(x[q]);
	}
	reducers_close(&f);
}
END_TEST

/* Two links with every other chunk each: the link whose reducer answers waits for the
 * other one, and continues by itself when the other one has its result. */
START_TEST(links_stay_in_step)
{
	enum { CHUNKS = 64 };
	float *x = ops_numbers(256 * CHUNKS);
	struct reducers f;
	struct fake_op o;

	reducers_open(&f,
		      "reducers: [{id: r0, address: \"127.0.0.1:1\"}, {id: r1, address: \"127.0.0.1:2\"}]\n"
		      "sharding: {shards: 2, chunk_bytes: 1024, window: 64}\n",
		      2, 1000);
	f.answer = false;
	ops_submit_floats(&f, &o, x, x, 256 * CHUNKS);
	reducers_pump(&f);
	while (f.l[0].answered < f.l[0].data_n) {
		reducers_answer(&f, 0);
		reducers_pump(&f);
	}
	ck_assert_msg(f.l[0].data_n == 9, "chunks 0 to 16 are within 16 of chunk 1, %u went out", f.l[0].data_n);
	reducers_answer(&f, 1);
	reducers_pump(&f);
	ck_assert_msg(f.l[0].data_n == 10, "chunk 18 is within 16 of chunk 3, %u went out", f.l[0].data_n);
	f.answer = true;
	for (unsigned l = 0; l < 2; l++)
		while (f.l[l].answered < f.l[l].data_n)
			reducers_answer(&f, l);
	reducers_pump(&f);
	ck_assert(o.done);
	ops_expect_tripled(x, 256 * CHUNKS);
	reducers_close(&f);
	free(x);
}
END_TEST

START_TEST(payloads_are_not_copied)
{
	float *x = ops_numbers(512), *y = calloc(512, sizeof *y);
	struct iovec iov[8];
	struct reducers f;
	struct frame h;
	struct fake_op o;
	void *payload;

	reducers_open(&f, one_lane, 2, 1000);
	reducers_pump(&f);
	f.answer = false;
	ops_submit_floats(&f, &o, x, y, 512);
	ck_assert_uint_eq(exchange_send_target(f.x, 0, iov, 8), 4);
	ck_assert_ptr_eq(iov[1].iov_base, x);
	ck_assert_ptr_eq(iov[3].iov_base, x + 256);
	ck_assert_uint_eq(iov[3].iov_len, 1024);
	reducers_pump(&f);
	reducers_result(&f, 0, 0, &h, &payload);
	reducers_say(&f, 0, &h, payload);
	f.piece = FRAME_HEADER;
	ck_assert(reducers_step(&f, 0));
	/* the payload, and the next header with the same system call */
	ck_assert_uint_eq(exchange_recv_target(f.x, 0, iov), 2);
	ck_assert_ptr_eq(iov[0].iov_base, y);
	ck_assert_uint_eq(iov[0].iov_len, 1024);
	ck_assert_uint_eq(iov[1].iov_len, FRAME_HEADER);
	exchange_abort(f.x, RS_ECLOSED, "enough", f.now_ms);
	reducers_pump(&f);
	reducers_close(&f);
	free(x);
	free(y);
}
END_TEST

/* Chunks of 256 elements, two of which fit the rings: only filled ones are sent, and
 * results wrap around too. */
START_TEST(only_filled_data_is_sent)
{
	float *x = ops_numbers(512), *y = calloc(512, sizeof *y);
	_Atomic uint64_t ready = 255;
	struct reducers f;
	struct fake_op o;

	reducers_open(&f, one_lane, 2, 1000);
	reducers_pump(&f);
	ops_submit(&f, &o,
		   (struct exchange_op){.send = x,
					.recv = y,
					.of.count = 1100,
					.of.dtype = RS_FLOAT32,
					.ready = &ready,
					.send_ring = 2048,
					.recv_ring = 2048});
	for (unsigned chunk = 0; chunk < 5; chunk++) {
		uint64_t end = chunk < 4 ? 256 * (chunk + 1) : 1100;

		atomic_store(&ready, end - 1);
		exchange_poke(f.x);
		reducers_pump(&f);
		ck_assert_uint_eq(f.l[0].data_n, chunk);
		x[chunk % 2 * 256] = (float)chunk;
		atomic_store(&ready, end);
		ck_assert(!exchange_links_changed(f.x));
		exchange_poke(f.x);
		reducers_pump(&f);
		ck_assert_uint_eq(f.l[0].data_n, chunk + 1);
		ck_assert_uint_eq(o.landed, end);
		ck_assert_float_eq(y[chunk % 2 * 256], 3 * (float)chunk);
	}
	ck_assert_int_eq(o.done, 1);
	exchange_goodbye(f.x, f.now_ms);
	reducers_pump(&f);
	reducers_close(&f);
	free(x);
	free(y);
}
END_TEST

/* Several chunks in one system call, up to window and number of iovecs. */
START_TEST(sends_are_gathered)
{
	static const struct {
		unsigned max, want;
	} rows[] = {{3, 2}, {4, 4}, {5, 4}, {6, 6}, {7, 6}, {64, 6}};
	struct iovec iov[64];
	struct reducers f;
	struct fake_op o;
	float *x = ops_numbers(256 * 30);

	reducers_open(&f, two_lanes, 2, 1000);
	reducers_pump(&f);
	ops_submit_floats(&f, &o, x, x, 256 * 30);
	for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++)
		ck_assert_uint_eq(exchange_send_target(f.x, 1, iov, rows[i].max), rows[i].want);
	reducers_pump(&f);
	ck_assert(o.done);
	reducers_close(&f);
	free(x);
}
END_TEST

START_TEST(broadcasts)
{
	bool root = _i % 2;
	uint8_t x[2500];
	struct reducers f;
	struct fake_op o;

	memset(x, 0xaa, sizeof x);
	reducers_open(&f, _i / 2 ? checked : one_lane, 2, 1000);
	ops_submit(&f, &o,
		   (struct exchange_op){.send = x,
					.recv = x,
					.of.count = sizeof x,
					.of.dtype = RS_UINT8,
					.of.op = FRAME_OP_BROADCAST,
					.root = root});
	reducers_pump(&f);
	ck_assert_int_eq(o.done, 1);
	ck_assert_int_eq(o.err.code, 0);
	ck_assert_uint_eq(o.filled, root ? sizeof x : 0);
	ck_assert_uint_eq(o.landed, sizeof x);
	for (unsigned i = 0; i < sizeof x; i++)
		ck_assert_uint_eq(x[i], root ? 0xaa : i / 1024 + 1);
	for (unsigned i = 0; i < 3; i++) {
		const struct frame *d = &f.l[0].data[i];

		ck_assert_uint_eq(d->payload_len, root ? (i < 2 ? 1024 : 452) : 0);
		ck_assert_uint_eq(d->flags & FRAME_ROOT, root ? FRAME_ROOT : 0);
		ck_assert_uint_eq(d->flags & FRAME_CHECKED, root && _i / 2 ? FRAME_CHECKED : 0);
	}
	reducers_close(&f);
}
END_TEST

/* Operations without bytes, which are retained like any result. */
START_TEST(an_empty_broadcast)
{
	struct reducers f;
	struct fake_op o;

	reducers_open(&f, two_lanes, 2, 1000);
	ops_submit(&f, &o, (struct exchange_op){.of.dtype = RS_UINT8, .of.op = FRAME_OP_BROADCAST, .root = _i});
	reducers_pump(&f);
	ck_assert_int_eq(o.done, 1);
	ck_assert_int_eq(o.err.code, 0);
	reducers_close(&f);
}
END_TEST

/* Partial sums are sent as float32, results received as halves. */
START_TEST(wide_contributions)
{
	size_t n = 512 + 7;
	float *x = ops_numbers(n);
	uint16_t *y = calloc(n, sizeof *y);
	struct reducers f;
	struct fake_op o;

	reducers_open(&f, one_lane, 2, 1000);
	ops_submit(&f, &o,
		   (struct exchange_op){.send = x, .recv = y, .of.count = n, .of.dtype = RS_FLOAT16, .wide = true});
	reducers_pump(&f);
	ck_assert_int_eq(o.done, 1);
	ck_assert_uint_eq(f.l[0].data[0].payload_len, 2048);
	ck_assert_uint_eq(f.l[0].data[0].flags, FRAME_WIDE);
	ck_assert_uint_eq(f.l[0].data[1].payload_len, 28);
	for (size_t i = 0; i < n; i++)
		ck_assert_uint_eq(y[i], 3 * (i % 1000 + 1));
	reducers_close(&f);
	free(x);
	free(y);
}
END_TEST

/* Every frame of a worker carries what it has completed. */
START_TEST(acks_follow_the_oldest_operation)
{
	struct reducers f;
	struct fake_op ops[4];
	float *x = ops_numbers(1024);

	reducers_open(&f, one_lane, 2, 1000);
	ops_submit_floats(&f, &ops[0], x, x, 256);
	reducers_pump(&f);
	f.answer = false;
	ops_submit_floats(&f, &ops[1], x, x, 256);
	ops_submit_floats(&f, &ops[2], x + 256, x + 256, 256);
	reducers_pump(&f);
	ck_assert_uint_eq(f.l[0].data[2].ack, 1);
	reducers_answer(&f, 0);
	reducers_pump(&f);
	ops_submit_floats(&f, &ops[3], x + 512, x + 512, 256);
	reducers_pump(&f);
	ck_assert_uint_eq(f.l[0].data[3].of.seq, 3);
	ck_assert_uint_eq(f.l[0].data[3].ack, 2);
	reducers_answer(&f, 0);
	reducers_answer(&f, 0);
	reducers_pump(&f);
	ck_assert(ops[3].done);
	reducers_close(&f);
	free(x);
}
END_TEST

static void wrong_seq(struct frame *h)
{
	h->of.seq = 8;
}

static void wrong_chunk(struct frame *h)
{
	h->chunk = 1;
}

static void wrong_count(struct frame *h)
{
	h->of.count++;
}

static void wrong_elems(struct frame *h)
{
	h->chunk_elems--;
}

static void wrong_dtype(struct frame *h)
{
	h->of.dtype = RS_INT32;
}

static void wrong_op(struct frame *h)
{
	h->of.op = RS_AVG;
}

static void wrong_length(struct frame *h)
{
	h->payload_len -= 4;
}

static void wrong_wide(struct frame *h)
{
	h->flags |= FRAME_WIDE;
}

static void wrong_root(struct frame *h)
{
	h->flags |= FRAME_ROOT;
}

static void wrong_priority(struct frame *h)
{
	h->of.priority = 3;
}

static void wrong_unchecked(struct frame *h)
{
	h->flags = 0;
}

static void wrong_checksum(struct frame *h)
{
	h->payload_sum ^= 1;
}

/* A RESULT other than the expected one ends the exchange. */
static const struct {
	void (*spoil)(struct frame *h);
	const char *says;
	bool checked, written; /* the job has checksums; the payload was stored before the error was found */
} wrong[] = {
    {wrong_seq, "operation 8, expected chunk 0 of operation 0", false, false},
    {wrong_chunk, "chunk 1 of operation 0, expected chunk 0", false, false},
    {wrong_count, "count 513", false, false},
    {wrong_elems, "bytes of float32", false, false},
    {wrong_dtype, "of int32", false, false},
    {wrong_op, "op 4", false, false},
    {wrong_length, "is 1020 bytes", false, false},
    {wrong_wide, "flags 0x1", false, false},
    {wrong_root, "flags 0x2", false, false},
    {wrong_priority, "it sent a result of priority 3, the job's highest is 1", false, false},
    {wrong_unchecked, "checksum, count 512", true, false},
    {wrong_checksum, "checksum of the result of chunk 0 of operation 0 is wrong", true, true},
};

START_TEST(wrong_results)
{
	float *x = ops_numbers(512), *y = calloc(512, sizeof *y);
	struct reducers f;
	struct frame h;
	struct fake_op o;
	void *payload;

	reducers_open(&f, wrong[_i].checked ? checked : one_lane, 2, 1000);
	f.answer = false;
	ops_submit_floats(&f, &o, x, y, 512);
	reducers_pump(&f);
	reducers_result(&f, 0, 0, &h, &payload);
	wrong[_i].spoil(&h);
	reducers_say(&f, 0, &h, payload);
	reducers_pump(&f);
	ck_assert_int_eq(o.done, 1);
	ck_assert_int_eq(o.err.code, RS_EPROTO);
	ck_assert_msg(strstr(o.err.msg, wrong[_i].says) != NULL, "%s instead of %s", o.err.msg, wrong[_i].says);
	ck_assert_ptr_nonnull(strstr(o.err.msg, "reducer r0 (127.0.0.1:1): "));
	ck_assert_uint_eq(f.l[0].aborts, 1);
	ck_assert_int_eq(exchange_state(f.x), EXCHANGE_ENDED);
	for (unsigned i = 0; !wrong[_i].written && i < 512; i++)
		ck_assert(y[i] == 0);
	reducers_close(&f);
	free(x);
	free(y);
}
END_TEST

/* "A result that streams into the send buffer is legal only when the contribution was
 * sent": a result for a chunk whose last byte has not been sent is a violation. */
START_TEST(no_result_before_its_contribution)
{
	float *x = ops_numbers(256);
	struct reducers f;
	struct fake_op o;
	struct frame h = {
	    .type = FRAME_RESULT, .of.dtype = RS_FLOAT32, .of.count = 256, .chunk_elems = 256, .payload_len = 1024};

	reducers_open(&f, one_lane, 2, 1000);
	reducers_pump(&f);
	ops_submit_floats(&f, &o, x, x, 256);
	f.piece = FRAME_HEADER + 1023;
	reducers_step(&f, 0);
	f.mute = true;
	reducers_say(&f, 0, &h, x);
	reducers_pump(&f);
	ck_assert_int_eq(exchange_error(f.x)->code, RS_EPROTO);
	ck_assert_ptr_nonnull(strstr(exchange_error(f.x)->msg, "before this rank sent its contribution"));
	/* the frame in progress is completed first: its memory stays in use until then */
	ck_assert_int_eq(o.done, 0);
	f.mute = false;
	reducers_pump(&f);
	ck_assert_int_eq(o.done, 1);
	ck_assert_uint_eq(f.l[0].data_n, 1);
	ck_assert_uint_eq(f.l[0].aborts, 1);
	reducers_close(&f);
	free(x);
}
END_TEST

#define COUNT(a) (int)(sizeof(a) / sizeof(a)[0])

int main(void)
{
	Suite *suite = suite_create("link");
	TCase *tc = tcase_create("chunks");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, chunks_go_to_the_reducer_of_their_shard);
	tcase_add_test(tc, the_window_bounds_chunks_in_flight);
	tcase_add_loop_test(tc, every_split, 0, 2);
	tcase_add_loop_test(tc, random_schedules, 0, 100);
	tcase_add_test(tc, links_stay_in_step);
	tcase_add_test(tc, payloads_are_not_copied);
	tcase_add_test(tc, only_filled_data_is_sent);
	tcase_add_test(tc, sends_are_gathered);
	tcase_add_loop_test(tc, broadcasts, 0, 4);
	tcase_add_loop_test(tc, an_empty_broadcast, 0, 2);
	tcase_add_test(tc, wide_contributions);
	tcase_add_test(tc, acks_follow_the_oldest_operation);
	tcase_add_loop_test(tc, wrong_results, 0, COUNT(wrong));
	tcase_add_test(tc, no_result_before_its_contribution);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
