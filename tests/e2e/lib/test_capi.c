/* SPDX-License-Identifier: Apache-2.0 */
/* run: beside-others */
/* The whole C API, with real reducers; see ranks.h. Threads that wait at the same time are tested in test_wait.c. */
#include "tests/e2e/ranks.h"

#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Element i of rank's contribution: small whole numbers. */
static int element(int rank, size_t i)
{
	return (int)((i * 7 + (size_t)rank * 3) % 11) + 1;
}

static double expected(reduction_op op, int world, size_t i)
{
	double v = element(0, i);

	for (int rank = 1; rank < world; rank++) {
		double x = element(rank, i);

		if (op == REDUCTION_SUM || op == REDUCTION_AVG)
			v += x;
		else if (op == REDUCTION_PROD)
			v *= x;
		else if (op == REDUCTION_MAX)
			v = v > x ? v : x;
		else
			v = v < x ? v : x;
	}
	return op == REDUCTION_AVG ? v / world : v;
}

/* test_allreduce.py has all dtypes. */
static const size_t counts[] = {0, 1, 3, 1000, 4096, 16384, 100003};

static void floats(struct rank *r)
{
	open_comm(r);
	for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
		size_t n = counts[c];
		float *x = calloc(n + 1, sizeof *x), *y = calloc(n + 1, sizeof *y);

		for (reduction_op op = REDUCTION_SUM; op <= REDUCTION_AVG; op++) {
			bool in_place = op % 2;

			for (size_t i = 0; i < n; i++)
				x[i] = (float)element(r->rank, i);
			y[n] = x[n] = -77;
			EXPECT_RC(reduction_all_reduce(r->comm, x, in_place ? x : y, n, REDUCTION_FLOAT32, op, &r->err),
				  0);
			for (size_t i = 0; i < n; i++) {
				float want = (float)expected(op, r->world, i);

				if (fabsf((in_place ? x : y)[i] - want) > 1e-5f * want)
					fail_at(r, __LINE__, "op %d, count %zu: element %zu is %g, not %g", op, n, i,
						(in_place ? x : y)[i], want);
			}
			EXPECT(x[n] == -77 && y[n] == -77);
		}
		free(x);
		free(y);
	}
	close_comm(r);
}

enum { MANY = 300 };

/* More operations than job.max_ops, of mixed sizes, waited for from the last to the first. */
static void many_async(struct rank *r)
{
	static float *bufs[MANY];
	static reduction_request *reqs[MANY];
	reduction_stats stats = REDUCTION_STATS_INIT;
	int done = 0;

	open_comm(r);
	for (int q = 0; q < MANY; q++) {
		size_t n = (size_t)(q * 37) % 5000;
		char name[32];

		bufs[q] = calloc(n + 1, sizeof(float));
		for (size_t i = 0; i < n; i++)
			bufs[q][i] = (float)element(r->rank, i + (size_t)q);
		snprintf(name, sizeof name, "bucket.%d", q);
		EXPECT_RC(reduction_all_reduce_async(r->comm, bufs[q], bufs[q], n, REDUCTION_FLOAT32, REDUCTION_SUM,
						     name, &reqs[q], &r->err),
			  0);
	}
	for (int q = MANY - 1; q > 0; q--)
		EXPECT_RC(reduction_wait(reqs[q], -1, &r->err), 0);
	while (!done)
		EXPECT_RC(reduction_test(reqs[0], &done, &r->err), 0);
	for (int q = 0; q < MANY; q++) {
		for (size_t i = 0; i < (size_t)(q * 37) % 5000; i++)
			EXPECT(bufs[q][i] == (float)expected(REDUCTION_SUM, r->world, i + (size_t)q));
		free(bufs[q]);
	}
	EXPECT_RC(reduction_barrier(r->comm, &r->err), 0);
	EXPECT_RC(reduction_get_stats(r->comm, &stats, &r->err), 0);
	EXPECT(stats.ops_done >= MANY && stats.tx_bytes > 1000000 && stats.rx_bytes > 1000000);
	close_comm(r);
}

enum { GROUP = 200 };

/* Fills n tensors of `count` floats each. */
static void make_tensors(const struct rank *r, reduction_tensor *tensors, float *memory, size_t n, size_t count)
{
	for (size_t t = 0; t < n; t++) {
		tensors[t] = (reduction_tensor)REDUCTION_TENSOR_INIT;
		tensors[t].send = tensors[t].recv = memory + t * count;
		tensors[t].count = count;
		for (size_t i = 0; i < count; i++)
			memory[t * count + i] = (float)element(r->rank, t + i);
	}
}

/* Tensors of a group take less of the wire than operations of their own do; a large one goes along. */
static void groups(struct rank *r)
{
	static float memory[GROUP * 256], large[100003], copy[100003];
	reduction_tensor tensors[GROUP + 1];
	reduction_request *reqs[GROUP + 1];
	reduction_stats before = REDUCTION_STATS_INIT, between = before, after = before;

	open_comm(r);
	EXPECT_RC(reduction_get_stats(r->comm, &before, &r->err), 0);
	make_tensors(r, tensors, memory, GROUP, 256);
	for (size_t t = 0; t < GROUP; t++)
		EXPECT_RC(reduction_all_reduce(r->comm, tensors[t].send, tensors[t].recv, 256, REDUCTION_FLOAT32,
					       REDUCTION_SUM, &r->err),
			  0);
	EXPECT_RC(reduction_get_stats(r->comm, &between, &r->err), 0);
	make_tensors(r, tensors, memory, GROUP, 256);
	EXPECT_RC(reduction_all_reduce_group(r->comm, tensors, GROUP, &r->err), 0);
	EXPECT_RC(reduction_get_stats(r->comm, &after, &r->err), 0);
	EXPECT(after.ops_done - between.ops_done == 1);
	EXPECT(after.tx_bytes - between.tx_bytes < between.tx_bytes - before.tx_bytes - 64 * (GROUP / 2));

	make_tensors(r, tensors, memory, GROUP, 256);
	make_tensors(r, &tensors[GROUP], large, 1, 100003);
	tensors[GROUP].recv = copy;
	tensors[GROUP].name = "large";
	EXPECT_RC(reduction_all_reduce_group_async(r->comm, tensors, GROUP + 1, reqs, &r->err), 0);
	for (size_t t = GROUP + 1; t-- > 0;)
		EXPECT_RC(reduction_wait(reqs[t], -1, &r->err), 0);
	for (size_t t = 0; t < GROUP; t++)
		for (size_t i = 0; i < 256; i++)
			EXPECT(memory[t * 256 + i] == (float)expected(REDUCTION_SUM, r->world, t + i));
	for (size_t i = 0; i < 100003; i++)
		EXPECT(copy[i] == (float)expected(REDUCTION_SUM, r->world, i));
	EXPECT_RC(reduction_all_reduce_group(r->comm, NULL, 0, &r->err), 0);
	close_comm(r);
}

static void group_arguments(struct rank *r)
{
	float memory[8];
	reduction_tensor tensors[2];

	open_comm(r);
	make_tensors(r, tensors, memory, 2, 4);
	tensors[1].recv = NULL;
	EXPECT_RC(reduction_all_reduce_group(r->comm, tensors, 2, &r->err), REDUCTION_EINVAL);
	EXPECT(strcmp(r->err.message, "tensor 1 of a group of 2: recv is NULL") == 0);
	make_tensors(r, tensors, memory, 2, 4);
	tensors[1].struct_size++;
	EXPECT_RC(reduction_all_reduce_group(r->comm, tensors, 2, &r->err), REDUCTION_EINVAL);
	tensors[0].struct_size++;
	EXPECT_RC(reduction_all_reduce_group(r->comm, tensors, 2, &r->err), REDUCTION_EUNSUPPORTED);
	tensors[0].struct_size = 0;
	EXPECT_RC(reduction_all_reduce_group(r->comm, tensors, 2, &r->err), REDUCTION_EINVAL);
	/* nothing of this was started */
	make_tensors(r, tensors, memory, 2, 4);
	EXPECT_RC(reduction_all_reduce_group(r->comm, tensors, 2, &r->err), 0);
	EXPECT(memory[5] == (float)expected(REDUCTION_SUM, r->world, 2));
	close_comm(r);
}

/* Urgent or not, every operation comes to its sum; ranks that disagree hear so. */
static void priorities(struct rank *r)
{
	enum { OPS = 18 };
	static float large[300001], small[OPS][64];
	reduction_tensor t = REDUCTION_TENSOR_INIT;
	reduction_request *reqs[OPS + 1];

	open_comm(r);
	EXPECT(reduction_priorities(r->comm) == 3);
	make_tensors(r, &t, large, 1, 300001);
	t.priority = 0;
	EXPECT_RC(reduction_all_reduce_tensor_async(r->comm, &t, &reqs[OPS], &r->err), 0);
	for (int i = 0; i < OPS; i++) {
		make_tensors(r, &t, small[i], 1, 64);
		t.priority = i % 5 - 1;
		EXPECT_RC(reduction_all_reduce_tensor_async(r->comm, &t, &reqs[i], &r->err), 0);
	}
	for (int i = 0; i <= OPS; i++)
		EXPECT_RC(reduction_wait(reqs[i], -1, &r->err), 0);
	for (int i = 0; i < 300001; i++)
		EXPECT(large[i] == (float)expected(REDUCTION_SUM, r->world, (size_t)i));
	for (int i = 0; i < OPS * 64; i++)
		EXPECT(small[i / 64][i % 64] == (float)expected(REDUCTION_SUM, r->world, (size_t)i % 64));

	t.struct_size = 0;
	EXPECT_RC(reduction_all_reduce_tensor_async(r->comm, &t, reqs, &r->err), REDUCTION_EINVAL);

	make_tensors(r, &t, small[0], 1, 64);
	t.priority = r->rank;
	EXPECT_RC(reduction_all_reduce_tensor_async(r->comm, &t, reqs, &r->err), 0);
	EXPECT_RC(reduction_wait(reqs[0], -1, &r->err), REDUCTION_EMISMATCH);
	EXPECT(strstr(r->err.message, "gave it priority 1") || strstr(r->err.message, "gave it priority 0"));
	reduction_close(r->comm, NULL);
}

/* Requests of a group that nobody will ever complete end when the communicator is closed. */
static void close_pending_group(struct rank *r)
{
	static float memory[GROUP * 256];
	reduction_tensor tensors[GROUP];
	reduction_request *reqs[GROUP];

	open_comm(r);
	all_here(r);
	if (r->rank > 0) {
		wait_go(r);
		close_comm(r);
		return;
	}
	make_tensors(r, tensors, memory, GROUP, 256);
	EXPECT_RC(reduction_all_reduce_group_async(r->comm, tensors, GROUP, reqs, &r->err), 0);
	EXPECT_RC(reduction_wait(reqs[7], 0, &r->err), REDUCTION_ETIMEOUT);
	close_comm(r);
	for (size_t t = 0; t < GROUP; t++)
		EXPECT_RC(reduction_wait(reqs[t], 0, &r->err), REDUCTION_ECLOSED);
	let_go(r);
}

static void timeouts(struct rank *r)
{
	float x[10] = {1}, y[10] = {0};
	reduction_request *req;
	int done = 7;

	open_comm(r);
	if (r->rank > 0)
		wait_go(r);
	EXPECT_RC(reduction_all_reduce_async(r->comm, x, y, 10, REDUCTION_FLOAT32, REDUCTION_SUM, NULL, &req, &r->err),
		  0);
	if (r->rank == 0) {
		EXPECT_RC(reduction_wait(req, 0, &r->err), REDUCTION_ETIMEOUT);
		EXPECT_RC(reduction_wait(req, 30, &r->err), REDUCTION_ETIMEOUT);
		EXPECT_RC(reduction_test(req, &done, &r->err), 0);
		EXPECT(done == 0);
		let_go(r);
	}
	EXPECT_RC(reduction_wait(req, 20000, &r->err), 0);
	EXPECT(y[0] == (float)r->world && y[1] == 0);
	close_comm(r);
}

static void broadcasts(struct rank *r)
{
	size_t n = 70001;
	double *x = calloc(n, sizeof *x);

	open_comm(r);
	for (int root = 0; root < r->world; root++) {
		for (size_t i = 0; i < n; i++)
			x[i] = r->rank == root ? element(root, i) : -1;
		EXPECT_RC(reduction_broadcast(r->comm, x, n, REDUCTION_FLOAT64, root, &r->err), 0);
		for (size_t i = 0; i < n; i++)
			EXPECT(x[i] == element(root, i));
		EXPECT_RC(reduction_broadcast(r->comm, NULL, 0, REDUCTION_UINT8, root, &r->err), 0);
	}
	EXPECT_RC(reduction_barrier(r->comm, &r->err), 0);
	close_comm(r);
	free(x);
}

static void buffers(struct rank *r)
{
	size_t n = 100000;
	void *p, *none;
	uint32_t *x;

	open_comm(r);
	EXPECT_RC(reduction_buffer_alloc(r->comm, n * sizeof *x, &p, &r->err), 0);
	EXPECT_RC(reduction_buffer_alloc(r->comm, 0, &none, &r->err), 0);
	EXPECT((uintptr_t)p % 64 == 0);
	x = p;
	for (size_t i = 0; i < n; i++) {
		EXPECT(x[i] == 0);
		x[i] = (uint32_t)element(r->rank, i);
	}
	EXPECT_RC(reduction_all_reduce(r->comm, x, x, n, REDUCTION_UINT32, REDUCTION_SUM, &r->err), 0);
	for (size_t i = 0; i < n; i++)
		EXPECT(x[i] == (uint32_t)expected(REDUCTION_SUM, r->world, i));
	reduction_buffer_free(r->comm, p);
	reduction_buffer_free(r->comm, none);
	reduction_buffer_free(r->comm, NULL);
	close_comm(r);
}

enum { FUNCTIONS_MAX = 40 };

/* The functions that null_arguments has called. */
struct called {
	char names[FUNCTIONS_MAX][48];
	unsigned n;
};

static bool was_called(const struct called *called, const char *name, size_t len)
{
	for (unsigned i = 0; i < called->n; i++)
		if (strlen(called->names[i]) == len && strncmp(called->names[i], name, len) == 0)
			return true;
	return false;
}

static void note_call(struct called *called, const char *call)
{
	size_t len = strcspn(call, "(");

	if (!was_called(called, call, len) && called->n < FUNCTIONS_MAX)
		snprintf(called->names[called->n++], sizeof called->names[0], "%.*s", (int)len, call);
}

/* The call must fail with "ARGUMENT is NULL". */
static void expect_null(struct rank *r, struct called *called, int line, const char *call, int rc, const char *argument)
{
	char says[64];

	note_call(called, call);
	expect_rc(r, line, call, rc, REDUCTION_EINVAL);
	snprintf(says, sizeof says, "%s is NULL", argument);
	if (strcmp(r->err.message, says) != 0)
		fail_at(r, line, "%s says \"%s\", not \"%s\"", call, r->err.message, says);
}

/* Every function of the header must have been called. */
static void expect_all_called(struct rank *r, const struct called *called)
{
	static char header[100000];
	FILE *f = fopen("agent/lib/include/reduction.h", "r");
	unsigned n = 0;

	EXPECT(f);
	header[fread(header, 1, sizeof header - 1, f)] = '\0';
	fclose(f);
	for (const char *at = header; (at = strstr(at, "\nREDUCTION_API ")); at++) {
		const char *end = strchr(at, '('), *name = end;

		while (strchr(" *", name[-1]) == NULL)
			name--;
		if (!was_called(called, name, (size_t)(end - name)))
			fail_at(r, __LINE__, "%.*s was not called with NULL", (int)(end - name), name);
		n++;
	}
	EXPECT(n == called->n && n > 20);
}

#define NULLS(argument, call) expect_null(r, &called, __LINE__, #call, (call), argument)

/* All functions treat NULL alike, and start nothing. */
static void null_arguments(struct rank *r)
{
	const reduction_dtype type = REDUCTION_FLOAT32;
	const reduction_op sum = REDUCTION_SUM;
	reduction_error *err = &r->err;
	reduction_options opt = options(r);
	reduction_tensor t = REDUCTION_TENSOR_INIT, no_send, no_recv;
	reduction_stats stats = REDUCTION_STATS_INIT;
	struct called called = {.n = 0};
	reduction_request *q, *live;
	reduction_comm *c, *none;
	float x[4] = {1};
	void *p;
	int done;

	open_comm(r);
	c = r->comm;
	t.send = t.recv = x;
	t.count = 4;
	no_send = no_recv = t;
	no_send.send = NULL;
	no_recv.recv = NULL;
	EXPECT_RC(reduction_all_reduce_tensor_async(c, &t, &live, err), 0);
	NULLS("ret", reduction_open(NULL, &opt, err));
	NULLS("opt", reduction_open(&none, NULL, err));
	NULLS("comm", reduction_close(NULL, err));
	NULLS("comm", reduction_abort(NULL, "why", err));
	NULLS("comm", reduction_all_reduce(NULL, x, x, 4, type, sum, err));
	NULLS("send", reduction_all_reduce(c, NULL, x, 4, type, sum, err));
	NULLS("recv", reduction_all_reduce(c, x, NULL, 4, type, sum, err));
	NULLS("comm", reduction_all_reduce_async(NULL, x, x, 4, type, sum, "n", &q, err));
	NULLS("send", reduction_all_reduce_async(c, NULL, x, 4, type, sum, "n", &q, err));
	NULLS("recv", reduction_all_reduce_async(c, x, NULL, 4, type, sum, "n", &q, err));
	NULLS("ret", reduction_all_reduce_async(c, x, x, 4, type, sum, "n", NULL, err));
	NULLS("comm", reduction_all_reduce_tensor(NULL, &t, err));
	NULLS("tensor", reduction_all_reduce_tensor(c, NULL, err));
	NULLS("send", reduction_all_reduce_tensor(c, &no_send, err));
	NULLS("recv", reduction_all_reduce_tensor(c, &no_recv, err));
	NULLS("comm", reduction_all_reduce_tensor_async(NULL, &t, &q, err));
	NULLS("tensor", reduction_all_reduce_tensor_async(c, NULL, &q, err));
	NULLS("send", reduction_all_reduce_tensor_async(c, &no_send, &q, err));
	NULLS("ret", reduction_all_reduce_tensor_async(c, &t, NULL, err));
	NULLS("comm", reduction_all_reduce_group(NULL, &t, 1, err));
	NULLS("comm", reduction_all_reduce_group(NULL, NULL, 0, err));
	NULLS("tensors", reduction_all_reduce_group(c, NULL, 1, err));
	NULLS("tensor 0 of a group of 1: send", reduction_all_reduce_group(c, &no_send, 1, err));
	NULLS("comm", reduction_all_reduce_group_async(NULL, &t, 1, &q, err));
	NULLS("tensors", reduction_all_reduce_group_async(c, NULL, 1, &q, err));
	NULLS("ret", reduction_all_reduce_group_async(c, &t, 1, NULL, err));
	NULLS("comm", reduction_broadcast(NULL, x, 4, type, 0, err));
	NULLS("buf", reduction_broadcast(c, NULL, 4, type, 0, err));
	NULLS("comm", reduction_broadcast_async(NULL, x, 4, type, 0, "n", &q, err));
	NULLS("buf", reduction_broadcast_async(c, NULL, 4, type, 0, "n", &q, err));
	NULLS("ret", reduction_broadcast_async(c, x, 4, type, 0, "n", NULL, err));
	NULLS("comm", reduction_broadcast_tensor(NULL, &t, 0, err));
	NULLS("tensor", reduction_broadcast_tensor(c, NULL, 0, err));
	no_recv.send = NULL;
	NULLS("recv", reduction_broadcast_tensor(c, &no_recv, 0, err));
	NULLS("comm", reduction_broadcast_tensor_async(NULL, &t, 0, &q, err));
	NULLS("tensor", reduction_broadcast_tensor_async(c, NULL, 0, &q, err));
	NULLS("ret", reduction_broadcast_tensor_async(c, &t, 0, NULL, err));
	NULLS("comm", reduction_barrier(NULL, err));
	reduction_buffer_unmap(NULL, 4);
	note_call(&called, "reduction_buffer_unmap");
	NULLS("req", reduction_wait(NULL, 0, err));
	NULLS("req", reduction_stream_wait(NULL, 0, NULL, err));
	NULLS("req", reduction_test(NULL, &done, err));
	NULLS("done", reduction_test(live, NULL, err));
	NULLS("comm", reduction_buffer_alloc(NULL, 4, &p, err));
	NULLS("ret", reduction_buffer_alloc(c, 4, NULL, err));
	NULLS("comm", reduction_get_stats(NULL, &stats, err));
	NULLS("ret", reduction_get_stats(c, NULL, err));
	/* those that return no status */
	EXPECT(reduction_rank(NULL) == -1 && reduction_world_size(NULL) == -1 && reduction_priorities(NULL) == -1);
	reduction_buffer_free(NULL, x);
	reduction_buffer_free(c, NULL);
	EXPECT(reduction_version()[0] && reduction_status_text(77)[0]);
	for (unsigned i = 0; i < 6; i++)
		note_call(&called,
			  ((const char *[]){"reduction_rank", "reduction_world_size", "reduction_priorities",
					    "reduction_buffer_free", "reduction_version", "reduction_status_text"})[i]);
	expect_all_called(r, &called);
	/* what may be NULL: buffers of no elements, tensors of no group, names, err */
	EXPECT(reduction_all_reduce_async(c, NULL, NULL, 0, type, sum, NULL, &q, NULL) == 0);
	EXPECT(reduction_wait(q, -1, NULL) == 0);
	EXPECT(reduction_broadcast(c, NULL, 0, type, 0, NULL) == 0);
	EXPECT(reduction_all_reduce_group_async(c, NULL, 0, NULL, NULL) == 0);
	EXPECT_RC(reduction_wait(live, -1, err), 0);
	EXPECT(x[0] == (float)r->world);
	close_comm(r);
}

/* Programs that were compiled with another header. */
static void struct_sizes(struct rank *r)
{
	reduction_stats stats = REDUCTION_STATS_INIT;
	reduction_options opt = options(r);
	reduction_comm *c;

	opt.struct_size = offsetof(reduction_options, connect_timeout_ms);
	EXPECT_RC(reduction_open(&c, &opt, &r->err), REDUCTION_EINVAL);
	EXPECT(strstr(r->err.message, "use REDUCTION_OPTIONS_INIT"));
	opt.struct_size = sizeof opt + 1;
	EXPECT_RC(reduction_open(&c, &opt, &r->err), REDUCTION_EUNSUPPORTED);
	EXPECT(strstr(r->err.message, "compiled for a newer libreduction than the 0.1.0 that is loaded"));
	open_comm(r);
	stats.tx_bytes = 77;
	stats.struct_size--;
	EXPECT_RC(reduction_get_stats(r->comm, &stats, &r->err), REDUCTION_EINVAL);
	EXPECT(strstr(r->err.message, "use REDUCTION_STATS_INIT"));
	stats.struct_size = sizeof stats + 1;
	EXPECT_RC(reduction_get_stats(r->comm, &stats, &r->err), REDUCTION_EUNSUPPORTED);
	EXPECT(stats.tx_bytes == 77);
	stats.struct_size = sizeof stats;
	EXPECT_RC(reduction_barrier(r->comm, &r->err), 0);
	EXPECT_RC(reduction_get_stats(r->comm, &stats, &r->err), 0);
	EXPECT(stats.struct_size == sizeof stats && stats.ops_done == 1 && stats.tx_bytes != 77);
	close_comm(r);
}

/* Names and priorities of blocking operations and of broadcasts are compared like all others. */
static void tensor_calls(struct rank *r)
{
	enum { KINDS = 4 };
	static float x[64], other[64];
	char job[sizeof r->job];

	memcpy(job, r->job, sizeof job);
	for (unsigned kind = 0; kind < 3 * KINDS; kind++) {
		reduction_tensor t = REDUCTION_TENSOR_INIT;
		bool broadcast = kind % KINDS >= 2, blocking = kind % 2;
		reduction_request *req;
		int rc = 0;

		snprintf(r->job, sizeof r->job, "tensors.%u.%d", kind, (int)r->mode);
		open_comm(r);
		t.send = broadcast ? NULL : x;
		t.recv = x;
		t.count = 64;
		t.name = kind / KINDS == 1 && r->rank ? "b" : "a";
		t.priority = kind / KINDS == 2 ? r->rank : 1;
		for (int i = 0; i < 64; i++)
			x[i] = (float)element(r->rank, (size_t)i);
		if (blocking)
			rc = broadcast ? reduction_broadcast_tensor(r->comm, &t, 1, &r->err)
				       : reduction_all_reduce_tensor(r->comm, &t, &r->err);
		else if (broadcast)
			EXPECT_RC(reduction_broadcast_tensor_async(r->comm, &t, 1, &req, &r->err), 0);
		else
			EXPECT_RC(reduction_all_reduce_tensor_async(r->comm, &t, &req, &r->err), 0);
		if (!blocking)
			rc = reduction_wait(req, -1, &r->err);
		EXPECT_RC(rc, kind / KINDS ? REDUCTION_EMISMATCH : 0);
		EXPECT(kind / KINDS != 1 || strstr(r->err.message, "another name") ||
		       strstr(r->err.message, "calls it '"));
		EXPECT(kind / KINDS != 2 || strstr(r->err.message, "priority"));
		for (int i = 0; i < 64 && !rc; i++)
			EXPECT(x[i] == (broadcast ? (float)element(1, (size_t)i)
						  : (float)expected(REDUCTION_SUM, r->world, (size_t)i)));
		t.send = other;
		EXPECT(!broadcast || reduction_broadcast_tensor(r->comm, &t, 1, &r->err) == REDUCTION_EINVAL);
		close_comm(r);
		all_here(r);
	}
	memcpy(r->job, job, sizeof job);
}

static void arguments(struct rank *r)
{
	reduction_options opt = options(r);
	reduction_comm *c = NULL;
	float x[8] = {1};

	opt.struct_size = 0;
	EXPECT_RC(reduction_open(&c, &opt, &r->err), REDUCTION_EINVAL);
	opt = options(r);
	opt.rank = r->world;
	EXPECT_RC(reduction_open(&c, &opt, &r->err), REDUCTION_EINVAL);
	opt = options(r);
	opt.job = "no/job";
	EXPECT_RC(reduction_open(&c, &opt, &r->err), REDUCTION_EINVAL);
	opt = options(r);
	opt.config = "/nonexistent/file.yaml";
	EXPECT(reduction_open(&c, &opt, &r->err) < 0 && strstr(r->err.message, "/nonexistent/file.yaml"));
	EXPECT(c == NULL);

	open_comm(r);
	c = r->comm;
	EXPECT(reduction_rank(c) == r->rank && reduction_world_size(c) == r->world);
	EXPECT_RC(reduction_all_reduce(c, x, x + 2, 4, REDUCTION_FLOAT32, REDUCTION_SUM, &r->err), REDUCTION_EINVAL);
	EXPECT_RC(reduction_all_reduce(c, x + 2, x, 4, REDUCTION_FLOAT32, REDUCTION_SUM, &r->err), REDUCTION_EINVAL);
	EXPECT_RC(reduction_all_reduce(c, x, x, 1, (reduction_dtype)10, REDUCTION_SUM, &r->err), REDUCTION_EINVAL);
	EXPECT_RC(reduction_all_reduce(c, x, x, 1, REDUCTION_FLOAT32, (reduction_op)5, &r->err), REDUCTION_EINVAL);
	EXPECT_RC(reduction_all_reduce(c, x, x, SIZE_MAX / 2, REDUCTION_FLOAT32, REDUCTION_SUM, &r->err),
		  REDUCTION_EINVAL);
	EXPECT_RC(reduction_broadcast(c, x, 1, REDUCTION_FLOAT32, r->world, &r->err), REDUCTION_EINVAL);
	EXPECT_RC(reduction_broadcast(c, x, 1, REDUCTION_FLOAT32, -1, &r->err), REDUCTION_EINVAL);
	/* none of this did any harm; adjacent buffers do not overlap; err may be NULL */
	EXPECT(reduction_all_reduce(c, x, x + 4, 4, REDUCTION_FLOAT32, REDUCTION_SUM, NULL) == 0);
	EXPECT(x[4] == (float)r->world);
	close_comm(r);
	EXPECT(strcmp(reduction_version(), "0.1.0") == 0 && reduction_status_text(REDUCTION_EPEER)[0]);
}

static void mismatch(struct rank *r)
{
	float x[64] = {0};
	reduction_error first;

	open_comm(r);
	all_here(r);
	EXPECT_RC(
	    reduction_all_reduce(r->comm, x, x, r->rank == 1 ? 32 : 64, REDUCTION_FLOAT32, REDUCTION_SUM, &r->err),
	    REDUCTION_EMISMATCH);
	EXPECT(strstr(r->err.message, "rank 1") && strstr(r->err.message, "32") && strstr(r->err.message, "64"));
	first = r->err;
	EXPECT_RC(reduction_barrier(r->comm, &r->err), REDUCTION_EMISMATCH);
	EXPECT(strcmp(first.message, r->err.message) == 0);
	close_comm(r);
}

static void close_pending(struct rank *r)
{
	static float x[100000];
	reduction_request *req = NULL;

	open_comm(r);
	all_here(r);
	if (r->rank == 0) {
		EXPECT_RC(reduction_all_reduce_async(r->comm, x, x, 100000, REDUCTION_FLOAT32, REDUCTION_SUM, "g", &req,
						     &r->err),
			  0);
		close_comm(r);
		EXPECT_RC(reduction_wait(req, 0, &r->err), REDUCTION_ECLOSED);
		let_go(r);
		return;
	}
	wait_go(r);
	EXPECT_RC(reduction_all_reduce(r->comm, x, x, 100000, REDUCTION_FLOAT32, REDUCTION_SUM, &r->err),
		  REDUCTION_ECLOSED);
	EXPECT(strstr(r->err.message, "rank 0"));
	close_comm(r);
}

static void missing_rank(struct rank *r)
{
	reduction_options opt = options(r);

	if (r->rank == 1)
		return;
	opt.connect_timeout_ms = 2500;
	EXPECT_RC(reduction_open(&r->comm, &opt, &r->err), REDUCTION_ETIMEOUT);
	/* the other one may have given up before, and is missing then as well */
	EXPECT(strstr(r->err.message,
		      r->rank ? "ranks 0 and 1 of 3 have not joined" : "ranks 1 and 2 of 3 have not joined") ||
	       strstr(r->err.message, "rank 1 of 3 has not joined"));
	EXPECT(strstr(r->err.message, " joined job missing_rank.3 within 2500 ms"));
}

/* A port that was free a moment ago. */
static void no_reducer(struct rank *r)
{
	reduction_options opt = options(r);
	char path[] = "/tmp/reduction-capi-XXXXXX";
	int fd = mkstemp(path);

	EXPECT(fd >= 0);
	dprintf(fd, "reducers:\n  - {id: gone, address: \"127.0.0.1:1\"}\n  - {id: name, address: \"localhost:1\"}\n");
	close(fd);
	opt.config = path;
	opt.connect_timeout_ms = 2000;
	EXPECT_RC(reduction_open(&r->comm, &opt, &r->err), REDUCTION_ETIMEOUT);
	unlink(path);
	EXPECT(strstr(r->err.message, "reducer gone at 127.0.0.1:1: connection refused (tried "));
	EXPECT(strstr(r->err.message, "reducer name at localhost:1: "));
}

static void duplicate_rank(struct rank *r)
{
	reduction_options opt = options(r);
	reduction_comm *second;

	open_comm(r);
	EXPECT_RC(reduction_open(&second, &opt, &r->err), REDUCTION_EREFUSED);
	EXPECT(strstr(r->err.message, "rank 0 of job duplicate_rank.1, generation 0, is already open in this process"));
	EXPECT_RC(reduction_barrier(r->comm, &r->err), 0);
	close_comm(r);
}

static const struct scenario scenarios[] = {
    {"floats", 1, floats, -1, 0},
    {"floats", 2, floats, -1, 0},
    {"floats", 4, floats, -1, 0},
    {"many_async", 1, many_async, -1, 0},
    {"many_async", 4, many_async, -1, 0},
    {"groups", 4, groups, -1, 0},
    {"group_arguments", 1, group_arguments, -1, 0},
    {"priorities", 2, priorities, -1, 0},
    {"close_pending_group", 2, close_pending_group, -1, 0},
    {"timeouts", 3, timeouts, -1, 0},
    {"broadcasts", 4, broadcasts, -1, 0},
    {"buffers", 2, buffers, -1, 0},
    {"arguments", 2, arguments, -1, 0},
    {"null_arguments", 1, null_arguments, -1, ALSO_AGENT | ALSO_NODE},
    {"struct_sizes", 1, struct_sizes, -1, ALSO_AGENT},
    {"tensor_calls", 2, tensor_calls, -1, ALSO_AGENT | ALSO_NODE},
    {"mismatch", 3, mismatch, -1, 0},
    {"close_pending", 3, close_pending, -1, 0},
    {"missing_rank", 3, missing_rank, -1, 0},
    {"no_reducer", 1, no_reducer, -1, 0},
    {"duplicate_rank", 1, duplicate_rank, -1, 0},
};

int main(int argc, char **argv)
{
	return run_scenarios(scenarios, sizeof scenarios / sizeof *scenarios, argc, argv);
}
