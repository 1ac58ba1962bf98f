/* SPDX-License-Identifier: Apache-2.0 */
/* reduction-bench: all-reduce performance over a range of sizes, in the format of
 * nccl-tests. */
#include "bench/bench.h"

#include "agent/lib/include/reduction.h"
#include "common/descriptors.h"
#include "proto/operation.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* One rank's measurement. Invariant: reqs[i] is NULL unless its operation is in
 * progress. */
struct run {
	const struct bench_options *o;
	reduction_comm *comm;
	int rank, world;
	void **send, **recv; /* in_flight buffers each; recv is NULL if only in-place operations are timed */
	reduction_request **reqs;
	unsigned reqs_n;
	reduction_tensor *tensors; /* o->tensors: parts of the one buffer */
	void *large;               /* o->behind: buffer of the operation in flight */
	reduction_request *before; /* and its request */
	double *us;                /* one for each iteration */
	struct bench_pattern pattern;
	bool encoded;        /* sums and averages of this dtype are rounded on the network */
	reduction_error err; /* of the call that failed */
	double started_s, shown_s;
	double busbw_sum[2];
	uint64_t rows, wrong;
	bool tty;
};

static double now_s(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void progress(struct run *r, const struct bench_row *row, bool in_place, unsigned i)
{
	double now = now_s();
	if (!r->tty || now - r->started_s < 1 || now - r->shown_s < 0.2)
		return;
	r->shown_s = now;
	fprintf(stderr, "\r\033[K%llu bytes %s %s %s: iteration %u of %u, %.0f s", (unsigned long long)row->bytes,
		rs_dtype_name(row->dtype), rs_op_name(row->op), in_place ? "in place" : "out of place", i + 1,
		r->o->warmup + r->o->iters, now - r->started_s);
}

static void progress_clear(struct run *r)
{
	if (r->tty && r->shown_s > 0)
		fprintf(stderr, "\r\033[K");
}

/* Cuts the buffer into the tensors of the row. */
static void cut(struct run *r, const struct bench_row *row, bool in_place)
{
	unsigned n = r->o->tensors;
	for (unsigned i = 0; i < n; i++) {
		reduction_tensor *t = &r->tensors[i];
		*t = (reduction_tensor)REDUCTION_TENSOR_INIT;
		t->send = (char *)r->send[0] + row->bytes / n * i;
		t->recv = (char *)(in_place ? r->send : r->recv)[0] + row->bytes / n * i;
		t->count = row->count / n;
		t->dtype = (reduction_dtype)row->dtype;
		t->op = (reduction_op)row->op;
	}
}

/* Starts the operations of one iteration; *ret_n is the number of requests. */
static int start(struct run *r, const struct bench_row *row, bool in_place, unsigned *ret_n)
{
	bool parts = row->way == WAY_SEPARATE || row->way == WAY_GROUPED;
	int rc = 0;
	*ret_n = parts ? r->o->tensors : r->o->in_flight;
	if (parts)
		cut(r, row, in_place);
	if (row->way == WAY_GROUPED)
		return reduction_all_reduce_group_async(r->comm, r->tensors, *ret_n, r->reqs, &r->err);
	for (unsigned i = 0; i < *ret_n && !rc; i++) {
		const void *send = parts ? r->tensors[i].send : r->send[i];
		void *recv = parts ? r->tensors[i].recv : (in_place ? r->send : r->recv)[i];
		rc = reduction_all_reduce_async(r->comm, send, recv, parts ? r->tensors[i].count : row->count,
						(reduction_dtype)row->dtype, (reduction_op)row->op, NULL, &r->reqs[i],
						&r->err);
	}
	return rc;
}

static int wait_for(struct run *r, reduction_request **req, uint64_t bytes)
{
	int rc = reduction_wait(*req, r->o->timeout_ms, &r->err);
	if (rc != REDUCTION_ETIMEOUT)
		*req = NULL;
	else
		snprintf(r->err.message, sizeof(r->err.message), "an all-reduce of %llu bytes was not done within %g s",
			 (unsigned long long)bytes, r->o->timeout_ms / 1000.0);
	return rc;
}

/* Starts the large operation, if this row has one, and then the timed one. */
static int start_behind(struct run *r, const struct bench_row *row, bool in_place, double *ret_started)
{
	reduction_tensor t = REDUCTION_TENSOR_INIT;
	int rc = 0;
	t.send = t.recv = r->large;
	t.count = r->o->behind / 4;
	t.priority = 0;
	if (row->way != WAY_ALONE)
		rc = reduction_all_reduce_tensor_async(r->comm, &t, &r->before, &r->err);
	t.send = r->send[0];
	t.recv = in_place ? r->send[0] : r->recv[0];
	t.count = row->count;
	t.dtype = (reduction_dtype)row->dtype;
	t.op = (reduction_op)row->op;
	if (row->way == WAY_URGENT)
		t.priority = reduction_priorities(r->comm) - 1;
	*ret_started = now_s();
	return rc ? rc : reduction_all_reduce_tensor_async(r->comm, &t, &r->reqs[0], &r->err);
}

/* Runs one iteration: starts all operations and waits for all. 0, or -1 with r->err set.
 * *ret_s: its time, without the large operation. */
static int iterate(struct run *r, const struct bench_row *row, bool in_place, double *ret_s)
{
	double started = now_s();
	unsigned n = 1;
	int rc = r->o->behind ? start_behind(r, row, in_place, &started) : start(r, row, in_place, &n);
	for (unsigned i = 0; i < n && !rc; i++)
		rc = wait_for(r, &r->reqs[i], row->bytes);
	*ret_s = now_s() - started;
	if (!rc && r->before)
		rc = wait_for(r, &r->before, r->o->behind);
	return rc ? -1 : 0;
}

static void fill(struct run *r, const struct bench_row *row)
{
	for (unsigned i = 0; i < r->o->in_flight; i++) {
		bench_pattern_fill(&r->pattern, r->send[i], row->count);
		if (r->recv)
			memset(r->recv[i], 0xa5, row->bytes);
	}
}

static uint64_t count_wrong(const struct run *r, const struct bench_row *row, bool in_place)
{
	uint64_t wrong = 0;
	for (unsigned i = 0; i < r->o->in_flight; i++)
		wrong += bench_pattern_wrong(&r->pattern, in_place ? r->send[i] : r->recv[i], row->count);
	return wrong;
}

/* Checks the result. Out of place it is that of the last timed iteration. In place the
 * data has been summed repeatedly by then, so one more iteration runs on fresh data. */
static int check(struct run *r, const struct bench_row *row, bool in_place, uint64_t *ret_wrong)
{
	double seconds;
	if (in_place) {
		fill(r, row);
		if (iterate(r, row, true, &seconds))
			return -1;
	}
	uint64_t wrong = count_wrong(r, row, in_place);
	if (reduction_all_reduce(r->comm, &wrong, &wrong, 1, REDUCTION_UINT64, REDUCTION_SUM, &r->err))
		return -1;
	*ret_wrong = wrong;
	return 0;
}

static int measure(struct run *r, struct bench_row *row, bool in_place)
{
	struct bench_times *t = &row->times[in_place];
	const struct bench_options *o = r->o;

	/* so that no rank sends an infinity, which would be reported */
	unsigned lasts = in_place ? bench_pattern_lasts(row->dtype, row->op, r->world) : UINT_MAX;
	reduction_stats before = REDUCTION_STATS_INIT, after = before;
	fill(r, row);
	if (reduction_barrier(r->comm, &r->err) || reduction_get_stats(r->comm, &before, &r->err))
		return -1;
	for (unsigned i = 0; i < o->warmup + o->iters; i++) {
		double seconds;
		if (i > 0 && i % lasts == 0) {
			fill(r, row);
			if (reduction_barrier(r->comm, &r->err))
				return -1;
		}
		if (iterate(r, row, in_place, &seconds))
			return -1;
		if (i >= o->warmup)
			r->us[i - o->warmup] = seconds * 1e6 / o->in_flight;
		progress(r, row, in_place, i);
	}
	if (reduction_get_stats(r->comm, &after, &r->err))
		return -1;
	row->sent = (after.tx_bytes - before.tx_bytes) / (o->warmup + o->iters);
	/* an iteration takes as long as its slowest rank */
	if (reduction_all_reduce(r->comm, r->us, r->us, o->iters, REDUCTION_FLOAT64, REDUCTION_MAX, &r->err))
		return -1;
	bench_times_of(t, r->us, o->iters);
	t->wrong = UINT64_MAX;
	if (o->check && check(r, row, in_place, &t->wrong))
		return -1;
	if (o->check)
		r->wrong += t->wrong;
	r->busbw_sum[in_place] += t->avg > 0 ? (double)row->bytes / t->avg / 1e3 * 2 * (r->world - 1) / r->world : 0;
	row->has[in_place] = true;
	return 0;
}

static int run_row(struct run *r, struct bench_row *row)
{
	(r->encoded && (row->op == RS_SUM || row->op == RS_AVG) ? bench_pattern_init_near : bench_pattern_init)(
	    &r->pattern, row->dtype, row->op, r->rank, r->world);
	if ((r->o->place & PLACE_OUT) && measure(r, row, false))
		return -1;
	if ((r->o->place & PLACE_IN) && measure(r, row, true))
		return -1;
	r->rows++;
	if (r->rank == 0) {
		progress_clear(r);
		bench_print_row(r->o, row);
	}
	return 0;
}

/* Measures one row, or with --tensors or --behind one row for each way. */
static int run_size(struct run *r, enum rs_dtype dtype, enum rs_op op, uint64_t bytes)
{
	unsigned n = r->o->tensors;
	int first = n ? WAY_SEPARATE : r->o->behind ? WAY_ALONE : WAY_PLAIN;
	int last = n ? WAY_SINGLE : r->o->behind ? WAY_URGENT : WAY_PLAIN;
	for (int way = first; way <= last; way++) {
		struct bench_row row = {.dtype = dtype, .op = op, .ranks = r->world, .way = (enum bench_way)way};
		row.count = bytes / rs_dtype_size(dtype) * (n ? n : 1);
		row.bytes = row.count * rs_dtype_size(dtype);
		if (run_row(r, &row))
			return -1;
	}
	return 0;
}

/* Finds out whether the job encodes sums of the dtype. The word may be in the agent's
 * file, so an all-reduce tells: its elements need more bits than an encoding has. It is
 * larger than the small operations, which the job sends as they are. */
static int probe(struct run *r, enum rs_dtype dtype)
{
	enum { VALUES = 128 }; /* bfloat16 has 128 values of one exponent */
	const size_t elem = rs_dtype_size(dtype), count = OPERATION_SMALL / elem + VALUES;
	char *sum, *expected;
	int rc = -1;

	r->encoded = false;
	if (!r->o->check || (dtype != RS_FLOAT32 && dtype != RS_FLOAT16 && dtype != RS_BFLOAT16))
		return 0;
	sum = calloc(2 * count, elem);
	if (!sum) {
		snprintf(r->err.message, sizeof(r->err.message), "out of memory");
		return -1;
	}
	expected = sum + count * elem;
	for (size_t i = 0; i < count; i++)
		bench_store(expected + i * elem, dtype,
			    dtype == RS_FLOAT32 ? (1 << 23) + 2 * (long)i + 1 : VALUES + (long)i % VALUES);
	if (r->rank == 0)
		memcpy(sum, expected, count * elem);
	if (!reduction_all_reduce(r->comm, sum, sum, count, (reduction_dtype)dtype, REDUCTION_SUM, &r->err)) {
		r->encoded = memcmp(sum, expected, count * elem) != 0;
		rc = 0;
	}
	free(sum);
	if (r->encoded && r->rank == 0 && !r->o->json)
		printf("# sums of %s are encoded: an element is wrong if it differs by more than %g from -1, 0 or 1\n",
		       rs_dtype_name(dtype), (double)BENCH_NEAR);
	return rc;
}

static int run_rows(struct run *r)
{
	const struct bench_options *o = r->o;
	for (unsigned dtype = 0; dtype < RS_DTYPE_NR; dtype++) {
		if ((o->dtypes >> dtype & 1) && probe(r, (enum rs_dtype)dtype))
			return -1;
		for (unsigned op = 0; op < RS_OP_NR; op++) {
			if (!(o->dtypes >> dtype & 1) || !(o->ops >> op & 1))
				continue;
			uint64_t bytes = o->min_bytes;
			do {
				if (run_size(r, (enum rs_dtype)dtype, (enum rs_op)op, bytes))
					return -1;
				bytes = bench_next_size(o, bytes);
			} while (bytes);
		}
	}
	return 0;
}

static void summary(const struct run *r)
{
	const struct bench_options *o = r->o;
	if (o->json)
		return;
	printf("# %llu rows in %.1f s", (unsigned long long)r->rows, now_s() - r->started_s);
	for (int i = 0; i < 2; i++)
		if (o->place & (i ? PLACE_IN : PLACE_OUT))
			printf("; average busbw %s %.3f GB/s", i ? "in place" : "out of place",
			       r->busbw_sum[i] / (double)r->rows);
	if (o->check)
		printf("; wrong elements: %llu%s\n", (unsigned long long)r->wrong, r->wrong ? "  FAILED" : "");
	else
		printf("; not checked\n");
}

static int alloc_one(struct run *r, uint64_t bytes, void **ret)
{
	if (!r->o->plain_memory)
		return reduction_buffer_alloc(r->comm, bytes + 1, ret, &r->err) ? -1 : 0;
	*ret = calloc(1, bytes + 1);
	if (*ret)
		return 0;
	snprintf(r->err.message, sizeof(r->err.message), "out of memory for a buffer of %llu bytes",
		 (unsigned long long)bytes);
	return -1;
}

static int alloc_all(struct run *r)
{
	unsigned n = r->o->in_flight;
	uint64_t bytes = r->o->max_bytes * (r->o->tensors ? r->o->tensors : 1);
	r->send = calloc(n, sizeof(*r->send));
	r->recv = r->o->place & PLACE_OUT ? calloc(n, sizeof(*r->recv)) : NULL;
	r->reqs_n = r->o->tensors ? r->o->tensors : n;
	r->reqs = calloc(r->reqs_n, sizeof(*r->reqs));
	r->tensors = calloc(r->reqs_n, sizeof(*r->tensors));
	r->us = calloc(r->o->iters, sizeof(*r->us));
	if (!r->send || !r->reqs || !r->tensors || !r->us || (!r->recv && (r->o->place & PLACE_OUT))) {
		snprintf(r->err.message, sizeof(r->err.message), "out of memory");
		return -1;
	}
	for (unsigned i = 0; i < n; i++)
		if (alloc_one(r, bytes, &r->send[i]) || (r->recv && alloc_one(r, bytes, &r->recv[i])))
			return -1;
	return r->o->behind ? alloc_one(r, r->o->behind, &r->large) : 0;
}

static void free_one(struct run *r, void *buffer)
{
	if (r->o->plain_memory)
		free(buffer);
	else if (buffer)
		reduction_buffer_free(r->comm, buffer);
}

static void free_buffers(struct run *r, void **buffers)
{
	for (unsigned i = 0; buffers && i < r->o->in_flight; i++)
		free_one(r, buffers[i]);
	free(buffers);
}

/* Ends operations that are still in progress. After an error all of them end with that
 * error. After a timeout they may go on; then false is returned, and their buffers must
 * stay. */
static bool settle(struct run *r)
{
	bool done = !r->before || reduction_wait(r->before, 0, NULL) != REDUCTION_ETIMEOUT;
	if (done)
		r->before = NULL;
	for (unsigned i = 0; r->reqs && i < r->reqs_n; i++)
		if (r->reqs[i] && reduction_wait(r->reqs[i], 0, NULL) == REDUCTION_ETIMEOUT)
			done = false;
		else
			r->reqs[i] = NULL;
	return done;
}

static int run_close(struct run *r)
{
	int rc;
	if (settle(r)) {
		free_buffers(r, r->send);
		free_buffers(r, r->recv);
		free_one(r, r->large);
	}
	rc = reduction_close(r->comm, &r->err) ? -1 : 0;
	settle(r);
	free(r->reqs);
	free(r->tensors);
	free(r->us);
	return rc;
}

/* Runs one rank; rank and world are -1 if the environment gives them. Returns the exit
 * code. */
static int run_rank(const struct bench_options *o, int rank, int world)
{
	struct run r = {.o = o, .started_s = now_s(), .tty = isatty(STDERR_FILENO)};
	reduction_options opt = REDUCTION_OPTIONS_INIT;
	bool failed;

	opt.config = o->config;
	opt.mode = (reduction_mode)o->mode;
	opt.agent_socket = o->agent_socket;
	opt.job = o->job;
	opt.wire = o->wire;
	opt.rank = opt.local_rank = rank;
	opt.world_size = opt.local_world_size = world;
	if (reduction_open(&r.comm, &opt, &r.err)) {
		fprintf(stderr, "reduction-bench: %s\n", r.err.message);
		return 1;
	}
	r.rank = reduction_rank(r.comm);
	r.world = reduction_world_size(r.comm);
	r.tty = r.tty && r.rank == 0;
	failed = alloc_all(&r);
	if (!failed) {
		if (r.rank == 0)
			bench_print_header(o, r.world);
		failed = run_rows(&r);
	}
	progress_clear(&r);
	if (failed)
		fprintf(stderr, "reduction-bench: rank %d: %s\n", r.rank, r.err.message);
	else if (r.rank == 0)
		summary(&r);
	if (run_close(&r) && !failed) {
		fprintf(stderr, "reduction-bench: rank %d: %s\n", r.rank, r.err.message);
		failed = true;
	}
	fflush(stdout);
	return failed || r.wrong;
}

int main(int argc, char **argv)
{
	struct bench_options o;
	struct bench_local local;
	struct rs_err err;
	int code = 0, rank = -1;

	rs_descriptors_hold_standard(); /* the parts of --local open files before the library does */
	if (bench_options_parse(&o, argc, argv, reduction_version(), &code))
		return code;
	if (!o.ranks)
		return run_rank(&o, -1, -1);
	if (bench_local_start(&local, &o, &err)) {
		fprintf(stderr, "reduction-bench: %s\n", err.msg);
		return 1;
	}
	code = bench_local_fork(&local, &o, &rank, &err);
	if (code)
		fprintf(stderr, "reduction-bench: %s\n", err.msg);
	else if (rank >= 0)
		return run_rank(&o, rank, o.ranks);
	else
		code = bench_local_wait(&local);
	bench_local_close(&local);
	return code ? (code < 0 ? 1 : code) : 0;
}
