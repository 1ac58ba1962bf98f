/* SPDX-License-Identifier: Apache-2.0 */
/* Scripted clients and engines around one hub, in memory. The messages to a client are
 * recorded as a story, shared memory is the heap, and the test controls the engines.
 * Replaces agentd*.c of the daemon. */
#ifndef RS_TESTS_UNIT_FAKE_AGENT_H
#define RS_TESTS_UNIT_FAKE_AGENT_H

#include "agent/node/core/hub.h"

enum {
	FAKE_CLIENTS = 64, /* clients that ever connect */
	FAKE_ENGINES = 64, /* engines that ever start */
	FAKE_OPS = 64,     /* operations of one engine at the same time */
	FAKE_BUFFERS = 16, /* buffers of one client */
	FAKE_CHUNK = 1024, /* bytes */
	FAKE_START_MS = 1000,
	FAKE_FIRST_PING_MS = 21000, /* first PING to a client that joins at once */
};

struct fake_client {
	struct local_client *client; /* NULL: closed */
	bool dropped;                /* the hub wants it closed */
	bool stopped;                /* its process exists, whatever it answers */
	char story[1024];            /* "WELCOME READY DONE:0 ABORT:-6", without PINGs */
	unsigned pings;
	char sentence[LOCAL_TEXT];  /* of the last REFUSED, ABORT, failed DONE or ALLOCED */
	void *buffer[FAKE_BUFFERS]; /* memory by id */
	uint64_t seq;               /* of its next operation */
	uint64_t tx_bytes;          /* of the last COUNTERS */
	bool can_shard;             /* of the last READY or DONE */
};

struct fake_engine {
	struct local_job *job;
	struct local_engine spec; /* with the strings below */
	char name[RS_NAME_MAX], label[128];
	struct exchange_op *ops[FAKE_OPS];
	unsigned ops_n;
	int aborted; /* the error code; 0: not aborted */
	char why[LOCAL_TEXT];
	unsigned pokes;
	bool ready; /* on_ready was called */
	bool ended; /* on_failed was called */
	bool freeing, freed;
	int refuse; /* what submit returns; 0: it accepts */
};

struct fake_agent {
	struct local_hub *hub;
	struct rs_config cfg;
	uint64_t now_ms;
	bool no_shards;       /* engines cannot shard */
	const char *run;      /* of the next HELLOs; NULL: unknown */
	const char *evidence; /* the same; NULL: none */
	struct fake_client clients[FAKE_CLIENTS];
	unsigned clients_n;
	struct fake_engine engines[FAKE_ENGINES];
	unsigned engines_n;
	struct local_event *events, **events_end;
	struct local_buffer *making[FAKE_CLIENTS];
	uint64_t making_bytes[FAKE_CLIENTS];
	unsigned making_n;
	size_t stage_bytes, stage_most; /* now, and the maximum */
	bool no_memory;                 /* for shared memory and stages */
	bool no_engine;                 /* engine_start fails */
};

/* job.max_ops is 8, agent.shm_bytes 1 MiB, timeouts.handshake 1 s, timeouts.detect 80 s;
 * kernels are the scalar ones. The engine sums jobs on one node, unless a test sets
 * otherwise. */
void fake_agent_init(struct fake_agent *fa);
/* Closes all clients without GOODBYE; asserts that nothing is left. */
void fake_agent_close(struct fake_agent *fa);

struct fake_client *fake_connect(struct fake_agent *fa);
void fake_say(struct fake_agent *fa, struct fake_client *c, union local_message *m);
void fake_lose(struct fake_client *c);
/* Delivers messages, makes memory, closes dropped connections and frees engines until
 * nothing is left to do. */
void fake_settle(struct fake_agent *fa);

/* Sends HELLO of rank `rank` of `world`, with `local` ranks on each node. */
void fake_hello(struct fake_agent *fa, struct fake_client *c, const char *job, unsigned generation, unsigned rank,
		unsigned world, unsigned local);
/* Joins all local ranks of node 0 of a job, ready to run; returns its engine. */
struct fake_engine *fake_job(struct fake_agent *fa, struct fake_client *c[], unsigned world, unsigned local);
/* Allocates a new shared buffer; returns its id. */
unsigned fake_alloc(struct fake_agent *fa, struct fake_client *c, uint64_t bytes);
/* Submits an operation in place at the start of a buffer; dtype, op, root and name are
 * those of s, which may be NULL. */
void fake_submit(struct fake_agent *fa, struct fake_client *c, unsigned buffer, uint64_t count,
		 const struct local_submit *s);
void fake_goodbye(struct fake_agent *fa, struct fake_client *c);

/* Runs the i-th operation of an engine chunk by chunk, with no contribution but this
 * node's, until it has completed. */
void fake_engine_ready(struct fake_agent *fa, struct fake_engine *en);
void fake_engine_run(struct fake_agent *fa, struct fake_engine *en, unsigned i);
/* Ends all operations with this error, then the engine. */
void fake_engine_fail(struct fake_agent *fa, struct fake_engine *en, int code, const char *message);

#endif
