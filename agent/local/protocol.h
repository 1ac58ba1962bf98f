/* SPDX-License-Identifier: Apache-2.0 */
/* What a training process (client) and its node's agent say to each other on a UNIX SOCK_SEQPACKET socket.
 *
 * Each message is one fixed-size struct in host byte order: both ends are on the same machine. The first four bytes
 * (version, type) keep their place in every version. agent/README.md tells the story; this file is the reference. */
#ifndef RS_AGENT_LOCAL_PROTOCOL_H
#define RS_AGENT_LOCAL_PROTOCOL_H

#include "common/error.h"
#include "config/config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

enum {
	LOCAL_VERSION = 3,
	LOCAL_CLIENTS_MAX = 1024, /* connections of one agent, and local ranks of one job */
	LOCAL_BUFFERS_MAX = 4096, /* of one client; ids are below it */
	LOCAL_TEXT = 508,         /* bytes of a sentence, as in struct rs_err */
	LOCAL_NAME = 64,          /* bytes of an operation's name that travel, terminator included */
	LOCAL_PINGS_PER_DETECT =
	    4, /* PINGs within a detection time: who lets so many intervals pass silently is lost */
	LOCAL_DETECT_MIN_MS = 400,
};

enum local_type {
	LOCAL_HELLO = 1,     /* client: who it is; the first message of a connection */
	LOCAL_WELCOME = 2,   /* agent: it is one of the job's local ranks */
	LOCAL_REFUSED = 3,   /* agent: it is not; the connection closes. struct local_failure */
	LOCAL_READY = 4,     /* agent: all ranks of the job have met; no body */
	LOCAL_ALLOC = 5,     /* client: wants shared memory, one at a time */
	LOCAL_ALLOCED = 6,   /* agent: the answer, with the descriptor of a memfd as SCM_RIGHTS when code is 0 */
	LOCAL_FREE = 7,      /* client: it has unmapped a buffer; no answer */
	LOCAL_SUBMIT = 8,    /* client: starts its next operation */
	LOCAL_DONE = 9,      /* agent: an operation has ended, in any order of seq */
	LOCAL_ABORT = 10,    /* agent: this generation of the job is over for this reason. struct local_failure */
	LOCAL_STATS = 11,    /* client: asks for the counters, one at a time; no body */
	LOCAL_COUNTERS = 12, /* agent: the answer */
	LOCAL_GOODBYE = 13,  /* client: leaves in good order; no body */
	LOCAL_FILLED = 14,   /* client: more of an operation's bytes at send are there */
	LOCAL_LANDED = 15,   /* agent: a counter has grown: how many elements of a result, from the first
				on, stand in their ring (a uint64_t that the agent writes and never reads). All of
				a client's may have, and a client that has other messages to read may get none; no
				body */
	LOCAL_PING = 16, /* agent: to each of a job's local ranks, LOCAL_PINGS_PER_DETECT times in the shorter of both
			    sides' detection times; no body */
	LOCAL_PONG = 17, /* client: the answer, at once and whatever its program does; no body */
	LOCAL_TYPE_NR
};

struct local_head {
	uint16_t version; /* LOCAL_VERSION */
	uint16_t type;    /* enum local_type */
	uint32_t bytes;   /* of the message, this head included */
};

struct local_hello {
	struct local_head head;
	char job[RS_NAME_MAX];
	uint32_t rank, world_size;
	uint32_t local_rank, local_world_size;
	uint32_t node_rank, nodes;
	uint32_t generation;
	uint32_t pid;        /* for messages, where the agent cannot see it */
	uint32_t connect_ms; /* how long the job's ranks may take to meet */
	uint32_t detect_ms;  /* of silence, after which the client takes the agent for lost; 0: never */
};

struct local_welcome {
	struct local_head head;
	uint32_t ops;        /* operations a client may have in flight */
	uint32_t priorities; /* of operations, at least 1 */
	uint64_t ring_bytes; /* of a ring that does not slow an operation down; a smaller one is refused */
	uint32_t chunk_bytes;
	uint32_t reserved;
	uint64_t shm_bytes; /* its fair share of agent.shm_bytes: what it should not go over without need */
};

struct local_failure {
	struct local_head head;
	int32_t code;   /* enum rs_code, never 0 */
	uint32_t retry; /* REFUSED: the reason may pass, come back until the connect timeout */
	char message[LOCAL_TEXT];
	uint32_t reserved;
};

struct local_alloc {
	struct local_head head;
	uint64_t bytes;
};

struct local_alloced {
	struct local_head head;
	int32_t code;    /* 0, or why not with message */
	uint32_t buffer; /* names the memory from now on */
	uint64_t bytes;  /* its size, at least what was asked for; map all of it, shared, to read and write */
	char message[LOCAL_TEXT];
	uint32_t reserved;
};

struct local_free {
	struct local_head head;
	uint32_t buffer;
	uint32_t reserved;
};

/* With count 0 buffers and offsets are not looked at. A ring has all bytes of the result, or at least
 * WELCOME.ring_bytes and whole chunks of WELCOME.chunk_bytes. send and recv either
 * are the same bytes or do not overlap; for a broadcast they are the same. */
struct local_submit {
	struct local_head head;
	uint64_t seq; /* this client's how-manieth operation, from 0 */
	uint64_t count;
	uint64_t missing; /* elements at the end of send that are not there yet: FILLED will tell */
	/* bytes; not 0: recv is a ring of so many, in which byte i of the result stands at recv_offset + i % ring, and
	 * so is send if it is the same place; and the agent tells LANDED */
	uint64_t ring;
	uint64_t landed_offset;            /* with a ring: of the counter in recv_buffer that LANDED is about */
	uint64_t send_offset, recv_offset; /* bytes */
	uint32_t send_buffer, recv_buffer;
	uint32_t root;         /* rank, of a broadcast */
	uint32_t name_hash;    /* frame_name_hash() of the whole name; of a group: of all names and counts */
	uint8_t dtype;         /* enum rs_dtype */
	uint8_t op;            /* enum rs_op, or FRAME_OP_BROADCAST */
	int16_t priority;      /* as in reduction_tensor; every value is allowed */
	uint32_t tensors;      /* of the group that shares the operation; 0: it is no group */
	char name[LOCAL_NAME]; /* for messages */
};

/* FILLED: the first count elements of send are there and their places at recv are free; more than before, and not more
 * than fit the ring behind those that have landed. Comes after a SUBMIT in which some were missing, until none is. */
struct local_filled {
	struct local_head head;
	uint64_t seq;
	uint64_t count;
};

struct local_done {
	struct local_head head;
	uint64_t seq;
	int32_t code; /* 0, or why it failed with message */
	char message[LOCAL_TEXT];
};

struct local_counters {
	struct local_head head;
	uint64_t tx_bytes, rx_bytes; /* of the agent for this job, on all connections to reducers */
};

union local_message {
	struct local_head head;
	struct local_hello hello;
	struct local_welcome welcome;
	struct local_failure failure;
	struct local_alloc alloc;
	struct local_alloced alloced;
	struct local_free free;
	struct local_submit submit;
	struct local_filled filled;
	struct local_done done;
	struct local_counters counters;
};

_Static_assert(sizeof(struct local_hello) == 8 + RS_NAME_MAX + 40, "no hidden padding");
_Static_assert(sizeof(struct local_failure) == 8 + 8 + LOCAL_TEXT + 4, "no hidden padding");
_Static_assert(sizeof(struct local_alloced) == 8 + 16 + LOCAL_TEXT + 4, "no hidden padding");
_Static_assert(sizeof(struct local_submit) == 8 + 80 + LOCAL_NAME, "no hidden padding");
_Static_assert(sizeof(struct local_done) == 8 + 12 + LOCAL_TEXT, "no hidden padding");
_Static_assert(sizeof(union local_message) <= 1024, "fits a socket's buffer many times");

/* "HELLO", ...; "type?" for a number that is none. */
const char *local_type_name(unsigned type);

/* Zeroes the message and sets its head. bytes is the size of the type's struct. */
void local_init(union local_message *m, enum local_type type);

/* Is m, of which n bytes have arrived, a whole message of this version that this side may send? Ends the strings in m.
 * Errors (RS_EPROTO) say what was found. */
int local_check(union local_message *m, size_t n, bool from_client, struct rs_err *e);

/* A sentence for the message types that carry one; cut to LOCAL_TEXT. */
void local_put_text(char out[LOCAL_TEXT], const char *message);

/* The address of a socket path, of which "@NAME" has no file: it is abstract, see unix(7). Returns its length, 0 when
 * the path is too long. */
socklen_t local_address(struct sockaddr_un *ret, const char *path);
static inline bool local_is_abstract(const char *path)
{
	return path[0] == '@';
}

#endif
