/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank makes of news about reducers. The simulator has all of it together. */
#include "tests/unit/fake_reducer.h"

#include <check.h>

static const char two[] = "job: {failover: retain}\n"
			  "reducers: [{id: r0, address: '127.0.0.1:1'}, {id: r1, address: '127.0.0.1:2'}]\n";

static void say_view(struct reducers *f, unsigned link, uint32_t first, uint32_t second)
{
	struct control_view v = {.n = 2, .lives = {first, second}};
	uint8_t payload[FRAME_CONTROL_MAX];

	reducers_say_control(f, link, FRAME_VIEW, payload, control_pack_view(payload, &v));
	reducers_pump(f);
}

static void expect_view(const struct reducers *f, unsigned views, uint32_t second)
{
	ck_assert_uint_eq(f->l[0].views, views);
	ck_assert_uint_eq(f->l[0].view.lives[0], 0);
	ck_assert_uint_eq(f->l[0].view.lives[1], second);
}

/* Rank 0 has lost r1 and says HELLO to it again. */
static void open_without_r1(struct reducers *f)
{
	reducers_open(f, two, 2, 1000);
	reducers_pump(f);
	f->welcome = false;
	reducers_cut(f, 1, "connection reset by peer");
	reducers_pump(f);
	expect_view(f, 1, 1);
	while (!f->l[1].greeted)
		reducers_advance(f, 10);
}

/* The last rank to join may hear of that from another, before WELCOME reaches it. */
START_TEST(who_has_said_hello_is_there)
{
	struct reducers f;

	open_without_r1(&f);
	say_view(&f, 0, 0, 2);
	expect_view(&f, 2, 2);
	ck_assert(f.l[1].up);
	ck_assert_uint_eq(f.l[1].aborts, 0);
	/* when that comes to nothing, r1 is lost again */
	reducers_cut(&f, 1, "connection reset by peer");
	reducers_pump(&f);
	expect_view(&f, 3, 3);
	reducers_close(&f);
}
END_TEST

/* The connection that r1 was seen with is lost already. */
START_TEST(who_waits_for_a_connection_is_not)
{
	struct reducers f;

	open_without_r1(&f);
	f.l[1].dead = true;
	reducers_cut(&f, 1, "connection reset by peer");
	reducers_pump(&f);
	say_view(&f, 0, 0, 2);
	expect_view(&f, 2, 3);
	reducers_close(&f);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("exchange_view");
	TCase *tc = tcase_create("views");
	SRunner *runner;
	int failed;

	tcase_add_test(tc, who_has_said_hello_is_there);
	tcase_add_test(tc, who_waits_for_a_connection_is_not);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
