/* SPDX-License-Identifier: Apache-2.0 */
/* The samples of the last hour: rates, the oldest first, and no more than there is room
 * for. */
#include "common/host/service/history.h"

#include <check.h>
#include <stdlib.h>

static struct history all;
static Reduction__V1__StatusReply m;
static Reduction__V1__LaneStatus lane;
static Reduction__V1__Traffic traffic;
static Reduction__V1__LaneStatus *lanes[] = {&lane};
static Reduction__V1__AgentStatus agent;
static Reduction__V1__AgentJob job;
static Reduction__V1__AgentJob *jobs[] = {&job};

static void open_history(void)
{
	all = (struct history){0};
	reduction__v1__status_reply__init(&m);
	reduction__v1__lane_status__init(&lane);
	reduction__v1__traffic__init(&traffic);
	reduction__v1__agent_status__init(&agent);
	reduction__v1__agent_job__init(&job);
	lane.traffic = &traffic;
	m.lanes = lanes;
	m.n_lanes = 1;
}

static void sample_at(uint64_t s)
{
	m.unix_ms = (int64_t)s * 1000;
	m.up_ms = s * 1000;
	history_add(&all, &m);
}

START_TEST(rates)
{
	open_history();
	m.memory_bytes = 5000;
	lane.busy_permil = 300;
	traffic.bytes_in = 1000;
	sample_at(10);
	traffic.bytes_in += 50000;
	traffic.bytes_out = 20000;
	sample_at(20);
	history_put(&all, &m);
	ck_assert_uint_eq(m.n_samples, 2);
	ck_assert_uint_eq(m.samples[0]->bytes_in_per_s, 100);
	ck_assert_uint_eq(m.samples[1]->bytes_in_per_s, 5000);
	ck_assert_uint_eq(m.samples[1]->bytes_out_per_s, 2000);
	ck_assert_uint_eq(m.samples[1]->memory_bytes, 5000);
	ck_assert_uint_eq(m.samples[1]->busy_permil, 300);
	ck_assert_int_eq(m.samples[1]->unix_ms, 20000);
}
END_TEST

START_TEST(an_agent)
{
	open_history();
	m.n_lanes = 0;
	m.agent = &agent;
	agent.jobs = jobs;
	agent.n_jobs = 1;
	agent.shm_bytes = 7000;
	job.bytes_in = 40000;
	sample_at(10);
	agent.n_jobs = 0; /* the job has ended, and with it its count */
	sample_at(20);
	history_put(&all, &m);
	ck_assert_uint_eq(m.samples[0]->bytes_in_per_s, 4000);
	ck_assert_uint_eq(m.samples[0]->jobs, 1);
	ck_assert_uint_eq(m.samples[0]->memory_bytes, 7000);
	ck_assert_uint_eq(m.samples[1]->bytes_in_per_s, 0);
	ck_assert_uint_eq(m.samples[1]->jobs, 0);
}
END_TEST

START_TEST(the_last_hour)
{
	open_history();
	for (uint64_t s = 10; s <= 50000; s += 10)
		sample_at(s);
	history_put(&all, &m);
	ck_assert_uint_eq(m.n_samples, HISTORY_KEPT);
	for (size_t i = 0; i < m.n_samples; i++)
		ck_assert_int_eq(m.samples[i]->unix_ms, 50000000 - (int64_t)(HISTORY_KEPT - 1 - i) * HISTORY_MS);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("history");
	TCase *t = tcase_create("history");
	SRunner *sr = srunner_create(s);

	tcase_add_test(t, rates);
	tcase_add_test(t, an_agent);
	tcase_add_test(t, the_last_hour);
	suite_add_tcase(s, t);
	srunner_run_all(sr, CK_NORMAL);
	int failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
