/* SPDX-License-Identifier: Apache-2.0 */
/* START gives a lane a larger window, and other memory. */
#include "proto/features.h"
#include "proto/operation.h"
#include "tests/unit/fake_worker.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { NARROW = 2, WIDE = 20 };

/* Opens a lane of two ranks and starts it with this window, 0: that of HELLO. */
static void open_with(struct fw_world *fw, uint32_t window)
{
	const struct fw_options opt = {.window = NARROW, .priorities = 2};
	struct lane_begin begin = {.processes = 2, .agreed = {.features = FEATURE_START | FEATURE_WINDOWS}};
	fw_attached(fw, &opt);
	if (window) {
		struct stripe_params p = fw->params;
		uint64_t bytes;

		p.window = window;
		bytes = stripe_memory(&p) * 2; /* lane 1 of the job */
		free(fw->params.memory);
		fw->params.memory = aligned_alloc(64, bytes);
		memset(fw->params.memory, 0xa5, bytes);
		begin.agreed.window = window;
		begin.memory = fw->params.memory;
	}
	lane_start(fw->lane, FAKE_JOB, &begin);
	fw_flush(fw);
	for (unsigned r = 0; r < 2; r++) {
		const uint8_t *payload;
		struct control_start said;
		struct frame f;
		struct rs_err e;

		ck_assert(fw_take(fw, r, &f, &payload));
		ck_assert_uint_eq(f.type, FRAME_START);
		ck_assert_int_eq(control_unpack_start(payload, f.payload_len, &said, &e), RS_OK);
		ck_assert_uint_eq(said.window, window);
	}
}

/* A rank is as far ahead as the window allows; more is a breach. */
START_TEST(a_rank_may_fill_the_window_of_start)
{
	const uint32_t window = _i ? WIDE : NARROW;
	struct fw_world fw;

	open_with(&fw, _i ? WIDE : 0);
	for (uint64_t seq = 0; seq < window; seq++)
		fw_contribute(&fw, 0, fw_data(&fw, RS_SUM, RS_FLOAT16, seq, 8, 0));
	fw_feed_all(&fw, SIZE_MAX);
	ck_assert_uint_eq(fw.failed, 0);
	for (uint64_t seq = 0; seq < window; seq++)
		fw_contribute(&fw, 1, fw_data(&fw, RS_SUM, RS_FLOAT16, seq, 8, 0));
	fw_feed_all(&fw, 100);
	for (uint64_t seq = 0; seq < window; seq++)
		for (unsigned r = 0; r < 2; r++)
			fw_expect_result(&fw, r, fw_data(&fw, RS_SUM, RS_FLOAT16, seq, 8, 0), 2);
	for (uint64_t seq = window; seq <= 2 * window; seq++)
		fw_contribute(&fw, 0, fw_data(&fw, RS_SUM, RS_FLOAT16, seq, 8, 0));
	fw_feed_all(&fw, SIZE_MAX);
	ck_assert_uint_eq(fw.failed, 1);
	fw_close(&fw);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("lane_window");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, a_rank_may_fill_the_window_of_start, 0, 2);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
