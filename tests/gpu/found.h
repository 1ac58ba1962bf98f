/* SPDX-License-Identifier: Apache-2.0 */
/* What the machine has: driver, GPUs, NCCL, Python, network namespaces, shaping. */
#ifndef RS_TESTS_GPU_FOUND_H
#define RS_TESTS_GPU_FOUND_H

#include <stdbool.h>

struct found {
	int gpus;
	bool links;     /* hosts with shaped links can be made */
	char nccl[512]; /* the library that was really loaded; "": none */
	int nccl_version;
};

/* Looks for all of it and prints a row for each. */
void found_print(struct found *f);

#endif
