/* SPDX-License-Identifier: Apache-2.0 */
/* The records of several processes as one timeline: clocks are aligned, the records of a
 * chunk become a span, and the spans are written in Chrome's trace format. Without I/O
 * other than the writing. */
#ifndef RS_DEPLOY_CTL_TIMELINE_H
#define RS_DEPLOY_CTL_TIMELINE_H

#include "common/error.h"
#include "proto/reduction.pb-c.h"
#include "proto/trace.h"

#include <stdio.h>

enum {
	TIMELINE_JOBS = 64,
	TIMELINE_NAME = 160,
	TIMELINE_RECORDS = 1 << 22, /* most records of all processes */
	SPAN_POINTS = 4,
};

/* One process. Its clock minus that of this program was from `least_us` to `most_us`, as
 * questions to it showed. */
struct timeline_process {
	char name[TIMELINE_NAME];
	bool worker;
	int64_t least_us, most_us;
	int64_t offset_us; /* what is subtracted from its times; set by timeline_align */
	int64_t error_us;  /* most by which its times may then differ from those of the first process */
};

/* Where records come from. */
struct timeline_source {
	unsigned process, job;
	uint32_t lane, world_size;
	char reducer[CONTROL_JOB]; /* worker: of the connection; else "" */
};

/* A chunk of a rank on a reducer or a worker. at[] are its times: on a reducer
 * TRACE_BEGUN, TRACE_COMPLETE, TRACE_SUMMED and TRACE_RETURNED, on a worker
 * TRACE_SENDING, TRACE_SENT and TRACE_RESULT. 0: not known. */
struct span {
	unsigned source;
	uint64_t seq;
	uint32_t chunk, rank, bytes;
	int64_t at[SPAN_POINTS];
};

/* Invariant: every record's source is an index in `sources`. All pointers are owned. */
struct timeline {
	struct {
		char name[CONTROL_JOB];
		uint32_t generation;
	} jobs[TIMELINE_JOBS];
	unsigned jobs_n;
	struct timeline_process *processes;
	unsigned processes_n;
	struct timeline_source *sources;
	unsigned sources_n;
	struct timeline_record {
		unsigned source;
		struct trace_record record;
	} * records;
	size_t records_n;
	struct span *spans; /* set by timeline_join */
	size_t spans_n;
	uint64_t dropped; /* records for which a process had no room */
	bool complete;    /* no process has stopped at its time limit */
	bool consistent;  /* timeline_align has found clocks that fit everything */
};

/* Makes an empty timeline. Errors: RS_ENOMEM. */
int timeline_init(struct timeline *t, unsigned processes, struct rs_err *e);
void timeline_close(struct timeline *t);
/* Adds an answer of a process. Errors: RS_EPROTO: it is wrong; RS_ENOMEM. */
int timeline_add(struct timeline *t, unsigned process, const Reduction__V1__TraceReply *m, struct rs_err *e);
/* Makes the spans, in the order (source, seq, chunk, rank). Errors: RS_ENOMEM. */
int timeline_join(struct timeline *t, struct rs_err *e);
/* Aligns the clocks, after timeline_join: an event of one process that is the cause of an
 * event of another one is earlier. Sets offsets, errors and `consistent`. Errors:
 * RS_ENOMEM. */
int timeline_align(struct timeline *t, struct rs_err *e);
/* Returns the largest error of two processes. */
int64_t timeline_error_us(const struct timeline *t);
/* Writes the timeline, after timeline_align. Errors: RS_ENOMEM. The caller checks
 * ferror(). */
int timeline_write(const struct timeline *t, FILE *out, struct rs_err *e);

#endif
