/* SPDX-License-Identifier: Apache-2.0 */
/* What a lane says to its ranks while reducers come and go. The simulator has all of it together. */
#include "tests/unit/fake_worker.h"

#include <string.h>

static void say_view(struct fw_world *fw, unsigned rank, const struct control_view *v)
{
	uint8_t payload[FRAME_CONTROL_MAX];
	uint32_t len = control_pack_view(payload, v);

	fw_say(fw, rank, (struct frame){.type = FRAME_VIEW, .generation = FAKE_GENERATION, .payload_len = len},
	       payload);
	while (fw_feed(fw, rank, SIZE_MAX))
		;
}

/* The next frame has this type, and the lives of that view. */
static void expect_view(struct fw_world *fw, unsigned rank, unsigned type, const struct control_view *want)
{
	const uint8_t *payload;
	struct control_view v;
	struct rs_err e;
	struct frame f;

	ck_assert(fw_take(fw, rank, &f, &payload));
	ck_assert_uint_eq(f.type, type);
	ck_assert_int_eq(control_unpack_view(payload, f.payload_len, &v, &e), RS_OK);
	ck_assert_uint_eq(v.n, want->n);
	ck_assert_mem_eq(v.lives, want->lives, want->n * sizeof *v.lives);
}

/* A RESUME that waits behind other frames is for the view of its time. */
START_TEST(a_rank_that_has_learnt_more_is_not_resumed)
{
	struct control_view first = {.n = 3, .lives = {0, 1, 0}}, second = {.n = 3, .lives = {1, 1, 0}};
	struct fw_world fw;

	fw_init(&fw, &(struct fw_options){0});
	fw.params.retain = true;
	for (unsigned r = 0; r < 2; r++) {
		fw_attach(&fw, r);
		fw_expect(&fw, r, FRAME_WELCOME);
	}
	lane_start(fw.lane, FAKE_JOB, 2);
	fw_flush(&fw);
	for (unsigned r = 0; r < 2; r++)
		fw_expect(&fw, r, FRAME_START);

	fw.w[0].room = 0;
	say_view(&fw, 1, &first);
	say_view(&fw, 0, &first);
	expect_view(&fw, 1, FRAME_RESUME, &first);
	say_view(&fw, 0, &second);
	expect_view(&fw, 1, FRAME_VIEW, &second);
	fw_grant(&fw, 0, SIZE_MAX);
	expect_view(&fw, 0, FRAME_VIEW, &first);
	fw_expect_nothing(&fw, 0);

	say_view(&fw, 1, &second);
	for (unsigned r = 0; r < 2; r++) {
		expect_view(&fw, r, FRAME_RESUME, &second);
		fw_expect_nothing(&fw, r);
	}
	fw_close(&fw);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("stripe_view");
	TCase *tc = tcase_create("views");
	SRunner *runner;
	int failed;

	tcase_add_test(tc, a_rank_that_has_learnt_more_is_not_resumed);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
