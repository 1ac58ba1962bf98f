/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/fake_lane_views.h"

#include <string.h>

enum { REDUCERS = 3 };

void lv_running(struct fw_world *fw, struct fw_options opt)
{
	opt.retain = true;
	fw_running(fw, &opt);
}

struct control_view lv_of(uint32_t a, uint32_t b, uint32_t c)
{
	return (struct control_view){.n = REDUCERS, .lives = {a, b, c}};
}

struct control_view lv_with_shares(struct control_view v, uint32_t epoch, uint32_t a, uint32_t b, uint32_t c)
{
	v.epoch = epoch;
	v.shares[0] = a;
	v.shares[1] = b;
	v.shares[2] = c;
	return v;
}

void lv_send(struct fw_world *fw, unsigned rank, struct control_view v)
{
	fw_send_view(fw, rank, &v);
	fw_feed_all(fw, SIZE_MAX);
}

struct control_view lv_expect(struct fw_world *fw, unsigned rank, unsigned type, struct control_view want)
{
	struct control_view v = fw_expect_view(fw, rank, type);

	ck_assert_uint_eq(v.n, REDUCERS);
	ck_assert_mem_eq(v.lives, want.lives, sizeof v.lives);
	return v;
}

void lv_agree(struct fw_world *fw, struct control_view v)
{
	for (unsigned r = 0; r < fw->params.world_size; r++)
		fw_send_view(fw, r, &v);
	fw_feed_all(fw, SIZE_MAX);
	for (unsigned r = 0; r < fw->params.world_size; r++) {
		struct frame f;
		const uint8_t *payload;

		do
			ck_assert(fw_take(fw, r, &f, &payload));
		while (f.type == FRAME_VIEW);
		ck_assert_uint_eq(f.type, FRAME_RESUME);
		fw_expect_nothing(fw, r);
	}
}

void lv_expect_end(struct fw_world *fw, int code, const char *says)
{
	ck_assert_uint_eq(fw->failed, 1);
	ck_assert_int_eq(fw->why.code, code);
	ck_assert_msg(strstr(fw->why.msg, says) != NULL, "\"%s\" instead of \"%s\"", fw->why.msg, says);
}
