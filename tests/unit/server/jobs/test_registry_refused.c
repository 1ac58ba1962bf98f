/* SPDX-License-Identifier: Apache-2.0 */
/* HELLOs that are refused: with values out of range, or others than those of the ranks
 * that are there; of other trainings; beyond the limits of the reducer. */
#include "config/config.h"
#include "tests/unit/fake_registry.h"

#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum field {
	WORLD,
	RANK,
	LANE,
	LANES,
	CHUNK_BYTES,
	WINDOW_N,
	PRIORITIES_N,
	PROCESSES,
	DETECT,
	DECODED,
	DETERMINISTIC,
	CHECKSUM,
	DIGEST,
	INCARNATION
};

static void spoil(struct control_hello *h, enum field field, uint32_t v)
{
	uint32_t *const numbers[] = {&h->world_size, &h->rank,       &h->lane,      &h->lanes,     &h->chunk_bytes,
				     &h->window,     &h->priorities, &h->processes, &h->detect_ms, &h->decoded_bytes};

	if (field <= DECODED)
		*numbers[field] = v;
	else if (field == DETERMINISTIC)
		h->deterministic = v;
	else if (field == CHECKSUM)
		h->checksum = v;
	else if (field == DIGEST)
		h->config_digest = v;
	else
		h->incarnation = v;
}

static const struct {
	enum field field;
	uint32_t value;
	int code;
	const char *says;
} impossible[] = {
    {WORLD, 0, RS_EINVAL, "world size 0 is out of range 1 to 4096"},
    {WORLD, RS_WORLD_MAX + 1, RS_EINVAL, "world size 4097 is out of range"},
    {WORLD, 9, RS_EREFUSED, "job train has 9 workers, this reducer's server.max_workers allows 8"},
    {RANK, 2, RS_EINVAL, "rank 2 is out of range 0 to 1"},
    {RANK, UINT32_MAX, RS_EINVAL, "is out of range 0 to 1"},
    {LANES, 0, RS_EINVAL, "lane 0 of 0 is out of range (at most 64 lanes)"},
    {LANES, 65, RS_EINVAL, "lane 0 of 65 is out of range"},
    {LANE, 2, RS_EINVAL, "lane 2 of 2 is out of range"},
    {CHUNK_BYTES, 0, RS_EINVAL, "chunks of 0 bytes are not a multiple of 64 from 1024 to 4194304"},
    {CHUNK_BYTES, 960, RS_EINVAL, "chunks of 960 bytes"},
    {CHUNK_BYTES, 1025, RS_EINVAL, "chunks of 1025 bytes"},
    {CHUNK_BYTES, (4 << 20) + 64, RS_EINVAL, "chunks of 4194368 bytes"},
    {DECODED, 63, RS_EINVAL, "decoded chunks of 63 bytes are not a multiple of 64 up to 8192, eight chunks"},
    {DECODED, 8256, RS_EINVAL, "decoded chunks of 8256 bytes"},
    {DECODED, UINT32_MAX - 63, RS_EINVAL, "decoded chunks of 4294967232 bytes"},
    {WINDOW_N, 0, RS_EINVAL, "a window of 0 chunks is out of range 1 to 1024"},
    {WINDOW_N, 1025, RS_EINVAL, "a window of 1025 chunks"},
    {PRIORITIES_N, 0, RS_EINVAL, "0 priorities are out of range 1 to 4"},
    {PRIORITIES_N, 5, RS_EINVAL, "5 priorities are out of range"},
    {PROCESSES, 0, RS_EINVAL, "0 processes behind one worker are out of range"},
    {PROCESSES, UINT32_MAX, RS_EINVAL, "4294967295 processes behind one worker"},
    {DETECT, 0, RS_EINVAL, "a detection time of 0 ms is out of range"},
};

START_TEST(values_out_of_range_are_refused)
{
	struct fr_world w;
	struct control_hello h = fr_hello(0, 0);

	fr_open(&w, 1, 8, UINT64_MAX);
	spoil(&h, impossible[_i].field, impossible[_i].value);
	fr_refused(&w, &h, impossible[_i].code, false, impossible[_i].says);
	h = fr_hello(0, 0);
	h.job[0] = '\0';
	fr_refused(&w, &h, RS_EPROTO, false, "HELLO names no job");
	fr_close(&w);
}
END_TEST

static const struct {
	enum field field;
	uint32_t value;
	int code;
	const char *says;
} differences[] = {
    {WORLD, 3, RS_EMISMATCH, "rank 1 says the world size of job train is 3, rank 0 says 2"},
    {LANES, 3, RS_EMISMATCH, "lanes 3 and 2"},
    {CHUNK_BYTES, 2048, RS_EMISMATCH,
     "ranks 1 and 0 of job train are configured differently: chunk_bytes 2048 and 1024"},
    {WINDOW_N, 3, RS_EMISMATCH, "window 3 and 2"},
    {PRIORITIES_N, 2, RS_EMISMATCH, "priorities 2 and 3"},
    {DECODED, 4096, RS_EMISMATCH,
     "ranks 1 and 0 of job train are configured differently: one of them sends 8 bits for each element, or 4 "
     "(job.wire), the other does not"},
    {DETERMINISTIC, 1, RS_EMISMATCH, "job.deterministic true and false"},
    {CHECKSUM, 1, RS_EMISMATCH, "job.checksum true and false"},
    {DIGEST, 98, RS_EMISMATCH, "their reducers or shard maps are not the same"},
    {RANK, 0, RS_EREFUSED, "rank 0 of job train is already taken by process 0 on b"},
};

/* _i: while the job gathers; while it runs, when all refusals may be temporary. */
START_TEST(a_hello_that_disagrees_is_refused)
{
	for (unsigned i = 0; i < sizeof differences / sizeof differences[0]; i++) {
		struct fr_world w;
		struct control_hello first = fr_hello(0, 0), h = fr_hello(1, 0);

		fr_open(&w, 1, 8, UINT64_MAX);
		if (_i)
			fr_admit_all(&w);
		else
			fr_admit(&w, &first);
		spoil(&h, differences[i].field, differences[i].value);
		fr_refused(&w, &h, differences[i].code, _i || differences[i].field == RANK, differences[i].says);
		h = fr_hello(1, 1);
		strcpy(h.reducer, "r1");
		/* with another world size the job is over, unless it runs */
		if (differences[i].field == WORLD && !_i) {
			fr_close(&w);
			continue;
		}
		fr_refused(&w, &h, RS_EMISMATCH, _i, "rank 1 of job train calls this reducer r1, rank 0 calls it r0");
		/* its own earlier attempt, which it gave up, may end here later than
		 * there */
		fr_refused(&w, &first, RS_EREFUSED, true,
			   "lane 0 of rank 0 of job train is still attached from an earlier attempt");
		fr_close(&w);
	}
}
END_TEST

/* All ranks hear of it: those that wait, those that come while these leave, and those
 * that come a little later. */
START_TEST(ranks_with_other_world_sizes_end_the_job)
{
	static const char says[] = "rank 1 says the world size of job train is 3, rank 0 says 2";
	struct fr_world w;
	struct control_hello first = fr_hello(0, 0), h = fr_hello(1, 0);
	uint64_t id;

	fr_open(&w, 1, 8, UINT64_MAX);
	registry_set_time(w.r, 1000);
	id = fr_admit(&w, &first);
	h.world_size = 3;
	fr_refused(&w, &h, RS_EMISMATCH, false, says);
	ck_assert_uint_eq(w.n[REGISTRY_ABORT], 1);
	ck_assert_int_eq(w.last.why.code, RS_EMISMATCH);
	ck_assert_str_eq(w.last.why.msg, says);
	h.rank = 2;
	fr_refused(&w, &h, RS_EMISMATCH, false, says);
	registry_session_closed(w.r, id, 0, 0, true);
	registry_set_time(w.r, 3999);
	h = fr_hello(1, 0);
	fr_refused(&w, &h, RS_EMISMATCH, false, says);
	/* another generation and another run are other trainings */
	snprintf(h.run, sizeof h.run, "slurm:8.0");
	id = fr_admit(&w, &h);
	registry_session_closed(w.r, id, 1, 0, true);
	h = fr_hello(1, 0);
	h.generation++;
	id = fr_admit(&w, &h);
	registry_session_closed(w.r, id, 1, 0, true);
	/* later the same training may start again */
	registry_set_time(w.r, 4000);
	fr_admit_all(&w);
	fr_close(&w);
}
END_TEST

/* Two trainings of one name: the rank of the second is refused at once. _i: while the
 * first gathers, while it runs. */
START_TEST(a_rank_of_another_run_is_refused)
{
	struct fr_world w;
	struct control_hello h;
	uint64_t id = 0;

	fr_open(&w, 2, 8, UINT64_MAX);
	for (unsigned at = 0; at < (_i ? 4 : 1); at++) {
		h = fr_hello(at / 2, at % 2);
		strcpy(h.run, "slurm:1");
		id = fr_admit(&w, &h);
	}
	registry_admitted(w.r, id);
	h = fr_hello(1, 0);
	strcpy(h.label, "pid 7 on c");
	h.incarnation = 9;
	strcpy(h.run, "slurm:2");
	/* the rank that is there may have died; it is asked */
	fr_refused(&w, &h, RS_EMISMATCH, true, "two trainings use the job name train");
	ck_assert_uint_eq(w.n[REGISTRY_ASK], 1);
	registry_lane_event(
	    w.r, &(struct lane_event){.type = LANE_ANSWERED, .job = id, .rank = w.last.rank, .question = w.question});
	fr_refused(
	    &w, &h, RS_EMISMATCH, false,
	    "two trainings use the job name train: rank 1 (pid 7 on c) has run slurm:2, rank 0 (process 0 on b) has "
	    "run slurm:1. Give each");
	h.run[0] = '\0';
	fr_refused(&w, &h, RS_EMISMATCH, false,
		   "rank 1 (pid 7 on c) has no run, rank 0 (process 0 on b) has run slurm:1");
	h.generation--;
	fr_refused(&w, &h, RS_EMISMATCH, false, "two trainings use the job name train");
	/* a newer generation of another run does not end this one; but a restart may have
	 * changed the run */
	h.generation += 2;
	fr_refused(&w, &h, RS_EMISMATCH, false, "two trainings use the job name train");
	strcpy(h.run, "slurm:2");
	fr_refused(&w, &h, RS_EMISMATCH, true, "two trainings use the job name train");
	ck_assert_uint_eq(w.n[REGISTRY_ABORT], 0);
	registry_failed(w.r, id, &(struct rs_err){.code = RS_EPEER, .msg = "rank 0 was lost: reset"}, NULL);
	fr_admit(&w, &h);
	fr_close(&w);
}
END_TEST

/* A job that runs on other reducers returns to this one, where another training of its
 * name gathers. */
START_TEST(a_gathering_yields_to_a_job_that_returns)
{
	struct fr_world w;
	struct control_hello h = fr_hello(0, 0);
	uint64_t id;

	fr_open(&w, 2, 8, UINT64_MAX);
	h.retain = true;
	strcpy(h.run, "slurm:2");
	id = fr_admit(&w, &h);
	strcpy(h.run, "slurm:1");
	h.rejoin = true;
	h.incarnation = 9;
	fr_refused(&w, &h, RS_EMISMATCH, true, "two trainings use the job name train");
	ck_assert_uint_eq(w.n[REGISTRY_ABORT], 1);
	registry_session_closed(w.r, id, 0, 0, false);
	fr_admit(&w, &h);
	/* what runs does not yield, and neither does what returns */
	h = fr_hello(1, 0);
	h.retain = h.rejoin = true;
	strcpy(h.run, "slurm:3");
	fr_refused(&w, &h, RS_EMISMATCH, true, "two trainings use the job name train");
	ck_assert_uint_eq(w.n[REGISTRY_ABORT], 1);
	fr_close(&w);
}
END_TEST

START_TEST(a_name_with_other_characters_is_refused)
{
	static const char *const names[] = {"a b=c", "\xc3\xbc", "../x/", "a:b"};
	struct fr_world w;
	struct control_hello h = fr_hello(0, 0);

	fr_open(&w, 1, 8, UINT64_MAX);
	strcpy(h.job, names[_i]);
	fr_refused(&w, &h, RS_EINVAL, false, "is not a job name, expected letters, digits, '.', '_' and '-'");
	fr_close(&w);
}
END_TEST

START_TEST(limits_are_named)
{
	struct fr_world w;
	struct control_hello h = fr_hello(0, 0), other = fr_hello(0, 0);
	char said[160];
	uint64_t id, one;

	fr_open(&w, 1, 8, UINT64_C(1) << 20);
	strcpy(other.job, "other");
	id = fr_admit(&w, &h);
	one = w.last.job.memory;
	fr_refused(&w, &other, RS_EREFUSED, true, "this reducer runs 1 jobs, as many as its server.max_jobs allows");
	registry_set_limits(w.r, &(struct registry_limits){2, 8, 2 * one - 1});
	snprintf(said, sizeof said,
		 "job other needs %" PRIu64 " bytes of memory, %" PRIu64 " of this reducer's server.memory", one,
		 one - 1);
	fr_refused(&w, &other, RS_EREFUSED, true, said);
	registry_set_limits(w.r, &(struct registry_limits){2, 8, one - 1});
	snprintf(said, sizeof said,
		 "job other needs %" PRIu64 " bytes of memory, this reducer's server.memory is %" PRIu64, one, one - 1);
	fr_refused(&w, &other, RS_EREFUSED, false, said);
	registry_set_limits(w.r, &(struct registry_limits){2, 8, 2 * one});
	w.no_memory = true;
	fr_refused(&w, &other, RS_ENOMEM, true, "out of memory for job other");
	w.no_memory = false;
	fr_admit(&w, &other);
	registry_session_closed(w.r, id, 0, 0, false);
	ck_assert_uint_eq(w.allocated, 2 * FR_JOB_BYTES);
	fr_admit(&w, &h);
	fr_close(&w);
}
END_TEST

/* Accumulators grow with decoded_bytes, and the stash of other ranks does not. */
START_TEST(jobs_with_encodings_count_decoded_chunks)
{
	static const struct {
		uint32_t decoded;
		unsigned stashes, chunks; /* of a slot */
	} rows[] = {
	    {0, 0, 2},           {64, 0, 2}, {2 * FR_CHUNK, 0, 2}, {4 * FR_CHUNK, 0, 4}, {4 * FR_CHUNK, 4, 4 + 4 * 2},
	    {8 * FR_CHUNK, 0, 8}};
	struct control_hello h = fr_hello(0, 0);
	struct fr_world w;

	fr_open(&w, 1, RS_WORLD_MAX, UINT64_MAX);
	h.decoded_bytes = rows[_i].decoded;
	h.deterministic = rows[_i].stashes;
	h.world_size = rows[_i].stashes ? rows[_i].stashes + 1 : h.world_size;
	fr_admit(&w, &h);
	ck_assert_uint_eq(w.allocated, FR_JOB_BYTES * rows[_i].chunks);
	fr_close(&w);
}
END_TEST

START_TEST(deterministic_jobs_count_every_ranks_stash)
{
	struct fr_world w;
	struct control_hello h = fr_hello(0, 0);

	fr_open(&w, 1, RS_WORLD_MAX, UINT64_MAX);
	h.deterministic = true;
	h.world_size = 5;
	fr_admit(&w, &h);
	ck_assert_uint_eq(w.allocated, 2 * 5 * FR_JOB_BYTES);
	fr_close(&w);
	/* the largest request, more than 2^54 bytes of slots, is refused and does not
	 * overflow */
	fr_open(&w, 1, RS_WORLD_MAX, UINT64_C(1) << 40);
	h.world_size = RS_WORLD_MAX;
	h.chunk_bytes = RS_CHUNK_MAX;
	h.window = RS_WINDOW_MAX;
	h.priorities = RS_PRIORITIES_MAX;
	h.lanes = RS_LANES_MAX;
	fr_refused(&w, &h, RS_EREFUSED, false, "job train needs 180144");
	fr_close(&w);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("registry_refused");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, values_out_of_range_are_refused, 0, sizeof impossible / sizeof impossible[0]);
	tcase_add_loop_test(tc, a_hello_that_disagrees_is_refused, 0, 2);
	tcase_add_test(tc, ranks_with_other_world_sizes_end_the_job);
	tcase_add_loop_test(tc, a_rank_of_another_run_is_refused, 0, 2);
	tcase_add_test(tc, a_gathering_yields_to_a_job_that_returns);
	tcase_add_loop_test(tc, a_name_with_other_characters_is_refused, 0, 4);
	tcase_add_test(tc, limits_are_named);
	tcase_add_loop_test(tc, jobs_with_encodings_count_decoded_chunks, 0, 6);
	tcase_add_test(tc, deterministic_jobs_count_every_ranks_stash);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
