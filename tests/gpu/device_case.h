/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank of the part device does (device_rank.c) for the process that starts it
 * (device.c). */
#ifndef RS_TESTS_GPU_DEVICE_CASE_H
#define RS_TESTS_GPU_DEVICE_CASE_H

#include <stddef.h>

/* One case. */
struct device_case {
	const char *name; /* results, streams, call, speed or timeline */
	size_t most;      /* bytes of the largest buffer */
	unsigned rounds;  /* of a measurement */
};

/* Runs a case as one rank, whose place in the job is in the environment. Rank 0 prints
 * "NAME NUMBER" for each value that it measures. The last line that a rank prints if it
 * fails says why. Returns the exit status. */
int device_case_run(const struct device_case *c);

#endif
