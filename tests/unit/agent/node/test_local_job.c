/* SPDX-License-Identifier: Apache-2.0 */
/* Who may join which job, and how jobs end. */
#include "tests/unit/fake_agent.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static struct fake_agent fa;

static void setup(void)
{
	fake_agent_init(&fa);
}

static void teardown(void)
{
	fake_agent_close(&fa);
}

static void expect(const struct fake_client *c, const char *story, const char *sentence)
{
	ck_assert_str_eq(c->story, story);
	if (sentence)
		ck_assert_str_eq(c->sentence, sentence);
}

START_TEST(ranks_join_and_leave)
{
	struct fake_client *c[2];
	struct fake_engine *en;

	c[1] = fake_connect(&fa);
	fake_hello(&fa, c[1], "j", 3, 5, 6, 2);
	expect(c[1], "WELCOME", NULL);
	fa.now_ms += 4000;
	c[0] = fake_connect(&fa);
	fake_hello(&fa, c[0], "j", 3, 4, 6, 2);
	ck_assert_uint_eq(fa.engines_n, 1);
	en = &fa.engines[0];
	ck_assert_str_eq(en->spec.job, "j");
	ck_assert_str_eq(en->spec.label, "processes 4-5 on host");
	ck_assert_uint_eq(en->spec.generation, 3);
	ck_assert_uint_eq(en->spec.rank, 2);
	ck_assert_uint_eq(en->spec.world_size, 3);
	ck_assert_uint_eq(en->spec.processes, 2);
	ck_assert_uint_eq(en->spec.connect_ms, 6000); /* the time that the first one has left */
	expect(c[0], "WELCOME", NULL);
	fake_engine_ready(&fa, en);
	expect(c[0], "WELCOME READY", NULL);
	expect(c[1], "WELCOME READY", NULL);
	fake_goodbye(&fa, c[0]);
	fake_settle(&fa);
	ck_assert(!en->freeing);
	fake_goodbye(&fa, c[1]);
	fake_settle(&fa);
	ck_assert(en->freed);
	ck_assert_int_eq(en->aborted, 0);
	ck_assert_uint_eq(local_hub_jobs(fa.hub), 0);
	ck_assert_uint_eq(local_hub_clients(fa.hub), 0);
}
END_TEST

START_TEST(one_rank_has_a_label_of_its_own)
{
	struct fake_client *c = fake_connect(&fa);

	fake_hello(&fa, c, "j", 0, 3, 4, 1);
	ck_assert_str_eq(fa.engines[0].spec.label, "process 3 on host");
}
END_TEST

START_TEST(late_ranks_are_named)
{
	struct fake_client *c = fake_connect(&fa);

	fake_hello(&fa, c, "j", 0, 1, 4, 4);
	/* it reports for whom it waits, and gives up */
	for (unsigned i = 0; i < 2; i++) {
		ck_assert_uint_eq(local_hub_next(fa.hub), fa.now_ms + (i ? 6000 : 3000));
		local_hub_tick(fa.hub, local_hub_next(fa.hub));
	}
	ck_assert_uint_eq(local_hub_next(fa.hub), fa.now_ms + 10000);
	local_hub_tick(fa.hub, fa.now_ms + 9999);
	expect(c, "WELCOME", NULL);
	local_hub_tick(fa.hub, fa.now_ms + 10000);
	expect(c, "WELCOME ABORT:-7",
	       "3 of 4 local ranks of job j did not connect to the agent on host in time: local ranks 0, 2, 3");
	ck_assert_uint_eq(local_hub_next(fa.hub), FAKE_FIRST_PING_MS);
}
END_TEST

START_TEST(a_rank_that_leaves_early_may_rejoin)
{
	struct fake_client *c[3];

	for (int i = 0; i < 3; i++)
		c[i] = fake_connect(&fa);
	fake_hello(&fa, c[0], "j", 0, 0, 2, 2);
	fake_hello(&fa, c[1], "j", 0, 0, 2, 2);
	expect(c[1], "REFUSED:-8",
	       "rank 0 (local rank 0) of job j is taken: rank 0 (pid 101 on host) has local rank 0");
	fake_lose(c[0]);
	ck_assert_uint_eq(local_hub_jobs(fa.hub), 0);
	fake_hello(&fa, c[2], "j", 0, 0, 2, 2);
	expect(c[2], "WELCOME", NULL);
}
END_TEST

enum { CONTRADICTIONS_OF_SIZE = 6 }; /* of the rows below, that many are about sizes */

/* Invalid HELLOs of the second of two local ranks. */
static const struct {
	uint32_t rank, world, local_rank, local, node, nodes;
	const char *sentence;
} contradictions[] = {
    {1, 6, 1, 2, 0, 3, "rank 1 (pid 102) of job j has world size 6, rank 0 (pid 101 on host) has 4"},
    {1, 4, 1, 3, 0, 2, "rank 1 (pid 102) of job j has local world size 3, rank 0 (pid 101 on host) has 2"},
    {1, 4, 1, 2, 0, 3, "rank 1 (pid 102) of job j has nodes 3, rank 0 (pid 101 on host) has 2"},
    {1, 4, 1, 2, 1, 2, "rank 1 (pid 102) of job j has node rank 1, rank 0 (pid 101 on host) has 0"},
    {1, 4, 1, 2, 0, 1, "rank 1 (pid 102) of job j has nodes 1, rank 0 (pid 101 on host) has 2"},
    {1, 5, 1, 2, 0, 1, "rank 1 (pid 102) of job j has world size 5, rank 0 (pid 101 on host) has 4"},
    {0, 4, 1, 2, 0, 2, "rank 0 (local rank 1) of job j is taken: rank 0 (pid 101 on host) has local rank 0"},
    {1, 4, 0, 2, 0, 2, "rank 1 (local rank 0) of job j is taken: rank 0 (pid 101 on host) has local rank 0"},
    {4, 4, 1, 2, 0, 2, "rank 4 of a world of 4, expected a rank below a world size of 1 to 4096"},
    {1, 4, 2, 2, 0, 2, "local rank 2 of 2 local ranks, expected a local rank below a local world size of 1 to 1024"},
    {1, 4, 1, 2, 2, 2, "node 2 of 2 nodes, expected a number below the number of nodes"},
};

START_TEST(contradictions_are_refused)
{
	struct fake_client *c[2] = {fake_connect(&fa), fake_connect(&fa)}, *late;
	union local_message m;

	fake_hello(&fa, c[0], "j", 0, 0, 4, 2);
	local_init(&m, LOCAL_HELLO);
	strcpy(m.hello.job, "j");
	m.hello.rank = contradictions[_i].rank;
	m.hello.world_size = contradictions[_i].world;
	m.hello.local_rank = contradictions[_i].local_rank;
	m.hello.local_world_size = contradictions[_i].local;
	m.hello.node_rank = contradictions[_i].node;
	m.hello.nodes = contradictions[_i].nodes;
	m.hello.connect_ms = 10000;
	fake_say(&fa, c[1], &m);
	ck_assert_str_eq(c[1]->sentence, contradictions[_i].sentence);
	ck_assert(c[1]->dropped);
	if (_i >= CONTRADICTIONS_OF_SIZE) {
		expect(c[0], "WELCOME", NULL);
		return;
	}
	/* the job can never be complete: the others hear of it, too, and those that come
	 * within 3 s */
	expect(c[0], "WELCOME ABORT:-5", contradictions[_i].sentence);
	fake_lose(c[0]);
	ck_assert_uint_eq(local_hub_jobs(fa.hub), 0);
	ck_assert(!local_hub_gathered(fa.hub));
	late = fake_connect(&fa);
	fake_say(&fa, late, &m);
	expect(late, "REFUSED:-5", contradictions[_i].sentence);
	fa.now_ms += 3000;
	late = fake_connect(&fa);
	fake_hello(&fa, late, "j", 0, 0, 4, 2);
	expect(late, "WELCOME", NULL);
}
END_TEST

START_TEST(impossible_sizes_are_refused)
{
	struct fake_client *c = fake_connect(&fa);
	union local_message m;

	local_init(&m, LOCAL_HELLO);
	strcpy(m.hello.job, "j");
	m.hello.world_size = 4;
	m.hello.local_world_size = 2;
	m.hello.nodes = 1;
	m.hello.connect_ms = 10000;
	fake_say(&fa, c, &m);
	expect(
	    c, "REFUSED:-1",
	    "2 local ranks on this node of 1 cannot be part of a world of 4; LOCAL_WORLD_SIZE or the number of nodes "
	    "is wrong");
}
END_TEST

START_TEST(a_newer_generation_ends_the_older)
{
	struct fake_client *c[2], *newer, *older;
	struct fake_engine *en = fake_job(&fa, c, 2, 2);

	newer = fake_connect(&fa);
	fake_hello(&fa, newer, "j", 1, 0, 1, 1);
	fake_settle(&fa);
	expect(newer, "WELCOME", NULL);
	ck_assert_int_eq(en->aborted, RS_ECLOSED);
	expect(c[0], "WELCOME READY ABORT:-9", "generation 1 of job j has started on host");
	older = fake_connect(&fa);
	fake_hello(&fa, older, "j", 0, 0, 2, 2);
	expect(older, "REFUSED:-8", "job j is at generation 1, generation 0 is over");
}
END_TEST

static void say_abort(struct fake_client *c, const char *sentence)
{
	union local_message m;

	local_init(&m, LOCAL_ABORT);
	m.failure.code = RS_EABORTED;
	local_put_text(m.failure.message, sentence);
	fake_say(&fa, c, &m);
}

/* While the job runs, with an operation of both local ranks and one that the other has
 * not started. */
START_TEST(a_client_aborts)
{
	const char *says =
	    _i ? "rank 1 (pid 7 on here) aborted the job: NaN" : "rank 1 (pid 102 on host) aborted the job";
	struct fake_client *c[2];
	struct fake_engine *en = fake_job(&fa, c, 4, 2);
	unsigned buffer[2];

	for (unsigned i = 0; i < 2; i++)
		buffer[i] = fake_alloc(&fa, c[i], 4096);
	for (unsigned i = 0; i < 3; i++)
		fake_submit(&fa, c[i % 2], buffer[i % 2], 10, NULL);
	say_abort(c[1], _i ? says : "");
	ck_assert_int_eq(en->aborted, RS_EABORTED);
	ck_assert_str_eq(en->why, says);
	ck_assert(!c[1]->dropped);                   /* the engine may still use its memory */
	fake_submit(&fa, c[1], buffer[1], 10, NULL); /* ignored */
	fake_settle(&fa);
	expect(c[0], "WELCOME READY ALLOCED:0 DONE:0:-15 ABORT:-15", says);
	ck_assert(!strstr(c[1]->story, "ABORT"));
	ck_assert_ptr_null(c[1]->client);
}
END_TEST

START_TEST(a_client_aborts_before_the_job_runs)
{
	struct fake_client *c[2];

	for (unsigned i = 0; i < 2; i++)
		c[i] = fake_connect(&fa);
	fake_hello(&fa, c[0], "j", 0, 0, 4, 2);
	if (_i == 0) { /* alone: as if it had never come */
		say_abort(c[0], "changed its mind");
		fake_settle(&fa);
		ck_assert_uint_eq(local_hub_jobs(fa.hub), 0);
		return;
	}
	fake_hello(&fa, c[1], "j", 0, 1, 4, 2);
	say_abort(c[0], "changed its mind");
	fake_settle(&fa);
	expect(c[1], "WELCOME ABORT:-15", "changed its mind");
}
END_TEST

START_TEST(joining_a_job_whose_ranks_linger_is_retried)
{
	struct fake_client *c[2], *again;

	fake_job(&fa, c, 2, 2);
	fake_lose(c[1]);
	fake_settle(&fa);
	expect(c[0], "WELCOME READY ABORT:-6", "rank 1 (pid 102 on host) exited");
	again = fake_connect(&fa);
	fake_hello(&fa, again, "j", 0, 0, 2, 2);
	expect(again, "REFUSED:-8+", "generation 0 of job j has ended on host, but not all of its processes have left");
	fake_lose(c[0]);
	again = fake_connect(&fa);
	fake_hello(&fa, again, "j", 0, 0, 2, 2);
	expect(again, "WELCOME", NULL);
}
END_TEST

START_TEST(a_running_job_admits_no_further_rank)
{
	struct fake_client *c[2], *other;

	fake_job(&fa, c, 2, 2);
	other = fake_connect(&fa);
	fake_hello(&fa, other, "j", 0, 0, 2, 2);
	expect(other, "REFUSED:-8",
	       "rank 0 (local rank 0) of job j is taken: rank 0 (pid 101 on host) has local rank 0");
	other = fake_connect(&fa);
	fake_hello(&fa, other, "j", 0, 0, 3, 3);
	expect(other, "REFUSED:-5", "rank 0 (pid 104) of job j has world size 3, rank 0 (pid 101 on host) has 2");
}
END_TEST

/* Two trainings of one name: the rank of the second is refused at once. _i: while the
 * first gathers, while it runs. */
START_TEST(a_rank_of_another_run_is_refused)
{
	struct fake_client *c[2], *other;
	char says[160];

	fa.run = "slurm:1";
	if (_i) {
		fake_job(&fa, c, 2, 2);
	} else {
		c[1] = fake_connect(&fa);
		fake_hello(&fa, c[1], "j", 0, 1, 2, 2);
	}
	fa.run = "slurm:2";
	other = fake_connect(&fa);
	fake_hello(&fa, other, "j", 0, 0, 2, 2);
	expect(other, "REFUSED:-5", NULL);
	snprintf(says, sizeof says,
		 "two trainings use the job name j: rank 0 (pid %u on host) has run slurm:2, rank %u "
		 "(pid 101 on host) has run slurm:1. ",
		 _i ? 103 : 102, _i ? 0 : 1);
	ck_assert_msg(strstr(other->sentence, says) != NULL, "\"%s\"", other->sentence);
	fa.run = NULL;
	other = fake_connect(&fa);
	fake_hello(&fa, other, "j", 0, 0, 2, 2);
	expect(other, "REFUSED:-5", NULL);
	ck_assert_ptr_nonnull(strstr(other->sentence, " has no run, "));
	/* a newer generation of another run does not end this one; but a restart may have
	 * changed the run */
	other = fake_connect(&fa);
	fake_hello(&fa, other, "j", 1, 0, 2, 2);
	expect(other, "REFUSED:-5+", NULL);
	expect(c[1], _i ? "WELCOME READY" : "WELCOME", NULL);
}
END_TEST

/* The same with one run: their launchers differ. A restart may have another launcher. */
START_TEST(a_rank_with_other_evidence_is_refused)
{
	struct fake_client *c[2], *other;

	fa.evidence = "port=1";
	if (_i) {
		fake_job(&fa, c, 2, 2);
	} else {
		c[1] = fake_connect(&fa);
		fake_hello(&fa, c[1], "j", 0, 1, 2, 2);
	}
	fa.evidence = "port=2";
	other = fake_connect(&fa);
	fake_hello(&fa, other, "j", 0, 0, 2, 2);
	expect(other, "REFUSED:-5", NULL);
	ck_assert_msg(strstr(other->sentence, "port is 2 to rank 0 (pid ") != NULL, "\"%s\"", other->sentence);
	ck_assert_msg(strstr(other->sentence, ", and 1 to rank ") != NULL, "\"%s\"", other->sentence);
	expect(c[1], _i ? "WELCOME READY" : "WELCOME", NULL);
	fa.evidence = NULL; /* it agrees with each */
	if (!_i) {
		other = fake_connect(&fa);
		fake_hello(&fa, other, "j", 0, 0, 2, 2);
		expect(other, "WELCOME", NULL);
	}
	fa.evidence = "port=2";
	other = fake_connect(&fa);
	fake_hello(&fa, other, "j", 1, 0, 2, 2);
	expect(other, "WELCOME", NULL);
}
END_TEST

START_TEST(a_run_with_spaces_is_refused)
{
	struct fake_client *c = fake_connect(&fa);

	fa.run = "a b";
	fake_hello(&fa, c, "j", 0, 0, 2, 2);
	expect(c, "REFUSED:-1", "run: found \"a b\", expected 1 to 127 printable characters without spaces");
}
END_TEST

START_TEST(jobs_are_limited)
{
	struct fake_client *c[5];
	char name[] = "a";

	for (unsigned i = 0; i < 5; i++, name[0]++) {
		c[i] = fake_connect(&fa);
		fake_hello(&fa, c[i], name, 0, 0, 1, 1);
	}
	expect(c[3], "WELCOME", NULL);
	expect(c[4], "REFUSED:-8+", "the agent on host already serves 4 jobs (agent.max_jobs)");
}
END_TEST

/* Clients get a failure only after the engine has stopped using their memory. */
START_TEST(abort_comes_after_the_engine)
{
	struct fake_client *c[2];
	struct fake_engine *en = fake_job(&fa, c, 2, 2);
	unsigned buffer[2] = {fake_alloc(&fa, c[0], 4096), fake_alloc(&fa, c[1], 4096)};

	for (int i = 0; i < 2; i++)
		fake_submit(&fa, c[i], buffer[i], 10, NULL);
	ck_assert_uint_eq(en->ops_n, 1);
	fake_lose(c[1]);
	ck_assert_int_eq(en->aborted, RS_EPEER);
	ck_assert_str_eq(en->why, "rank 1 (pid 102 on host) exited");
	expect(c[0], "WELCOME READY ALLOCED:0", NULL);
	((float *)en->ops[0]->recv)[9] = 1; /* still mapped; so is the memory it is computed from: */
	en->ops[0]->chunk_elems = FAKE_CHUNK / 4;
	en->ops[0]->fill(en->ops[0], 0, 10);
	fake_settle(&fa);
	expect(c[0], "WELCOME READY ALLOCED:0 DONE:0:-6 ABORT:-6", "rank 1 (pid 102 on host) exited");
	ck_assert(en->freed);
	fake_submit(&fa, c[0], buffer[0], 10, NULL); /* it has not got the ABORT yet */
	expect(c[0], "WELCOME READY ALLOCED:0 DONE:0:-6 ABORT:-6", NULL);
}
END_TEST

START_TEST(the_engine_fails)
{
	struct fake_client *c[2];
	struct fake_engine *en = fake_job(&fa, c, 4, 2);

	fake_engine_fail(&fa, en, RS_EPEER, "rank 1 (processes 2-3 on other) was lost");
	expect(c[0], "WELCOME READY ABORT:-6", "rank 1 (processes 2-3 on other) was lost");
	expect(c[1], "WELCOME READY ABORT:-6", "rank 1 (processes 2-3 on other) was lost");
	ck_assert_int_eq(en->aborted, 0);
	ck_assert(en->freed);
	fake_goodbye(&fa, c[0]);
	fake_lose(c[1]);
	fake_settle(&fa);
	ck_assert_uint_eq(local_hub_jobs(fa.hub), 0);
}
END_TEST

START_TEST(the_engine_fails_before_all_ranks_have_joined)
{
	struct fake_client *c = fake_connect(&fa);

	fake_hello(&fa, c, "j", 0, 0, 2, 1);
	fake_engine_fail(&fa, &fa.engines[0], RS_ETIMEOUT, "rank 1 is missing");
	expect(c, "WELCOME ABORT:-7", "rank 1 is missing");
}
END_TEST

START_TEST(the_engine_does_not_start)
{
	struct fake_client *c = fake_connect(&fa);

	fa.no_engine = true;
	fake_hello(&fa, c, "j", 0, 0, 2, 1);
	expect(c, "WELCOME ABORT:-3", "no engine");
}
END_TEST

START_TEST(leaving_before_all_ranks_have_joined_ends_the_job)
{
	struct fake_client *c[2] = {fake_connect(&fa), fake_connect(&fa)};

	fake_hello(&fa, c[0], "j", 0, 0, 2, 2);
	fake_hello(&fa, c[1], "j", 0, 1, 2, 2);
	fake_goodbye(&fa, c[0]);
	fake_settle(&fa);
	expect(c[1], "WELCOME ABORT:-9", "rank 0 (pid 101 on host) has left before all ranks had met");
}
END_TEST

START_TEST(stopping_waits_for_running_jobs)
{
	struct fake_client *c[2], *gathering, *late;
	struct fake_engine *en = fake_job(&fa, c, 2, 2);
	struct rs_err e;

	gathering = fake_connect(&fa);
	fake_hello(&fa, gathering, "g", 0, 0, 2, 2);
	late = fake_connect(&fa);
	local_hub_drain(fa.hub, fa.now_ms, fa.now_ms + 500);
	fake_settle(&fa);
	expect(gathering, "WELCOME ABORT:-9", "the agent on host was stopped");
	expect(c[0], "WELCOME READY", NULL);
	ck_assert_int_eq(local_client_new(&late->client, fa.hub, 1, late, 0, &e), RS_EREFUSED);
	ck_assert_str_eq(e.msg, "the agent on host is stopping");
	fake_hello(&fa, late, "new", 0, 0, 1, 1);
	expect(late, "REFUSED:-8", "the agent on host is stopping");
	ck_assert(!local_hub_drained(fa.hub));
	ck_assert_uint_eq(local_hub_next(fa.hub), fa.now_ms + 500);
	local_hub_tick(fa.hub, fa.now_ms + 500);
	ck_assert_str_eq(en->why, "the agent on host was stopped");
	ck_assert(!local_hub_drained(fa.hub));
	fake_settle(&fa);
	expect(c[0], "WELCOME READY ABORT:-9", "the agent on host was stopped");
	ck_assert(local_hub_drained(fa.hub));
}
END_TEST

START_TEST(silence_after_connecting_ends)
{
	struct fake_client *c = fake_connect(&fa);

	ck_assert_uint_eq(local_hub_next(fa.hub), fa.now_ms + 1000);
	local_hub_tick(fa.hub, fa.now_ms + 1000);
	expect(c, "REFUSED:-7", "the agent on host dropped this process: no HELLO within 1000 ms");
	ck_assert(c->dropped);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("local_job");
	TCase *t = tcase_create("local_job");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, ranks_join_and_leave);
	tcase_add_test(t, one_rank_has_a_label_of_its_own);
	tcase_add_test(t, late_ranks_are_named);
	tcase_add_test(t, a_rank_that_leaves_early_may_rejoin);
	tcase_add_loop_test(t, contradictions_are_refused, 0, sizeof contradictions / sizeof contradictions[0]);
	tcase_add_test(t, impossible_sizes_are_refused);
	tcase_add_test(t, a_newer_generation_ends_the_older);
	tcase_add_loop_test(t, a_client_aborts, 0, 2);
	tcase_add_loop_test(t, a_client_aborts_before_the_job_runs, 0, 2);
	tcase_add_test(t, joining_a_job_whose_ranks_linger_is_retried);
	tcase_add_test(t, a_running_job_admits_no_further_rank);
	tcase_add_loop_test(t, a_rank_of_another_run_is_refused, 0, 2);
	tcase_add_loop_test(t, a_rank_with_other_evidence_is_refused, 0, 2);
	tcase_add_test(t, a_run_with_spaces_is_refused);
	tcase_add_test(t, jobs_are_limited);
	tcase_add_test(t, abort_comes_after_the_engine);
	tcase_add_test(t, the_engine_fails);
	tcase_add_test(t, the_engine_fails_before_all_ranks_have_joined);
	tcase_add_test(t, the_engine_does_not_start);
	tcase_add_test(t, leaving_before_all_ranks_have_joined_ends_the_job);
	tcase_add_test(t, stopping_waits_for_running_jobs);
	tcase_add_test(t, silence_after_connecting_ends);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
