/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of reduction-bench: options, test data with its oracle, local processes, reports.
 * The peers of bench/peers use them too, so that all numbers come about in the same way. */
#ifndef RS_BENCH_BENCH_H
#define RS_BENCH_BENCH_H

#include "common/dtype.h"
#include "common/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

enum bench_place { PLACE_OUT = 1, PLACE_IN = 2, PLACE_BOTH = 3 };

/* What the command line asks for. Strings are borrowed from argv. */
struct bench_options {
	const char *system, *version; /* what is measured: shown in reports */
	uint64_t min_bytes, max_bytes;
	uint64_t step_bytes; /* 0: multiply by factor instead */
	double factor;
	unsigned iters, warmup;
	unsigned dtypes; /* bit set, bit i is dtype i */
	unsigned ops;    /* bit set */
	bool check;
	unsigned in_flight;
	unsigned tensors; /* of each size at once, in all ways; 0: one */
	uint64_t behind;  /* bytes of an operation in flight while others are timed, in all ways; 0: none */
	enum bench_place place;
	bool json;
	bool plain_memory; /* malloc instead of reduction_buffer_alloc */
	int timeout_ms;    /* for one iteration */
	int ranks;         /* fork that many; 0: this process is one rank, known from its environment */
	int local_reducers;
	int lanes;             /* of each local reducer */
	const char *transport; /* to the local reducers: "tcp" or "grpc"; NULL: tcp */
	const char *cpu;       /* kernels of the local reducers; NULL: their choice */
	const char *config, *agent, *job;
};

/* Reads the command line. Returns 0 to go on, or 1 when the program is to end with *ret_exit: --help and --version
 * have printed then (exit 0), a mistake has its sentence on standard error (exit 2). version: of what is measured. */
int bench_options_parse(struct bench_options *o, int argc, char **argv, const char *version, int *ret_exit);

/* The size after `bytes`, or 0 when it was the last one. */
uint64_t bench_next_size(const struct bench_options *o, uint64_t bytes);

/* Test data: rank r's element i is a small integer that repeats with the prime period BENCH_PERIOD, chosen so that the
 * result over all ranks is exact in the dtype whatever the order of additions. */
enum { BENCH_PERIOD = 1021 };
struct bench_pattern {
	size_t elem;                        /* bytes of an element */
	uint8_t mine[BENCH_PERIOD * 8];     /* this rank's elements */
	uint8_t expected[BENCH_PERIOD * 8]; /* the result */
};
void bench_pattern_init(struct bench_pattern *p, enum rs_dtype dtype, enum rs_op op, int rank, int world);
/* Writes this rank's `count` elements to dst. */
void bench_pattern_fill(const struct bench_pattern *p, void *dst, size_t count);
/* How many all-reduces in place, one on the result of the other, no element of such data becomes infinite in; at least
 * 1. UINT_MAX: none ever does. */
unsigned bench_pattern_lasts(enum rs_dtype dtype, enum rs_op op, int world);
/* How many of the elements at src differ from the expected result. */
uint64_t bench_pattern_wrong(const struct bench_pattern *p, const void *src, size_t count);
/* Writes one element, a whole number that is not negative and exact in the dtype; of integer types its low bits. */
void bench_store(void *dst, enum rs_dtype dtype, long value);

/* Reducer processes and ranks on this machine, their temporary folder, and the signals that end them.
 * Invariant: every process in pids is running or not yet waited for; 0 marks a free place. */
struct bench_local {
	char dir[64]; /* temporary folder; "" when there is none */
	char config[96];
	int *pids; /* reducers first, then ranks */
	int reducers, ranks;
};
/* Starts o->local_reducers reducers, writes their configuration and points o->config at it. On error, everything that
 * was started has been ended. */
int bench_local_start(struct bench_local *l, struct bench_options *o, struct rs_err *e);
/* Forks o->ranks processes. Returns in each of them with *ret_rank >= 0, and in the parent with *ret_rank == -1. */
int bench_local_fork(struct bench_local *l, const struct bench_options *o, int *ret_rank, struct rs_err *e);
/* Waits until all ranks have ended, or until SIGINT or SIGTERM. Returns the exit code of the program. */
int bench_local_wait(struct bench_local *l);
/* Ends what still runs and removes the temporary folder. */
void bench_local_close(struct bench_local *l);

/* Times of one row, in microseconds for one operation. */
struct bench_times {
	double avg, p50, p99, min, max;
	uint64_t wrong; /* elements over all ranks; UINT64_MAX: not checked */
};
enum bench_way { WAY_PLAIN, WAY_SEPARATE, WAY_GROUPED, WAY_SINGLE, WAY_ALONE, WAY_BEHIND, WAY_URGENT };
struct bench_row {
	uint64_t bytes, count;
	enum bench_way way; /* WAY_PLAIN: without --tensors and --behind */
	uint64_t sent;      /* bytes on the wire for one iteration; only with those */
	enum rs_dtype dtype;
	enum rs_op op;
	int ranks;
	bool has[2]; /* out of place, in place */
	struct bench_times times[2];
};
/* Sorts `us` and fills the statistics. */
void bench_times_of(struct bench_times *t, double *us, unsigned n);
void bench_print_header(const struct bench_options *o, int ranks);
void bench_print_row(const struct bench_options *o, const struct bench_row *r);

#ifdef __cplusplus
}
#endif

#endif
