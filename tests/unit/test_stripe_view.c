/* SPDX-License-Identifier: Apache-2.0 */
/* A lane while reducers come and go, rule by rule as proto/README.md has them under "Failover". The simulator has all
 * of it together. */
#include "tests/unit/fake_worker.h"

#include <string.h>

enum { REDUCERS = 3 };

static void running(struct fw_world *fw, struct fw_options opt)
{
	opt.retain = true;
	fw_running(fw, &opt);
}

static struct control_view view_of(uint32_t a, uint32_t b, uint32_t c)
{
	return (struct control_view){.n = REDUCERS, .lives = {a, b, c}};
}

static void say(struct fw_world *fw, unsigned rank, struct control_view v)
{
	fw_say_view(fw, rank, &v);
	fw_feed_all(fw, SIZE_MAX);
}

/* The next frame of rank has this type, and the lives of that view. */
static struct control_view expect_view(struct fw_world *fw, unsigned rank, unsigned type, struct control_view want)
{
	struct control_view v = fw_expect_view(fw, rank, type);

	ck_assert_uint_eq(v.n, REDUCERS);
	ck_assert_mem_eq(v.lives, want.lives, sizeof v.lives);
	return v;
}

/* All ranks say the view and go on. */
static void agree(struct fw_world *fw, struct control_view v)
{
	for (unsigned r = 0; r < fw->params.world_size; r++)
		fw_say_view(fw, r, &v);
	fw_feed_all(fw, SIZE_MAX);
	for (unsigned r = 0; r < fw->params.world_size; r++) {
		struct frame f;
		const uint8_t *payload;

		do
			ck_assert(fw_take(fw, r, &f, &payload));
		while (f.type == FRAME_VIEW);
		ck_assert_uint_eq(f.type, FRAME_RESUME);
		fw_expect_nothing(fw, r);
	}
}

/* The stripe has ended: for this reducer only, if it is the loss of it that others are spared. */
static void expect_end(struct fw_world *fw, int code, const char *says)
{
	ck_assert_uint_eq(fw->failed, 1);
	ck_assert_int_eq(fw->why.code, code);
	ck_assert_msg(strstr(fw->why.msg, says) != NULL, "\"%s\" instead of \"%s\"", fw->why.msg, says);
}

/* "A reducer merges what its ranks say and sends VIEW to all that have not said as much." */
START_TEST(news_go_to_all_others)
{
	struct fw_world fw;

	running(&fw, (struct fw_options){.world = 3});
	say(&fw, 1, view_of(0, 1, 0));
	expect_view(&fw, 0, FRAME_VIEW, view_of(0, 1, 0));
	fw_expect_nothing(&fw, 1);
	expect_view(&fw, 2, FRAME_VIEW, view_of(0, 1, 0));
	/* nothing new: nobody is told */
	say(&fw, 0, view_of(0, 1, 0));
	fw_expect_nothing(&fw, 2);
	/* other news, without the first: rank 2 hears what it lacks, the others what it said */
	say(&fw, 2, view_of(0, 0, 1));
	for (unsigned r = 0; r < 3; r++) {
		expect_view(&fw, r, FRAME_VIEW, view_of(0, 1, 1));
		fw_expect_nothing(&fw, r);
	}
	fw_close(&fw);
}
END_TEST

START_TEST(old_news_are_answered_with_new_ones)
{
	struct fw_world fw;

	running(&fw, (struct fw_options){0});
	say(&fw, 0, view_of(3, 0, 0));
	expect_view(&fw, 1, FRAME_VIEW, view_of(3, 0, 0));
	say(&fw, 1, view_of(2, 0, 0));
	expect_view(&fw, 1, FRAME_VIEW, view_of(3, 0, 0));
	fw_expect_nothing(&fw, 0);
	fw_close(&fw);
}
END_TEST

/* What three ranks say of two priorities' starts, and where all go on. */
static const struct {
	uint64_t starts[3][2], want[2];
} starts[] = {
    {{{0, 0}, {0, 0}, {0, 0}}, {0, 0}},
    {{{5, 0}, {7, 0}, {6, 9}}, {7, 9}},
    {{{9, 9}, {1, 1}, {2, 2}}, {9, 9}},
    {{{1, 9}, {9, 1}, {5, 5}}, {9, 9}},
};

/* "When all ranks have said the same view on a lane, (it) answers RESUME with the largest start of all ranks." */
START_TEST(all_go_on_where_all_have_been)
{
	static const unsigned orders[3][3] = {{0, 1, 2}, {2, 0, 1}, {1, 2, 0}};
	struct control_view v = view_of(0, 0, 1);
	struct fw_world fw;

	running(&fw, (struct fw_options){.world = 3, .priorities = 2});
	for (unsigned i = 0; i < 3; i++) {
		unsigned r = orders[_i % 3][i];

		memcpy(v.start, starts[_i / 3].starts[r], sizeof starts[0].starts[0]);
		say(&fw, r, v);
		for (unsigned k = 0; i < 2 && k < 3; k++)
			if (k != r && i == 0)
				expect_view(&fw, k, FRAME_VIEW, v);
			else
				fw_expect_nothing(&fw, k);
	}
	for (unsigned r = 0; r < 3; r++) {
		v = expect_view(&fw, r, FRAME_RESUME, v);
		ck_assert_mem_eq(v.start, starts[_i / 3].want, sizeof starts[0].want);
		fw_expect_nothing(&fw, r);
	}
	fw_close(&fw);
}
END_TEST

/* Ranks that have said different views do not go on, however many have said one. */
START_TEST(no_rank_goes_on_before_all_agree)
{
	struct fw_world fw;

	running(&fw, (struct fw_options){0});
	say(&fw, 0, view_of(1, 0, 0));
	expect_view(&fw, 1, FRAME_VIEW, view_of(1, 0, 0));
	say(&fw, 1, view_of(0, 1, 0));
	for (unsigned r = 0; r < 2; r++)
		expect_view(&fw, r, FRAME_VIEW, view_of(1, 1, 0));
	say(&fw, 0, view_of(1, 1, 0));
	fw_expect_nothing(&fw, 0);
	fw_expect_nothing(&fw, 1);
	say(&fw, 1, view_of(1, 1, 0));
	expect_view(&fw, 0, FRAME_RESUME, view_of(1, 1, 0));
	expect_view(&fw, 1, FRAME_RESUME, view_of(1, 1, 0));
	fw_close(&fw);
}
END_TEST

/* A RESUME that waits behind other frames is for the view of its time. */
START_TEST(a_rank_that_has_learnt_more_is_not_resumed)
{
	struct control_view first = view_of(0, 1, 0), second = view_of(1, 1, 0);
	struct fw_world fw;

	running(&fw, (struct fw_options){0});
	fw.w[0].room = 0;
	say(&fw, 1, first);
	say(&fw, 0, first);
	expect_view(&fw, 1, FRAME_RESUME, first);
	say(&fw, 0, second);
	expect_view(&fw, 1, FRAME_VIEW, second);
	fw_grant(&fw, 0, SIZE_MAX);
	expect_view(&fw, 0, FRAME_VIEW, first);
	fw_expect_nothing(&fw, 0);

	say(&fw, 1, second);
	for (unsigned r = 0; r < 2; r++) {
		expect_view(&fw, r, FRAME_RESUME, second);
		fw_expect_nothing(&fw, r);
	}
	fw_close(&fw);
}
END_TEST

/* The same when another rank has learnt more. */
START_TEST(a_rank_that_is_to_learn_more_is_not_resumed)
{
	struct control_view first = view_of(0, 1, 0), second = view_of(1, 1, 0);
	struct fw_world fw;

	running(&fw, (struct fw_options){0});
	fw.w[0].room = 0;
	say(&fw, 1, first);
	say(&fw, 0, first);
	expect_view(&fw, 1, FRAME_RESUME, first);
	say(&fw, 1, second);
	fw_grant(&fw, 0, SIZE_MAX);
	expect_view(&fw, 0, FRAME_VIEW, first);
	expect_view(&fw, 0, FRAME_VIEW, second);
	fw_expect_nothing(&fw, 0);
	fw_close(&fw);
}
END_TEST

/* What a rank has said that it lacks it must not get; the others, which have not said so, may. */
START_TEST(a_result_goes_only_to_those_that_expect_it)
{
	struct fw_world fw;
	struct frame f;

	running(&fw, (struct fw_options){.world = 3});
	f = fw_data(&fw, RS_SUM, RS_FLOAT32, 0, 16, 0);
	for (unsigned r = 0; r < 2; r++)
		fw_contribute(&fw, r, f);
	fw_feed_all(&fw, SIZE_MAX);
	say(&fw, 1, view_of(0, 0, 1));
	fw_contribute(&fw, 2, f);
	fw_feed_all(&fw, SIZE_MAX);
	for (unsigned r = 0; r < 3; r += 2) {
		expect_view(&fw, r, FRAME_VIEW, view_of(0, 0, 1));
		fw_expect_result(&fw, r, f, 3);
	}
	fw_expect_nothing(&fw, 1);
	/* two have it now */
	agree(&fw, view_of(0, 0, 1));
	fw_contribute(&fw, 1, f);
	fw_have(&fw, 0, f);
	fw_have(&fw, 2, f);
	fw_feed_all(&fw, SIZE_MAX);
	fw_expect(&fw, 0, FRAME_FETCH);
	fw_close(&fw);
}
END_TEST

/* A result that waits to be sent when its rank says VIEW is not sent any more, but one that is partly out is completed,
 * and no rank goes on before that. _i: bytes that are out. */
START_TEST(a_result_that_is_partly_out_is_completed)
{
	struct fw_world fw;
	struct frame f;

	running(&fw, (struct fw_options){0});
	f = fw_data(&fw, RS_SUM, RS_FLOAT32, 0, 48, 0);
	fw.w[0].room = (size_t)_i;
	for (unsigned r = 0; r < 2; r++)
		fw_contribute_all(&fw, r, f);
	fw_feed_all(&fw, SIZE_MAX);
	for (f.chunk = 0; f.chunk < 3; f.chunk++)
		fw_expect_result(&fw, 1, f, 2);
	say(&fw, 0, view_of(0, 0, 1));
	say(&fw, 1, view_of(0, 0, 1));
	expect_view(&fw, 1, FRAME_VIEW, view_of(0, 0, 1));
	if (_i % (FRAME_HEADER + 64))
		fw_expect_nothing(&fw, 1);
	fw_grant(&fw, 0, SIZE_MAX);
	for (f.chunk = 0; f.chunk * (FRAME_HEADER + 64) < (unsigned)_i; f.chunk++)
		fw_expect_result(&fw, 0, f, 2);
	for (unsigned r = 0; r < 2; r++) {
		expect_view(&fw, r, FRAME_RESUME, view_of(0, 0, 1));
		fw_expect_nothing(&fw, r);
	}
	ck_assert_uint_eq(fw_slots_alive(&fw), 0);
	fw_close(&fw);
}
END_TEST

/* What was being reduced is forgotten: nothing of the view before is part of a sum. */
START_TEST(contributions_of_the_view_before_do_not_count)
{
	struct fw_world fw;
	struct frame f;

	running(&fw, (struct fw_options){.world = 3, .deterministic = _i & 1, .checksum = _i & 2});
	f = fw_data(&fw, RS_SUM, RS_FLOAT32, 5, 16, 0);
	for (f.seq = 5; f.seq < 9; f.seq++) { /* the window is full */
		fw_contribute(&fw, 0, f);
		fw_contribute(&fw, 2, f);
	}
	fw_feed_all(&fw, SIZE_MAX);
	ck_assert_uint_eq(fw_slots_alive(&fw), 4);
	agree(&fw, view_of(0, 1, 0));
	ck_assert_uint_eq(fw_slots_alive(&fw), 0);
	/* it is empty again, and an earlier operation may come, since its chunk was a dead reducer's */
	for (unsigned r = 0; r < 3; r++)
		for (f.seq = 4; f.seq < 8; f.seq++)
			fw_contribute(&fw, r, f);
	fw_feed_all(&fw, SIZE_MAX);
	ck_assert_uint_eq(fw.failed, 0);
	for (unsigned r = 0; r < 3; r++)
		for (f.seq = 4; f.seq < 8; f.seq++)
			fw_expect_result(&fw, r, f, 3);
	fw_close(&fw);
}
END_TEST

/* Between VIEW and RESUME no chunk comes. The reducer that is told otherwise is lost, the job is not. */
START_TEST(no_chunk_comes_between_view_and_resume)
{
	struct fw_world fw;
	struct frame f;

	running(&fw, (struct fw_options){0});
	say(&fw, 0, view_of(0, 1, 0));
	f = fw_data(&fw, RS_SUM, RS_FLOAT32, 0, 16, 0);
	if (_i)
		fw_have(&fw, 0, f);
	else
		fw_contribute(&fw, 0, f);
	fw_feed_all(&fw, SIZE_MAX);
	expect_end(&fw, RS_ECUT, "rank 0 (host-0) sent a chunk between VIEW and RESUME");
	fw_expect_abort(&fw, 0, RS_ECUT, "between VIEW", "");
	fw_close(&fw);
}
END_TEST

/* Who of three ranks has the result already (bit r), and what becomes of the chunk. _i: the bits, and variants. */
START_TEST(data_and_have_meet)
{
	unsigned have = (unsigned)_i % 8, from = UINT32_MAX;
	struct fw_options opt = {.world = 3, .deterministic = _i & 8, .checksum = _i & 16};
	struct fw_world fw;
	struct frame f;

	running(&fw, opt);
	agree(&fw, view_of(0, 1, 0));
	f = fw_data(&fw, RS_AVG, _i & 32 ? RS_FLOAT16 : RS_INT32, 6, 100, 1);
	for (unsigned i = 0; i < 3; i++) {
		unsigned r = (i + (unsigned)_i / 64) % 3;

		if (have >> r & 1)
			fw_have(&fw, r, f);
		else
			fw_contribute(&fw, r, f);
		fw_feed_all(&fw, 19);
	}
	if (have > 0 && have < 7) {
		for (unsigned r = 0; r < 3; r++) {
			struct frame asked;
			const uint8_t *payload;

			if (!fw_take(&fw, r, &asked, &payload))
				continue;
			ck_assert_uint_eq(asked.type, FRAME_FETCH);
			ck_assert(asked.seq == f.seq && asked.chunk == f.chunk && asked.payload_len == 0);
			ck_assert(have >> r & 1);
			ck_assert_uint_eq(from, UINT32_MAX); /* one is enough */
			from = r;
		}
		ck_assert_uint_ne(from, UINT32_MAX);
		fw_keep(&fw, from, f, 3);
		fw_feed_all(&fw, 7);
	}
	for (unsigned r = 0; r < 3; r++) {
		if (have >> r & 1)
			fw_expect_head(&fw, r, f);
		else
			fw_expect_result(&fw, r, f, 3);
		fw_expect_nothing(&fw, r);
		ck_assert_uint_eq(fw.w[r].session->outstanding, 0);
	}
	ck_assert_uint_eq(fw_slots_alive(&fw), 0);
	ck_assert_uint_eq(fw.failed, 0);
	fw_close(&fw);
}
END_TEST

/* The payload of KEPT is the result even where sums would give other bits: no two ranks end with different ones. */
START_TEST(a_kept_result_is_not_computed_again)
{
	static const float odd[16] = {1.5f, -3, 7.25f};
	struct fw_world fw;
	struct frame f, got;
	const uint8_t *payload;

	running(&fw, (struct fw_options){.deterministic = _i});
	agree(&fw, view_of(0, 1, 0));
	f = fw_data(&fw, RS_SUM, RS_FLOAT32, 0, 16, 0);
	fw_contribute(&fw, 0, f);
	fw_have(&fw, 1, f);
	fw_feed_all(&fw, SIZE_MAX);
	f = fw_expect(&fw, 1, FRAME_FETCH);
	f.type = FRAME_KEPT;
	f.payload_len = sizeof odd;
	fw_say(&fw, 1, f, odd);
	fw_feed_all(&fw, 30);
	ck_assert(fw_take(&fw, 0, &got, &payload));
	ck_assert_uint_eq(got.type, FRAME_RESULT);
	ck_assert_uint_eq(got.payload_len, sizeof odd);
	ck_assert_mem_eq(payload, odd, sizeof odd);
	fw_close(&fw);
}
END_TEST

/* "RESULTs still come in that order": chunks 0..4 of which some (bit i) are asked for of rank 1; the answers come as
 * asked, and no result is before one that is still missing. */
START_TEST(results_wait_in_line_behind_those_asked_for)
{
	unsigned asked = (unsigned)_i, out = 0;
	struct fw_world fw;
	struct frame f;

	running(&fw, (struct fw_options){.window = 5});
	agree(&fw, view_of(0, 1, 0));
	f = fw_data(&fw, RS_SUM, RS_INT32, 3, 5 * 16, 0);
	for (f.chunk = 0; f.chunk < 5; f.chunk++) {
		fw_contribute(&fw, 0, f);
		if (asked >> f.chunk & 1)
			fw_have(&fw, 1, f);
		else
			fw_contribute(&fw, 1, f);
	}
	fw_feed_all(&fw, SIZE_MAX);
	for (f.chunk = 0; f.chunk <= 5; f.chunk++) {
		if (f.chunk < 5 && !(asked >> f.chunk & 1))
			continue;
		/* those before the first that is missing are out */
		for (struct frame g = f; out < f.chunk; out++) {
			g.chunk = out;
			fw_expect_result(&fw, 0, g, 2);
		}
		fw_expect_nothing(&fw, 0);
		if (f.chunk == 5)
			break;
		fw_keep(&fw, 1, f, 2);
		fw_feed_all(&fw, SIZE_MAX);
	}
	ck_assert_uint_eq(fw_slots_alive(&fw), 0);
	ck_assert_uint_eq(fw.failed, 0);
	fw_close(&fw);
}
END_TEST

/* Answers that come in another order than they were asked for, from two ranks. */
START_TEST(answers_may_overtake_each_other)
{
	struct fw_world fw;
	struct frame a, b;

	running(&fw, (struct fw_options){.world = 3});
	agree(&fw, view_of(0, 1, 0));
	a = fw_data(&fw, RS_SUM, RS_INT32, 3, 32, 0);
	b = fw_data(&fw, RS_SUM, RS_INT32, 3, 32, 1);
	fw_contribute(&fw, 0, a);
	fw_contribute(&fw, 0, b);
	fw_have(&fw, 1, a);
	fw_contribute(&fw, 1, b);
	fw_contribute(&fw, 2, a);
	fw_have(&fw, 2, b);
	fw_feed_all(&fw, SIZE_MAX);
	fw_expect(&fw, 1, FRAME_FETCH);
	fw_expect(&fw, 2, FRAME_FETCH);
	fw_keep(&fw, 2, b, 3);
	fw_feed_all(&fw, SIZE_MAX);
	for (unsigned r = 0; r < 3; r++)
		fw_expect_nothing(&fw, r);
	fw_keep(&fw, 1, a, 3);
	fw_feed_all(&fw, SIZE_MAX);
	fw_expect_result(&fw, 0, a, 3);
	fw_expect_result(&fw, 0, b, 3);
	fw_expect_head(&fw, 1, a);
	fw_expect_result(&fw, 1, b, 3);
	fw_expect_result(&fw, 2, a, 3);
	fw_expect_head(&fw, 2, b);
	fw_close(&fw);
}
END_TEST

/* The line is one of each priority: what is urgent does not wait for what is asked of the others. */
START_TEST(priorities_do_not_wait_for_each_others_answers)
{
	struct fw_world fw;
	struct frame slow, urgent;

	running(&fw, (struct fw_options){.priorities = 2});
	agree(&fw, view_of(0, 1, 0));
	slow = fw_data(&fw, RS_SUM, RS_INT32, 3, 16, 0);
	urgent = fw_data(&fw, RS_SUM, RS_INT32, 4, 16, 0);
	urgent.priority = 1;
	fw_contribute(&fw, 0, slow);
	fw_have(&fw, 1, slow);
	for (unsigned r = 0; r < 2; r++)
		fw_contribute(&fw, r, urgent);
	fw_feed_all(&fw, SIZE_MAX);
	fw_expect_result(&fw, 0, urgent, 2);
	fw_expect_nothing(&fw, 0);
	fw_close(&fw);
}
END_TEST

/* A view that changes while a result is asked for: nobody waits for the answer any more, and who is asked again. */
START_TEST(a_question_ends_with_its_view)
{
	struct control_view v;
	struct fw_world fw;
	struct frame f;

	running(&fw, (struct fw_options){0});
	agree(&fw, view_of(0, 1, 0));
	f = fw_data(&fw, RS_SUM, RS_INT32, 3, 16, 0);
	for (unsigned round = 0; round < 2; round++) {
		/* the first time the question does not even go out */
		fw.w[1].room = round ? SIZE_MAX : 0;
		fw_contribute(&fw, 0, f);
		fw_have(&fw, 1, f);
		fw_feed_all(&fw, SIZE_MAX);
		if (round)
			fw_expect(&fw, 1, FRAME_FETCH);
		v = view_of(0, 2 + round, 0);
		fw_say_view(&fw, 0, &v);
		fw_say_view(&fw, 1, &v);
		fw_feed_all(&fw, SIZE_MAX);
		fw_grant(&fw, 1, SIZE_MAX);
		if (round)
			expect_view(&fw, 1, FRAME_VIEW, v);
		for (unsigned r = 0; r < 2; r++) {
			expect_view(&fw, r, FRAME_RESUME, v);
			fw_expect_nothing(&fw, r);
		}
		ck_assert_uint_eq(fw_slots_alive(&fw), 0);
	}
	/* all as ever */
	for (unsigned r = 0; r < 2; r++)
		fw_contribute(&fw, r, f);
	fw_feed_all(&fw, SIZE_MAX);
	for (unsigned r = 0; r < 2; r++)
		fw_expect_result(&fw, r, f, 2);
	fw_close(&fw);
}
END_TEST

/* Answers that nobody has asked for, in this way, of this rank. */
enum wrong_answer {
	UNASKED,
	OF_ANOTHER_CHUNK,
	OF_ANOTHER_RANK,
	TOO_SHORT,
	TOO_LONG,
	WITHOUT_CHECKSUM,
	DAMAGED,
	TWICE,
	AFTER_VIEW,
	WRONG_NR
};

START_TEST(wrong_answers)
{
	struct fw_world fw;
	struct frame f;
	uint8_t payload[256] = {0};

	running(&fw, (struct fw_options){.world = 3, .checksum = true});
	agree(&fw, view_of(0, 1, 0));
	f = fw_data(&fw, RS_SUM, RS_INT32, 3, 32, 0);
	if (_i != UNASKED) {
		fw_contribute(&fw, 0, f);
		fw_have(&fw, 1, f);
		fw_have(&fw, 2, f);
		fw_feed_all(&fw, SIZE_MAX);
		fw_expect(&fw, 1, FRAME_FETCH);
	}
	if (_i == TWICE) { /* the first of them waits in line */
		f.chunk = 1;
		fw_contribute(&fw, 0, f);
		fw_have(&fw, 1, f);
		fw_have(&fw, 2, f);
		fw_feed_all(&fw, SIZE_MAX);
		fw_expect(&fw, 1, FRAME_FETCH);
		fw_keep(&fw, 1, f, 3);
	}
	if (_i == AFTER_VIEW)
		fw_say_view(&fw, 1, &(struct control_view){.n = REDUCERS, .lives = {0, 2, 0}});
	f.type = FRAME_KEPT;
	f.chunk = _i == OF_ANOTHER_CHUNK || _i == TWICE;
	f.payload_len = _i == TOO_SHORT ? 60 : _i == TOO_LONG ? 68 : 64;
	f.flags = _i == WITHOUT_CHECKSUM ? 0 : FRAME_CHECKED;
	f.payload_sum = f.flags ? frame_checksum(payload, f.payload_len) ^ (_i == DAMAGED) : 0;
	fw_say(&fw, _i == OF_ANOTHER_RANK ? 2 : 1, f, payload);
	fw_feed_all(&fw, SIZE_MAX);
	expect_end(&fw, RS_ECUT,
		   _i == DAMAGED           ? "the checksum of rank 1 (host-1)'s chunk 0 of operation 3 is wrong"
		   : _i == OF_ANOTHER_RANK ? "rank 2 (host-2) sent 64 bytes (flags 0x4) as the result of chunk 0"
					   : "for which it was not asked so");
	fw_close(&fw);
}
END_TEST

/* A HAVE is a contribution in all but its bytes: it has its place in the sequence, and says the same as the others. */
static const struct {
	const char *what, *says;
	int code;
	uint8_t flags, dtype;
	uint32_t payload_len;
	uint64_t seq;
} haves[] = {
    {"with a flag", "HAVE came with flags 0x2 in a job that knows none", RS_ECUT, FRAME_ROOT, RS_INT32, 0, 3},
    {"with a payload", "has 4 payload bytes instead of 0", RS_ECUT, 0, RS_INT32, 4, 3},
    {"of another type", "ranks disagree about operation 3", RS_EMISMATCH, 0, RS_FLOAT32, 0, 3},
    {"out of order", "sent chunk 0 of operation 2 out of order or twice", RS_ECUT, 0, RS_INT32, 0, 2},
};

START_TEST(wrong_haves)
{
	struct fw_world fw;
	struct frame f;

	running(&fw, (struct fw_options){0});
	agree(&fw, view_of(0, 1, 0));
	f = fw_data(&fw, RS_SUM, RS_INT32, 3, 32, 0);
	fw_contribute(&fw, 0, f);
	if (haves[_i].seq < 3)
		fw_have(&fw, 1, f);
	f.type = FRAME_HAVE;
	f.flags = haves[_i].flags;
	f.dtype = haves[_i].dtype;
	f.seq = haves[_i].seq;
	f.payload_len = haves[_i].payload_len;
	fw_say(&fw, 1, f, "abcd");
	fw_feed_all(&fw, SIZE_MAX);
	expect_end(&fw, haves[_i].code, haves[_i].says);
	fw_close(&fw);
}
END_TEST

/* Jobs that do not fail over know nothing of all this. */
START_TEST(other_jobs_know_no_views)
{
	struct control_view v = view_of(0, 1, 0);
	struct fw_world fw;
	struct frame f;

	fw_running(&fw, &(struct fw_options){0});
	f = fw_data(&fw, RS_SUM, RS_INT32, 0, 16, 0);
	if (_i == 0)
		fw_say_view(&fw, 1, &v);
	else if (_i == 1)
		fw_have(&fw, 1, f);
	else
		fw_keep(&fw, 1, f, 2);
	fw_feed_all(&fw, SIZE_MAX);
	expect_end(&fw, RS_EPROTO,
		   _i == 0   ? "rank 1 (host-1) sent a VIEW frame, which only a reducer"
		   : _i == 1 ? "HAVE came with flags 0x0 in a job that does not fail over"
			     : "for which it was not asked so");
	fw_close(&fw);
}
END_TEST

START_TEST(all_speak_of_the_same_reducers)
{
	struct fw_world fw;

	running(&fw, (struct fw_options){0});
	say(&fw, 0, view_of(0, 1, 0));
	say(&fw, 1, (struct control_view){.n = 2, .lives = {0, 1}});
	expect_end(&fw, RS_ECUT, "rank 1 (host-1) speaks of 2 reducers, the others of 3");
	fw_close(&fw);
}
END_TEST

/* A rank that is lost is lost to this reducer; whether to others too they say. */
START_TEST(a_lost_rank_is_lost_here_only)
{
	struct fw_world fw;

	running(&fw, (struct fw_options){0});
	fw_hang_up(&fw, 1);
	expect_end(&fw, RS_ECUT, "rank 1 (host-1) was lost: it closed the connection");
	fw_expect_abort(&fw, 0, RS_ECUT, "rank 1 (host-1) was lost", "");
	fw_close(&fw);
}
END_TEST

/* A reducer that is back: who attaches after another one has said a view hears it, and RESUME comes behind START. */
START_TEST(views_from_before_the_start)
{
	struct fw_world fw;

	fw_init(&fw, &(struct fw_options){.retain = true});
	fw_attach(&fw, 0);
	fw_expect(&fw, 0, FRAME_WELCOME);
	say(&fw, 0, view_of(2, 1, 0));
	fw_expect_nothing(&fw, 0);
	fw_attach(&fw, 1);
	fw_expect(&fw, 1, FRAME_WELCOME);
	expect_view(&fw, 1, FRAME_VIEW, view_of(2, 1, 0));
	say(&fw, 1, view_of(2, 1, 0));
	fw_expect_nothing(&fw, 1);
	lane_start(fw.lane, FAKE_JOB, 2);
	fw_flush(&fw);
	for (unsigned r = 0; r < 2; r++) {
		fw_expect(&fw, r, FRAME_START);
		expect_view(&fw, r, FRAME_RESUME, view_of(2, 1, 0));
	}
	fw_close(&fw);
}
END_TEST

static void say_done(struct fw_world *fw, unsigned rank, unsigned type, uint64_t ack)
{
	fw_say(fw, rank, (struct frame){.type = (uint8_t)type, .generation = FAKE_GENERATION, .ack = ack}, NULL);
	fw_feed_all(fw, SIZE_MAX);
}

/* "A worker that has all results says SETTLE and waits until a frame's ack says that all ranks have them. A reducer
 * asks the others with a PING that has count 1." */
START_TEST(settle)
{
	struct fw_world fw;
	struct frame f;

	running(&fw, (struct fw_options){.world = 3});
	say_done(&fw, 2, FRAME_PING, 7);
	say_done(&fw, 0, FRAME_SETTLE, 7);
	fw_expect_nothing(&fw, 0);
	f = fw_expect(&fw, 1, FRAME_PING);
	ck_assert(f.count == 1 && f.ack == 0);
	fw_expect_nothing(&fw, 2); /* it has said so already */
	say_done(&fw, 1, FRAME_PING, 6);
	fw_expect_nothing(&fw, 0);
	say_done(&fw, 1, FRAME_PING, 7);
	f = fw_expect(&fw, 0, FRAME_PING);
	ck_assert(f.count == 0 && f.ack == 7);
	/* who asks when all is known has its answer at once */
	say_done(&fw, 1, FRAME_SETTLE, 7);
	f = fw_expect(&fw, 1, FRAME_PING);
	ck_assert(f.count == 0 && f.ack == 7);
	for (unsigned r = 0; r < 3; r++)
		fw_expect_nothing(&fw, r);
	fw_close(&fw);
}
END_TEST

/* "When one has left, a chunk of an operation below its GOODBYE's ack needs no entry of it." _i: who leaves before
 * (bit 0) or after (bit 1) the others have said what they have. */
START_TEST(who_has_left_is_not_waited_for)
{
	struct fw_world fw;
	struct frame f;

	running(&fw, (struct fw_options){.world = 3});
	agree(&fw, view_of(0, 1, 0));
	f = fw_data(&fw, RS_SUM, RS_INT32, 3, 16, 0);
	if (_i == 0)
		say_done(&fw, 2, FRAME_GOODBYE, 4);
	fw_have(&fw, 0, f);
	fw_have(&fw, 1, f);
	fw_feed_all(&fw, SIZE_MAX);
	if (_i == 1) {
		fw_expect_nothing(&fw, 0);
		say_done(&fw, 2, FRAME_GOODBYE, 4);
	}
	for (unsigned r = 0; r < 2; r++)
		fw_expect_head(&fw, r, f);
	fw_expect_nothing(&fw, 2);
	ck_assert_uint_eq(fw_slots_alive(&fw), 0);
	ck_assert_uint_eq(fw.failed, 0);
	/* nor is it asked whether it agrees, before its connection is closed or after */
	if (_i == 0)
		fw_hang_up(&fw, 2);
	for (unsigned r = 0; r < 2; r++)
		fw_say_view(&fw, r, &(struct control_view){.n = REDUCERS, .lives = {0, 1, 1}});
	fw_feed_all(&fw, SIZE_MAX);
	fw_expect_view(&fw, 1, FRAME_VIEW);
	for (unsigned r = 0; r < 2; r++)
		fw_expect_view(&fw, r, FRAME_RESUME);
	fw_close(&fw);
}
END_TEST

/* What it has not the result of it cannot have left behind, and nothing new can be summed without it. */
static const struct {
	uint64_t ack;
	bool have;
} leavings[] = {{4, false}, {5, false}, {4, true}, {3, true}};

START_TEST(nothing_new_without_one_that_has_left)
{
	struct fw_world fw;
	struct frame f;

	running(&fw, (struct fw_options){.world = 3});
	f = fw_data(&fw, RS_SUM, RS_INT32, 4, 16, 0);
	say_done(&fw, 2, FRAME_GOODBYE, leavings[_i].ack);
	if (leavings[_i].have)
		fw_have(&fw, 0, f);
	else
		fw_contribute(&fw, 0, f);
	fw_feed_all(&fw, SIZE_MAX);
	expect_end(&fw, RS_ECLOSED, "rank 2 (host-2) closed the communicator before operation 4");
	fw_close(&fw);
}
END_TEST

/* A chunk that not all have, and that is not below its ack, may be waited for: then it does not leave in good order. */
START_TEST(leaving_before_the_end)
{
	struct fw_world fw;
	struct frame f;

	running(&fw, (struct fw_options){.world = 3});
	f = fw_data(&fw, RS_SUM, RS_INT32, 4, 16, 0);
	fw_contribute(&fw, 0, f);
	fw_feed_all(&fw, SIZE_MAX);
	say_done(&fw, 2, FRAME_GOODBYE, (uint64_t)_i + 4);
	if (_i == 0) {
		expect_end(&fw, RS_ECLOSED, "rank 2 (host-2) closed the communicator while operations were pending");
	} else {
		ck_assert_uint_eq(fw.failed, 0);
	}
	fw_close(&fw);
}
END_TEST

/* One that leaves although it was asked for a result: another one that has it is asked, if there is one. */
START_TEST(leaving_without_an_answer)
{
	struct fw_world fw;
	struct frame f;

	running(&fw, (struct fw_options){.world = 3});
	agree(&fw, view_of(0, 1, 0));
	f = fw_data(&fw, RS_SUM, RS_INT32, 3, 16, 1); /* the chunk says who is asked first */
	f.count = 32;
	fw_contribute(&fw, 0, f);
	fw_have(&fw, 1, f);
	if (_i == 0)
		fw_have(&fw, 2, f);
	else
		fw_contribute(&fw, 2, f);
	fw_feed_all(&fw, SIZE_MAX);
	fw_expect(&fw, 1, FRAME_FETCH);
	say_done(&fw, 1, FRAME_GOODBYE, 3);
	if (_i == 0) {
		fw_expect(&fw, 2, FRAME_FETCH);
		ck_assert_uint_eq(fw.failed, 0);
	} else {
		expect_end(&fw, RS_ECLOSED, "rank 1 (host-1) closed the communicator while operations were pending");
	}
	fw_close(&fw);
}
END_TEST

#define COUNT(a) (int)(sizeof(a) / sizeof(a)[0])

static void add_tests(TCase *tc)
{
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, news_go_to_all_others);
	tcase_add_test(tc, old_news_are_answered_with_new_ones);
	tcase_add_loop_test(tc, all_go_on_where_all_have_been, 0, 3 * COUNT(starts));
	tcase_add_test(tc, no_rank_goes_on_before_all_agree);
	tcase_add_test(tc, a_rank_that_has_learnt_more_is_not_resumed);
	tcase_add_test(tc, a_rank_that_is_to_learn_more_is_not_resumed);
	tcase_add_test(tc, a_result_goes_only_to_those_that_expect_it);
	tcase_add_loop_test(tc, a_result_that_is_partly_out_is_completed, 0, 2 * (FRAME_HEADER + 64) + 1);
	tcase_add_loop_test(tc, contributions_of_the_view_before_do_not_count, 0, 4);
	tcase_add_loop_test(tc, no_chunk_comes_between_view_and_resume, 0, 2);
	tcase_add_loop_test(tc, data_and_have_meet, 0, 3 * 64);
	tcase_add_loop_test(tc, a_kept_result_is_not_computed_again, 0, 2);
	tcase_add_loop_test(tc, results_wait_in_line_behind_those_asked_for, 0, 32);
	tcase_add_test(tc, answers_may_overtake_each_other);
	tcase_add_test(tc, priorities_do_not_wait_for_each_others_answers);
	tcase_add_test(tc, a_question_ends_with_its_view);
	tcase_add_loop_test(tc, wrong_answers, 0, WRONG_NR);
	tcase_add_loop_test(tc, wrong_haves, 0, COUNT(haves));
	tcase_add_loop_test(tc, other_jobs_know_no_views, 0, 3);
	tcase_add_test(tc, all_speak_of_the_same_reducers);
	tcase_add_test(tc, a_lost_rank_is_lost_here_only);
	tcase_add_test(tc, views_from_before_the_start);
	tcase_add_test(tc, settle);
	tcase_add_loop_test(tc, who_has_left_is_not_waited_for, 0, 2);
	tcase_add_loop_test(tc, nothing_new_without_one_that_has_left, 0, COUNT(leavings));
	tcase_add_loop_test(tc, leaving_before_the_end, 0, 2);
	tcase_add_loop_test(tc, leaving_without_an_answer, 0, 2);
}

int main(void)
{
	Suite *suite = suite_create("stripe_view");
	TCase *tc = tcase_create("views");
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
