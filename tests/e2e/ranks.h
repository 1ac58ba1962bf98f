/* SPDX-License-Identifier: Apache-2.0 */
/* Shared parts of the tests of the C API: every scenario forks its ranks, each of which
 * opens a communicator in its own process, with real reducers, or through a real
 * agent. */
#ifndef RS_TESTS_E2E_RANKS_H
#define RS_TESTS_E2E_RANKS_H

#include "agent/lib/include/reduction.h"

#include <stdbool.h>
#include <stddef.h>

enum { RANKS_MAX = 4 };

/* The state of a rank's process. go[i] is a pipe from rank 0 to rank i; go[0] is one from
 * all of them to rank 0. */
struct rank {
	const char *scenario;
	const char *config;
	reduction_mode mode;
	const char *agent_socket; /* NULL: mode is not AGENT */
	char job[40];
	int rank, world;
	int go[RANKS_MAX][2], here[2];
	reduction_comm *comm;
	reduction_error err;
};

/* How a scenario is run once more, after REDUCTION_MODE_DIRECT. */
enum { ALSO_AGENT = 1, ALSO_NODE = 2 };

struct scenario {
	const char *name;
	int ranks;
	void (*run)(struct rank *r);
	int killed; /* the rank that ends by SIGKILL, or -1 */
	int also;   /* ALSO_AGENT | ALSO_NODE */
};

/* Ends the process with an error message. */
void fail_at(const struct rank *r, int line, const char *fmt, ...) __attribute__((format(printf, 3, 4), noreturn));
void expect_rc(const struct rank *r, int line, const char *what, int rc, int want);

#define EXPECT(cond)                                                                                                   \
	((cond) ? (void)0                                                                                              \
		: fail_at(r, __LINE__, "not true: %s (last error %d: %s)", #cond, r->err.code, r->err.message))
#define EXPECT_RC(rc, want) expect_rc(r, __LINE__, #rc, (rc), (want))

reduction_options options(const struct rank *r);
void open_comm(struct rank *r);
void close_comm(struct rank *r);

/* Rank 0 lets the others continue, which have called wait_go. */
void let_go(struct rank *r);
void wait_go(struct rank *r);
/* Returns after all ranks have called it, without using the library: afterwards no rank
 * is still opening. */
void all_here(struct rank *r);

/* Element i of a rank's contribution: a small whole number; and of the result of all
 * ranks. */
int element(int rank, size_t i);
double expected(reduction_op op, int world, size_t i);
/* Fills n tensors of `count` floats each. */
void make_tensors(const struct rank *r, reduction_tensor *tensors, float *memory, size_t n, size_t count);

/* Runs the scenarios whose names are arguments, or all. Returns the exit status: 0: all
 * passed; 1: the failures are on standard error. */
int run_scenarios(const struct scenario *all, size_t n, int argc, char **argv);

#endif
