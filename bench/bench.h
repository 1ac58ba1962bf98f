/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of reduction-bench: options, test data with its expected results, local
 * processes, reports. The programs in bench/peers use them too, so that all numbers are
 * measured in the same way. */
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

/* The options of the command line. Strings are borrowed from argv. */
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
	unsigned tensors; /* tensors of each size at once, measured in all ways; 0: one tensor */
	uint64_t behind;  /* bytes of an operation in flight while others are timed, in all ways; 0: none */
	enum bench_place place;
	bool json;
	bool plain_memory; /* malloc instead of reduction_buffer_alloc */
	int timeout_ms;    /* for one iteration */
	int ranks;         /* processes to fork; 0: this process is one rank, identified by its environment */
	int local_reducers;
	int lanes;             /* of each local reducer */
	const char *transport; /* to the local reducers: "tcp" or "grpc"; NULL: tcp */
	const char *cpu;       /* kernels of the local reducers; NULL: the reducers choose */
	int mode;              /* enum reduction_mode */
	const char *config, *agent_socket, *job;
	const char *wire; /* encoding; NULL: not given */
};

/* Reads the command line. Returns 0 to go on, or 1 if the program must end with
 * *ret_exit: --help and --version have printed then (exit 0), or an error has its
 * sentence on standard error (exit 2). version: of the system that is measured. */
int bench_options_parse(struct bench_options *o, int argc, char **argv, const char *version, int *ret_exit);

/* Returns the size after `bytes`, or 0 after the last one. */
uint64_t bench_next_size(const struct bench_options *o, uint64_t bytes);

/* Test data. Element i of rank r is a small integer that repeats with the prime period
 * BENCH_PERIOD, chosen so that the result over all ranks is exact in the dtype, whatever
 * the order of additions. */
enum { BENCH_PERIOD = 1021 };
struct bench_pattern {
	size_t elem;                        /* bytes of an element */
	bool near;                          /* of bench_pattern_init_near */
	enum rs_dtype dtype;                /* if near */
	uint8_t mine[BENCH_PERIOD * 8];     /* this rank's elements */
	uint8_t expected[BENCH_PERIOD * 8]; /* the result */
};
void bench_pattern_init(struct bench_pattern *p, enum rs_dtype dtype, enum rs_op op, int rank, int world);

/* The same for a sum or an average of float32, float16 or bfloat16 that is encoded on the
 * network, in any way. All elements are -1, 0 or 1 in the result and, times the number of
 * ranks if it is an average, on each rank and in sums over some of the ranks. So the
 * largest element of a block, which sets the scale, is as large as all others but zeros,
 * and an element is rounded by less than BENCH_NEAR even with 4 bits. The result without
 * a rank, or of another place, differs by 1 in many elements. */
#define BENCH_NEAR 0.25f
void bench_pattern_init_near(struct bench_pattern *p, enum rs_dtype dtype, enum rs_op op, int rank, int world);
/* Writes this rank's `count` elements to dst. */
void bench_pattern_fill(const struct bench_pattern *p, void *dst, size_t count);
/* Returns how many all-reduces in place, each on the result of the previous one, leave
 * every element finite; at least
 * 1. UINT_MAX: any number. */
unsigned bench_pattern_lasts(enum rs_dtype dtype, enum rs_op op, int world);
/* Returns how many of the elements at src differ from the expected result; if near: by
 * more than BENCH_NEAR. */
uint64_t bench_pattern_wrong(const struct bench_pattern *p, const void *src, size_t count);
/* Writes one element, a whole number that is exact in the dtype; integer types take its
 * low bits. */
void bench_store(void *dst, enum rs_dtype dtype, long value);

/* Reducer processes and ranks on this machine, their temporary folder, and the signals
 * that end them. Invariant: every process in pids runs or has not been waited for; 0
 * marks a free place. */
struct bench_local {
	char dir[64]; /* temporary folder; "" if there is none */
	char config[96];
	int *pids; /* reducers first, then ranks */
	int reducers, ranks;
};
/* Starts o->local_reducers reducers, writes their configuration and points o->config to
 * it. After an error, everything that was started has been ended. */
int bench_local_start(struct bench_local *l, struct bench_options *o, struct rs_err *e);
/* Forks o->ranks processes. Returns in each of them with *ret_rank >= 0, and in the
 * parent with *ret_rank == -1. */
int bench_local_fork(struct bench_local *l, const struct bench_options *o, int *ret_rank, struct rs_err *e);
/* Waits until all ranks have ended, or until SIGINT or SIGTERM. Returns the exit code of
 * the program. */
int bench_local_wait(struct bench_local *l);
/* Ends processes that still run, and removes the temporary folder. */
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
	uint64_t sent;      /* bytes sent and received in one iteration; only with --tensors or --behind */
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
