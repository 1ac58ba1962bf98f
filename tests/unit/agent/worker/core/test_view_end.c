/* SPDX-License-Identifier: Apache-2.0 */
/* Reducers that return to a rank, and the end, by the rules of proto/README.md,
 * "Failover". */
#include "agent/worker/core/report.h"
#include "tests/unit/fake_views.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- return ---- */

/* "A worker goes on trying to connect to dead reducers, with HELLOs that say rejoin." No
 * refusal ends the job. */
START_TEST(rejoin_is_retried_after_each_refusal)
{
	static const int codes[] = {RS_EREFUSED, RS_EMISMATCH, RS_ECLOSED, RS_EPROTO};
	struct reducers f;

	views_open(&f, views_three);
	ck_assert(!f.l[2].hello.rejoin && f.l[2].hello.retain);
	f.resume = true;
	reducers_cut(&f, 2, "cut");
	for (unsigned i = 0; i < 4; i++) {
		f.welcome = false;
		while (!f.l[2].greeted)
			reducers_advance(&f, 50);
		ck_assert(f.l[2].hello.rejoin);
		reducers_say_refused(&f, 2, codes[i], "not now", i % 2);
		reducers_pump(&f);
		ck_assert(!f.l[2].greeted);
		ck_assert_int_eq(exchange_state(f.x), EXCHANGE_RUNNING);
	}
	ck_assert_uint_eq(f.back, 0);
	views_expect_lives(&f, 3, 1, 0, 1, 0);
	f.welcome = true;
	while (!f.l[2].greeted)
		reducers_advance(&f, 50);
	reducers_pump(&f);
	ck_assert_uint_eq(f.back, 1);
	for (unsigned i = 0; i < VIEWS_LINKS; i++)
		views_expect_lives(&f, i, i == 2 ? 1 : 2, 0, 2, 0);
	reducers_close(&f);
}
END_TEST

/* A reducer has returned when all of its lanes have START, and not before; then it has
 * its shards again. */
START_TEST(a_reducer_returns_with_all_lanes)
{
	struct reducers f;
	struct reducers_op o;
	unsigned sent;

	views_open(&f, views_three);
	f.resume = true;
	reducers_cut(&f, 1, "cut");
	f.start = false;
	while (!f.l[0].hello.rejoin || !f.l[1].hello.rejoin)
		reducers_advance(&f, 50);
	reducers_say_control(&f, 1, FRAME_START, NULL, 0);
	reducers_pump(&f);
	ck_assert_uint_eq(f.back, 0);
	ck_assert_uint_eq(f.l[0].views + f.l[1].views, 0);
	reducers_say_control(&f, 0, FRAME_START, NULL, 0);
	reducers_pump(&f);
	ck_assert_uint_eq(f.back, 1);
	for (unsigned i = 0; i < VIEWS_LINKS; i++)
		views_expect_lives(&f, i, i < 2 ? 1 : 2, 2, 0, 0);
	sent = f.l[1].data_n;
	views_submit(&f, &o, 6);
	views_expect_done(&o);
	ck_assert_str_eq(views_said(&f, 1, sent), "D3");
	reducers_close(&f);
}
END_TEST

/* A reducer lost before it has returned causes no new view. */
START_TEST(a_loss_before_start_is_a_failed_attempt)
{
	struct reducers f;

	views_open(&f, views_three);
	reducers_cut(&f, 2, "cut");
	f.start = false;
	while (!f.l[2].greeted)
		reducers_advance(&f, 50);
	if (_i)
		reducers_say_abort(&f, 2, RS_EPEER, "rank 1 was lost while the job was starting");
	else
		reducers_cut(&f, 2, "cut");
	reducers_pump(&f);
	ck_assert_uint_eq(f.lost, 1);
	ck_assert_uint_eq(f.l[3].views, 1);
	ck_assert_int_eq(exchange_state(f.x), EXCHANGE_RUNNING);
	reducers_close(&f);
}
END_TEST

/* Others report it as returned: a rank that has sent HELLO there agrees, a rank that has
 * not counts one more loss. */
START_TEST(a_view_announces_a_returned_reducer)
{
	struct reducers f;

	views_open(&f, views_two);
	f.welcome = false;
	reducers_cut(&f, 1, "connection reset by peer");
	reducers_pump(&f);
	while (!f.l[1].greeted)
		reducers_advance(&f, 10);
	if (_i) {
		f.l[1].dead = true;
		reducers_cut(&f, 1, "connection reset by peer");
		reducers_pump(&f);
	}
	views_say_lives(&f, 0, 0, 2, 0);
	views_expect_lives(&f, 0, 2, 0, 2 + (unsigned)_i, 0);
	ck_assert_uint_eq(f.l[1].aborts, 0);
	if (!_i) { /* if that fails, it is lost again */
		ck_assert(f.l[1].up);
		reducers_cut(&f, 1, "connection reset by peer");
		reducers_pump(&f);
		views_expect_lives(&f, 0, 3, 0, 3, 0);
	}
	reducers_close(&f);
}
END_TEST

/* A job waits for all its reducers, unless it needs fewer: then one that cannot be
 * reached when the job starts is given up after half of the connect timeout, if there is
 * another one, and used after it has been reached. */
START_TEST(a_reducer_missing_at_the_start)
{
	char yaml[400];
	struct reducers f;
	struct reducers_op o;

	snprintf(yaml, sizeof yaml, "%s%s", views_two, _i == 2 ? "" : "job: {min_reducers: 1}\n");
	reducers_open(&f, yaml, 2, 6000);
	f.resume = true;
	f.l[1].dead = true;
	f.l[0].dead = _i == 1;
	reducers_advance(&f, 2999);
	ck_assert_int_eq(exchange_state(f.x), EXCHANGE_JOINING);
	reducers_advance(&f, 1);
	if (_i) { /* no other reducer is left; or all are needed */
		ck_assert_int_eq(exchange_state(f.x), EXCHANGE_JOINING);
		reducers_advance(&f, 3000);
		reducers_expect_end(&f, RS_ETIMEOUT, "reducer r1 at 127.0.0.1:2: connection refused");
	} else {
		ck_assert_int_eq(exchange_state(f.x), EXCHANGE_RUNNING);
		ck_assert_str_eq(f.why, "connection refused");
		ck_assert_uint_eq(f.empty, 1);
		views_expect_lives(&f, 0, 1, 0, 1, 0);
		f.l[1].dead = false;
		reducers_advance(&f, 1000);
		ck_assert_uint_eq(f.back, 1);
		ck_assert_uint_eq(f.taken, 1);
		views_submit(&f, &o, 4);
		views_expect_done(&o);
		ck_assert_uint_eq(f.l[1].data_n, 2);
	}
	reducers_close(&f);
}
END_TEST

/* Time passes, in which living reducers send heartbeats. */
static void pass(struct reducers *f, unsigned seconds)
{
	for (unsigned s = 0; s < seconds; s++) {
		for (unsigned i = 0; i < 2; i++)
			if (f->l[i].greeted)
				reducers_say_control(f, i, FRAME_PING, NULL, 0);
		reducers_pump(f);
		reducers_advance(f, 1000);
	}
}

/* A job with slots does not report those that are empty as missing or lost: not while it
 * starts, not later, and not when a reducer leaves in good order. One that it needs is
 * reported. */
START_TEST(empty_slots_are_no_loss)
{
	struct exchange_report *r;
	struct reducers f;
	char yaml[400];

	snprintf(yaml, sizeof yaml, "%sjob: {min_reducers: 1}\n", views_two);
	reducers_open(&f, yaml, 2, 60000);
	r = exchange_report_new(f.cfg.reducers_n, f.cfg.sharding.shards);
	ck_assert_ptr_nonnull(r);
	f.resume = true;
	f.l[1].dead = true;
	pass(&f, 100);
	ck_assert_int_eq(exchange_state(f.x), EXCHANGE_RUNNING);
	ck_assert(f.waits == 0 && f.reminders == 0 && f.empty == 1 && f.taken == 0);
	exchange_report(f.x, f.now_ms, r);
	ck_assert(r->alive == 1 && r->empty == 1 && r->degraded_ms == 0);
	ck_assert(r->reducers[1].reach == REPORT_EMPTY && r->reducers[1].losses == 0 && r->reducers[1].shards == 0);
	ck_assert_str_eq(r->reducers[1].why, "connection refused");

	f.l[1].dead = false;
	pass(&f, 5);
	exchange_report(f.x, f.now_ms, r);
	ck_assert(f.taken == 1 && r->alive == 2 && r->empty == 0);
	ck_assert(r->reducers[1].reach == REPORT_CONNECTED && r->reducers[1].losses == 0 &&
		  r->reducers[1].returns == 0);

	f.l[0].dead = true;
	reducers_say_control(&f, 0, FRAME_DRAIN, NULL, 0);
	pass(&f, 100);
	exchange_report(f.x, f.now_ms, r);
	ck_assert(f.empty == 2 && f.reminders == 0 && r->alive == 1 && r->empty == 1);
	ck_assert_str_eq(f.why, "it is shutting down");
	free(r);
	reducers_close(&f);

	reducers_open(&f, yaml, 2, 10000); /* nobody is there: all are named */
	f.l[0].dead = f.l[1].dead = true;
	pass(&f, 4);
	ck_assert_uint_eq(f.waits, 1);
	ck_assert_ptr_nonnull(
	    strstr(f.wait, "0 of 2 reducers are there, expected 1 (job.min_reducers): reducer r0 at "));
	reducers_close(&f);
}
END_TEST

/* A process that is another one of the reducers that share a name has not been reached as
 * this one: the job starts without it, and the driver hears what it is. _i: the
 * configuration does not share a name, and the process is not believed. */
START_TEST(another_reducer_of_a_name_was_not_reached)
{
	static const char no[] = "this is reducer r0 of job train";
	struct control_refused refused = {.code = RS_EREFUSED, .retry = true, .elsewhere = true, .reducer = "r0"};
	struct reducers f;
	char yaml[400];

	snprintf(yaml, sizeof yaml,
		 "reducers: [{id: r0, address: \"a.test:1\"}, {id: r1, address: \"%s.test:1\"}]\n"
		 "job: {min_reducers: 1}\nsharding: {map: {0: r0, 1: r1}}\n",
		 _i ? "b" : "a");
	reducers_open(&f, yaml, 2, 10000);
	f.resume = true;
	strcpy(refused.message, no);
	f.l[1].refuses = &refused;
	reducers_advance(&f, 12000);
	ck_assert_int_eq(f.l[0].hello.shared, _i == 0);
	ck_assert_int_eq(exchange_state(f.x), _i ? EXCHANGE_ENDED : EXCHANGE_RUNNING);
	if (_i) {
		ck_assert_str_eq(f.is_reducer, "");
	} else {
		ck_assert_uint_eq(f.empty, 1);
		ck_assert_str_eq(f.why, no);
		ck_assert_int_eq(strncmp(f.is_reducer, "0=r0 1=r0 1=r0", 14), 0);
	}
	reducers_close(&f);
}
END_TEST

/* A job that has lost a reducer says so after 30 s and then every 5 minutes, until it is
 * back. */
START_TEST(lost_reducers_are_not_forgotten)
{
	struct reducers f;

	reducers_open(&f, views_two, 2, 60000);
	f.resume = true;
	reducers_pump(&f);
	f.l[1].dead = true;
	reducers_cut(&f, 1, "connection reset by peer");
	pass(&f, 29);
	ck_assert_uint_eq(f.reminders, 0);
	pass(&f, 1);
	ck_assert_ptr_nonnull(strstr(f.reminder, "1 of 2 reducers have all shards; r1 is lost for 30 s: connection "
						 "reset by peer"));
	pass(&f, 600);
	ck_assert_uint_eq(f.reminders, 3);
	f.l[1].dead = false;
	pass(&f, 600);
	ck_assert_uint_eq(f.back, 1);
	ck_assert_uint_eq(f.reminders, 3);
	reducers_close(&f);
}
END_TEST

/* "Workers log why a lost reducer cannot come back." */
START_TEST(a_reducer_that_cannot_come_back)
{
	struct reducers f;

	reducers_open(&f, views_two, 2, 60000);
	f.resume = true;
	reducers_pump(&f);
	f.welcome = false;
	reducers_cut(&f, 1, "connection reset by peer");
	while (!f.l[1].greeted)
		reducers_advance(&f, 50);
	reducers_say_refused(&f, 1, RS_EREFUSED, "no memory for job test", true);
	reducers_pump(&f);
	f.l[1].dead = false;
	f.l[1].rejects = NULL;
	for (unsigned s = 0; s < 40 && !f.reminders; s++) {
		reducers_say_control(&f, 0, FRAME_PING, NULL, 0);
		if (f.l[1].greeted)
			reducers_say_refused(&f, 1, RS_EREFUSED, "no memory for job test", true);
		reducers_pump(&f);
		reducers_advance(&f, 1000);
	}
	ck_assert_uint_eq(f.reminders, 1);
	ck_assert_ptr_nonnull(strstr(f.reminder, " s: connection reset by peer; it cannot come back: no memory for job "
						 "test"));
	reducers_close(&f);
}
END_TEST

/* Lets reducer r1 come back. Returns after how many seconds it is back. */
static unsigned come_back(struct reducers *f)
{
	unsigned before = f->back, s = 0;

	for (; f->back == before && s < 1000; s++)
		pass(f, 1);
	return s;
}

/* A path that lets small messages through and no large ones: the pauses grow. */
START_TEST(a_reducer_without_payload_comes_back_ever_later)
{
	static const unsigned pauses[] = {5, 10, 20, 40, 80, 160, 320, 600, 600};
	static const char silence[] = "rank 0 was lost: nothing was heard from it for 10.0 s";
	struct reducers f;

	reducers_open(&f, views_two, 2, 60000);
	f.resume = true;
	reducers_pump(&f);
	reducers_cut(&f, 1, silence);
	ck_assert_uint_lt(come_back(&f), 4); /* once may be anything */
	for (unsigned i = 0; i < sizeof pauses / sizeof *pauses; i++) {
		unsigned s;

		reducers_cut(&f, 1, silence);
		ck_assert_ptr_nonnull(strstr(f.why, "although small messages pass: check the MTU"));
		s = come_back(&f);
		ck_assert_msg(s >= pauses[i] && s <= pauses[i] + 3, "pause %u: %u s", i, s);
	}
	reducers_cut(&f, 1, "connection reset by peer"); /* its process has ended */
	ck_assert_ptr_null(strstr(f.why, "MTU"));
	reducers_close(&f);
}
END_TEST

/* The report of a job that starts, loses a reducer, and has it again. */
START_TEST(a_report_follows_the_reducers)
{
	struct exchange_report *r;
	bool has[RS_REDUCERS_MAX];
	struct reducers f;

	reducers_open(&f, views_two, 2, 60000);
	f.resume = true;
	f.welcome = false;
	reducers_pump(&f);
	r = exchange_report_new(f.cfg.reducers_n, f.cfg.sharding.shards);
	ck_assert_ptr_nonnull(r);
	f.now_ms += 2000;
	exchange_report(f.x, f.now_ms, r);
	ck_assert_uint_eq(r->running_ms, 0);
	ck_assert_ptr_nonnull(strstr(r->waiting, "reducer r0 at "));
	ck_assert(r->alive == 2 && r->reducers[1].reach == REPORT_CONNECTING && r->reducers[1].lanes_up == 0);
	reducers_close(&f);

	reducers_open(&f, views_two, 2, 60000);
	f.resume = true;
	reducers_pump(&f);
	pass(&f, 10);
	exchange_report(f.x, f.now_ms, r);
	ck_assert_str_eq(r->waiting, "");
	ck_assert_uint_gt(r->running_ms, 9999);
	ck_assert(r->alive == 2 && r->degraded_ms == 0);
	for (unsigned i = 0; i < 2; i++) {
		ck_assert_int_eq(r->reducers[i].reach, REPORT_CONNECTED);
		ck_assert_uint_ge(r->reducers[i].for_ms, 10000);
		ck_assert_uint_eq(r->reducers[i].shards, r->reducers[i].home_shards);
		ck_assert_uint_eq(exchange_report_holders(r, i, has), 0);
		ck_assert(r->reducers[i].losses == 0 && r->reducers[i].returns == 0);
	}
	f.l[1].dead = true;
	reducers_cut(&f, 1, "connection reset by peer");
	pass(&f, 7);
	exchange_report(f.x, f.now_ms, r);
	ck_assert(r->alive == 1 && r->reducers[1].reach == REPORT_LOST);
	ck_assert_str_eq(r->reducers[1].why, "connection reset by peer");
	ck_assert(!r->reducers[1].narrow);
	ck_assert_uint_eq(r->reducers[1].for_ms, r->degraded_ms);
	ck_assert(r->degraded_ms >= 7000 && r->degraded_ms < 8000);
	ck_assert_uint_eq(r->reducers[1].shards, 0);
	ck_assert_uint_eq(r->reducers[0].shards, r->shards_n);
	ck_assert_uint_eq(exchange_report_holders(r, 1, has), 1);
	ck_assert(has[0] && !has[1]);
	ck_assert(r->reducers[1].losses == 1 && r->reducers[1].returns == 0);
	f.l[1].dead = false;
	pass(&f, 5);
	exchange_report(f.x, f.now_ms, r);
	ck_assert(r->alive == 2 && r->degraded_ms == 0 && r->reducers[1].shards > 0);
	ck_assert_str_eq(r->reducers[1].why, "");
	ck_assert(r->reducers[1].losses == 1 && r->reducers[1].returns == 1);
	ck_assert(r->reducers[0].losses == 0 && r->reducers[0].returns == 0);
	free(r);
	reducers_close(&f);
}
END_TEST

/* What no further attempt changes ends a job that starts, and is a loss for one that
 * runs. */
START_TEST(a_reducer_that_is_rejected)
{
	static const char why[] =
	    "its certificate is for r1.example, not for the name or address that was connected to";
	struct reducers f;

	reducers_open(&f, views_two, 2, 60000);
	if (_i)
		reducers_pump(&f);
	f.l[1].rejects = why;
	if (_i) {
		reducers_cut(&f, 1, "cut");
		reducers_advance(&f, 3000);
		ck_assert_uint_gt(f.l[1].tries, 1);
		ck_assert_int_eq(exchange_state(f.x), EXCHANGE_RUNNING);
		ck_assert_uint_eq(f.lost, 1);
	} else {
		reducers_pump(&f);
		reducers_expect_end(&f, RS_EREFUSED,
				    "reducer r1 (127.0.0.1:2): its certificate is for r1.example, not for");
	}
	reducers_close(&f);
}
END_TEST

/* ---- the end ---- */

/* "A rank that is lost to all of them leaves no reducer alive, which ends the job with
 * what they said." The frame of each link, and the end; NULL: the connection breaks. */
static const struct {
	const char *said[2], *says;
	unsigned rank[2]; /* 1 + the rank of the cause */
} ends[] = {
    {{NULL, NULL}, "reducer r0 (127.0.0.1:1) was lost: cut; reducer r1 (127.0.0.1:2) was lost: cut", {0}},
    {{"rank 1 was lost: cut", "rank 1 was lost: it is silent"}, "rank 1 was lost: ", {2, 2}},
    {{NULL, "rank 1 was lost: it is silent"}, "rank 1 was lost: it is silent", {0, 2}},
    {{"the reducer was stopped", NULL}, "reducer r0 (127.0.0.1:1) was lost: the reducer was stopped; reducer r1", {0}},
    /* the words do not matter: only the cause */
    {{"Rang 1 fehlt: cut", "no word from 1"}, "no word from 1", {2, 2}},
    {{"Rang 1 fehlt: cut", NULL}, "Rang 1 fehlt: cut", {2, 0}},
    {{"rank 1 was lost: cut", NULL}, "reducer r0 (127.0.0.1:1) was lost: rank 1 was lost: cut; reducer r1", {0}},
};

START_TEST(losing_the_last_reducer_ends_the_exchange)
{
	struct reducers f;
	struct reducers_op o;

	views_open(&f, views_two);
	f.answer = false;
	views_submit(&f, &o, 2);
	for (unsigned i = 0; i < 2; i++) {
		ck_assert_int_eq(o.done, 0);
		if (ends[_i].rank[i])
			reducers_say_lost(&f, i, ends[_i].rank[i] - 1, ends[_i].said[i]);
		else if (ends[_i].said[i])
			reducers_say_abort(&f, i, RS_ECUT, ends[_i].said[i]);
		else
			reducers_cut(&f, i, "cut");
		reducers_pump(&f);
	}
	reducers_expect_end(&f, RS_EPEER, ends[_i].says);
	ck_assert_int_eq(strncmp(exchange_error(f.x)->msg, ends[_i].says, strlen(ends[_i].says)), 0);
	ck_assert_int_eq(o.done, 1);
	reducers_close(&f);
}
END_TEST

/* "A worker that has all results says SETTLE and waits until a frame's ack says that all
 * ranks have them." */
START_TEST(leaving)
{
	struct frame ping = {.type = FRAME_PING, .ack = 1};
	struct reducers f;
	struct reducers_op o;
	struct rs_err e;

	views_open(&f, views_three);
	f.resume = true;
	f.l[2].dead = true;
	reducers_cut(&f, 2, "cut");
	reducers_pump(&f);
	views_submit(&f, &o, 6);
	views_submit(&f, &o, 6);
	exchange_goodbye(f.x, f.now_ms);
	reducers_pump(&f);
	for (unsigned i = 0; i < VIEWS_LINKS; i++) {
		ck_assert_uint_eq(f.l[i].settles, i != 2);
		ck_assert_uint_eq(f.l[i].goodbyes, 0);
	}
	ck_assert_int_eq(reducers_submit(&f, &o, 1, &e), RS_ECLOSED);
	reducers_say(&f, 0, &ping, NULL); /* not all yet */
	reducers_pump(&f);
	ck_assert_uint_eq(f.l[0].goodbyes, 0);
	if (_i) { /* its retained results may be needed: it is asked in the new view too */
		f.l[3].dead = true;
		reducers_cut(&f, 3, "cut");
		reducers_pump(&f);
		ck_assert_uint_eq(f.l[0].settles, 2);
		ck_assert_uint_eq(f.l[0].goodbyes, 0);
	}
	ping.ack = 2;
	reducers_say(&f, 0, &ping, NULL);
	reducers_pump(&f);
	ck_assert_uint_eq(f.l[0].goodbyes, 1);
	ck_assert_uint_eq(f.l[1].goodbyes, 1);
	ck_assert_uint_eq(f.l[3].goodbyes, !_i);
	ck_assert_int_eq(exchange_state(f.x), EXCHANGE_ENDED);
	ck_assert_int_eq(exchange_error(f.x)->code, 0);
	reducers_close(&f);
}
END_TEST

/* If all results are stable there is nothing to wait for. */
START_TEST(leaving_at_once)
{
	struct frame ping = {.type = FRAME_PING, .ack = 1};
	struct reducers f;
	struct reducers_op o;

	views_open(&f, views_three);
	if (_i) {
		views_submit(&f, &o, 6);
		reducers_say(&f, 3, &ping, NULL);
		reducers_pump(&f);
	}
	exchange_goodbye(f.x, f.now_ms);
	reducers_pump(&f);
	for (unsigned i = 0; i < VIEWS_LINKS; i++)
		ck_assert(f.l[i].settles == 0 && f.l[i].goodbyes == 1);
	reducers_close(&f);
}
END_TEST

/* "A reducer asks the others with a PING that has count 1; they answer with PING", at
 * once and when they have more. The number of a question is answered at once only, and
 * does not end this. */
START_TEST(progress_is_reported_on_request)
{
	static const uint64_t counts[] = {2, 1, 3, 0};
	static const unsigned pings[] = {1, 3, 5, 5}; /* after an operation that follows */
	struct frame ask = {.type = FRAME_PING};
	struct reducers f;
	struct reducers_op o[4];

	views_open(&f, views_two);
	for (unsigned i = 0; i < 4; i++) {
		ask.of.count = counts[i];
		reducers_say(&f, 1, &ask, NULL);
		reducers_pump(&f);
		views_submit(&f, &o[i], 1);
		ck_assert_uint_eq(f.l[1].pings, pings[i]);
	}
	ck_assert_uint_eq(f.l[0].pings, 0);
	reducers_close(&f);
}
END_TEST

#define COUNT(a) (int)(sizeof(a) / sizeof(a)[0])

static void add_tests(TCase *tc)
{
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, rejoin_is_retried_after_each_refusal);
	tcase_add_test(tc, a_reducer_returns_with_all_lanes);
	tcase_add_loop_test(tc, a_loss_before_start_is_a_failed_attempt, 0, 2);
	tcase_add_loop_test(tc, a_view_announces_a_returned_reducer, 0, 2);
	tcase_add_loop_test(tc, a_reducer_missing_at_the_start, 0, 3);
	tcase_add_test(tc, empty_slots_are_no_loss);
	tcase_add_loop_test(tc, another_reducer_of_a_name_was_not_reached, 0, 2);
	tcase_add_loop_test(tc, a_reducer_that_is_rejected, 0, 2);
	tcase_add_test(tc, lost_reducers_are_not_forgotten);
	tcase_add_test(tc, a_reducer_that_cannot_come_back);
	tcase_add_test(tc, a_reducer_without_payload_comes_back_ever_later);
	tcase_add_test(tc, a_report_follows_the_reducers);
	tcase_add_loop_test(tc, losing_the_last_reducer_ends_the_exchange, 0, COUNT(ends));
	tcase_add_loop_test(tc, leaving, 0, 2);
	tcase_add_loop_test(tc, leaving_at_once, 0, 2);
	tcase_add_test(tc, progress_is_reported_on_request);
}

int main(void)
{
	Suite *suite = suite_create("view_end");
	TCase *tc = tcase_create("ends");
	SRunner *runner;
	int failed;

	add_tests(tc);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
