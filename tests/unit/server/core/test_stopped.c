/* SPDX-License-Identifier: Apache-2.0 */
/* A rank that sends nothing while the kernel of its machine acknowledges is stopped: late
 * until stopped_ms. One whose machine does not acknowledge is lost after detect_ms. */
#include "tests/unit/fake_worker.h"

#include <stdlib.h>
#include <string.h>

enum { NEVER = 0 };

/* Rank 1 of 2 is silent from time 0 on. Times are in ms. */
static const struct row {
	const char *name;
	bool direct, started;
	uint32_t stopped_ms; /* the reducer's limit */
	uint32_t acks_until; /* its kernel acknowledges until then */
	uint32_t speaks_at;  /* it sends one PING then; NEVER: it does not */
	uint32_t lost_at;    /* NEVER: not within the run */
	unsigned stopped;    /* LANE_STOPPED events */
	const char *words;   /* of the reason */
} rows[] = {
    {"the machine is gone", true, true, 60000, 0, NEVER, 2000, 0, "nothing was heard from it for 2.0 s"},
    {"a stopped process", true, true, 60000, UINT32_MAX, NEVER, NEVER, 1, NULL},
    {"a stopped process, longer than allowed", true, true, 5000, UINT32_MAX, NEVER, 5000, 1,
     "nothing was heard from it for 5."},
    {"stopped, then its machine fails", true, true, 60000, 4000, NEVER, 6000, 1, "nothing was heard from it for 6."},
    {"stopped twice", true, true, 60000, UINT32_MAX, 3500, NEVER, 2, NULL},
    {"stopped before the job starts", true, false, 60000, UINT32_MAX, NEVER, NEVER, 1, NULL},
    {"gone before the job starts", true, false, 60000, 0, NEVER, 2000, 0, "nothing was heard from it for 2.0 s"},
    {"behind a proxy", false, true, 60000, UINT32_MAX, NEVER, 2000, 0, "nothing was heard from it for 2.0 s"},
    {"the limit is that of detection", true, true, 2000, UINT32_MAX, NEVER, 2000, 0,
     "nothing was heard from it for 2.0 s"},
};

START_TEST(a_stopped_rank_is_late_and_a_machine_that_is_gone_is_lost)
{
	const struct row *row = &rows[_i];
	struct fw_world fw;
	uint64_t from;

	fw_attached(&fw, &(struct fw_options){
			     .world = 2, .direct = row->direct, .detect_ms = 2000, .stopped_ms = row->stopped_ms});
	if (row->started)
		lane_start(fw.lane, FAKE_JOB, &(struct lane_begin){.processes = 2});
	fw_flush(&fw);
	from = fw.now_ms;
	while (!fw.w[1].session->draining && fw.now_ms < from + 20000) {
		uint64_t t = fw.now_ms - from;

		fw_send_type(&fw, 0, FRAME_PING);
		if (row->speaks_at && t == row->speaks_at)
			fw_send_type(&fw, 1, FRAME_PING);
		fw_feed_all(&fw, 64);
		if (session_quiet(fw.w[1].session) && t <= row->acks_until)
			session_acknowledged(fw.w[1].session, fw.now_ms);
		fw_tick(&fw, LANE_TICK_MS);
	}
	ck_assert_msg(fw.stopped == row->stopped, "%s: %u events", row->name, fw.stopped);
	if (row->lost_at == NEVER) {
		ck_assert_msg(!fw.w[1].session->draining && !fw.lost, "%s: lost", row->name);
		ck_assert_uint_eq(fw.event.rank, 1);
		ck_assert_uint_ge(fw.event.waited_ms, 2000);
	} else {
		ck_assert_msg(fw.now_ms > from + row->lost_at && fw.now_ms <= from + row->lost_at + 300,
			      "%s: lost after %u ms", row->name, (unsigned)(fw.now_ms - from));
		if (row->started)
			ck_assert_msg(strstr(fw.why.msg, row->words) != NULL, "%s: %s", row->name, fw.why.msg);
	}
	fw_close(&fw);
}
END_TEST

/* The kernel has something to acknowledge in each quarter of the detection time, even if
 * the worker itself wants PINGs less often. */
START_TEST(a_quiet_worker_is_asked_often_enough)
{
	struct fw_world fw;
	const uint8_t *payload;
	unsigned pings = 0;
	struct frame f;

	fw_running(&fw, &(struct fw_options){.world = 1, .direct = true, .detect_ms = 800, .stopped_ms = 60000});
	for (unsigned ms = 0; ms < 8000; ms += LANE_TICK_MS) {
		if (session_quiet(fw.w[0].session))
			session_acknowledged(fw.w[0].session, fw.now_ms);
		fw_tick(&fw, LANE_TICK_MS);
		while (fw_take(&fw, 0, &f, &payload))
			pings += f.type == FRAME_PING;
	}
	ck_assert_uint_ge(pings, (8000 - 400) / 200 - 1);
	fw_close(&fw);
}
END_TEST

/* A worker that waits ten minutes for a sign of life gets one so often that no NAT
 * forgets the connection. */
START_TEST(a_patient_worker_is_called_often_enough)
{
	struct fw_world fw;
	const uint8_t *payload;
	unsigned pings = 0;
	struct frame f;

	fw_running(&fw, &(struct fw_options){.world = 1, .detect_ms = 600000, .peer_detect_ms = 600000});
	for (unsigned ms = 0; ms < 61000; ms += LANE_TICK_MS) {
		fw_tick(&fw, LANE_TICK_MS);
		while (fw_take(&fw, 0, &f, &payload))
			pings += f.type == FRAME_PING;
	}
	ck_assert_uint_eq(pings, 3);
	fw_close(&fw);
}
END_TEST

START_TEST(only_a_direct_connection_is_looked_at)
{
	struct fw_world fw;

	for (int direct = 0; direct < 2; direct++) {
		fw_running(&fw,
			   &(struct fw_options){.world = 1, .direct = direct, .detect_ms = 2000, .stopped_ms = 60000});
		fw_tick(&fw, 1000);
		ck_assert(!session_quiet(fw.w[0].session));
		fw_tick(&fw, 100);
		ck_assert_int_eq(session_quiet(fw.w[0].session), direct);
		fw_send_type(&fw, 0, FRAME_PING);
		fw_feed_all(&fw, 64);
		ck_assert(!session_quiet(fw.w[0].session));
		fw_close(&fw);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("stopped");
	TCase *t = tcase_create("stopped");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_loop_test(t, a_stopped_rank_is_late_and_a_machine_that_is_gone_is_lost, 0,
			    sizeof rows / sizeof rows[0]);
	tcase_add_test(t, a_quiet_worker_is_asked_often_enough);
	tcase_add_test(t, a_patient_worker_is_called_often_enough);
	tcase_add_test(t, only_a_direct_connection_is_looked_at);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
