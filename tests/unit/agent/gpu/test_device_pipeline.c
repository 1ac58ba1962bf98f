/* SPDX-License-Identifier: Apache-2.0 */
/* The pieces of an operation on a device's memory: a simulated device and a simulated
 * network do what the pipeline says, in many orders. They check that no place is used
 * twice, that only what was announced lands, that every byte passes once in each
 * direction, and that after a failure nothing starts and the end comes. */
#include "agent/gpu/core/pipeline.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 10, PIECES_MAX = 200 };

/* Check writes down each of its assertions, which takes most of the time here. */
#define MUST(cond) ((cond) ? (void)0 : ck_abort_msg("not true: %s", #cond))

enum place { FREE, COPYING_OUT, FULL, LANDED, COPYING_IN };

/* One operation with the world around it. Invariant: a copy that runs is in running[0 ..
 * n). */
struct world {
	struct pipeline p;
	unsigned seed;
	bool fifo; /* copies complete in order */
	struct pipeline_step running[2 * PIPELINE_DEPTH];
	unsigned n;
	enum place place[PIECES_MAX];
	uint64_t out, in, announced, landed; /* bytes */
	unsigned steps, fail_at;             /* the step at which something fails; 0: none */
	bool failed, ended, end;
};

static unsigned choose(struct world *w, unsigned n)
{
	w->seed = w->seed * 1103515245 + 12345;
	return (w->seed >> 16) % n;
}

static void place_set(struct world *w, const struct pipeline_step *s, enum place from, enum place to)
{
	uint64_t i = s->offset / PIECE;

	MUST(i < PIECES_MAX);
	MUST(w->place[i] == from);
	w->place[i] = to;
}

static void on_step(struct world *w, const struct pipeline_step *s)
{
	switch (s->kind) {
	case PIPELINE_COPY_OUT:
	case PIPELINE_COPY_IN:
		MUST(!w->failed);
		MUST(w->n < 2 * PIPELINE_DEPTH);
		place_set(w, s,
			  s->kind == PIPELINE_COPY_OUT ? FREE
			  : w->p.sends                 ? LANDED
						       : FREE,
			  s->kind == PIPELINE_COPY_OUT ? COPYING_OUT : COPYING_IN);
		w->running[w->n++] = *s;
		break;
	case PIPELINE_ANNOUNCE:
		MUST(!w->failed);
		MUST(s->bytes > w->announced);
		MUST(s->bytes <= w->p.bytes);
		MUST(s->bytes <= w->landed + w->p.places * PIECE);
		w->announced = s->bytes;
		break;
	case PIPELINE_END:
		MUST(w->ended);
		MUST(w->n == 0);
		w->end = true;
		break;
	case PIPELINE_WAIT:
		break;
	}
}

/* One running copy completes. */
static void complete(struct world *w)
{
	unsigned i = w->fifo ? 0 : choose(w, w->n);
	struct pipeline_step s = w->running[i];

	memmove(&w->running[i], &w->running[i + 1], (--w->n - i) * sizeof s);
	place_set(w, &s, s.kind == PIPELINE_COPY_OUT ? COPYING_OUT : COPYING_IN,
		  s.kind == PIPELINE_COPY_OUT ? FULL : FREE);
	*(s.kind == PIPELINE_COPY_OUT ? &w->out : &w->in) += s.bytes;
	pipeline_copied(&w->p, s.kind == PIPELINE_COPY_OUT ? PIPELINE_OUT : PIPELINE_IN, s.piece);
}

/* Some results land. */
static void land(struct world *w)
{
	uint64_t before = w->landed / PIECE, now;

	w->landed += 1 + choose(w, 2 * PIECE);
	if (w->landed > w->announced)
		w->landed = w->announced;
	now = w->landed == w->p.bytes ? w->p.pieces : w->landed / PIECE;
	for (; before < now && w->p.sends; before++)
		w->place[before % w->p.places] = w->p.receives ? LANDED : FREE;
	if (w->landed == w->p.bytes) {
		w->ended = true;
		pipeline_end(&w->p, true);
	} else {
		pipeline_landed(&w->p, w->landed);
	}
}

/* A copy, or the operation, fails. */
static void fail_now(struct world *w)
{
	w->failed = true;
	if (choose(w, 2))
		pipeline_fail(&w->p);
	else
		w->ended = true;
	if (choose(w, 2))
		w->ended = true;
	if (w->ended)
		pipeline_end(&w->p, false);
}

static void world_init(struct world *w, unsigned seed, uint64_t bytes, uint64_t ring, bool sends, bool receives)
{
	memset(w, 0, sizeof *w);
	w->seed = seed;
	pipeline_init(&w->p, bytes, PIECE, ring, sends, receives);
}

/* Runs until the end, and returns the number of steps. */
static unsigned run(struct world *w)
{
	while (!w->end) {
		struct pipeline_step s = pipeline_next(&w->p);

		MUST(++w->steps < 100000);
		if (w->steps == w->fail_at && !w->ended)
			fail_now(w);
		else
			on_step(w, &s);
		if (w->failed && s.kind >= PIPELINE_COPY_OUT && s.kind <= PIPELINE_COPY_IN && w->steps == w->fail_at)
			pipeline_copied(&w->p, s.kind == PIPELINE_COPY_OUT ? PIPELINE_OUT : PIPELINE_IN, s.piece);
		if (s.kind != PIPELINE_WAIT && choose(w, 3))
			continue;
		if (w->n > 0 && (choose(w, 2) || w->ended || w->landed == w->announced)) {
			complete(w);
		} else if (!w->ended && w->failed) {
			w->ended = true;
			pipeline_end(&w->p, false);
		} else if (!w->ended && w->landed < w->announced) {
			land(w);
		}
	}
	return w->steps;
}

static const struct {
	const char *what;
	uint64_t bytes, ring;
	bool sends, receives;
} cases[] = {
    {"all-reduce of one byte", 1, 1, true, true},
    {"all-reduce of a piece", PIECE, PIECE, true, true},
    {"all-reduce of a ring", 40, 40, true, true},
    {"ring of one place", 95, 10, true, true},
    {"ring of two places", 200, 20, true, true},
    {"ring of three places, last piece short", 1001, 30, true, true},
    {"ring of 64 places", 1990, 640, true, true},
    {"more pieces than places of the largest ring, no ring", 1500, 1500, true, true},
    {"root of a broadcast", 1001, 30, true, false},
    {"root of a small broadcast", 5, 5, true, false},
    {"receives a broadcast", 1001, 30, false, true},
    {"receives a small broadcast", 5, 5, false, true},
};

START_TEST(test_passes_every_byte)
{
	struct world w;

	for (unsigned seed = 0; seed < 100; seed++) {
		world_init(&w, seed, cases[_i].bytes, cases[_i].ring, cases[_i].sends, cases[_i].receives);
		w.fifo = seed % 2;
		run(&w);
		ck_assert_msg(w.out == (w.p.sends ? w.p.bytes : 0), "%s: %lu bytes out", cases[_i].what, (long)w.out);
		ck_assert_msg(w.in == (w.p.receives ? w.p.bytes : 0), "%s: %lu bytes in", cases[_i].what, (long)w.in);
		ck_assert_uint_eq(w.announced, w.p.bytes);
	}
}
END_TEST

START_TEST(test_fails_at_every_step)
{
	struct world w;
	unsigned steps;

	for (unsigned seed = 0; seed < 6; seed++) {
		world_init(&w, seed, cases[_i].bytes, cases[_i].ring, cases[_i].sends, cases[_i].receives);
		steps = run(&w);
		for (unsigned at = 1; at <= steps; at++) {
			world_init(&w, seed, cases[_i].bytes, cases[_i].ring, cases[_i].sends, cases[_i].receives);
			w.fail_at = at;
			run(&w);
		}
	}
}
END_TEST

/* Copies out run ahead of the network by what the ring holds, and no further. */
START_TEST(test_fills_the_ring)
{
	struct pipeline p;
	struct pipeline_step s;
	unsigned copies = 0;

	pipeline_init(&p, 1000, PIECE, 100, true, true);
	for (;;) {
		s = pipeline_next(&p);
		if (s.kind == PIPELINE_COPY_OUT) {
			copies++;
			pipeline_copied(&p, PIPELINE_OUT, s.piece);
		} else if (s.kind == PIPELINE_WAIT) {
			break;
		}
	}
	ck_assert_uint_eq(copies, 10);
	ck_assert_uint_eq(p.announced, 100);
	/* a landed result frees its place only when it has been copied in */
	pipeline_landed(&p, 10);
	s = pipeline_next(&p);
	ck_assert_int_eq(s.kind, PIPELINE_COPY_IN);
	ck_assert_uint_eq(s.piece, 0);
	ck_assert_int_eq(pipeline_next(&p).kind, PIPELINE_WAIT);
	pipeline_copied(&p, PIPELINE_IN, 0);
	s = pipeline_next(&p);
	ck_assert_int_eq(s.kind, PIPELINE_COPY_OUT);
	ck_assert_uint_eq(s.piece, 10);
	ck_assert_uint_eq(s.offset, 0);
}
END_TEST

/* Pieces that are complete before an earlier one are not announced. */
START_TEST(test_announces_in_order)
{
	struct pipeline p;
	struct pipeline_step s;

	pipeline_init(&p, 30, PIECE, 30, true, true);
	for (uint64_t i = 0; i < 3; i++)
		ck_assert_int_eq(pipeline_next(&p).kind, PIPELINE_COPY_OUT);
	pipeline_copied(&p, PIPELINE_OUT, 2);
	pipeline_copied(&p, PIPELINE_OUT, 1);
	ck_assert_int_eq(pipeline_next(&p).kind, PIPELINE_WAIT);
	pipeline_copied(&p, PIPELINE_OUT, 0);
	s = pipeline_next(&p);
	ck_assert_int_eq(s.kind, PIPELINE_ANNOUNCE);
	ck_assert_uint_eq(s.bytes, 30);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("device pipeline");
	TCase *t = tcase_create("pipeline");
	int n = (int)(sizeof cases / sizeof cases[0]), failed;
	SRunner *r = srunner_create(s);

	tcase_add_loop_test(t, test_passes_every_byte, 0, n);
	tcase_add_loop_test(t, test_fails_at_every_step, 0, n);
	tcase_add_test(t, test_fills_the_ring);
	tcase_add_test(t, test_announces_in_order);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
