/* SPDX-License-Identifier: Apache-2.0 */
/* The file to which a copier writes when its pieces were copied and on the network. */
#ifndef RS_AGENT_GPU_COPIER_TRACE_H
#define RS_AGENT_GPU_COPIER_TRACE_H

#include "agent/gpu/core/pieces.h"
#include "common/error.h"

#include <stdio.h>

/* A trace. Only the copier's thread uses it between open and close. */
struct copier_trace {
	struct pieces *pieces; /* NULL: nothing is recorded */
	FILE *out;
	const char *path; /* borrowed */
	unsigned rank;
};

/* Creates the file, and allocates the record. Errors: RS_EIO, RS_ENOMEM. */
int copier_trace_open(struct copier_trace *t, const char *path, unsigned rank, struct rs_err *e);
/* Returns the time on the clock of traces, CLOCK_MONOTONIC, in nanoseconds. */
uint64_t copier_trace_now(void);
/* Writes the file; removes it if it cannot be written as a whole. */
void copier_trace_close(struct copier_trace *t);

#endif
