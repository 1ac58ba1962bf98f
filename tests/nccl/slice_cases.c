/* SPDX-License-Identifier: Apache-2.0 */
/* All-gathers and reduce-scatters of the CollNet table, as CollNet Direct calls them: the
 * buffer of a collective has the parts of all ranks, and slices of it follow each other,
 * which begin and end anywhere in the parts. */
#include "common/dtype.h"
#include "tests/nccl/exercise.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIMIT_S = 300, KINDS = 4 };

/* The kinds of collectives that take turns; op < 0: an all-gather. */
static const struct {
	int dtype, op;
} kinds[KINDS] = {{RS_UINT8, -1}, {RS_INT32, RS_SUM}, {RS_FLOAT32, RS_SUM}, {RS_INT64, RS_MAX}};

/* One slice that is pending. */
struct slice_call {
	void *request;
	struct part_of p;
	int kind;
};

static size_t smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Returns the number that a rank has for an element of the whole buffer. */
static int number(int rank, size_t i)
{
	return (int)(i % 5 + 1) * (rank + 1) + (int)(i / 251 % 3);
}

/* Writes element i: a rank's, or with rank < 0 the result. */
static void put(uint8_t *to, int kind, int ranks, int rank, size_t i)
{
	int64_t v = rank < 0 ? 0 : number(rank, i);
	float f;

	if (kinds[kind].op < 0) {
		*to = (uint8_t)(i * 7 + i / 251);
		return;
	}
	for (int r = 0; rank < 0 && r < ranks; r++)
		v = kinds[kind].op == RS_SUM ? v + number(r, i) : number(r, i) > v ? number(r, i) : v;
	f = (float)v;
	memcpy(to, kinds[kind].dtype == RS_FLOAT32 ? (void *)&f : (void *)&v,
	       rs_dtype_size((unsigned)kinds[kind].dtype));
}

/* Returns the bytes of a rank in a slice, and stores where they begin in the buffer. */
static size_t own_of(const struct part_of *p, int rank, size_t *begin)
{
	size_t from = (size_t)rank * p->part, end = smaller(from + p->part, p->offset + p->bytes);

	*begin = from > p->offset ? from : p->offset;
	return end > *begin ? end - *begin : 0;
}

/* Writes what a rank sends, or with rank < 0 what it must get, for bytes [begin, begin +
 * bytes) of the buffer. */
static void fill(uint8_t *to, int kind, int ranks, int rank, size_t begin, size_t bytes)
{
	size_t size = rs_dtype_size((unsigned)kinds[kind].dtype);

	for (size_t at = 0; at < bytes; at += size)
		put(to + at, kind, ranks, rank, (begin + at) / size);
}

/* Starts a slice; what it receives is marked before. */
static void begin(const struct member *m, int place, struct slice_call *c)
{
	uint8_t *send = member_send(m, place), *recv = member_receive(m, place);
	bool gather = kinds[c->kind].op < 0;
	size_t from, own = own_of(&c->p, m->rank, &from);
	int rc;

	memset(send, 0xdb, m->o->bytes);
	memset(recv, 0xdb, m->o->bytes);
	fill(send, c->kind, m->o->ranks, m->rank, gather ? from : c->p.offset, gather ? own : c->p.bytes);
	c->request = (void *)1;
	if (gather)
		rc = tables_all_gather(m->t, m->coll, send, recv, &c->p, m->registered, &c->request);
	else
		rc = tables_reduce_scatter(m->t, m->coll, send, recv, &c->p, kinds[c->kind].dtype, kinds[c->kind].op,
					   m->registered, &c->request);
	require(rc == NCCL_SUCCESS && c->request && c->request != (void *)1, "a slice was not started: %d", rc);
}

/* Ends a slice: the result is right, and nothing behind it was written. */
static void finish(const struct member *m, int place, struct slice_call *c)
{
	uint8_t *recv = member_receive(m, place), *want = malloc(m->o->bytes);
	bool gather = kinds[c->kind].op < 0;
	size_t from = c->p.offset, bytes = gather ? c->p.bytes : own_of(&c->p, m->rank, &from);
	double until = now_s() + LIMIT_S;
	int done = 0, said = -1, rc;

	while (!done) {
		rc = m->t->coll_test(c->request, &done, &said);
		require(rc == NCCL_SUCCESS, "test: %d", rc);
		require(now_s() < until, "a slice is not done");
		if (!done)
			relax(LOOK_COLL_US);
	}
	require((size_t)said == c->p.bytes, "test says %d bytes", said);
	memset(want, 0xdb, m->o->bytes);
	fill(want, c->kind, m->o->ranks, -1, from, bytes);
	for (size_t i = 0; i < m->o->bytes; i++)
		require(recv[i] == want[i], "kind %d, parts of %zu, slice of %zu from %zu: byte %zu is %02x, not %02x",
			c->kind, c->p.part, c->p.bytes, c->p.offset, i, recv[i], want[i]);
	free(want);
	c->request = NULL;
}

/* Collectives with parts of some bytes, in slices of at most o->bytes; `depth` slices are
 * pending. */
static void slices(const struct options *o, const struct tables *t, struct shared *s, int rank)
{
	static struct slice_call calls[DEPTH_MAX];
	const size_t parts[] = {8, o->bytes / 8 / 8 * 8, o->bytes, o->bytes / 3 / 8 * 8 + 8, 3 * o->bytes + 8};
	size_t offset = 0;
	struct member m;
	int collective = 0;

	require(member_open(&m, t, o, s, rank) == NCCL_SUCCESS, "connect");
	for (int k = 0; k < o->ops; k++) {
		struct slice_call *c = &calls[k % o->depth];
		size_t part = parts[collective / KINDS % (sizeof parts / sizeof parts[0])];
		size_t all = part * (size_t)o->ranks;
		/* all of them at once, or slices that do not fit the parts */
		size_t most = collective % 3 ? o->bytes : o->bytes / 5 / 8 * 8 + 8;

		if (c->request)
			finish(&m, k % o->depth, c);
		c->kind = collective % KINDS;
		c->p = (struct part_of){.part = part, .offset = offset, .bytes = smaller(most, all - offset)};
		if (k == o->ops / 2 && rank == 0)
			printf("half\n"), fflush(stdout);
		begin(&m, k % o->depth, c);
		offset += c->p.bytes;
		if (offset == all) {
			offset = 0;
			collective++;
		}
	}
	for (int place = 0; place < o->depth; place++)
		if (calls[place].request)
			finish(&m, place, &calls[place]);
	printf("collectives %d\n", collective);
	member_close(&m);
}

/* What NCCL does not do is refused with a sentence, and the communicator goes on. */
static void refused(const struct options *o, const struct tables *t, struct shared *s, int rank)
{
	static const struct part_of wrong[] = {{64, 0, 129}, {64, 128, 8}, {0, 0, 8}, {60, 4, 12}};
	struct slice_call c = {.p = {.part = 64, .offset = 0, .bytes = 128}};
	struct member m;

	require(member_open(&m, t, o, s, rank) == NCCL_SUCCESS, "connect");
	for (unsigned i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		void *request = (void *)1;
		int rc = tables_reduce_scatter(t, m.coll, m.region, m.region, &wrong[i], RS_INT64, RS_SUM, m.registered,
					       &request);

		require(rc != NCCL_SUCCESS && !request, "row %u: %d", i, rc);
	}
	begin(&m, 0, &c);
	finish(&m, 0, &c);
	member_close(&m);
}

const struct test_case slice_cases[] = {{"slices", slices}, {"refused", refused}, {NULL, NULL}};
