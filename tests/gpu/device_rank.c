/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of the part device: a process with buffers on GPU 0, which other ranks use
 * too. */
#include "agent/lib/include/reduction.h"
#include "tests/gpu/cuda.h"
#include "tests/gpu/device_case.h"
#include "tests/gpu/proc.h"
#include "tests/gpu/values.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIMIT_MS = 60000, WARM_UP = 2 };

/* A rank. Invariant: send and recv are `bytes` of the GPU's memory, host is as long. */
struct rank {
	int rank, ranks;
	struct cuda cuda;
	reduction_comm *comm;
	reduction_error err;
	void *stream;
	uint64_t send, recv;
	uint8_t *host;
	size_t bytes;
};

static void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
static void fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
	fflush(stdout);
	_Exit(1);
}

static void must(int rc, const char *what)
{
	if (rc)
		fail("%s returned %d", what, rc);
}

/* The same for a call of libreduction. */
static void done(const struct rank *r, int rc)
{
	if (rc)
		fail("rank %d: %s", r->rank, r->err.message);
}

static void *address(uint64_t of_gpu)
{
	return (void *)(uintptr_t)of_gpu;
}

static void open_rank(struct rank *r, size_t bytes)
{
	reduction_options opt = REDUCTION_OPTIONS_INIT;
	char why[512];
	void *context;

	*r = (struct rank){.bytes = bytes};
	if (!cuda_open(&r->cuda, why, sizeof why))
		fail("%s", why);
	must(r->cuda.DevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
	must(r->cuda.CtxSetCurrent(context), "cuCtxSetCurrent");
	must(r->cuda.StreamCreate(&r->stream, 1), "cuStreamCreate");
	must(r->cuda.MemAlloc(&r->send, bytes), "cuMemAlloc");
	must(r->cuda.MemAlloc(&r->recv, bytes), "cuMemAlloc");
	r->host = malloc(bytes);
	if (!r->host)
		fail("out of memory");
	done(r, reduction_open(&r->comm, &opt, &r->err));
	r->rank = reduction_rank(r->comm);
	r->ranks = reduction_world_size(r->comm);
}

static void close_rank(struct rank *r)
{
	done(r, reduction_close(r->comm, &r->err));
	must(r->cuda.MemFree(r->send), "cuMemFree");
	must(r->cuda.MemFree(r->recv), "cuMemFree");
	free(r->host);
}

static reduction_tensor tensor(struct rank *r, uint64_t send, uint64_t recv, size_t count, int dtype, int op)
{
	reduction_tensor t = REDUCTION_TENSOR_INIT;

	t.send = address(send);
	t.recv = address(recv);
	t.count = count;
	t.dtype = dtype;
	t.op = op;
	t.device = 0;
	t.stream = r->stream;
	return t;
}

/* Waits for a request, with a limit. */
static void wait_request(struct rank *r, reduction_request *req)
{
	done(r, reduction_wait(req, LIMIT_MS, &r->err));
}

/* Checks one all-reduce, in place or not. */
static void one(struct rank *r, size_t count, int dtype, int op, bool in_place)
{
	uint64_t recv = in_place ? r->send : r->recv;
	reduction_tensor t = tensor(r, r->send, recv, count, dtype, op);
	size_t bytes = count * value_types[dtype].bytes;
	reduction_request *req;
	double largest = 0;
	char why[300];

	values_fill(r->host, count, dtype, op, r->rank);
	must(cuda_put(&r->cuda, r->send, r->host, bytes), "cuMemcpyHtoD");
	done(r, reduction_all_reduce_tensor_async(r->comm, &t, &req, &r->err));
	wait_request(r, req);
	must(r->cuda.MemcpyDtoH(r->host, recv, bytes), "cuMemcpyDtoH");
	if (!values_check(r->host, count, dtype, op, r->ranks, &largest, why, sizeof why))
		fail("rank %d: %s", r->rank, why);
}

/* All types and operations, and all powers of four of bytes. */
static void run_results(const struct device_case *c)
{
	static const size_t counts[] = {1, 1000, 65537};
	struct rank r;
	bool in_place = false;

	open_rank(&r, c->most < 65537 * sizeof(double) ? 65537 * sizeof(double) : c->most);
	for (int dtype = 0; dtype < VALUES_TYPES; dtype++)
		for (int op = 0; op < VALUES_OPS; op++)
			for (unsigned i = 0; i < sizeof counts / sizeof *counts; i++)
				one(&r, counts[i], dtype, op, in_place = !in_place);
	one(&r, 1, REDUCTION_UINT8, REDUCTION_SUM, true);
	for (size_t bytes = 4; bytes <= c->most; bytes *= 4)
		one(&r, bytes / sizeof(float), REDUCTION_FLOAT32, REDUCTION_SUM, in_place = !in_place);
	one(&r, c->most / sizeof(float) - 1, REDUCTION_FLOAT32, REDUCTION_SUM, true);
	close_rank(&r);
}

/* Work before the call is waited for, and after the wait any stream finds the result. */
static void run_streams(const struct device_case *c)
{
	struct rank r;
	float *got;
	size_t n = c->most / sizeof *got;

	open_rank(&r, c->most);
	got = (float *)(void *)r.host;
	for (unsigned round = 0; round < c->rounds; round++) {
		float own = (float)((unsigned)r.rank + round), want = 0;
		reduction_tensor t = tensor(&r, r.send, r.recv, n, REDUCTION_FLOAT32, REDUCTION_SUM);
		reduction_request *req;
		unsigned bits;

		memcpy(&bits, &own, sizeof bits);
		must(r.cuda.MemsetD32Async(r.send, bits, n, r.stream), "cuMemsetD32Async");
		done(&r, reduction_all_reduce_tensor_async(r.comm, &t, &req, &r.err));
		wait_request(&r, req);
		must(r.cuda.MemcpyDtoH(got, r.recv, n * sizeof *got), "cuMemcpyDtoH");
		for (int k = 0; k < r.ranks; k++)
			want += (float)((unsigned)k + round);
		for (size_t i = 0; i < n; i++)
			if (got[i] != want)
				fail("rank %d: element %zu of %zu: %g was expected, found %g", r.rank, i, n, want,
				     got[i]);
	}
	close_rank(&r);
}

static int order(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Prints the median of what rank 0 has measured. */
static void say_median(const struct rank *r, const char *name, double *took, unsigned n)
{
	qsort(took, n, sizeof *took, order);
	if (r->rank == 0)
		printf("%s %.9f\n", name, took[n / 2]);
}

/* Returns room for a measurement. */
static double *times(unsigned n)
{
	double *took = calloc(n + 1, sizeof *took);

	if (!took)
		fail("out of memory");
	return took;
}

/* How long does the asynchronous call take? */
static void run_call(const struct device_case *c)
{
	double *took = times(c->rounds);
	struct rank r;

	open_rank(&r, c->most);
	for (unsigned i = 0; i < WARM_UP + c->rounds; i++) {
		reduction_tensor t =
		    tensor(&r, r.send, r.recv, c->most / sizeof(float), REDUCTION_FLOAT32, REDUCTION_SUM);
		reduction_request *req;
		double began = proc_now_s();

		done(&r, reduction_all_reduce_tensor_async(r.comm, &t, &req, &r.err));
		if (i >= WARM_UP)
			took[i - WARM_UP] = proc_now_s() - began;
		wait_request(&r, req);
	}
	say_median(&r, "call", took, c->rounds);
	close_rank(&r);
	free(took);
}

enum way { WAY_HOST, WAY_DEVICE, WAY_WHOLE, WAYS };

/* An all-reduce of `shared` memory; of the GPU's; or of the GPU's by way of a copy in the
 * process's own memory. */
static void go(struct rank *r, enum way way, void *shared, size_t count)
{
	reduction_tensor t = tensor(r, r->send, r->recv, count, REDUCTION_FLOAT32, REDUCTION_SUM);
	size_t bytes = count * sizeof(float);

	if (way == WAY_DEVICE) {
		done(r, reduction_all_reduce_tensor(r->comm, &t, &r->err));
		return;
	}
	if (way == WAY_HOST) {
		done(r,
		     reduction_all_reduce(r->comm, shared, shared, count, REDUCTION_FLOAT32, REDUCTION_SUM, &r->err));
		return;
	}
	must(r->cuda.MemcpyDtoH(r->host, r->send, bytes), "cuMemcpyDtoH");
	done(r, reduction_all_reduce(r->comm, r->host, r->host, count, REDUCTION_FLOAT32, REDUCTION_SUM, &r->err));
	must(cuda_put(&r->cuda, r->recv, r->host, bytes), "cuMemcpyHtoD");
}

/* The three ways in turn. */
static void run_speed(const struct device_case *c)
{
	static const char *const names[WAYS] = {"host", "device", "whole"};
	size_t count = c->most / sizeof(float);
	double *took[WAYS];
	void *shared;
	struct rank r;

	open_rank(&r, c->most);
	done(&r, reduction_buffer_alloc(r.comm, c->most, &shared, &r.err));
	memset(r.host, 0, c->most);
	must(cuda_put(&r.cuda, r.send, r.host, c->most), "cuMemcpyHtoD");
	for (int way = 0; way < WAYS; way++)
		took[way] = times(c->rounds);
	for (unsigned i = 0; i < WARM_UP + c->rounds; i++)
		for (int way = 0; way < WAYS; way++) {
			double began;

			done(&r, reduction_barrier(r.comm, &r.err));
			began = proc_now_s();
			go(&r, way, shared, count);
			if (i >= WARM_UP)
				took[way][i - WARM_UP] = proc_now_s() - began;
		}
	for (int way = 0; way < WAYS; way++) {
		say_median(&r, names[way], took[way], c->rounds);
		free(took[way]);
	}
	reduction_buffer_free(r.comm, shared);
	close_rank(&r);
}

/* Operations that libreduction records, if the environment says so. */
static void run_timeline(const struct device_case *c)
{
	struct rank r;

	open_rank(&r, c->most);
	for (unsigned i = 0; i < WARM_UP + c->rounds; i++)
		go(&r, WAY_DEVICE, NULL, c->most / sizeof(float));
	close_rank(&r);
}

int device_case_run(const struct device_case *c)
{
	static const struct {
		const char *name;
		void (*run)(const struct device_case *c);
	} cases[] = {{"results", run_results},
		     {"streams", run_streams},
		     {"call", run_call},
		     {"speed", run_speed},
		     {"timeline", run_timeline}};

	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++)
		if (strcmp(cases[i].name, c->name) == 0) {
			cases[i].run(c);
			return 0;
		}
	fprintf(stderr, "gpu-device: there is no case %s\n", c->name);
	return 2;
}
