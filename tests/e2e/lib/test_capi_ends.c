/* SPDX-License-Identifier: Apache-2.0 */
/* run: beside-others */
/* How jobs end in the C API: ranks that disagree, close with operations pending, or never
 * come; see ranks.h. */
#include "tests/e2e/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GROUP = 200 };

/* Requests of a group that nobody will ever complete end when the communicator is
 * closed. */
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
    {"close_pending_group", 2, close_pending_group, -1, 0},
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
