/* SPDX-License-Identifier: Apache-2.0 */
/* run: beside-others */
/* reduction_abort: whatever the threads of this process and the other ranks do, all of
 * them get one error that names the rank and its reason, and nobody waits.
 * timeouts.detect and timeouts.drain are longer than the limit of a scenario (ranks.c),
 * so nothing here ends by a timeout. */
#include "tests/e2e/ranks.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SMALL = 1000, LARGE = 1000000, OPS = 30 };

static float *floats(size_t n)
{
	return calloc(n, sizeof(float));
}

/* A thread that makes calls until one of them fails. */
struct caller {
	struct rank *r;
	pthread_t thread;
	sem_t begun;
	int (*call)(struct caller *c); /* returns the status of one call, or of a wait for what it has started */
	int calls, rc;
	float *memory;
	reduction_error err;
};

static void *caller_main(void *arg)
{
	struct caller *c = arg;

	sem_post(&c->begun);
	do
		c->rc = c->call(c);
	while (c->rc == 0 && ++c->calls < 1000000);
	return NULL;
}

static void start_caller(struct rank *r, struct caller *c, int (*call)(struct caller *c))
{
	*c = (struct caller){.r = r, .call = call, .memory = floats(LARGE)};
	EXPECT(sem_init(&c->begun, 0, 0) == 0);
	EXPECT(pthread_create(&c->thread, NULL, caller_main, c) == 0);
	EXPECT(sem_wait(&c->begun) == 0);
}

/* Checks that this rank has read that `rank` has aborted, and why. */
static void expect_aborted(struct rank *r, int rank, const char *why)
{
	char starts[40], ends[200];
	size_t n = strlen(r->err.message);

	snprintf(starts, sizeof starts, "rank %d (pid ", rank);
	snprintf(ends, sizeof ends, ") aborted the job%s%s", *why ? ": " : "", why);
	EXPECT(r->err.code == REDUCTION_EABORTED);
	EXPECT(strncmp(r->err.message, starts, strlen(starts)) == 0);
	EXPECT(n > strlen(ends) && strcmp(r->err.message + n - strlen(ends), ends) == 0);
}

static void join_caller(struct rank *r, struct caller *c, int rank, const char *why)
{
	EXPECT(pthread_join(c->thread, NULL) == 0);
	sem_destroy(&c->begun);
	r->err = c->err;
	EXPECT_RC(c->rc, REDUCTION_EABORTED);
	expect_aborted(r, rank, why);
	free(c->memory);
}

static int call_large(struct caller *c)
{
	return reduction_all_reduce(c->r->comm, c->memory, c->memory, LARGE, REDUCTION_FLOAT32, REDUCTION_SUM, &c->err);
}

static int call_barrier(struct caller *c)
{
	return reduction_barrier(c->r->comm, &c->err);
}

static int call_broadcast(struct caller *c)
{
	reduction_tensor t = REDUCTION_TENSOR_INIT;

	t.recv = c->memory;
	t.count = SMALL;
	t.name = "weights";
	return reduction_broadcast_tensor(c->r->comm, &t, 0, &c->err);
}

static int call_async(struct caller *c)
{
	reduction_request *req;
	int rc = reduction_all_reduce_async(c->r->comm, c->memory, c->memory, SMALL, REDUCTION_FLOAT32, REDUCTION_SUM,
					    NULL, &req, &c->err);

	return rc ? rc : reduction_wait(req, -1, &c->err);
}

/* More operations than job.max_ops. */
static int call_many(struct caller *c)
{
	reduction_request *reqs[OPS];
	int n = 0, rc = 0, bad;

	while (n < OPS && !rc) {
		rc = reduction_all_reduce_async(c->r->comm, c->memory, c->memory + SMALL, SMALL, REDUCTION_FLOAT32,
						REDUCTION_SUM, NULL, &reqs[n], &c->err);
		n += !rc;
	}
	while (n-- > 0) {
		bad = reduction_wait(reqs[n], -1, &c->err);
		rc = rc ? rc : bad;
	}
	return rc;
}

/* More bytes of small tensors than a group may have in flight. */
static int call_group(struct caller *c)
{
	enum { TENSORS = 600, COUNT = 2500 };
	static reduction_tensor tensors[TENSORS];

	for (int i = 0; i < TENSORS; i++) {
		tensors[i] = (reduction_tensor)REDUCTION_TENSOR_INIT;
		tensors[i].send = tensors[i].recv = c->memory + i % 400 * COUNT;
		tensors[i].count = COUNT;
	}
	return reduction_all_reduce_group(c->r->comm, tensors, TENSORS, &c->err);
}

static int (*const calls[])(struct caller *) = {call_large, call_barrier, call_broadcast,
						call_async, call_many,    call_group};
enum { CALLS = sizeof calls / sizeof *calls };

/* Opens the communicator of a round, which is another job. */
static void open_round(struct rank *r, const char *name, int round)
{
	char job[sizeof r->job];

	snprintf(job, sizeof job, "%s", r->job);
	snprintf(r->job, sizeof r->job, "%s.%d.%d.%d", name, round, (int)r->mode, r->world);
	open_comm(r);
	snprintf(r->job, sizeof r->job, "%s", job);
	all_here(r);
}

/* The last rank of each round does not take part, and aborts while the others wait in
 * each kind of call. */
static void others_wait(struct rank *r)
{
	for (int round = 0; round < CALLS; round++) {
		int who = round % r->world;
		struct caller c;

		open_round(r, "others", round);
		if (r->rank != who)
			start_caller(r, &c, calls[round]);
		all_here(r);
		if (r->rank == who) {
			usleep(20000); /* most of them wait by now; it does not matter */
			EXPECT_RC(reduction_abort(r->comm, "the loss is NaN", &r->err), 0);
			EXPECT_RC(reduction_barrier(r->comm, &r->err), REDUCTION_EABORTED);
			expect_aborted(r, who, "the loss is NaN");
			close_comm(
			    r); /* also if it serves the node: it does not wait for the others, which wait for go */
		} else {
			join_caller(r, &c, who, "the loss is NaN");
		}
		all_here(r);
		if (r->rank != who)
			close_comm(r);
		all_here(r);
	}
}

/* The rank's own threads wait in all kinds of calls. The order of their operations does
 * not matter: the other ranks take no part. */
static void own_threads_wait(struct rank *r)
{
	for (int round = 0; round < 2 * CALLS; round++) {
		struct caller c[2];

		open_round(r, "own", round);
		if (r->rank == 0) {
			start_caller(r, &c[0], calls[round % CALLS]);
			start_caller(r, &c[1], calls[(round + 1 + round / CALLS) % CALLS]);
			usleep(round % 2 ? 20000 : 0);
			EXPECT_RC(reduction_abort(r->comm, NULL, &r->err), 0);
			join_caller(r, &c[0], 0, "");
			join_caller(r, &c[1], 0, "");
		}
		all_here(r);
		if (r->rank > 0) {
			EXPECT_RC(reduction_barrier(r->comm, &r->err), REDUCTION_EABORTED);
			expect_aborted(r, 0, "");
		}
		close_comm(r);
		all_here(r);
	}
}

/* Work goes on when it happens, and several threads abort at once: one of them has the
 * word. */
static void *abort_main(void *arg)
{
	struct caller *c = arg;

	usleep((useconds_t)(c->calls * 1000));
	c->rc = reduction_abort(c->r->comm, "enough", &c->err);
	return NULL;
}

static void under_load(struct rank *r)
{
	for (int round = 0; round < 8; round++) {
		struct caller work, aborts[2];
		int who = round % r->world;

		open_round(r, "load", round);
		start_caller(r, &work, round % 2 ? call_large : call_async);
		for (int i = 0; i < 2 && r->rank == who; i++) {
			aborts[i] = (struct caller){.r = r, .calls = round};
			EXPECT(pthread_create(&aborts[i].thread, NULL, abort_main, &aborts[i]) == 0);
		}
		for (int i = 0; i < 2 && r->rank == who; i++) {
			EXPECT(pthread_join(aborts[i].thread, NULL) == 0);
			EXPECT(aborts[i].rc == 0);
		}
		join_caller(r, &work, who, "enough");
		close_comm(r);
		all_here(r);
	}
}

/* What is called after an abort, and what the reason may be. */
static void afterwards(struct rank *r)
{
	static float x[SMALL];
	reduction_tensor t = REDUCTION_TENSOR_INIT;
	reduction_request *req, *pending;
	reduction_stats stats = REDUCTION_STATS_INIT;
	void *buffer;
	int done;

	t.send = t.recv = x;
	t.count = SMALL;
	open_round(r, "after", 0);
	EXPECT_RC(reduction_buffer_alloc(r->comm, sizeof x, &buffer, &r->err), 0);
	all_here(r);
	if (r->rank == 1) {
		t.send = t.recv = buffer;
		EXPECT_RC(reduction_all_reduce_tensor_async(r->comm, &t, &pending, &r->err), 0);
		EXPECT_RC(reduction_abort(r->comm, "first", &r->err), 0);
		EXPECT_RC(reduction_abort(r->comm, "second", NULL), REDUCTION_OK);
		EXPECT_RC(reduction_wait(pending, 20000, &r->err), REDUCTION_EABORTED);
		expect_aborted(r, 1, "first");
	}
	all_here(r); /* before rank 0 contributes, so that the operation of rank 1 cannot complete */
	do {
		done = reduction_all_reduce_tensor(r->comm, &t, &r->err);
	} while (done == 0); /* the news is on its way to rank 0 */
	EXPECT_RC(done, REDUCTION_EABORTED);
	EXPECT_RC(reduction_all_reduce_tensor_async(r->comm, &t, &req, &r->err), REDUCTION_EABORTED);
	EXPECT_RC(reduction_all_reduce_group(r->comm, &t, 1, &r->err), REDUCTION_EABORTED);
	EXPECT_RC(reduction_all_reduce_group_async(r->comm, &t, 1, &req, &r->err), REDUCTION_EABORTED);
	EXPECT_RC(reduction_broadcast(r->comm, x, SMALL, REDUCTION_FLOAT32, 0, &r->err), REDUCTION_EABORTED);
	EXPECT_RC(reduction_barrier(r->comm, &r->err), REDUCTION_EABORTED);
	expect_aborted(r, 1, "first");
	if (reduction_get_stats(r->comm, &stats, &r->err))
		expect_aborted(r, 1, "first");
	EXPECT_RC(reduction_abort(r->comm, "the other one", &r->err), 0);
	EXPECT_RC(reduction_barrier(r->comm, &r->err), REDUCTION_EABORTED);
	expect_aborted(r, 1, "first");
	EXPECT(reduction_rank(r->comm) == r->rank && reduction_world_size(r->comm) == r->world);
	reduction_buffer_free(r->comm, buffer);
	close_comm(r);
	all_here(r);
}

static void reasons(struct rank *r)
{
	char large[2000];
	static const struct {
		const char *reason, *says;
	} rows[] = {{NULL, ""},
		    {"", ""},
		    {"two\nlines\t\x7f", "two?lines??"},
		    {"100 %s %n", "100 %s %n"},
		    {"\xc3\xa4", "\xc3\xa4"}};

	for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
		open_round(r, "reasons", (int)i);
		if (r->rank == 1)
			EXPECT_RC(reduction_abort(r->comm, rows[i].reason, &r->err), 0);
		EXPECT_RC(reduction_barrier(r->comm, &r->err), REDUCTION_EABORTED);
		expect_aborted(r, 1, rows[i].says);
		close_comm(r);
		all_here(r);
	}
	memset(large, 'x', sizeof large - 1);
	large[sizeof large - 1] = '\0';
	open_round(r, "reasons", 99);
	if (r->rank == 1)
		EXPECT_RC(reduction_abort(r->comm, large, &r->err), 0);
	EXPECT_RC(reduction_barrier(r->comm, &r->err), REDUCTION_EABORTED);
	EXPECT(strlen(r->err.message) == sizeof r->err.message - 1);
	EXPECT(strstr(r->err.message, ") aborted the job: xxx") && strstr(r->err.message, "xxx..."));
	close_comm(r);
}

/* A communicator that is broken keeps its error. */
static void broken_before(struct rank *r)
{
	static float x[64];
	char first[sizeof r->err.message];

	open_comm(r);
	all_here(r);
	EXPECT_RC(reduction_all_reduce(r->comm, x, x, r->rank ? 64 : 32, REDUCTION_FLOAT32, REDUCTION_SUM, &r->err),
		  REDUCTION_EMISMATCH);
	memcpy(first, r->err.message, sizeof first);
	EXPECT_RC(reduction_abort(r->comm, "too late", &r->err), 0);
	EXPECT_RC(reduction_barrier(r->comm, &r->err), REDUCTION_EMISMATCH);
	EXPECT(strcmp(first, r->err.message) == 0);
	close_comm(r);
}

static const struct scenario scenarios[] = {
    {"others_wait", 3, others_wait, -1, ALSO_AGENT | ALSO_NODE},
    {"own_threads_wait", 2, own_threads_wait, -1, ALSO_AGENT | ALSO_NODE},
    {"under_load", 3, under_load, -1, ALSO_AGENT | ALSO_NODE},
    {"afterwards", 2, afterwards, -1, ALSO_AGENT | ALSO_NODE},
    {"reasons", 2, reasons, -1, ALSO_AGENT | ALSO_NODE},
    {"broken_before", 2, broken_before, -1, ALSO_AGENT | ALSO_NODE},
};

int main(int argc, char **argv)
{
	return run_scenarios(scenarios, sizeof scenarios / sizeof *scenarios, argc, argv);
}
