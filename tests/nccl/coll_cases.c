/* SPDX-License-Identifier: Apache-2.0 */
/* Cases of the CollNet table. */
#include "common/dtype.h"
#include "tests/nccl/exercise.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PERIOD = 21, LIMIT_S = 300 };

/* What a rank sends for element i: small enough for every dtype, and exact. */
static int value(int op, int rank, size_t i)
{
	if (op == RS_SUM)
		return (rank + 1) * (int)(i % 3 + 1);
	if (op == RS_PROD)
		return (i + (size_t)rank) % 3 == 0 ? 2 : 1;
	return (int)(((size_t)rank * 3 + i) % 7);
}

static int expected(int op, int ranks, size_t i)
{
	int all = value(op, 0, i);

	for (int r = 1; r < ranks; r++) {
		int v = value(op, r, i);

		all = op == RS_SUM    ? all + v
		      : op == RS_PROD ? all * v
		      : op == RS_MAX  ? (v > all ? v : all)
				      : (v < all ? v : all);
	}
	return all;
}

static uint16_t half_of(int v)
{
	int e = 0;

	while (v >> e > 1)
		e++;
	return v ? (uint16_t)((e + 15) << 10 | ((v << 10 >> e) & 0x3ff)) : 0;
}

static uint16_t bfloat_of(int v)
{
	float f = (float)v;
	uint32_t bits;

	memcpy(&bits, &f, sizeof bits);
	return (uint16_t)(bits >> 16);
}

/* Writes v as an element of the dtype. */
static void put(uint8_t *to, int dtype, int v)
{
	int64_t wide = v;
	uint16_t half = dtype == RS_FLOAT16 ? half_of(v) : bfloat_of(v);
	float f = (float)v;
	double d = v;

	if (dtype == RS_FLOAT32)
		memcpy(to, &f, sizeof f);
	else if (dtype == RS_FLOAT64)
		memcpy(to, &d, sizeof d);
	else if (rs_dtype_is_half((unsigned)dtype))
		memcpy(to, &half, sizeof half);
	else
		memcpy(to, &wide, rs_dtype_size((unsigned)dtype)); /* little-endian */
}

/* One period of what is sent or expected, and the comparison of a whole buffer with
 * it. */
static void fill_period(uint8_t *period, int dtype, int op, int rank, int ranks)
{
	for (size_t i = 0; i < PERIOD; i++)
		put(period + i * rs_dtype_size((unsigned)dtype), dtype,
		    ranks ? expected(op, ranks, i) : value(op, rank, i));
}

static void fill(uint8_t *to, const uint8_t *period, size_t bytes, size_t each)
{
	for (size_t at = 0; at < bytes; at += each)
		memcpy(to + at, period, bytes - at < each ? bytes - at : each);
}

static bool same(const uint8_t *a, const uint8_t *period, size_t bytes, size_t each)
{
	for (size_t at = 0; at < bytes; at += each)
		if (memcmp(a + at, period, bytes - at < each ? bytes - at : each) != 0)
			return false;
	return true;
}

/* An all-reduce that is pending. */
struct pending {
	void *request;
	int dtype, op;
	size_t count;
};

/* Tests a request once. Returns whether it is done, with the result in *rc. */
static bool ended(const struct member *m, struct pending *p, int *rc)
{
	int done = 0, bytes = -1;

	*rc = m->t->coll_test(p->request, &done, &bytes);
	if (*rc == NCCL_SUCCESS && !done)
		return false;
	if (*rc == NCCL_SUCCESS)
		require(bytes == (int)(p->count * rs_dtype_size((unsigned)p->dtype)), "test says %d bytes", bytes);
	p->request = NULL;
	return true;
}

/* Starts an all-reduce in a place; false: not now. */
static bool begin(const struct member *m, int place, struct pending *p, int *rc)
{
	void *request = (void *)1; /* as NCCL leaves it */

	*rc = tables_all_reduce(m->t, m->coll, member_send(m, place), member_receive(m, place), p->count, p->dtype,
				p->op, m->registered, m->registered, &request);
	p->request = *rc == NCCL_SUCCESS ? request : NULL;
	require(*rc != NCCL_SUCCESS || request != (void *)1, "the request was not written");
	return p->request != NULL;
}

static void must_begin(const struct member *m, int place, struct pending *p)
{
	int rc;
	bool begun = begin(m, place, p, &rc);

	require(begun, "iallreduce: %d", rc);
}

/* Ends a pending operation and compares its result. */
static void finish(const struct member *m, int place, struct pending *p)
{
	uint8_t period[PERIOD * 8];
	size_t each = PERIOD * rs_dtype_size((unsigned)p->dtype);
	double until = now_s() + LIMIT_S;
	int rc;

	while (!ended(m, p, &rc)) {
		require(now_s() < until, "an all-reduce is not done");
		relax(LOOK_COLL_US);
	}
	require(rc == NCCL_SUCCESS, "test: %d", rc);
	fill_period(period, p->dtype, p->op, 0, m->o->ranks);
	require(same(member_receive(m, place), period, p->count * rs_dtype_size((unsigned)p->dtype), each),
		"wrong result: dtype %s, operation %s, %zu elements", rs_dtype_name((unsigned)p->dtype),
		rs_op_name((unsigned)p->op), p->count);
}

/* Keeps `depth` all-reduces pending on each communicator in turn; dtypes, operations and
 * sizes change. */
static void sums(const struct options *o, const struct tables *t, struct shared *s, int rank)
{
	static struct pending pending[COMMS_MAX][DEPTH_MAX];
	static struct member m[COMMS_MAX];
	uint8_t period[PERIOD * 8];
	int rc;

	tables_check(t);
	for (int c = 0; c < o->comms; c++) {
		rc = member_open(&m[c], t, o, s, rank);
		require(rc == NCCL_SUCCESS, "connect: %d", rc);
		barrier(s, o->ranks);
	}
	for (int k = 0; k < o->ops; k++) {
		int c = k % o->comms, place = k / o->comms % o->depth;
		struct pending *p = &pending[c][place];
		size_t bytes = o->bytes >> (k % 8 < 4 ? 0 : k % 8 - 2);

		if (p->request)
			finish(&m[c], place, p);
		p->dtype = k % RS_DTYPE_NR;
		p->op = k / RS_DTYPE_NR % 4;
		p->count = bytes / rs_dtype_size((unsigned)p->dtype);
		fill_period(period, p->dtype, p->op, rank, 0);
		fill(member_send(&m[c], place), period, bytes, PERIOD * rs_dtype_size((unsigned)p->dtype));
		if (k == o->ops / 2 && rank == 0)
			printf("half\n"), fflush(stdout);
		must_begin(&m[c], place, p);
	}
	for (int c = 0; c < o->comms; c++)
		for (int place = 0; place < o->depth; place++)
			if (pending[c][place].request)
				finish(&m[c], place, &pending[c][place]);
	for (int c = 0; c < o->comms; c++)
		member_close(&m[c]);
}

/* More than 64 all-reduces are not pending at once; and stale bytes, NaN among them, are
 * no error. */
static void throttle(const struct options *o, const struct tables *t, struct shared *s, int rank)
{
	struct options small = *o;
	struct pending p[DEPTH_MAX], more = {.dtype = RS_FLOAT32, .count = 8192};
	struct member m;
	int rc;

	small.depth = DEPTH_MAX;
	small.bytes = 32 << 10;
	require(member_open(&m, t, &small, s, rank) == NCCL_SUCCESS, "connect");
	memset(m.region, 0xff, m.region_bytes); /* NaN */
	if (rank != 0)
		barrier(s, o->ranks); /* nothing is done before rank 0 has started all */
	for (int i = 0; i < DEPTH_MAX; i++) {
		p[i] = more;
		must_begin(&m, i, &p[i]);
	}
	if (rank == 0) {
		require(!begin(&m, 0, &more, &rc) && rc == NCCL_SUCCESS, "a 65th request: %d", rc);
		barrier(s, o->ranks);
	}
	for (int i = 0; i < DEPTH_MAX; i++)
		while (!ended(&m, &p[i], &rc))
			relax(LOOK_COLL_US);
	require(rc == NCCL_SUCCESS, "NaN: %d", rc);
	barrier(s, o->ranks);
	member_close(&m);
}

/* The odd rank does not come: connect fails on all others, in time. */
static void absent(const struct options *o, const struct tables *t, struct shared *s, int rank)
{
	struct member m;
	int rc;

	if (rank == o->odd_rank) {
		void *listening;

		require(tables_coll_listen(t, s->handles[rank], &listening) == NCCL_SUCCESS, "listen");
		barrier(s, o->ranks);
		require(t->coll_close_listen(listening) == NCCL_SUCCESS, "close_listen");
		return;
	}
	rc = member_open(&m, t, o, s, rank);
	require(rc != NCCL_SUCCESS, "connect succeeded without rank %d", o->odd_rank);
	printf("connect %d\n", rc);
}

/* Waits for the end of an all-reduce that cannot succeed. */
static int error_of(const struct member *m, int place)
{
	struct pending p = {.dtype = RS_FLOAT32, .count = 4096};
	double until = now_s() + LIMIT_S;
	int rc;

	if (!begin(m, place, &p, &rc))
		return rc;
	while (!ended(m, &p, &rc)) {
		require(now_s() < until, "an all-reduce without rank %d has no end", m->o->odd_rank);
		relax(LOOK_COLL_US);
	}
	return rc;
}

/* The odd rank dies after its vote: connect succeeds, the first all-reduce fails, a later
 * one gets NaN. */
static void dies(const struct options *o, const struct tables *t, struct shared *s, int rank)
{
	struct member m;
	float result;

	require(member_open(&m, t, o, s, rank) == NCCL_SUCCESS, "connect");
	if (rank == o->odd_rank)
		_exit(0);
	require(error_of(&m, 0) == NCCL_REMOTE_ERROR, "no error");
	require(error_of(&m, 1) == NCCL_SUCCESS, "the error was told twice");
	memcpy(&result, member_receive(&m, 1), sizeof result);
	require(isnan(result), "an all-reduce that failed has the result %g", (double)result);
	member_close(&m);
}

/* The odd rank aborts with all-reduces pending: its memory is gone right after deregister
 * (as in ncclCommAbort), or after close. The others get an error. */
static void leave(const struct options *o, const struct tables *t, struct shared *s, int rank, bool deregister)
{
	struct pending p = {.dtype = RS_FLOAT32, .count = o->bytes / 4};
	double began;
	struct member m;
	int rc;

	require(member_open(&m, t, o, s, rank) == NCCL_SUCCESS, "connect");
	memset(m.region, 0, m.region_bytes);
	barrier(s, o->ranks);
	if (rank == (o->odd_rank + 1) % o->ranks) { /* so that no all-reduce can end */
		barrier(s, o->ranks);
		barrier(s, o->ranks);
		require(error_of(&m, 0) == NCCL_REMOTE_ERROR, "no error");
		member_close(&m);
		return;
	}
	for (int i = 0; i < o->depth; i++)
		must_begin(&m, i, &p);
	barrier(s, o->ranks);
	if (rank != o->odd_rank) {
		while (!ended(&m, &p, &rc))
			relax(LOOK_COLL_US);
		require(rc == NCCL_REMOTE_ERROR, "test: %d", rc);
		barrier(s, o->ranks);
		member_close(&m);
		return;
	}
	began = now_s();
	if (deregister)
		require(t->coll_deregister(m.coll, m.registered) == NCCL_SUCCESS, "deregister");
	if (deregister)
		munmap(m.region, m.region_bytes);
	require(t->coll_close(m.coll) == NCCL_SUCCESS, "close");
	printf("left in %.3f s\n", now_s() - began);
	if (!deregister)
		munmap(m.region, m.region_bytes);
	require(t->coll_close_listen(m.listening) == NCCL_SUCCESS, "close_listen");
	barrier(s, o->ranks);
}

static void aborts(const struct options *o, const struct tables *t, struct shared *s, int rank)
{
	leave(o, t, s, rank, true);
}

static void closes(const struct options *o, const struct tables *t, struct shared *s, int rank)
{
	leave(o, t, s, rank, false);
}

/* Measures: rank 0 prints bytes per second of one rank's buffers. */
static void speed(const struct options *o, const struct tables *t, struct shared *s, int rank)
{
	struct pending p[DEPTH_MAX] = {{NULL, 0, 0, 0}};
	struct member m;
	double began = 0;
	uint64_t done = 0;
	int rc, warm = o->depth * 2;

	require(member_open(&m, t, o, s, rank) == NCCL_SUCCESS, "connect");
	memset(m.region, 0, m.region_bytes);
	barrier(s, o->ranks);
	for (int k = 0; k < o->ops + warm; k++) {
		struct pending *at = &p[k % o->depth];

		if (k == warm) {
			began = now_s();
			done = 0;
		}
		while (at->request && !ended(&m, at, &rc))
			relax(LOOK_COLL_US);
		*at = (struct pending){.dtype = RS_FLOAT32, .count = o->bytes / 4};
		must_begin(&m, k % o->depth, at);
		done += o->bytes;
	}
	for (int i = 0; i < o->depth; i++)
		while (p[i].request && !ended(&m, &p[i], &rc))
			relax(LOOK_COLL_US);
	if (rank == 0)
		printf("{\"case\": \"speed\", \"ranks\": %d, \"bytes\": %zu, \"depth\": %d, \"algbw_MBps\": %.1f}\n",
		       o->ranks, o->bytes, o->depth, (double)done / (now_s() - began) / 1e6);
	barrier(s, o->ranks);
	member_close(&m);
}

/* A communicator that is never used. */
static void unused(const struct options *o, const struct tables *t, struct shared *s, int rank)
{
	struct member m;

	require(member_open(&m, t, o, s, rank) == NCCL_SUCCESS, "connect");
	member_close(&m);
}

const struct test_case coll_cases[] = {
    {"sums", sums},     {"throttle", throttle}, {"absent", absent}, {"dies", dies}, {"aborts", aborts},
    {"closes", closes}, {"speed", speed},       {"unused", unused}, {NULL, NULL},
};
