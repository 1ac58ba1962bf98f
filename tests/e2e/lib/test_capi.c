/* SPDX-License-Identifier: Apache-2.0 */
/* run: beside-others */
/* The operations of the C API, with real reducers; see ranks.h. test_capi_arguments.c and
 * test_capi_ends.c have errors, test_wait.c threads that wait at the same time. */
#include "tests/e2e/ranks.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* More operations than job.max_ops, of mixed sizes, waited for from the last to the
 * first. */
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

/* Tensors of a group take less of the wire than operations of their own do; a large one
 * goes along. */
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

/* Names and priorities of blocking operations and of broadcasts are compared like all
 * others. */
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

static const struct scenario scenarios[] = {
    {"floats", 1, floats, -1, 0},
    {"floats", 2, floats, -1, 0},
    {"floats", 4, floats, -1, 0},
    {"many_async", 1, many_async, -1, 0},
    {"many_async", 4, many_async, -1, 0},
    {"groups", 4, groups, -1, 0},
    {"priorities", 2, priorities, -1, 0},
    {"timeouts", 3, timeouts, -1, 0},
    {"broadcasts", 4, broadcasts, -1, 0},
    {"buffers", 2, buffers, -1, 0},
    {"tensor_calls", 2, tensor_calls, -1, ALSO_AGENT | ALSO_NODE},
};

int main(int argc, char **argv)
{
	return run_scenarios(scenarios, sizeof scenarios / sizeof *scenarios, argc, argv);
}
