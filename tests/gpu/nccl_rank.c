/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of the part nccl: a process with a GPU, which other ranks may use too. */
#include "tests/gpu/cuda.h"
#include "tests/gpu/nccl_case.h"
#include "tests/gpu/proc.h"
#include "tests/gpu/values.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { RANK_LIMIT_S = 60, OPS_N = 4, SUM = 0 }; /* the first operations of VALUES_OPS */

/* A rank. Invariant: send and recv are `bytes` of the GPU's memory, host is as long. */
struct rank {
	int rank, ranks;
	struct case_shared *s;
	struct cuda cuda;
	struct nccl nccl;
	void *comm, *stream;
	uint64_t send, recv;
	uint8_t *host;
	size_t bytes;
};

static void fail(struct rank *r, const char *format, ...) __attribute__((format(printf, 2, 3), noreturn));
static void fail(struct rank *r, const char *format, ...)
{
	char text[400];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	if (atomic_fetch_add(&r->s->failed, 1) == 0)
		snprintf(r->s->why, sizeof r->s->why, "rank %d: %s", r->rank, text);
	fprintf(stderr, "rank %d: %s\n", r->rank, text);
	_exit(1);
}

static void must(struct rank *r, int rc, const char *what)
{
	if (rc)
		fail(r, "%s returned %d", what, rc);
}

static void barrier(struct rank *r)
{
	unsigned n = (unsigned)r->ranks, all = (atomic_fetch_add(&r->s->arrived, 1) / n + 1) * n;
	double until = proc_now_s() + RANK_LIMIT_S;

	while (atomic_load(&r->s->arrived) < all) {
		if (proc_now_s() > until)
			fail(r, "the other ranks did not come to a barrier within %d s", RANK_LIMIT_S);
		proc_sleep(0.0005);
	}
}

static void open_rank(struct rank *r)
{
	char why[512];
	void *context;

	if (!cuda_open(&r->cuda, why, sizeof why) || !nccl_open(&r->nccl, why, sizeof why))
		fail(r, "%s", why);
	must(r, r->cuda.DevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
	must(r, r->cuda.CtxSetCurrent(context), "cuCtxSetCurrent");
	must(r, r->cuda.StreamCreate(&r->stream, 1), "cuStreamCreate");
	must(r, r->cuda.MemAlloc(&r->send, r->bytes), "cuMemAlloc");
	must(r, r->cuda.MemAlloc(&r->recv, r->bytes), "cuMemAlloc");
	r->host = malloc(r->bytes);
	if (!r->host)
		fail(r, "out of memory");
	if (r->rank == 0) {
		must(r, r->nccl.GetUniqueId(&r->s->id), "ncclGetUniqueId");
		atomic_store(&r->s->has_id, 1);
	}
	while (!atomic_load(&r->s->has_id))
		proc_sleep(0.001);
	must(r, r->nccl.CommInitRank(&r->comm, r->ranks, r->s->id, r->rank), "ncclCommInitRank");
}

static void close_rank(struct rank *r)
{
	must(r, r->nccl.CommDestroy(r->comm), "ncclCommDestroy");
	r->cuda.MemFree(r->send);
	r->cuda.MemFree(r->recv);
	free(r->host);
}

/* Waits for the stream. Returns NCCL's asynchronous error, 0 if there is none. */
static int finish(struct rank *r)
{
	double until = proc_now_s() + RANK_LIMIT_S;
	int rc, error = 0;

	while ((rc = r->cuda.StreamQuery(r->stream)) == CUDA_NOT_READY) {
		must(r, r->nccl.CommGetAsyncError(r->comm, &error), "ncclCommGetAsyncError");
		if (error && error != NCCL_IN_PROGRESS)
			return error;
		if (proc_now_s() > until)
			fail(r, "an all-reduce did not end within %d s", RANK_LIMIT_S);
		proc_sleep(0.0001);
	}
	must(r, rc, "cuStreamQuery");
	return 0;
}

static void reduce(struct rank *r, size_t count, int type, int op)
{
	must(r,
	     r->nccl.AllReduce((const void *)(uintptr_t)r->send, (void *)(uintptr_t)r->recv, count, type, op, r->comm,
			       r->stream),
	     "ncclAllReduce");
}

/* Compares the result. An int8 sum may wrap in no case, because the values are small. */
static void check(struct rank *r, size_t count, int type, int op)
{
	char why[256];
	double largest = 0;

	must(r, r->cuda.MemcpyDtoH(r->host, r->recv, count * value_types[type].bytes), "cuMemcpyDtoH");
	if (!values_check(r->host, count, type, op, r->ranks, &largest, why, sizeof why))
		fail(r, "%s", why);
	if (r->rank == 0 && largest > r->s->largest)
		r->s->largest = largest;
}

static void fill(struct rank *r, size_t count, int type, int op)
{
	values_fill(r->host, count, type, op, r->rank);
	must(r, cuda_put(&r->cuda, r->send, r->host, count * value_types[type].bytes), "cuMemcpyHtoD");
}

static void one(struct rank *r, size_t count, int type, int op)
{
	int error;

	fill(r, count, type, op);
	reduce(r, count, type, op);
	error = finish(r);
	if (error)
		fail(r, "NCCL's asynchronous error is %d", error);
	check(r, count, type, op);
}

/* All types and operations, with sizes around those of NCCL's chunks. */
static void run_sums(struct rank *r)
{
	static const size_t counts[] = {1, 1000, 65537};

	open_rank(r);
	for (int type = 0; type < VALUES_TYPES; type++)
		for (int op = 0; op < OPS_N; op++)
			for (unsigned c = 0; c < sizeof counts / sizeof *counts; c++)
				one(r, counts[c], type, op);
	one(r, r->bytes / 4, 7, SUM);
	one(r, r->bytes / 4, 2, SUM);
	close_rank(r);
}

/* Many all-reduces, several of them queued on the stream; each is checked. */
static void run_many(struct rank *r, unsigned ops)
{
	enum { QUEUED = 8 };

	open_rank(r);
	for (unsigned k = 0; k < ops; k += QUEUED) {
		size_t count = 256 + value_mixed(k, 1, 2) % 32768;
		int error;

		fill(r, count, 2, SUM);
		for (unsigned q = 0; q < QUEUED && k + q < ops; q++)
			reduce(r, count, 2, SUM);
		error = finish(r);
		if (error)
			fail(r, "after %u operations NCCL's asynchronous error is %d", k, error);
		check(r, count, 2, SUM);
		if (r->rank == 0)
			atomic_store(&r->s->done, k + QUEUED);
	}
	close_rank(r);
}

/* Rank 1 calls no all-reduce; rank 0 aborts its own, and the others get an error. */
static void run_aborts(struct rank *r)
{
	double began;

	open_rank(r);
	one(r, 1000, 7, SUM);
	barrier(r);
	if (r->rank != 1)
		reduce(r, r->bytes / 4, 7, SUM);
	barrier(r);
	if (r->rank > 1 && !finish(r))
		fail(r, "an all-reduce without rank 1 succeeded");
	began = proc_now_s();
	if (r->rank != 1)
		must(r, r->nccl.CommAbort(r->comm), "ncclCommAbort");
	if (r->rank == 0)
		r->s->result = proc_now_s() - began;
	barrier(r);
	if (r->rank == 1)
		must(r, r->nccl.CommAbort(r->comm), "ncclCommAbort");
}

/* The median of some all-reduces. */
static void run_speed(struct rank *r)
{
	enum { RUNS = 5 };
	double took[RUNS], began;

	open_rank(r);
	one(r, r->bytes / 4, 7, SUM);
	for (int k = 0; k < RUNS; k++) {
		int error, at = k;

		barrier(r);
		began = proc_now_s();
		reduce(r, r->bytes / 4, 7, SUM);
		error = finish(r);
		if (error)
			fail(r, "NCCL's asynchronous error is %d", error);
		for (took[k] = proc_now_s() - began; at > 0 && took[at] < took[at - 1]; at--) {
			double t = took[at];

			took[at] = took[at - 1];
			took[at - 1] = t;
		}
	}
	if (r->rank == 0)
		r->s->result = (double)r->bytes / took[RUNS / 2];
	close_rank(r);
}

int case_run(const char *name, const char *shared, int rank, int ranks, size_t bytes, unsigned ops)
{
	int fd = open(shared, O_RDWR | O_CLOEXEC);
	struct rank r = {.rank = rank, .ranks = ranks, .bytes = bytes};

	r.s = mmap(NULL, sizeof *r.s, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (r.s == MAP_FAILED)
		return 1;
	close(fd);
	if (strcmp(name, "sums") == 0)
		run_sums(&r);
	else if (strcmp(name, "many") == 0)
		run_many(&r, ops);
	else if (strcmp(name, "aborts") == 0)
		run_aborts(&r);
	else
		run_speed(&r);
	return 0;
}
