/* SPDX-License-Identifier: Apache-2.0 */
/* The verdicts of reductionctl doctor over simulated time: a job with two reducers and
 * four ranks that is old already when something becomes slow, and later is repaired. */
#include "deploy/ctl/doctor.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 4, REDUCERS = 2, WINDOWS = 5, WINDOW_MS = 2000, SOON_MS = 20000 };

/* What one reducer has counted. */
struct counters {
	uint64_t waited_ms[RANKS], retransmits[RANKS], bytes_out[RANKS];
	uint64_t chunks, waiting_us, sending_us;
};

/* How the job runs now. */
struct pace_now {
	unsigned late[RANKS];        /* thousandths in which the others wait for it */
	unsigned lost_permil;        /* of the segments to rank 2 */
	unsigned chunk_us[REDUCERS]; /* time of a chunk */
	unsigned starved[REDUCERS];  /* thousandths */
	unsigned more[REDUCERS];     /* thousandths in which others wait for rank 0 there, beside late[0] */
};

/* A status with what it points to. */
struct view {
	Reduction__V1__StatusReply m;
	Reduction__V1__LaneStatus lane, *lanes[1];
	Reduction__V1__JobStatus job, *jobs[1];
	Reduction__V1__Traffic traffic, rank_traffic[RANKS];
	Reduction__V1__RankStatus rank[RANKS], *ranks[RANKS];
	Reduction__V1__Histogram waiting, sending;
	uint64_t n[1];
};

struct world {
	uint64_t now_ms;
	struct pace_now pace;
	struct counters reducer[REDUCERS];
	struct view views[2][REDUCERS];
	unsigned newest; /* of views */
	struct doctor_watch watch;
	struct findings found;
};

static const struct pace_now well = {.late = {60, 20, 20, 20}, .chunk_us = {2500, 2500}};

/* Lets time pass: 1000 chunks and 20,000 segments to each rank in a second. */
static void pass(struct world *w, uint64_t ms)
{
	w->now_ms += ms;
	for (unsigned i = 0; i < REDUCERS; i++) {
		struct counters *c = &w->reducer[i];

		for (unsigned r = 0; r < RANKS; r++) {
			c->waited_ms[r] += ms * (w->pace.late[r] + (r ? 0 : w->pace.more[i])) / 1000;
			c->bytes_out[r] += ms * 20 * 1448;
			c->retransmits[r] += r == 2 ? ms * 20 * w->pace.lost_permil / 1000 : 0;
		}
		c->chunks += ms;
		c->waiting_us += ms * w->pace.chunk_us[i] * 4 / 5;
		c->sending_us += ms * w->pace.chunk_us[i] / 5;
	}
}

static void show(const struct world *w, const struct counters *c, unsigned starved, struct view *v)
{
	*v = (struct view){.m = REDUCTION__V1__STATUS_REPLY__INIT,
			   .lane = REDUCTION__V1__LANE_STATUS__INIT,
			   .job = REDUCTION__V1__JOB_STATUS__INIT,
			   .traffic = REDUCTION__V1__TRAFFIC__INIT,
			   .waiting = REDUCTION__V1__HISTOGRAM__INIT,
			   .sending = REDUCTION__V1__HISTOGRAM__INIT};
	v->lanes[0] = &v->lane;
	v->jobs[0] = &v->job;
	v->m.up_ms = w->now_ms;
	v->m.lanes = v->lanes;
	v->m.jobs = v->jobs;
	v->m.n_lanes = v->m.n_jobs = 1;
	v->lane.starved_permil = starved;
	v->job.name = (char *)"resnet";
	v->job.state = REDUCTION__V1__JOB_STATUS__STATE__RUNNING;
	v->job.age_ms = w->now_ms;
	v->job.traffic = &v->traffic;
	v->job.ranks = v->ranks;
	v->job.world_size = v->job.n_ranks = RANKS;
	v->n[0] = c->chunks;
	v->waiting.n_counts = v->sending.n_counts = 1;
	v->waiting.counts = v->sending.counts = v->n;
	v->waiting.sum_us = c->waiting_us;
	v->sending.sum_us = c->sending_us;
	v->job.waiting = &v->waiting;
	v->job.sending = &v->sending;
	for (unsigned r = 0; r < RANKS; r++) {
		reduction__v1__traffic__init(&v->rank_traffic[r]);
		reduction__v1__rank_status__init(&v->rank[r]);
		v->ranks[r] = &v->rank[r];
		v->rank[r].rank = r;
		v->rank[r].label = (char *)"pid 1 on b";
		v->rank[r].traffic = &v->rank_traffic[r];
		v->rank_traffic[r].bytes_out = c->bytes_out[r];
		v->rank[r].waited_ms = c->waited_ms[r];
		v->rank[r].retransmits = c->retransmits[r];
	}
}

static void look(struct world *w)
{
	w->newest = !w->newest;
	for (unsigned i = 0; i < REDUCERS; i++)
		show(w, &w->reducer[i], w->pace.starved[i], &w->views[w->newest][i]);
}

/* Judges the window between the last two looks. */
static void judge(struct world *w)
{
	static const char *const names[REDUCERS] = {"r0", "r1"};

	w->found.n = w->found.paces_n = 0;
	for (unsigned i = 0; i < REDUCERS; i++)
		doctor_look(&w->found, &w->views[!w->newest][i].m, &w->views[w->newest][i].m, names[i]);
	doctor_compare(&w->found);
	doctor_watch_add(&w->watch, &w->found);
}

/* Runs doctor once. `change`, after at_ms of it, sets the pace; NULL: nothing changes. */
static void doctor(struct world *w, uint64_t at_ms, const struct pace_now *change)
{
	memset(&w->watch, 0, sizeof w->watch);
	look(w);
	for (unsigned i = 0; i < WINDOWS; i++) {
		uint64_t before = WINDOW_MS;

		if (change && at_ms >= i * WINDOW_MS && at_ms < (i + 1) * WINDOW_MS) {
			before = at_ms - i * WINDOW_MS;
			pass(w, before);
			w->pace = *change;
			before = WINDOW_MS - before;
		}
		pass(w, before);
		look(w);
		judge(w);
	}
	doctor_watch_end(&w->watch, &w->found);
}

static struct world *new_world(uint64_t age_ms)
{
	struct world *w = calloc(1, sizeof *w);

	ck_assert_ptr_nonnull(w);
	w->pace = well;
	pass(w, age_ms);
	return w;
}

static const struct {
	struct pace_now pace;
	const char *id, *what;
} faults[] = {
    {{.late = {20, 700, 20, 20}, .chunk_us = {3000, 3000}}, "rank-late", "rank 1 (pid 1 on b) is late"},
    {{.late = {60, 20, 20, 20}, .chunk_us = {2500, 9000}}, "reducer-slow", "reducer r1 is slower than the others"},
    {{.late = {60, 20, 20, 20}, .chunk_us = {2500, 2500}, .lost_permil = 10},
     "retransmissions",
     "the network to rank 2 (pid 1 on b) loses packets"},
    {{.late = {60, 20, 20, 20}, .chunk_us = {2500, 2500}, .starved = {500}},
     "lane-starved",
     "lane 0 of the reducer waits for a core that others use"},
};

static const uint64_t ages_ms[] = {10000, 600000, 86400000, UINT64_C(30) * 86400000};

/* Whenever in a run of doctor a fault begins, the first or the second run names it and
 * nothing else, which is within 20 s; and after the repair it is named at most once
 * more. */
START_TEST(named_and_forgotten)
{
	for (unsigned a = 0; a < sizeof ages_ms / sizeof ages_ms[0]; a++)
		for (unsigned at = 0; at < WINDOWS * WINDOW_MS; at += 500) {
			struct world *w = new_world(ages_ms[a]);

			doctor(w, 0, NULL);
			ck_assert_uint_eq(w->found.n, 0);
			doctor(w, at, &faults[_i].pace);
			if (!w->found.n)
				doctor(w, 0, NULL);
			ck_assert_uint_eq(w->found.n, 1);
			ck_assert_str_eq(w->found.at[0].id, faults[_i].id);
			ck_assert_str_eq(w->found.at[0].what, faults[_i].what);
			ck_assert_uint_ge(w->found.at[0].held, WINDOWS - 1);
			doctor(w, at, &well);
			if (w->found.n)
				doctor(w, 0, NULL);
			ck_assert_uint_eq(w->found.n, 0);
			free(w);
		}
}
END_TEST

static unsigned next_random(uint64_t *state, unsigned below)
{
	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (unsigned)(*state >> 33) % below;
}

/* 200 windows of a healthy job on a busy machine: in every second one some rank is late,
 * and some reducer slow. The lane of one reducer waits for a core all the time, and there
 * the others always wait for rank 0. Many windows look bad, and no verdict comes. */
START_TEST(noise)
{
	struct world *w = new_world(86400000);
	uint64_t state = 1;
	unsigned bad = 0;

	for (unsigned run = 0; run < 200 / WINDOWS; run++) {
		memset(&w->watch, 0, sizeof w->watch);
		look(w);
		for (unsigned i = 0; i < WINDOWS; i++) {
			w->pace = well;
			for (unsigned r = 0; r < RANKS; r++)
				w->pace.late[r] = next_random(&state, 60);
			if (i % 2)
				w->pace.late[next_random(&state, RANKS)] += 200 + next_random(&state, 400);
			w->pace.starved[1] = 180 + next_random(&state, 19);
			w->pace.more[1] = 150 + next_random(&state, 60);
			if (next_random(&state, 2))
				w->pace.chunk_us[next_random(&state, REDUCERS)] += next_random(&state, 3000);
			pass(w, WINDOW_MS);
			look(w);
			judge(w);
			bad += w->found.n != 0;
		}
		doctor_watch_end(&w->watch, &w->found);
		ck_assert_msg(w->found.n == 0, "%s: %s", w->found.at[0].what, w->found.at[0].evidence);
	}
	ck_assert_uint_ge(bad, 60);
	free(w);
}
END_TEST

static void put(struct findings *all, const char *id, const char *process, unsigned score, bool is_fact)
{
	struct finding f = {.id = id, .score = score, .is_fact = is_fact, .action = "", .rank = 3};

	strcpy(f.job, "resnet");
	strcpy(f.what, strcmp(id, "rank-missing") ? "rank 2 is late" : "rank 2 has not sent its part");
	snprintf(f.process, sizeof f.process, "%s", process);
	findings_put(all, &f);
}

/* Which windows a finding needs, and how many findings remain. */
START_TEST(windows)
{
	static const struct {
		const char *id;
		bool is_fact;
		const char *held; /* one character for each window */
		unsigned found;
	} cases[] = {
	    {"rank-late", false, "11111", 1}, {"rank-late", false, "11110", 1}, {"rank-late", false, "01111", 1},
	    {"rank-late", false, "11011", 1}, {"rank-late", false, "11100", 0}, {"rank-late", false, "00001", 0},
	    {"memory", true, "00001", 1},     {"memory", true, "11110", 0},     {"memory", true, "1", 1},
	};

	for (unsigned c = 0; c < sizeof cases / sizeof cases[0]; c++) {
		struct doctor_watch *w = calloc(1, sizeof *w);
		struct findings all;

		ck_assert_ptr_nonnull(w);
		for (const char *at = cases[c].held; *at; at++) {
			all.n = 0;
			if (*at == '1')
				put(&all, cases[c].id, "r0", 300, cases[c].is_fact);
			doctor_watch_add(w, &all);
		}
		doctor_watch_end(w, &all);
		ck_assert_uint_eq(all.n, cases[c].found);
		free(w);
	}
}
END_TEST

/* Two reducers that say the same of a rank are one finding, the worse one; a rank that
 * has not come is not late as well. */
START_TEST(said_once)
{
	struct doctor_watch *w = calloc(1, sizeof *w);
	struct findings all;

	ck_assert_ptr_nonnull(w);
	for (unsigned i = 0; i < WINDOWS; i++) {
		all.n = 0;
		put(&all, "rank-late", "r0", 300, false);
		put(&all, "rank-late", "r1", 700, false);
		doctor_watch_add(w, &all);
	}
	doctor_watch_end(w, &all);
	ck_assert_uint_eq(all.n, 1);
	ck_assert_str_eq(all.at[0].process, "r1");
	memset(w, 0, sizeof *w);
	for (unsigned i = 0; i < WINDOWS; i++) {
		all.n = 0;
		put(&all, "rank-late", "r0", 900, false);
		put(&all, "rank-missing", "r0", 1000, false);
		doctor_watch_add(w, &all);
	}
	doctor_watch_end(w, &all);
	ck_assert_uint_eq(all.n, 1);
	ck_assert_str_eq(all.at[0].id, "rank-missing");
	free(w);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("doctor_watch");
	TCase *t = tcase_create("doctor_watch");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, named_and_forgotten, 0, sizeof faults / sizeof faults[0]);
	tcase_add_test(t, noise);
	tcase_add_test(t, windows);
	tcase_add_test(t, said_once);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
