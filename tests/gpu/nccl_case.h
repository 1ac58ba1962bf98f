/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank of the part nccl does (nccl_rank.c), and what it shares with the other
 * ranks and the process that starts them (nccl.c). */
#ifndef RS_TESTS_GPU_NCCL_CASE_H
#define RS_TESTS_GPU_NCCL_CASE_H

#include "tests/gpu/nccl_api.h"

#include <stdatomic.h>
#include <stddef.h>

enum { CASE_RANKS_MAX = 4 };

/* In a file that all ranks map. */
struct case_shared {
	_Atomic int has_id;
	struct nccl_id id;
	_Atomic unsigned arrived; /* at barriers, by all ranks together */
	_Atomic unsigned done;    /* operations of rank 0 */
	_Atomic unsigned failed;
	char why[512];  /* of the first rank that failed */
	double result;  /* of rank 0: seconds of an abort, or bytes per second */
	double largest; /* largest error of a float, in units of its bound */
};

/* Runs a case as one rank: sums, many, aborts or speed. Returns the exit status. */
int case_run(const char *name, const char *shared, int rank, int ranks, size_t bytes, unsigned ops);

#endif
