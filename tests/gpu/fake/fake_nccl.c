/* SPDX-License-Identifier: Apache-2.0 */
/* A libnccl.so.2 to test the part nccl without a GPU: it sums through the plugin as
 * NCCL's CollNet chain does, 512 KiB and up to 8 calls at a time, on a thread of each
 * communicator. With NCCL_NET=Socket it sums float32 in shared memory. It writes the
 * lines of NCCL's log that the checks look for. $FAKE_NCCL breaks it: "ring" does not use
 * the reducers, "wrong" changes a result, "stuck" does not end ncclCommAbort. */
#include "tests/gpu/fake/fake.h"
#include "tests/nccl/exercise.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { CHUNK = 512 << 10, DEPTH = 8, QUEUE = 16, UNSUPPORTED = 5, REMOTE = 6 };

struct fake_id {
	char path[128]; /* of the file that the ranks share */
};

/* Shared by the ranks of a communicator. */
struct fake_shared {
	struct shared s;
	uint8_t data[RANKS_MAX][CHUNK];
};

struct fake_op {
	const uint8_t *send;
	uint8_t *recv;
	size_t count;
	int dtype, op;
	struct fake_stream *stream;
};

/* A communicator. Invariant: queue[0 .. n) are the operations that have not begun, in
 * order. */
struct fake_comm {
	struct tables t;
	struct fake_shared *shared;
	int rank, ranks;
	bool ring;
	void *listening, *coll, *registered;
	uint8_t *region; /* DEPTH places to send from, then DEPTH to receive into */
	pthread_t thread;
	_Atomic int error;
	_Atomic bool aborted;
	pthread_mutex_t lock; /* protects what follows */
	pthread_cond_t changed;
	struct fake_op queue[QUEUE];
	int n;
	bool closing;
};

EXPORT int ncclGetVersion(int *ret);
EXPORT int ncclGetUniqueId(struct fake_id *ret);
EXPORT int ncclCommInitRank(void **ret, int ranks, struct fake_id id, int rank);
EXPORT int ncclCommDestroy(void *comm);
EXPORT int ncclCommAbort(void *comm);
EXPORT int ncclCommGetAsyncError(void *comm, int *ret);
EXPORT int ncclAllReduce(const void *send, void *recv, size_t count, int dtype, int op, void *comm, void *stream);

static bool broken(const char *how)
{
	const char *said = getenv("FAKE_NCCL");

	return said && strcmp(said, how) == 0;
}

static size_t size_of(int dtype)
{
	static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

	return sizes[dtype];
}

/* Writes a line to $NCCL_DEBUG_FILE, as NCCL does. */
static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *format, ...)
{
	FILE *f = fopen(getenv("NCCL_DEBUG_FILE"), "ae");
	va_list args;

	if (!f)
		return;
	fprintf(f, "node0:100:100 [0] NCCL INFO ");
	va_start(args, format);
	vfprintf(f, format, args);
	va_end(args);
	fclose(f);
}

int ncclGetVersion(int *ret)
{
	*ret = 22809;
	return 0;
}

int ncclGetUniqueId(struct fake_id *ret)
{
	int fd;

	memset(ret, 0, sizeof *ret);
	strcpy(ret->path, "/tmp/fake-nccl-XXXXXX");
	fd = mkstemp(ret->path);
	if (fd < 0 || ftruncate(fd, sizeof(struct fake_shared)))
		return 2;
	close(fd);
	return 0;
}

/* Sums float32 in shared memory. */
static int sum_ring(struct fake_comm *c, const struct fake_op *op)
{
	size_t bytes = op->count * 4;

	if (op->dtype != 7 || op->op != 0)
		return UNSUPPORTED;
	for (size_t at = 0; at < bytes; at += CHUNK) {
		size_t n = bytes - at < CHUNK ? bytes - at : CHUNK;
		float *to = (float *)(op->recv + at);

		memcpy(c->shared->data[c->rank], op->send + at, n);
		barrier(&c->shared->s, c->ranks);
		memcpy(to, c->shared->data[0], n);
		for (int r = 1; r < c->ranks; r++)
			for (size_t i = 0; i < n / 4; i++)
				to[i] += ((const float *)c->shared->data[r])[i];
		barrier(&c->shared->s, c->ranks);
	}
	return 0;
}

/* Sums through the plugin: chunks from first to last, DEPTH at a time. Returns the first
 * result that is no success. */
static int sum_chain(struct fake_comm *c, const struct fake_op *op)
{
	size_t bytes = op->count * size_of(op->dtype), chunks = (bytes + CHUNK - 1) / CHUNK;
	void *requests[DEPTH] = {NULL};

	for (size_t begun = 0, ended = 0; ended < chunks;) {
		size_t from = begun % DEPTH, to = ended % DEPTH;
		size_t n = bytes - begun * CHUNK < CHUNK ? bytes - begun * CHUNK : CHUNK;
		int rc = 0, done = 0, size;

		if (atomic_load(&c->aborted))
			return REMOTE;
		if (begun < chunks && begun < ended + DEPTH) {
			memcpy(c->region + from * CHUNK, op->send + begun * CHUNK, n);
			rc = tables_all_reduce(&c->t, c->coll, c->region + from * CHUNK,
					       c->region + (DEPTH + from) * CHUNK, n / size_of(op->dtype), op->dtype,
					       op->op, c->registered, c->registered, &requests[from]);
			begun += requests[from] != NULL;
		}
		if (!rc && requests[to])
			rc = c->t.coll_test(requests[to], &done, &size);
		if (rc)
			return rc;
		if (!done) {
			relax(LOOK_COLL_US);
			continue;
		}
		memcpy(op->recv + ended * CHUNK, c->region + (DEPTH + to) * CHUNK, (size_t)size);
		requests[to] = NULL;
		ended++;
	}
	return 0;
}

static void *run(void *arg)
{
	struct fake_comm *c = arg;

	pthread_mutex_lock(&c->lock);
	for (;;) {
		struct fake_op op = c->queue[0];
		int rc;

		if (c->n == 0 && c->closing)
			break;
		if (c->n == 0 || atomic_load(&c->error)) { /* nothing ends after an error */
			if (c->closing)
				break;
			pthread_cond_wait(&c->changed, &c->lock);
			continue;
		}
		memmove(c->queue, c->queue + 1, (size_t)--c->n * sizeof op);
		pthread_cond_broadcast(&c->changed);
		pthread_mutex_unlock(&c->lock);
		rc = c->ring ? sum_ring(c, &op) : sum_chain(c, &op);
		if (broken("wrong"))
			op.recv[0] ^= 1;
		if (rc)
			atomic_store(&c->error, rc);
		else
			atomic_fetch_sub(&op.stream->pending, 1);
		pthread_mutex_lock(&c->lock);
	}
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

static int open_chain(struct fake_comm *c)
{
	void *handles[RANKS_MAX];
	int rc = tables_open(&c->t, getenv("NCCL_NET_PLUGIN"), 11);

	if (rc)
		return rc;
	tables_coll_listen(&c->t, c->shared->s.handles[c->rank], &c->listening);
	barrier(&c->shared->s, c->ranks);
	for (int i = 0; i < c->ranks; i++)
		handles[i] = c->shared->s.handles[i];
	rc = c->t.coll_connect(handles, c->ranks, c->rank, c->listening, &c->coll);
	if (rc)
		return rc;
	c->region = mmap(NULL, 2 * DEPTH * CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return c->t.coll_register(c->coll, c->region, 2 * DEPTH * CHUNK, NCCL_PTR_HOST, &c->registered);
}

int ncclCommInitRank(void **ret, int ranks, struct fake_id id, int rank)
{
	struct fake_comm *c = calloc(1, sizeof *c);
	int fd = open(id.path, O_RDWR | O_CLOEXEC), rc;

	c->rank = rank;
	c->ranks = ranks;
	c->shared = mmap(NULL, sizeof *c->shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	c->ring = strcmp(getenv("NCCL_NET"), "Socket") == 0 || broken("ring");
	barrier(&c->shared->s, ranks);
	if (rank == 0)
		unlink(id.path);
	rc = c->ring ? 0 : open_chain(c);
	if (rc)
		return rc;
	if (!c->ring)
		say("CollNet 00/0 : 0 [receive] via COLLNET/reduction/0\n");
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->changed, NULL);
	*ret = c;
	return pthread_create(&c->thread, NULL, run, c);
}

int ncclAllReduce(const void *send, void *recv, size_t count, int dtype, int op, void *comm, void *stream)
{
	struct fake_comm *c = comm;

	if (c->rank == 0)
		say("AllReduce: %zu Bytes -> Algo %s proto SIMPLE channel{Lo..Hi}={0..1}\n", count * size_of(dtype),
		    c->ring ? "RING" : "COLLNET_CHAIN");
	atomic_fetch_add(&((struct fake_stream *)stream)->pending, 1);
	pthread_mutex_lock(&c->lock);
	while (c->n == QUEUE)
		pthread_cond_wait(&c->changed, &c->lock);
	c->queue[c->n++] = (struct fake_op){send, recv, count, dtype, op, stream};
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
	return 0;
}

int ncclCommGetAsyncError(void *comm, int *ret)
{
	*ret = atomic_load(&((struct fake_comm *)comm)->error);
	return 0;
}

int ncclCommDestroy(void *comm)
{
	struct fake_comm *c = comm;

	pthread_mutex_lock(&c->lock);
	c->closing = true;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
	pthread_join(c->thread, NULL);
	if (!c->ring) {
		c->t.coll_deregister(c->coll, c->registered);
		munmap(c->region, 2 * DEPTH * CHUNK);
		c->t.coll_close(c->coll);
		c->t.coll_close_listen(c->listening);
	}
	munmap(c->shared, sizeof *c->shared);
	free(c);
	return 0;
}

int ncclCommAbort(void *comm)
{
	if (broken("stuck"))
		sleep(7);
	atomic_store(&((struct fake_comm *)comm)->aborted, true);
	return ncclCommDestroy(comm);
}
