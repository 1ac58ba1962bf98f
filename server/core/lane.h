/* SPDX-License-Identifier: Apache-2.0 */
/* The sans-IO core of one lane of a reducer: sessions in, sums out. One thread owns a lane; there are no locks.
 *
 * A session is one connection of one rank. All sessions of a job with the same lane number form a stripe, which owns
 * the slots: all ranks' bytes of a chunk meet there. A driver (lane_tcp.c, the simulator) asks a session where the next
 * bytes go, receives them, tells it how many came, and sends what sessions have to send:
 *
 *     n = session_recv_target(s, iov); got = recvmsg(iov, n); session_received(s, got, now);
 *     while ((s = lane_next_ready(lane))) { n = session_send_target(s, iov, max); session_sent(s, sendmsg(...), now); }
 *
 * What the registry must know comes out through the event sink; what the registry decides comes in through lane_start,
 * lane_send_all and lane_abort. The happy path of a session is: attached -> (START) running -> GOODBYE -> draining ->
 * closed. Failure modes: the peer is lost, breaks the protocol or disagrees with another rank. Then, once the job runs,
 * the whole stripe ends: every session gets ABORT with the sentence, and is closed after it was sent. */
#ifndef RS_SERVER_CORE_LANE_H
#define RS_SERVER_CORE_LANE_H

#include "common/error.h"
#include "common/kernels/kernels.h"
#include "proto/frame.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct lane;
struct session;

enum {
	LANE_SCRATCH = 256 << 10, /* bytes of the shared receive scratch: meant to stay in L2 */
	/* Bytes behind a payload that come with the same system call, L2 as well: 128 KiB and the headers of as many
	 * chunks, so that what a rank sends at once does not end in a few bytes that are read, summed and answered by
	 * themselves. */
	LANE_AHEAD = 132 << 10,
	LANE_LINGER_MS = 1000, /* how long a closed session may take to read its last frames */
	SESSION_IOV = 64,      /* most iovecs of one send target */
	/* Frames without a chunk that a worker may send between two ticks of its lane: more than it has reasons for in
	 * minutes, and little enough not to be felt by other jobs of the lane. */
	SESSION_CONTROLS = 4096,
};

/* What all sessions of a stripe have in common. */
struct stripe_params {
	uint64_t job; /* number of the job in this process, never used twice */
	uint32_t generation;
	unsigned lane; /* of the job's lanes on this reducer */
	unsigned world_size;
	uint32_t chunk_bytes;
	uint32_t window;
	uint32_t priorities; /* 1 .. FRAME_PRIORITIES */
	bool deterministic;
	bool checksum;
	bool retain;     /* other reducers can take over: a lost rank is lost to this one */
	uint8_t *memory; /* stripe_memory() bytes, page-aligned and touched; borrowed until every session is gone */
};

/* Bytes of the slots of one stripe. Saturates instead of overflowing. */
uint64_t stripe_memory(const struct stripe_params *p);
/* Most bytes that one stripe with the sessions of all its ranks allocates besides: tables, control frames that wait,
 * rings of results. */
uint64_t stripe_overhead(const struct stripe_params *p);

struct session_params {
	unsigned rank;
	uint32_t peer_detect_ms; /* a PING goes out after a quarter of it without other traffic */
	char label[128];         /* who the worker says it is, for messages */
};

enum lane_event_type {
	LANE_CLOSED, /* a session is over and its connection may be closed */
	LANE_FAILED, /* the job cannot go on; the stripe has ended */
	LANE_LOST,   /* a running job's rank was lost; LANE_FAILED follows */
	LANE_LATE,   /* ranks have let the others wait for a second; once for each chunk */
};

struct lane_event {
	enum lane_event_type type;
	uint64_t job;
	unsigned rank, lane; /* GONE, LOST; LATE: the first of them */
	bool clean;          /* LANE_CLOSED: it said GOODBYE */
	struct rs_err why;   /* FAILED, LOST */
	uint64_t seq;        /* LATE: the operation */
	uint32_t waited_ms;  /* LATE */
	unsigned late;       /* LATE: how many ranks are */
};

struct lane_options {
	const struct rs_kernels *kernels;
	uint32_t detect_ms; /* silence after which a worker is lost */
	/* Called from within the lane's functions. Must not call them. */
	void (*event)(void *ctx, const struct lane_event *ev);
	void *ctx;
};

int lane_new(struct lane **ret, const struct lane_options *opt, struct rs_err *e);
/* Frees the lane with all its sessions and stripes. */
void lane_free(struct lane *l);

/* A connection whose HELLO the registry has admitted joins the stripe p (made when it is the first). `user` is the
 * driver's. WELCOME must have been queued by the caller with session_queue(). Errors: RS_ENOMEM. */
int lane_attach(struct lane *l, struct session **ret, const struct stripe_params *p, const struct session_params *sp,
		void *user, uint64_t now_ms, struct rs_err *e);

/* All ranks are there: START goes out, contributions may come. */
void lane_start(struct lane *l, uint64_t job, uint64_t processes);
/* A control frame for every session of the job. A session that has not taken the last one yet
 * goes without: a peer that does not read must not fill its queue, which START has to fit into. */
void lane_send_all(struct lane *l, uint64_t job, const void *frame, size_t len);
/* The job is over, for a reason found elsewhere: its sessions get ABORT and are closed. */
void lane_abort(struct lane *l, uint64_t job, int code, const char *message);
/* Heartbeats, silence, lingering; to be called every LANE_TICK_MS or so. */
enum { LANE_TICK_MS = 100, LANE_SECOND_MS = 1000 };
void lane_tick(struct lane *l, uint64_t now_ms);

/* What has begun to come since the last call. An operation of at most LANE_SMALL_BYTES is over so soon that the next
 * one may come before a thread has gone to sleep and been woken again. */
enum { LANE_SMALL_BYTES = 64 << 10 };
enum lane_arrivals {
	LANE_ARRIVED_NOTHING, /* no contribution; frames without one, or more of those before */
	LANE_ARRIVED_SMALL,   /* contributions to small operations alone */
	LANE_ARRIVED_LARGE,
};
enum lane_arrivals lane_arrivals(struct lane *l);

/* The next session that has something to send or must be closed, each at most once until it changes again; NULL. */
struct session *lane_next_ready(struct lane *l);

void *session_user(const struct session *s);
/* Queues bytes of a control frame. False when the queue is full (nothing is queued). */
bool session_queue(struct session *s, const void *frame, size_t len);
/* Where the next bytes from the peer go: 1 or 2 iovecs, valid until any other call on the lane. 0: do not read. */
unsigned session_recv_target(struct session *s, struct iovec iov[2]);
/* n bytes, n > 0, have arrived there. */
void session_received(struct session *s, size_t n, uint64_t now_ms);
/* What to send next, at most max iovecs; 0: nothing. Stays valid until session_sent or lane_abort. */
unsigned session_send_target(struct session *s, struct iovec *iov, unsigned max);
void session_sent(struct session *s, size_t n, uint64_t now_ms);
/* The connection broke or the peer closed it; `why` is a phrase ("connection reset by peer"). */
void session_lost(struct session *s, const char *why);
/* Nothing more will be sent: the driver shuts down its sending side and reads on until the peer closes or it is over.
 */
bool session_shut(const struct session *s);
/* Over: the driver closes the connection and calls session_free. */
bool session_closed(const struct session *s);
/* Reports LANE_CLOSED and frees. */
void session_free(struct session *s);

#endif
