/* SPDX-License-Identifier: Apache-2.0 */
/* Peers that do not read, silence, deadlines, and races around START. */
#include "tests/unit/fake_worker.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* Rank 0 reads nothing for a long time: the others get as far as the window allows, and
 * nothing is lost. */
START_TEST(a_slow_reader_keeps_memory_bounded)
{
	static const unsigned windows[] = {1, 2, 16};
	unsigned window = windows[_i];
	struct fw_world fw;
	struct frame f;

	fw_running(&fw, &(struct fw_options){.world = 3, .window = window});
	fw_grant(&fw, 0, 0);
	for (uint64_t seq = 0; seq < window; seq++)
		for (unsigned r = 0; r < 3; r++)
			fw_contribute(&fw, r, fw_data(&fw, RS_SUM, RS_FLOAT32, seq, 16, 0));
	fw_feed_all(&fw, 100);
	/* ranks 1 and 2 have free places again, rank 0 has none */
	for (uint64_t seq = window; seq < 2 * window; seq++)
		for (unsigned r = 1; r < 3; r++)
			fw_contribute(&fw, r, fw_data(&fw, RS_SUM, RS_FLOAT32, seq, 16, 0));
	fw_feed_all(&fw, 100);
	for (unsigned n = 0; n < 300; n++) {
		for (unsigned r = 0; r < 3; r++)
			fw_send_type(&fw, r, FRAME_PING);
		fw_feed_all(&fw, 100);
		fw_tick(&fw, LANE_TICK_MS);
	}
	ck_assert_uint_eq(fw.failed, 0);
	ck_assert_uint_eq(fw.slots_seen_max, 2 * window);
	fw_expect_nothing(&fw, 0);

	/* then it reads again, seven bytes at a time */
	while (fw.w[0].session->results_n)
		fw_grant(&fw, 0, 7);
	fw_grant(&fw, 0, SIZE_MAX);
	for (uint64_t seq = 0; seq < 2 * window; seq++) {
		f = fw_data(&fw, RS_SUM, RS_FLOAT32, seq, 16, 0);
		if (seq >= window) {
			fw_contribute(&fw, 0, f);
			fw_feed_all(&fw, 100);
		}
		fw_expect_result(&fw, 0, f, 3);
	}
	ck_assert_uint_eq(fw_slots_alive(&fw), 0);
	fw_close(&fw);
}
END_TEST

/* _i: bytes of the results that the socket took before the job ended. ABORT must come at
 * the end of a frame. */
START_TEST(abort_waits_for_a_partly_sent_result)
{
	struct fw_world fw;
	struct frame f;

	fw_running(&fw, &(struct fw_options){.world = 2});
	fw_grant(&fw, 0, 0);
	for (uint64_t seq = 0; seq < 3; seq++)
		for (unsigned r = 0; r < 2; r++)
			fw_contribute(&fw, r, fw_data(&fw, RS_SUM, RS_FLOAT32, seq, 16, 0));
	fw_feed_all(&fw, 100);
	fw_grant(&fw, 0, (size_t)_i);
	fw_abort(&fw, RS_EPEER, "rank 1 was lost");
	fw_flush(&fw);
	ck_assert_uint_eq(fw_slots_alive(&fw), _i % 128 ? 1 : 0);
	ck_assert(!fw.w[0].shut);
	fw_grant(&fw, 0, SIZE_MAX);
	for (uint64_t seq = 0; seq < ((unsigned)_i + 127) / 128; seq++) {
		f = fw_data(&fw, RS_SUM, RS_FLOAT32, seq, 16, 0);
		fw_expect_result(&fw, 0, f, 2);
	}
	fw_expect_abort(&fw, 0, RS_EPEER, "rank 1 was lost", "");
	fw_expect_nothing(&fw, 0);
	ck_assert(fw.w[0].shut);
	ck_assert_uint_eq(fw_slots_alive(&fw), 0);
	fw_close(&fw);
}
END_TEST

/* Operations 0 to 2 of priority 0 wait to be read by rank 0; then operation 3 of priority
 * 1 completes. */
static struct frame queue_urgent_behind(struct fw_world *fw, size_t taken)
{
	struct frame f;

	fw_running(fw, &(struct fw_options){.world = 2, .priorities = 2, .window = 4});
	fw_grant(fw, 0, 0);
	for (uint64_t seq = 0; seq < 3; seq++)
		for (unsigned r = 0; r < 2; r++)
			fw_contribute(fw, r, fw_data(fw, RS_SUM, RS_FLOAT32, seq, 16, 0));
	fw_feed_all(fw, 100);
	fw_grant(fw, 0, taken);
	f = fw_data(fw, RS_SUM, RS_FLOAT32, 3, 16, 0);
	f.of.priority = 1;
	for (unsigned r = 0; r < 2; r++)
		fw_contribute(fw, r, f);
	fw_feed_all(fw, 100);
	return f;
}

/* _i: bytes that the socket took before. Results of 128 bytes are overtaken unless they
 * have been sent in part. */
START_TEST(urgent_results_go_first)
{
	unsigned before = ((unsigned)_i + 127) / 128;
	struct fw_world fw;
	struct frame urgent;

	urgent = queue_urgent_behind(&fw, (size_t)_i);
	for (unsigned piece = 1; fw.w[0].session->results_n; piece = piece * 3 % 100)
		fw_grant(&fw, 0, piece);
	for (unsigned n = 0; n < 4; n++) {
		uint64_t seq = n < before ? n : n - 1;

		fw_expect_result(&fw, 0, n == before ? urgent : fw_data(&fw, RS_SUM, RS_FLOAT32, seq, 16, 0), 2);
	}
	fw_expect_nothing(&fw, 0);
	ck_assert_uint_eq(fw_slots_alive(&fw), 0);
	fw_close(&fw);
}
END_TEST

/* Each write ends within a result, as on a slow connection with a full queue. A question
 * goes out behind the result that is partly sent, and not behind all of them. */
START_TEST(a_question_does_not_wait_for_all_results)
{
	const struct frame *f = &(struct frame){0};
	struct fw_world fw;
	struct frame h[3];
	const uint8_t *payload;

	fw_running(&fw, &(struct fw_options){.world = 2, .window = 4});
	fw_grant(&fw, 0, 0);
	for (uint64_t seq = 0; seq < 3; seq++)
		for (unsigned r = 0; r < 2; r++)
			fw_contribute(&fw, r, fw_data(&fw, RS_SUM, RS_FLOAT32, seq, 16, 0));
	fw_feed_all(&fw, 100);
	fw_grant(&fw, 0, 7);
	fw_flush(&fw);
	lane_ask(fw.lane, FAKE_JOB, fw.params.lane, 0, 2);
	for (unsigned i = 0; i < 3; i++) {
		fw_grant(&fw, 0, 128);
		fw_flush(&fw);
		if (fw_take(&fw, 0, &h[i], &payload))
			f = &h[i];
		if (f->type == FRAME_PING)
			break;
	}
	ck_assert_uint_eq(f->type, FRAME_PING);
	fw_grant(&fw, 0, SIZE_MAX);
	fw_flush(&fw);
	fw_close(&fw);
}
END_TEST

/* The same at the end of the job: a partly sent result is completed, whatever its
 * priority. */
START_TEST(abort_drops_results_of_every_priority)
{
	struct fw_world fw;

	queue_urgent_behind(&fw, (size_t)_i);
	fw_abort(&fw, RS_EPEER, "rank 1 was lost");
	fw_flush(&fw);
	ck_assert_uint_eq(fw_slots_alive(&fw), _i % 128 ? 1 : 0);
	fw_grant(&fw, 0, SIZE_MAX);
	for (uint64_t seq = 0; seq < ((unsigned)_i + 127) / 128; seq++)
		fw_expect_result(&fw, 0, fw_data(&fw, RS_SUM, RS_FLOAT32, seq, 16, 0), 2);
	fw_expect_abort(&fw, 0, RS_EPEER, "rank 1 was lost", "");
	fw_expect_nothing(&fw, 0);
	fw_close(&fw);
}
END_TEST

/* A driver may learn later how much was sent. An urgent result that was added meanwhile
 * does not count. */
START_TEST(only_offered_results_count_as_sent)
{
	struct iovec iov[SESSION_IOV];
	struct fw_world fw;
	struct frame urgent;
	unsigned n;

	fw_running(&fw, &(struct fw_options){.world = 2, .priorities = 2, .window = 4});
	fw_grant(&fw, 0, 0);
	for (uint64_t seq = 0; seq < 2; seq++)
		for (unsigned r = 0; r < 2; r++)
			fw_contribute(&fw, r, fw_data(&fw, RS_SUM, RS_FLOAT32, seq, 16, 0));
	fw_feed_all(&fw, 100);
	n = session_send_target(fw.w[0].session, iov, SESSION_IOV);
	ck_assert_uint_eq(n, 4);
	urgent = fw_data(&fw, RS_SUM, RS_FLOAT32, 2, 16, 0);
	urgent.of.priority = 1;
	for (unsigned r = 0; r < 2; r++)
		fw_contribute(&fw, r, urgent);
	fw_feed_all(&fw, 100);
	session_sent(fw.w[0].session, 128 + 7, fw.now_ms);
	ck_assert_uint_eq(fw.w[0].session->results_n, 2);
	ck_assert_uint_eq(fw.w[0].session->result_off, 7);
	session_sent(fw.w[0].session, 121, fw.now_ms);
	fw_grant(&fw, 0, SIZE_MAX);
	fw_expect_result(&fw, 0, urgent, 2);
	fw_expect_nothing(&fw, 0);
	fw_close(&fw);
}
END_TEST

START_TEST(start_reaches_a_worker_that_did_not_read_for_long)
{
	uint8_t payload[FRAME_CONTROL_MAX], frame[FRAME_HEADER + FRAME_CONTROL_MAX];
	struct control_waiting w = {.joined = 1, .world_size = 65, .missing_n = CONTROL_MISSING};
	uint32_t len;
	unsigned waiting = 0;
	struct fw_world fw;
	struct frame f;
	const uint8_t *at;

	for (unsigned i = 0; i < CONTROL_MISSING; i++)
		w.missing[i] = 60 - i;
	len = control_frame(frame, FRAME_WAITING, FAKE_GENERATION, 0, payload, control_pack_waiting(payload, &w));
	fw_attached(&fw, &(struct fw_options){.world = 2});
	fw_grant(&fw, 0, (size_t)_i);
	for (unsigned n = 0; n < 1000; n++) {
		fw_send_type(&fw, 0, FRAME_PING);
		fw_feed_all(&fw, SIZE_MAX);
		fw_tick(&fw, LANE_TICK_MS);
		lane_tell(fw.lane, FAKE_JOB, frame, len);
		fw_flush(&fw);
		/* rank 1 reads and pings */
		fw_send_type(&fw, 1, FRAME_PING);
		fw_feed_all(&fw, SIZE_MAX);
	}
	lane_start(fw.lane, FAKE_JOB, &(struct lane_begin){.processes = 2});
	fw_grant(&fw, 0, SIZE_MAX);
	while (fw_take(&fw, 0, &f, &at) && f.type != FRAME_START)
		waiting += f.type == FRAME_WAITING;
	ck_assert_uint_eq(f.type, FRAME_START);
	ck_assert_uint_le(waiting, 2);
	for (waiting = 0; fw_take(&fw, 1, &f, &at) && f.type != FRAME_START;)
		waiting += f.type == FRAME_WAITING;
	ck_assert_uint_eq(waiting, 1000);
	fw_close(&fw);
}
END_TEST

START_TEST(silence_is_answered_with_ping)
{
	struct fw_world fw;
	unsigned pings = 0;
	struct frame f;
	const uint8_t *at;

	if (_i)
		fw_running(&fw, &(struct fw_options){.world = 1});
	else
		fw_attached(&fw, &(struct fw_options){.world = 1});
	for (unsigned n = 0; n < 100; n++) {
		fw_tick(&fw, LANE_TICK_MS);
		fw_send_type(&fw, 0, FRAME_PING);
		fw_feed_all(&fw, 64);
	}
	while (fw_take(&fw, 0, &f, &at))
		pings += f.type == FRAME_PING;
	/* a quarter of a second, with ticks of 100 ms: one for every three ticks */
	ck_assert_uint_eq(pings, 33);
	/* a worker that does not read gets no second one */
	fw_grant(&fw, 0, 0);
	for (unsigned n = 0; n < 100; n++) {
		fw_tick(&fw, LANE_TICK_MS);
		fw_send_type(&fw, 0, FRAME_PING);
		fw_feed_all(&fw, 64);
	}
	ck_assert_uint_eq(fw.w[0].session->control_len, FRAME_HEADER);
	fw_close(&fw);
}
END_TEST

/* Returns the reason in the ABORT that comes after other frames. */
static struct rs_err reason_for(struct fw_world *fw, unsigned rank)
{
	struct rs_cause cause;
	struct rs_err why, e;
	const uint8_t *at;
	struct frame f;

	do
		ck_assert(fw_take(fw, rank, &f, &at));
	while (f.type != FRAME_ABORT);
	ck_assert_int_eq(control_unpack_abort(at, f.payload_len, &why, &cause, &e), RS_OK);
	return why;
}

/* The others wait for a rank that was heard before, and has sent nothing large. _i: 1
 * nobody waits for it. */
START_TEST(a_worker_whose_large_messages_do_not_come)
{
	struct fw_world fw;
	struct rs_err why;

	fw_attached(&fw, &(struct fw_options){.world = 2, .detect_ms = 1000});
	lane_start(fw.lane, FAKE_JOB, &(struct lane_begin){.processes = 2});
	fw_flush(&fw);
	fw_send_type(&fw, 1, FRAME_PING);
	if (!_i)
		fw_contribute(&fw, 0, fw_data(&fw, RS_SUM, RS_FLOAT32, 0, 16, 0));
	fw_feed_all(&fw, 64);
	while (!fw.w[1].session->draining) {
		fw_send_type(&fw, 0, FRAME_PING);
		fw_feed_all(&fw, 64);
		fw_tick(&fw, LANE_TICK_MS);
	}
	why = reason_for(&fw, 0);
	ck_assert_int_eq(strstr(why.msg, "s; only small messages have come from it: if it runs, check the MTU") != NULL,
			 !_i);
	fw_close(&fw);
}
END_TEST

/* A silent worker is lost after detect_ms, whatever its value, and reads why; _i: 0
 * before START, 1 after it, 2 within a contribution. */
START_TEST(a_silent_worker_is_lost)
{
	static const uint32_t detects[] = {200, 400, 1000, 10000};

	for (unsigned d = 0; d < sizeof detects / sizeof detects[0]; d++) {
		struct fw_world fw;
		struct rs_err why;
		uint64_t from;

		fw_attached(&fw, &(struct fw_options){.world = 2, .detect_ms = detects[d]});
		if (_i) {
			lane_start(fw.lane, FAKE_JOB, &(struct lane_begin){.processes = 2});
			fw_flush(&fw);
			fw_expect(&fw, 0, FRAME_START);
		}
		if (_i == 2) {
			fw_contribute(&fw, 1, fw_data(&fw, RS_SUM, RS_FLOAT32, 0, 16, 0));
			fw_feed(&fw, 1, FRAME_HEADER + 10);
			fw.w[1].out.len = fw.w[1].out.off;
		}
		from = fw.now_ms;
		while (!fw.w[1].session->draining && fw.now_ms < from + 2 * detects[d] + 500) {
			fw_send_type(&fw, 0, FRAME_PING);
			fw_feed_all(&fw, 64);
			/* timers may fire late */
			fw_tick(&fw, LANE_TICK_MS + (fw.now_ms / 100) % 3);
		}
		ck_assert_uint_ge(fw.now_ms, from + detects[d]);
		ck_assert_uint_le(fw.now_ms, from + detects[d] + 250);
		ck_assert_uint_eq(fw.failed, _i > 0);
		ck_assert_uint_eq(fw.lost, _i > 0);
		why = reason_for(&fw, 1);
		ck_assert_int_eq(why.code, RS_EPEER);
		ck_assert_ptr_nonnull(strstr(why.msg, "rank 1 (host-1) was lost: nothing was heard from it for"));
		if (_i)
			ck_assert_str_eq(reason_for(&fw, 0).msg, why.msg);
		ck_assert_uint_eq(fw.gone, 0);
		for (unsigned ms = 0; ms < LANE_LINGER_MS; ms += LANE_TICK_MS) {
			fw_send_type(&fw, 0, FRAME_PING);
			fw_feed_all(&fw, 64);
			fw_tick(&fw, LANE_TICK_MS);
		}
		ck_assert_ptr_null(fw.w[1].session);
		fw_close(&fw);
	}
}
END_TEST

START_TEST(a_stopped_reducer_loses_no_rank)
{
	struct fw_world fw;

	fw_running(&fw, &(struct fw_options){.world = 2});
	for (unsigned n = 0; n < 10; n++) {
		fw_tick(&fw, LANE_TICK_MS);
		/* stopped, and then the timer fires before sockets are read */
		fw_tick(&fw, 10 * FAKE_DETECT_MS);
		ck_assert_uint_eq(fw.failed, 0);
		for (unsigned r = 0; r < 2; r++)
			fw_send_type(&fw, r, FRAME_PING);
		fw_feed_all(&fw, 64);
	}
	fw_close(&fw);
}
END_TEST

/* A peer that neither reads its last frames nor closes is closed after a while. */
START_TEST(lingering_has_a_time_limit)
{
	struct fw_world fw;
	unsigned ticks = 0;

	fw_running(&fw, &(struct fw_options){.world = 2});
	fw_tick(&fw, LANE_TICK_MS);
	if (_i) {
		fw_send_type(&fw, 0, FRAME_GOODBYE);
		fw_feed_all(&fw, 64);
	} else {
		fw_grant(&fw, 0, 0);
		fw_abort(&fw, RS_ECLOSED, "over");
		fw_flush(&fw);
	}
	while (fw.w[0].session && ticks < 100) {
		ticks++;
		fw_send_bytes(&fw, 0, "whatever it says is thrown away", 31);
		if (_i)
			fw_send_type(&fw, 1, FRAME_PING);
		fw_feed_all(&fw, 64);
		fw_tick(&fw, LANE_TICK_MS);
	}
	ck_assert_uint_eq(ticks, LANE_LINGER_MS / LANE_TICK_MS);
	ck_assert_uint_eq(fw.failed, 0);
	ck_assert_uint_eq(fw.clean, _i);
	fw_close(&fw);
}
END_TEST

/* The registry sends START while a session ends: 0 lost but not closed yet, 1 closed, 2
 * draining after an error, 3 closed with all others of the stripe. */
START_TEST(start_finds_a_closed_session)
{
	struct fw_world fw;

	fw_attached(&fw, &(struct fw_options){.world = 2});
	if (_i == 0)
		session_lost(fw.w[1].session, "connection reset by peer");
	if (_i == 1 || _i == 3)
		fw_close_peer(&fw, 1);
	if (_i == 3)
		fw_close_peer(&fw, 0);
	if (_i == 2) {
		fw_send_type(&fw, 1, FRAME_START);
		fw_feed_all(&fw, 64);
	}
	lane_start(fw.lane, FAKE_JOB, &(struct lane_begin){.processes = 2});
	fw_flush(&fw);
	if (_i == 3) {
		ck_assert_uint_eq(fw.failed, 0);
		ck_assert_uint_eq(fw.gone, 2);
	} else {
		fw_expect_abort(&fw, 0, RS_EPEER, "rank 1 was lost while the job was starting", "");
		ck_assert_uint_eq(fw.failed, 1);
	}
	fw_close(&fw);
}
END_TEST

static void send_probe(struct fw_world *fw, uint32_t bytes)
{
	static const uint8_t zeros[8192];

	fw_send(fw, 0, (struct frame){.type = FRAME_PROBE, .payload_len = bytes}, zeros);
}

/* A chunk comes and goes back in pieces; control frames that are due meanwhile go before
 * or behind it. The path counts as proven when the worker says that the answer has
 * arrived, and again until START. */
START_TEST(a_probe_goes_there_and_back)
{
	struct fw_world fw;
	const uint8_t *payload;
	struct frame f;

	fw_attached(&fw, &(struct fw_options){.world = 2, .chunk_bytes = 8192, .probe = true, .retain = true});
	fw_grant(&fw, 0, 0);
	send_probe(&fw, 8192);
	while (fw_feed(&fw, 0, 1 + (unsigned)_i * 499))
		;
	for (unsigned i = 0; i < 200; i++) {
		fw_grant(&fw, 0, i == 0 ? FRAME_HEADER + 10 : 97);
		if (i == 20)
			fw_send_type(&fw, 0, FRAME_SETTLE); /* the worker's side goes on */
		if (i == 40)
			fw_tick(&fw, FAKE_DETECT_MS / 2); /* a heartbeat is due */
		fw_feed_all(&fw, 64);
	}
	f = fw_expect(&fw, 0, FRAME_PROBE);
	ck_assert_uint_eq(f.payload_len, 8192);
	ck_assert(fw_take(&fw, 0, &f, &payload) && f.type == FRAME_PING);
	ck_assert_uint_eq(fw.proven, 0);
	fw_send_type(&fw, 0, FRAME_PROBE);
	fw_feed_all(&fw, 64);
	ck_assert_uint_eq(fw.proven, 1);
	for (unsigned i = 0; i < 11; i++) { /* a lost event comes again */
		fw_send_type(&fw, 0, FRAME_PING);
		fw_send_type(&fw, 1, FRAME_PING);
		fw_feed_all(&fw, 64);
		fw_tick(&fw, LANE_TICK_MS);
	}
	ck_assert_uint_ge(fw.proven, 2);
	ck_assert_uint_eq(fw.failed, 0);
	fw_abort(&fw, RS_ECUT, "over");
	fw_close(&fw);
}
END_TEST

/* What is no PROBE, or comes at another time, ends the connection. 0: no byte; 1, 2:
 * other lengths than a chunk's; 3: the news of an answer that was not sent; 4: twice. */
START_TEST(a_wrong_probe_is_a_breach)
{
	static const uint32_t bytes[] = {0, 63, 65, 64, 64};
	struct fw_world fw;
	const uint8_t *payload;
	struct frame f;

	fw_attached(&fw, &(struct fw_options){.world = 2, .probe = true, .retain = true});
	if (_i >= 3)
		fw_grant(&fw, 0, 0);
	send_probe(&fw, bytes[_i]);
	if (_i >= 3)
		send_probe(&fw, _i == 3 ? 0 : 64);
	fw_feed_all(&fw, 50);
	fw_grant(&fw, 0, SIZE_MAX / 2);
	fw_flush(&fw);
	ck_assert(fw_take(&fw, 0, &f, &payload));
	ck_assert_uint_eq(f.type, FRAME_ABORT);
	ck_assert_uint_eq(fw.failed, 0); /* only this connection */
	ck_assert_uint_eq(fw.proven, 0);
	fw_close(&fw);
}
END_TEST

START_TEST(a_lane_is_freed_with_its_sessions)
{
	struct fw_world fw;

	fw_running(&fw, &(struct fw_options){.world = 3, .checksum = true, .deterministic = _i});
	fw_grant(&fw, 0, 0);
	for (uint64_t seq = 0; seq < 2; seq++)
		for (unsigned r = 0; r < 3; r++)
			fw_contribute(&fw, r, fw_data(&fw, RS_SUM, RS_FLOAT16, seq, 32, 0));
	fw_feed_all(&fw, 31);
	fw_contribute(&fw, 1, fw_data(&fw, RS_SUM, RS_FLOAT16, 3, 32, 0));
	fw_feed(&fw, 1, 90);
	/* sessions that are ready but not handled yet close too */
	fw_abort(&fw, RS_ECLOSED, "over");
	for (unsigned r = 0; r < 3; r++) {
		free(fw.w[r].in.at);
		free(fw.w[r].out.at);
	}
	lane_free(fw.lane);
	ck_assert_uint_eq(fw.gone, 3);
	free(fw.params.memory);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("session_tx");
	TCase *tc = tcase_create("time");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, a_slow_reader_keeps_memory_bounded, 0, 3);
	tcase_add_loop_test(tc, abort_waits_for_a_partly_sent_result, 0, 300);
	tcase_add_loop_test(tc, urgent_results_go_first, 0, 385);
	tcase_add_loop_test(tc, abort_drops_results_of_every_priority, 0, 385);
	tcase_add_test(tc, a_question_does_not_wait_for_all_results);
	tcase_add_test(tc, only_offered_results_count_as_sent);
	tcase_add_loop_test(tc, start_reaches_a_worker_that_did_not_read_for_long, 0, 2);
	tcase_add_loop_test(tc, silence_is_answered_with_ping, 0, 2);
	tcase_add_loop_test(tc, a_worker_whose_large_messages_do_not_come, 0, 2);
	tcase_add_loop_test(tc, a_silent_worker_is_lost, 0, 3);
	tcase_add_test(tc, a_stopped_reducer_loses_no_rank);
	tcase_add_loop_test(tc, lingering_has_a_time_limit, 0, 2);
	tcase_add_loop_test(tc, start_finds_a_closed_session, 0, 4);
	tcase_add_loop_test(tc, a_probe_goes_there_and_back, 0, 20);
	tcase_add_loop_test(tc, a_wrong_probe_is_a_breach, 0, 5);
	tcase_add_loop_test(tc, a_lane_is_freed_with_its_sessions, 0, 2);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
