/* SPDX-License-Identifier: Apache-2.0 */
/* The recorder: records as bytes, and the trace of a lane on which three ranks sum. */
#include "server/core/lane_trace.h"
#include "tests/unit/fake_worker.h"

#include <stdlib.h>
#include <string.h>

static struct trace *new_trace(uint64_t from, uint32_t operations, uint32_t records)
{
	struct trace_request r = {.ranges = {{.job = "a", .id = FAKE_JOB, .from = from}}, .ranges_n = 1};
	struct trace *t;

	r.operations = operations;
	t = trace_new(&r, records);
	must(t);
	return t;
}

START_TEST(records_as_bytes)
{
	static const struct trace_record r = {
	    .at_us = 1ull << 40, .seq = 812, .chunk = 3, .bytes = 65536, .rank = 4095, .source = 2, .kind = TRACE_SENT};
	uint8_t bytes[TRACE_RECORD];
	struct trace_record got;

	trace_encode(&r, bytes);
	ck_assert(trace_decode(&got, bytes, 3));
	ck_assert_uint_eq(got.at_us, r.at_us);
	ck_assert_uint_eq(got.seq, r.seq);
	ck_assert_uint_eq(got.chunk, r.chunk);
	ck_assert_uint_eq(got.bytes, r.bytes);
	ck_assert_uint_eq(got.rank, r.rank);
	ck_assert_uint_eq(got.source, r.source);
	ck_assert_uint_eq(got.kind, r.kind);
	ck_assert(!trace_decode(&got, bytes, 2)); /* no such source */
	bytes[28] = TRACE_KINDS;
	ck_assert(!trace_decode(&got, bytes, 3));
	bytes[28] = TRACE_SENT;
	bytes[29] = 1;
	ck_assert(!trace_decode(&got, bytes, 3));
}
END_TEST

/* All ranks send an operation of two chunks and take its results. */
static void sum(struct fw_world *fw, uint64_t seq)
{
	struct frame f = fw_data(fw, RS_SUM, RS_FLOAT32, seq, 32, 0);
	const uint8_t *payload;
	struct frame got;

	f.ack = seq; /* they have the results of all earlier ones */
	lane_set_us(fw->lane, 1000 * (seq + 1));
	for (unsigned r = 0; r < 3; r++)
		fw_contribute_all(fw, r, f);
	fw_feed_all(fw, 1000);
	for (unsigned r = 0; r < 3; r++)
		while (fw_take(fw, r, &got, &payload))
			;
}

static unsigned count(const struct trace *t, enum trace_kind kind, uint64_t seq)
{
	unsigned n = 0;

	for (uint32_t i = 0; i < t->n; i++)
		n += t->records[i].kind == kind && t->records[i].seq == seq;
	return n;
}

START_TEST(a_lane_records_operations)
{
	struct trace *t = new_trace(2, 2, 100);
	struct fw_world fw;

	fw_running(&fw, &(struct fw_options){.world = 3, .detect_ms = 3600000});
	sum(&fw, 0);
	sum(&fw, 1);
	lane_trace_begin(fw.lane, t);
	ck_assert(!t->missed);
	ck_assert_uint_eq(t->sources_n, 1);
	ck_assert_uint_eq(t->sources[0].next, 2);
	ck_assert_uint_eq(t->sources[0].world_size, 3);
	sum(&fw, 2);
	sum(&fw, 3);
	ck_assert(!lane_trace_done(fw.lane)); /* nobody has said that it has the results of operation 3 */
	sum(&fw, 4);
	ck_assert(lane_trace_done(fw.lane));
	ck_assert_uint_eq(t->done, 1);
	ck_assert_ptr_eq(lane_trace_end(fw.lane), t);
	sum(&fw, 5);
	ck_assert_uint_eq(t->dropped, 0);
	ck_assert_uint_eq(t->n, 2 * 2 * (3 * 3 + 1));
	for (uint64_t seq = 2; seq < 4; seq++) {
		ck_assert_uint_eq(count(t, TRACE_BEGUN, seq), 6);
		ck_assert_uint_eq(count(t, TRACE_COMPLETE, seq), 6);
		ck_assert_uint_eq(count(t, TRACE_SUMMED, seq), 2);
		ck_assert_uint_eq(count(t, TRACE_RETURNED, seq), 6);
	}
	for (uint32_t i = 0; i < t->n; i++)
		ck_assert_uint_eq(t->records[i].at_us, 1000 * (t->records[i].seq + 1));
	trace_free(t);
	fw_close(&fw);
}
END_TEST

START_TEST(a_full_trace_counts_the_rest)
{
	struct trace *t = new_trace(0, 1, 7);
	struct fw_world fw;

	fw_running(&fw, &(struct fw_options){.world = 3, .detect_ms = 3600000});
	lane_trace_begin(fw.lane, t);
	sum(&fw, 0);
	ck_assert_uint_eq(t->n, 7);
	ck_assert_uint_eq(t->dropped, 2 * (3 * 3 + 1) - 7);
	trace_free(lane_trace_end(fw.lane));
	fw_close(&fw);
}
END_TEST

START_TEST(an_operation_that_has_begun_is_missed)
{
	struct trace *t = new_trace(1, 1, 100);
	struct fw_world fw;

	fw_running(&fw, &(struct fw_options){.world = 3, .detect_ms = 3600000});
	fw_contribute(&fw, 1, fw_data(&fw, RS_SUM, RS_FLOAT32, 1, 16, 0));
	fw_feed_all(&fw, 1000);
	lane_trace_begin(fw.lane, t);
	ck_assert(t->missed);
	ck_assert_uint_eq(t->sources[0].next, 2);
	ck_assert(lane_trace_done(fw.lane));
	ck_assert_uint_eq(t->done, 0);
	trace_free(lane_trace_end(fw.lane));
	fw_close(&fw);
}
END_TEST

/* A trace outlives the job that it records, and knows nothing of other jobs. */
START_TEST(jobs_come_and_go)
{
	struct trace *t = new_trace(0, 1, 100);
	struct fw_world fw;

	t->ranges[0].id = FAKE_JOB + 1;
	fw_running(&fw, &(struct fw_options){.world = 3, .detect_ms = 3600000});
	lane_trace_begin(fw.lane, t);
	ck_assert_uint_eq(t->sources_n, 0);
	ck_assert(lane_trace_done(fw.lane));
	sum(&fw, 0);
	ck_assert_uint_eq(t->n, 0);
	trace_free(lane_trace_end(fw.lane));
	t = new_trace(1, 1, 100);
	lane_trace_begin(fw.lane, t);
	ck_assert(!lane_trace_done(fw.lane));
	for (unsigned r = 0; r < 3; r++)
		fw_close_peer(&fw, r);
	fw_flush(&fw);
	ck_assert(lane_trace_done(fw.lane));
	ck_assert_uint_eq(t->done, 1);
	trace_free(lane_trace_end(fw.lane));
	fw_close(&fw);
}
END_TEST

START_TEST(sums_end_with_their_call)
{
	static const enum trace_kind kinds[] = {TRACE_SUMMED, TRACE_BEGUN, TRACE_SUMMED};
	struct trace *t = new_trace(0, 1, 100);

	for (unsigned i = 0; i < 3; i++) {
		if (i == 1)
			t->mark = t->n; /* the first one belongs to another call */
		trace_put(t, &(struct trace_record){.at_us = 50, .kind = kinds[i]});
	}
	trace_worked(t, 7999);
	ck_assert_uint_eq(t->records[0].at_us, 50);
	ck_assert_uint_eq(t->records[1].at_us, 50);
	ck_assert_uint_eq(t->records[2].at_us, 57);
	trace_worked(t, 7999); /* once only */
	ck_assert_uint_eq(t->records[2].at_us, 57);
	trace_free(t);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("trace");
	TCase *tc = tcase_create("trace");
	SRunner *sr;
	int failed;

	tcase_add_test(tc, records_as_bytes);
	tcase_add_test(tc, a_lane_records_operations);
	tcase_add_test(tc, a_full_trace_counts_the_rest);
	tcase_add_test(tc, an_operation_that_has_begun_is_missed);
	tcase_add_test(tc, jobs_come_and_go);
	tcase_add_test(tc, sums_end_with_their_call);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
