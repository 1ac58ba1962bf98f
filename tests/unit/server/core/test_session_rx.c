/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of workers, and the end of a job. test_lane.c tests the sums. */
#include "tests/unit/fake_worker.h"

#include <check.h>
#include <string.h>

/* The difference between the headers of ranks 1 and 0, and the error for all ranks. */
static const struct {
	int dtype, op;
	unsigned count, name_hash;
	const char *a, *b;
	unsigned tensors[2]; /* of rank 0 and rank 1 */
} disagreements[] = {
    {RS_INT32,
     0,
     20,
     7,
     "rank 1 (host-1) called an all-reduce sum of 20 int32",
     "rank 0 (host-0) an all-reduce sum of 20 float32",
     {0, 0}},
    {RS_FLOAT32,
     RS_MAX,
     20,
     7,
     "rank 1 (host-1) called an all-reduce max",
     "rank 0 (host-0) an all-reduce sum",
     {0, 0}},
    {RS_FLOAT32, 0, 19, 7, "rank 1 (host-1) called an all-reduce sum of 19 float32", "rank 0 (host-0) an", {0, 0}},
    {RS_FLOAT32, 0, 20, 8, "rank 1 (host-1) gave it another name", "than rank 0 (host-0)", {0, 0}},
    {RS_FLOAT32,
     FRAME_OP_BROADCAST,
     20,
     7,
     "rank 1 (host-1) called a broadcast of 20 float32",
     "rank 0 (host-0) an all-reduce sum of 20 float32",
     {0, 0}},
    {RS_FLOAT32,
     0,
     20,
     8,
     "rank 1 (host-1) called an all-reduce sum of 20 float32 (group of 3 tensors)",
     "rank 0 (host-0) an all-reduce sum of 20 float32 (group of 2 tensors)",
     {2, 3}},
    {RS_FLOAT32,
     0,
     20,
     8,
     "rank 1 (host-1) gave its group of 2 tensors other counts or names",
     "than rank 0 (host-0)",
     {2, 2}},
};

START_TEST(ranks_that_disagree_are_both_named)
{
	struct fw_world fw;
	struct frame f, g;

	fw_running(&fw, &(struct fw_options){.world = 3});
	f = g = fw_data(&fw, RS_SUM, RS_FLOAT32, 4, 20, 0);
	f.of.name_hash = 7;
	g.of.dtype = (uint8_t)disagreements[_i].dtype;
	g.of.op = (uint8_t)disagreements[_i].op;
	g.of.count = disagreements[_i].count;
	g.of.name_hash = disagreements[_i].name_hash;
	f.of.tensors = disagreements[_i].tensors[0];
	g.of.tensors = disagreements[_i].tensors[1];
	fw_contribute(&fw, 0, f);
	fw_feed_all(&fw, 50);
	fw_contribute(&fw, 1, g);
	/* input after it is discarded */
	fw_contribute(&fw, 1, f);
	fw_feed_all(&fw, 50);
	fw_expect_end(&fw, RS_EMISMATCH, disagreements[_i].a, disagreements[_i].b);
}
END_TEST

/* Two operations with different priorities on two ranks: each rank sends the other one
 * first, and neither waits forever. _i: the first rank. */
START_TEST(ranks_that_disagree_about_a_priority_are_both_named)
{
	struct fw_world fw;
	struct frame f;

	fw_running(&fw, &(struct fw_options){.world = 2, .priorities = 2});
	for (unsigned k = 0; k < 2; k++) {
		unsigned r = k ^ (unsigned)_i;

		for (unsigned urgent = 2; urgent-- > 0;) {
			f = fw_data(&fw, RS_SUM, RS_FLOAT32, urgent ^ r ^ 1, 20, 0);
			f.of.priority = (uint8_t)urgent;
			fw_contribute(&fw, r, f);
		}
		fw_feed_all(&fw, 50);
	}
	fw_expect_end(&fw, RS_EMISMATCH,
		      _i ? "rank 0 (host-0) gave it priority 1" : "rank 1 (host-1) gave it priority 1",
		      _i ? "rank 1 (host-1) priority 0" : "rank 0 (host-0) priority 0");
}
END_TEST

START_TEST(a_broadcast_needs_one_root)
{
	struct fw_world fw;
	struct frame f;
	bool two = _i;

	fw_running(&fw, &(struct fw_options){.world = 3});
	f = fw_data(&fw, FRAME_OP_BROADCAST, RS_FLOAT32, 0, 20, 0);
	for (unsigned r = 0; r < 3; r++) {
		f.flags = two && r > 0 ? FRAME_ROOT : 0;
		fw_contribute(&fw, r, f);
	}
	fw_feed_all(&fw, 30);
	if (two)
		fw_expect_end(&fw, RS_EMISMATCH, "rank 1 (host-1)", "rank 2 (host-2)");
	else
		fw_expect_end(&fw, RS_EMISMATCH, "no rank says that it is the root of broadcast 0", "");
}
END_TEST

/* Rank 2 names another root; a rank that names none agrees with each. */
START_TEST(ranks_name_the_root_of_a_broadcast)
{
	struct fw_world fw;
	struct frame f;

	fw_running(&fw, &(struct fw_options){.world = 3});
	f = fw_data(&fw, FRAME_OP_BROADCAST, RS_FLOAT32, 0, 20, 0);
	for (unsigned r = 0; r < 3; r++) {
		f.flags = r == 0 ? FRAME_ROOT : 0;
		f.of.root = r == 0 ? 0 : r == 1 ? OPERATION_ANY_ROOT : 1;
		fw_contribute(&fw, r, f);
		fw_feed_all(&fw, 30);
	}
	fw_expect_end(&fw, RS_EMISMATCH, "rank 2 (host-2) called a broadcast of 20 float32 from rank 1",
		      "rank 0 (host-0) a broadcast of 20 float32 from rank 0");
}
END_TEST

enum field { DTYPE, OP, FLAGS, PRIORITY, CHUNK, CHUNK_ELEMS, LEN, GENERATION, TYPE };

/* One field of a valid header (20 float32 in chunks of 16) is changed. */
static const struct {
	enum field field;
	uint32_t value;
	const char *says;
} violations[] = {
    {DTYPE, 10, "dtype 10 is unknown"},
    {DTYPE, 15, "dtype 15 is unknown"},
    {OP, RS_OP_NR, "operation type 5 is unknown"},
    {OP, 17, "operation type 17 is unknown"},
    {FLAGS, FRAME_WIDE, "WIDE flag does not go with an all-reduce of float32"},
    {FLAGS, FRAME_ROOT, "ROOT flag goes with broadcasts and sharded"},
    {FLAGS, 16, "flags 0x10 are unknown"},
    {FLAGS, FRAME_RELAY, "a chunk is to be relayed, in a job that has not agreed on that"},
    {PRIORITY, 1, "priority 1 is beyond the job's highest, which is 0"},
    {PRIORITY, FRAME_PRIORITIES, "frame priority 4 is beyond 3"},
    {CHUNK, 2, "chunk 2 is past the end of 20 elements"},
    {CHUNK, UINT32_MAX, "is past the end"},
    {CHUNK_ELEMS, 0, "chunks of 64 bytes have 0 elements of float32 instead of 16"},
    {CHUNK_ELEMS, 15, "have 15 elements"},
    {CHUNK_ELEMS, 17, "have 17 elements"},
    {CHUNK_ELEMS, UINT32_MAX, "elements of float32 instead of 16"},
    {LEN, 0, "has 0 payload bytes instead of 64"},
    {LEN, 63, "has 63 payload bytes instead of 64"},
    {LEN, 65, "has 65 payload bytes instead of 64"},
    {LEN, UINT32_MAX, "announces 4294967295 payload bytes"},
    {GENERATION, FAKE_GENERATION + 1, "sent a frame of generation 6 in generation 5"},
    {TYPE, FRAME_HELLO, "sent a HELLO frame"},
    {TYPE, FRAME_WELCOME, "sent a WELCOME frame"},
    {TYPE, FRAME_START, "sent a START frame"},
    {TYPE, FRAME_RESULT, "sent a RESULT frame"},
    {TYPE, FRAME_WAITING, "sent a WAITING frame"},
    {TYPE, FRAME_PROBE, "sent a PROBE frame with 64 payload bytes, which was not asked for"},
    {TYPE, 25, "frame type 25 is unknown"},
    {TYPE, 0, "frame type 0 is unknown"},
};

static struct frame spoiled(struct frame f, enum field field, uint32_t value)
{
	switch (field) {
	case DTYPE:
		f.of.dtype = (uint8_t)value;
		break;
	case OP:
		f.of.op = (uint8_t)value;
		break;
	case FLAGS:
		f.flags = (uint8_t)value;
		break;
	case PRIORITY:
		f.of.priority = (uint8_t)value;
		break;
	case CHUNK:
		f.chunk = value;
		break;
	case CHUNK_ELEMS:
		f.chunk_elems = value;
		break;
	case LEN:
		f.payload_len = value;
		break;
	case GENERATION:
		f.generation = value;
		break;
	case TYPE:
		f.type = (uint8_t)value;
		break;
	}
	return f;
}

START_TEST(a_broken_protocol_ends_the_job)
{
	struct fw_world fw;
	uint8_t payload[128] = {0}, head[FRAME_HEADER];
	struct frame f;

	fw_running(&fw, &(struct fw_options){.world = 2});
	f = fw_data(&fw, RS_SUM, RS_FLOAT32, 0, 20, 0);
	f.payload_len = 64;
	f = spoiled(f, violations[_i].field, violations[_i].value);
	frame_encode(&f, head);
	fw_contribute(&fw, 0, fw_data(&fw, RS_SUM, RS_FLOAT32, 0, 20, 0));
	fw_send_bytes(&fw, 1, head, sizeof head);
	fw_send_bytes(&fw, 1, payload, sizeof payload);
	fw_feed_all(&fw, 70);
	fw_expect_end(&fw, RS_EPROTO, "rank 1 (host-1)", violations[_i].says);
}
END_TEST

START_TEST(random_bytes_end_the_job)
{
	static const struct {
		unsigned at;
		const char *says;
	} rows[] = {{0, "not frames of this protocol"}, {2, "version"}, {20, "checksum"}, {60, "checksum"}};
	struct fw_world fw;
	struct frame f = {.type = FRAME_PING, .generation = FAKE_GENERATION};
	uint8_t head[FRAME_HEADER];

	fw_running(&fw, &(struct fw_options){.world = 2});
	frame_encode(&f, head);
	head[rows[_i].at] ^= 0x40;
	fw_send_bytes(&fw, 1, head, sizeof head);
	fw_feed_all(&fw, 9);
	fw_expect_end(&fw, RS_EPROTO, "rank 1 (host-1)", rows[_i].says);
}
END_TEST

/* _i & 1: deterministic. _i & 2: the job has no checksums, but the frame has one. */
START_TEST(a_wrong_payload_checksum_ends_the_job)
{
	static const unsigned dtypes[] = {RS_FLOAT32, RS_FLOAT16};
	struct fw_world fw;
	size_t from;

	for (unsigned bad = 0; bad < 2; bad++)
		for (unsigned d = 0; d < 2; d++)
			for (size_t piece = 1; piece < 80; piece += 13) {
				fw_running(&fw, &(struct fw_options){.checksum = !(_i & 2), .deterministic = _i & 1});
				fw.params.checksum = true; /* of the workers */
				fw_contribute(&fw, !bad, fw_data(&fw, RS_SUM, dtypes[d], 2, 16, 0));
				fw_feed_all(&fw, piece);
				fw_contribute(&fw, bad, fw_data(&fw, RS_SUM, dtypes[d], 2, 16, 0));
				from = fw.w[bad].out.off;
				fw.w[bad].out.at[from + FRAME_HEADER + 5] ^= 1;
				fw_feed_all(&fw, piece);
				fw_expect_end(&fw, RS_EPROTO, bad ? "rank 1 (host-1)" : "rank 0 (host-0)",
					      "chunk 0 of operation 2 is wrong");
			}
}
END_TEST

START_TEST(a_missing_checksum_ends_the_job)
{
	struct fw_world fw;
	uint8_t payload[64] = {0};
	struct frame f;

	fw_running(&fw, &(struct fw_options){.checksum = true});
	f = fw_data(&fw, RS_SUM, RS_FLOAT32, 0, 16, 0);
	f.payload_len = sizeof payload;
	fw_send(&fw, 0, f, payload);
	fw_feed_all(&fw, 64);
	fw_expect_end(&fw, RS_EPROTO, "rank 0 (host-0)", "has no checksum");
}
END_TEST

START_TEST(an_operation_number_has_a_limit)
{
	struct fw_world fw;

	fw_running(&fw, &(struct fw_options){.world = 1});
	fw_contribute(&fw, 0, fw_data(&fw, RS_SUM, RS_FLOAT32, _i ? UINT64_MAX : FRAME_SEQ_MAX + 1, 16, 0));
	fw_feed_all(&fw, 64);
	fw_expect_end(&fw, RS_EPROTO, "rank 0 (host-0)", "is beyond the highest number, 2^63 - 1");
}
END_TEST

START_TEST(before_start_only_one_connection_closes)
{
	struct fw_world fw;
	struct frame f;

	fw_attached(&fw, &(struct fw_options){.world = 2});
	f = fw_data(&fw, RS_SUM, RS_FLOAT32, 0, 1, 0);
	if (_i)
		fw_send_bytes(&fw, 1, "GET / HTTP/1.1\r\nHost: localhost\r\nAccept: everything that there is\r\n\r\n",
			      68);
	else
		fw_contribute(&fw, 1, f);
	fw_feed_all(&fw, 17);
	fw_expect_abort(&fw, 1, RS_EPROTO, "rank 1 (host-1)", _i ? "not frames" : "sent DATA before START");
	fw_expect_nothing(&fw, 0);
	fw_close_peer(&fw, 1);
	ck_assert_uint_eq(fw.failed, 0);
	ck_assert_uint_eq(fw.gone, 1);
	ck_assert_uint_eq(fw.clean, 0);

	fw_attach(&fw, 1);
	fw_expect(&fw, 1, FRAME_WELCOME);
	lane_start(fw.lane, FAKE_JOB, &(struct lane_begin){.processes = 2});
	fw_flush(&fw);
	for (unsigned r = 0; r < 2; r++) {
		fw_expect(&fw, r, FRAME_START);
		fw_contribute(&fw, r, f);
	}
	fw_feed_all(&fw, 17);
	fw_expect_result(&fw, 0, f, 2);
	fw_expect_result(&fw, 1, f, 2);
	fw_close(&fw);
}
END_TEST

START_TEST(a_rank_that_leaves_before_start_may_return)
{
	struct fw_world fw;
	struct frame f;

	fw_attached(&fw, &(struct fw_options){.world = 2});
	fw_send_type(&fw, 1, FRAME_GOODBYE);
	fw_feed_all(&fw, 64);
	ck_assert(fw.w[1].shut);
	fw_close_peer(&fw, 1);
	ck_assert_uint_eq(fw.clean, 1);
	fw_attach(&fw, 1);
	fw_expect(&fw, 1, FRAME_WELCOME);
	lane_start(fw.lane, FAKE_JOB, &(struct lane_begin){.processes = 2});
	fw_flush(&fw);
	f = fw_data(&fw, RS_SUM, RS_FLOAT32, 0, 1, 0);
	for (unsigned r = 0; r < 2; r++) {
		fw_expect(&fw, r, FRAME_START);
		fw_contribute(&fw, r, f);
	}
	fw_feed_all(&fw, 64);
	fw_expect_result(&fw, 0, f, 2);
	fw_expect_result(&fw, 1, f, 2);
	fw_close(&fw);
}
END_TEST

START_TEST(an_operation_without_a_rank_that_left_fails)
{
	struct fw_world fw;

	fw_running(&fw, &(struct fw_options){.world = 3});
	fw_send_type(&fw, 1, FRAME_GOODBYE);
	fw_feed_all(&fw, 64);
	/* its connection may be open still, or closed */
	if (_i)
		fw_close_peer(&fw, 1);
	fw_send_type(&fw, 0, FRAME_PING);
	fw_feed_all(&fw, 64);
	ck_assert_uint_eq(fw.failed, 0);
	fw_contribute(&fw, 0, fw_data(&fw, RS_SUM, RS_FLOAT32, 6, 1, 0));
	fw_feed_all(&fw, 64);
	for (unsigned r = 0; r < 3; r += 2)
		fw_expect_abort(&fw, r, RS_ECLOSED, _i ? "rank 1" : "rank 1 (host-1)", "operation 6");
	fw_expect_nothing(&fw, 1);
	fw_close(&fw);
	ck_assert_uint_eq(fw.failed, 1);
}
END_TEST

/* The limit of control frames between two ticks, and one more (_i). */
START_TEST(a_flood_of_control_frames_ends_the_job)
{
	struct fw_world fw;

	fw_running(&fw, &(struct fw_options){.world = 2});
	for (unsigned round = 0; round < 2; round++) {
		for (unsigned i = 0; i < SESSION_CONTROLS; i++)
			fw_send_type(&fw, 1, FRAME_PING);
		fw_feed_all(&fw, 4096);
		ck_assert_uint_eq(fw.failed, 0);
		if (round == 0)
			fw_tick(&fw, LANE_TICK_MS);
	}
	if (_i)
		fw_send_type(&fw, 1, FRAME_PING);
	fw_feed_all(&fw, 4096);
	if (_i)
		fw_expect_abort(&fw, 0, RS_EPROTO, "rank 1 (host-1)", "more than 4096 control frames");
	ck_assert_uint_eq(fw.failed, _i);
	fw_close(&fw);
}
END_TEST

/* 0: with a contribution without a result; 1: while another rank waits for it; 2: both */
START_TEST(leaving_with_operations_pending_fails_them)
{
	struct fw_world fw;
	unsigned contributor = _i == 1 ? 0 : 1;

	fw_running(&fw, &(struct fw_options){.world = 2});
	fw_contribute(&fw, contributor, fw_data(&fw, RS_SUM, RS_FLOAT32, 0, 8, 0));
	fw_feed_all(&fw, SIZE_MAX);
	if (_i == 2)
		fw_contribute(&fw, 0, fw_data(&fw, RS_SUM, RS_FLOAT32, 0, 8, 0));
	fw_feed(&fw, 0, 64);
	fw_feed(&fw, 0, 10);
	fw_send_type(&fw, 1, FRAME_GOODBYE);
	fw_feed(&fw, 1, 64);
	fw_expect_end(&fw, RS_ECLOSED, "rank 1 (host-1)", "while operations were pending");
}
END_TEST

START_TEST(a_workers_abort_reaches_all_ranks_unchanged)
{
	struct fw_world fw;
	uint8_t payload[FRAME_CONTROL_MAX];
	struct frame f = {.type = FRAME_ABORT, .generation = FAKE_GENERATION};
	struct rs_err why;

	fw_running(&fw, &(struct fw_options){.world = 3});
	fw_contribute(&fw, 0, fw_data(&fw, RS_SUM, RS_FLOAT32, 0, 8, 0));
	rs_fail(&why, RS_EIO, "the disk of rank 7 is full");
	f.payload_len = control_pack_abort(payload, &why, NULL);
	if (_i) {
		f.payload_len = 3;
		memset(payload, 0xff, 3);
	}
	fw_send(&fw, 2, f, payload);
	fw_feed_all(&fw, 21);
	for (unsigned r = 0; r < 2; r++)
		fw_expect_abort(&fw, r, _i ? RS_EPEER : RS_EIO,
				_i ? "rank 2 (host-2) ended the job" : "the disk of rank 7 is full", "");
	fw_expect_nothing(&fw, 2);
	ck_assert(fw.w[2].shut);
	fw_close(&fw);
	ck_assert_uint_eq(fw.failed, 1);
}
END_TEST

/* _i: how many bytes of a contribution it sent before it was lost */
START_TEST(a_lost_rank_ends_a_running_job)
{
	struct fw_world fw;

	fw_running(&fw, &(struct fw_options){.world = 3, .deterministic = _i & 1, .checksum = _i & 2});
	fw_contribute(&fw, 0, fw_data(&fw, RS_SUM, RS_FLOAT32, 0, 8, 0));
	fw_contribute(&fw, 1, fw_data(&fw, RS_SUM, RS_FLOAT32, 0, 8, 0));
	fw_feed(&fw, 0, 20);
	for (size_t done = 0; done < (size_t)_i;)
		done += fw_feed(&fw, 1, (size_t)_i - done);
	fw_close_peer(&fw, 1);
	ck_assert_ptr_null(fw.w[1].session);
	fw_feed_all(&fw, 20);
	fw_expect_end(&fw, RS_EPEER, "rank 1 (host-1) was lost", "it closed the connection");
	ck_assert_uint_eq(fw.clean, 0);
}
END_TEST

START_TEST(the_stripe_ends_in_the_middle_of_payloads)
{
	struct fw_world fw;
	struct iovec iov[2];

	fw_running(&fw, &(struct fw_options){.world = 2, .chunk_bytes = 1024, .deterministic = _i});
	for (unsigned r = 0; r < 2; r++) {
		fw_contribute(&fw, r, fw_data(&fw, RS_SUM, RS_FLOAT64, 0, 128, 0));
		fw_feed(&fw, r, 64);
		fw_feed(&fw, r, 99);
	}
	/* also between target and received, if an event of another session ended the
	 * stripe */
	ck_assert_uint_gt(session_recv_target(fw.w[0].session, iov), 0);
	fw_abort(&fw, RS_ECLOSED, "generation 6 of job x has replaced generation 5");
	session_received(fw.w[0].session, 1, fw.now_ms);
	fw_flush(&fw);
	fw_feed_all(&fw, 100);
	for (unsigned r = 0; r < 2; r++)
		fw_expect_abort(&fw, r, RS_ECLOSED, "has replaced generation 5", "");
	fw_abort(&fw, RS_ECLOSED, "again");
	lane_start(fw.lane, FAKE_JOB, &(struct lane_begin){.processes = 2});
	lane_tell(fw.lane, FAKE_JOB, "x", 1);
	fw_flush(&fw);
	fw_close(&fw);
	/* the registry has it already */
	ck_assert_uint_eq(fw.failed, 0);
}
END_TEST

/* Frames with valid checksums and random fields, in pieces: only the job may fail. */
START_TEST(random_frames_are_harmless)
{
	static const uint8_t types[] = {FRAME_DATA, FRAME_DATA, FRAME_DATA, FRAME_PING, FRAME_ABORT, FRAME_GOODBYE};
	struct fw_world fw;

	for (uint32_t seed = 0; seed < 400; seed++) {
		uint8_t payload[256] = {0};

		fw_running(&fw, &(struct fw_options){.world = 3,
						     .window = 1 + seed % 3,
						     .priorities = 1 + seed % 4,
						     .deterministic = seed & 1,
						     .checksum = seed & 2});
		fw.random = seed * 977 + (uint32_t)_i;
		for (unsigned n = 0; n < 60; n++) {
			struct frame f = fw_data(&fw, fw_random(&fw, RS_OP_NR), fw_random(&fw, RS_DTYPE_NR),
						 fw_random(&fw, 4), fw_random(&fw, 60), fw_random(&fw, 3));
			unsigned rank = fw_random(&fw, 3);

			f.type = fw_random(&fw, 20) ? FRAME_DATA : types[fw_random(&fw, sizeof types)];
			f.ack = fw_random(&fw, 5);
			f.of.priority =
			    (uint8_t)(fw_random(&fw, 8) ? f.of.seq % fw.params.priorities : fw_random(&fw, 5));
			f.flags = fw_random(&fw, 8) ? 0 : (uint8_t)fw_random(&fw, 16);
			if (fw_random(&fw, 3))
				fw_contribute(&fw, rank, f);
			else
				fw_send(&fw, rank, spoiled(f, LEN, fw_random(&fw, sizeof payload)), payload);
		}
		fw_feed_shuffled(&fw, 90);
		must(fw.slots_seen_max <= 2 * fw.params.window * fw.params.priorities);
		fw_close(&fw);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("session_rx");
	TCase *tc = tcase_create("faults");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, ranks_that_disagree_are_both_named, 0, sizeof disagreements / sizeof disagreements[0]);
	tcase_add_loop_test(tc, ranks_that_disagree_about_a_priority_are_both_named, 0, 2);
	tcase_add_loop_test(tc, a_broadcast_needs_one_root, 0, 2);
	tcase_add_test(tc, ranks_name_the_root_of_a_broadcast);
	tcase_add_loop_test(tc, a_broken_protocol_ends_the_job, 0, sizeof violations / sizeof violations[0]);
	tcase_add_loop_test(tc, random_bytes_end_the_job, 0, 4);
	tcase_add_loop_test(tc, an_operation_number_has_a_limit, 0, 2);
	tcase_add_loop_test(tc, a_wrong_payload_checksum_ends_the_job, 0, 4);
	tcase_add_test(tc, a_missing_checksum_ends_the_job);
	tcase_add_loop_test(tc, before_start_only_one_connection_closes, 0, 2);
	tcase_add_test(tc, a_rank_that_leaves_before_start_may_return);
	tcase_add_loop_test(tc, an_operation_without_a_rank_that_left_fails, 0, 2);
	tcase_add_loop_test(tc, leaving_with_operations_pending_fails_them, 0, 3);
	tcase_add_loop_test(tc, a_workers_abort_reaches_all_ranks_unchanged, 0, 2);
	tcase_add_loop_test(tc, a_lost_rank_ends_a_running_job, 0, 97);
	tcase_add_loop_test(tc, the_stripe_ends_in_the_middle_of_payloads, 0, 2);
	tcase_add_loop_test(tc, a_flood_of_control_frames_ends_the_job, 0, 2);
	tcase_add_loop_test(tc, random_frames_are_harmless, 0, 3);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
