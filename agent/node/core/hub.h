/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's side of the local protocol, without I/O: which clients are connected, which
 * jobs they form, which of their operations belong together, and what goes to the engine.
 * A driver (daemon/, tests with a fake engine) moves messages, makes memory, runs engines
 * and passes the time.
 *
 * The happy path of a job: gathering (local ranks send HELLO) -> starting (all have
 * joined, the engine meets the other nodes) -> running (SUBMIT of all local ranks -> one
 * operation of the engine -> DONE to all) -> all clients send GOODBYE -> ending
 * (engine_free) -> freed. Failure modes: a local rank does not join in time, exits,
 * breaks the protocol or disagrees with another; the engine fails; a newer generation
 * starts; the agent stops. Each ends this one job: failing (until the engine no longer
 * touches the clients' memory) -> failed (clients have got ABORT) -> freed when they have
 * left.
 *
 * All functions belong to one thread unless they say otherwise. Functions of the ports
 * must not call back. Callbacks of an exchange_op (fill, inspect, landed, done) run on
 * the engine's thread and report with a local_event through ports.post. While an
 * operation runs, the engine's thread owns the members that struct local_op names. Shared
 * memory belongs to its client and stays mapped while operations refer to it; a stage
 * belongs to one operation until it ends.
 *
 * An operation starts when all local ranks have started it and a stage is available. A
 * chunk is summed just before the engine sends it, where the first local rank's result
 * will be, or in a stage for float16 and bfloat16. Its result is then copied to the other
 * local ranks. Without other nodes (single_worker) the local sum is the result.
 *
 * A file uses only files in the lines below it:
 *
 *   hub.c, status.c, status_pack.c            what the driver calls; messages and timeouts; the status
 *   job.c                                     local ranks join a job and leave it
 *   submit.c                                  operations that all local ranks have started go to the engine
 *   job_end.c                                 a job fails; its engine is freed
 *   op.c                                      one operation
 *   sharded.c                                 a reduce-scatter or an all-gather
 *   sum.c                                     the sum of a chunk
 *   progress.c, nonfinite.c                   input that arrives while an operation runs; NaN and infinity
 *   client.c, buffer.c, stage.c, text.c, parts.h
 *   protocol.c                                the messages; also used by agent/lib/client
 */
#ifndef RS_AGENT_NODE_CORE_HUB_H
#define RS_AGENT_NODE_CORE_HUB_H

#include "agent/node/core/protocol.h"
#include "agent/worker/core/exchange.h"
#include "common/kernels/kernels.h"
#include "common/log.h"

struct local_hub;
struct local_client;
struct local_job;
struct local_buffer;

/* What an engine's thread reports to the hub. It is embedded in the object that it is
 * about, so that reporting allocates nothing. */
struct local_event {
	struct local_event *next; /* for the driver's queue */
	enum { LOCAL_EVENT_DONE, LOCAL_EVENT_LANDED, LOCAL_EVENT_READY, LOCAL_EVENT_FAILED } kind;
	void *owner;       /* the object: an operation or a job */
	struct rs_err err; /* code 0: success */
};

/* How to start an engine. The strings are valid during the call only. */
struct local_engine {
	const struct rs_config *cfg; /* valid until engine_freed */
	const char *job, *run;       /* run: identity of the training, "": unknown */
	const char *evidence;        /* config/evidence.h */
	uint32_t generation;
	unsigned rank, world_size; /* of nodes */
	unsigned processes;
	bool single_worker; /* as in exchange_options */
	bool shards;        /* the ranks of the nodes are such that operations can be sharded */
	const char *label;
	uint32_t connect_ms;
};

/* What the hub asks of its driver. */
struct local_ports {
	/* Queues a message to a client; fd (-1: none) is passed along and belongs to the
	 * callee. A LANDED that cannot be sent at once is dropped. */
	void (*send)(void *ctx, struct local_client *c, const union local_message *m, int fd);
	/* Sends what is queued, then closes the connection. local_client_lost() follows
	 * after this call has returned. */
	void (*drop)(void *ctx, struct local_client *c);
	/* Returns whether the client's process still exists, perhaps stopped; false also
	 * if that is not known. */
	bool (*runs)(void *ctx, struct local_client *c);
	/* Makes sealed shared memory of `bytes` bytes. After RS_OK local_buffer_made()
	 * follows, after this call has returned. */
	int (*shm_make)(void *ctx, struct local_buffer *b, uint64_t bytes, struct rs_err *e);
	void (*shm_free)(void *ctx, void *map, uint64_t bytes);
	/* Allocates private memory for partial sums; NULL: out of memory. */
	void *(*stage_new)(void *ctx, size_t bytes);
	void (*stage_free)(void *ctx, void *stage, size_t bytes);
	/* As in engine.h. The engine's on_ready and on_failed are local_job_on_ready and
	 * local_job_on_failed with job as user. engine_free is asynchronous:
	 * local_job_engine_freed() follows after all events of that engine. */
	int (*engine_start)(void *ctx, void **ret, struct local_job *job, const struct local_engine *spec,
			    struct rs_err *e);
	int (*engine_submit)(void *ctx, void *engine, struct exchange_op *op, struct rs_err *e);
	void (*engine_poke)(void *ctx, void *engine);
	bool (*engine_can_shard)(void *ctx, void *engine);
	void (*engine_abort)(void *ctx, void *engine, int code, const char *message);
	void (*engine_stats)(void *ctx, void *engine, uint64_t *ret_tx, uint64_t *ret_rx);
	void (*engine_free)(void *ctx, void *engine, struct local_job *job);
	/* Passes an event to local_hub_on_event() on the hub's thread, in order. Called
	 * on any thread. */
	void (*post)(void *ctx, struct local_event *note);
};

/* What a hub is created with. */
struct local_hub_options {
	const struct rs_config *cfg; /* these three must stay valid until local_hub_free; or local_hub_set_config */
	const struct rs_kernels *kernels;
	const struct rs_log *log;        /* may be NULL */
	const struct local_ports *ports; /* copied */
	void *ctx;                       /* for the ports */
	const char *host;                /* for messages; copied */
};

/* Creates a hub. Errors: RS_ENOMEM. */
int local_hub_new(struct local_hub **ret, const struct local_hub_options *opt, struct rs_err *e);
/* Frees the hub. All clients must be lost and local_hub_jobs() must be 0. */
void local_hub_free(struct local_hub *h);

/* Replaces the configuration, for jobs and clients that come later. job.max_ops does not
 * change. The one before must stay valid while local_hub_uses_config() says so. */
void local_hub_set_config(struct local_hub *h, const struct rs_config *cfg);
/* Returns whether new jobs or a job that has not ended use this configuration. */
bool local_hub_uses_config(const struct local_hub *h, const struct rs_config *cfg);

/* Adds a client for a process that has connected; pid 0: unknown. `user` belongs to the
 * driver. If there are too many clients, one that has not sent HELLO is dismissed.
 * Errors: RS_EREFUSED if there is none such or the agent is stopping (the sentence is for
 * the client), RS_ENOMEM. */
int local_client_new(struct local_client **ret, struct local_hub *h, uint32_t pid, void *user, uint64_t now_ms,
		     struct rs_err *e);
/* Dismisses the client that has waited longest without HELLO, for the reason `why`.
 * Returns false if there is none. */
bool local_hub_make_room(struct local_hub *h, const char *why);
void *local_client_user(const struct local_client *c);
/* Handles a message of n bytes in m. m may be written to. */
void local_client_message(struct local_client *c, union local_message *m, size_t n, uint64_t now_ms);
/* Nothing more comes from the client, for the reason `how`, as for local_client_lost().
 * exited: it has closed its side, which a process that goes on does only after ABORT or
 * GOODBYE. Returns whether to close the connection now. If not, an engine may still use
 * the memory of a process that goes on: drop() follows when none does. */
bool local_client_ended(struct local_client *c, const char *how, bool exited);
/* The connection is closed, for the reason `how` ("exited"), which follows "rank 3 (pid
 * 77 on HOST)" in messages. Frees c. */
void local_client_lost(struct local_client *c, const char *how);

/* The memory that shm_make asked for is mapped at map and described by fd; or err says
 * why it could not be made. Returns whether fd was passed to the send port; if not, it
 * still belongs to the caller. */
bool local_buffer_made(struct local_buffer *b, void *map, int fd, const struct rs_err *err);

/* Callbacks of a job's engine (user is the job), on the engine's thread. */
void local_job_on_ready(void *user);
void local_job_on_failed(void *user, const struct rs_err *err);
void local_job_engine_freed(struct local_job *job);

void local_hub_on_event(struct local_event *n);

/* Handles timeouts. Call it at local_hub_next() at the latest (UINT64_MAX: never). */
void local_hub_tick(struct local_hub *h, uint64_t now_ms);
uint64_t local_hub_next(const struct local_hub *h);

/* Stops taking clients and jobs. Jobs that have not started end at once, the others at
 * deadline_ms. */
void local_hub_drain(struct local_hub *h, uint64_t now_ms, uint64_t deadline_ms);
/* Returns whether draining is complete: all jobs have ended, their clients know, and no
 * engine is left. */
bool local_hub_drained(const struct local_hub *h);

/* Returns whether all local ranks of some job have joined. */
bool local_hub_gathered(const struct local_hub *h);
unsigned local_hub_clients(const struct local_hub *h);
unsigned local_hub_jobs(const struct local_hub *h);

#endif
