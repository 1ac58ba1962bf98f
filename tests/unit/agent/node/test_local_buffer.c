/* SPDX-License-Identifier: Apache-2.0 */
/* Shared memory: its limits for each client, and its lifetime. */
#include "tests/unit/fake_agent.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static struct fake_agent fa;
static struct fake_client *c[2];
static struct fake_engine *en;

static void setup(void)
{
	fake_agent_init(&fa);
	en = fake_job(&fa, c, 2, 2);
	c[0]->story[0] = c[1]->story[0] = 0;
}

static void teardown(void)
{
	fake_agent_close(&fa);
}

static void ask(struct fake_client *client, uint64_t bytes)
{
	union local_message m;

	local_init(&m, LOCAL_ALLOC);
	m.alloc.bytes = bytes;
	fake_say(&fa, client, &m);
}

static void give_back(struct fake_client *client, unsigned id)
{
	union local_message m;

	local_init(&m, LOCAL_FREE);
	m.free.buffer = id;
	fake_say(&fa, client, &m);
	client->buffer[id] = NULL;
}

static const struct {
	uint64_t bytes;
	bool fits;
} sizes[] = {
    {0, true},
    {1, true},
    {4096, true},
    {4097, true},
    {1 << 20, true},
    {(1 << 20) + 1, false},
    {UINT64_C(1) << 40, false},
    {UINT64_MAX, false},
    {UINT64_MAX - 4095, false},
    {UINT64_MAX - 4096, false},
};

START_TEST(sizes_up_to_the_limit)
{
	ask(c[0], sizes[_i].bytes);
	fake_settle(&fa);
	ck_assert_str_eq(c[0]->story, sizes[_i].fits ? "ALLOCED:0" : "ALLOCED:-8");
	if (!sizes[_i].fits)
		ck_assert_ptr_nonnull(strstr(c[0]->sentence, "0 of agent.shm_bytes 1048576 are in use"));
}
END_TEST

START_TEST(all_clients_share_the_limit)
{
	unsigned b = fake_alloc(&fa, c[0], 600000);

	ask(c[1], 600000);
	ck_assert_str_eq(c[1]->sentence, "the agent on host cannot share 600000 more bytes: 602112 of agent.shm_bytes "
					 "1048576 are in use");
	give_back(c[0], b);
	fake_alloc(&fa, c[1], 600000);
	fake_lose(c[1]);
	fake_alloc(&fa, c[0], 600000);
}
END_TEST

START_TEST(memory_in_use_stays_until_the_operation_ends)
{
	unsigned b[2] = {fake_alloc(&fa, c[0], 600000), fake_alloc(&fa, c[1], 4096)};

	for (int i = 0; i < 2; i++)
		fake_submit(&fa, c[i], b[i], 1000, NULL);
	memset(c[1]->buffer[b[1]], 0, 4000);
	((float *)c[0]->buffer[b[0]])[999] = 7;
	give_back(c[0], b[0]); /* no library does that */
	ask(c[0], 600000);
	ck_assert_ptr_nonnull(strstr(c[0]->sentence, "cannot share"));
	fake_engine_run(&fa, en, 0);
	ck_assert_float_eq(((float *)c[1]->buffer[b[1]])[999], 7);
	fake_alloc(&fa, c[0], 600000);
}
END_TEST

START_TEST(ids_are_reused)
{
	for (int i = 0; i < 5; i++)
		ck_assert_uint_eq(fake_alloc(&fa, c[0], 1), (unsigned)i);
	give_back(c[0], 3);
	ck_assert_uint_eq(fake_alloc(&fa, c[0], 1), 3);
	ck_assert_uint_eq(fake_alloc(&fa, c[0], 1), 5);
}
END_TEST

START_TEST(the_number_of_buffers_is_limited)
{
	fa.cfg.agent.shm_bytes = UINT64_C(1) << 40;
	for (int i = 0; i < LOCAL_BUFFERS_MAX; i++) {
		ask(c[0], 1);
		c[0]->story[0] = 0;
		fake_settle(&fa);
		ck_assert_str_eq(c[0]->story, "ALLOCED:0");
	}
	ask(c[0], 1);
	ck_assert_str_eq(c[0]->sentence, "this process already has 4096 shared buffers, the limit");
}
END_TEST

START_TEST(one_allocation_at_a_time)
{
	ask(c[0], 1);
	ask(c[0], 1);
	fake_settle(&fa);
	ck_assert_str_eq(c[0]->sentence,
			 "the agent on host dropped this process: ALLOC before the last one was answered");
}
END_TEST

START_TEST(the_client_leaves_during_an_allocation)
{
	ask(c[0], 1 << 20);
	fake_lose(c[0]);
	ask(c[1], 4096);
	ck_assert_ptr_nonnull(strstr(c[1]->sentence, "1048576 are in use"));
	fake_settle(&fa);
	ask(c[1], 4096);
	fake_settle(&fa);
	ck_assert_str_eq(c[1]->story, "ALLOCED:-8 ABORT:-6 ALLOCED:0");
}
END_TEST

START_TEST(a_failed_allocation_is_reported)
{
	struct rs_err e;
	union local_message m;

	fa.no_memory = true;
	ask(c[0], 4096);
	ck_assert_str_eq(c[0]->story, "ALLOCED:-2");
	fa.no_memory = false;
	ask(c[0], 1 << 20);
	rs_fail(&e, RS_ENOMEM, "the system has none");
	ck_assert(!local_buffer_made(fa.making[--fa.making_n], NULL, -1, &e));
	ck_assert_str_eq(c[0]->story, "ALLOCED:-2 ALLOCED:-2");
	ck_assert_str_eq(c[0]->sentence, "the system has none");
	fake_alloc(&fa, c[0], 1 << 20); /* failed allocations do not count */
	local_init(&m, LOCAL_FREE);
	m.free.buffer = 1;
	fake_say(&fa, c[0], &m);
	fake_settle(&fa);
	ck_assert_str_eq(c[0]->sentence,
			 "the agent on host dropped this process: FREE of shared buffer 1, which does not exist");
}
END_TEST

START_TEST(counters)
{
	union local_message m;

	local_init(&m, LOCAL_STATS);
	fake_say(&fa, c[0], &m);
	ck_assert_str_eq(c[0]->story, "COUNTERS");
	ck_assert_uint_eq(c[0]->tx_bytes, 77);
	fake_lose(c[1]);
	fake_settle(&fa); /* the engine is freed, the request still gets an answer */
	local_init(&m, LOCAL_STATS);
	fake_say(&fa, c[0], &m);
	ck_assert_str_eq(c[0]->story, "COUNTERS ABORT:-6 COUNTERS");
	ck_assert_uint_eq(c[0]->tx_bytes, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("local_buffer");
	TCase *t = tcase_create("local_buffer");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, sizes_up_to_the_limit, 0, sizeof sizes / sizeof sizes[0]);
	tcase_add_test(t, all_clients_share_the_limit);
	tcase_add_test(t, memory_in_use_stays_until_the_operation_ends);
	tcase_add_test(t, ids_are_reused);
	tcase_add_test(t, the_number_of_buffers_is_limited);
	tcase_add_test(t, one_allocation_at_a_time);
	tcase_add_test(t, the_client_leaves_during_an_allocation);
	tcase_add_test(t, a_failed_allocation_is_reported);
	tcase_add_test(t, counters);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
