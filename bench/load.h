/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of reduction-load: one process that simulates many ranks of one or several
 * jobs against a running reducer.
 *
 * A rank is one connection and a few numbers. Chunks are counted over all operations:
 * chunk g of a job is chunk g % chunks of operation g / chunks. What ranks send, and the
 * results they expect, are in a few shared buffers. One thread, one epoll. */
#ifndef RS_BENCH_LOAD_H
#define RS_BENCH_LOAD_H

#include "common/dtype.h"
#include "common/error.h"
#include "proto/control.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The options of the command line. Strings are borrowed from argv. */
struct load_options {
	const char *address; /* host:port of the reducer */
	const char *name;    /* of the jobs: NAME-0, NAME-1, ... */
	unsigned ranks;      /* of each job */
	unsigned jobs;
	uint64_t bytes;  /* of one all-reduce */
	double seconds;  /* seconds to measure; 0: `ops` operations are measured */
	double warmup;   /* seconds of warm-up */
	uint64_t ops;    /* with seconds == 0 */
	uint32_t chunk;  /* bytes */
	uint32_t window; /* chunks of a rank in flight */
	enum rs_dtype dtype;
	bool check_all;  /* check every element of each result, not only the first ones */
	unsigned silent; /* further connections, which never send HELLO */
	int server_pid;  /* process whose processor time and memory are reported; 0: none */
	double timeout;  /* seconds without any progress */
	bool json;
};

/* Reads the command line. Returns 0 to go on, or 1 if the program must end with
 * *ret_exit: --help has printed then (exit 0), or an error has its sentence on standard
 * error (exit 2). */
int load_options_parse(struct load_options *o, int argc, char **argv, int *ret_exit);

enum {
	LOAD_CLASSES = 8,    /* ranks whose numbers are equal modulo this contribute the same data */
	LOAD_PERIOD = 61,    /* number of different places in the buffers where chunks begin */
	LOAD_HEAD = 64,      /* bytes of each result that are compared, unless all are */
	LOAD_BATCH = 32,     /* chunks in one system call */
	LOAD_READ = 1 << 18, /* bytes of one read */
};

/* Contributions and results of all ranks of a job. */
struct load_data {
	size_t elem;                 /* bytes of an element */
	uint8_t *mine[LOAD_CLASSES]; /* a chunk and LOAD_PERIOD elements more; owned, as the next */
	uint8_t *expected;
};

/* Makes the data. chunk_elems: elements of a whole chunk. Errors: RS_ENOMEM; RS_EINVAL if
 * sums of that many ranks are not exact in the dtype, so that a wrong sum could not be
 * recognized. */
int load_data_init(struct load_data *d, enum rs_dtype dtype, unsigned ranks, uint32_t chunk_elems, struct rs_err *e);
void load_data_close(struct load_data *d);
static inline size_t load_data_at(const struct load_data *d, uint64_t g)
{
	return (size_t)(g % LOAD_PERIOD) * d->elem;
}

/* What all ranks of a job share. */
struct load_job {
	char name[CONTROL_JOB];
	uint64_t count;  /* elements of an operation */
	uint64_t chunks; /* of an operation */
	uint32_t chunk_elems;
	uint64_t end; /* chunks after which its ranks leave; UINT64_MAX: not decided yet */
};

enum load_state { LOAD_JOINING, LOAD_RUNNING, LOAD_LEAVING, LOAD_GONE };

/* One connection. Invariant: done <= next <= done + window; sent < bytes of frame
 * `next`. */
struct load_rank {
	int fd;
	enum load_state state;
	unsigned rank;
	struct load_job *job;
	struct load *all;
	bool write_wait; /* the socket took less than there was */
	bool quiet;      /* nothing has been sent since the last tick */
	uint64_t next;   /* chunks whose contribution has been sent completely */
	uint32_t sent;   /* bytes of the next frame that are sent */
	uint64_t ack;    /* that its header has */
	uint64_t done;   /* chunks whose result has arrived */
	uint8_t head[FRAME_HEADER];
	unsigned head_have;
	struct frame in;
	uint32_t pos;     /* bytes of its payload that have arrived */
	bool wrong;       /* bytes of an element of the result that is arriving */
	uint8_t *control; /* payload of a control frame that is arriving; owned */
};

/* The counts of a run so far. */
struct load_counts {
	uint64_t bytes;   /* payload of results, over all ranks */
	uint64_t results; /* over all ranks */
	uint64_t wrong;   /* results with a wrong element */
	uint64_t joined;  /* ranks that have START */
	uint64_t gone;    /* ranks that have left in an orderly way */
};

/* A process as reported by /proc. */
struct load_proc {
	double user_s, system_s;
	uint64_t rss, rss_peak; /* bytes */
};

/* The state at one moment of a run. */
struct load_mark {
	double at;     /* seconds, monotonic */
	double load_s; /* processor time of this process */
	struct load_counts counts;
	struct load_proc server;
};

struct load {
	struct load_options opt;
	struct load_data data;
	struct load_job *jobs;
	struct load_rank *ranks; /* [opt.jobs * opt.ranks] */
	unsigned ranks_n;
	int *silent; /* [opt.silent] descriptors */
	uint64_t silent_closed;
	int epoll;
	uint8_t *scratch; /* LOAD_READ bytes */
	uint64_t incarnation;
	struct load_counts counts;
	struct load_mark begin;    /* before the first connection */
	struct load_mark started;  /* all ranks had START */
	struct load_mark from, to; /* the measured time */
};

/* load_rank.c. Errors end the whole run and name the rank. */
int load_rank_hello(struct load_rank *r, struct rs_err *e);
int load_rank_read(struct load_rank *r, struct rs_err *e);
/* Sends as much as window and socket allow, and GOODBYE at the end. */
int load_rank_write(struct load_rank *r, struct rs_err *e);
/* Sends a PING if nothing else was sent since the last call. */
int load_rank_tick(struct load_rank *r, struct rs_err *e);

/* load_proc.c */
int load_proc_read(struct load_proc *p, int pid, struct rs_err *e);

/* load_run.c: connects all ranks, runs them and lets them leave. *l then has the marks
 * and counts, also after an error. On entry *l is zero except for opt. */
int load_run(struct load *l, struct rs_err *e);
void load_close(struct load *l);

#endif
