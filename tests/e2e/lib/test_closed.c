/* SPDX-License-Identifier: Apache-2.0 */
/* run: beside-others */
/* A rank leaves with a pending operation: its request fails, and from then on its buffer
 * is neither read nor written. So no other rank may get a result. A table of how it
 * leaves, of sizes (copied as a whole, and through a ring), and of malloc's and shared
 * memory; in every mode. And a rank that forks, whose child has no part in its
 * communicator. */
#include "tests/e2e/ranks.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SMALL = 100, LARGE = 1000000, LEAVER = 1 };

static const size_t counts[] = {SMALL, LARGE};

/* One row. The leaver's memory stays mapped after the communicator is closed. */
struct row {
	size_t count;
	bool shared;
	float *x;
};

static void fill(struct row *w, float value)
{
	for (size_t i = 0; i < w->count; i++)
		w->x[i] = value;
}

/* Opens a communicator of its own, with the row's buffer. */
static void open_row(struct rank *r, struct row *w, unsigned number)
{
	char job[sizeof r->job];
	void *memory;

	snprintf(job, sizeof job, "%s", r->job);
	snprintf(r->job, sizeof r->job, "%.30s.%u", job, number);
	open_comm(r);
	snprintf(r->job, sizeof r->job, "%s", job);
	if (w->shared)
		EXPECT_RC(reduction_buffer_alloc(r->comm, w->count * sizeof(float), &memory, &r->err), 0);
	else
		EXPECT((memory = malloc(w->count * sizeof(float))) != NULL);
	w->x = memory;
	fill(w, 2);
	all_here(r);
}

static void free_row(struct row *w)
{
	if (w->shared)
		reduction_buffer_unmap(w->x, w->count * sizeof(float));
	else
		free(w->x);
}

static reduction_request *start(struct rank *r, struct row *w)
{
	reduction_request *req;

	EXPECT_RC(reduction_all_reduce_async(r->comm, w->x, w->x, w->count, REDUCTION_FLOAT32, REDUCTION_SUM, NULL,
					     &req, &r->err),
		  0);
	return req;
}

static void *wait_for(void *req)
{
	reduction_wait(req, -1, NULL);
	return NULL;
}

static void leave(struct rank *r, reduction_request *req, bool aborts)
{
	if (!aborts)
		close_comm(r);
	else
		EXPECT_RC(reduction_abort(r->comm, "it must not go on", &r->err), 0);
	if (req)
		EXPECT_RC(reduction_wait(req, -1, &r->err), aborts ? REDUCTION_EABORTED : REDUCTION_ECLOSED);
}

/* Leaves while another thread, which is cancelled, waits for the request. */
static void leave_cancelled(struct rank *r, reduction_request *req)
{
	pthread_t thread;

	EXPECT(pthread_create(&thread, NULL, wait_for, req) == 0);
	EXPECT(pthread_cancel(thread) == 0);
	leave(r, NULL, false);
	EXPECT(pthread_join(thread, NULL) == 0);
}

static void tell_others(struct rank *r)
{
	for (int i = 0; i < r->world; i++)
		EXPECT(i == LEAVER || write(r->go[i][1], "g", 1) == 1);
}

static void wait_told(struct rank *r)
{
	char told;

	EXPECT(read(r->go[r->rank][0], &told, 1) == 1);
}

/* What a rank sees that has not left. */
static void fail_with(struct rank *r, struct row *w, int status)
{
	EXPECT_RC(reduction_all_reduce(r->comm, w->x, w->x, w->count, REDUCTION_FLOAT32, REDUCTION_SUM, &r->err),
		  status);
	close_comm(r);
}

/* The leaver's buffer keeps what the program has written there after it left. */
static void own_again(struct rank *r, struct row *w)
{
	fill(w, 1e6f);
	tell_others(r);
	all_here(r);
	for (size_t i = 0; i < w->count; i++)
		EXPECT(w->x[i] == 1e6f);
}

static void run_rows(struct rank *r, bool aborts, bool cancelled)
{
	for (unsigned i = 0; i < 4; i++) {
		struct row w = {.count = counts[i / 2], .shared = i % 2};

		open_row(r, &w, i);
		if (r->rank != LEAVER) {
			wait_told(r);
			fail_with(r, &w, aborts ? REDUCTION_EABORTED : REDUCTION_ECLOSED);
			all_here(r);
		} else {
			if (cancelled)
				leave_cancelled(r, start(r, &w));
			else
				leave(r, start(r, &w), aborts);
			own_again(r, &w);
			if (aborts)
				close_comm(r);
		}
		free_row(&w);
	}
}

static void closed(struct rank *r)
{
	run_rows(r, false, false);
}

static void aborted(struct rank *r)
{
	run_rows(r, true, false);
}

static void closed_with_a_cancelled_wait(struct rank *r)
{
	run_rows(r, false, true);
}

/* The process that serves the leaver's node stands still while it leaves, and reads of it
 * only later. */
static void stopped_agent(struct rank *r)
{
	struct row w = {.count = LARGE, .shared = true};
	reduction_request *req;
	pid_t pid = getpid();

	open_row(r, &w, 0);
	if (r->rank == 0)
		EXPECT(write(r->go[LEAVER][1], &pid, sizeof pid) == sizeof pid);
	if (r->rank != LEAVER) {
		wait_told(r);
		fail_with(r, &w, REDUCTION_ECLOSED);
		all_here(r);
		free_row(&w);
		return;
	}
	EXPECT(read(r->go[LEAVER][0], &pid, sizeof pid) == sizeof pid);
	req = start(r, &w);
	EXPECT(kill(pid, SIGSTOP) == 0);
	leave(r, req, false);
	fill(&w, 1e6f);
	EXPECT(kill(pid, SIGCONT) == 0);
	own_again(r, &w);
	free_row(&w);
}

/* In the child each call that uses the communicator is an error; the parent goes on. */
static void forked(struct rank *r)
{
	struct row w = {.count = LARGE};
	reduction_stats stats = REDUCTION_STATS_INIT;
	reduction_request *req, *other;
	int status, done;
	void *memory;
	pid_t pid;

	open_row(r, &w, 0);
	req = start(r, &w);
	pid = fork();
	if (pid == 0) {
		EXPECT_RC(reduction_all_reduce(r->comm, w.x, w.x, 1, REDUCTION_FLOAT32, REDUCTION_SUM, &r->err),
			  REDUCTION_EINVAL);
		EXPECT_RC(reduction_all_reduce_async(r->comm, w.x, w.x, 1, REDUCTION_FLOAT32, REDUCTION_SUM, NULL,
						     &other, &r->err),
			  REDUCTION_EINVAL);
		EXPECT_RC(reduction_all_reduce_group(r->comm, NULL, 0, &r->err), REDUCTION_EINVAL);
		EXPECT_RC(reduction_wait(req, -1, &r->err), REDUCTION_EINVAL);
		EXPECT_RC(reduction_test(req, &done, &r->err), REDUCTION_EINVAL);
		EXPECT_RC(reduction_buffer_alloc(r->comm, 1, &memory, &r->err), REDUCTION_EINVAL);
		EXPECT_RC(reduction_get_stats(r->comm, &stats, &r->err), REDUCTION_EINVAL);
		EXPECT_RC(reduction_abort(r->comm, NULL, &r->err), REDUCTION_EINVAL);
		EXPECT_RC(reduction_close(r->comm, &r->err), REDUCTION_EINVAL);
		_exit(0);
	}
	EXPECT(waitpid(pid, &status, 0) == pid && status == 0);
	EXPECT_RC(reduction_wait(req, -1, &r->err), 0);
	for (size_t i = 0; i < w.count; i++)
		EXPECT(w.x[i] == 2 * (float)r->world);
	for (int i = 0; i < 10; i++)
		EXPECT_RC(reduction_barrier(r->comm, &r->err), 0);
	close_comm(r);
	free_row(&w);
}

static const struct scenario scenarios[] = {
    {"closed", 3, closed, -1, ALSO_AGENT | ALSO_NODE},
    {"aborted", 3, aborted, -1, ALSO_AGENT | ALSO_NODE},
    {"closed_with_a_cancelled_wait", 3, closed_with_a_cancelled_wait, -1, ALSO_AGENT | ALSO_NODE},
    {"forked", 3, forked, -1, ALSO_AGENT | ALSO_NODE},
    {"stopped_agent", 3, stopped_agent, -1, ALSO_NODE},
};

int main(int argc, char **argv)
{
	return run_scenarios(scenarios, sizeof scenarios / sizeof *scenarios, argc, argv);
}
