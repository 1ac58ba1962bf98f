/* SPDX-License-Identifier: Apache-2.0 */
/* The local protocol: messages between a training process (client) and its node's agent
 * on a UNIX SOCK_SEQPACKET socket.
 *
 * Each message is one fixed-size struct in host byte order, since both ends are on the
 * same machine. The first four bytes (version, type) keep their place in every version. A
 * message that is not exactly this is answered with REFUSED or ABORT and the end of the
 * connection.
 *
 *   client                                  agent
 *   HELLO  rank, job, sizes           --->
 *                                     <---  WELCOME  limits     (or REFUSED with the reason; retry: connect again)
 *                                     <---  READY  all ranks of all nodes have joined   (or ABORT: which are missing)
 *   ALLOC  bytes                      --->
 *                                     <---  ALLOCED  id, size, and a memfd as SCM_RIGHTS   (or why not)
 *   SUBMIT  seq, buffers, count, ...  --->
 *   FILLED  seq, elements written     --->
 *                                     <---  LANDED  a counter has grown
 *                                     <---  DONE  seq   (or why it failed)
 *   STATS                             --->
 *                                     <---  COUNTERS
 *                                     <---  PING
 *   PONG                              --->
 *   FREE  id                          --->
 *   GOODBYE, close                    --->
 *                                     <---  ABORT  reason: this generation of the job is over
 *   ABORT  reason, close              --->
 *
 * HELLOs of local ranks 0..n-1 of one (job, generation) make a job. They must agree on
 * run, world size, local world size, nodes and node rank. A rank that differs is refused
 * with a sentence that names both. If the run is the same, the job ends at once for the
 * others too, and for those that come within the next 3 s. All must come within the first
 * one's connect_ms. A newer generation ends the older one.
 *
 * The k-th SUBMIT of every local rank is the same operation: dtype, op, count, root,
 * priority, encodings and name must be equal, otherwise the job ends with a sentence that
 * names both. A client has at most WELCOME.ops operations without DONE.
 *
 * After an ABORT the agent no longer touches the client's memory and ignores further
 * SUBMITs. A client's ABORT ends the job on all ranks with the client's sentence, code
 * -15. GOODBYE of a client with operations without DONE ends the job on all ranks, code
 * -9: its requests fail, so no other rank may get a result. After a client's ABORT or
 * GOODBYE the agent closes the connection when it no longer touches the client's memory.
 * A client with operations without DONE waits for that, for at most a second. If the
 * agent stands still, libreduction then replaces the shared pages of these operations by
 * copies, which the agent cannot reach. The memfd is sealed against shrinking and growing
 * and has all its pages, so no access of either side can fail.
 *
 * A client that exits, stalls, floods or sends garbage ends its own job and no other. Its
 * limits: timeouts.handshake to HELLO; LOCAL_BUFFERS_MAX buffers, agent.shm_bytes of all
 * clients; job.max_ops operations, and 64 more unread messages; timeouts.op for all local
 * ranks to start an operation, and to continue one that has begun. */
#ifndef RS_AGENT_NODE_CORE_PROTOCOL_H
#define RS_AGENT_NODE_CORE_PROTOCOL_H

#include "common/error.h"
#include "config/evidence.h"
#include "config/run.h"
#include "proto/operation.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

enum {
	LOCAL_VERSION = 9,
	LOCAL_CLIENTS_MAX = 1024,   /* connections of one agent, and local ranks of one job */
	LOCAL_BUFFERS_MAX = 4096,   /* buffers of one client; ids are below this */
	LOCAL_TEXT = 508,           /* bytes of a sentence, as in struct rs_err */
	LOCAL_NAME = 64,            /* bytes of an operation's name that are sent, terminator included */
	LOCAL_PINGS_PER_DETECT = 4, /* PINGs within a detection time: a client that answers none of so many is lost */
	LOCAL_DETECT_MIN_MS = 400,
};

enum local_type {
	LOCAL_HELLO = 1,     /* client: describes itself; the first message of a connection */
	LOCAL_WELCOME = 2,   /* agent: the client is one of the job's local ranks */
	LOCAL_REFUSED = 3,   /* agent: it is not; the connection closes. struct local_failure */
	LOCAL_READY = 4,     /* agent: all ranks of the job have met */
	LOCAL_ALLOC = 5,     /* client: asks for shared memory, one request at a time */
	LOCAL_ALLOCED = 6,   /* agent: the reply; if code is 0, with the descriptor of a memfd as SCM_RIGHTS */
	LOCAL_FREE = 7,      /* client: it has unmapped a buffer; no reply */
	LOCAL_SUBMIT = 8,    /* client: starts its next operation */
	LOCAL_DONE = 9,      /* agent: an operation has ended; in any order of seq */
	LOCAL_ABORT = 10,    /* agent: this generation of the job has ended for this reason. client: it ends the job on
				all ranks for this reason, and leaves. struct local_failure */
	LOCAL_STATS = 11,    /* client: asks for the counters, one request at a time; no body */
	LOCAL_COUNTERS = 12, /* agent: the answer */
	LOCAL_GOODBYE = 13,  /* client: leaves in good order; no body */
	LOCAL_FILLED = 14,   /* client: more of an operation's input at send has been written */
	LOCAL_LANDED = 15, /* agent: a counter has grown: the number of result elements, from the first one on, that are
			      in their ring (a uint64_t that the agent writes and never reads). Any counter of the
			      client may have grown. A client with other unread messages may get no LANDED; no body */
	LOCAL_PING = 16,   /* agent: sent to each local rank, LOCAL_PINGS_PER_DETECT times in the shorter of both sides'
			      detection times; no body */
	LOCAL_PONG = 17,   /* client: the reply, sent at once whatever its program does; no body */
	LOCAL_TYPE_NR
};

struct local_head {
	uint16_t version; /* LOCAL_VERSION */
	uint16_t type;    /* enum local_type */
	uint32_t bytes;   /* of the message, including this head */
};

struct local_hello {
	struct local_head head;
	char job[RS_NAME_MAX];
	char run[RS_RUN_MAX]; /* identity of the training; "": unknown */
	char evidence[RS_EVIDENCE_MAX];
	uint32_t rank, world_size;
	uint32_t local_rank, local_world_size;
	uint32_t node_rank, nodes;
	uint32_t generation;
	uint32_t pid;        /* for messages, if the agent cannot see it */
	uint32_t connect_ms; /* time within which the job's ranks must meet */
	uint32_t detect_ms;  /* silence after which the client takes the agent for lost; 0: never */
};

struct local_welcome {
	struct local_head head;
	uint32_t ops;        /* operations a client may have in flight */
	uint32_t priorities; /* of operations, at least 1 */
	/* Least size of a ring, of an operation that is not encoded; such a ring does not
	 * slow an operation down. One that is encoded needs room for as many chunks. */
	uint64_t ring_bytes;
	uint32_t chunk_bytes, decoded_bytes;
	uint64_t shm_bytes;         /* its share of agent.shm_bytes: more only if it must */
	uint32_t single_node;       /* 1: the sum of the local ranks is the result, and the reducers sum nothing */
	uint8_t wire_up, wire_down; /* enum rs_wire: encodings of large operations, job.wire of the agent's file */
	uint8_t reserved[2];
};

struct local_ready {
	struct local_head head;
	uint32_t can_shard; /* 1: SUBMITs of sharded operations may follow. DONE may say so later */
	uint32_t reserved;
};

struct local_failure {
	struct local_head head;
	int32_t code;   /* enum rs_code, never 0 */
	uint32_t retry; /* REFUSED: the reason may pass; try again until the connect timeout */
	char message[LOCAL_TEXT];
	uint32_t reserved;
};

struct local_alloc {
	struct local_head head;
	uint64_t bytes;
};

struct local_alloced {
	struct local_head head;
	int32_t code;    /* 0, or the error whose sentence is in message */
	uint32_t buffer; /* id of the memory from now on */
	uint64_t bytes;  /* its size, at least what was asked for; map all of it, shared, for reading and writing */
	char message[LOCAL_TEXT];
	uint32_t reserved;
};

struct local_free {
	struct local_head head;
	uint32_t buffer;
	uint32_t reserved;
};

/* With count 0 buffers and offsets are ignored. A ring has all bytes of the result, or
 * whole chunks (operation_span()), as many as WELCOME.ring_bytes has chunks of
 * WELCOME.chunk_bytes. send and recv are the same bytes or do not overlap; for a
 * broadcast they are the same. A sharded operation has as many parts as the world has
 * ranks, and no ring; all of its elements are missing or none. A reduce-scatter has all
 * parts at send and the own one at recv, an all-gather the own one at send and all at
 * recv; one may be the own part of the other. */
struct local_submit {
	struct local_head head;
	struct operation of; /* seq: index of this client's operation, from 0 */
	uint64_t missing;    /* elements at the end of send that have not been written yet; FILLED follows */
	/* bytes; if not 0, recv is a ring of this size, in which byte i of the result is
	 * at recv_offset + i % ring. send is the same ring if it is the same place. The
	 * agent sends LANDED */
	uint64_t ring;
	uint64_t landed_offset;            /* with a ring: offset in recv_buffer of the counter that LANDED is about */
	uint64_t send_offset, recv_offset; /* bytes */
	uint32_t send_buffer, recv_buffer;
	char name[LOCAL_NAME]; /* for messages */
};

/* FILLED: the first `count` elements of send have been written and their places at recv
 * are free: more than before, and not more than fit the ring behind those that have
 * landed; of a sharded operation all. Sent after a SUBMIT with missing elements, until
 * none is missing. */
struct local_filled {
	struct local_head head;
	uint64_t seq;
	uint64_t count;
};

struct local_done {
	struct local_head head;
	uint64_t seq;
	int32_t code; /* 0, or the error whose sentence is in message */
	char message[LOCAL_TEXT];
	uint32_t can_shard; /* as in READY */
	uint32_t reserved;
};

struct local_counters {
	struct local_head head;
	uint64_t tx_bytes, rx_bytes; /* of the agent for this job, on all connections to reducers */
};

union local_message {
	struct local_head head;
	struct local_hello hello;
	struct local_welcome welcome;
	struct local_ready ready;
	struct local_failure failure;
	struct local_alloc alloc;
	struct local_alloced alloced;
	struct local_free free;
	struct local_submit submit;
	struct local_filled filled;
	struct local_done done;
	struct local_counters counters;
};

_Static_assert(sizeof(struct local_hello) == 8 + RS_NAME_MAX + RS_RUN_MAX + RS_EVIDENCE_MAX + 40, "no hidden padding");
_Static_assert(sizeof(struct local_failure) == 8 + 8 + LOCAL_TEXT + 4, "no hidden padding");
_Static_assert(sizeof(struct local_alloced) == 8 + 16 + LOCAL_TEXT + 4, "no hidden padding");
_Static_assert(sizeof(struct local_submit) == 8 + 32 + 48 + LOCAL_NAME, "no hidden padding");
_Static_assert(sizeof(struct local_done) == 8 + 20 + LOCAL_TEXT, "no hidden padding");
_Static_assert(sizeof(union local_message) <= 1024, "many fit a socket's buffer");

/* Returns "HELLO", ...; "type?" for an unknown number. */
const char *local_type_name(unsigned type);

/* Zeroes the message and sets its head; bytes is the size of the type's struct. */
void local_init(union local_message *m, enum local_type type);

/* Checks that m, of which n bytes have arrived, is a whole message of this version that
 * this side may send. Terminates the strings in m. Errors: RS_EPROTO, says what was
 * found. */
int local_check(union local_message *m, size_t n, bool from_client, struct rs_err *e);

/* Stores a sentence in a message, cut to LOCAL_TEXT. */
void local_put_text(char out[LOCAL_TEXT], const char *message);

/* Makes the address of a socket path. "@NAME" has no file: it is abstract, see unix(7).
 * Returns the address's length; 0: the path is too long. */
socklen_t local_address(struct sockaddr_un *ret, const char *path);
static inline bool local_is_abstract(const char *path)
{
	return path[0] == '@';
}

#endif
