/* SPDX-License-Identifier: Apache-2.0 */
/* The worker's side of the protocol without any I/O: which chunk goes next on which lane, what arrives where, when
 * an operation is done, when a peer is lost. No locks, no clock, no system calls; a driver (engine_uv.c, the simulator)
 * moves the bytes and tells the time.
 *
 * An exchange has one link for each (reducer, lane). Chunk i of operation q belongs to shard (i + q) mod shards; the
 * configuration says which link a shard lives on. Every link sends the chunks that are its own and have the same
 * priority in the order (seq, chunk), which is therefore the same on all ranks, and those of higher priorities first.
 * It has at most `window` chunks without a result, and a few more so that each priority can always go on.
 *
 * The happy path of a link: connecting -> (driver connected) hello sent -> (CHALLENGE -> proof sent, where the job has
 * a secret) -> WELCOME -> joined -> START -> running. REFUSED with retry, or a failed connect, goes back to waiting
 * until the connect deadline. When a connection is lost later, and the job may fail over (job.failover, two reducers or
 * more), the other reducers take over (view.c) and no operation notices. Any other failure of any link ends the whole
 * exchange: every pending operation fails with one sentence, which is also sent as ABORT to the reducers that are still
 * there so that the other ranks hear the cause and not just our silence. */
#ifndef RS_AGENT_CORE_EXCHANGE_H
#define RS_AGENT_CORE_EXCHANGE_H

#include "agent/core/window.h"
#include "common/auth.h"
#include "common/error.h"
#include "config/config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

enum {
	/* Bytes of an operation that is urgent unless its caller says something else: what a few frames take is worth
	 * little to those behind it, and whoever starts so little at a time usually waits for it. Part of what ranks
	 * agree on, and therefore not configurable. */
	EXCHANGE_URGENT_MAX = 64 << 10,
};

enum { EXCHANGE_LEAD_PER_LINK = 8 }; /* chunks for each link that links may be apart, if there are not more shards */

/* One collective operation. The first part is set by the submitter, who keeps it valid until done was called. */
struct exchange_op {
	const void *send; /* this rank's contribution: elements of dtype, or float32 when wide */
	void *recv;       /* the result, elements of dtype; may be == send when not wide. Nobody else may write to send
			     or recv before done, but to what has landed where it is a ring */
	uint64_t count;
	uint8_t dtype; /* enum rs_dtype */
	uint8_t op;    /* enum rs_op, or FRAME_OP_BROADCAST */
	bool wide;     /* send holds float32 partial sums of a float16 / bfloat16 operation */
	bool root;     /* of a broadcast: this rank's bytes are the data; recv is not written */
	int priority;  /* 0: least urgent; above the highest there is: that one; below 0: none was asked for */
	uint32_t name_hash;
	uint32_t tensors; /* of the group that shares it; 0: it is no group */
	const char *name; /* for messages; NULL when it has none */
	/* Optional: send or recv is a ring of so many bytes, a multiple of a chunk's; 0: it is not. */
	uint64_t send_ring, recv_ring;
	/* Optional. How many elements of send are there, counted from the first: no chunk that goes further is sent,
	 * and none received. Another thread may let it grow and see to it that exchange_poke() follows. NULL: all. */
	const _Atomic uint64_t *ready;
	/* Optional. Called before the bytes of elements [first, first + n) at send are read for the first time: lets
	 * the agent add up its local ranks just in time. */
	void (*fill)(struct exchange_op *op, uint64_t first, uint32_t n);
	/* Optional. Looks at the contribution of elements [first, first + n), which stands at `at` as it will be sent,
	 * before it is sent for the first time, and after fill. An error, RS_ENONFINITE, is not the end of the
	 * operation: job.detect_nonfinite says what becomes of it. Not called again once it has found something. */
	int (*inspect)(struct exchange_op *op, const void *at, uint64_t first, uint32_t n, struct rs_err *e);
	/* Optional, of a solo exchange: makes the result of elements [first, first + n) in recv of the contribution at
	 * send. NULL: it is the result, and stands in recv already. */
	void (*finish)(struct exchange_op *op, uint64_t first, uint32_t n);
	/* Optional. The result of elements [first, first + n) stands in recv, or, for a root, their bytes at send are
	 * not needed any more. */
	void (*landed)(struct exchange_op *op, uint64_t first, uint32_t n);
	/* The end: success with err NULL, or the reason. The exchange does not touch op afterwards. */
	void (*done)(struct exchange_op *op, const struct rs_err *err);
	void *user;

	/* of the exchange */
	struct exchange_op *next, *prev; /* in the order of seq */
	uint64_t seq;
	uint8_t stream;       /* priority on the wire */
	bool nonfinite_found; /* inspect has found something */
	bool disjoint;        /* nothing that is sent stands where results go */
	uint32_t chunk_elems;
	uint64_t position;    /* chunks of all operations of the same priority before it */
	uint64_t chunks;      /* in all */
	uint64_t chunks_left; /* without a result */
	uint64_t started_ms;
};

/* Where byte `at` stands in a ring, or in what is none. */
static inline uint64_t exchange_ring_offset(uint64_t at, uint64_t ring)
{
	return ring ? at % ring : at;
}

struct exchange;

struct exchange_options {
	const struct rs_config *cfg; /* must stay valid until exchange_free */
	const char *job;             /* copied */
	const char *label;           /* who this is, for other ranks' messages; copied, may be NULL */
	uint32_t generation;
	unsigned rank, world_size;
	unsigned processes;   /* training processes behind this worker, >= 1 */
	uint64_t incarnation; /* random: tells two processes with the same rank apart */
	uint32_t connect_ms;  /* until all ranks have met */
	bool single_worker;   /* world_size is 1, and reducers get nothing to sum: see exchange_run_single() */
	bool adaptive;        /* the driver gives signals from which the windows find their size; else they are as
				 configured */
	/* Optional. The job's secret: with it the exchange proves to each reducer that it has it, and wants the same of
	 * the reducer; without it a reducer that asks for one is an error. Asked again for each connection, so that it
	 * may change. Must not call the exchange. */
	int (*secret)(void *user, struct auth_secret *ret, struct rs_err *e);
	/* n random bytes that nobody can guess; needed where there is `secret`. */
	int (*random)(void *user, void *buf, size_t n, struct rs_err *e);
	/* Optional. A reducer was lost, for this reason, and others have its shards; or it is back. Must not call the
	 * exchange. */
	void (*reducer_changed)(void *user, const struct rs_reducer *r, bool lives, const char *why);
	/* Optional. What an operation's inspect has found, where it is only to be logged; once for each operation. Must
	 * not call the exchange. */
	void (*on_nonfinite)(void *user, const struct rs_err *what);
	/* Optional. An operation waits for other ranks for long already, as the sentence says. Must not call the
	 * exchange. */
	void (*late)(void *user, const char *sentence);
	void *user;
};

enum exchange_state {
	EXCHANGE_JOINING, /* for START on all links; operations may be submitted already */
	EXCHANGE_RUNNING,
	EXCHANGE_ENDING, /* the last words are on their way, for a second at the most; nothing can be submitted */
	EXCHANGE_ENDED,  /* all operations are done; links that are still open want to be shut down */
};

/* What a driver has to do for a link. */
enum exchange_want {
	EXCHANGE_NOTHING,
	EXCHANGE_CONNECT,  /* open a connection to exchange_address(); call exchange_connecting() when beginning to */
	EXCHANGE_SHUTDOWN, /* shut the sending side down and go on reading until the peer closes */
	EXCHANGE_CLOSE,    /* close the connection at once, then call exchange_disconnected() */
};

/* The links are numbered 0 .. exchange_links() - 1. All functions of one exchange belong to one thread, now_ms is a
 * monotonic clock. Callbacks of operations must not call the exchange. Everything is allocated here and nothing later,
 * but for control messages while they are decoded.
 * Errors: RS_ENOMEM, RS_EINVAL. */
int exchange_new(struct exchange **ret, const struct exchange_options *opt, uint64_t now_ms, struct rs_err *e);

/* Operations must be done: in state EXCHANGE_ENDED, or none was submitted. */
void exchange_free(struct exchange *x);

enum exchange_state exchange_state(const struct exchange *x);
/* Why it ends or ended; code 0 while it does not and after exchange_goodbye without pending operations. */
const struct rs_err *exchange_error(const struct exchange *x);

unsigned exchange_links(const struct exchange *x);
/* The index in cfg->reducers of the one that it leads to. */
unsigned exchange_reducer(const struct exchange *x, unsigned link);
/* "host:port" as configured. */
const char *exchange_address(const struct exchange *x, unsigned link);
enum exchange_want exchange_want(const struct exchange *x, unsigned link, uint64_t now_ms);

/* True once after something that may have changed what links want or have to send: look at all of them. To be asked
 * after every call; what exchange_received makes room for on its own link alone is not announced. */
bool exchange_links_changed(struct exchange *x);

void exchange_connecting(struct exchange *x, unsigned link, uint64_t now_ms);
/* Before exchange_connected: the connection's channel has a binding for the proofs, at most AUTH_BINDING_MAX bytes that
 * only its two ends know; copied. Without this call it has none. */
void exchange_bind(struct exchange *x, unsigned link, const uint8_t *binding, size_t len);
void exchange_connected(struct exchange *x, unsigned link, uint64_t now_ms);
/* The connection is gone, or could not be made: reason says why ("connection reset by peer"); it is not used when the
 * exchange wanted it closed. */
void exchange_disconnected(struct exchange *x, unsigned link, const char *reason, uint64_t now_ms);

/* Where the next bytes of a connected link go: first what is left of a payload or a header, then, behind a payload, the
 * next header. Returns the number of entries, 0 when the link must not be read. Valid until the next call for any link
 * that is not of exchange_send_target or exchange_recv_target. */
unsigned exchange_recv_target(struct exchange *x, unsigned link, struct iovec iov[2]);
/* n > 0 bytes stand there. */
void exchange_received(struct exchange *x, unsigned link, size_t n, uint64_t now_ms);

/* What to send next, in at most max >= 3 entries; payloads point into the operations' memory. Returns the number of
 * entries, 0 when there is nothing. No other call for any link may come between this and exchange_sent. */
unsigned exchange_send_target(struct exchange *x, unsigned link, struct iovec *iov, unsigned max);
/* The first n bytes of the last exchange_send_target were sent. */
void exchange_sent(struct exchange *x, unsigned link, size_t n, uint64_t now_ms);

/* The kernel's view of the link's connection is wanted, once in a round of its window; what to send may change by it.
 */
bool exchange_wants_signal(const struct exchange *x, unsigned link);
void exchange_signal(struct exchange *x, unsigned link, const struct window_signal *s, uint64_t now_ms);

/* The priority on the wire, 0 .. sharding.priorities - 1, of an operation with `bytes` of elements, for which priority
 * `asked` was asked: a function of what is equal on all ranks. Any thread. */
unsigned exchange_priority(const struct rs_config *cfg, int asked, uint64_t bytes);

/* Whether an operation can be expressed in the protocol (RS_EINVAL: too many chunks). Any thread. */
int exchange_check(const struct rs_config *cfg, const struct exchange_op *op, struct rs_err *e);

/* Starts op, or queues it until all ranks have joined. An error (that of exchange_check, or of the end of the exchange)
 * means not started: done is not called. */
int exchange_submit(struct exchange *x, struct exchange_op *op, uint64_t now_ms, struct rs_err *e);

/* The `ready` of an operation has grown. */
void exchange_poke(struct exchange *x);

/* Of a solo exchange (options): does what reducers would, chunk by chunk on the calling thread, until `bytes` of its
 * processes' elements are done or there is nothing to do. True: there is more to do, when others have had their turn.
 * To be called after exchange_submit, exchange_poke, and when the state has become EXCHANGE_RUNNING. Of others: false.
 */
bool exchange_run_single(struct exchange *x, uint64_t bytes);

/* Timeouts and heartbeats; to be called at exchange_next() at the latest. */
void exchange_tick(struct exchange *x, uint64_t now_ms);
uint64_t exchange_next(const struct exchange *x);

/* Ends the job for all ranks with this code and sentence. */
void exchange_abort(struct exchange *x, int code, const char *message, uint64_t now_ms);

/* Leaves in good order, once all ranks have the results that this one may have to give them; what is pending fails with
 * RS_ECLOSED at once. */
void exchange_goodbye(struct exchange *x, uint64_t now_ms);

/* Operations that were completed without an error. Any thread. */
uint64_t exchange_ops_done(const struct exchange *x);

#endif
