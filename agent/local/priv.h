/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the hub share and nobody else sees: hub.c (clients), buffer.c (shared memory),
 * job.c (who has come, states), submit.c (matching), progress.c (bytes that come and go while an
 * operation runs), op.c (sums), nonfinite.c (who sent NaN), stage.c (private memory). */
#ifndef RS_AGENT_LOCAL_PRIV_H
#define RS_AGENT_LOCAL_PRIV_H

#include "agent/core/nonfinite.h"
#include "agent/local/hub.h"

enum {
	LOCAL_STAGE_CLASSES = 64,
	LOCAL_STAGE_MIN = 1 << 16,   /* bytes of the smallest stage */
	LOCAL_STAGE_LIMIT = 1 << 28, /* bytes of stages of one job; a single operation may be over it */
	LOCAL_PIECES = 64,           /* that can be on their way; a ring has fewer */
	LOCAL_PIECE_MIN = 1 << 18,   /* least bytes of one */
	LOCAL_RANK_TEXT = 160,       /* bytes of "rank 3 (pid 77 on HOST)" */
};

/* Recycled private memory of one job. busy + idle <= max(limit, the one biggest stage in use). A stage has the size of
 * the power of two above what was asked for; an idle one holds the pointer to the next of its size. */
struct local_stages {
	void *idle[LOCAL_STAGE_CLASSES]; /* by log2 of the size */
	size_t idle_bytes, busy_bytes, limit;
};

/* Shared memory of one client. Alive while making (the driver works on it), while it has an owner, or while operations
 * refer to it. */
struct local_buffer {
	struct local_hub *hub;
	struct local_client *owner; /* NULL: freed, or its client is gone */
	uint32_t id;
	bool making;
	unsigned refs;  /* of operations */
	uint64_t bytes; /* counted in hub->shm_used */
	char *map;
};

/* A connected process. In a job exactly in state JOINED. */
struct local_client {
	struct local_hub *hub;
	struct local_client *next, **at; /* in state NEW among the hub's fresh ones, else among its clients */
	void *user;
	uint32_t pid;
	enum {
		CLIENT_NEW,     /* HELLO has to come until deadline_ms */
		CLIENT_JOINED,  /* of job, as its local_rank */
		CLIENT_LEAVING, /* said GOODBYE, was refused or dropped: nothing it sends counts */
	} state;
	uint64_t deadline_ms;
	uint64_t next_ping_ms;     /* JOINED: when its next PING is due, */
	uint32_t ping_interval_ms; /* time between two, */
	unsigned unanswered;       /* and how many there were since its last message */
	struct local_job *job;
	unsigned local_rank;
	bool allocating; /* one buffer is in the making */
	struct local_buffer **buffers;
	uint32_t buffers_n; /* entries of buffers; NULL where there is none */
};

/* A local rank's place in its job; survives its client so that messages can name it. */
struct local_member {
	struct local_client *client; /* NULL: has not come or has gone */
	bool left;                   /* in good order */
	struct local_hello hello;    /* of the client that has come last */
	uint64_t next_seq;           /* of its next operation */
	unsigned in_flight;          /* operations without DONE */
};

/* The local ranks of one (name, generation). engine != NULL exactly in STARTING .. FAILED before engine_freed. */
struct local_job {
	struct local_hub *hub;
	struct local_job *next, **at;
	char name[RS_NAME_MAX];
	uint32_t generation;
	enum local_job_state {
		JOB_GATHERING, /* waits for local ranks until deadline_ms */
		JOB_STARTING,  /* waits for the engine's on_ready */
		JOB_RUNNING,
		JOB_ENDING,  /* all clients have left; waits for engine_freed */
		JOB_FAILING, /* waits for the engine's on_failed: until then it may write to the clients' memory */
		JOB_FAILED,  /* clients were told; waits for them to leave, and for engine_freed */
	} state;
	uint64_t deadline_ms;
	unsigned members_n; /* local world size */
	unsigned clients_n; /* members with a client */
	struct local_member *members;
	void *engine;
	bool single_worker; /* there is no other node, and the sum of these is the result */
	bool freeing;       /* engine_free was called */
	struct local_event ready, failed;
	struct rs_err err; /* why it failed */

	/* Operations that some local ranks have started and others not yet: seqs [matched, newest), at ring[seq % ops].
	 * No client runs ahead by more than ops, so the ring suffices. */
	struct local_op **ring;
	uint64_t matched, newest;
	struct local_op *queue, **queue_end; /* started by all, waiting for a stage */
	struct local_op *filling,
	    **filling_end;     /* of all: those that wait for bytes of local ranks, in the same order */
	unsigned running;      /* operations of the engine */
	struct local_op *idle; /* memory of those that are over, for the next ones */
	struct local_stages stages;
};

struct local_part {
	struct local_buffer *send, *recv; /* NULL with count 0; referenced */
	const char *from;
	char *to;
	uint64_t filled;          /* elements at from that have been written, */
	uint64_t from_ring, ring; /* bytes of the rings at from and to, 0: none */
	_Atomic uint64_t *landed; /* what LANDED is about, the client's */
};

/* One operation of all local ranks. While it runs the engine's thread owns x, note.err, left and pieces_landed and
 * reads the rest, but for what only the hub's thread uses: there, filling and its links. */
struct local_op {
	struct exchange_op x; /* first */
	struct local_event done;
	struct local_job *job;
	struct local_op *next;
	unsigned parts_n;         /* local ranks that have started it */
	uint64_t since_ms;        /* when the first did so, */
	unsigned first_rank;      /* its local rank, */
	struct local_submit spec; /* and what it said */
	void *stage;
	size_t stage_bytes;
	bool filling; /* in job->filling */
	struct local_op *next_filling, **filling_at;
	_Atomic uint64_t ready; /* elements that are there on all sides; grows while filling */

	uint64_t ring;               /* bytes of the smallest of the sides', 0: there is none */
	uint64_t piece;              /* elements; the last piece has fewer */
	uint32_t left[LOCAL_PIECES]; /* chunks without a result of piece i, at i % LOCAL_PIECES */
	uint64_t pieces_landed;      /* as many as have none left, counted from the first */
	_Atomic uint64_t landed;     /* elements of these, */
	_Atomic bool event_posted;   /* which progress will tell the hub */
	struct local_event progress;
	unsigned bad_rank; /* local rank that has `found` in the chunk that is being filled; members_n: none */
	struct nonfinite bad_value;
	struct local_part part[]; /* by local rank */
};

/* Events that are logged within limits, since clients can cause them at will. */
enum local_limited { LOCAL_LIMITED_REFUSED, LOCAL_LIMITED_DROPPED, LOCAL_LIMITED_JOBS, LOCAL_LIMITED_NR };

struct local_hub {
	const struct rs_config *cfg;
	const struct rs_kernels *kernels;
	const struct rs_log *log;
	struct local_ports ports;
	void *ctx;
	char host[64];
	unsigned ops; /* operations a client may have in flight */
	struct local_client *clients;
	struct local_client *unjoined, **unjoined_end; /* without HELLO; who came first goes first */
	struct local_job *jobs;
	unsigned clients_n, jobs_n;
	uint64_t shm_used;
	uint64_t now_ms; /* of the last event with a time */
	bool draining;
	uint64_t drain_ms; /* deadline */
	struct rs_log_limit limits[LOCAL_LIMITED_NR];
};

/* hub.c */
/* The client has done what it may not: tells it, closes, ends its job. */
void local_client_violation(struct local_client *c, const struct rs_err *why);
/* A client in state NEW has said something, or has to go: moves on to `state`. */
void local_client_set_state(struct local_client *c, int state);
/* May this event be logged now? */
bool local_may_log(struct local_hub *h, enum local_limited which);
void local_send_failure(struct local_client *c, enum local_type type, const struct rs_err *err, bool retry);
/* It has joined: PINGs begin. */
void local_client_start_pings(struct local_client *c, uint32_t detect_ms, uint64_t now_ms);

/* buffer.c */
void local_buffer_alloc(struct local_client *c, uint64_t bytes);
int local_buffer_drop(struct local_client *c, uint32_t id, struct rs_err *e);
void local_buffers_orphan(struct local_client *c);
/* [offset, offset + bytes) of one of the client's buffers, with a reference to it. Errors: RS_EPROTO. */
int local_buffer_get(struct local_client *c, uint32_t id, uint64_t offset, uint64_t bytes, struct local_buffer **ret,
		     struct rs_err *e);
void local_buffer_put(struct local_buffer *b); /* NULL is allowed */

/* job.c */
void local_job_hello(struct local_client *c, const struct local_hello *hello, uint64_t now_ms);
void local_job_goodbye(struct local_client *c);
/* c goes without GOODBYE; how: see local_client_lost. */
void local_job_lost(struct local_client *c, const char *how);
void local_job_fail(struct local_job *j, const struct rs_err *err);
const char *local_job_rank_text(const struct local_job *j, unsigned local_rank, char buf[LOCAL_RANK_TEXT]);
/* "processes 2-3 on HOST" */
const char *local_job_ranks_text(const struct local_job *j, char buf[LOCAL_RANK_TEXT]);

/* submit.c */
int local_job_submit(struct local_client *c, const struct local_submit *s, struct rs_err *e);
/* Gives matched operations to the engine as far as stages allow. */
void local_job_start_ops(struct local_job *j);
/* When the oldest operation that waits for local ranks has waited too long; UINT64_MAX: never. */
uint64_t local_job_op_deadline(const struct local_job *j);
/* That has come: ends the job and says who has not started it. */
void local_job_op_late(struct local_job *j);
/* Ends the job when an operation waits for a local rank that has left. */
void local_job_check_left(struct local_job *j);
void local_job_op_done(struct local_op *op);
void local_job_drop_ops(struct local_job *j);

/* op.c */
int local_op_new(struct local_op **ret, struct local_job *j, unsigned local_rank, const struct local_submit *s,
		 struct rs_err *e);
/* Lets go of its memory. The operation's own becomes idle. */
void local_op_free(struct local_op *op);
/* "an all-reduce sum of 8192 float32". */
void local_op_describe(char *buf, size_t size, const struct local_submit *s);
/* RS_EMISMATCH when what this local rank says is not what the first one said. */
int local_op_compare(const struct local_op *op, unsigned local_rank, const struct local_submit *s, struct rs_err *e);
/* Bytes of private memory it needs. */
size_t local_op_stage(const struct local_op *op);
/* The local rank that is a broadcast's root; members_n when it is on another node. */
unsigned local_op_root(const struct local_op *op);
/* All sides are in and stage is there: sets x. */
void local_op_prepare(struct local_op *op);

/* nonfinite.c */
/* x is set: from here on its numbers are looked at, if they are to be. */
void local_op_detect_nonfinite(struct local_op *op);
/* On the engine's thread, before elements [first, first + n) of all sides are added up at `sum`. */
void local_op_check_inputs(struct local_op *op, const void *sum, uint64_t first, uint32_t n);

/* progress.c */
uint64_t local_ring_bytes(const struct rs_config *cfg);
/* Whether a SUBMIT's ring can be. RS_EPROTO. */
int local_ring_check(const struct local_job *j, const struct local_submit *s, struct rs_err *e);
int local_job_filled(struct local_client *c, const struct local_filled *f, struct rs_err *e);
/* All sides are in: from here on bytes that come are looked for, until it is filled or over. */
void local_op_track_input(struct local_op *op);
void local_op_untrack_input(struct local_op *op);
/* Whether a local rank has left of whose bytes an operation has not got all; then the job ends. */
bool local_job_check_input_left(struct local_job *j);
/* The oldest operation of which a local rank could give more bytes; NULL: there is none. */
const struct local_op *local_job_lagging_op(const struct local_job *j);
/* It has waited too long: ends the job and says for whom. */
void local_job_input_late(struct local_job *j, const struct local_op *op);
/* Before it runs, when a side has a ring; */
void local_op_pieces(struct local_op *op);
/* then for each chunk that has landed, by its first element, on the engine's thread; */
void local_op_landed(struct local_op *op, uint64_t first);
/* and on the hub's. */
void local_op_send_landed(struct local_op *op);

/* stage.c */
bool local_stage_fits(const struct local_stages *s, size_t bytes);
void *local_stage_take(struct local_stages *s, size_t bytes, const struct local_hub *h);
void local_stage_give(struct local_stages *s, void *stage, size_t bytes);
void local_stages_close(struct local_stages *s, const struct local_hub *h);

#endif
