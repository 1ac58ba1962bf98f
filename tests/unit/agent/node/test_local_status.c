/* SPDX-License-Identifier: Apache-2.0 */
/* The status of an agent: what the hub says of jobs and local ranks, and the message of
 * the control service. */
#include "agent/node/core/status.h"
#include "tests/unit/fake_agent.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct fake_agent fa;
static struct local_status *st;

static void setup(void)
{
	fake_agent_init(&fa);
}

static void teardown(void)
{
	local_status_free(st);
	st = NULL;
	fake_agent_close(&fa);
}

/* Makes the status of the hub. */
static const Reduction__V1__AgentJob *look(void)
{
	local_status_free(st);
	st = local_hub_status(fa.hub, fa.now_ms);
	ck_assert_ptr_nonnull(st);
	return st->reply.m.agent->n_jobs ? st->reply.m.agent->jobs[0] : NULL;
}

START_TEST(missing_local_ranks_are_named)
{
	struct fake_client *c = fake_connect(&fa);
	const Reduction__V1__AgentJob *j;

	fake_hello(&fa, c, "j", 3, 1, 4, 2);
	fa.now_ms += 5500;
	j = look();
	ck_assert_uint_eq(st->reply.m.agent->n_jobs, 1);
	ck_assert_uint_eq(st->reply.m.agent->clients, 1);
	ck_assert_str_eq(j->name, "j");
	ck_assert_uint_eq(j->generation, 3);
	ck_assert_int_eq(j->state, REDUCTION__V1__AGENT_JOB__STATE__GATHERING);
	ck_assert_ptr_null(st->engines[0].engine);
	ck_assert_str_eq(j->waiting, "1 of 2 local ranks have not connected: local rank 0; waiting for 5 s");
	ck_assert_uint_eq(j->age_ms, 5500);
	ck_assert(j->world_size == 4 && j->nodes == 2 && j->node_rank == 0 && j->joined == 1);
	ck_assert(!j->ranks[0]->known && !j->ranks[0]->attached);
	ck_assert(j->ranks[1]->known && j->ranks[1]->attached && j->ranks[1]->rank == 1);
	ck_assert_uint_eq(j->ranks[1]->attached_ms, 5500);
}
END_TEST

START_TEST(a_job_runs_and_ends)
{
	struct fake_client *c[2];
	struct fake_engine *en = fake_job(&fa, c, 4, 2);
	const Reduction__V1__AgentJob *j = look();
	unsigned id = fake_alloc(&fa, c[0], 100000);

	ck_assert_int_eq(j->state, REDUCTION__V1__AGENT_JOB__STATE__RUNNING);
	ck_assert_ptr_eq(st->engines[0].engine, en);
	ck_assert_str_eq(j->waiting, "");
	fake_submit(&fa, c[0], id, 10, NULL);
	j = look();
	ck_assert_uint_eq(j->ranks[0]->in_flight, 1);
	ck_assert_uint_eq(j->ranks[1]->in_flight, 0);
	ck_assert_uint_eq(st->reply.m.agent->shm_bytes, 102400); /* whole pages */
	ck_assert_uint_eq(st->reply.m.agent->shm_max_bytes, 1 << 20);
	fake_engine_fail(&fa, en, RS_EPEER, "rank 1 was lost");
	j = look();
	ck_assert_int_eq(j->state, REDUCTION__V1__AGENT_JOB__STATE__FAILED);
	ck_assert_str_eq(j->reason, "rank 1 was lost");
	ck_assert(!st->reply.m.draining);
	local_hub_drain(fa.hub, fa.now_ms, fa.now_ms + 1000);
	look();
	ck_assert(st->reply.m.draining);
}
END_TEST

START_TEST(the_oldest_job_is_the_first)
{
	static const char *const names[] = {"a", "b", "c"};

	for (unsigned i = 0; i < 3; i++)
		fake_hello(&fa, fake_connect(&fa), names[i], 0, 0, 2, 2);
	look();
	ck_assert_uint_eq(st->reply.m.agent->n_jobs, 3);
	for (unsigned i = 0; i < 3; i++)
		ck_assert_str_eq(st->reply.m.agent->jobs[i]->name, names[i]);
}
END_TEST

/* Three reducers with two shards each. */
static struct exchange_report *some_report(void)
{
	struct exchange_report *r;
	struct rs_config cfg;
	struct rs_err e;
	static const char yaml[] = "reducers: [{id: a, address: h:1}, {id: b, address: h:2}, {id: c, address: h:3}]\n"
				   "sharding: {shards: 6, map: {0-1: a, 2-3: b, 4-5: c}}\n";

	ck_assert_int_eq(rs_config_parse(&cfg, "test", yaml, strlen(yaml), &e), 0);
	r = exchange_report_new(cfg.reducers_n, cfg.sharding.shards);
	ck_assert_ptr_nonnull(r);
	for (unsigned i = 0; i < 3; i++)
		memcpy(r->reducers[i].id, cfg.reducers[i].id, sizeof r->reducers[i].id);
	for (unsigned s = 0; s < 6; s++)
		r->home[s] = r->owner[s] = cfg.sharding.owner[s];
	rs_config_close(&cfg);
	strcpy(r->transport, "tcp");
	strcpy(r->waiting, "somebody");
	r->operations = 812;
	r->pending = 3;
	return r;
}

/* Packs the status and unpacks the message. */
static Reduction__V1__StatusReply *packed(const char *job, bool without_ranks)
{
	struct service_bytes b = status_reply_pack(local_status_finish(st), job, without_ranks);
	Reduction__V1__StatusReply *m;

	ck_assert_ptr_nonnull(b.at);
	m = reduction__v1__status_reply__unpack(NULL, b.len, b.at);
	ck_assert_ptr_nonnull(m);
	ck_assert_ptr_nonnull(m->agent);
	free(b.at);
	return m;
}

static const struct {
	const char *lost;   /* letters of the lost reducers */
	const char *owners; /* of each shard */
	unsigned alive;
	const char *with[3]; /* of each reducer, the letters of those that have its shards */
} losses[] = {
    {"", "aabbcc", 3, {"", "", ""}},     {"b", "aaaccc", 2, {"", "ac", ""}}, {"b", "aaaacc", 2, {"", "a", ""}},
    {"ab", "cccccc", 1, {"c", "c", ""}}, {"abc", "aabbcc", 0, {"", "", ""}},
};

START_TEST(lost_reducers_are_packed)
{
	struct fake_client *c[2];
	Reduction__V1__StatusReply *m;
	Reduction__V1__AgentJob *job;
	struct exchange_report *r = some_report();

	fake_job(&fa, c, 4, 2);
	look();
	for (unsigned i = 0; i < 3; i++) {
		bool lost = strchr(losses[_i].lost, 'a' + (int)i);

		r->reducers[i].reach = lost ? REPORT_LOST : i == 2 ? REPORT_CONNECTING : REPORT_CONNECTED;
		r->reducers[i].for_ms = 1000 * (i + 1);
		r->reducers[i].rtt_us = 77;
		r->alive += !lost;
		strcpy(r->reducers[i].why, lost ? "connection refused" : "");
	}
	for (unsigned s = 0; s < 6; s++)
		r->owner[s] = (uint16_t)(losses[_i].owners[s] - 'a');
	st->engines[0].report = r;
	m = packed("", false);
	job = m->agent->jobs[0];
	ck_assert_uint_eq(job->reducers_alive, losses[_i].alive);
	ck_assert_uint_eq(job->n_reducers, 3);
	ck_assert(job->operations == 812 && job->pending == 3);
	ck_assert_str_eq(job->transport, "tcp");
	ck_assert_str_eq(job->waiting, "somebody");
	for (unsigned i = 0; i < 3; i++) {
		const Reduction__V1__AgentReducer *to = job->reducers[i];
		char with[8] = "";

		for (size_t k = 0; k < to->n_shards_with; k++)
			strcat(with, to->shards_with[k]);
		ck_assert_str_eq(with, losses[_i].with[i]);
		ck_assert_str_eq(to->why, strchr(losses[_i].lost, 'a' + (int)i) ? "connection refused" : "");
		ck_assert_uint_eq(to->for_ms, 1000 * (i + 1));
		ck_assert_uint_eq(to->rtt_us, 77);
	}
	reduction__v1__status_reply__free_unpacked(m, NULL);
}
END_TEST

START_TEST(the_process_and_its_ranks_are_packed)
{
	struct fake_client *c[2];
	Reduction__V1__StatusReply *m;

	fake_job(&fa, c, 4, 2);
	look();
	st->reply.m.software = "reduction 1";
	st->reply.m.up_ms = 12345;
	st->reply.m.agent->host = "node1";
	st->reply.m.agent->socket = "/run/a.sock";
	st->reply.m.agent->pid = 4711;
	st->reply.m.agent->jobs[0]->bytes_out = 5;
	st->reply.m.agent->jobs[0]->bytes_in = 6;
	m = packed(NULL, false);
	ck_assert_str_eq(m->software, "reduction 1");
	ck_assert_uint_eq(m->up_ms, 12345);
	ck_assert_uint_eq(m->n_jobs, 0);
	ck_assert_str_eq(m->agent->host, "node1");
	ck_assert_str_eq(m->agent->socket, "/run/a.sock");
	ck_assert_uint_eq(m->agent->pid, 4711);
	ck_assert_uint_eq(m->agent->clients, 2);
	ck_assert_uint_eq(m->agent->n_jobs, 1);
	ck_assert_int_eq(m->agent->jobs[0]->state, REDUCTION__V1__AGENT_JOB__STATE__RUNNING);
	ck_assert(m->agent->jobs[0]->bytes_out == 5 && m->agent->jobs[0]->bytes_in == 6);
	ck_assert_uint_eq(m->agent->jobs[0]->n_reducers, 0); /* its report is missing */
	ck_assert_uint_eq(m->agent->jobs[0]->n_ranks, 2);
	ck_assert_uint_eq(m->agent->jobs[0]->ranks[1]->rank, 1);
	ck_assert(m->agent->jobs[0]->ranks[1]->attached);
	reduction__v1__status_reply__free_unpacked(m, NULL);
	m = packed(NULL, true);
	ck_assert_uint_eq(m->agent->jobs[0]->n_ranks, 0);
	ck_assert_uint_eq(m->agent->jobs[0]->joined, 2);
	reduction__v1__status_reply__free_unpacked(m, NULL);
	m = packed("another", false);
	ck_assert_uint_eq(m->agent->n_jobs, 0);
	reduction__v1__status_reply__free_unpacked(m, NULL);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("local_status");
	TCase *t = tcase_create("status");
	SRunner *r;
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, missing_local_ranks_are_named);
	tcase_add_test(t, a_job_runs_and_ends);
	tcase_add_test(t, the_oldest_job_is_the_first);
	tcase_add_loop_test(t, lost_reducers_are_packed, 0, sizeof losses / sizeof losses[0]);
	tcase_add_test(t, the_process_and_its_ranks_are_packed);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
