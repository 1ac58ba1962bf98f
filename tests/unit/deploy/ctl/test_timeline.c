/* SPDX-License-Identifier: Apache-2.0 */
/* Timelines: clocks that differ are aligned, chunks become slices, and wrong answers are
 * refused. */
#include "common/host/service/service_pack.h"
#include "deploy/ctl/timeline.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { RANK = 1, WIRE_US = 40, STEP_US = 100 };

/* Adds the trace of a process to a timeline, over the wire. */
static int add(struct timeline *t, unsigned process, const struct trace *trace, bool worker, struct rs_err *e)
{
	struct service_bytes b = service_pack_trace(trace, 0, worker);
	Reduction__V1__TraceReply *m = reduction__v1__trace_reply__unpack(NULL, b.len, b.at);
	int rc;

	ck_assert_ptr_nonnull(m);
	rc = timeline_add(t, process, m, e);
	reduction__v1__trace_reply__free_unpacked(m, NULL);
	free(b.at);
	return rc;
}

static struct trace *new_trace(void)
{
	struct trace_request r = {.ranges = {{.job = "a\"b", .from = 0}}, .ranges_n = 1, .operations = 10};
	struct trace *t = trace_new(&r, 100);

	ck_assert_ptr_nonnull(t);
	ck_assert_int_eq(trace_add_source(t, 0, 3, 2, 0), 0);
	t->done = 1;
	return t;
}

static void put(struct trace *t, enum trace_kind kind, uint64_t seq, int64_t at)
{
	trace_put(t, &(struct trace_record){.at_us = (uint64_t)at,
					    .seq = seq,
					    .chunk = 7,
					    .bytes = 64,
					    .rank = kind == TRACE_SUMMED ? 0 : RANK,
					    .kind = kind});
}

/* A chunk of each of `ops` operations, from a worker to a reducer whose clock is
 * `ahead`. */
static void fill(struct trace *worker, struct trace *reducer, unsigned ops, int64_t ahead)
{
	for (unsigned i = 0; i < ops; i++) {
		int64_t at = 1000000 + i * 10 * STEP_US;

		put(worker, TRACE_SENDING, i, at);
		put(worker, TRACE_SENT, i, at + 10);
		put(reducer, TRACE_BEGUN, i, at + WIRE_US - 5 + ahead);
		put(reducer, TRACE_COMPLETE, i, at + WIRE_US + ahead);
		put(reducer, TRACE_SUMMED, i, at + WIRE_US + STEP_US + ahead);
		put(reducer, TRACE_RETURNED, i, at + WIRE_US + STEP_US + 30 + ahead);
		put(worker, TRACE_RESULT, i, at + WIRE_US + STEP_US + WIRE_US);
	}
}

static void init(struct timeline *t)
{
	struct rs_err e;

	ck_assert_int_eq(timeline_init(t, 2, &e), RS_OK);
	strcpy(t->processes[0].name, "reducer r0");
	strcpy(t->processes[1].name, "agent");
}

static const struct {
	int64_t ahead;       /* the reducer's clock before the worker's */
	int64_t least, most; /* what questions say of the reducer */
	bool consistent;
	int64_t error;
} clocks[] = {
    {0, -500, 500, true, WIRE_US + 1},
    {12345678, 12345000, 12346000, true, WIRE_US + 1}, /* chunks say it more exactly than questions */
    {-900000, -900500, -899500, true, WIRE_US + 1},
    {300, 290, 305, true, 12},      /* questions say it more exactly */
    {5000, -500, 500, false, 1000}, /* they contradict each other */
};

START_TEST(clocks_are_aligned)
{
	struct trace *worker = new_trace(), *reducer = new_trace();
	struct timeline t;
	struct rs_err e;

	init(&t);
	fill(worker, reducer, 3, clocks[_i].ahead);
	t.processes[0].least_us = clocks[_i].least;
	t.processes[0].most_us = clocks[_i].most;
	t.processes[1].least_us = clocks[_i].error == 12 ? -5 : -500;
	t.processes[1].most_us = clocks[_i].error == 12 ? 5 : 500;
	ck_assert_int_eq(add(&t, 0, reducer, false, &e), RS_OK);
	ck_assert_int_eq(add(&t, 1, worker, true, &e), RS_OK);
	ck_assert_int_eq(timeline_join(&t, &e), RS_OK);
	ck_assert_uint_eq(t.spans_n, 6);
	ck_assert_int_eq(timeline_align(&t, &e), RS_OK);
	ck_assert_int_eq(t.consistent, clocks[_i].consistent);
	ck_assert_int_eq(t.processes[0].error_us, 0);
	ck_assert_int_le(t.processes[1].error_us, clocks[_i].error + 1);
	ck_assert_int_eq(timeline_error_us(&t), t.processes[1].error_us);
	if (t.consistent) {
		int64_t difference = t.processes[0].offset_us - t.processes[1].offset_us;

		ck_assert_int_le(llabs(difference - clocks[_i].ahead), t.processes[1].error_us);
	}
	timeline_close(&t);
	trace_free(worker);
	trace_free(reducer);
}
END_TEST

static unsigned occurrences(const char *text, const char *part)
{
	unsigned n = 0;

	while ((text = strstr(text, part))) {
		n++;
		text += strlen(part);
	}
	return n;
}

START_TEST(chunks_are_slices)
{
	struct trace *worker = new_trace(), *reducer = new_trace();
	struct timeline t;
	struct rs_err e;
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	init(&t);
	fill(worker, reducer, 3, 0);
	reducer->dropped = 4;
	reducer->done = 0;
	ck_assert_int_eq(add(&t, 0, reducer, false, &e), RS_OK);
	ck_assert_int_eq(add(&t, 1, worker, true, &e), RS_OK);
	ck_assert_int_eq(timeline_join(&t, &e), RS_OK);
	ck_assert_int_eq(timeline_align(&t, &e), RS_OK);
	ck_assert_int_eq(timeline_write(&t, out, &e), RS_OK);
	fclose(out);
	ck_assert_uint_eq(occurrences(text, "\"name\":\"op 1 chunk 7\""), 2);
	ck_assert_uint_eq(occurrences(text, "\"name\":\"wait and sum\""), 3);
	ck_assert_uint_eq(occurrences(text, "\"name\":\"wait for result\""), 3);
	ck_assert_uint_eq(occurrences(text, "\"name\":\"operation 2\""), 4); /* begin and end in both processes */
	ck_assert_uint_eq(occurrences(text, "\"name\":\"rank 1, lane 3\""), 2);
	ck_assert_uint_eq(occurrences(text, "\"job\":\"a\\\"b\""), 6);
	ck_assert_ptr_nonnull(strstr(text, "\"dropped\":4,\"complete\":false,"));
	free(text);
	timeline_close(&t);
	trace_free(worker);
	trace_free(reducer);
}
END_TEST

/* Chunks that overlap are on several threads. */
START_TEST(slices_do_not_overlap)
{
	struct trace *reducer = new_trace();
	struct timeline t;
	struct rs_err e;
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	init(&t);
	for (unsigned i = 0; i < 3; i++) {
		put(reducer, TRACE_BEGUN, i, 100 + 10 * i);
		put(reducer, TRACE_RETURNED, i, i == 1 ? 200 : 115 + 10 * i);
	}
	ck_assert_int_eq(add(&t, 0, reducer, false, &e), RS_OK);
	ck_assert_int_eq(timeline_join(&t, &e), RS_OK);
	ck_assert_int_eq(timeline_align(&t, &e), RS_OK);
	ck_assert_int_eq(timeline_write(&t, out, &e), RS_OK);
	fclose(out);
	ck_assert_ptr_nonnull(strstr(text, "\"name\":\"op 0 chunk 7\",\"pid\":1,\"tid\":2,\"ts\":0,\"dur\":15,"));
	ck_assert_ptr_nonnull(strstr(text, "\"name\":\"op 1 chunk 7\",\"pid\":1,\"tid\":3,\"ts\":10,\"dur\":90,"));
	ck_assert_ptr_nonnull(strstr(text, "\"name\":\"op 2 chunk 7\",\"pid\":1,\"tid\":2,\"ts\":20,\"dur\":15,"));
	ck_assert_uint_eq(occurrences(text, "\"name\":\"rank 1, lane 3\""), 2);
	free(text);
	timeline_close(&t);
	trace_free(reducer);
}
END_TEST

START_TEST(wrong_answers_are_refused)
{
	static const struct {
		size_t len;
		unsigned at;
		uint8_t value;
		const char *says;
	} rows[] = {
	    {31, 0, 0, "31 bytes of records"},
	    {32, 26, 1, "record 0 of the trace is wrong"},            /* a source that there is not */
	    {32, 28, TRACE_KINDS, "record 0 of the trace is wrong"},  /* no kind */
	    {32, 28, TRACE_RESULT, "record 0 of the trace is wrong"}, /* of a worker, from a reducer */
	    {32, 7, 0xff, "record 0 of the trace is wrong"},          /* a time that cannot be */
	};
	Reduction__V1__TraceSource source = REDUCTION__V1__TRACE_SOURCE__INIT, *sources[1] = {&source};
	Reduction__V1__TraceReply m = REDUCTION__V1__TRACE_REPLY__INIT;
	uint8_t bytes[TRACE_RECORD] = {0};
	struct timeline t;
	struct rs_err e;

	init(&t);
	for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		memset(bytes, 0, sizeof bytes);
		bytes[rows[i].at] = rows[i].value;
		m.records = (ProtobufCBinaryData){rows[i].len, bytes};
		m.n_sources = 1;
		m.sources = sources;
		ck_assert_int_eq(timeline_add(&t, 0, &m, &e), RS_EPROTO);
		ck_assert_msg(strstr(e.msg, rows[i].says), "%s", e.msg);
	}
	timeline_close(&t);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("timeline");
	TCase *tc = tcase_create("timeline");
	SRunner *sr;
	int failed;

	tcase_add_loop_test(tc, clocks_are_aligned, 0, sizeof clocks / sizeof clocks[0]);
	tcase_add_test(tc, chunks_are_slices);
	tcase_add_test(tc, slices_do_not_overlap);
	tcase_add_test(tc, wrong_answers_are_refused);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
