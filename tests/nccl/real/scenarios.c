/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/nccl/real/rank.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
	SOME = 100000,        /* elements */
	WATCHDOG_US = 100000, /* the period in which PyTorch's watchdog looks for errors */
};

static void destroy(struct rank *r, void *comm)
{
	int rc = r->nccl.destroy(comm);

	if (rc)
		die("ncclCommDestroy: %d %s", rc, r->nccl.error_text(rc));
}

static void report(struct rank *r, const char *name, bool good)
{
	cell(r, name, "%s", good ? "ok" : "wrong");
}

static bool reduce_some(struct rank *r, void *comm, size_t n)
{
	return reduce(r, comm, KERNEL_FLOAT32, KERNEL_SUM, n, r->rank, r->ranks);
}

/* All operations and types; sizes of one element to 16 MiB. */
static bool sums(struct rank *r, void *comm)
{
	static const size_t sizes[] = {1, 7, 1000, 65537, 262144};
	bool good = true;

	for (int type = 0; type < 4; type++)
		for (int op = 0; op < 5; op++)
			for (size_t i = 0; i < sizeof sizes / sizeof sizes[0] && good; i++)
				good = reduce(r, comm, (enum kernel_type)type, (enum kernel_op)op, sizes[i], r->rank,
					      r->ranks);
	return good && reduce(r, comm, KERNEL_FLOAT32, KERNEL_SUM, 4 << 20, r->rank, r->ranks) &&
	       reduce(r, comm, KERNEL_BFLOAT16, KERNEL_AVERAGE, 8 << 20, r->rank, r->ranks);
}

static void run_sums(struct rank *r)
{
	void *comm = comm_make(r, r->ranks), *more;
	bool good;
	int rc;

	report(r, "sums", sums(r, comm));
	more = comm_make(r, r->ranks);
	good = reduce_some(r, comm, SOME) && reduce_some(r, more, SOME / 2) && reduce_some(r, comm, SOME);
	report(r, "two communicators", good);
	destroy(r, more);
	rc = r->nccl.finalize(comm);
	destroy(r, comm);
	report(r, "finalize", rc == 0);
	good = true;
	for (int i = 0; i < 2 && good; i++) {
		comm = comm_make(r, r->ranks);
		good = reduce_some(r, comm, SOME);
		destroy(r, comm);
	}
	report(r, "init again", good);
}

/* Two or more ranks on a node. */
static void run_nodes(struct rank *r)
{
	void *comm = comm_make(r, r->ranks);

	report(r, "nodes", sums(r, comm));
	destroy(r, comm);
}

static void run_plain(struct rank *r)
{
	void *comm = comm_make(r, r->ranks);

	report(r, "plain", reduce_some(r, comm, 4 << 20) && reduce_some(r, comm, 262144));
	destroy(r, comm);
}

static void run_init(struct rank *r)
{
	report(r, "init", comm_make(r, r->ranks));
}

/* A child of all ranks, and children of half of them. */
static void run_split(struct rank *r)
{
	void *comm = comm_make(r, r->ranks), *child = NULL;
	int half = r->ranks / 2, rc;
	bool good;

	good = reduce_some(r, comm, SOME);
	rc = r->nccl.split(comm, r->rank / half, r->rank, &child, NULL);
	good = good && !rc && reduce(r, child, KERNEL_FLOAT32, KERNEL_SUM, SOME, r->rank % half, half);
	report(r, "split in halves", good);
	if (child)
		destroy(r, child);
	child = NULL;
	rc = r->nccl.split(comm, 0, r->rank, &child, NULL);
	report(r, "split, all ranks", !rc && reduce_some(r, child, SOME));
	if (child)
		destroy(r, child);
	report(r, "the parent after", reduce_some(r, comm, SOME));
	destroy(r, comm);
}

/* The last rank leaves. */
static void run_shrink(struct rank *r)
{
	void *comm = comm_make(r, r->ranks), *child = NULL;
	int gone = r->ranks - 1, rc;

	reduce_some(r, comm, SOME);
	if (!r->nccl.shrink) {
		cell(r, "shrink", "not in this version");
		return;
	}
	if (r->rank == gone) {
		event_wait(r, "shrunk", 60);
		return;
	}
	rc = r->nccl.shrink(comm, &gone, 1, &child, NULL, 0);
	report(r, "shrink", !rc && reduce(r, child, KERNEL_FLOAT32, KERNEL_SUM, SOME, r->rank, gone));
	if (child)
		destroy(r, child);
	if (r->rank == 0)
		event_tell(r, "shrunk");
}

/* The last rank joins those before it. */
static void run_grow(struct rank *r)
{
	int before = r->ranks - 1, rc = 0;
	bool joins = r->rank == before;
	void *comm = NULL, *child = NULL;
	struct unique_id id;

	if (!r->nccl.grow) {
		cell(r, "grow", "not in this version");
		return;
	}
	if (!joins) {
		comm = comm_make(r, before);
		reduce(r, comm, KERNEL_FLOAT32, KERNEL_SUM, SOME, r->rank, before);
	}
	if (r->rank == 0) {
		rc = r->nccl.grow_id(comm, &id);
		id_leave(r, "grow", &id);
	} else if (joins) {
		id = id_find(r, "grow");
	}
	if (!rc)
		rc = r->nccl.grow(comm, r->ranks, joins || r->rank == 0 ? &id : NULL, joins ? r->rank : -1, &child,
				  NULL);
	if (rc)
		printf("rank %d: ncclCommGrow: %d %s\n", r->rank, rc, r->nccl.error_text(rc));
	report(r, "grow", !rc && reduce_some(r, child, SOME));
	if (child)
		destroy(r, child);
	if (comm)
		destroy(r, comm);
}

static void abort_timed(struct rank *r, void *comm, const char *name)
{
	double began = now_s();
	int rc;

	cell(r, name, "aborting");
	rc = r->nccl.abort(comm);
	cell(r, name, "abort returned %d after %.1f s", rc, now_s() - began);
}

/* The last rank dies, with all-reduces pending on the others. */
static void run_lost(struct rank *r)
{
	void *comm = comm_make(r, r->ranks);
	double began;
	int error;

	if (!reduce_some(r, comm, SOME))
		return;
	if (r->rank == r->ranks - 1)
		_exit(0);
	began = now_s();
	reduce_start(r, comm, 1 << 20);
	reduce_start(r, comm, 1 << 20);
	error = comm_wait(r, comm, 8);
	if (error < 0)
		cell(r, "lost", "no asynchronous error in 8 s");
	else
		cell(r, "lost", "asynchronous error %d after %.2f s", error, now_s() - began);
	usleep(WATCHDOG_US);
	abort_timed(r, comm, "lost");
}

/* Rank 0 aborts while its all-reduce waits for the last rank. */
static void run_abort(struct rank *r)
{
	void *comm = comm_make(r, r->ranks);

	if (!reduce_some(r, comm, SOME))
		return;
	if (r->rank != r->ranks - 1)
		reduce_start(r, comm, 1 << 20);
	if (r->rank == 0) {
		usleep(200000); /* so that it is pending; if not, the abort is easier */
		abort_timed(r, comm, "abort of one rank");
		event_tell(r, "aborted");
		return;
	}
	if (event_wait(r, "aborted", 15)) {
		reduce_start(r, comm, 1 << 20);
		comm_wait(r, comm, 8);
		abort_timed(r, comm, "abort after that");
	}
}

/* All ranks abort; the all-reduce of the last one is missing. */
static void run_abort_all(struct rank *r)
{
	void *comm = comm_make(r, r->ranks);

	if (!reduce_some(r, comm, SOME))
		return;
	if (r->rank != r->ranks - 1)
		reduce_start(r, comm, 1 << 20);
	usleep(200000);
	abort_timed(r, comm, "abort of all ranks");
}

/* All-reduces while the test kills reducers, and some after that; as many on each
 * rank. */
static void run_reducers(struct rank *r)
{
	void *comm = comm_make(r, r->ranks);
	bool good = true;
	int n = 0;

	for (; good && n < 160; n++) {
		if (n == 20 && r->rank == 0)
			event_tell(r, "half");
		if (n == 150)
			event_wait(r, "killed", 30);
		good = reduce_some(r, comm, 262144);
	}
	cell(r, "reducers", "%s after %d all-reduces", good ? "ok" : "error", n);
	if (good)
		destroy(r, comm);
	else
		abort_timed(r, comm, "reducers");
}

/* Broadcast, all-gather, reduce-scatter, send and receive: NCCL connects for them. No
 * kernel moves their data. */
static void run_net(struct rank *r)
{
	void *comm = comm_make(r, r->ranks);
	char *data = device_allocate((size_t)SOME * (size_t)r->ranks * 4);
	int next = (r->rank + 1) % r->ranks;
	bool good = reduce_some(r, comm, SOME);

	kernel_next = (struct kernel){.kind = KERNEL_NONE};
	good = good && !r->nccl.broadcast(data, data, SOME, 7, 0, comm, r->stream);
	good = good && !r->nccl.all_gather(data, data, SOME, 7, comm, r->stream);
	good = good && !r->nccl.reduce_scatter(data, data, SOME, 7, 0, comm, r->stream);
	good = good && !(r->rank % 2 ? r->nccl.receive(data, SOME, 7, next, comm, r->stream)
				     : r->nccl.send(data, SOME, 7, next, comm, r->stream));
	report(r, "net", good && !comm_wait(r, comm, 20));
	barrier(r); /* a rank that ends is lost to the others */
}

/* Which algorithms NCCL chooses for all-reduces: its log says it. No kernel runs. */
static void run_choose(struct rank *r)
{
	static const size_t sizes[] = {64, 16384, 4 << 20}; /* float32 */
	void *comm = comm_make(r, r->ranks), *data = device_allocate(sizes[2] * 4);
	bool good = true;

	kernel_next = (struct kernel){.kind = KERNEL_NONE};
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0] && good; i++)
		good = !r->nccl.all_reduce(data, data, sizes[i], 7, 0, comm, r->stream);
	report(r, "choose", good);
	barrier(r); /* a rank that ends is lost to the others */
}

/* Which algorithms NCCL chooses for others: its log says it. No kernel runs for them. */
static void run_direct(struct rank *r)
{
	static const size_t sizes[] = {8, 32, 256, 1024, 2048, 8192, 65536}; /* float32 of each rank */
	void *comm = comm_make(r, r->ranks);
	bool good = reduce_some(r, comm, SOME) && reduce_some(r, comm, 4 << 20);
	char *send = device_allocate(sizes[6] * 4 * (size_t)r->ranks),
	     *recv = device_allocate(sizes[6] * 4 * (size_t)r->ranks);

	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		kernel_next = (struct kernel){.kind = KERNEL_NONE};
		good = good && !r->nccl.all_gather(send, recv, sizes[i], 7, comm, r->stream) && !comm_wait(r, comm, 20);
		good = good && !r->nccl.reduce_scatter(send, recv, sizes[i], 7, 0, comm, r->stream) &&
		       !comm_wait(r, comm, 20);
	}
	report(r, "direct", good);
	barrier(r); /* a rank that ends is lost to the others */
}

/* One all-gather or reduce-scatter of n float32 of each rank, by the kernel of CollNet
 * Direct. Returns whether the result is right. */
static bool shard(struct rank *r, void *comm, bool gather, size_t n)
{
	size_t all = n * (size_t)r->ranks, first = n * (size_t)r->rank;
	int all_ranks = r->ranks * (r->ranks + 1) / 2;
	float *part = device_allocate(n * 4), *whole = device_allocate(all * 4);
	int rc;

	kernel_next = (struct kernel){.kind = gather ? KERNEL_GATHER : KERNEL_SCATTER,
				      .type = KERNEL_FLOAT32,
				      .rank = r->rank,
				      .ranks = r->ranks};
	for (size_t i = 0; i < all; i++)
		whole[i] = gather ? -1 : (float)((i % 7 + 1) * (size_t)(r->rank + 1));
	for (size_t i = 0; i < n; i++)
		part[i] = gather ? (float)((first + i) % 1009) : -1;
	rc = gather ? r->nccl.all_gather(part, whole, n, 7, comm, r->stream)
		    : r->nccl.reduce_scatter(whole, part, n, 7, 0, comm, r->stream);
	if (!rc)
		rc = comm_wait(r, comm, 60);
	for (size_t i = 0; i < (gather ? all : n) && !rc; i++) {
		float want = gather ? (float)(i % 1009) : (float)((first + i) % 7 + 1) * (float)all_ranks;

		rc = (gather ? whole : part)[i] != want;
	}
	if (rc)
		printf("rank %d: %s of %zu elements: %d; %s\n", r->rank, gather ? "all-gather" : "reduce-scatter", n,
		       rc, r->nccl.last_error(comm));
	return !rc;
}

/* All-gathers and reduce-scatters where NCCL_ALGO asks for CollNet Direct. */
static void run_shards(struct rank *r)
{
	static const size_t sizes[] = {1, 8, 1000, 65537, 1 << 20}; /* float32 of each rank */
	void *comm = comm_make(r, r->ranks);
	bool good = true;

	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
		good = good && shard(r, comm, true, sizes[i]) && shard(r, comm, false, sizes[i]);
	report(r, "shards", good);
	barrier(r); /* a rank that ends is lost to the others */
	destroy(r, comm);
}

const struct scenario scenarios[] = {
    {"sums", run_sums},     {"nodes", run_nodes},         {"plain", run_plain},       {"init", run_init},
    {"split", run_split},   {"shrink", run_shrink},       {"grow", run_grow},         {"lost", run_lost},
    {"abort", run_abort},   {"abort-all", run_abort_all}, {"reducers", run_reducers}, {"net", run_net},
    {"choose", run_choose}, {"direct", run_direct},       {"shards", run_shards},     {NULL, NULL},
};
