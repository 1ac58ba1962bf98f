/* SPDX-License-Identifier: Apache-2.0 */
/* libreduction's side of the local protocol: a backend whose operations the node's agent
 * runs.
 *
 * Memory of client_alloc is shared with the agent and is used as it is. An operation on
 * other memory goes through a stage, a recycled shared buffer. A small operation is
 * copied in as a whole by the thread that submits it, and copied out by the reader: the
 * thread that reads the agent's messages, which is either a thread that waits for its
 * operation or the library's own. For a large operation the stage holds a ring: the
 * submitting thread fills it and returns; the reader copies out what has landed and then
 * copies in what there is room for. */
#ifndef RS_AGENT_LIB_CLIENT_CLIENT_H
#define RS_AGENT_LIB_CLIENT_CLIENT_H

#include "agent/lib/backend/backend.h"
#include "agent/node/core/protocol.h"
#include "agent/worker/engine/poll.h"
#include "common/spin.h"

#include <pthread.h>

enum {
	CLIENT_PIECE = 1 << 19,       /* bytes that are copied in before FILLED is sent */
	CLIENT_PIECES_MIN = 4,        /* an operation with fewer pieces is copied as a whole */
	CLIENT_STAGE_HEAD = 64,       /* bytes before the ring in a stage: a counter that the agent writes */
	CLIENT_STAGE_CLASSES = 192,   /* four sizes in each doubling */
	CLIENT_STAGE_MIN = 1 << 14,   /* bytes of the smallest stage */
	CLIENT_STAGE_LIMIT = 1 << 30, /* most bytes of all stages; a single operation may exceed it */
	CLIENT_LEAVE_MS = 1000,       /* longest time that a client that leaves waits for the agent */
};

/* Memory shared with the agent. Invariant: map has `bytes` bytes, and the agent knows it
 * as id. */
struct client_buffer {
	struct client_buffer *next; /* of idle stages */
	char *map;
	size_t bytes;
	uint32_t id;
};

/* A submitted operation. req NULL: the entry is free. Invariant: copied <= filled <=
 * bytes, and filled - copied <= ring while input is copied in. */
struct client_op {
	struct backend_request *req;
	struct client_buffer *stage; /* NULL: the agent writes the result to the caller's shared memory */
	char *to;                    /* where input is copied to; NULL: it is shared already */
	const char *result;          /* of a sharded operation with a stage: where in it the result is */
	size_t result_bytes;
	size_t bytes, size;        /* of all elements, and of one */
	size_t ring;               /* bytes of the ring at `to`; equal to `bytes`: it is not a ring */
	size_t filled;             /* input bytes that the agent knows of; belongs to the thread that fills */
	_Atomic size_t copied;     /* bytes copied out; written by the reader */
	bool filling;              /* a thread copies input in, and uses req */
	_Atomic uint64_t *counter; /* elements that have landed, which the agent counts; NULL: it does not */
};

/* Returns the bytes that an operation reads at send. */
static inline size_t client_send_bytes(const struct operation *of)
{
	return operation_is_gather(of) ? operation_bytes(of) / of->parts : operation_bytes(of);
}

/* Returns the bytes that it writes at recv. */
static inline size_t client_recv_bytes(const struct operation *of)
{
	return operation_is_scatter(of) ? operation_bytes(of) / of->parts : operation_bytes(of);
}

/* One connection to the agent. Invariants: at most one thread is the reader; once broken
 * is set, err stays; stage_bytes is the sum of all stages, idle or in use; an operation
 * ends when the agent does not use its memory any more. */
struct client {
	struct backend base;
	struct rs_config *cfg;
	char path[RS_PATH_LEN];
	unsigned rank;
	int fd;
	_Atomic bool can_shard; /* sharded operations may be submitted; the reader writes it */

	pthread_t thread;
	pthread_mutex_t read_lock; /* held by the reader; taken before lock */
	bool waiting; /* a thread in client_wait is the reader, also while it sleeps; the socket is hidden from the
			 library's thread */
	bool ended;   /* nothing is read any more */
	_Atomic uint64_t leave_by_ns; /* this process has said that it leaves, and waits until then for the end of the
					 connection; 0: it stays */
	uint32_t ping_interval_ms;    /* length of one interval of silence; LOCAL_PINGS_PER_DETECT of them in a row mean
					 that the agent is lost, or stopped */
	uint32_t stopped_ms;          /* after this time a stopped agent is lost */
	unsigned silent_intervals;    /* intervals of silence so far */
	struct rs_spin spin;
	struct engine_poll poll;

	pthread_mutex_t lock;   /* protects everything below; never held while a message is sent or bytes are copied */
	pthread_cond_t changed; /* signals: broken, replied, an operation has ended, a stage is free */
	bool closing;
	bool broken; /* err says why and stays; the reader has failed every operation, or will */
	struct rs_err err;

	/* Operations [oldest, next_seq) are at ops[seq % ops_n]; some of them may be done
	 * already. */
	struct client_op *ops;
	unsigned ops_n;
	uint64_t oldest, next_seq, ops_done;
	unsigned ring_ops; /* operations with a counter that grows */

	pthread_mutex_t ask_lock; /* held by the thread that waits for a reply of the agent; taken before lock */
	bool replied;
	union local_message reply;
	int reply_fd; /* -1: none */

	struct client_buffer **shared; /* memory of client_alloc, by address */
	unsigned shared_n, shared_space;
	struct client_buffer *idle[CLIENT_STAGE_CLASSES]; /* stages by size */
	size_t stage_limit;                               /* this process's share, at most CLIENT_STAGE_LIMIT */
	size_t stage_bytes;                               /* of all stages, */
	unsigned stages_busy;                             /* stages that operations use */
};

/* join.c */
/* What the agent says at the start. */
struct client_grants {
	struct local_welcome welcome;
	bool can_shard; /* READY says so */
};

/* Connects and joins the job; returns when all ranks have met. On success *ret_fd and
 * *ret are set. */
int client_join(const struct backend_options *opt, int *ret_fd, struct client_grants *ret, struct rs_err *e);
/* Sends a message; waits while the socket is full. Returns 0 or an errno. */
int client_send(int fd, const union local_message *m);
/* Sends a message without waiting, also if the socket is full; it may then be lost all
 * the same. */
void client_send_now(int fd, const union local_message *m);
/* Receives a message. *ret_fd is the descriptor that came with it, or -1. Replies to
 * PINGs itself. Returns CLIENT_NOTHING if there is none, RS_EPEER if the agent is
 * lost. */
enum { CLIENT_NOTHING = 1 };
int client_take(int fd, const char *path, union local_message *ret, int *ret_fd, struct rs_err *e);
/* Converts the sentence of a REFUSED, ABORT, ALLOCED or DONE message to an error. */
int client_failure(struct rs_err *e, int code, const char *message);

/* memory.c */
int client_alloc(struct client *c, size_t bytes, void **ret, struct rs_err *e);
void client_free(struct client *c, void *buf);
/* Returns the shared buffer that contains [p, p + bytes); NULL: none. With lock held. */
const struct client_buffer *client_find(const struct client *c, const void *p, size_t bytes);
/* Takes a stage of at least `bytes` bytes; waits until other operations end if there is
 * no room. */
int client_stage_take(struct client *c, size_t bytes, struct client_buffer **ret, struct rs_err *e);
/* Returns a stage. With lock held. */
void client_stage_give(struct client *c, struct client_buffer *stage);
/* Takes the caller's memory of an operation away from the agent, which may be stopped in
 * the middle of it: replaces shared pages by copies. Without lock held. */
void client_memory_detach(struct client *c, const struct backend_request *req);
void client_memory_close(struct client *c);

/* reader.c */
/* Starts the library's thread, which reads while no other thread does. Errors: RS_EIO,
 * RS_ENOMEM; client_reader_close must be called then, too. */
int client_reader_start(struct client *c, const struct rs_config *cfg, struct rs_err *e);
/* This process has sent ABORT or GOODBYE, its last message. The reader fails the pending
 * operations when the agent closes the connection, which says that it does not use their
 * memory any more, or CLIENT_LEAVE_MS later. */
void client_reader_leave(struct client *c);
/* Releases the reader's resources; the thread has ended or was never started. */
void client_reader_close(struct client *c);
/* As wait in backend_vtbl: reads on the calling thread. */
bool client_wait(struct backend *b, bool (*done)(const void *of), const void *of, bool soon,
		 const struct timespec *until);

/* op.c */
/* Returns whether an operation is copied in pieces. */
bool client_in_pieces(size_t bytes);
/* Returns the bytes before the ring in the stage of an operation. */
size_t client_stage_head(size_t bytes);
/* Copies the next piece in, as far as the ring has room. Returns its bytes. Only the
 * thread that fills. */
size_t client_fill_piece(struct client_op *op);
/* As filled in backend_vtbl. */
void client_filled(struct backend *b, struct backend_request *req, uint64_t bytes);
/* Copies input in and sends FILLED while there is room. The caller has set `filling`. */
void client_fill(struct client *c, uint64_t seq);
/* The reader: an operation has ended (DONE). Errors: RS_EPROTO. */
int client_op_done(struct client *c, const struct local_done *m, struct rs_err *e);
/* The reader, after each message: copies out what has landed. LANDED only triggers this,
 * and the agent may leave it out if other messages are unread. */
void client_read_counters(struct client *c);
/* The reader's last call: fails all pending operations. detach: the agent may still use
 * their memory. */
void client_fail_pending(struct client *c, const struct rs_err *why, bool detach);

/* ask.c */
/* Sends a request and waits for the reply of that type. *ret_fd is owned by the
 * caller. */
int client_ask(struct client *c, const union local_message *m, enum local_type type, union local_message *ret,
	       int *ret_fd, struct rs_err *e);

#endif
