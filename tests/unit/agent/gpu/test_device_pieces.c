/* SPDX-License-Identifier: Apache-2.0 */
/* The record of pieces: begins of copies that were queued behind others, rows, and the
 * share of copies that overlap with the network. */
#include "agent/gpu/core/pieces.h"

#include <check.h>
#include <stdlib.h>

enum { PIECE = 10 };

/* One piece: when its copy out was queued and ended, it was announced and landed, its
 * copy in was queued and ended. */
struct row {
	uint64_t out[2], network[2], in[2];
};

/* Adds an operation with a last piece of 4 bytes. */
static void add(struct pieces *p, const struct row *rows, size_t n)
{
	struct pipeline of;
	struct piece *to;

	pipeline_init(&of, (n - 1) * PIECE + 4, PIECE, n * PIECE, true, true);
	to = pieces_add(p, &of);
	ck_assert_ptr_nonnull(to);
	for (size_t i = 0; i < n; i++) {
		to[i].part[PIECE_OUT] = (struct piece_span){rows[i].out[0], rows[i].out[1]};
		to[i].part[PIECE_NETWORK] = (struct piece_span){rows[i].network[0], rows[i].network[1]};
		to[i].part[PIECE_IN] = (struct piece_span){rows[i].in[0], rows[i].in[1]};
	}
}

static void expect(const struct piece *p, uint64_t op, unsigned index, unsigned row, const struct row *want)
{
	ck_assert_uint_eq(p->op, op);
	ck_assert_uint_eq(p->index, index);
	ck_assert_uint_eq(p->row, row);
	ck_assert_uint_eq(p->part[PIECE_OUT].begin, want->out[0]);
	ck_assert_uint_eq(p->part[PIECE_OUT].end, want->out[1]);
	ck_assert_uint_eq(p->part[PIECE_NETWORK].begin, want->network[0]);
	ck_assert_uint_eq(p->part[PIECE_NETWORK].end, want->network[1]);
	ck_assert_uint_eq(p->part[PIECE_IN].begin, want->in[0]);
	ck_assert_uint_eq(p->part[PIECE_IN].end, want->in[1]);
}

/* All copies out are queued at once, and are done one after the other. The network is
 * idle from 140 to 150. */
START_TEST(copies_begin_when_those_before_end)
{
	static const struct row queued[] = {
	    {{100, 110}, {110, 130}, {130, 140}},
	    {{100, 120}, {120, 140}, {135, 150}},
	    {{100, 130}, {150, 160}, {170, 190}},
	};
	static const struct row joined[] = {
	    {{100, 110}, {110, 130}, {130, 140}},
	    {{110, 120}, {120, 140}, {140, 150}},
	    {{120, 130}, {150, 160}, {170, 190}},
	};
	struct pieces *p = pieces_new(3);

	ck_assert_ptr_nonnull(p);
	add(p, queued, 3);
	ck_assert(pieces_join(p));
	for (unsigned i = 0; i < 3; i++)
		expect(&p->piece[i], 0, i, i, &joined[i]);
	ck_assert_uint_eq(p->piece[0].bytes + p->piece[1].bytes + p->piece[2].bytes, 2 * PIECE + 4);
	ck_assert_uint_eq(p->copies_ns, 3 * 10 + 10 + 10 + 20);
	ck_assert_uint_eq(p->overlap_ns, 10 + 10 + 10); /* the second and third copy out, the first copy in */
	free(p);
}
END_TEST

/* Two operations at a time: each has its own queue, and a row is used again when its
 * piece has ended. */
START_TEST(operations_share_rows)
{
	static const struct row first[] = {{{10, 20}, {20, 30}, {30, 40}}, {{10, 25}, {25, 50}, {50, 60}}};
	static const struct row second[] = {{{15, 22}, {22, 70}, {70, 80}}, {{41, 45}, {45, 70}, {70, 90}}};
	static const struct row joined[] = {
	    {{10, 20}, {20, 30}, {30, 40}},
	    {{15, 22}, {22, 70}, {70, 80}},
	    {{20, 25}, {25, 50}, {50, 60}},
	    {{41, 45}, {45, 70}, {80, 90}},
	};
	struct pieces *p = pieces_new(10);

	ck_assert_ptr_nonnull(p);
	add(p, first, 2);
	add(p, second, 2);
	ck_assert(pieces_join(p));
	expect(&p->piece[0], 0, 0, 0, &joined[0]);
	expect(&p->piece[1], 1, 0, 1, &joined[1]);
	expect(&p->piece[2], 0, 1, 2, &joined[2]);
	expect(&p->piece[3], 1, 1, 0, &joined[3]);
	ck_assert_uint_eq(p->copies_ns, 10 + 7 + 5 + 4 + 10 + 10 + 10 + 10);
	ck_assert_uint_eq(p->overlap_ns, 2 + 5 + 4 + 10 + 10); /* the network is busy from 20 to 70 */
	free(p);
}
END_TEST

/* Ranks that only send or only receive, and an operation that has failed. */
START_TEST(parts_that_did_not_happen)
{
	static const struct row rows[] = {{{10, 20}, {20, 30}, {0, 0}},
					  {{0, 0}, {5, 30}, {30, 40}},
					  {{40, 0}, {0, 0}, {0, 0}},
					  {{0, 0}, {0, 0}, {0, 0}}};
	struct pieces *p = pieces_new(4);

	ck_assert_ptr_nonnull(p);
	add(p, rows, 4);
	ck_assert(pieces_join(p));
	expect(&p->piece[0], 0, 1, 0, &rows[1]);
	expect(&p->piece[1], 0, 0, 1, &rows[0]);
	expect(&p->piece[2], 0, 2, 0, &rows[2]);
	ck_assert_uint_eq(pieces_whole(&p->piece[0]).begin, 5);
	ck_assert_uint_eq(pieces_whole(&p->piece[1]).end, 30);
	ck_assert_uint_eq(pieces_whole(&p->piece[2]).end, 0);
	ck_assert_uint_eq(pieces_whole(&p->piece[3]).begin, 0);
	ck_assert_uint_eq(p->copies_ns, 20);
	ck_assert_uint_eq(p->overlap_ns, 10);
	free(p);
}
END_TEST

/* Copies on two devices: one that was queued later has ended earlier. */
START_TEST(copies_in_another_order)
{
	static const struct row rows[] = {{{10, 40}, {40, 50}, {0, 0}}, {{12, 30}, {40, 50}, {0, 0}}};
	struct pieces *p = pieces_new(4);

	ck_assert_ptr_nonnull(p);
	add(p, rows, 2);
	ck_assert(pieces_join(p));
	for (unsigned i = 0; i < 2; i++)
		ck_assert_uint_le(p->piece[i].part[PIECE_OUT].begin, p->piece[i].part[PIECE_OUT].end);
	ck_assert_uint_eq(p->copies_ns, 30);
	free(p);
}
END_TEST

START_TEST(no_room)
{
	static const struct row rows[] = {{{10, 20}, {20, 30}, {30, 40}}, {{10, 20}, {20, 30}, {30, 40}}};
	struct pieces *p = pieces_new(3);
	struct pipeline of;

	ck_assert_ptr_nonnull(p);
	pipeline_init(&of, 4 * PIECE, PIECE, 4 * PIECE, true, true);
	ck_assert_ptr_null(pieces_add(p, &of));
	add(p, rows, 2);
	ck_assert_ptr_null(pieces_add(p, &of));
	ck_assert_uint_eq(p->dropped, 8);
	ck_assert_uint_eq(p->ops, 3);
	ck_assert(pieces_join(p));
	ck_assert_uint_eq(p->piece[0].op, 1);
	free(p);
	p = pieces_new(0);
	ck_assert_ptr_nonnull(p);
	ck_assert(pieces_join(p));
	free(p);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("device_pieces");
	TCase *t = tcase_create("pieces");
	SRunner *r;
	int failed;

	tcase_add_test(t, copies_begin_when_those_before_end);
	tcase_add_test(t, operations_share_rows);
	tcase_add_test(t, parts_that_did_not_happen);
	tcase_add_test(t, copies_in_another_order);
	tcase_add_test(t, no_room);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
