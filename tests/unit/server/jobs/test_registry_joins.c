/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that want a place which another one has. */
#include "tests/unit/fake_registry.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

static const char taken[] = "rank 1 of job train is already taken by process 1 on b, and process 1 on c wants it too";

static struct control_hello contender(unsigned lane)
{
	struct control_hello h = fr_hello(1, lane);

	strcpy(h.label, "process 1 on c");
	h.incarnation = 5;
	return h;
}

/* A rank answers the question of the last REGISTRY_ASK, or one that was `before` ones
 * earlier. */
static void answer(struct fr_world *w, uint64_t job, unsigned rank, unsigned before)
{
	registry_lane_event(
	    w->r,
	    &(struct lane_event){.type = LANE_ANSWERED, .job = job, .rank = rank, .question = w->question - before});
}

/* _i: while the job gathers, while it runs, while it has come back to this reducer. */
START_TEST(a_place_is_refused_for_good_if_its_rank_lives)
{
	struct fr_world w;
	struct control_hello h = contender(0), other = contender(1);
	uint64_t id = 0;

	fr_open(&w, 1, 8, UINT64_MAX);
	for (unsigned i = 0; i < (_i ? 4 : 3); i++) {
		struct control_hello own = fr_hello(1 - i / 2, i % 2);

		own.retain = own.rejoin = _i == 2;
		id = fr_admit(&w, &own);
	}
	h.retain = other.retain = _i == 2;
	fr_refused(&w, &h, RS_EREFUSED, true, taken);
	ck_assert_uint_eq(w.n[REGISTRY_ASK], 1);
	ck_assert_uint_eq(w.last.job.id, id);
	ck_assert_uint_eq(w.last.rank, 1);
	ck_assert_uint_eq(w.last.lane, 0);
	ck_assert_uint_eq(w.last.thread, id % 3);
	/* it is asked once for the process */
	fr_refused(&w, &other, RS_EREFUSED, true, taken);
	fr_refused(&w, &h, RS_EREFUSED, true, taken);
	ck_assert_uint_eq(w.n[REGISTRY_ASK], 1);
	answer(&w, id, 0, 0);
	answer(&w, id + 1, 1, 0);
	answer(&w, id, 1, 1);
	fr_refused(&w, &h, RS_EREFUSED, true, taken);
	answer(&w, id, 1, 0);
	fr_refused(&w, &h, RS_EREFUSED, false, taken);
	fr_refused(&w, &other, RS_EREFUSED, false, taken);
	ck_assert_uint_eq(w.n[REGISTRY_ABORT], 0);
	/* for the next process the rank must show again that it lives */
	h.incarnation = 6;
	fr_refused(&w, &h, RS_EREFUSED, true, taken);
	ck_assert_uint_eq(w.n[REGISTRY_ASK], 2);
	/* its answer to the first question may have been on its way when this process
	 * came */
	answer(&w, id, 1, 1);
	fr_refused(&w, &h, RS_EREFUSED, true, taken);
	/* an answer to a later question is also one to this */
	other.incarnation = 7;
	fr_refused(&w, &other, RS_EREFUSED, true, taken);
	answer(&w, id, 1, 0);
	fr_refused(&w, &h, RS_EREFUSED, false, taken);
	fr_refused(&w, &other, RS_EREFUSED, false, taken);
	fr_close(&w);
}
END_TEST

/* The new process of a rank comes before the end of the old one is known here. */
START_TEST(a_process_replaces_one_that_has_died)
{
	struct fr_world w;
	struct control_hello h = contender(0);
	uint64_t id;

	fr_open(&w, 1, 8, UINT64_MAX);
	id = fr_admit_all(&w);
	fr_refused(&w, &h, RS_EREFUSED, true, taken);
	registry_failed(w.r, id, &(struct rs_err){.code = RS_EPEER, .msg = "rank 1 was lost: reset"}, NULL);
	registry_session_closed(w.r, id, 1, 0, false);
	registry_session_closed(w.r, id, 1, 1, false);
	fr_refused(&w, &h, RS_EREFUSED, true, "has ended (rank 1 was lost: reset)");
	registry_session_closed(w.r, id, 0, 0, false);
	registry_session_closed(w.r, id, 0, 1, false);
	ck_assert_uint_ne(fr_admit(&w, &h), id);
	fr_close(&w);
}
END_TEST

/* What the connections of a rank announce, in the order of (rank, lane), and what the job
 * uses then. */
static const struct {
	uint64_t announced[4], uses;
} features[] = {
    {{15, 15, 15, 15}, FR_FEATURES},
    {{1, 1, 1, 1}, 1},
    {{3, 3, 9, 9}, 1},
    {{11, 2, 11, 11}, 2}, /* one rank's connections differ */
    {{0, 0, 15, 15}, 0},  /* a rank of release 0.1 */
};

START_TEST(a_job_uses_what_all_ranks_and_the_reducer_have)
{
	struct fr_world w;

	fr_open(&w, 1, 8, UINT64_MAX);
	for (unsigned i = 0; i < 4; i++) {
		struct control_hello h = fr_hello(i / 2, i % 2);

		h.incarnation = 70 + h.rank;
		h.features = features[_i].announced[i];
		fr_admit(&w, &h);
	}
	ck_assert_uint_eq(w.n[REGISTRY_START], 1);
	ck_assert_uint_eq(w.last.begin.agreed.features, features[_i].uses);
	ck_assert_uint_eq(w.last.begin.agreed.start, 70); /* rank 0's */
	fr_close(&w);
}
END_TEST

/* The evidence of rank 0, and that of rank 1; what the sentence says, NULL: they are one
 * training. */
static const struct {
	const char *first, *second, *says;
} evidence[] = {
    {"port=1 space=a", "port=1 space=a", NULL},
    {"port=1", "space=a", NULL},
    {"", "port=1", NULL},
    {"port=1", "port=2",
     "two trainings use the job name train and one run: port is 2 to rank 1 (process 1 on c), and 1 to rank 0 "},
    {"port=1 space=a", "space=b", "space is b to rank 1 (process 1 on c), and a to rank 0 "},
};

/* _i % 5: the row. _i / 5: while the job gathers, while it runs. */
START_TEST(ranks_with_different_evidence_never_meet)
{
	const char *says = evidence[_i % 5].says;
	struct control_hello h = contender(1);
	struct fr_world w;
	uint64_t id = 0;

	fr_open(&w, 9, 8, UINT64_MAX);
	for (unsigned i = 0; i < (_i / 5 ? 4 : 2); i++) {
		struct control_hello own = fr_hello(i / 2, i % 2);

		strcpy(own.evidence, evidence[_i % 5].first);
		id = fr_admit(&w, &own);
	}
	strcpy(h.evidence, evidence[_i % 5].second);
	if (says) {
		fr_refused(&w, &h, RS_EMISMATCH, true, says);
		answer(&w, id, 0, 0);
		fr_refused(&w, &h, RS_EMISMATCH, false, says);
		ck_assert_uint_eq(w.n[REGISTRY_ABORT], 0);
		/* a restart with the same run has another launcher; when it comes, a rank
		 * of a job that runs has ended */
		h.generation++;
		for (unsigned lane = 0; lane < 2 && _i / 5; lane++)
			registry_session_closed(w.r, id, 1, lane, true);
		fr_admit(&w, &h);
		ck_assert_uint_eq(w.n[REGISTRY_ABORT], 1);
	} else if (!(_i / 5)) {
		ck_assert_uint_eq(fr_admit(&w, &h), id);
	}
	fr_close(&w);
}
END_TEST

/* A gathering whose evidence is that of another training yields to a job that runs and
 * returns. */
START_TEST(a_gathering_with_other_evidence_yields)
{
	struct fr_world w;
	struct control_hello own = fr_hello(0, 0), h = contender(1);

	fr_open(&w, 9, 8, UINT64_MAX);
	own.retain = h.retain = h.rejoin = true;
	strcpy(own.evidence, "port=1");
	strcpy(h.evidence, "port=2");
	fr_admit(&w, &own);
	fr_refused(&w, &h, RS_EMISMATCH, true, "port is 2 to rank 1");
	ck_assert_uint_eq(w.n[REGISTRY_ABORT], 1);
	fr_close(&w);
}
END_TEST

/* The runs of the two jobs in which rank 0 and another rank wait, the other rank, and
 * whether the reducer says so. */
static const struct {
	const char *first, *second;
	unsigned rank;
	bool says;
} spellings[] = {
    {"master:node0:29500", "master:node0.example.com:29500", 1, true},
    {"master:node0:29500/team", "master:10.0.0.1:29500/team", 1, true},
    {"torchrun:9@node0:29500", "torchrun:9@::1:29500", 1, true},
    {"master:node0:29500", "master:node1:29501", 1, false},
    {"torchrun:9@node0:29500", "torchrun:10@node1:29500", 1, false},
    {"torchrun:9@node0:29500", "master:node1:29500", 1, false},
    {"slurm:7", "slurm:8", 1, false},
    {"master:node0:29500", "master:node1:29500", 0, false}, /* two trainings that start */
};

START_TEST(two_spellings_of_the_master_are_told)
{
	struct control_hello a = fr_hello(0, 0), b = fr_hello(spellings[_i].rank, 0);
	struct control_waiting got;
	struct fr_world w;
	struct rs_err e;
	char want[600];

	fr_open(&w, 2, 8, UINT64_MAX);
	strcpy(a.job, "first");
	strcpy(b.job, "second");
	strcpy(a.run, spellings[_i].first);
	strcpy(b.run, spellings[_i].second);
	fr_admit(&w, &a);
	fr_admit(&w, &b);
	registry_tick(w.r);
	ck_assert_str_eq(w.name, "first"); /* the oldest job is the last in the list */
	ck_assert_int_eq(control_unpack_waiting(w.frame + FRAME_HEADER, w.last.frame_len - FRAME_HEADER, &got, &e), 0);
	snprintf(want, sizeof want,
		 "rank 1 (%s) waits in job second with run %s, and here the run is %s. If it is one training, write "
		 "MASTER_ADDR in one way on all nodes, or set REDUCTION_RUN to the same text on all ranks",
		 b.label, b.run, a.run);
	ck_assert_str_eq(got.refused, spellings[_i].says ? want : "");
	fr_close(&w);
}
END_TEST

/* Many processes at once: one that is forgotten is asked for again. */
START_TEST(a_forgotten_process_is_asked_for_again)
{
	struct fr_world w;
	struct control_hello h = contender(0);
	uint64_t id;

	fr_open(&w, 1, 8, UINT64_MAX);
	id = fr_admit_all(&w);
	for (unsigned i = 0; i < 100; i++) {
		h.incarnation = 5 + i;
		fr_refused(&w, &h, RS_EREFUSED, true, taken);
	}
	ck_assert_uint_eq(w.n[REGISTRY_ASK], 100);
	h.incarnation = 5;
	fr_refused(&w, &h, RS_EREFUSED, true, taken);
	ck_assert_uint_eq(w.n[REGISTRY_ASK], 101);
	answer(&w, id, 1, 0);
	fr_refused(&w, &h, RS_EREFUSED, false, taken);
	fr_close(&w);
}
END_TEST

/* _i: the rank that says it. The job goes on, and need not hear of it. */
START_TEST(another_world_size_is_refused_while_the_job_runs)
{
	static const char *const says[] = {"rank 0 says the world size of job train is 3, rank 0 says 2",
					   "rank 1 says the world size of job train is 3, rank 0 says 2",
					   "rank 2 says the world size of job train is 3, rank 0 says 2"};
	struct fr_world w;
	struct control_hello h = fr_hello(0, 0);
	uint64_t id;

	fr_open(&w, 1, 8, UINT64_MAX);
	id = fr_admit_all(&w);
	h.rank = _i;
	h.world_size = 3;
	h.incarnation = 5;
	fr_refused(&w, &h, RS_EMISMATCH, true, says[_i]);
	ck_assert_uint_eq(w.n[REGISTRY_ASK], 1);
	ck_assert_uint_eq(w.last.rank, _i % 2);
	answer(&w, id, _i % 2, 0);
	fr_refused(&w, &h, RS_EMISMATCH, false, says[_i]);
	ck_assert_uint_eq(w.n[REGISTRY_ABORT], 0);
	/* a rank has left: the job may soon be over */
	registry_session_closed(w.r, id, 1, 1, true);
	fr_refused(&w, &h, RS_EMISMATCH, true, says[_i]);
	ck_assert_uint_eq(w.n[REGISTRY_ABORT], 0);
	fr_close(&w);
}
END_TEST

/* A newer generation without a run ends a job that works only if it is its restart. */
START_TEST(a_stranger_of_a_newer_generation_does_not_end_a_job)
{
	static const char says[] = "generation 4 of job train runs with 2 ranks; rank 1 of 2 came with generation 5";
	struct control_hello h = contender(0);
	struct fr_world w;
	uint64_t id;

	fr_open(&w, 2, 8, UINT64_MAX);
	id = fr_admit_all(&w);
	h.generation++;
	fr_refused(&w, &h, RS_EREFUSED, true, says);
	answer(&w, id, 1, 0);
	fr_refused(&w, &h, RS_EREFUSED, true, says); /* its rank may be about to restart */
	ck_assert_uint_eq(w.n[REGISTRY_ABORT], 0);
	switch (_i) {
	case 0: /* the process of the rank itself */
		strcpy(h.label, fr_hello(1, 0).label);
		break;
	case 1: /* a rank has left, or was lost */
		registry_session_closed(w.r, id, 0, 0, true);
		registry_session_closed(w.r, id, 0, 1, true);
		break;
	}
	if (_i == 2) { /* a run, which is another one than that of the job */
		strcpy(h.run, "slurm:1");
		fr_refused(&w, &h, RS_EMISMATCH, true, "two trainings use the job name train");
		ck_assert_uint_eq(w.n[REGISTRY_ABORT], 0);
	} else {
		fr_admit(&w, &h);
		ck_assert_uint_eq(w.n[REGISTRY_ABORT], 1);
	}
	fr_close(&w);
}
END_TEST

/* Rank 0 decides which reducer a machine is, if several share a name. _i: whether the job
 * has come back to this reducer. */
START_TEST(rank_0_decides_which_reducer_it_is)
{
	struct control_hello led = fr_hello(0, 0), follows = fr_hello(1, 0), other = fr_hello(1, 0);
	struct control_refused no = {.code = 0};
	struct registry_admit admit;
	struct fr_world w;
	uint64_t id;

	fr_open(&w, 1, 8, UINT64_MAX);
	led.shared = follows.shared = other.shared = true;
	led.retain = follows.retain = other.retain = led.rejoin = follows.rejoin = other.rejoin = _i;
	strcpy(other.reducer, "r9");
	fr_refused(&w, &follows, RS_EREFUSED, true, "rank 0 of job train has not come to this address of a name");
	ck_assert_int_eq(registry_hello(w.r, &follows, &admit, &no), RS_EREFUSED);
	ck_assert(no.elsewhere);
	ck_assert_str_eq(no.reducer, "");
	id = fr_admit(&w, &led);
	/* also to a rank that knows no more of the job, such as that it has come back */
	other.rejoin = false;
	ck_assert_int_eq(registry_hello(w.r, &other, &admit, &no), RS_EREFUSED);
	ck_assert(no.retry && no.elsewhere);
	ck_assert_str_eq(no.reducer, led.reducer);
	fr_admit(&w, &follows);
	/* rank 0 itself, and a rank without a shared name: another configuration */
	strcpy(led.reducer, "r9");
	led.lane = 1;
	ck_assert_int_eq(registry_hello(w.r, &led, &admit, &no), RS_EREFUSED);
	ck_assert(no.retry && no.elsewhere);
	led.shared = false;
	ck_assert_int_eq(registry_hello(w.r, &led, &admit, &no), RS_EMISMATCH);
	ck_assert(!no.elsewhere && !no.reducer[0]);
	/* rank 0 has gone */
	registry_session_closed(w.r, id, 0, 0, false);
	follows.lane = 1;
	ck_assert_int_eq(registry_hello(w.r, &follows, &admit, &no), RS_EREFUSED);
	ck_assert(no.retry);
	registry_session_closed(w.r, id, 1, 0, false);
	fr_close(&w);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("registry_joins");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, ranks_with_different_evidence_never_meet, 0, 10);
	tcase_add_test(tc, a_gathering_with_other_evidence_yields);
	tcase_add_loop_test(tc, rank_0_decides_which_reducer_it_is, 0, 2);
	tcase_add_loop_test(tc, a_place_is_refused_for_good_if_its_rank_lives, 0, 3);
	tcase_add_loop_test(tc, a_job_uses_what_all_ranks_and_the_reducer_have, 0,
			    sizeof features / sizeof features[0]);
	tcase_add_loop_test(tc, two_spellings_of_the_master_are_told, 0, sizeof spellings / sizeof spellings[0]);
	tcase_add_test(tc, a_process_replaces_one_that_has_died);
	tcase_add_test(tc, a_forgotten_process_is_asked_for_again);
	tcase_add_loop_test(tc, another_world_size_is_refused_while_the_job_runs, 0, 3);
	tcase_add_loop_test(tc, a_stranger_of_a_newer_generation_does_not_end_a_job, 0, 3);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
