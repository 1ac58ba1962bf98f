/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of reductionctl doctor, on two looks at a job that is a day old: what is
 * found, in which order, and that a job without problems has none. */
#include "deploy/ctl/doctor.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 4 };

/* A reducer with one job of four ranks that has no problem. */
struct sick {
	Reduction__V1__StatusReply m;
	Reduction__V1__LaneStatus lane, *lanes[1];
	Reduction__V1__JobStatus job, *jobs[1];
	Reduction__V1__Traffic traffic, rank_traffic;
	Reduction__V1__RankStatus rank[RANKS], *ranks[RANKS];
	Reduction__V1__LostReducer loss, *lost[1];
	Reduction__V1__Histogram sending, summing;
	uint64_t sending_n[1], summing_n[1];
	Reduction__V1__AgentStatus agent;
	Reduction__V1__AgentJob agent_job, *agent_jobs[1];
	Reduction__V1__AgentReducer link, *links[1];
};

enum { DAY_MS = 86400000, WINDOW_MS = 2000 };

/* Writes the status of this job when it is ms old; all counters have grown evenly. */
static void healthy_at(struct sick *s, uint64_t ms)
{
	memset(s, 0, sizeof *s);
	reduction__v1__status_reply__init(&s->m);
	reduction__v1__lane_status__init(&s->lane);
	reduction__v1__job_status__init(&s->job);
	reduction__v1__traffic__init(&s->traffic);
	reduction__v1__traffic__init(&s->rank_traffic);
	s->lanes[0] = &s->lane;
	s->jobs[0] = &s->job;
	s->m.up_ms = ms;
	s->m.lanes = s->lanes;
	s->m.jobs = s->jobs;
	s->m.n_lanes = s->m.n_jobs = 1;
	s->m.memory_bytes = 100;
	s->m.memory_max_bytes = 1000;
	s->lane.busy_permil = 300;
	s->job.name = (char *)"resnet";
	s->job.state = REDUCTION__V1__JOB_STATUS__STATE__RUNNING;
	s->job.age_ms = ms;
	s->job.world_size = s->job.joined = RANKS;
	s->job.traffic = &s->traffic;
	s->job.slots = 100;
	s->job.slots_used = 30;
	s->traffic.bytes_in = ms * 300000;
	s->traffic.chunks = ms * 9;
	s->rank_traffic.bytes_out = ms * 724000;
	s->job.ranks = s->ranks;
	s->job.n_ranks = RANKS;
	for (unsigned r = 0; r < RANKS; r++) {
		reduction__v1__rank_status__init(&s->rank[r]);
		s->ranks[r] = &s->rank[r];
		s->rank[r].rank = r;
		s->rank[r].label = (char *)"pid 1 on b";
		s->rank[r].traffic = &s->rank_traffic;
		s->rank[r].waited_ms = ms * (r == 1 ? 60 : 20) / 1000; /* one is always the last */
		s->rank[r].retransmits = 300;
	}
	reduction__v1__histogram__init(&s->sending);
	reduction__v1__histogram__init(&s->summing);
	s->sending.counts = s->sending_n;
	s->summing.counts = s->summing_n;
	s->sending.n_counts = s->summing.n_counts = 1;
	s->sending_n[0] = s->summing_n[0] = ms / 2;
	s->sending.sum_us = ms * 100;
	s->summing.sum_us = ms * 10;
	s->job.sending = &s->sending;
	s->job.summing = &s->summing;
}

/* The second look at a job that is a day old. */
static void healthy(struct sick *s)
{
	healthy_at(s, DAY_MS + WINDOW_MS);
}

static void late(struct sick *s)
{
	s->rank[2].waited_ms += 1832; /* of 2000, beside the 40 that are usual */
	s->rank[2].late_ms = 93.6;
}

static void missing(struct sick *s)
{
	s->rank[3].missing_ms = 4200;
}

static void busy(struct sick *s)
{
	s->lane.busy_permil = 970;
}

static void starved(struct sick *s)
{
	s->lane.busy_permil = 950;
	s->lane.starved_permil = 600;
}

static void small(struct sick *s)
{
	s->traffic.bytes_in -= WINDOW_MS * 300000 - WINDOW_MS * 9 * 1024;
}

static void slots(struct sick *s)
{
	s->job.slots_used = 99;
}

static void lossy(struct sick *s)
{
	s->rank[0].retransmits += 5000;
}

static void slow_link(struct sick *s)
{
	s->sending.sum_us += 8800000;
}

static void certificate(struct sick *s)
{
	s->m.unix_ms = 1000000000000;
	s->m.certificate_unix_s = 1000000000 + 20 * 86400;
	s->m.certificate_renew_unix_s = s->m.certificate_unix_s - 30 * 86400;
}

static void certificate_ended(struct sick *s)
{
	certificate(s);
	s->m.certificate_unix_s = 1000000000 - 12 * 3600;
}

static void nan_sent(struct sick *s)
{
	s->job.nan_operations = 40;
	s->job.nonfinite = (char *)"rank 1 sent NaN: element 5 of all-reduce 7";
}

static void memory(struct sick *s)
{
	s->m.memory_bytes = 950;
}

static void gathering(struct sick *s)
{
	s->job.state = REDUCTION__V1__JOB_STATUS__STATE__GATHERING;
	s->job.joined = 3;
	s->job.age_ms = GATHERING_MS;
}

static void lose(struct sick *s)
{
	reduction__v1__lost_reducer__init(&s->loss);
	s->loss.id = (char *)"r1";
	s->loss.why = (char *)"connection refused";
	s->lost[0] = &s->loss;
	s->job.lost = s->lost;
	s->job.n_lost = 1;
}

static void lose_path(struct sick *s)
{
	lose(s);
	s->loss.losses = 4;
	s->loss.for_ms = 12000;
	s->loss.why = (char *)"nothing was heard from it for 10000 ms";
	s->loss.narrow = true;
}

static void as_agent(struct sick *s)
{
	reduction__v1__agent_status__init(&s->agent);
	reduction__v1__agent_job__init(&s->agent_job);
	reduction__v1__agent_reducer__init(&s->link);
	s->m.agent = &s->agent;
	s->m.n_jobs = s->m.n_lanes = 0;
	s->agent.jobs = s->agent_jobs;
	s->agent.n_jobs = 1;
	s->agent_jobs[0] = &s->agent_job;
	s->agent_job.name = (char *)"resnet";
	s->agent_job.bytes_out = s->m.up_ms * 724000;
	s->agent_job.reducers = s->links;
	s->agent_job.n_reducers = 1;
	s->links[0] = &s->link;
	s->link.id = (char *)"r0";
	s->link.state = REDUCTION__V1__AGENT_REDUCER__STATE__CONNECTED;
	s->link.window = s->link.window_max = 36;
	s->link.rtt_us = 300;
}

static void long_link(struct sick *s)
{
	as_agent(s);
	s->link.rtt_us = 40000;
}

static void agent_lossy(struct sick *s)
{
	as_agent(s);
	s->link.retransmits = 2000;
}

static void agent_lost(struct sick *s)
{
	as_agent(s);
	s->link.state = REDUCTION__V1__AGENT_REDUCER__STATE__LOST;
}

static void agent_lost_path(struct sick *s)
{
	agent_lost(s);
	s->link.losses = 1;
	s->link.why = (char *)"rank 3 (pid 1 on b) was lost: nothing was heard from it for 10.0 s";
	s->link.narrow = true;
}

static void agent_lost_often(struct sick *s)
{
	agent_lost(s);
	s->link.losses = 3;
}

static void agent_returns(struct sick *s)
{
	as_agent(s);
	s->link.losses = 3;
	s->link.for_ms = 8000;
}

static const struct {
	void (*make)(struct sick *s);
	const char *id, *what, *evidence;
} rows[] = {
    {late, "rank-late", "rank 2 (pid 1 on b) is late", "93.6 % of the time; it is 93.6 ms behind"},
    {missing, "rank-missing", "rank 3 (pid 1 on b) has not sent its part", "4.2 s"},
    {starved, "lane-starved", "lane 0 of the reducer waits for a core that others use",
     "it waited for a core in 60.0 % of a second, and ran in 95.0 %"},
    {busy, "lane-busy", "the core of lane 0 of the reducer is exhausted", "it was busy in 97.0 %"},
    {small, "small-operations", "operations are small", "1024 bytes on average"},
    {slots, "slots-used", "all slots", "99 of 100 slots"},
    {lossy, "retransmissions", "the network to rank 0", "5000 of about 1000000"},
    {slow_link, "sending-slow", "results take long", "9.0 ms on average"},
    {nan_sent, "nan", "ranks send NaN", "in 40 operations more; the first: rank 1 sent NaN: element 5"},
    {memory, "memory", "nearly used", "95.0 %"},
    {certificate, "certificate-ends", "expires soon", "in 20.0 days"},
    {certificate_ended, "certificate-ended", "has expired", "since 0.5 days"},
    {gathering, "ranks-not-there", "ranks of the job are missing", "3 of 4 ranks"},
    {lose, "reducer-lost", "reducer r1 is lost", "connection refused"},
    {long_link, "window-at-limit", "the window to reducer r0", "36 chunks"},
    {agent_lossy, "retransmissions", "the network to reducer r0", "2000 of about 1000000"},
    {agent_lost, "reducer-lost", "reducer r0 is lost", "r0: for 0.0 s: no reason is known"},
    {agent_lost_often, "reducer-lost", "reducer r0 is lost", "lost 3 times"},
    {agent_lost_path, "reducer-path", "large messages do not get through to reducer r0", "r0: for 0.0 s: rank 3"},
    {lose_path, "reducer-path", "large messages do not get through to reducer r1",
     "lost 4 times, now for 12.0 s: nothing"},
    {agent_returns, "reducer-returns", "reducer r0 is lost and comes back", "lost 3 times, back for 8.0 s"},
};

/* Looks at it as it was, healthy, and as it is now. */
static void look(struct findings *all, const struct sick *now, const char *name)
{
	struct sick before;

	healthy_at(&before, DAY_MS);
	if (now->m.agent)
		as_agent(&before);
	doctor_look(all, &before.m, &now->m, name);
}

START_TEST(each_is_found)
{
	struct findings all = {.n = 0};
	struct sick s;

	healthy(&s);
	rows[_i].make(&s);
	look(&all, &s, "r0");
	ck_assert_uint_eq(all.n, 1);
	ck_assert_str_eq(all.at[0].id, rows[_i].id);
	ck_assert_msg(strstr(all.at[0].what, rows[_i].what) != NULL, "%s", all.at[0].what);
	ck_assert_msg(strstr(all.at[0].evidence, rows[_i].evidence) != NULL, "%s", all.at[0].evidence);
	ck_assert_int_eq(strncmp(all.at[0].evidence, "r0: ", 4), 0);
	ck_assert_str_ne(all.at[0].action, "");
}
END_TEST

START_TEST(nothing_is_found)
{
	struct findings all = {.n = 0};
	struct sick s;

	healthy(&s);
	look(&all, &s, "r0");
	ck_assert_uint_eq(all.n, 0);
	as_agent(&s);
	look(&all, &s, "a0");
	ck_assert_uint_eq(all.n, 0);
	long_link(&s);
	s.link.min_rtt_us = 40000; /* its window follows the round trip */
	look(&all, &s, "a0");
	ck_assert_uint_eq(all.n, 0);
}
END_TEST

/* Each reason of a loss has its own action. A return of long ago is none. */
START_TEST(what_to_do_about_a_lost_reducer)
{
	static const struct {
		void (*make)(struct sick *s);
		const char *action;
	} actions[] = {{lose, "start the reducer again"},
		       {lose_path, "ping -M do -s 8972"},
		       {agent_lost_path, "check the MTU"},
		       {agent_lost_often, "look at its machine and at the network"},
		       {agent_returns, "look at its machine and at the network"}};
	struct findings all = {.n = 0};
	struct sick s;

	for (unsigned i = 0; i < sizeof actions / sizeof *actions; i++) {
		all.n = 0;
		healthy(&s);
		actions[i].make(&s);
		look(&all, &s, "r0");
		ck_assert_ptr_nonnull(strstr(all.at[0].action, actions[i].action));
	}
	all.n = 0;
	s.link.for_ms = RETURNS_MS;
	look(&all, &s, "a0");
	ck_assert_uint_eq(all.n, 0);
}
END_TEST

START_TEST(the_worst_comes_first)
{
	static const char *const order[] = {"rank-missing", "rank-late", "reducer-lost", "slots-used", "memory"};
	struct findings all = {.n = 0};
	struct sick s;

	healthy(&s);
	memory(&s);
	slots(&s);
	lose(&s);
	late(&s);
	missing(&s);
	look(&all, &s, "r0");
	ck_assert_uint_eq(all.n, 5);
	for (unsigned i = 0; i < all.n; i++)
		ck_assert_str_eq(all.at[i].id, order[i]);
}
END_TEST

/* A loss of packets is why a rank is late. */
START_TEST(the_cause_comes_first)
{
	struct findings all = {.n = 0};
	struct sick s;

	healthy(&s);
	late(&s);
	s.rank[2].retransmits += 5000;
	look(&all, &s, "r0");
	ck_assert_uint_eq(all.n, 2);
	ck_assert_str_eq(all.at[0].id, "retransmissions");
	ck_assert_str_eq(all.at[1].id, "rank-late");
}
END_TEST

START_TEST(reducers_are_compared)
{
	static const struct {
		uint64_t us[3];
		unsigned found;
	} cases[] = {{{3000, 3000, 3000}, 0}, {{3000, 9000, 3000}, 1}, {{300, 900, 300}, 0}, {{0, 9000, 0}, 0}};
	static const char *const names[] = {"r0", "r1", "r2"};

	for (unsigned c = 0; c < sizeof cases / sizeof cases[0]; c++) {
		struct findings all = {.n = 0};

		for (unsigned i = 0; i < 3; i++) {
			struct sick before, now;

			healthy_at(&before, DAY_MS);
			healthy(&now);
			before.job.waiting = &before.summing;
			now.job.waiting = &now.summing;
			now.sending.sum_us = before.sending.sum_us;
			now.summing.sum_us = before.summing.sum_us + WINDOW_MS / 2 * cases[c].us[i];
			doctor_look(&all, &before.m, &now.m, names[i]);
		}
		doctor_compare(&all);
		ck_assert_uint_eq(all.n, cases[c].found);
		if (all.n)
			ck_assert_str_eq(all.at[0].what, "reducer r1 is slower than the others");
	}
}
END_TEST

/* What cannot be compared: one look, a process that has started again, another job of
 * this name. Only facts are seen. */
START_TEST(one_look)
{
	struct sick before[3], now;

	for (unsigned i = 0; i < 3; i++)
		healthy_at(&before[i], DAY_MS);
	before[1].m.up_ms = DAY_MS + WINDOW_MS;
	before[2].job.generation = 1;
	healthy(&now);
	late(&now);
	missing(&now);
	slots(&now);
	lossy(&now);
	memory(&now);
	for (unsigned i = 0; i < 3; i++) {
		struct findings all = {.n = 0};

		doctor_look(&all, i ? &before[i].m : NULL, &now.m, "r0");
		ck_assert_uint_eq(all.n, 1);
		ck_assert_str_eq(all.at[0].id, "memory");
		ck_assert(all.at[0].is_fact);
	}
}
END_TEST

/* A lane that waits for a core reads late: then no rank is late for that. */
START_TEST(a_starved_lane_accuses_no_rank)
{
	static const struct {
		unsigned waited_ms, starved_permil;
		bool is_late;
	} cases[] = {{460, 0, true}, {460, 199, false}, {1460, 199, true}, {1460, 700, false}};

	for (unsigned c = 0; c < sizeof cases / sizeof cases[0]; c++) {
		struct findings all = {.n = 0};
		struct sick s;
		bool is_late = false;

		healthy(&s);
		s.lane.starved_permil = cases[c].starved_permil;
		s.rank[2].waited_ms += cases[c].waited_ms;
		look(&all, &s, "r0");
		for (unsigned i = 0; i < all.n; i++)
			is_late |= strcmp(all.at[i].id, "rank-late") == 0;
		ck_assert(is_late == cases[c].is_late);
	}
}
END_TEST

START_TEST(ranks_that_have_just_come)
{
	struct findings all = {.n = 0};
	struct sick s;

	healthy(&s);
	gathering(&s);
	s.job.age_ms = GATHERING_MS - 1;
	look(&all, &s, "r0");
	ck_assert_uint_eq(all.n, 0);
}
END_TEST

START_TEST(no_answer)
{
	struct findings all = {.n = 0};

	doctor_no_answer(&all, "r0", "r0 (b:7601): connection refused");
	ck_assert_uint_eq(all.n, 1);
	ck_assert_str_eq(all.at[0].what, "r0 does not answer");
	ck_assert_str_eq(all.at[0].evidence, "r0 (b:7601): connection refused");
	ck_assert(all.at[0].is_fact);
}
END_TEST

/* More findings than there is room for: the worst stay. */
START_TEST(bounded)
{
	struct findings all = {.n = 0};
	struct sick s;

	healthy(&s);
	memory(&s);
	for (unsigned i = 0; i < FINDINGS_MAX; i++)
		look(&all, &s, "r0");
	late(&s);
	s.rank[2].label = (char *)"\xff\x1b[2J"; /* from the network */
	look(&all, &s, "r0");
	ck_assert_uint_eq(all.n, FINDINGS_MAX);
	ck_assert_str_eq(all.at[0].id, "rank-late");
	ck_assert_ptr_null(strchr(all.at[0].what, '\x1b'));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("doctor");
	TCase *t = tcase_create("doctor");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, each_is_found, 0, sizeof rows / sizeof rows[0]);
	tcase_add_test(t, nothing_is_found);
	tcase_add_test(t, what_to_do_about_a_lost_reducer);
	tcase_add_test(t, the_worst_comes_first);
	tcase_add_test(t, the_cause_comes_first);
	tcase_add_test(t, reducers_are_compared);
	tcase_add_test(t, one_look);
	tcase_add_test(t, a_starved_lane_accuses_no_rank);
	tcase_add_test(t, ranks_that_have_just_come);
	tcase_add_test(t, no_answer);
	tcase_add_test(t, bounded);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
