/* SPDX-License-Identifier: Apache-2.0 */
/* LOAD: what ranks say of their connections, and what rank 0 is told. */
#include "proto/features.h"
#include "tests/unit/fake_worker.h"

enum { RANKS = 4 };

static void say(struct fw_world *fw, unsigned rank, const struct control_load *l)
{
	uint8_t payload[CONTROL_LOAD_LEN];

	fw_send(fw, rank, (struct frame){.type = FRAME_LOAD, .payload_len = control_pack_load(payload, l)}, payload);
	fw_feed_all(fw, SIZE_MAX);
}

/* Two samples of the driver, half a second apart, between which the connection of each
 * rank was busy for down[rank] / 1000. */
static void sample(struct fw_world *fw, const uint32_t down[RANKS])
{
	for (unsigned i = 0; i < 2; i++) {
		fw_tick(fw, 500);
		for (unsigned r = 0; r < RANKS; r++)
			session_network(fw->w[r].session, 100, 100, 0, i * 500ull * down[r]);
	}
}

static struct control_load answer(struct fw_world *fw)
{
	struct control_load l;
	const uint8_t *payload;
	struct frame f;
	struct rs_err e;

	do
		ck_assert(fw_take(fw, 0, &f, &payload));
	while (f.type == FRAME_PING);
	ck_assert_uint_eq(f.type, FRAME_LOAD);
	ck_assert_int_eq(control_unpack_load(payload, f.payload_len, &l, &e), 0);
	return l;
}

/* What the ranks say and the kernels know, and what rank 0 hears. A rank with 2000 says
 * nothing. */
static const struct {
	uint32_t up[RANKS], down[RANKS];
	struct control_load want;
} rows[] = {
    {{400, 410, 390, 420},
     {300, 310, 330, 320},
     {.up = 400, .down = 310, .ranks = 4, .up_most = 420, .up_most_rank = 3, .down_most = 330, .down_most_rank = 2}},
    {{100, 990, 120, 110},
     {90, 80, 70, 60},
     {.up = 110, .down = 70, .ranks = 4, .up_most = 990, .up_most_rank = 1, .down_most = 90, .down_most_rank = 0}},
    {{100, 2000, 120, 110},
     {90, 1000, 70, 60},
     {.up = 110, .down = 70, .ranks = 3, .up_most = 120, .up_most_rank = 2, .down_most = 90, .down_most_rank = 0}},
};

START_TEST(rank_0_hears_of_all)
{
	const struct control_load *want = &rows[_i].want;
	struct control_load got;
	const uint8_t *payload;
	struct fw_world fw;
	struct frame f;

	fw_running(&fw, &(struct fw_options){.world = RANKS, .features = FEATURE_SHARES});
	sample(&fw, rows[_i].down);
	for (unsigned r = RANKS; r-- > 0;)
		if (rows[_i].up[r] <= 1000)
			say(&fw, r, &(struct control_load){.up = rows[_i].up[r], .ranks = 1, .answer = r == 0});
	got = answer(&fw);
	ck_assert(got.up == want->up && got.down == want->down && got.ranks == want->ranks);
	ck_assert(got.up_most == want->up_most && got.up_most_rank == want->up_most_rank);
	ck_assert(got.down_most == want->down_most && got.down_most_rank == want->down_most_rank);
	ck_assert(!got.answer);
	for (unsigned r = 1; r < RANKS; r++)
		while (fw_take(&fw, r, &f, &payload))
			ck_assert_uint_eq(f.type, FRAME_PING);
	fw_close(&fw);
}
END_TEST

/* What was said long ago does not count, nor do connections whose kernel says nothing. */
START_TEST(old_news_do_not_count)
{
	static const uint32_t down[RANKS] = {10, 10, 10, 10};
	struct fw_world fw;

	fw_running(&fw, &(struct fw_options){.world = RANKS, .features = FEATURE_SHARES});
	say(&fw, 1, &(struct control_load){.up = 500, .ranks = 1});
	say(&fw, 0, &(struct control_load){.up = 100, .ranks = 1, .answer = true});
	ck_assert_uint_eq(answer(&fw).ranks, 0);
	sample(&fw, down);
	say(&fw, 0, &(struct control_load){.up = 100, .ranks = 1, .answer = true});
	ck_assert_uint_eq(answer(&fw).ranks, 2);
	for (unsigned i = 0; i < 4; i++) {
		fw_tick(&fw, 900);
		for (unsigned r = 0; r < RANKS; r++)
			fw_send_type(&fw, r, FRAME_PING);
		fw_feed_all(&fw, SIZE_MAX);
	}
	say(&fw, 0, &(struct control_load){.up = 100, .ranks = 1, .answer = true});
	ck_assert_uint_eq(answer(&fw).ranks, 1);
	fw_close(&fw);
}
END_TEST

START_TEST(wrong_frames_end_the_job)
{
	struct fw_world fw;

	fw_running(&fw, &(struct fw_options){.world = RANKS, .features = _i ? FEATURE_SHARES : 0});
	say(&fw, 1, &(struct control_load){.up = _i ? 1001 : 10, .ranks = 1});
	fw_expect_end(&fw, RS_EPROTO, "rank 1 (host-1)",
		      _i ? "a LOAD message has a time above 1000" : "sent a LOAD frame");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("stripe_load");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, rank_0_hears_of_all, 0, sizeof rows / sizeof rows[0]);
	tcase_add_test(tc, old_news_do_not_count);
	tcase_add_loop_test(tc, wrong_frames_end_the_job, 0, 2);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
