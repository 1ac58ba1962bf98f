/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/gpu/core/pieces.h"
#include "common/assert.h"

#include <stdlib.h>
#include <string.h>

struct pieces *pieces_new(size_t size)
{
	size_t bytes = sizeof(struct pieces) + size * sizeof(struct piece);
	struct pieces *p = malloc(bytes);

	if (!p)
		return NULL;
	memset(p, 0, bytes); /* not calloc: the first touch of a page is slow */
	p->size = size;
	return p;
}

struct piece *pieces_add(struct pieces *p, const struct pipeline *of)
{
	struct piece *first = &p->piece[p->n];
	uint64_t op = p->ops++;

	rs_assert(p->n <= p->size);
	if (of->pieces > p->size - p->n) {
		p->dropped += of->pieces;
		return NULL;
	}
	for (uint64_t i = 0; i < of->pieces; i++) {
		first[i].op = op;
		first[i].index = (uint32_t)i;
		first[i].bytes = (uint32_t)(i + 1 < of->pieces ? of->piece : of->bytes - i * of->piece);
	}
	p->n += of->pieces;
	return first;
}

/* Sets the begins of an operation's copies of one direction. */
static void join_copies(struct piece *first, size_t n, enum piece_part part)
{
	uint64_t free_at = 0;

	for (size_t i = 0; i < n; i++) {
		struct piece_span *s = &first[i].part[part];

		if (!s->end)
			continue;
		if (s->begin < free_at)
			s->begin = free_at < s->end ? free_at : s->end;
		free_at = s->end > free_at ? s->end : free_at;
	}
}

struct piece_span pieces_whole(const struct piece *p)
{
	struct piece_span whole = {0, 0};

	for (unsigned i = 0; i < PIECE_PARTS; i++) {
		if (!p->part[i].end)
			continue;
		if (!whole.begin)
			whole.begin = p->part[i].begin;
		whole.end = p->part[i].end;
	}
	return whole;
}

static int compare(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

/* Pieces that have not begun are last. */
static int order_pieces(const void *a, const void *b)
{
	const struct piece *x = a, *y = b;
	int c = compare(pieces_whole(x).begin - 1, pieces_whole(y).begin - 1);

	c = c ? c : compare(x->op, y->op);
	return c ? c : compare(x->index, y->index);
}

/* Gives each piece that has begun the first row that is free. ends[i]: when row i is. */
static void join_rows(struct pieces *p, uint64_t *ends)
{
	for (size_t i = 0; i < p->n; i++) {
		struct piece_span whole = pieces_whole(&p->piece[i]);
		unsigned row = 0;

		if (!whole.begin)
			return;
		while (ends[row] > whole.begin)
			row++;
		ends[row] = whole.end;
		p->piece[i].row = row;
	}
}

static int order_spans(const void *a, const void *b)
{
	const struct piece_span *x = a, *y = b;

	return compare(x->begin, y->begin);
}

/* Stores the times in which at least one piece is on the network, in their order. Returns
 * their number. */
static size_t network_times(const struct pieces *p, struct piece_span *to)
{
	size_t n = 0, last = 0;

	for (size_t i = 0; i < p->n; i++)
		if (p->piece[i].part[PIECE_NETWORK].end)
			to[n++] = p->piece[i].part[PIECE_NETWORK];
	qsort(to, n, sizeof *to, order_spans);
	for (size_t i = 1; i < n; i++) {
		if (to[i].begin > to[last].end)
			to[++last] = to[i];
		else if (to[i].end > to[last].end)
			to[last].end = to[i].end;
	}
	return n ? last + 1 : 0;
}

/* Returns how much of a span is in n times. *from: the first one that may matter; spans
 * come in the order of their begin. */
static uint64_t covered(const struct piece_span *s, const struct piece_span *times, size_t n, size_t *from)
{
	uint64_t sum = 0;

	while (*from < n && times[*from].end <= s->begin)
		++*from;
	for (size_t i = *from; i < n && times[i].begin < s->end; i++) {
		uint64_t begin = times[i].begin > s->begin ? times[i].begin : s->begin;
		uint64_t end = times[i].end < s->end ? times[i].end : s->end;

		sum += end - begin;
	}
	return sum;
}

static void join_overlap(struct pieces *p, struct piece_span *times, struct piece_span *copies)
{
	size_t times_n = network_times(p, times), copies_n = 0, from = 0;

	for (size_t i = 0; i < p->n; i++)
		for (unsigned part = PIECE_OUT; part <= PIECE_IN; part += PIECE_IN - PIECE_OUT)
			if (p->piece[i].part[part].end)
				copies[copies_n++] = p->piece[i].part[part];
	qsort(copies, copies_n, sizeof *copies, order_spans);
	for (size_t i = 0; i < copies_n; i++) {
		p->copies_ns += copies[i].end - copies[i].begin;
		p->overlap_ns += covered(&copies[i], times, times_n, &from);
	}
}

bool pieces_join(struct pieces *p)
{
	uint64_t *ends = calloc(p->n + 1, sizeof *ends);
	struct piece_span *spans = calloc(3 * p->n + 1, sizeof *spans);
	bool room = ends && spans;

	for (size_t i = 0, next; room && i < p->n; i = next) {
		for (next = i + 1; next < p->n && p->piece[next].op == p->piece[i].op;)
			next++;
		join_copies(&p->piece[i], next - i, PIECE_OUT);
		join_copies(&p->piece[i], next - i, PIECE_IN);
	}
	if (room) {
		qsort(p->piece, p->n, sizeof *p->piece, order_pieces);
		join_rows(p, ends);
		join_overlap(p, spans, spans + p->n);
	}
	free(spans);
	free(ends);
	return room;
}
