/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/fake_relay.h"

#include <string.h>

struct frame fy_chunk(const struct fw_world *fw, uint64_t seq, uint32_t chunk)
{
	return fw_data(fw, RS_SUM, RS_FLOAT32, seq, FY_COUNT, chunk);
}

void fy_forward(struct fw_world *fw, struct frame f)
{
	fw_contribute(fw, 1, fg_relayed(f));
	fw_contribute(fw, 3, fg_relayed(f));
	fw_feed_all(fw, SIZE_MAX);
	ck_assert_msg(fw->failed == 0, "%s", fw->why.msg);
}

void fy_open(struct fw_world *fw, struct fh_homes *homes, struct fw_options opt)
{
	fg_running(fw, opt);
	fh_init(homes, fw);
}

struct fh_home *fy_open_joined(struct fw_world *fw, struct fh_homes *homes, struct fw_options opt)
{
	const uint8_t *payload;
	struct fh_home *h;

	fy_open(fw, homes, opt);
	fy_forward(fw, fy_chunk(fw, FG_SEQ, 0));
	h = fh_join(homes, FG_HOME);
	fh_expect(h, FRAME_DATA, &payload);
	fh_expect_nothing(h);
	return h;
}

void fy_answer(struct fh_homes *all, struct fh_home *h, struct frame f, uint8_t value)
{
	uint8_t bytes[FG_CHUNK];

	memset(bytes, value, sizeof bytes);
	fh_send_result(all, h, f, bytes, FG_CHUNK);
}

void fy_answer_part(struct fh_homes *all, struct fh_home *h, struct frame f, size_t n)
{
	uint8_t bytes[FRAME_HEADER + FG_CHUNK] = {0};

	f.type = FRAME_RESULT;
	f.payload_len = FG_CHUNK;
	frame_encode(&f, bytes);
	fh_send_bytes(all, h, bytes, n);
}

void fy_expect_answer(struct fw_world *fw, struct frame f, uint8_t value)
{
	for (unsigned r = 0; r < FG_WORLD; r++) {
		uint32_t len;
		const uint8_t *payload;

		if (fg_group_of[r] != 0) {
			fw_expect_nothing(fw, r);
			continue;
		}
		payload = fg_result(fw, r, &f, &len);
		ck_assert(len == FG_CHUNK && payload[0] == value && payload[FG_CHUNK - 1] == value);
	}
}

void fy_expect_data(struct fh_home *h, struct frame f)
{
	const uint8_t *payload;
	struct frame got = fh_expect(h, FRAME_DATA, &payload);

	ck_assert_uint_eq(got.of.seq, f.of.seq);
	ck_assert_uint_eq(got.chunk, f.chunk);
	ck_assert_uint_eq(got.of.priority, f.of.priority);
}

void fy_pass(struct fw_world *fw, struct fh_homes *all, uint64_t ms)
{
	for (uint64_t i = 0; i < ms; i += 50) {
		for (unsigned r = 0; r < FG_WORLD; r++)
			if (fw->w[r].session)
				fw_send_type(fw, r, FRAME_PING);
		fw_feed_all(fw, SIZE_MAX);
		for (unsigned k = 0; all && k < FAKE_HOMES_MAX; k++)
			if (all->h[k].up)
				fh_send_control(all, &all->h[k], FRAME_PING, NULL, 0);
		fw_tick(fw, 50);
	}
}
