/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs with groups, and the uplinks of relays: which are admitted, and that they take no
 * rank's place. */
#include "config/limits.h"
#include "proto/features.h"
#include "tests/unit/fake_registry.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

enum { DIGEST = 4711, GROUPS = 2, UPLINKS = 3 };

static struct control_hello grouped(unsigned rank, unsigned lane)
{
	struct control_hello h = fr_hello(rank, lane);

	h.groups = GROUPS;
	h.group = 1 + rank;
	h.uplinks = UPLINKS;
	h.reducers_digest = DIGEST;
	h.features = FEATURE_START | FEATURE_RELAYS;
	h.retain = true;
	return h;
}

/* What reducer r1 sends as the relay of group 2. */
static struct control_hello uplink(unsigned lane)
{
	struct control_hello h = grouped(0, lane);

	h.relay = 2;
	h.group = 2;
	h.lanes = lane + 1;
	snprintf(h.label, sizeof h.label, "relay r1");
	return h;
}

/* Joins both ranks with both lanes. */
static uint64_t start(struct fr_world *w)
{
	uint64_t id = 0;

	for (unsigned i = 0; i < 4; i++) {
		struct control_hello h = grouped(i / 2, i % 2);

		id = fr_admit(w, &h);
	}
	ck_assert_uint_eq(w->n[REGISTRY_START], 1);
	return id;
}

static struct registry_admit admit(struct fr_world *w, const struct control_hello *h)
{
	struct registry_admit a;
	struct control_refused no = {0};

	if (registry_hello(w->r, h, &a, &no))
		ck_abort_msg("refused: %s", no.message);
	return a;
}

START_TEST(an_uplink_is_no_rank)
{
	struct fr_world w;
	struct control_hello h = uplink(1);
	struct registry_admit a;
	uint64_t id;

	fr_open_relay(&w, DIGEST);
	id = start(&w);
	ck_assert(w.last.begin.agreed.features & FEATURE_RELAYS);
	ck_assert_uint_eq(w.last.begin.agreed.start, 1000);
	a = admit(&w, &h);
	ck_assert_uint_eq(a.stripe.job, id);
	ck_assert(a.stripe.lane == 1 && a.stripe.groups == GROUPS && a.stripe.uplinks == UPLINKS);
	ck_assert(a.session.relay == 2 && a.session.group == 1);
	ck_assert_uint_eq(a.session.peer_detect_ms, 5000);
	ck_assert_str_eq(a.session.label, "relay r1");
	ck_assert(a.features & FEATURE_RELAYS);
	registry_admitted(w.r, id);
	ck_assert_uint_eq(w.n[REGISTRY_START], 1);
	/* the job is there until the last session has gone, whichever that is */
	for (unsigned i = 0; i < 4; i++)
		registry_session_closed(w.r, id, i / 2, i % 2, true);
	ck_assert_uint_eq(w.n[REGISTRY_CLOSED], 0);
	registry_uplink_closed(w.r, id);
	ck_assert_uint_eq(w.n[REGISTRY_CLOSED], 1);
	registry_uplink_closed(w.r, id); /* of a job that is not there: nothing */
	ck_assert_uint_eq(w.allocated, 0);
	fr_close(&w);
}
END_TEST

/* While the uplinks of a job are closing whose ranks have left, another training may have
 * its name. */
START_TEST(a_job_without_ranks_is_in_nobodys_way)
{
	struct control_hello h = uplink(0), other = grouped(0, 0);
	struct fr_world w;
	uint64_t id;

	fr_open_relay(&w, DIGEST);
	id = start(&w);
	admit(&w, &h);
	other.generation = h.generation - 1;
	fr_refused(&w, &other, RS_EREFUSED, false, "is at generation");
	for (unsigned i = 0; i < 4; i++)
		registry_session_closed(w.r, id, i / 2, i % 2, true);
	fr_refused(&w, &h, RS_EREFUSED, true, "does not run here now");
	ck_assert_uint_ne(admit(&w, &other).stripe.job, id);
	registry_uplink_closed(w.r, id);
	ck_assert_uint_eq(w.n[REGISTRY_CLOSED], 1);
	fr_close(&w);
}
END_TEST

/* As many as the configuration has, on all lanes; the place of one that has gone is
 * free. */
START_TEST(uplinks_are_counted)
{
	struct fr_world w;
	struct control_hello h;
	uint64_t id;

	fr_open_relay(&w, DIGEST);
	id = start(&w);
	for (unsigned i = 0; i < 2 * UPLINKS; i++) {
		h = uplink(i % 2);
		admit(&w, &h);
	}
	fr_refused(&w, &h, RS_EREFUSED, true, "job train has 6 uplinks here, as many as it has relays");
	registry_uplink_closed(w.r, id);
	admit(&w, &h);
	fr_close(&w);
}
END_TEST

enum spoilt {
	JOB,
	GENERATION,
	START_OF,
	DIGEST_OF,
	WORLD,
	CHUNK,
	LANE,
	GROUPS_N,
	GROUPS_NONE,
	GROUP_NONE,
	GROUP_LARGE,
	GROUPS_LARGE,
	UPLINKS_LARGE,
	RELAY_LARGE,
	RELAY_HUGE,
};

static const struct {
	enum spoilt how;
	int code;
	bool retry;
	const char *says;
} refused[] = {
    {JOB, RS_EREFUSED, true, "this start of job other does not run here now"},
    {GENERATION, RS_EREFUSED, true, "this start of job train does not run here now"},
    {START_OF, RS_EREFUSED, true, "this start of job train does not run here now"},
    {DIGEST_OF, RS_EMISMATCH, false, "relay 1 of job train is in a job that is configured differently"},
    {WORLD, RS_EMISMATCH, false, "configured differently"},
    {CHUNK, RS_EMISMATCH, false, "configured differently"},
    {LANE, RS_EMISMATCH, false, "configured differently"},
    {GROUPS_N, RS_EMISMATCH, false, "configured differently"},
    {GROUPS_NONE, RS_EMISMATCH, false, "configured differently"},
    {GROUP_NONE, RS_EINVAL, false, "group 0 of 2 is out of range (at most 64 groups)"},
    {GROUP_LARGE, RS_EINVAL, false, "group 3 of 2 is out of range"},
    {GROUPS_LARGE, RS_EINVAL, false, "group 2 of 65 is out of range"},
    {UPLINKS_LARGE, RS_EINVAL, false, "uplinks are out of range 0 to 16384"},
    {RELAY_LARGE, RS_EINVAL, false, "relay 256 is out of range 0 to 255"},
    {RELAY_HUGE, RS_EINVAL, false, "relay 4294967294 is out of range 0 to 255"},
};

static void spoil(struct control_hello *h, enum spoilt how)
{
	if (how == JOB)
		strcpy(h->job, "other");
	h->generation += how == GENERATION;
	h->incarnation += how == START_OF;
	h->config_digest += how == DIGEST_OF;
	h->world_size += how == WORLD;
	h->chunk_bytes *= how == CHUNK ? 2 : 1;
	if (how == LANE) {
		h->lane = 2;
		h->lanes = 3;
	}
	h->groups += how == GROUPS_N;
	if (how == GROUPS_NONE)
		h->groups = h->group = 0;
	h->group = how == GROUP_NONE ? 0 : how == GROUP_LARGE ? 3 : h->group;
	h->groups = how == GROUPS_LARGE ? 65 : h->groups;
	h->uplinks = how == UPLINKS_LARGE ? RS_REDUCERS_MAX * RS_LANES_MAX + 1 : h->uplinks;
	h->relay = how == RELAY_LARGE ? RS_REDUCERS_MAX + 1 : how == RELAY_HUGE ? UINT32_MAX : h->relay;
}

START_TEST(other_uplinks_are_refused)
{
	struct fr_world w;
	struct control_hello h = uplink(0);
	uint64_t id;

	fr_open_relay(&w, DIGEST);
	id = start(&w);
	spoil(&h, refused[_i].how);
	fr_refused(&w, &h, refused[_i].code, refused[_i].retry, refused[_i].says);
	/* the job goes on */
	h = uplink(0);
	ck_assert_uint_eq(admit(&w, &h).stripe.job, id);
	ck_assert_uint_eq(w.n[REGISTRY_ABORT], 0);
	fr_close(&w);
}
END_TEST

/* A start that has not begun, or is over. */
START_TEST(an_uplink_needs_a_job_that_runs)
{
	const struct rs_err why = {.code = RS_ECUT, .msg = "lost"};
	struct fr_world w;
	struct control_hello h = grouped(0, 0), up = uplink(0);
	uint64_t id;

	fr_open_relay(&w, DIGEST);
	fr_refused(&w, &up, RS_EREFUSED, true, "does not run here now");
	id = fr_admit(&w, &h);
	fr_refused(&w, &up, RS_EREFUSED, true, "does not run here now");
	for (unsigned i = 1; i < 4; i++) {
		h = grouped(i / 2, i % 2);
		fr_admit(&w, &h);
	}
	admit(&w, &up);
	registry_failed(w.r, id, &why, NULL);
	fr_refused(&w, &up, RS_EREFUSED, true, "does not run here now");
	fr_close(&w);
}
END_TEST

/* A reducer without groups in its own file, or with other reducers, relays nothing; nor
 * does one if a rank cannot. The job runs without relays. */
static const struct {
	const char *what;
	uint64_t digest;
	bool old_rank;
} flat[] = {
    {"no groups in its file", 0, false},
    {"other reducers", DIGEST + 1, false},
    {"a rank cannot", DIGEST, true},
};

START_TEST(jobs_run_without_relays)
{
	struct fr_world w;
	struct control_hello h, up = uplink(0);
	struct registry_admit a;

	fr_open_relay(&w, flat[_i].digest);
	for (unsigned i = 0; i < 4; i++) {
		h = grouped(i / 2, i % 2);
		if (flat[_i].old_rank && i > 1)
			h.features &= ~FEATURE_RELAYS;
		a = admit(&w, &h);
		/* WELCOME already says what this reducer has */
		ck_assert_int_eq(!(a.features & FEATURE_RELAYS), !flat[_i].old_rank);
		registry_admitted(w.r, a.stripe.job);
	}
	ck_assert_uint_eq(w.n[REGISTRY_START], 1);
	ck_assert_msg(!(w.last.begin.agreed.features & FEATURE_RELAYS), "%s", flat[_i].what);
	fr_refused(&w, &up, RS_EREFUSED, false, "job train uses no relays here");
	fr_close(&w);
}
END_TEST

static const struct {
	unsigned groups, uplinks;
	uint64_t digest;
} differences[] = {{3, UPLINKS, DIGEST}, {GROUPS, UPLINKS + 1, DIGEST}, {GROUPS, UPLINKS, DIGEST + 1}, {0, 0, 0}};

START_TEST(ranks_with_other_groups_are_refused)
{
	struct fr_world w;
	struct control_hello h = grouped(0, 0);

	fr_open_relay(&w, DIGEST);
	fr_admit(&w, &h);
	h = grouped(1, 0);
	h.groups = differences[_i].groups;
	h.group = h.groups ? 1 : 0;
	h.uplinks = differences[_i].uplinks;
	h.reducers_digest = differences[_i].digest;
	fr_refused(&w, &h, RS_EMISMATCH, false, "configured differently");
	fr_close(&w);
}
END_TEST

/* A job that lost this reducer since it could not relay does not take it back for a
 * while; other jobs do. */
START_TEST(a_relay_that_failed_pauses_for_its_job)
{
	struct control_hello back = grouped(0, 0), other = back;
	struct lane_event ev = {.type = LANE_UNLINKED};
	struct fr_world w;

	back.rejoin = other.rejoin = true;
	snprintf(other.job, sizeof other.job, "another");
	fr_open_relay(&w, DIGEST);
	ev.job = start(&w);
	registry_lane_event(w.r, &ev);
	for (unsigned i = 0; i < 4; i++)
		registry_session_closed(w.r, ev.job, i / 2, i % 2, true);
	fr_refused(&w, &back, RS_EREFUSED, true, "had no connection to another one; next attempt in 6 s");
	admit(&w, &other);
	registry_set_time(w.r, 4999);
	fr_refused(&w, &back, RS_EREFUSED, true, "next attempt in 1 s");
	registry_set_time(w.r, 5000);
	admit(&w, &back);
	fr_close(&w);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("registry_relay");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_test(tc, an_uplink_is_no_rank);
	tcase_add_test(tc, a_job_without_ranks_is_in_nobodys_way);
	tcase_add_test(tc, uplinks_are_counted);
	tcase_add_loop_test(tc, other_uplinks_are_refused, 0, sizeof refused / sizeof refused[0]);
	tcase_add_test(tc, an_uplink_needs_a_job_that_runs);
	tcase_add_loop_test(tc, jobs_run_without_relays, 0, sizeof flat / sizeof flat[0]);
	tcase_add_loop_test(tc, ranks_with_other_groups_are_refused, 0, sizeof differences / sizeof differences[0]);
	tcase_add_test(tc, a_relay_that_failed_pauses_for_its_job);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
