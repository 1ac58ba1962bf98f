/* SPDX-License-Identifier: Apache-2.0 */
/* run: beside-others */
/* A thread that waits for an operation runs the engine, or reads the agent's messages,
 * itself. No thread is woken in vain and none waits for ever, and no harm is done by
 * another thread, another rank or the program that ends a wait. See ranks.h. */
#include "tests/e2e/ranks.h"

#include <dirent.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SMALL = 1000, LARGE = 100000 };

/* A thread that waits for one operation. */
struct waiter {
	struct rank *r;
	pthread_t thread;
	reduction_request *req;
	int slice_ms; /* each call of reduction_wait may take so long; -1: any time */
	sem_t begun;
	int rc;
	reduction_error err;
};

static void *wait_main(void *arg)
{
	struct waiter *w = arg;

	sem_post(&w->begun);
	do
		w->rc = reduction_wait(w->req, w->slice_ms, &w->err);
	while (w->rc == REDUCTION_ETIMEOUT);
	pthread_testcancel();
	return NULL;
}

/* Returns when the thread runs. */
static void start_waiter(struct rank *r, struct waiter *w, reduction_request *req, int slice_ms)
{
	*w = (struct waiter){.r = r, .req = req, .slice_ms = slice_ms};
	EXPECT(sem_init(&w->begun, 0, 0) == 0);
	EXPECT(pthread_create(&w->thread, NULL, wait_main, w) == 0);
	EXPECT(sem_wait(&w->begun) == 0);
}

static void join_waiter(struct rank *r, struct waiter *w)
{
	EXPECT(pthread_join(w->thread, NULL) == 0);
	sem_destroy(&w->begun);
	r->err = w->err;
}

static reduction_request *start_sum(struct rank *r, float *x, size_t n)
{
	reduction_request *req;

	for (size_t i = 0; i < n; i++)
		x[i] = (float)(i % 97 + (size_t)r->rank);
	EXPECT_RC(reduction_all_reduce_async(r->comm, x, x, n, REDUCTION_FLOAT32, REDUCTION_SUM, NULL, &req, &r->err),
		  0);
	return req;
}

static void check_sum(struct rank *r, const float *x, size_t n)
{
	int ranks = r->world * (r->world - 1) / 2;

	for (size_t i = 0; i < n; i++)
		EXPECT(x[i] == (float)(i % 97 * (size_t)r->world + (size_t)ranks));
}

/* How often the engine's thread has gone to sleep. */
static unsigned long long engine_sleeps(struct rank *r)
{
	DIR *dir = opendir("/proc/self/task");
	unsigned long long sleeps = 0;
	struct dirent *entry;
	bool found = false;

	EXPECT(dir);
	while ((entry = readdir(dir))) {
		char path[300], line[200];
		bool engine = false;
		FILE *f;

		snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
		f = fopen(path, "r");
		while (f && fgets(line, sizeof line, f)) {
			engine |= strcmp(line, "Name:\treduction\n") == 0;
			found |= engine && sscanf(line, "voluntary_ctxt_switches: %llu", &sleeps) == 1;
		}
		if (f)
			fclose(f);
	}
	closedir(dir);
	EXPECT(found);
	return sleeps;
}

/* What a thread starts and waits for it sends and receives itself. */
static void engine_sleeps_on(struct rank *r)
{
	enum { OPS = 1000 };
	static float x[SMALL];
	unsigned long long before;

	open_comm(r);
	EXPECT_RC(reduction_barrier(r->comm, &r->err), 0);
	before = engine_sleeps(r);
	for (int i = 0; i < OPS; i++) {
		reduction_request *req = start_sum(r, x, SMALL);

		EXPECT_RC(reduction_wait(req, -1, &r->err), 0);
		check_sum(r, x, SMALL);
		EXPECT_RC(reduction_barrier(r->comm, &r->err), 0);
	}
	/* of 2 * OPS operations; to start each and to receive its result it would sleep
	 * twice as often. What comes between the start and the wait is for it. */
	EXPECT(engine_sleeps(r) - before < 2 * OPS);
	close_comm(r);
}

/* And what nobody waits for makes progress all the same. */
static void nobody_waits(struct rank *r)
{
	static float x[LARGE];
	reduction_request *req;
	int done = 0;

	open_comm(r);
	for (int i = 0; i < 10; i++) {
		req = start_sum(r, x, i % 2 ? SMALL : LARGE);
		do
			EXPECT_RC(reduction_test(req, &done, &r->err), 0);
		while (!done && usleep(1000) == 0);
		check_sum(r, x, i % 2 ? SMALL : LARGE);
	}
	close_comm(r);
}

/* One thread runs the engine, others are told, and this one starts more meanwhile; who
 * comes first differs. */
static void several_wait(struct rank *r)
{
	enum { THREADS = 3 };
	static float x[THREADS][LARGE], y[SMALL];
	static const int slices[THREADS] = {-1, 1, 20000};

	open_comm(r);
	for (unsigned round = 0; round < 20; round++) {
		struct waiter w[THREADS];

		for (unsigned i = 0; i < THREADS; i++)
			start_waiter(r, &w[i], start_sum(r, x[i], (round + i) % 2 ? SMALL : LARGE), slices[i]);
		for (unsigned i = 0; i < 5; i++) {
			reduction_request *req = start_sum(r, y, SMALL);

			EXPECT_RC(reduction_wait(req, -1, &r->err), 0);
			check_sum(r, y, SMALL);
		}
		for (unsigned i = 0; i < THREADS; i++) {
			join_waiter(r, &w[i]);
			EXPECT_RC(w[i].rc, 0);
			check_sum(r, x[i], (round + i) % 2 ? SMALL : LARGE);
		}
	}
	close_comm(r);
}

/* Another thread closes the communicator, or breaks it. */
static void closed_while_waited_for(struct rank *r)
{
	static float x[2][SMALL];

	for (unsigned round = 0; round < 10; round++) {
		struct waiter w[2];

		snprintf(r->job, sizeof r->job, "closed.%u", round);
		open_comm(r);
		all_here(r);
		if (r->rank == 0) {
			for (unsigned i = 0; i < 2; i++)
				start_waiter(r, &w[i], start_sum(r, x[i], SMALL), -1);
			close_comm(r);
			for (unsigned i = 0; i < 2; i++) {
				join_waiter(r, &w[i]);
				EXPECT_RC(w[i].rc, REDUCTION_ECLOSED);
			}
			let_go(r);
		} else {
			wait_go(r);
			close_comm(r);
		}
		all_here(r);
	}
}

static void lost_while_waited_for(struct rank *r)
{
	static float x[2][LARGE];
	struct waiter w[2];

	open_comm(r);
	all_here(r);
	for (unsigned i = 0; i < 2 && r->rank != 1; i++)
		start_waiter(r, &w[i], start_sum(r, x[i], i ? SMALL : LARGE), -1);
	all_here(r);
	if (r->rank == 1)
		raise(SIGKILL);
	for (unsigned i = 0; i < 2; i++) {
		join_waiter(r, &w[i]);
		EXPECT_RC(w[i].rc, REDUCTION_EPEER);
		EXPECT(strstr(r->err.message, "rank 1"));
	}
	close_comm(r);
}

/* What the engine logs on the program's own thread, of a reducer that is lost with rank
 * 1, finds nobody who reads it.
 */
static void nobody_reads_the_log(struct rank *r)
{
	static float x[SMALL];
	reduction_request *req;
	int ends[2];

	open_comm(r);
	all_here(r);
	if (r->rank == 1) {
		wait_go(r);
		raise(SIGKILL);
	}
	EXPECT(pipe(ends) == 0 && dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
	close(ends[0]);
	close(ends[1]);
	req = start_sum(r, x, SMALL);
	let_go(r);
	EXPECT_RC(reduction_wait(req, -1, &r->err), REDUCTION_EPEER);
	close_comm(r);
}

/* A thread that is cancelled ends after its wait, not in the middle of a turn of the
 * engine. */
static void cancelled(struct rank *r)
{
	static float x[SMALL];
	struct waiter w;
	void *result;

	open_comm(r);
	all_here(r);
	if (r->rank > 0)
		wait_go(r);
	start_waiter(r, &w, start_sum(r, x, SMALL), -1);
	if (r->rank == 0) {
		EXPECT(pthread_cancel(w.thread) == 0);
		let_go(r);
	}
	EXPECT(pthread_join(w.thread, &result) == 0);
	EXPECT(result == (r->rank == 0 ? PTHREAD_CANCELED : NULL));
	EXPECT(w.rc == 0);
	check_sum(r, x, SMALL);
	for (int i = 0; i < 10; i++)
		EXPECT_RC(reduction_barrier(r->comm, &r->err), 0);
	close_comm(r);
}

static const struct scenario scenarios[] = {
    {"engine_sleeps_on", 3, engine_sleeps_on, -1, 0},
    {"nobody_waits", 2, nobody_waits, -1, ALSO_AGENT},
    {"several_wait", 3, several_wait, -1, ALSO_AGENT},
    {"closed_while_waited_for", 2, closed_while_waited_for, -1, ALSO_AGENT},
    {"lost_while_waited_for", 3, lost_while_waited_for, 1, ALSO_AGENT},
    {"nobody_reads_the_log", 2, nobody_reads_the_log, 1, 0},
    {"cancelled", 2, cancelled, -1, ALSO_AGENT},
};

int main(int argc, char **argv)
{
	return run_scenarios(scenarios, sizeof scenarios / sizeof *scenarios, argc, argv);
}
