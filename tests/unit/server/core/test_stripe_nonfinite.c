/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks say of NaN and infinity: when it is an event, and what is counted. */
#include "proto/features.h"
#include "server/core/report.h"
#include "tests/unit/fake_worker.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static void start(struct fw_world *fw, uint64_t features)
{
	fw_attached(fw, &(struct fw_options){0});
	lane_start(fw->lane, FAKE_JOB, &(struct lane_begin){.processes = 2, .agreed.features = features});
	fw_flush(fw);
	for (unsigned r = 0; r < 2; r++)
		fw_expect(fw, r, FRAME_START);
}

static void tell(struct fw_world *fw, unsigned rank, uint64_t nan, uint64_t infinite, uint64_t seq, const char *first)
{
	struct control_nonfinite n = {.nan_operations = nan, .infinite_operations = infinite, .seq = seq};
	uint8_t payload[FRAME_CONTROL_MAX];

	strcpy(n.first, first);
	fw_send(fw, rank, (struct frame){.type = FRAME_NONFINITE, .payload_len = control_pack_nonfinite(payload, &n)},
		payload);
	fw_feed_all(fw, SIZE_MAX);
}

START_TEST(the_first_of_each_kind_is_an_event)
{
	struct fw_world fw;
	struct lane_report *report;

	start(&fw, FEATURE_NONFINITE);
	tell(&fw, 1, 0, 2, 7, "rank 1 sent infinity: element 3");
	ck_assert_uint_eq(fw.nonfinite, 1);
	ck_assert(!fw.event.nan && fw.event.rank == 1 && fw.event.seq == 7);
	ck_assert_str_eq(fw.event.why.msg, "rank 1 sent infinity: element 3");
	tell(&fw, 1, 0, 9, 7, "rank 1 sent infinity: element 3");
	ck_assert_uint_eq(fw.nonfinite, 1);
	tell(&fw, 1, 1, 9, 30, "rank 1 sent NaN: element 4");
	ck_assert_uint_eq(fw.nonfinite, 2);
	ck_assert(fw.event.nan && fw.event.seq == 30);
	tell(&fw, 1, 5, 9, 30, "rank 1 sent NaN: element 4");
	tell(&fw, 1, 4, 8, 30, "rank 1 sent NaN: element 4"); /* counts never fall */
	ck_assert_uint_eq(fw.nonfinite, 2);
	tell(&fw, 0, 1, 1, 31, "rank 0 sent NaN: element 4");
	ck_assert_uint_eq(fw.nonfinite, 3);
	report = lane_report_new(fw.lane, fw.now_ms);
	ck_assert_ptr_nonnull(report);
	ck_assert_uint_eq(report->total.nan_operations, 6);
	ck_assert_uint_eq(report->total.infinite_operations, 10);
	free(report);
	fw_close(&fw);
}
END_TEST

/* _i: before START; then without the feature. */
START_TEST(without_the_feature_it_is_a_breach)
{
	struct fw_world fw;

	if (_i)
		start(&fw, FEATURE_START | FEATURE_PROBE);
	else
		fw_attached(&fw, &(struct fw_options){0});
	tell(&fw, 1, 1, 0, 0, "rank 1 sent NaN");
	fw_expect_abort(&fw, 1, RS_EPROTO, "rank 1 (host-1) sent a NONFINITE frame", "");
	ck_assert_uint_eq(fw.nonfinite, 0);
	fw_close(&fw);
}
END_TEST

START_TEST(what_cannot_be_decoded_is_a_breach)
{
	struct fw_world fw;

	start(&fw, FEATURE_NONFINITE);
	fw_send(&fw, 0, (struct frame){.type = FRAME_NONFINITE, .payload_len = 1}, "\xff");
	fw_feed_all(&fw, SIZE_MAX);
	fw_expect_abort(&fw, 1, RS_EPROTO, "rank 0 (host-0): the NONFINITE message cannot be decoded", "");
	fw_close(&fw);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("stripe_nonfinite");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_test(tc, the_first_of_each_kind_is_an_event);
	tcase_add_loop_test(tc, without_the_feature_it_is_a_breach, 0, 2);
	tcase_add_test(tc, what_cannot_be_decoded_is_a_breach);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
