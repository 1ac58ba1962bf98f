/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of traces. */
#include "proto/reduction.pb-c.h"
#include "proto/trace.h"
#include "tests/unit/fake_service.h"

#include <check.h>
#include <stdlib.h>

/* Requests a trace of operation 5 of job "a". */
static struct service_call *ask_trace(struct fake_service *w, Reduction__V1__TraceRequest *m)
{
	Reduction__V1__TraceRange range = REDUCTION__V1__TRACE_RANGE__INIT, *ranges[1] = {&range};

	range.job = (char *)"a";
	range.from = 5;
	m->n_ranges = 1;
	m->ranges = ranges;
	return fservice_begin(w, SERVICE_TRACE, &m->base);
}

START_TEST(traces_are_sent)
{
	Reduction__V1__TraceRequest request = REDUCTION__V1__TRACE_REQUEST__INIT;
	Reduction__V1__TraceReply *m;
	struct service_call *c;
	struct trace *first;
	struct fake_service w;

	fservice_open(&w, false);
	c = fservice_begin(&w, SERVICE_TRACE, NULL); /* only the clock */
	m = fservice_expect_message(c, &reduction__v1__trace_reply__descriptor);
	ck_assert_uint_eq(m->clock_us, 4711);
	reduction__v1__trace_reply__free_unpacked(m, NULL);
	fservice_expect_end(c, RPC_CODE_OK, "");
	ck_assert_uint_eq(w.traces, 0);
	request.operations = 2;
	c = ask_trace(&w, &request);
	fservice_expect_wait(c);
	ck_assert_uint_eq(w.asked.ranges[0].from, 5);
	ck_assert_uint_eq(w.asked.operations, 2);
	ck_assert_uint_eq(w.asked.records, TRACE_RECORDS);
	ck_assert_uint_eq(w.asked.limit_ms, TRACE_LIMIT_DEFAULT_MS);
	fservice_expect_end(ask_trace(&w, &request), RPC_CODE_RESOURCE_EXHAUSTED, "another trace is running");
	first = trace_new(&w.asked, 4);
	ck_assert_ptr_nonnull(first);
	trace_add_source(first, 0, 1, 3, 5);
	trace_put(first, &(struct trace_record){.seq = 5});
	first->next = trace_new(&w.asked, 4);
	service_traced(w.s, first);
	m = fservice_expect_message(c, &reduction__v1__trace_reply__descriptor);
	ck_assert_uint_eq(m->n_sources, 1);
	ck_assert_str_eq(m->sources[0]->job, "a");
	ck_assert_uint_eq(m->records.len, TRACE_RECORD);
	ck_assert(!m->complete);
	reduction__v1__trace_reply__free_unpacked(m, NULL);
	service_call_free(c); /* the client goes without the second one */
	ck_assert_uint_eq(w.trace_ends, 0);
	service_free(w.s);
}
END_TEST

START_TEST(traces_end_with_their_client)
{
	Reduction__V1__TraceRequest request = REDUCTION__V1__TRACE_REQUEST__INIT;
	struct fake_service w;

	fservice_open(&w, false);
	request.operations = 1;
	service_call_free(ask_trace(&w, &request));
	ck_assert_uint_eq(w.trace_ends, 1);
	/* it has not ended yet */
	fservice_expect_end(ask_trace(&w, &request), RPC_CODE_RESOURCE_EXHAUSTED, "another trace is running");
	service_traced(w.s, trace_new(&w.asked, 4));
	w.trace_fails = true;
	fservice_expect_end(ask_trace(&w, &request), RPC_CODE_RESOURCE_EXHAUSTED, "no memory");
	w.trace_fails = false;
	ck_assert_uint_eq(w.traces, 1);
	service_call_free(ask_trace(&w, &request));
	ck_assert_uint_eq(w.traces, 2);
	service_free(w.s);
}
END_TEST

START_TEST(traces_have_bounds)
{
	static const struct {
		uint32_t operations, records, limit_ms;
	} rows[] = {{TRACE_OPERATIONS + 1, 0, 0}, {1, TRACE_RECORDS + 1, 0}, {1, 0, TRACE_LIMIT_MS + 1}};
	Reduction__V1__TraceRequest request = REDUCTION__V1__TRACE_REQUEST__INIT, of_no_job = request;
	struct fake_service w;

	fservice_open(&w, false);
	for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		request.operations = rows[i].operations;
		request.records = rows[i].records;
		request.limit_ms = rows[i].limit_ms;
		fservice_expect_end(ask_trace(&w, &request), RPC_CODE_INVALID_ARGUMENT,
				    "found a request out of bounds");
	}
	of_no_job.operations = 1;
	fservice_expect_end(fservice_begin(&w, SERVICE_TRACE, &of_no_job.base), RPC_CODE_INVALID_ARGUMENT,
			    "1 to 16 ranges");
	ck_assert_uint_eq(w.traces, 0);
	service_free(w.s);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("service_trace");
	TCase *t = tcase_create("service_trace");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_set_timeout(t, 60);
	tcase_add_test(t, traces_are_sent);
	tcase_add_test(t, traces_end_with_their_client);
	tcase_add_test(t, traces_have_bounds);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
