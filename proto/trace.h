/* SPDX-License-Identifier: Apache-2.0 */
/* The record of a few operations, chunk by chunk: when each event of a chunk happened on
 * a lane of a reducer, or on a connection of a worker. The thread that has a trace writes
 * to it without locks. Its memory is allocated before. */
#ifndef RS_PROTO_TRACE_H
#define RS_PROTO_TRACE_H

#include "proto/control.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	TRACE_RANGES = 16,        /* most jobs of a trace */
	TRACE_SOURCES = 256,      /* most sources of a trace; further ones are left out */
	TRACE_RECORDS = 1 << 16,  /* most records of a trace */
	TRACE_TOTAL = 1 << 20,    /* most records of all traces of a process: 32 MiB */
	TRACE_OPERATIONS = 10000, /* most operations of each job */
	TRACE_LIMIT_MS = 60000,   /* longest time to wait for operations */
	TRACE_LIMIT_DEFAULT_MS = 10000,
	TRACE_RECORD = 32, /* bytes of an encoded record */
};

/* What happened to a chunk. */
enum trace_kind {
	/* on a reducer */
	TRACE_BEGUN,    /* the first bytes of a rank's contribution were read */
	TRACE_COMPLETE, /* its last bytes were read */
	TRACE_SUMMED,   /* the sum of all ranks is complete; it has no rank */
	TRACE_RETURNED, /* the last bytes of the result were given to the connection of a rank */
	/* on a worker */
	TRACE_SENDING, /* just before the first bytes of the contribution were given to the connection */
	TRACE_SENT,    /* its last bytes were */
	TRACE_RESULT,  /* the last bytes of the result were read */
	TRACE_KINDS,
};

/* One event. */
struct trace_record {
	uint64_t at_us; /* of the process's monotonic clock */
	uint64_t seq;
	uint32_t chunk;
	uint32_t bytes; /* of the payload */
	uint16_t rank;
	uint16_t source;
	uint8_t kind;
};

/* A job whose operations are recorded: those from `from` on. */
struct trace_range {
	char job[CONTROL_JOB];
	uint32_t generation;
	uint64_t id; /* of the job in this process; 0: it is not here */
	uint64_t from;
};

/* Where records come from: a lane of a job on a reducer, or a worker's connection to a
 * lane of a reducer. */
struct trace_source {
	unsigned range;
	uint32_t lane, world_size;
	uint64_t next;             /* when the trace began: lowest operation of which no rank had begun a chunk */
	char reducer[CONTROL_JOB]; /* worker: id of the reducer; else "" */
};

/* What is asked for. */
struct trace_request {
	struct trace_range ranges[TRACE_RANGES];
	unsigned ranges_n;
	uint32_t operations; /* of each range */
	uint32_t records;    /* most records of a trace */
	uint32_t limit_ms;
};

/* The records of one lane of a reducer, or of one job of a worker. Invariants: n <= size
 * <= TRACE_RECORDS; mark <= n; the sources have sources_n <= TRACE_SOURCES entries, whose
 * ranges are below ranges_n. */
struct trace {
	struct trace *next; /* of the same process */
	struct trace_range ranges[TRACE_RANGES];
	unsigned ranges_n;
	uint32_t operations;
	uint32_t done;      /* bit i: all operations of range i are complete, or its job has ended */
	_Atomic bool ended; /* nothing more is recorded: its thread has set all fields */
	bool missed;        /* an operation of a range had begun before the trace */
	struct trace_source sources[TRACE_SOURCES];
	unsigned sources_n;
	uint64_t dropped; /* records that had no room */
	uint32_t size, n;
	uint32_t mark; /* first record of the current call, see trace_worked() */
	struct trace_record records[];
};

/* Allocates a trace for a request, with its pages touched; the caller frees it with
 * trace_free(). NULL: no memory. */
struct trace *trace_new(const struct trace_request *r, uint32_t records);
/* Frees a list of traces. */
void trace_free(struct trace *first);
/* Adds a source of a range. Returns its number; -1: there is no room for it. */
int trace_add_source(struct trace *t, unsigned range, uint32_t lane, uint32_t world_size, uint64_t next);
/* Adds the time that a call took to the sums that it made. */
void trace_worked(struct trace *t, uint64_t ns);

void trace_encode(const struct trace_record *r, uint8_t out[TRACE_RECORD]);
/* Returns false if the bytes are no record of one of sources_n sources. */
bool trace_decode(struct trace_record *ret, const uint8_t in[TRACE_RECORD], unsigned sources_n);

static inline void trace_put(struct trace *t, const struct trace_record *r)
{
	if (t->n < t->size)
		t->records[t->n++] = *r;
	else
		t->dropped++;
}

#endif
