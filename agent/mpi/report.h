/* SPDX-License-Identifier: Apache-2.0 */
/* What went through reducers and what was passed on to MPI, and why: the line at the end
 * of the program. */
#ifndef RS_AGENT_MPI_REPORT_H
#define RS_AGENT_MPI_REPORT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* Why a call is passed on. */
enum pass {
	PASS_NOT, /* it is not: it went through reducers */
	PASS_SMALL,
	PASS_TYPE,
	PASS_OP,
	PASS_GROUP,    /* one rank, or two groups of ranks */
	PASS_ONE_NODE, /* and reducers are not required */
	PASS_UNCONFIGURED,
	PASS_UNREACHABLE, /* at least one rank did not reach them */
	PASS_UNEQUAL,     /* ranks have different settings */
	PASS_NOT_OPEN,    /* non-blocking, before a blocking call has opened the job */
	PASS_THREADS,     /* non-blocking, without MPI_THREAD_MULTIPLE */
	PASSES
};

struct report {
	struct {
		_Atomic uint64_t calls, bytes;
	} of[PASSES];
};

/* Counts a call. bytes -1: unknown. */
void report_count(struct report *r, enum pass pass, int64_t bytes);

/* Writes the sentence. */
void report_text(const struct report *r, int64_t min_bytes, char *to, size_t room);

#endif
