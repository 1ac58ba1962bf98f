/* SPDX-License-Identifier: Apache-2.0 */
/* Clients by themselves, and random schedules: for any behaviour of clients, engines and
 * time, no message goes to a closed client, nothing is left (fake_agent_close), and each
 * client gets its end once. */
#include "common/dtype.h"
#include "proto/frame.h"
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

/* Clients without HELLO are dropped for new ones, the oldest first; if all have sent
 * HELLO, new ones are refused. */
START_TEST(clients_are_limited)
{
	static struct fake_client who[LOCAL_CLIENTS_MAX + 2];
	union local_message m;
	struct rs_err e;

	for (int i = 0; i < LOCAL_CLIENTS_MAX; i++)
		ck_assert_int_eq(local_client_new(&who[i].client, fa.hub, 0, &who[i], (uint64_t)i, &e), 0);
	ck_assert_uint_eq(local_hub_next(fa.hub), 1000);
	local_client_lost(who[0].client, "exited");
	ck_assert_int_eq(local_client_new(&who[0].client, fa.hub, 0, &who[0], 900, &e), 0);
	ck_assert_str_eq(who[1].story, "");
	ck_assert_int_eq(local_client_new(&who[LOCAL_CLIENTS_MAX].client, fa.hub, 0, &who[LOCAL_CLIENTS_MAX], 900, &e),
			 0);
	ck_assert_str_eq(who[1].story, "REFUSED:-8+");
	ck_assert_str_eq(who[1].sentence, "the agent on host dropped this process: it has not sent HELLO and the agent "
					  "serves its maximum number of clients: a newer connection takes its place");
	ck_assert(who[1].dropped && !who[2].dropped);
	ck_assert_uint_eq(local_hub_next(fa.hub), 1002);
	for (int i = 0; i <= LOCAL_CLIENTS_MAX; i++) {
		local_init(&m, LOCAL_STATS);
		local_client_message(who[i].client, &m, m.head.bytes, 901);
	}
	ck_assert(who[LOCAL_CLIENTS_MAX].dropped);
	ck_assert_int_eq(
	    local_client_new(&who[LOCAL_CLIENTS_MAX + 1].client, fa.hub, 0, &who[LOCAL_CLIENTS_MAX + 1], 902, &e),
	    RS_EREFUSED);
	ck_assert_str_eq(e.msg, "the agent on host already has 1025 clients, the limit");
	for (int i = 0; i <= LOCAL_CLIENTS_MAX; i++)
		local_client_lost(who[i].client, "exited");
}
END_TEST

START_TEST(hello_is_the_first_message_and_unique)
{
	struct fake_client *c = fake_connect(&fa);
	union local_message m;

	local_init(&m, LOCAL_ALLOC);
	fake_say(&fa, c, &m);
	ck_assert_str_eq(c->story, "REFUSED:-4");
	ck_assert_str_eq(c->sentence, "the agent on host dropped this process: ALLOC before HELLO");
	c = fake_connect(&fa);
	fake_hello(&fa, c, "j", 0, 0, 2, 2);
	fake_hello(&fa, c, "j", 0, 1, 2, 2);
	ck_assert_str_eq(c->story, "WELCOME ABORT:-4");
}
END_TEST

START_TEST(the_pid_of_the_kernel_replaces_that_of_hello)
{
	struct fake_client *c[2] = {fake_connect(&fa), fake_connect(&fa)};
	struct rs_err e;

	fake_hello(&fa, c[0], "j", 0, 0, 2, 2); /* has pid 0 */
	fake_hello(&fa, c[1], "j", 0, 0, 2, 2);
	ck_assert_ptr_nonnull(strstr(c[1]->sentence, "(pid 101 on host)"));
	fake_lose(c[0]);
	ck_assert_int_eq(local_client_new(&c[0]->client, fa.hub, 0, c[0], 0, &e), 0);
}
END_TEST

static void pong(struct fake_client *c)
{
	union local_message m;

	local_init(&m, LOCAL_PONG);
	fake_say(&fa, c, &m);
}

/* Ticks at the times that the hub asks for, until that time. */
static void pass_time(uint64_t until)
{
	while (local_hub_next(fa.hub) <= until) {
		fa.now_ms = local_hub_next(fa.hub);
		local_hub_tick(fa.hub, fa.now_ms);
	}
	fa.now_ms = until;
}

START_TEST(a_silent_client_is_lost)
{
	struct fake_client *c[2];
	uint64_t start;

	fa.cfg.timeouts.detect_ms = 4000;
	fake_job(&fa, c, 2, 2);
	start = fa.now_ms;
	for (unsigned beat = 1; beat <= 20; beat++) { /* both answer: five detection times pass */
		pass_time(start + 1000 * beat);
		ck_assert_uint_eq(c[0]->pings, beat);
		pong(c[0]);
		pong(c[1]);
	}
	pass_time(start + 20999);
	pong(c[1]);                                    /* the last that is heard from it, just before a PING */
	for (unsigned beat = 21; beat <= 24; beat++) { /* any message counts */
		pass_time(start + 1000 * beat);
		fake_alloc(&fa, c[0], 4096);
	}
	fake_settle(&fa);
	ck_assert_str_eq(c[1]->story, "WELCOME READY"); /* after 3 s of silence */
	pass_time(start + 25000);
	fake_settle(&fa);
	ck_assert_str_eq(c[1]->story, "WELCOME READY ABORT:-6");
	ck_assert_str_eq(c[1]->sentence,
			 "the agent on host dropped this process, which was lost: nothing was heard from it for 4.0 s");
	ck_assert_ptr_null(c[1]->client);
	ck_assert_int_eq(fa.engines[0].aborted, RS_EPEER);
	ck_assert_str_eq(fa.engines[0].why, "rank 1 (pid 102 on host) was lost: nothing was heard from it for 4.0 s");
}
END_TEST

/* _i: 0 it continues, 1 its process ends although a forked one holds the socket, 2 it is
 * stopped for too long. */
START_TEST(a_stopped_client_is_late)
{
	struct fake_client *c[2];
	uint64_t start;

	fa.cfg.timeouts.detect_ms = 4000;
	fa.cfg.timeouts.stopped_ms = 30000;
	fake_job(&fa, c, 2, 2);
	c[1]->stopped = true;
	start = fa.now_ms;
	for (unsigned beat = 1; beat <= 20; beat++) {
		pass_time(start + 1000 * beat);
		pong(c[0]);
	}
	fake_settle(&fa);
	ck_assert_str_eq(c[1]->story, "WELCOME READY");
	ck_assert_uint_eq(c[1]->pings, 4); /* its socket is not filled */
	if (_i == 0)
		pong(c[1]);
	c[1]->stopped = _i == 2;
	for (unsigned beat = 21; beat <= 31; beat++) {
		pass_time(start + 1000 * beat);
		pong(c[0]);
		if (_i == 0)
			pong(c[1]);
	}
	fake_settle(&fa);
	ck_assert_str_eq(c[1]->story, _i ? "WELCOME READY ABORT:-6" : "WELCOME READY");
	if (_i)
		ck_assert_str_eq(fa.engines[0].why,
				 _i == 1 ? "rank 1 (pid 102 on host) was lost: nothing was heard from it for 20.0 s"
					 : "rank 1 (pid 102 on host) was lost: nothing was heard from it for 30.0 s");
}
END_TEST

START_TEST(an_agent_that_stood_still_reports_no_silence)
{
	struct fake_client *c[2];

	fa.cfg.timeouts.detect_ms = 4000;
	fake_job(&fa, c, 2, 2);
	for (int i = 0; i < 3; i++) { /* a minute each time */
		local_hub_tick(fa.hub, fa.now_ms += 60000);
		ck_assert_ptr_nonnull(c[1]->client);
	}
	pong(c[0]);
	pong(c[1]);
	local_hub_tick(fa.hub, fa.now_ms += 60000);
	ck_assert_str_eq(c[1]->story, "WELCOME READY");
}
END_TEST

START_TEST(heartbeats_follow_the_shorter_detection_time)
{
	static const struct {
		uint32_t detect_ms;
		unsigned every_ms;
	} cases[] = {{0, 1000}, {400, 100}, {2000, 500}, {4000, 1000}, {60000, 1000}, {1, 100}};

	fa.cfg.timeouts.detect_ms = 4000;
	for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct fake_client *c = fake_connect(&fa);
		uint64_t joined = fa.now_ms;
		union local_message m;

		local_init(&m, LOCAL_HELLO);
		strcpy(m.hello.job, "j");
		m.hello.world_size = m.hello.local_world_size = 2;
		m.hello.nodes = 1;
		m.hello.connect_ms = 10000;
		m.hello.detect_ms = cases[i].detect_ms;
		fake_say(&fa, c, &m);
		ck_assert_uint_eq(local_hub_next(fa.hub), joined + cases[i].every_ms);
		fake_lose(c);
	}
}
END_TEST

/* It has got the reason and may keep its communicator open. */
START_TEST(a_client_that_got_abort_need_not_answer)
{
	struct fake_client *c[2];

	fa.cfg.timeouts.detect_ms = 4000;
	fake_job(&fa, c, 2, 2);
	fake_lose(c[1]);
	fake_engine_fail(&fa, &fa.engines[0], RS_EPEER, "lost");
	fake_settle(&fa);
	pass_time(fa.now_ms + 20000);
	ck_assert_str_eq(c[0]->story, "WELCOME READY ABORT:-6");
	ck_assert_ptr_nonnull(c[0]->client);
	ck_assert_uint_le(c[0]->pings, 1);
	ck_assert_uint_eq(local_hub_next(fa.hub), UINT64_MAX);
}
END_TEST

/* Worlds in which only one job of a name runs at a time, so that an engine's operations
 * always end. */
static unsigned dice(unsigned n)
{
	return (unsigned)random() % n;
}

static struct fake_client *any_client(void)
{
	struct fake_client *c = fa.clients_n ? &fa.clients[dice(fa.clients_n)] : NULL;

	return c && c->client && !c->dropped ? c : NULL;
}

static struct fake_engine *any_engine(void)
{
	struct fake_engine *en = fa.engines_n ? &fa.engines[dice(fa.engines_n)] : NULL;

	return en && !en->freeing && !en->ended ? en : NULL;
}

static bool has(const struct fake_client *c, const char *word)
{
	return strstr(c->story, word) != NULL;
}

static void random_client_step(void)
{
	static const char *const jobs[] = {"a", "b"};
	struct fake_client *c = any_client();
	struct local_submit s = {.of.dtype = (uint8_t)(dice(40) ? RS_FLOAT16 : RS_INT8)};

	if (!c || strlen(c->story) > sizeof c->story - 64)
		return;
	if (!has(c, "WELCOME")) {
		fake_hello(&fa, c, jobs[dice(2)], dice(20) ? 0 : 1, dice(3), 3, 3);
	} else if (dice(4) == 0) {
		pong(c);
	} else if (dice(60) == 0) {
		fake_lose(c);
	} else if (dice(80) == 0) {
		fake_goodbye(&fa, c);
	} else if (!c->buffer[0]) {
		if (has(c, "READY") && fa.making_n == 0)
			fake_alloc(&fa, c, 4096);
	} else if (c->seq < 8 || has(c, "DONE")) {
		if (dice(3) == 0)
			fake_submit(&fa, c, 0, dice(50) ? 100 : 99, &s);
	}
}

static void random_engine_step(void)
{
	struct fake_engine *en = any_engine();

	if (!en)
		return;
	if (dice(100) == 0)
		fake_engine_fail(&fa, en, RS_EPEER, "lost");
	else if (en->ops_n)
		fake_engine_run(&fa, en, dice(en->ops_n));
	else if (!en->ready && dice(4) == 0)
		fake_engine_ready(&fa, en);
}

START_TEST(random_schedules)
{
	srandom((unsigned)_i);
	fa.cfg.timeouts.detect_ms = 4000;
	for (int i = 0; i < 1500; i++) {
		if (fa.clients_n < FAKE_CLIENTS && dice(10) == 0)
			fake_connect(&fa);
		if (dice(2))
			random_client_step();
		else
			random_engine_step();
		if (dice(3) == 0)
			fake_settle(&fa);
		if (dice(50) == 0)
			local_hub_tick(fa.hub, fa.now_ms += dice(900));
		if (fa.engines_n == FAKE_ENGINES)
			break;
	}
	if (dice(4) == 0) {
		local_hub_drain(fa.hub, fa.now_ms, fa.now_ms + 10);
		fake_settle(&fa);
		local_hub_tick(fa.hub, fa.now_ms + 10);
		fake_settle(&fa);
		ck_assert(local_hub_drained(fa.hub));
	}
	for (unsigned i = 0; i < fa.clients_n; i++) {
		const char *first = strstr(fa.clients[i].story, "ABORT");

		if (first) /* for its job; a second one only for its own later actions */
			ck_assert(!strstr(first + 1, "ABORT") ||
				  strstr(fa.clients[i].sentence, "dropped this process"));
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("local_hub");
	TCase *t = tcase_create("local_hub");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, clients_are_limited);
	tcase_add_test(t, hello_is_the_first_message_and_unique);
	tcase_add_test(t, the_pid_of_the_kernel_replaces_that_of_hello);
	tcase_add_test(t, a_silent_client_is_lost);
	tcase_add_loop_test(t, a_stopped_client_is_late, 0, 3);
	tcase_add_test(t, an_agent_that_stood_still_reports_no_silence);
	tcase_add_test(t, heartbeats_follow_the_shorter_detection_time);
	tcase_add_test(t, a_client_that_got_abort_need_not_answer);
	tcase_add_loop_test(t, random_schedules, 0, 100);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
