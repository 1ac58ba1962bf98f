/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics of a status: names and values, the bound of series per job, hostile names; and
 * what HTTP headers mean. */
#include "common/host/http/answer.h"
#include "common/host/http/metrics.h"
#include "server/core/count.h"
#include "server/jobs/status.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns the metrics of a status, which it frees. */
static char *metrics_of(struct status *st, bool openmetrics)
{
	struct service_bytes bytes = status_reply_pack(status_finish(st), "", false);
	Reduction__V1__StatusReply *m;
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	ck_assert(bytes.at && out);
	m = reduction__v1__status_reply__unpack(NULL, bytes.len, bytes.at);
	ck_assert_ptr_nonnull(m);
	metrics_write(m, openmetrics, out);
	fclose(out);
	reduction__v1__status_reply__free_unpacked(m, NULL);
	free(bytes.at);
	status_free(st);
	return text;
}

static struct status *status_of(unsigned jobs, unsigned ranks)
{
	static const char *const over[] = {"tcp", "tcp+tls", "grpc", "grpc+tls"};
	struct status *st = status_new(jobs, 2);

	st->reply.m.second_ms = 1000;
	for (unsigned i = 0; i < jobs; i++) {
		Reduction__V1__JobStatus *job = status_job(st, i, i, ranks);
		char name[32];

		ck_assert_ptr_nonnull(job);
		snprintf(name, sizeof name, "job-%u", i);
		job->name = status_reply_text(&st->reply, name);
		job->state = REDUCTION__V1__JOB_STATUS__STATE__RUNNING;
		job->joined = ranks;
		for (unsigned r = 0; r < ranks; r++) {
			job->ranks[r]->transport = (char *)over[r % 4];
			job->ranks[r]->traffic->bytes_in = 100;
			job->ranks[r]->traffic->chunks = 2;
			job->ranks[r]->last_chunks = r == 1;
			job->ranks[r]->waited_permil = r == 1 ? 400 : 1; /* ms; status_finish() makes the share */
		}
		job->chunks = 4;
		job->waiting->counts[1] = 3;
		job->waiting->counts[TIMES_BUCKETS - 1] = 1;
		job->waiting->sum_us = 3 * 20 + UINT64_C(100000000);
	}
	return st;
}

static unsigned lines_of(const char *text, const char *word)
{
	unsigned n = 0;

	for (const char *at = text; (at = strstr(at, word)); at += strlen(word))
		n++;
	return n;
}

static void expect(const char *text, const char *line)
{
	ck_assert_msg(strstr(text, line) != NULL, "no \"%s\" in:\n%s", line, text);
}

START_TEST(values)
{
	char *text = metrics_of(status_of(1, 4), false);

	expect(text, "\nreduction_job_ranks{reduction_job=\"job-0\"} 4\n");
	expect(text, "\nreduction_job_state{reduction_job=\"job-0\",state=\"running\"} 1\n");
	expect(text, "\nreduction_job_state{reduction_job=\"job-0\",state=\"ended\"} 0\n");
	expect(text, "\nreduction_job_latest_rank{reduction_job=\"job-0\"} 1\n");
	expect(text, "\nreduction_job_latest_rank_waiting_ratio{reduction_job=\"job-0\"} 0.4\n");
	expect(text, "\nreduction_job_most_often_last_ratio{reduction_job=\"job-0\"} 0.25\n");
	expect(text, "# TYPE reduction_job_received_bytes_total counter\n"
		     "reduction_job_received_bytes_total{reduction_job=\"job-0\",transport=\"tcp\"} 100\n");
	expect(text, "\nreduction_chunk_waiting_seconds_bucket{reduction_job=\"job-0\",le=\"1.6e-05\"} 0\n");
	expect(text, "\nreduction_chunk_waiting_seconds_bucket{reduction_job=\"job-0\",le=\"6.4e-05\"} 3\n");
	expect(text, "\nreduction_chunk_waiting_seconds_bucket{reduction_job=\"job-0\",le=\"16.777216\"} 3\n");
	expect(text, "\nreduction_chunk_waiting_seconds_bucket{reduction_job=\"job-0\",le=\"+Inf\"} 4\n");
	expect(text, "\nreduction_chunk_waiting_seconds_sum{reduction_job=\"job-0\"} 100.00006\n");
	expect(text, "\nreduction_chunk_waiting_seconds_count{reduction_job=\"job-0\"} 4\n");
	expect(text, "\nreduction_refused_connections_total{reason=\"policy\"} 0\n");
	free(text);
	text = metrics_of(status_of(1, 4), true);
	expect(text, "# TYPE reduction_job_received_bytes counter\n"
		     "reduction_job_received_bytes_total{reduction_job=\"job-0\",transport=\"tcp\"} 100\n");
	ck_assert_str_eq(text + strlen(text) - 6, "# EOF\n");
	free(text);
}
END_TEST

/* The number of series depends on the number of jobs, and not on that of ranks. */
START_TEST(bounded)
{
	static const unsigned ranks[] = {4, 256};

	for (unsigned i = 0; i < 2; i++) {
		char *text = metrics_of(status_of(64, ranks[i]), false);

		for (unsigned j = 0; j < 64; j++) {
			char label[64];

			snprintf(label, sizeof label, "{reduction_job=\"job-%u\"", j);
			ck_assert_uint_eq(lines_of(text, label), METRICS_JOB_SERIES);
		}
		free(text);
	}
	{
		char *text = metrics_of(status_of(METRICS_JOBS_MAX + 10, 2), false);

		ck_assert_uint_eq(lines_of(text, "\nreduction_job_ranks{"), METRICS_JOBS_MAX);
		ck_assert_ptr_null(strstr(text, "\"job-9\"")); /* the oldest are left out */
		expect(text, "\nreduction_jobs 522\n");
		free(text);
	}
}
END_TEST

/* A name comes from a worker. Of two jobs with one name, as at a restart, the newer one
 * is shown. */
START_TEST(names)
{
	struct status *st = status_of(3, 2);
	char *text;

	st->reply.m.jobs[0]->name = "a\"} 1\nevil{b=\"\\";
	st->reply.m.jobs[1]->name = st->reply.m.jobs[2]->name = "twice";
	st->reply.m.jobs[1]->generation = 1;
	st->reply.m.jobs[2]->generation = 2;
	text = metrics_of(st, false);
	expect(text, "\nreduction_job_ranks{reduction_job=\"a\\\"} 1\\nevil{b=\\\"\\\\\"} 2\n");
	ck_assert_ptr_null(strstr(text, "\nevil"));
	expect(text, "\nreduction_job_generation{reduction_job=\"twice\"} 2\n");
	ck_assert_uint_eq(lines_of(text, "\nreduction_job_generation{reduction_job=\"twice\"}"), 1);
	free(text);
}
END_TEST

START_TEST(histogram_buckets)
{
	static const struct {
		uint64_t us;
		unsigned bucket;
	} rows[] = {{0, 0},  {1, 0},  {16, 0},      {17, 1},        {32, 1},        {33, 2},
		    {64, 2}, {65, 3}, {350000, 15}, {16777216, 20}, {16777217, 21}, {UINT64_MAX / 2, 21}};

	for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct lane_times t = {.sum_us = 0};

		lane_times_put(&t, rows[i].us);
		ck_assert_msg(t.n[rows[i].bucket] == 1, "%llu us", (unsigned long long)rows[i].us);
		if (rows[i].bucket < TIMES_BUCKETS - 1)
			ck_assert_uint_le(rows[i].us, lane_times_limit_us(rows[i].bucket));
		if (rows[i].bucket)
			ck_assert_uint_gt(rows[i].us, lane_times_limit_us(rows[i].bucket - 1));
	}
}
END_TEST

START_TEST(accept_headers)
{
	static const struct {
		const char *accept;
		bool openmetrics;
	} rows[] = {
	    {NULL, false},
	    {"*/*", false},
	    {"text/plain", false},
	    {"application/openmetrics-text", true},
	    {"application/openmetrics-text; version=1.0.0; q=0.5, text/plain;q=0.9", false},
	    {"application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/"
	     "plain;version=0.0.4;q=0.5,*/*;q=0.1",
	     true},
	    {"application/openmetrics-text;q=0", false},
	    {",,;;q=,", false},
	};

	for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++)
		ck_assert_msg(http_accepts_openmetrics(rows[i].accept) == rows[i].openmetrics, "%s", rows[i].accept);
}
END_TEST

START_TEST(host_headers)
{
	static const char *const plain[] = {"localhost",   "localhost:7603", "127.0.0.1",
					    "10.0.0.1:80", "[::1]:7603",     "[::1]"};
	static const char *const others[] = {"evil.example", "evil.example:7603", "localhost.evil.example", ""};

	for (unsigned i = 0; i < sizeof plain / sizeof(*plain); i++)
		ck_assert_msg(http_host_is_plain(plain[i]), "%s", plain[i]);
	for (unsigned i = 0; i < sizeof others / sizeof(*others); i++)
		ck_assert_msg(!http_host_is_plain(others[i]), "%s", others[i]);
}
END_TEST

START_TEST(paths)
{
	struct http_result r = {.code = RPC_CODE_UNAUTHENTICATED, .why = "send the token"};
	struct http_answer a;

	ck_assert_ptr_null(http_path_find("/drain"));
	ck_assert_ptr_null(http_path_find("/../etc/passwd"));
	http_answer_make(&a, http_path_find("/metrics"), NULL, &r);
	ck_assert_uint_eq(a.status, 401);
	ck_assert_int_eq(strncmp(a.body, "send the token\n", a.len), 0);
	free(a.body);
	http_answer_make(&a, http_path_find("/"), NULL, &r); /* it contains no data */
	ck_assert(a.status == 200 && a.constant);
	/* a message that is not one of the service */
	r = (struct http_result){.code = RPC_CODE_OK};
	ck_assert(http_result_add(&r, "\xff\xff\xff", 3));
	http_answer_make(&a, http_path_find("/status"), NULL, &r);
	ck_assert_uint_eq(a.status, 503);
	free(a.body);
	free(r.messages);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("metrics");
	TCase *tc = tcase_create("metrics");
	SRunner *r;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, values);
	tcase_add_test(tc, bounded);
	tcase_add_test(tc, names);
	tcase_add_test(tc, histogram_buckets);
	tcase_add_test(tc, accept_headers);
	tcase_add_test(tc, host_headers);
	tcase_add_test(tc, paths);
	suite_add_tcase(s, tc);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
