/* SPDX-License-Identifier: Apache-2.0 */
/* libreduction's side of the local protocol: a backend whose operations the node's agent runs.
 *
 * Memory that the agent knows (client_alloc) is used as it is; an operation on other memory goes through a stage, a
 * recycled shared buffer. A small one is copied in as a whole by the thread that submits and copied out by whoever
 * reads the agent's messages: a thread that waits for its operation, else one of the library. A stage holds a ring of a
 * large one: the submitting thread fills it and returns; the reader copies out what has landed and copies in what there
 * is place for then. */
#ifndef RS_AGENT_CLIENT_CLIENT_H
#define RS_AGENT_CLIENT_CLIENT_H

#include "agent/api/backend.h"
#include "agent/engine/poll.h"
#include "agent/local/protocol.h"
#include "common/spin.h"

#include <pthread.h>

enum {
	CLIENT_PIECE = 1 << 19,       /* bytes that are copied in before the agent is told */
	CLIENT_PIECES_MIN = 4,        /* an operation of fewer is copied as a whole */
	CLIENT_STAGE_HEAD = 64,       /* bytes before a ring in a stage: a counter that the agent writes */
	CLIENT_STAGE_CLASSES = 192,   /* four sizes in each doubling */
	CLIENT_STAGE_MIN = 1 << 14,   /* bytes of the smallest stage */
	CLIENT_STAGE_LIMIT = 1 << 30, /* most bytes of all stages; one operation alone may be over it */
};

/* Memory shared with the agent. */
struct client_buffer {
	struct client_buffer *next; /* of idle stages */
	char *map;
	size_t bytes;
	uint32_t id;
};

/* A submitted operation; req NULL: the place is free. */
struct client_op {
	struct backend_request *req;
	struct client_buffer *stage; /* NULL: its result comes to the caller's shared memory */
	char *to;                    /* where bytes are copied in; NULL: they are there */
	size_t bytes, size;          /* of all elements, and of one */
	size_t ring;                 /* bytes of the ring at `to`; bytes: it is none */
	size_t filled;               /* bytes of which the agent knows; of the one who fills */
	_Atomic size_t copied;       /* bytes copied out; written by the reader */
	bool filling;                /* a thread copies in, and uses req */
};

struct client {
	struct backend base;
	struct rs_config *cfg;
	char path[RS_PATH_LEN];
	int fd;

	pthread_t thread;
	pthread_mutex_t read_lock; /* of the reader, which is whoever reads the agent's messages; taken before lock */
	bool waiting; /* a thread in client_wait is the reader, also while it sleeps; the socket is hidden */
	bool ended;   /* nothing is read any more */
	uint32_t ping_interval_ms; /* of silence; after LOCAL_PINGS_PER_DETECT of them in a row, */
	unsigned silent_intervals; /* of which there were so many, the agent is lost */
	struct rs_spin spin;
	struct engine_poll poll;

	pthread_mutex_t lock;   /* of everything below; never held while a message is sent or bytes are copied */
	pthread_cond_t changed; /* broken, replied, an operation has ended, a stage is free */
	bool closing;
	bool broken; /* err says why; every operation has been or will be failed by the reader */
	struct rs_err err;

	/* Operations [oldest, next_seq) at ops[seq % ops_n]; some of them may be done already. */
	struct client_op *ops;
	unsigned ops_n;
	uint64_t oldest, next_seq, ops_done;
	unsigned ring_ops;              /* how many of them have a counter that grows */
	size_t ring_bytes, chunk_bytes; /* as the agent grants */

	pthread_mutex_t ask_lock; /* held by the thread whose question the agent is answering; taken before lock */
	bool replied;
	union local_message reply;
	int reply_fd; /* -1: none */

	struct client_buffer **shared; /* by address: what client_alloc has given out */
	unsigned shared_n, shared_space;
	struct client_buffer *idle[CLIENT_STAGE_CLASSES]; /* stages by size */
	size_t stage_limit;                               /* this process's share, at most CLIENT_STAGE_LIMIT */
	size_t stage_bytes;                               /* of all stages, */
	unsigned stages_busy;                             /* and how many of them operations use */
};

/* socket.c */
/* Connects and joins the job; returns when all ranks have met. On success *ret_fd and *ret (what the agent grants) are
 * set. */
int client_join(const struct backend_options *opt, int *ret_fd, struct local_welcome *ret, struct rs_err *e);
/* Waits until the message is sent. Returns 0 or an errno. */
int client_send(int fd, const union local_message *m);
/* Takes a message that has come; *ret_fd is the descriptor that came with it or -1. PINGs are answered
 * already. CLIENT_NOTHING: there is none. RS_EPEER when the agent is gone. */
enum { CLIENT_NOTHING = 1 };
int client_take(int fd, const char *path, union local_message *ret, int *ret_fd, struct rs_err *e);
/* The sentence of a REFUSED, ABORT, ALLOCED or DONE message as an error. */
int client_failure(struct rs_err *e, int code, const char *message);

/* memory.c */
int client_alloc(struct client *c, size_t bytes, void **ret, struct rs_err *e);
void client_free(struct client *c, void *buf);
/* The shared buffer that holds all of [p, p + bytes), NULL when there is none. With the lock held. */
const struct client_buffer *client_find(const struct client *c, const void *p, size_t bytes);
/* A stage of at least bytes; waits for other operations' ends when there is no room. */
int client_stage_take(struct client *c, size_t bytes, struct client_buffer **ret, struct rs_err *e);
/* With the lock held. */
void client_stage_give(struct client *c, struct client_buffer *stage);
void client_memory_close(struct client *c);

/* turn.c */
/* Starts the thread that reads while no other does. Errors: RS_EIO, RS_ENOMEM; client_reader_close is due then, too. */
int client_reader_start(struct client *c, uint32_t detect_ms, struct rs_err *e);
/* The thread has ended, or was never started. */
void client_reader_close(struct client *c);
/* As in backend_vtbl: reads on the calling thread. */
bool client_wait(struct backend *b, bool (*done)(const void *of), const void *of, bool soon,
		 const struct timespec *until);

/* client.c */
/* By the reader: one operation is over. RS_EPROTO: it cannot be. */
int client_op_done(struct client *c, const struct local_done *m, struct rs_err *e);
/* By the reader, after each message, for one that only says to look may be left out when others are unread. */
void client_read_counters(struct client *c);
/* The reader's last deed. */
void client_fail_pending(struct client *c, const struct rs_err *why);
/* Sends a question and waits for the answer of that type. *ret_fd is owned by the caller. */
int client_ask(struct client *c, const union local_message *m, enum local_type type, union local_message *ret,
	       int *ret_fd, struct rs_err *e);

#endif
