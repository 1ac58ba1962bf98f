/* SPDX-License-Identifier: Apache-2.0 */
/* A reducer's registry, two of its lanes, and the connections of workers, with the
 * messages between their threads. What it sends is checked: whole frames of the protocol,
 * the same bits for every rank. */
#ifndef RS_TESTS_FUZZ_SERVER_WORLD_H
#define RS_TESTS_FUZZ_SERVER_WORLD_H

#include "tests/fuzz/fuzz.h"

#include "server/core/stripe.h"
#include "server/jobs/registry.h"

enum {
	KINDS = 12,
	CONNS = 12,
	LANES = 2, /* of the reducer */
	MESSAGES = 64,
	STEPS = 200,    /* of one input */
	CHUNK = 1024,   /* bytes, unless a HELLO has another value */
	RESULTS = 1024, /* recorded results */
	REDUCERS = 3,   /* of a view */
	NEAR = 1000,    /* operations */
	DETECT_MS = 5000,
	NOISE = 32 << 10, /* bytes that other code in this process, such as libFuzzer, may allocate meanwhile */
	LIMIT = 8 << 20,  /* server.memory */
};

/* Operation q of every job is world_kinds[q % KINDS], with priority q / 2 %
 * priorities. */
extern const struct world_kind {
	uint8_t dtype, op, flags;
	uint16_t count;
	uint8_t up, down; /* of a job with the feature */
	bool sharded;     /* the same; into a part for each rank, which divides count */
} world_kinds[KINDS];

struct cursor {
	uint64_t seq;
	uint32_t chunk;
};

struct conn {
	bool used;
	struct control_hello hello;
	uint64_t job;
	struct session *session; /* NULL: in flight to its lane, or closed */
	size_t room;             /* bytes its socket still takes; SIZE_MAX: any number */
	bool write_wait;
	struct fuzz_decoder in;
	bool welcome, start, aborted;
	unsigned said, results; /* chunks */
	struct cursor next[FRAME_PRIORITIES];
	uint32_t epoch;     /* number of restarts of the lane */
	bool asked;         /* FETCH was sent for */
	struct frame fetch; /* this frame */
};

/* The messages between the accept loop and the lanes' threads; both queues keep their
 * order. */
struct message {
	enum { TO_LANE_ATTACH, TO_LANE_START, TO_LANE_TELL, TO_LANE_ASK, TO_LANE_ABORT, TO_REGISTRY } type;
	unsigned thread;
	unsigned conn;
	struct registry_admit admit;
	uint64_t job, question;
	struct lane_begin begin;
	unsigned lane, rank; /* asked */
	struct lane_event event;
	struct rs_err why;
	struct rs_cause cause;
	uint8_t frame[512];
	uint32_t frame_len;
};

struct result {
	uint64_t stream, seq, hash; /* stream: a number of the job, the lane, the priority and the epoch */
	uint32_t chunk;
};

struct world {
	struct fuzz_input in;
	struct registry *registry;
	struct lane *lanes[LANES];
	uint64_t now_ms;
	size_t piece; /* maximal bytes of one receive */
	bool hold;    /* messages stay where they are */
	struct conn c[CONNS];
	struct message messages[MESSAGES];
	unsigned messages_head, messages_n;
	struct result results[RESULTS];
	uint64_t slots, bound; /* bytes that jobs have, and their limit */
	size_t heap;           /* before the first job */
	uint32_t lives[REDUCERS];
};

/* Returns an operation as the ranks of this job call it, without its number. */
struct operation conn_operation(const struct conn *c, unsigned kind);
uint32_t conn_chunk_elems(const struct conn *c, unsigned kind);
/* Moves to the first chunk at or after the cursor that exists and has the priority. */
void conn_find_chunk(const struct conn *c, unsigned priority, struct cursor *at);
/* Returns the number of chunks of the priority before the cursor. */
uint64_t conn_position(const struct conn *c, unsigned priority);

void world_open(struct world *w);
/* Loses all connections. Then nothing may be left. */
void world_close(struct world *w);
/* Adds a message, which the caller fills. */
struct message *world_post(struct world *w);
/* Delivers one message; false: there is none. */
bool world_deliver(struct world *w);
/* Does what lanes do after each event. */
void world_flush(struct world *w);
/* Delivers all messages. */
void world_settle(struct world *w);
/* Hands bytes of a worker to its session. */
void world_feed(struct world *w, struct conn *c, const uint8_t *at, size_t len);
/* Takes what a session sends, as much as its socket has room for. */
void world_write(struct world *w, struct conn *c);
/* Checks the invariants of the lanes. */
void world_check(const struct world *w);

#endif
