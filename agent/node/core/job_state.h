/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a job on one node. */
#ifndef RS_AGENT_NODE_CORE_JOB_STATE_H
#define RS_AGENT_NODE_CORE_JOB_STATE_H

#include "agent/node/core/hub.h"
#include "agent/node/core/stage.h"

#include <sys/queue.h>

/* A local rank's place in its job. It outlives the client, so that messages can name
 * it. */
struct local_member {
	struct local_client *client; /* NULL: has not joined or has left */
	bool left;                   /* with GOODBYE */
	struct local_hello hello;    /* of the last client that joined */
	uint64_t joined_ms;          /* when it joined */
	uint64_t next_seq;           /* of its next operation */
	unsigned in_flight;          /* operations without DONE */
};

/* The local ranks of one (name, generation). Invariants: engine is not NULL exactly in
 * JOB_STARTING .. JOB_FAILED before local_job_engine_freed. ring[seq % hub->ops] holds
 * the operations [matched, newest), which some local ranks have started and others have
 * not; no client runs ahead by more than hub->ops, so the ring suffices. `filling` holds
 * the operations that wait for bytes of local ranks, in the order of seq. */
struct local_job {
	struct local_hub *hub;
	LIST_ENTRY(local_job) link;  /* in hub->jobs */
	const struct rs_config *cfg; /* that of the hub when the job was made; constant */
	uint64_t ring_bytes;         /* of a ring that does not slow an operation down; constant */
	uint32_t decoded_bytes;      /* as in struct exchange_params; constant */
	char name[RS_NAME_MAX];
	char run[RS_RUN_MAX]; /* of all its ranks; "": unknown */
	uint32_t generation;
	enum local_job_state {
		JOB_GATHERING, /* waits for local ranks until deadline_ms */
		JOB_STARTING,  /* waits for the engine's on_ready */
		JOB_RUNNING,
		JOB_ENDING,  /* all clients have left; waits for local_job_engine_freed */
		JOB_FAILING, /* waits for the engine's on_failed; until then it may write to the clients' memory */
		JOB_FAILED,  /* clients have got ABORT; waits until they leave and the engine is freed */
	} state;
	uint64_t deadline_ms;
	uint64_t opened_ms, report_ms; /* when the first local rank came; when the missing ones are reported next */
	unsigned members_n;            /* local world size */
	unsigned clients_n;            /* members with a client */
	struct local_member *members;
	void *engine;
	bool shared;        /* some node of the job has several ranks */
	bool one_node;      /* all ranks of the job are here */
	bool single_worker; /* there is no other node: the sum of the local ranks is the result */
	bool freeing;       /* engine_free was called */
	bool gathered;      /* all local ranks have joined, now or before it failed */
	struct local_event ready, failed;
	struct rs_err err; /* why it failed */

	struct local_op **ring;
	uint64_t matched, newest;
	struct local_op *queue, **queue_end; /* started by all local ranks; wait for a stage */
	struct local_op *filling, **filling_end;
	unsigned running;      /* operations that the engine has */
	struct local_op *idle; /* memory of ended operations, for the next ones */
	struct local_stages stages;
};

/* Returns the bytes of an operation's chunk in a ring. */
static inline uint64_t local_job_span(const struct local_job *j, const struct operation *of)
{
	return operation_span(of, j->cfg->sharding.chunk_bytes, j->decoded_bytes);
}

/* Returns the local rank of a rank; members_n: it is on another node. */
static inline unsigned local_job_find_rank(const struct local_job *j, uint32_t rank)
{
	unsigned i = 0;

	while (i < j->members_n && j->members[i].hello.rank != rank)
		i++;
	return i;
}

/* job_end.c */
/* Ends the job with this error: the engine first, then the clients get ABORT. */
void local_job_fail(struct local_job *j, const struct rs_err *err);
/* The engine does not touch the clients' memory any more: sends ABORT to the clients. */
void local_job_finish_failing(struct local_job *j);
/* Frees the engine; local_job_engine_freed() follows. */
void local_job_free_engine(struct local_job *j);
/* Frees all operations that the engine does not have. */
void local_job_drop_ops(struct local_job *j);

#endif
